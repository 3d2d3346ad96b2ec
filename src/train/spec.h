/* What a training run is asked to do, the options of `train` as one struct, and what came of it. Depends on backend,
 * model, task, and the parts of train that have options. */
#ifndef TRAIN_SPEC_H
#define TRAIN_SPEC_H

#include "backend/backend.h"
#include "model/model.h"
#include "train/allreduce.h"
#include "train/optim.h"
#include "train/rundir.h"
#include "train/schedule.h"
#include "train/task.h"

/* SCALE_AUTO: dynamic where gradients are made in fp16, else none. */
typedef enum { SCALE_AUTO, SCALE_NONE, SCALE_DYNAMIC } LossScale;

typedef struct {
  const char *data, *run;
  const TaskKind *task;
  const void *task_options; /* of that kind */
  ModelConfig config;       /* sizes and form; the data set gives the rest */
  uint32_t batch_tokens;    /* 0: as many as fit */
  uint32_t micro_batches;   /* 0: one for each rank, or as the checkpoint says */
  uint64_t steps, epochs;   /* epochs 0: steps count */
  double seconds;           /* of this call; 0: no limit */
  uint64_t seed;
  Schedule schedule;
  bool decay_to_end; /* the schedule's decay ends with the run */
  OptimSpec optim;
  float clip, smoothing;
  LossScale loss_scale;
  float ema; /* what is kept of the mean in a step; 0: no mean */
  bool shard, allreduce_bf16, reproducible;
  bool overlaps; /* gradients are reduced while backward runs */
  size_t bucket; /* bytes */
  AllreduceTransport transport;
  BackendSpec backend;
  uint64_t valid_every, save_every, log_every;
  uint64_t copy_every; /* steps between in-memory copies; 0: none */
  int keep, patience;  /* checkpoints kept; validations without a better score */
  int average;         /* checkpoints averaged at the end */
  int rollbacks;       /* most roll-backs; one more divergence ends the run */
  RunStart start;
  bool dry_run;
  bool accept_data; /* resumes on another data set than the run's */
} TrainSpec;

typedef struct {
  uint64_t step, predictions;
  double loss, best_score, seconds;
  uint64_t best_step;
  int averaged; /* checkpoints in RUN/average; 0: none was made */
  bool has_average_score;
  double average_score;  /* validation score of RUN/average, if has_average_score */
  bool early, stopped;   /* ended by patience; by a signal */
  uint64_t lost_metrics; /* lines of metrics.jsonl that could not be written */
} TrainResult;

#endif
