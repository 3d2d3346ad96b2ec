/* A checkpoint is a model directory that also holds optimizer state and counters. It is written
 * under a temporary name, synced and then renamed. Every file has a checksum. Its contents do
 * not depend on the number of ranks. Depends on model/store, counters. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "model/store.h"
#include "train/counters.h"

typedef struct {
  const ModelConfig *config;
  const Params *params;
  const ModelFile *file; /* (files) files of the task, such as its tokenizer */
  size_t files;
  const Str *contents; /* for saving: (files) contents of each; NULL: the files are copied */
  const char *task; /* for loading: name of the task that the checkpoint must have; NULL: any */
  /* For loading: SHA-256 that the checkpoint's data set must have; NULL: any. */
  const char *data;
  float *w;     /* weights that the optimizer updates; each array has params->padded elements */
  float *e;     /* moving average of the weights; NULL: none */
  float *m, *v; /* optimizer state; NULL if the optimizer does not have it */
  double *second; /* (params->count) NovoGrad's second moments; NULL for other optimizers */
} TrainArrays;

/* Writes RUN/checkpoints/step-N, replacing an older one of the same step, and moves the link
 * `latest` to it. After a failure the older checkpoint and the link are unchanged. */
NODISCARD Err checkpoint_save(const char *run, const TrainArrays *a, const TrainCounters *c);
/* Adds the result of a validation (best_score, best_step, worse, validated) to the saved
 * checkpoint of step c->step. `best`: also moves the link `best` to it. After a failure the
 * checkpoint is unchanged; the link may have moved. */
NODISCARD Err checkpoint_add_validation(const char *run, const TrainCounters *c, bool best);
/* Finds the checkpoint to resume from: `latest` or, with a warning, the newest undamaged one.
 * *found is false if there is no checkpoint; fails if all are damaged. */
NODISCARD Err checkpoint_find(const char *run, char dir[FILE_PATH_MAX], bool *found);
/* Checks size and CRC-32 of every file; model_only: only of the files that translate needs. If
 * a file is missing or damaged, sets *whole = false, leaves the reason in err_message() and
 * returns ERR_OK. */
NODISCARD Err checkpoint_check(const char *dir, bool model_only, bool *whole);
/* Reads the counters of a checkpoint. Fails if its task, data, model or files differ from
 * a->task, a->data, a->config or a->file; other members of `a` are not used. */
NODISCARD Err checkpoint_compare(const char *dir, const TrainArrays *a, TrainCounters *c);
/* Loads the checkpoint `dir` and verifies every file it reads. Fails if the checkpoint has
 * another optimizer state than `a` has arrays for. If a->e is set and the checkpoint has no
 * moving average, e becomes a copy of w. After an error the contents of the arrays are
 * undefined. */
NODISCARD Err checkpoint_load(const char *dir, const TrainArrays *a, TrainCounters *c);
/* Makes the link `best` point to the checkpoint of `step`. If that is missing or damaged, or step is 0
 * (no best), sets *is_there = false and removes the link. *is_moved: the link has changed. */
NODISCARD Err checkpoint_settle_best(const char *run, uint64_t step, bool *is_there,
                                     bool *is_moved);
/* The steps at which a run saves unless it is stopped: multiples of one of these, or all if both are
 * 0. A checkpoint of another step is averaged only if it is the last, so that the average does not
 * depend on stops. */
typedef struct {
  uint64_t save_every, valid_every;
} SaveSteps;
bool save_steps_have(SaveSteps s, uint64_t step);
/* Keeps the newest `keep` checkpoints up to `latest` that are of `steps`; if there are fewer, the
 * newest others fill the places. Removes the rest, but never those that `latest` and `best` point
 * to. */
NODISCARD Err checkpoint_prune(const char *run, int keep, SaveSteps steps);

/* The checkpoints in RUN/checkpoints, newest first. */
typedef struct {
  char
      name[48]; /* step-N, or step-N.old for one that a newer checkpoint of the step replaces */
  uint64_t step;
  bool old;
  /* Its step is above that of `latest`: written before a roll-back or before a resume from
   * `latest`. */
  bool ahead;
} CheckpointName;
typedef struct {
  CheckpointName *at;
  size_t count, cap;
} CheckpointList;
NODISCARD Err checkpoint_list(CheckpointList *list, const char *run);
void checkpoint_list_free(CheckpointList *list);

#endif
