/* The workers of one generation: which have begun, which have ended and how, and the first fault.
 * Only state; supervisor.c sends the messages. Depends on policy. */
#ifndef LAUNCH_GENERATION_H
#define LAUNCH_GENERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "launch/policy.h"

typedef struct {
  bool has_begun, has_ended;
  int status; /* -1: ended by a signal */
} WorkerState;

typedef struct {
  uint32_t number;
  WorkerState *worker; /* (world) */
  int world, begun, ended, ended_well;
  bool has_step;        /* a worker has completed a step */
  bool is_stopping;     /* workers were asked to stop: their ends are no faults */
  bool has_failed_stop; /* one of them failed instead; `fault` has the sentence */
  int passed_status;    /* exit status 2 or 3 of a worker; 0: none */
  double mpirun_ended;  /* when mpirun ended; 0: it runs, or there is none */
  int mpirun_status, mpirun_signal;

  bool has_fault;
  char fault[512];    /* a sentence: who, where, why */
  int fault_rank;     /* the rank that failed first; -1: none */
  int reporter;       /* the rank whose output says why; -1: none */
  bool is_fault_exit; /* it ended itself, with an exit status: others may follow with theirs */
  bool is_loss;       /* a worker reported the fault of another, as in a stall */
  double fault_time;
} Generation;

NODISCARD Err generation_begin(Generation *g, uint32_t number, int world);
void generation_free(Generation *g);

/* Events. Ranks out of range and repeated ends are ignored. `where` is the machine's name. */
void generation_note_begin(Generation *g, int64_t rank);
void generation_note_end(Generation *g, int64_t rank, int status, int signal_number,
                         const char *where, double now);
/* The worker `reporter` says that it ends because of `rank`. */
void generation_note_loss(Generation *g, int64_t reporter, int64_t rank, const char *text,
                          double now);
void generation_note_mpirun(Generation *g, int status, int signal_number, double now);
/* Any other fault; the first one is kept. */
void generation_note_fault(Generation *g, double now, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Did the stop fail: a worker failed, or was lost, before rank 0 had ended in order? */
bool generation_has_failed_stop(const Generation *g);
/* Have all workers ended? */
bool generation_is_over(const Generation *g);
/* Must the remaining workers be killed now? After a worker's own exit the others get a moment to
 * report what they know. */
bool generation_must_kill(Generation *g, double now);
/* How it ended. An error of a worker in the first generation before the first step would come
 * again: OUTCOME_NOT_BEGUN. */
Outcome generation_outcome(const Generation *g, bool is_first);

#endif
