/* From options to a training that can make its first step, and its end. Depends on trainer. */
#ifndef TRAIN_SETUP_H
#define TRAIN_SETUP_H

#include "train/trainer.h"

/* `options`: those of this call, as config lines. A dry run takes no memory of the model and touches
 * no file. */
NODISCARD Err train_set_up(Trainer *t, const char *options);
void train_tear_down(Trainer *t); /* also after an error of train_set_up */

#endif
