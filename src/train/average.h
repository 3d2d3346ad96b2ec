/* Checkpoint averaging: the mean of the last checkpoints' weights is often a better model than any
 * of them. Depends on checkpoint. */
#ifndef TRAIN_AVERAGE_H
#define TRAIN_AVERAGE_H

#include "train/checkpoint.h"

/* Averages the weights of `k` undamaged checkpoints of the run, the newest and those of `steps`
 * before it (of each, the weights that translate would use), and writes them as a model to the
 * directory `out`, which may hold an older averaged model. *count: number of checkpoints averaged.
 * If there is only one, logs that and writes nothing; fails if there is none. */
NODISCARD Err average_last(const char *run, int k, SaveSteps steps, const char *out,
                           int *count);

#endif
