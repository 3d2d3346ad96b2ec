/* One step of a training. Depends on trainer. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/trainer.h"

/* Computes gradients, sums them over the ranks and updates the weights. *is_healthy is false if the
 * loss or the gradient is not finite and no smaller loss scale could change that. Then, and when a
 * step is skipped, the weights are as they were; so they are with ERR_STOPPED, when a second signal
 * ended the step. */
NODISCARD Err train_step(Trainer *t, double lr, StepSum *sum, bool *is_healthy);
/* Waits for weights that other ranks are sending between GPUs; called before anything else waits
 * for the device. Adds the time to `sum`. */
NODISCARD Err train_wait_for_weights(Trainer *t, StepSum *sum);

#endif
