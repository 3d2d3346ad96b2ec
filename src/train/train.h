/* Training, as a command calls it. Relies on comm, spec. */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "comm/comm.h"
#include "train/spec.h"

typedef struct TrainResult {
  uint64_t step, target_tokens;
  double loss, best_score, seconds;
  uint64_t best_step;
  int averaged; /* checkpoints in RUN/average; 0: none was made */
  bool has_average_score;
  double average_score;  /* of that average, where it was validated */
  bool early, stopped;   /* ended by patience; by a signal */
  uint64_t lost_metrics; /* lines of metrics.jsonl that could not be written */
} TrainResult;

/* Trains, or with spec->dry_run only prints what that would cost. `options`: those of the call as
 * config lines, for the run directory. Every rank calls it. */
NODISCARD Err train_run(const TrainSpec *spec, Comm *comm, const char *options,
                        TrainResult *result);

#endif
