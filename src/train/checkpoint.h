/* A checkpoint: a model directory that also holds the optimizer state and counters. It is written
 * under a temporary name, synced, then renamed; every file has a checksum; it does not depend on
 * the number of ranks. Depends on model/store, counters. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "model/store.h"
#include "train/counters.h"

typedef struct {
  const ModelConfig *config;
  const Params *params;
  const char *tokenizer; /* path of the .model */
  const Str *pieces;     /* when saving: its bytes; NULL reads the file */
  const char *task;      /* when loading: the name of the task that is required; NULL for any */
  const char *data;      /* when loading: the SHA-256 that is required; NULL for any */
  float *w;       /* the weights that the optimizer updates; each array: (params->padded) */
  float *e;       /* their moving average, or NULL */
  float *m, *v;   /* optimizer state; NULL where the optimizer has none */
  double *second; /* (params->count), NovoGrad's, or NULL */
} TrainArrays;

/* Writes RUN/checkpoints/step-N and moves the link `latest` to it; replaces an earlier one
 * of the same step. After a failure everything is as before. */
NODISCARD Err checkpoint_save(const char *run, const TrainArrays *a, const TrainCounters *c);
/* Adds to the saved checkpoint of step c->step what its validation found: best_score,
 * best_step, worse and validated. `best`: moves the link of that name to it. After a failure
 * the checkpoint is as before; the link may have moved already. */
NODISCARD Err checkpoint_add_validation(const char *run, const TrainCounters *c, bool best);
/* The checkpoint to continue from: `latest`, or with a warning the newest one that is
 * whole. None at all is no error; some, but none whole, is one. */
NODISCARD Err checkpoint_find(const char *run, char dir[FILE_PATH_MAX], bool *found);
/* Is every file there with the right size and CRC-32 (model_only: those that translate
 * needs)? If not, sets *whole = false, leaves the reason in err_message() and returns ERR_OK. */
NODISCARD Err checkpoint_check(const char *dir, bool model_only, bool *whole);
/* Reads the counters, and refuses a checkpoint of another task, other data, another model or another
 * tokenizer than a->task, a->data, a->config and a->tokenizer; uses nothing else of `a`. */
NODISCARD Err checkpoint_compare(const char *dir, const TrainArrays *a, TrainCounters *c);
/* Loads the directory that checkpoint_find returned and verifies every file it reads. The optimizer
 * state must be of the same kind as the arrays; a moving average that is wanted and not saved starts
 * as the weights. After an error the contents of the arrays are undefined. */
NODISCARD Err checkpoint_load(const char *dir, const TrainArrays *a, TrainCounters *c);
/* Removes all but the last `keep` up to latest; never latest or best. */
NODISCARD Err checkpoint_prune(const char *run, int keep);

/* What is in RUN/checkpoints, newest first. */
typedef struct {
  char name[48]; /* step-N, or step-N.old: the one that a new step-N replaces */
  uint64_t step;
  bool old;
  bool ahead; /* later than `latest`: written before a roll-back or a resume from `latest` */
} CheckpointName;
typedef struct {
  CheckpointName *at;
  size_t count, cap;
} CheckpointList;
NODISCARD Err checkpoint_list(CheckpointList *list, const char *run);
void checkpoint_list_free(CheckpointList *list);

#endif
