/* `trireme doctor`: checks machines before a run. Facts (facts.h) and measurements become findings
 * (findings.h), each with a remedy. Depends on train, model, launch/probe. */
#ifndef LAUNCH_DOCTOR_H
#define LAUNCH_DOCTOR_H

#include "launch/facts.h"
#include "launch/findings.h"

/* The run that the user plans; all texts may be NULL. */
typedef struct {
  const char *preset;
  int vocab;        /* vocabulary size; if `data` is given, that of the data set */
  int keep;         /* number of checkpoints that the run keeps */
  const char *run;  /* directory of the run; need not exist */
  const char *data; /* directory of the data set */
} DoctorSpec;

/* What the planned run needs. */
typedef struct {
  char about[160]; /* description such as "preset base with a vocabulary of 32,768" */
  uint64_t parameters;
  uint64_t gradient;   /* bytes of the gradient in fp32 */
  uint64_t checkpoint; /* bytes of one checkpoint: weights, m and v */
  uint64_t disk;       /* largest number of bytes that the run needs on disk */
  uint64_t disk_used;  /* bytes of `disk` that its existing checkpoints already use */
  uint64_t memory;     /* bytes of host memory that a rank needs, without activations */
  uint64_t memory_gpu; /* bytes of GPU memory that a rank needs, without activations */
} RunNeeds;

/* Result of a gradient all-reduce between real ranks. */
typedef struct {
  bool was_run;
  uint64_t ranks, hosts, bytes;
  double seconds;    /* time of one all-reduce */
  char about[160];   /* description of the transport */
  char problem[512]; /* reason of a failure; "" if it succeeded */
} AllreduceFacts;

/* Computes the sizes of the planned model and its checkpoints: from the run if it exists,
 * otherwise from the preset. */
NODISCARD Err doctor_plan(const DoctorSpec *spec, RunNeeds *needs);

/* Runs `bench allreduce` with an array of `bytes` bytes. `launcher` (ends with NULL) are the
 * words that precede `bench`: mpirun and the program, or `trireme launch`. It is killed after
 * `seconds`. */
void doctor_run_allreduce(AllreduceFacts *a, const char *const *launcher, uint64_t bytes,
                          double seconds);

/* Compare facts with the needs of the run and add findings. `host` is "" if there is only one
 * machine. */
void doctor_judge_machine(Findings *f, const char *host, const MachineFacts *m,
                          const RunNeeds *needs);
void doctor_judge_directory(Findings *f, const char *host, const DirectoryFacts *d,
                            const RunNeeds *needs);
/* Returns true, and adds a finding, if one of the checks `needed` (ends with NULL) has found a
 * problem with which an all-reduce fails or hangs. */
bool doctor_refuse_allreduce(Findings *f, const char *const *needed);
void doctor_judge_allreduce(Findings *f, const AllreduceFacts *a, const RunNeeds *needs);

/* Checks this machine. */
typedef struct {
  MachineFacts machine;
  DirectoryFacts directory;
  AllreduceFacts allreduce;
  RunNeeds needs;
  Findings findings;
} Doctor;
NODISCARD Err doctor_check_machine(Doctor *d, const DoctorSpec *spec);
void doctor_free(Doctor *d);

#endif
