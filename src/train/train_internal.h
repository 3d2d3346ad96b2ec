/* What the files of a training run share: state.c makes and keeps it, fit.c makes it
 * fit, step.c takes a step, plan.c says what it costs, loop.c goes round. */
#ifndef TRAIN_INTERNAL_H
#define TRAIN_INTERNAL_H

#include "comm/reduce.h"
#include "train/checkpoint.h"
#include "train/health.h"
#include "train/metrics.h"
#include "train/pass.h"
#include "train/saver.h"
#include "train/task.h"
#include "train/train.h"
#include "train/validate.h"

/* What a step, or some of them, came to. Sums over all ranks. */
typedef struct {
  double sum[MODEL_SUMS]; /* of losses, see ModelLoss */
  double predictions, examples;
  double norm; /* of the last finite gradient, before clipping */
  /* Seconds on this rank; what is left of a step is rounding. */
  double data, forward, backward, wait, update;
  double allocations;
  uint64_t steps, skipped; /* skipped: their gradients overflowed */
} StepSum;

/* A micro-batch on its way through the model, and where its time went. */
typedef struct {
  uint32_t number; /* of the step */
  TaskBatch batch;
  StepKey key;
  double start, got, mark;
} Micro;

/* What outlives this call, in RUN: checkpoints, counters, metrics. Rank 0 alone writes it. */
typedef struct {
  int lock;         /* of RUN/lock; -1: not held */
  TrainCounters at; /* where the run is */
  Saver *saver;     /* rank 0 only */
  uint64_t saved;   /* the step handed to the saver last, or loaded */
  /* Rank 0: what the last validation found. It becomes `at`'s once it is on disk, so that
   * `best` never names a checkpoint that does not exist. */
  TrainCounters verdict;
  bool verdict_pending; /* handed to the saver, outcome not known yet */
  bool verdict_lost;    /* it was the best, and is not on disk */
  bool out_of_patience;
  double call_began; /* clock when this call began to train */
  double began;      /* the same, or when it was rolled back; at.seconds counts up to here */
  Metrics metrics;
} Run;

/* Which rank this is, what it computes on, and how it reaches the others. */
typedef struct {
  Comm *comm;
  bool chief; /* rank 0: it alone writes and prints */
  int rank, ranks;
  int sharers; /* ranks on this rank's device, it among them */
  Backend backend;
  Reducer *reducer;
  Exchange exchange; /* its wire carries gradients where there is one */
  float *stage;      /* (padded) host memory: what travels between ranks; g itself on a CPU */
  bool pinned;       /* the stage, for the device */
  bool warm;         /* a step has been made */
  double usual;      /* seconds between two reports of progress, the longest so far */
} World;

/* The model in training: its weights, gradients and optimizer state. Arrays are flat, of
 * params.padded elements, in the backend's memory unless noted. */
typedef struct {
  Model *model;
  float *w, *g, *e;  /* e: moving average of the weights, or NULL */
  void *low, *low_e; /* w and e in the backend's type; the same where that is float */
  float *m, *v;      /* optimizer state, or with --shard-optimizer this rank's pieces of it */
  double *queued;    /* sums of squares on their way to `sums`; the same where it is here */
  Pass pass;         /* how the backend does a step with them */
  double *second;    /* host: NovoGrad's second moment, one for each weight */
  double *sums;      /* host: of squares, for each unit of the gradient */
} ModelState;

typedef struct {
  const TrainSpec *spec;
  Run run;
  World world;
  ModelState state;
  Task *task;
  /* The loop. */
  uint32_t micro_batches; /* of a step, over all ranks */
  uint64_t steps;         /* of the whole run */
  Schedule schedule;
  Micro next; /* the next step's first, fetched ahead; or its batch has no data */
  Health health;
  StepSum since; /* the last line of the record */
  double since_start;
  double last_loss;
} Train;

double train_elapsed(const Train *t);

/* state.c */
NODISCARD Err train_set_up(Train *t, const char *record);
void train_tear_down(Train *t);
/* From the last good checkpoint, or the beginning. */
NODISCARD Err train_restore(Train *t);
/* `awaited`: the caller waits for the write and reports its failure. */
NODISCARD Err train_save(Train *t, bool awaited);
/* Rank 0: waits until the last verdict is on disk and takes it over. */
void train_settle_verdict(Train *t);
/* The weights that validation and translation use, ready to be read. */
Weights train_weights(const Train *t);
/* Pieces of the weights that this rank has updated to all ranks, and theirs here. */
NODISCARD Err train_gather_weights(Train *t);

/* step.c: gradients, their sum over the ranks, the update. *healthy is false if
 * the loss or the gradient is not finite and no smaller loss scale could mend it. Then,
 * and when a step is skipped, the weights are as they were; so they are with ERR_STOPPED, when
 * a second signal ended the step. */
NODISCARD Err train_step(Train *t, double lr, StepSum *sum, bool *healthy);
/* Until the weights that train_gather_weights has sent by wire have come; before the
 * program waits for a device that needs them. The time goes to `sum`. */
NODISCARD Err train_await_weights(Train *t, StepSum *sum);

/* fit.c: the device of each rank, and what its memory holds. */
#define FIT_SHARES 10
typedef struct {
  const char *name;
  uint64_t bytes;
  bool here; /* in the program's memory, not on a device */
} FitShare;
typedef struct {
  FitShare share[FIT_SHARES];
  size_t shares;
  uint64_t here, there; /* bytes of this rank */
} FitPlan;
typedef struct {
  uint64_t needed, left; /* bytes, of this rank */
  uint32_t rows;         /* of a batch that would fit; 0: none */
} FitCheck;
/* Opens this rank's device: of several GPUs the ranks of a machine take one each. */
NODISCARD Err fit_open(Train *t);
/* Rows of a batch a side, the same on all ranks: what was asked for, or under auto what
 * the run began with, or for a new one as many as fit. */
NODISCARD Err fit_rows(Train *t, const ModelConfig *config, uint32_t *rows);
/* What the planned model takes, and whether it can be had. */
NODISCARD Err fit_plan(const Train *t, FitPlan *plan);
NODISCARD Err fit_check(Train *t, FitCheck *check);
NODISCARD Err fit_or_refuse(Train *t);
NODISCARD Err fit_say(Train *t);

/* plan.c */
NODISCARD Err plan_say(const Train *t);
NODISCARD Err plan_dry_run(Train *t);

#endif
