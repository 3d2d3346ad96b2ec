/* The options of `train` as one struct, and the result of a run. Depends on backend, model,
 * task, and the parts of train that have options. */
#ifndef TRAIN_SPEC_H
#define TRAIN_SPEC_H

#include "backend/backend.h"
#include "model/model.h"
#include "train/allreduce.h"
#include "train/optim.h"
#include "train/rundir.h"
#include "train/schedule.h"
#include "train/task.h"

/* SCALE_AUTO: dynamic if the backend computes in fp16, otherwise none. */
typedef enum { SCALE_AUTO, SCALE_NONE, SCALE_DYNAMIC } LossScale;

typedef struct {
  const char *data, *run;
  /* All options with their values, also defaults, as lines of a config file: hyperparameters. */
  const char *all_options;
  /* Model whose weights a new run starts from (--init-from), on rank 0; "" : none. */
  char init_from[FILE_PATH_MAX];
  const TaskKind *task;
  void *task_options;     /* options of this kind of task */
  ModelConfig config;     /* sizes and architecture; the data set determines the rest */
  uint32_t batch_tokens;  /* 0: as many as fit into memory */
  uint32_t micro_batches; /* 0: the value in the checkpoint or, in a new run, one per rank */
  /* Smallest number of micro-batches of a new run, so that ranks may be added later; 0: no
   * minimum. */
  uint32_t max_ranks;
  uint64_t steps, epochs; /* if epochs is 0, `steps` is the length of the run */
  double seconds;         /* time limit of this process; 0: none */
  uint64_t seed;
  Schedule schedule;
  double max_warmup; /* longest warm-up as a share of the steps; 0: no limit */
  bool decay_to_end; /* the decay of the schedule ends with the last step */
  OptimSpec optim;
  GroupSpec groups; /* weights without weight decay, learning rates of layers, frozen layers */
  float clip, smoothing;
  LossScale loss_scale;
  float ema; /* decay of the moving average of the weights; 0: no moving average */
  bool shard, allreduce_bf16, reproducible;
  bool overlaps;     /* gradients are reduced while backward runs */
  size_t bucket;     /* bytes of a bucket */
  int nccl_ctas;     /* maximum CTAs of a collective of NCCL; 0: NCCL chooses */
  bool reserves_sms; /* see DeviceCommSpec */
  bool tunes;        /* --tune: bucket, nccl_ctas and reserves_sms are measured */
  AllreduceTransport transport;
  BackendSpec backend;
  uint64_t valid_every, save_every, log_every;
  bool tensorboard;    /* write events for TensorBoard */
  bool system_metrics; /* measure the hosts, in RUN/system.jsonl */
  /* Weights & Biases: project for which the run is written; NULL: nothing is written. */
  const char *wandb_project;
  uint64_t histogram_every; /* steps between histograms of weights and gradients; 0: none */
  uint64_t trace_steps;     /* --trace: number of steps that are recorded; 0: none */
  uint64_t trace_from;      /* steps of this process before those */
  uint64_t copy_every;      /* steps between in-memory copies; 0: no copies */
  /* Number of checkpoints kept; number of validations without a better score. */
  int keep, patience;
  int average;   /* number of checkpoints averaged at the end */
  int rollbacks; /* largest number of roll-backs; after one more divergence the run fails */
  RunStart start;
  bool dry_run;
  bool accept_data; /* --accept-data: continue with another data set */
} TrainSpec;

typedef struct {
  uint64_t step, predictions;
  double loss, best_score, seconds;
  const TaskMetric *metric; /* the metric of best_score and average_score */
  uint64_t best_step;
  int averaged; /* number of checkpoints averaged in RUN/average; 0: none */
  bool has_average_score;
  double average_score;  /* validation score of RUN/average, if has_average_score */
  bool early, stopped;   /* the run was ended by --patience; by a signal */
  uint64_t lost_metrics; /* number of lines of metrics.jsonl that could not be written */
  uint64_t lost_texts;   /* number of lines of samples.jsonl that could not be written */
  uint64_t lost_samples; /* number of lines of system.jsonl that could not be written */
  uint64_t lost_events;  /* number of TensorBoard records that could not be written */
  uint64_t lost_wandb;   /* number of Weights & Biases records that could not be written */
} TrainResult;

#endif
