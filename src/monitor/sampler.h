/* The sampler: a thread that measures this host once a second (system.h) while a run trains. The
 * first rank of every host has one. Rank 0 writes its own samples and those of the other hosts, which
 * send them as posts (comm.h), to RUN/system.jsonl. The training thread never waits for it: a disk or
 * a network that is too slow loses samples, which are counted. Depends on system, comm. */
#ifndef MONITOR_SAMPLER_H
#define MONITOR_SAMPLER_H

#include "comm/comm.h"

typedef struct Sampler Sampler;

/* What became of the samples. Each number counts those of this process. */
typedef struct {
  uint64_t samples;    /* measurements of this host */
  uint64_t lost;       /* rank 0: lines that could not be written */
  uint64_t dropped;    /* samples dropped on this rank: the queue to rank 0 was full */
  double cpu, seconds; /* processor time of the thread; time for which it ran */
} SamplerCount;

/* Starts the thread. All ranks call it, or none. On a rank that is not the first of its host, *out is
 * NULL. `run_dir`, used on rank 0 alone, must outlive the sampler. A file that cannot be opened or
 * written is a warning. */
NODISCARD Err sampler_start(Sampler **out, Comm *comm, const char *run_dir);
/* Sets the step that samples bear from now on. Any thread may call it; `s` may be NULL. */
void sampler_set_step(Sampler *s, uint64_t step);
/* Takes a last sample, ends the thread and frees the sampler; `s` may be NULL. Waits
 * at most 3 s: a thread that hangs in a driver, or at a disk that does
 * not answer, is detached. Call it before the Comm is closed. */
SamplerCount sampler_stop(Sampler *s);

#endif
