/* The training loop. Depends on trainer. */
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H

#include "train/trainer.h"

/* Runs steps, validations, checkpoints and roll-backs until the end of the run. Sets `stopped`,
 * `early` and the members about the average in *result. Every rank calls it. */
NODISCARD Err train_loop(Trainer *t, TrainResult *result);

#endif
