/* A checkpoint: a model directory with moments and counters beside, written beside,
 * synced, then renamed; it knows nothing of how many ranks there were. Relies on
 * model/store. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "model/store.h"

/* Where the run is: everything the next step depends on but the weights. */
typedef struct {
  uint64_t step, target_tokens, pairs;
  double best_bleu;
  uint64_t best_step;
  int worse; /* validations since the best */
  double seconds;
} TrainCounters;

typedef struct {
  const ModelConfig *config;
  const Params *params;
  const char *tokenizer; /* path of the .model */
  float *w, *m, *v;
} TrainArrays;

/* RUN/checkpoints/step-N, and the link `latest` (and `best`) to it. */
NODISCARD Err checkpoint_save(const char *run, const TrainArrays *a, const TrainCounters *c,
                              bool best);
/* Loads RUN/checkpoints/latest. */
NODISCARD Err checkpoint_load(const char *run, const TrainArrays *a, TrainCounters *c);
/* Removes all but the last `keep`, never latest or best. */
NODISCARD Err checkpoint_prune(const char *run, int keep);

#endif
