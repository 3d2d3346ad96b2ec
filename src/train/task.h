/* A task defines the data that a run learns from and the metrics of its validation. A task is
 * one file that fills in a TaskKind, and one line in tasks.c. The rest of training accesses
 * data, batches and scores only through this header. Depends on comm, data/loader's spec,
 * model/store.h. */
#ifndef TRAIN_TASK_H
#define TRAIN_TASK_H

#include "base/file.h"
#include "base/opt.h"
#include "comm/comm.h"
#include "data/batch.h"
#include "model/store.h"

#define TASK_METRICS 10 /* largest number of metrics of a validation */

typedef struct Task Task;
typedef struct TaskKind TaskKind;

/* Arguments of TaskKind.open. */
typedef struct {
  const char *data; /* directory of the data set */
  /* Configuration without the members that the data set determines. */
  const ModelConfig *config;
  const void *options; /* struct that TaskKind.read_options has filled in */
  bool validates;      /* false: do not open what only validation needs */
  const Comm *comm;    /* the ranks that share the work of a validation */
} TaskSpec;

/* A batch, which the task fills and the model family reads. */
typedef struct {
  const void *data;
  uint32_t examples;    /* number of sentence pairs, texts or the like */
  uint32_t predictions; /* number of terms of the loss: target tokens, labels or the like */
  /* Tokens on each side, for FLOP counts as in ModelShape.gemm_weights; 0: not counted. */
  uint32_t tokens[2];
} TaskBatch;

/* A metric of the validation. */
typedef struct {
  const char *label;   /* name in the log; NULL ends the list */
  int digits;          /* digits after the decimal point */
  const char *valid;   /* name in metrics.jsonl for a validation */
  const char *average; /* name in metrics.jsonl for the averaged checkpoints */
  bool lower_is_better;
  bool is_hidden; /* the log shows it only if it is the decisive metric */
} TaskMetric;

/* Outputs of the model for validation examples: for some of them as a table whose first row has the
 * names of the columns, and for all of them as lines, if the task has such. */
typedef struct {
  Str cells; /* rows * columns strings, each ends with NUL */
  size_t rows, columns;
  Str outputs; /* one line per example */
} TaskSamples;

struct TaskKind {
  /* Value of --task, also stored in training.json; must fit into TrainCounters.task. */
  const char *name;
  const ModelFamily *family; /* model family that is trained for this task */
  /* Tables of the options of train that only this task has; ends with NULL. Two tasks may list the
   * same table. A name must not be in two tables. */
  const OptSpec *const *options;
  /* Options of the task and of its model family whose values may change without a warning when
   * a run is resumed; ends with NULL. */
  const char *const *free_options;
  /* Defaults of this task that replace those in the option table, for any option of train, as
   * lines of a config file. NULL: none. */
  const char *defaults;
  size_t option_bytes; /* size of the struct, zeroed, that read_options fills in */
  Err (*read_options)(void *own, const OptSet *opts);
  /* Returns the peak learning rate if --lr is not given and the schedule is not noam. NULL: the
   * general default. */
  double (*default_lr)(const ModelConfig *config);
  /* Longest warm-up as a share of the steps of the run, unless --warmup-steps is given; 0: no
   * limit. */
  double max_warmup;
  /* Prints what a data set of this task contains; `opts` are those of the command inspect. NULL:
   * inspect fails. */
  Err (*inspect)(const OptSet *opts);

  /* Names in metrics.jsonl of the means of ModelLoss.sum; NULL: not recorded. */
  const char *sums[MODEL_SUMS];
  int shown_sum;       /* index of the sum that the log prints as loss */
  bool has_perplexity; /* the log also prints exp(loss), for that sum and for metrics[0] */
  /* Name of the predictions (or examples) in the log; name of their rate in metrics.jsonl. */
  const char *predictions, *predictions_per_s;
  const char *examples, *examples_per_s;
  const char
      *tokens_per_s; /* name in metrics.jsonl of the rate of tokens[0]; NULL: not recorded */
  /* Keys in training.json of the totals of the run. */
  const char *predictions_total, *examples_total;
  const char *predictions_done; /* name of the predictions in the last line of a run */
  const char *capacity_unit;    /* unit of Task.capacity in messages, such as "tokens a side" */
  TaskMetric metrics[TASK_METRICS + 1];

  /* Opens the data set and fills in Task. Allocates no device memory. */
  Err (*open)(Task **task, const TaskSpec *spec);
  void (*close)(Task *task);
  /* Logs one line about the data. */
  void (*describe)(const Task *task);
  /* Plans batches of at most `capacity` tokens on each side; sets capacity, batches and fill.
   * Called once. Fails if an example of training or validation does not fit. */
  Err (*plan_batches)(Task *task, uint32_t capacity);
  /* Starts, or restarts, the thread that loads batches ahead. */
  Err (*open_loader)(Task *task, const LoaderSpec *spec);
  /* Returns the next batch, which is valid until the next call. */
  Err (*next_batch)(Task *task, TaskBatch *batch);

  /* Sets properties of the model that the task determines, such as class weights. Called once,
   * when the memory of the model is allocated, before its first batch. NULL: none. */
  void (*begin_model)(Task *task, Model *model);
  /* Computes the bytes of the backend's memory that `prepare` will allocate, given a model in
   * training with batches of `capacity` tokens. NULL: none. */
  Err (*score_bytes)(const Task *task, const Model *model, size_t capacity, uint64_t *bytes);
  /* Allocates all memory for validations. `model` is the model in training. */
  Err (*prepare)(Task *task, Model *model, Weights w);
  /* Fills a batch with validation examples from number *next on, and advances *next. The caller
   * starts with 0 and stops at task->valid_examples. */
  Err (*valid_batch)(Task *task, uint64_t *next, TaskBatch *batch);
  /* Called after the forward pass of the last batch of valid_batch, if this rank ran it: stores
   * the outputs that `score` needs. NULL: none. */
  Err (*take_outputs)(Task *task, Model *model);
  /* Computes all metrics, in the order of `metrics`; NAN: not defined for this data. `loss`: sums
   * over all validation examples of all ranks. Every rank calls it; only the values of rank 0 are valid. Returns ERR_STOPPED
   * on every rank if one of them was asked to stop. If `samples` is not NULL, logs some of the
   * model's outputs and, on rank 0, stores them there. */
  Err (*score)(Task *task, Comm *comm, const ModelLoss *loss, TaskSamples *samples,
               double value[TASK_METRICS]);
};

/* The members of an open task that the rest of training reads. The struct of each task begins
 * with it. */
struct Task {
  const TaskKind *kind;
  ModelConfig config;       /* complete configuration of the model */
  char data[FILE_PATH_MAX]; /* path of the data set, for messages */
  char data_hash[65];       /* SHA-256 that covers all files of the data set */
  /* Files that are copied into every checkpoint: tokenizer, list of labels. */
  ModelFile file[STORE_FILES];
  size_t files;
  uint64_t tokens;         /* tokens of an epoch on the longer side, including eos */
  uint64_t valid_examples; /* number of validation examples; 0: no validation */
  /* Index of the metric that selects the best checkpoint and that --patience compares; its value
   * must always be defined. */
  int decisive;
  bool hides_sum[MODEL_SUMS]; /* means of ModelLoss.sum that are not recorded for this data */
  /* Set by plan_batches: */
  uint32_t capacity; /* largest number of tokens of a batch on each side */
  uint64_t batches;  /* number of batches of an epoch */
  double fill;       /* packing efficiency: mean of tokens / capacity */
};

/* Ends with NULL. Defined alone in tasks.c, so that a test can link a table of its own. */
extern const TaskKind *const train_tasks[];
/* Returns true if the task, or its family, has this table of options. */
bool task_has_options(const TaskKind *kind, const OptSpec *table);
/* Returns the kind of task with this name, or NULL. */
const TaskKind *task_find(const char *name);
/* Returns the decisive metric of an open task. */
const TaskMetric *task_decisive(const Task *task);
/* Returns true if score `a` is better than `b`, by the decisive metric. */
bool task_is_better(const Task *task, double a, double b);

#endif
