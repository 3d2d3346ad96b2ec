/* Saves the training state to a checkpoint and restores it. Depends on trainer. */
#ifndef TRAIN_SNAPSHOT_H
#define TRAIN_SNAPSHOT_H

#include "train/trainer.h"

/* Returns the arrays that a checkpoint contains, and the properties that it must match. */
TrainArrays train_arrays(const Trainer *t);
/* Returns the steps at which the run saves unless it is stopped. */
SaveSteps train_save_steps(const Trainer *t);
/* Restores the state from run.load_from, if that is set, or from the last undamaged checkpoint;
 * initializes it if there is none. */
NODISCARD Err train_restore(Trainer *t);
/* Copies the state to the saver, which writes it in the background; for `mode` see
 * saver_commit. Every rank calls it. */
NODISCARD Err train_save(Trainer *t, SaveMode mode);
/* Copies the state to an in-memory copy, written in the background. Waits while another copy or
 * the result of a validation is being written. Every rank calls it. */
NODISCARD Err train_copy(Trainer *t);

#endif
