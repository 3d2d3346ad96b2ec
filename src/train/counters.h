/* Where a run is: everything the next step depends on but the arrays. Depends on scaler. */
#ifndef TRAIN_COUNTERS_H
#define TRAIN_COUNTERS_H

#include "train/scaler.h"

typedef struct {
  uint64_t step;
  uint64_t predictions, examples; /* of all steps; the task names them */
  uint64_t micro_batches;         /* of a step; 0: an older checkpoint does not record it */
  uint64_t batch_tokens, seed;    /* batch_tokens 0: an older checkpoint, which said neither */
  double best_score;
  uint64_t best_step;
  int worse;          /* validations since the best */
  uint64_t validated; /* the step validated last */
  double seconds;
  double lr_scale; /* 1 at the start */
  int rollbacks;
  Scaler scaler;
  char data[65]; /* SHA-256 of the data set's dataset.json; "" in older checkpoints */
  char task[32]; /* TaskKind.name of the run */
} TrainCounters;

#endif
