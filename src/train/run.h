/* A run: its directory (config, log, metrics, checkpoints) and its counters (step, tokens, best
 * score). Every rank has the counters; only rank 0 has the rest. Depends on checkpoint,
 * metrics, rundir, saver. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "train/copies.h"
#include "train/metrics.h"
#include "train/restart.h"
#include "train/saver.h"

typedef struct {
  const char *dir;
  int lock;                  /* file descriptor of DIR/lock; -1: not locked */
  bool is_resumed;           /* rank 0: the directory exists already and the run continues */
  TrainCounters at;          /* counters of the current step */
  Restart restart;           /* rank 0: how often the run was restarted */
  bool with_tensorboard;     /* rank 0: the metrics are also written for TensorBoard */
  const char *wandb_project; /* rank 0: they are also written for this project; NULL: not */
  Metrics metrics;
  Saver *saver;
  Copies *copies; /* NULL without --peer-checkpoint */
  /* Rank 0: the checkpoint or in-memory copy that set-up has chosen to load; "": the last undamaged
   * checkpoint in the run directory. */
  char load_from[FILE_PATH_MAX];
  bool is_from_copy;   /* rank 0: this process continued from an in-memory copy */
  bool has_lost_steps; /* rank 0: the run had trained, but has no checkpoint */
  /* Step of the last state that was passed to the saver, or loaded from the run directory. */
  uint64_t saved;
  /* The counters of the last validated step, with the result of its validation. A new best
   * (best_score, best_step, worse) is copied to `at` only once it is on disk, so that the link
   * `best` always points to an existing checkpoint. */
  TrainCounters validated;
  /* `validated` was passed to the saver and may not be on disk yet. */
  bool is_validation_pending;
  bool is_best_lost; /* the last validation was the best, but could not be written */
  bool is_out_of_patience;
  double call_began; /* time at which this process began to train */
  double began;      /* time at which at.seconds was valid: call_began or the last roll-back */
} Run;

void run_init(Run *r, const char *dir);
/* run_close_saver waits until checkpoints and in-memory copies are written; call it before the
 * arrays and the device are freed. run_close closes the metrics and releases the lock. Both do
 * nothing if not open. */
void run_close_saver(Run *r);
void run_close(Run *r);

/* Returns the seconds of training so far, including those before a resume. */
double run_elapsed(const Run *r);

/* Locks the directory of a run that is resumed. */
NODISCARD Err run_lock(Run *r);
/* If the run is resumed: fails if `options` (lines of a config file), batch_tokens or seed differ
 * from those of the run in a way that changes the order of the data. `task_options`: see
 * agree_resume. Changes nothing. */
NODISCARD Err run_enter(Run *r, const char *options, const char *const *task_options,
                        uint64_t batch_tokens, uint64_t seed);
/* Creates the directory of a new run, writes `options` to DIR/config, and opens log and metrics, which
 * show `hparams` as hyperparameters. Both are lines of a config file. */
NODISCARD Err run_commit(Run *r, const char *options, const char *hparams);

/* After a restore: moves the link `best` to the best checkpoint that the restored state knows. If
 * that is gone, warns and lets the next validation be the best. */
void run_settle_best(Run *r);
/* Waits until the result of the last validation is on disk, then copies it to `at`. */
void run_settle_validation(Run *r);
/* Records the score of the current step and passes it to the saver; run_settle_validation
 * must have been called for the previous validation. `is_better`: the score is better than
 * the best so far. `patience`: number of validations without a better score after which the
 * run ends; 0: no limit. Returns true if the score is the best and its checkpoint was passed
 * to the saver. */
bool run_judge_validation(Run *r, double score, bool is_better, int patience);

#endif
