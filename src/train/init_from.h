/* Starts a run from the weights of another model (--init-from). Depends on model/store, trainer.h. */
#ifndef TRAIN_INIT_FROM_H
#define TRAIN_INIT_FROM_H

#include "train/trainer.h"

/* On rank 0: copies the weights of the model spec->init_from that the model in training has by name and
 * shape to `w`, which has initial values, and logs which were taken and which were not. Fails if the
 * model is of another family, is damaged, or has no weight that fits. */
NODISCARD Err init_from_model(const Trainer *t, float *w);

#endif
