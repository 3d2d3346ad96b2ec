/* The batch that fits, and what a run takes of memory. Relies on trainer. */
#ifndef TRAIN_FIT_H
#define TRAIN_FIT_H

#include "train/trainer.h"

#define FIT_SHARES 10
typedef struct {
  const char *name;
  uint64_t bytes;
  bool here; /* in the program's memory, not on a device */
} FitShare;
typedef struct {
  FitShare share[FIT_SHARES];
  size_t shares;
  uint64_t here, there; /* bytes of this rank */
} FitPlan;
typedef struct {
  uint64_t needed, left; /* bytes, of this rank */
  uint32_t rows;         /* of a batch that would fit; 0: none */
} FitCheck;
/* Rows of a batch a side, the same on all ranks: what was asked for, or under auto what
 * the run began with, or for a new one as many as fit. */
NODISCARD Err fit_rows(Trainer *t, const ModelConfig *config, uint32_t *rows);
/* What the planned model takes, and whether it can be had. */
NODISCARD Err fit_plan(const Trainer *t, FitPlan *plan);
NODISCARD Err fit_check(Trainer *t, FitCheck *check);
NODISCARD Err fit_or_refuse(Trainer *t);
NODISCARD Err fit_say(Trainer *t);

#endif
