/* The position of a run: everything that the next step depends on, except the arrays. Depends
 * on scaler. */
#ifndef TRAIN_COUNTERS_H
#define TRAIN_COUNTERS_H

#include "train/scaler.h"

typedef struct {
  uint64_t step;
  uint64_t predictions, examples; /* totals over all steps, such as target tokens and pairs */
  uint64_t micro_batches; /* micro-batches per step; 0: not recorded by an older version */
  /* batch_tokens is 0 in a checkpoint of an older version, which did not store these two. */
  uint64_t batch_tokens, seed;
  double best_score;
  uint64_t best_step;
  int worse;          /* number of validations since the best one */
  uint64_t validated; /* step of the last validation */
  double seconds;
  double lr_scale; /* factor of the learning rate; 1 at the start, halved at each roll-back */
  int rollbacks;
  Scaler scaler;
  /* SHA-256 of the data set's dataset.json; "" in checkpoints of older versions. */
  char data[65];
  char task[32]; /* name of the run's task (TaskKind.name) */
} TrainCounters;

#endif
