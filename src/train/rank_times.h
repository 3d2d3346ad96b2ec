/* Times of every rank, in the metrics: they show which rank the others wait for. Depends on trainer. */
#ifndef TRAIN_RANK_TIMES_H
#define TRAIN_RANK_TIMES_H

#include "train/trainer.h"

/* Gathers the times of the ranks over the steps in t->since, and records them on rank 0 as an event
 * "ranks". A collective of a few bytes per rank; all ranks call it. Does nothing with one rank. */
NODISCARD Err rank_times_record(Trainer *t);

#endif
