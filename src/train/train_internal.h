/* A training in progress, as the files that drive it share it:
 *
 *   fit.c       batch size and memory
 *   step.c      one step
 *   snapshot.c  copies the state to a checkpoint and back
 *   setup.c     makes all of it, in an order that is explained there
 *   plan.c      prints what it costs
 *   loop.c      steps, validations, checkpoints, roll-backs
 *   train.c     set-up and loop, for the command
 *
 * Each uses only those above it. */
#ifndef TRAIN_INTERNAL_H
#define TRAIN_INTERNAL_H

#include "train/health.h"
#include "train/run.h"
#include "train/state.h"
#include "train/validate.h"
#include "train/world.h"

/* Results of a step, or sums over several. Over all ranks, but for times. */
typedef struct {
  double sum[MODEL_SUMS]; /* of losses, see ModelLoss */
  double predictions, examples;
  double grad_norm; /* of the last finite gradient, before clipping */
  double data, forward, backward, wait, update; /* seconds on this rank */
  double allocations;
  uint64_t steps, skipped; /* skipped: their gradients overflowed */
} StepSum;

/* A micro-batch of this rank, and clocks that say where its time went. */
typedef struct {
  uint32_t number; /* in the step */
  TaskBatch batch;
  StepKey key;
  double start;     /* asked for */
  double got;       /* there */
  double last_mark; /* progress was reported last */
} MicroBatch;

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
  MicroBatch next; /* the first of the next step, fetched ahead; or its batch has no data */
  Health health;
  StepSum since; /* the last record in the metrics */
  double since_start;
  double last_loss;
} Train;

/* setup.c. `options`: those of this call, as config lines. */
NODISCARD Err train_set_up(Train *t, const char *options);
void train_tear_down(Train *t);

/* snapshot.c */
/* The arrays that a checkpoint holds; also what it must match. */
TrainArrays train_arrays(const Train *t);
/* From the last good checkpoint, or the beginning. */
NODISCARD Err train_restore(Train *t);
/* Copies the state to the saver, which writes it in the background. `is_awaited`: the caller waits
 * for the write and reports its failure. */
NODISCARD Err train_save(Train *t, bool is_awaited);

/* step.c: gradients, their sum over the ranks, the update. *is_healthy is false if the loss or the
 * gradient is not finite and no smaller loss scale could change that. Then, and when a step is
 * skipped, the weights are as they were; so they are with ERR_STOPPED, when a second signal ended
 * the step. */
NODISCARD Err train_step(Train *t, double lr, StepSum *sum, bool *is_healthy);
/* Waits for weights that other ranks are sending between GPUs; called before anything else waits
 * for the device. Adds the time to `sum`. */
NODISCARD Err train_wait_for_weights(Train *t, StepSum *sum);

/* loop.c: from where the run is to its end. */
struct TrainResult;
NODISCARD Err train_loop(Train *t, struct TrainResult *result);

/* fit.c: the batch that fits, and what a run takes of memory. */
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
