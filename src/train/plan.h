/* What a run will cost, printed before it begins. Depends on fit, trainer. */
#ifndef TRAIN_PLAN_H
#define TRAIN_PLAN_H

#include "train/trainer.h"

/* Model, data, batches, ranks, machine, memory. */
NODISCARD Err plan_print(const Trainer *t);
/* The same, with time and traffic of a step, and whether it fits. Every rank calls it. */
NODISCARD Err plan_dry_run(Trainer *t);

#endif
