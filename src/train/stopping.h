/* Whether a run ends before its last step: after a signal, at --max-time, by --patience. All ranks decide
 * alike. Depends on trainer. */
#ifndef TRAIN_STOPPING_H
#define TRAIN_STOPPING_H

#include "train/trainer.h"

/* Returns the seconds until --max-time ends this process; earlier processes of the run do not
 * count. */
double stopping_seconds_left(const Trainer *t);
/* Fills in this rank's reasons to stop, each 0 or 1. Their sum over all ranks, if a step has it, goes to
 * stopping_take_sum. */
void stopping_vote(const Trainer *t, double reasons[STOP_REASONS]);
void stopping_take_sum(Trainer *t, const double sum[STOP_REASONS]);
/* Decides whether to stop before the next step, and sets r->stopped and r->early. Uses the sum of the
 * last step; a collective if there is none, or if a validation followed, which may have ended the
 * patience of rank 0. */
bool stopping_decide(Trainer *t, TrainResult *r);

#endif
