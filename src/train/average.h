/* Checkpoint averaging: the mean of the last checkpoints' weights is often a better model than any
 * of them. Depends on checkpoint. */
#ifndef TRAIN_AVERAGE_H
#define TRAIN_AVERAGE_H

#include "base/err.h"

/* Averages the weights of the newest `k` undamaged checkpoints of the run (of each the weights that
 * translate would use) and writes the model directory `out`; replaces an averaged model there.
 * Prints how many were averaged and stores it in *count. If there is only one, prints that and
 * writes nothing; none is an error. */
NODISCARD Err average_last(const char *run, int k, const char *out, int *count);

#endif
