/* Histograms of all weights and gradients, for the metrics. Depends on trainer, histogram. */
#ifndef TRAIN_HISTOGRAMS_H
#define TRAIN_HISTOGRAMS_H

#include "train/trainer.h"

/* Writes a histogram of each weight ("weights/NAME") and of its mean gradient before clipping
 * ("gradients/NAME") to the metrics. Call it on every rank, directly after the step whose results
 * are in `step`: rank 0 collects the gradients of all ranks and writes. The time does not count as
 * time of steps. */
NODISCARD Err train_write_histograms(Trainer *t, const StepSum *step);

#endif
