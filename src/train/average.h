/* The mean of the last checkpoints: often a better model than any of them. Relies on
 * checkpoint. */
#ifndef TRAIN_AVERAGE_H
#define TRAIN_AVERAGE_H

#include "base/err.h"

/* Averages the weights (what translate uses of each) of the newest `k` whole checkpoints
 * of the run into the model directory `out`, in place of an earlier model there; says
 * how many there were. Fewer than k is a warning, none an error. */
NODISCARD Err average_last(const char *run, int k, const char *out);

#endif
