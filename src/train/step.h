/* One training step. Depends on trainer. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/trainer.h"

/* Computes gradients, reduces them over the ranks and updates the weights. *is_healthy is false
 * if the loss or the gradient is not finite and a smaller loss scale would not help. The
 * weights are unchanged in this case, if the step is skipped (sum->skipped), and with
 * ERR_STOPPED (a second signal ended the step). */
NODISCARD Err train_step(Trainer *t, double lr, StepSum *sum, bool *is_healthy);
/* Fetches the first micro-batch of the next step into t->next, if it is not there. */
NODISCARD Err train_fetch_next(Trainer *t);
/* Gathers weights and moving average in fp32 from their owners if the pieces of other ranks are
 * stale (ModelState.is_partial). A collective: every rank calls it before an array is read as a
 * whole. */
NODISCARD Err train_complete_weights(Trainer *t);

#endif
