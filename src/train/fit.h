/* Memory that a run needs, and the batch that fits. Depends on trainer. */
#ifndef TRAIN_FIT_H
#define TRAIN_FIT_H

#include "train/trainer.h"

#define FIT_SHARES 11
typedef struct {
  const char *name;
  uint64_t bytes;
  bool is_host; /* in host memory, not on a device */
} FitShare;
typedef struct {
  FitShare share[FIT_SHARES];
  size_t shares;
  uint64_t host_bytes, device_bytes; /* of this rank */
} FitPlan;
typedef struct {
  uint64_t needed, left; /* bytes, of this rank */
  uint32_t tokens;       /* of a batch that would fit, on each side; 0: none */
} FitCheck;
/* Tokens of a batch on each side, the same on all ranks: --batch-tokens, or with auto what the
 * run began with, or in a new run as many as fit. */
NODISCARD Err fit_tokens(Trainer *t, const ModelConfig *config, uint32_t *tokens);
/* The memory of the planned model. */
NODISCARD Err fit_plan(const Trainer *t, FitPlan *plan);
/* The same, compared with what is free. Every rank calls it. */
NODISCARD Err fit_check(Trainer *t, FitCheck *check);
/* An error with a remedy where the run does not fit. */
NODISCARD Err fit_or_refuse(Trainer *t);
/* For --dry-run: logs that it fits, or returns the error. */
NODISCARD Err fit_print(Trainer *t);

#endif
