/* A training in progress: the run (its directory and counters), the world (ranks and devices), the
 * model with its optimizer state, and the task. What is done with it, each file using only those
 * above it:
 *
 *   fit.c       batch size and memory
 *   step.c      one step
 *   snapshot.c  copies the state to a checkpoint and back
 *   setup.c     makes all of it, in an order that is explained there
 *   plan.c      prints what it costs
 *   loop.c      steps, validations, checkpoints, roll-backs
 *   train.c     set-up and loop, for the command
 *
 * Depends on run, state, task, world. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "train/health.h"
#include "train/run.h"
#include "train/state.h"
#include "train/task.h"
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
  double start;     /* when the batch was requested */
  double got;       /* when it arrived */
  double last_mark; /* when progress was last reported */
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
  double shown; /* clock of the last line that show_progress printed */
  double last_loss;
  bool is_step_reported; /* the launcher knows that the first step of this process is done */
} Trainer;

#endif
