/* Set-up and end of a training run. Depends on trainer. */
#ifndef TRAIN_SETUP_H
#define TRAIN_SETUP_H

#include "train/trainer.h"

/* Runs all set-up steps. `options`: options of this call, as lines of a config file. A dry run
 * does not allocate the model and changes no file. */
NODISCARD Err train_set_up(Trainer *t, const char *options);
void train_tear_down(Trainer *t); /* must be called also after train_set_up has failed */

#endif
