/* A run: its directory with config, log, metrics and checkpoints, and the counters that say where it
 * is. Every rank has the counters; only rank 0 has the rest. Relies on checkpoint, metrics, rundir,
 * saver. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "train/metrics.h"
#include "train/saver.h"

typedef struct {
  const char *dir;
  int lock;         /* of DIR/lock; -1: not held */
  TrainCounters at; /* where the run is */
  Metrics metrics;
  Saver *saver;
  uint64_t saved; /* the step handed to the saver last, or loaded */
  /* The counters with what the last validation found. They become `at`'s when they are on disk, so
   * that `best` never names a checkpoint that does not exist. */
  TrainCounters validated;
  bool is_validation_pending; /* handed to the saver, not known yet whether it is on disk */
  bool is_best_lost;          /* it was the best, and could not be written */
  bool is_out_of_patience;
  double call_began; /* clock when this call began to train */
  double began;      /* the same, or when it was rolled back; at.seconds counts up to here */
} Run;

void run_init(Run *r, const char *dir);
/* The saver is closed, when it has written, before the arrays and the device that it copies from;
 * the lock is released last. Harmless when not open. */
void run_close_saver(Run *r);
void run_close(Run *r);

/* Seconds of training so far, over all calls. */
double run_elapsed(const Run *r);

/* Locks the directory of a run to resume, and checks `options` (config lines) and the order of the
 * data, which follows from batch_tokens and seed, against it. Changes nothing but the lock. */
NODISCARD Err run_enter(Run *r, bool is_resumed, const char *options, uint64_t batch_tokens,
                        uint64_t seed);
/* Makes the directory of a new run, writes DIR/config, and opens log and metrics. */
NODISCARD Err run_commit(Run *r, const char *options);

/* Waits until the result of the last validation is on disk, and takes it over. */
void run_settle_validation(Run *r);
/* Takes the score of the current step, `is_better` than the best so far or not, and hands it to the
 * saver. The validation before is settled. `patience`: validations without a better score that end
 * the run; 0 for any number. True: it is the best, and has a checkpoint. */
bool run_judge_validation(Run *r, double score, bool is_better, int patience);

#endif
