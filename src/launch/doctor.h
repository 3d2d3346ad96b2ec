/* `trireme doctor`: checks machines before a run. Facts (facts.h) and measurements become findings
 * (findings.h), each with a remedy. Depends on train, model, launch/probe. */
#ifndef LAUNCH_DOCTOR_H
#define LAUNCH_DOCTOR_H

#include "launch/facts.h"
#include "launch/findings.h"

/* What the user plans; all texts may be NULL. */
typedef struct {
  const char *preset;
  int vocab;        /* tokens; the data set's, if `data` is given */
  int keep;         /* checkpoints that the run keeps */
  const char *run;  /* directory of the run; need not exist */
  const char *data; /* the data set */
} DoctorSpec;

/* What the planned run needs. */
typedef struct {
  char about[160]; /* "preset base with a vocabulary of 32,768" */
  uint64_t parameters;
  uint64_t gradient;   /* bytes of the gradient all-reduce, in fp32 */
  uint64_t checkpoint; /* bytes of one checkpoint: weights and two optimizer states */
  uint64_t disk;       /* bytes that the run has on disk at most */
  uint64_t disk_used;  /* bytes of it that are there already */
  uint64_t memory;     /* bytes of host memory of one rank without activations */
  uint64_t memory_gpu; /* the same, of a GPU */
} RunNeeds;

/* A gradient all-reduce over real ranks. */
typedef struct {
  bool was_run;
  uint64_t ranks, hosts, bytes;
  double seconds;    /* of one all-reduce */
  char about[160];   /* transport */
  char problem[512]; /* why it failed */
} AllreduceFacts;

/* Sizes of the planned model and its checkpoints: of the run, if it exists, else of the preset. */
NODISCARD Err doctor_plan(const DoctorSpec *spec, RunNeeds *needs);

/* Runs `bench allreduce` with one array of `bytes`. `launcher`, which ends with NULL, are the words
 * before it: mpirun and the program, or `trireme launch`. Killed after `seconds`. */
void doctor_run_allreduce(AllreduceFacts *a, const char *const *launcher, uint64_t bytes,
                          double seconds);

/* Judge facts and add findings; `host` is "" for the only machine. */
void doctor_judge_machine(Findings *f, const char *host, const MachineFacts *m,
                          const RunNeeds *needs);
void doctor_judge_directory(Findings *f, const char *host, const DirectoryFacts *d,
                            const RunNeeds *needs);
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
