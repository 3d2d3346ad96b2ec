/* A run: its directory (config, log, metrics, checkpoints) and its counters (step, tokens, best
 * score). Every rank has the counters; only rank 0 has the rest. Depends on checkpoint, metrics,
 * rundir, saver. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "train/copies.h"
#include "train/metrics.h"
#include "train/restart.h"
#include "train/saver.h"

typedef struct {
  const char *dir;
  int lock;         /* of DIR/lock; -1: not held */
  bool is_resumed;  /* on rank 0: the directory is entered, not made */
  TrainCounters at; /* counters of the current step */
  Restart restart;  /* on rank 0 */
  Metrics metrics;
  Saver *saver;
  Copies *copies; /* NULL: --peer-checkpoint 0 */
  char
      copy[FILE_PATH_MAX]; /* on rank 0: the in-memory copy to load; "": the run's checkpoint */
  bool is_from_copy;       /* on rank 0: this call continues from one */
  uint64_t saved;          /* the step last passed to the saver, or loaded from the run */
  /* `at` with the result of the last validation. Copied to `at` once it is on disk, so that `best`
   * never names a checkpoint that does not exist. */
  TrainCounters validated;
  bool is_validation_pending; /* `validated` is with the saver and may not be on disk yet */
  bool is_best_lost;          /* the best score could not be written */
  bool is_out_of_patience;
  double call_began; /* time at which this process began to train */
  double began;      /* the same, or the time of the last roll-back; at.seconds ends there */
} Run;

void run_init(Run *r, const char *dir);
/* run_close_saver waits until savers have written; call it before freeing the arrays and the
 * device that it copies from. run_close releases the lock. No effect if not open. */
void run_close_saver(Run *r);
void run_close(Run *r);

/* Seconds of training so far, including those before a resume. */
double run_elapsed(const Run *r);

/* If the run is resumed, locks its directory and checks that `options` (lines of a config file) and
 * the order of the data, which depends on batch_tokens and seed, are those of the run. Changes
 * nothing but the lock. */
NODISCARD Err run_enter(Run *r, const char *options, uint64_t batch_tokens, uint64_t seed);
/* Creates the directory of a new run, writes DIR/config, and opens log and metrics. */
NODISCARD Err run_commit(Run *r, const char *options);

/* Waits until the result of the last validation is on disk, then copies it to `at`. */
void run_settle_validation(Run *r);
/* Records the score of the current step and queues it for the saver; run_settle_validation must have
 * been called for the one before. `is_better`: than the best score so far. `patience`: number of
 * validations without a better score after which the run ends; 0: no limit. Returns whether the
 * score is the best and its checkpoint is saved. */
bool run_judge_validation(Run *r, double score, bool is_better, int patience);

#endif
