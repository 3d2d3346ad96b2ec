/* From where the run is to its end. Depends on trainer. */
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H

#include "train/trainer.h"

/* Steps, validations, checkpoints and roll-backs; sets `stopped`, `early` and what concerns the
 * average in *result. Every rank calls it. */
NODISCARD Err train_loop(Trainer *t, TrainResult *result);

#endif
