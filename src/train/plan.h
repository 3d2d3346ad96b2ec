/* Prints what a run needs before it begins. Depends on fit, trainer. */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H

#include "train/trainer.h"

/* Prints model, data, batches, ranks, device and memory. */
NODISCARD Err plan_print(const Trainer *t);
/* Prints what plan_print prints, and also the time and the network traffic of a step. Fails if
 * the run does not fit into memory. Every rank calls it. */
NODISCARD Err plan_dry_run(Trainer *t);

#endif
