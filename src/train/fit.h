/* Computes the memory that a run needs, and the largest batch that fits. Depends on trainer. */
#ifndef TRAIN_FIT_H
#define TRAIN_FIT_H

#include "train/trainer.h"

#define FIT_SHARES 11
typedef struct {
  const char *name;
  uint64_t bytes;
  bool is_host; /* host memory; false: device memory */
} FitShare;
typedef struct {
  FitShare share[FIT_SHARES];
  size_t shares;
  uint64_t host_bytes, device_bytes; /* bytes that this rank needs in each memory */
} FitPlan;
/* What the memory of a rank depends on. */
typedef struct {
  const Model *model;        /* planned, for model->capacity tokens, on model->backend */
  uint64_t weight_copies;    /* 2 with a moving average of the weights, otherwise 1 */
  uint64_t moments;          /* arrays of the optimizer, each as large as the weights */
  uint64_t optimizer_shards; /* ranks over which the optimizer state is divided; at least 1 */
  ReduceBytes reduce;
  uint64_t validation; /* bytes of the beam search of validations */
  bool is_writer;      /* the rank saves checkpoints */
  bool has_memory_copies;
} FitInputs;
typedef struct {
  uint64_t needed, left; /* bytes that this rank needs, and bytes that are free for it */
  uint32_t tokens;       /* tokens per side of a batch that would fit; 0: none */
} FitCheck;
/* Sets *tokens to the tokens of a batch on each side, the same on all ranks: the value of
 * --batch-tokens or, with auto, the value the run began with or, in a new run, as many as
 * fit. */
NODISCARD Err fit_tokens(Trainer *t, const ModelConfig *config, uint32_t *tokens);
/* Lists what the memory of a rank is used for. Needs no run, so that `plan` can call it for
 * machines that are not here. */
void fit_list_shares(const FitInputs *in, FitPlan *plan);
/* Computes the memory of the planned model. */
NODISCARD Err fit_plan(const Trainer *t, FitPlan *plan);
/* Computes the memory of the planned model and compares it with the free memory. Every rank
 * calls it. */
NODISCARD Err fit_check(Trainer *t, FitCheck *check);
/* Fails, with a remedy, if the run does not fit. */
NODISCARD Err fit_or_refuse(Trainer *t);
/* Used by --dry-run: logs that the run fits, or returns the error. */
NODISCARD Err fit_print(Trainer *t);

#endif
