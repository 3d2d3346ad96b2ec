/* Chooses the size of buckets, the CTAs of NCCL, and whether GEMMs are chosen for fewer SMs, by measuring
 * (--tune). Depends on trainer, step. */
#ifndef TRAIN_TUNE_H
#define TRAIN_TUNE_H

#include "train/trainer.h"

/* The options that --tune chooses. */
#define TUNED_OPTIONS 3
extern const char *const tuned_option[TUNED_OPTIONS];

/* Times forward, backward and all-reduce of one micro-batch with several sizes of buckets, then with
 * several limits of CTAs, each with and without reserved SMs, and keeps the fastest in world.tuned. Tries
 * no candidate after a minute. Every rank calls it, after the weights were loaded and before the first
 * step; weights and optimizer state do not change. Does nothing but to log why if gradients are not
 * reduced by NCCL. */
NODISCARD Err tune_allreduce(Trainer *t);

#endif
