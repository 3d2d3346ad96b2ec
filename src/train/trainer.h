/* The state of a training process: the run (directory and counters), the world (ranks and
 * devices), the model with its optimizer state, and the task. These files use it; each uses
 * only those above it:
 *
 *   fit.c         batch size and memory
 *   stopping.c    reasons to end the run early
 *   step.c        one step
 *   tune.c        measures the all-reduce (--tune)
 *   histograms.c  histograms of weights and gradients
 *   snapshot.c    saves the state to a checkpoint and restores it
 *   setup.c       set-up, in an order that is explained there
 *   plan.c        prints what the run needs
 *   rank_times.c  times of every rank, in the metrics
 *   loop.c        steps, validations, checkpoints, roll-backs
 *   train.c       set-up and loop, for the command
 *
 * Depends on run, sampler, state, task, tracing, world. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "monitor/sampler.h"
#include "train/health.h"
#include "train/run.h"
#include "train/state.h"
#include "train/task.h"
#include "train/tracing.h"
#include "train/world.h"

/* Results of one step, or sums over several. They cover all ranks, except where noted. */
typedef struct {
  double sum[MODEL_SUMS]; /* sums of losses (ModelLoss.sum) */
  double predictions, examples;
  double tokens[2]; /* TaskBatch.tokens */
  double grad_norm; /* norm of the last finite gradient, before clipping */
  double data, forward, backward, wait, update; /* seconds on this rank */
  double save; /* seconds on this rank for checkpoints; 0 in the result of a single step */
  double sent, received; /* bytes of messages of this rank */
  double grad_divisor;   /* of the last step: summed gradient / grad_divisor = mean gradient */
  double allocations;
  /* Number of steps; number of those skipped because the gradient overflowed. */
  uint64_t steps, skipped;
} StepSum;

/* Reasons to end a run before its last step (stopping.h). */
enum { STOP_SIGNAL, STOP_TIME, STOP_PATIENCE, STOP_REASONS };

/* A micro-batch of this rank, and times for the metrics. */
typedef struct {
  uint32_t number; /* number within the step */
  TaskBatch batch;
  StepKey key;
  double start;     /* time when the batch was requested */
  double got;       /* time when the batch was available */
  double last_mark; /* time of the last report of progress */
} MicroBatch;

typedef struct {
  const TrainSpec *spec;
  Run run;
  World world;
  ModelState state;
  Task *task;
  Sampler *sampler; /* NULL: not on this rank, or switched off */
  /* Members of the loop: */
  uint32_t micro_batches; /* micro-batches per step, over all ranks */
  uint64_t steps;         /* length of the whole run */
  Schedule schedule;
  /* First micro-batch of the next step, fetched ahead; batch.data is NULL if there is none. */
  MicroBatch next;
  Health health;
  bool has_stop_sum; /* stop_sum is that of the last step */
  double stop_sum[STOP_REASONS];
  StepSum since; /* sums over the steps since the last record of the metrics */
  double since_start;
  double shown; /* time of the last progress line */
  double last_loss;
  Tracing tracing;       /* --trace */
  double peak_flops;     /* peak FLOP/s of the devices of all ranks; 0: unknown */
  bool is_step_reported; /* the first step of this process has been reported to the launcher */
} Trainer;

#endif
