/* Tasks: what a run learns from and how it is judged. A task is one file that fills a TaskKind,
 * and one line in tasks.c. The rest of training reads data, batches and scores only through this
 * header. Depends on comm, data/loader's spec, model.h. */
#ifndef TRAIN_TASK_H
#define TRAIN_TASK_H

#include "base/file.h"
#include "comm/comm.h"
#include "data/batch.h"
#include "model/model.h"

#define TASK_METRICS 4 /* of a validation, at most */

typedef struct Task Task;
typedef struct TaskKind TaskKind;

/* What a task is opened with. */
typedef struct {
  const char *data;          /* the data set's directory */
  const ModelConfig *config; /* without what the data set decides */
  const void *options;       /* of this kind of task */
  bool validates;            /* false: leave out what only validation needs */
  const Comm *comm;          /* the ranks that share a validation */
} TaskSpec;

/* A batch, filled by the task and read by the model family. */
typedef struct {
  const void *data;
  uint32_t examples;    /* sentence pairs, texts, … */
  uint32_t predictions; /* what the loss is a mean of: target tokens, labels, … */
} TaskBatch;

/* One result of a validation. */
typedef struct {
  const char *label;   /* as the log prints it; NULL ends the list */
  int digits;          /* behind the decimal point */
  const char *valid;   /* in metrics.jsonl: of a validation, */
  const char *average; /* and of the average of checkpoints */
} TaskMetric;

struct TaskKind {
  const char *name; /* for --task, and in training.json; shorter than TrainCounters.task */
  /* In metrics.jsonl: the means of the model's sums, see ModelLoss; NULL: not recorded. */
  const char *sums[MODEL_SUMS];
  int shown_sum;       /* the one that the log prints as loss */
  bool has_perplexity; /* the log adds exp of the loss: of that sum's mean, and of metrics[0] */
  const char *predictions, *predictions_per_s; /* in the log; in metrics.jsonl */
  const char *examples, *examples_per_s;
  const char *predictions_total, *examples_total; /* of the whole run, in training.json */
  const char *predictions_done;                   /* what the last line of a run counts */
  const char *capacity_unit; /* of Task.capacity in messages: "tokens", "tokens a side" */
  TaskMetric metrics[TASK_METRICS + 1];
  int decisive;          /* the metric that `best` and --patience compare */
  bool higher_is_better; /* of that one */

  /* Opens the data set and sets the fields of Task. Takes no memory of a device. */
  Err (*open)(Task **task, const TaskSpec *spec);
  void (*close)(Task *task);
  /* Logs one line about the data. */
  void (*describe)(const Task *task);
  /* Plans batches of at most `capacity` tokens on each side; sets capacity, batches and fill.
   * Called once. An error if some example, of training or validation, does not fit. */
  Err (*plan_batches)(Task *task, uint32_t capacity);
  /* Begins, or begins again, to load batches ahead on a thread. */
  Err (*open_loader)(Task *task, const LoaderSpec *spec);
  /* The next batch. It stays valid until the next call. */
  Err (*next_batch)(Task *task, TaskBatch *batch);

  /* Validation. */
  /* Bytes of the backend's memory that `prepare` will take beside a model of `capacity` tokens in
   * training. NULL: none. */
  Err (*score_bytes)(const Task *task, const Model *model, size_t capacity, uint64_t *bytes);
  /* Takes all memory that validations need. The model is the one in training. */
  Err (*prepare)(Task *task, Model *model, Weights w);
  /* Fills a batch with validation examples from *next on and advances it; the first is 0, and
   * behind the last it is task->valid_examples. */
  Err (*valid_batch)(Task *task, uint64_t *next, TaskBatch *batch);
  /* All metrics, in the order of `metrics`. `loss`: sums over all validation examples of all
   * ranks. Every rank calls it; the values of rank 0 count. ERR_STOPPED on every rank: one of
   * them was asked to stop. `show_samples`: logs some of the model's outputs. */
  Err (*score)(Task *task, Comm *comm, const ModelLoss *loss, bool show_samples,
               double value[TASK_METRICS]);
};

/* The part of an open task that the rest of training reads; a task's own struct begins with it. */
struct Task {
  const TaskKind *kind;
  ModelConfig config;            /* complete */
  char data[FILE_PATH_MAX];      /* the data set, as messages name it */
  char data_hash[65];            /* SHA-256 that stands for all its bytes */
  char tokenizer[FILE_PATH_MAX]; /* the file that every checkpoint gets a copy of */
  uint64_t tokens;               /* of an epoch, on the side that has more, with end marks */
  uint64_t valid_examples;       /* 0: the task does not validate */
  /* Since plan_batches: */
  uint32_t capacity; /* tokens of a batch, on each side */
  uint64_t batches;  /* of an epoch */
  double fill;       /* tokens over capacity, mean */
};

/* Ends with NULL. In tasks.c, alone, so that a test can link a table of its own. */
extern const TaskKind *const train_tasks[];
/* The kind of task of this name, or NULL. */
const TaskKind *task_find(const char *name);
/* Is score `a` better than `b`, by the decisive metric? */
bool task_is_better(const TaskKind *kind, double a, double b);

#endif
