/* Checkpoint averaging: the average of the last checkpoints is often a better model than any
 * of them. Relies on checkpoint. */
#ifndef TRAIN_AVERAGE_H
#define TRAIN_AVERAGE_H

#include "base/err.h"

/* Averages the weights (what translate uses of each) of the newest `k` whole checkpoints
 * of the run into the model directory `out`, in place of an earlier model there; prints how
 * many they are, and gives it in *count. Fewer than k (2 or more) is a warning, none an error.
 * One is no average: a line says so, and nothing is written. */
NODISCARD Err average_last(const char *run, int k, const char *out, int *count);

#endif
