/* The state of a training to a checkpoint and back. Depends on trainer. */
#ifndef TRAIN_SNAPSHOT_H
#define TRAIN_SNAPSHOT_H

#include "train/trainer.h"

/* The arrays that a checkpoint holds; also what it must match. */
TrainArrays train_arrays(const Trainer *t);
/* From the last good checkpoint, at the start from run.copy if that is set, or from the beginning. */
NODISCARD Err train_restore(Trainer *t);
/* Copies the state to the saver, which writes it in the background; `mode`: see saver_commit. Every
 * rank calls it. */
NODISCARD Err train_save(Trainer *t, SaveMode mode);
/* The same to an in-memory copy. Waits while another copy, or the result of a validation, is written. */
NODISCARD Err train_copy(Trainer *t);

#endif
