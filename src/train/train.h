/* Training: the loop, its options, its run directory. Relies on model, data,
 * decode, metric. */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "backend/backend.h"
#include "decode/beam.h"
#include "model/config.h"
#include "train/schedule.h"

typedef struct {
  const char *data, *run;
  ModelConfig config; /* sizes and form; the data set gives the rest */
  uint32_t batch_tokens, micro_batches;
  uint64_t steps;
  double seconds; /* 0: no limit */
  uint64_t seed;
  Schedule schedule;
  float beta1, beta2, epsilon, decay, clip, smoothing;
  BackendSpec backend;
  uint64_t valid_every, save_every, log_every;
  int keep, patience, samples; /* checkpoints kept; validations without a better BLEU */
  BeamSpec beam;
  bool resume;
} TrainSpec;

typedef struct {
  uint64_t step, target_tokens;
  double loss, best_bleu, seconds;
  uint64_t best_step;
  bool early, stopped; /* ended by patience; by a signal */
} TrainResult;

NODISCARD Err train_run(const TrainSpec *spec, const char *record, TrainResult *result);

#endif
