/* Reasons to end a run early, summed over the ranks. Depends on trainer, comm. */
#include "train/stopping.h"

#include <string.h>

#include "base/progress.h"
#include "base/stop.h"

double stopping_seconds_left(const Trainer *t) {
  return t->spec->seconds - (progress_clock() - t->run.call_began);
}

/* A signal may reach any rank; only rank 0 knows the time limit and the best score. */
void stopping_vote(const Trainer *t, double reasons[STOP_REASONS]) {
  bool is_writer = world_is_writer(&t->world);
  reasons[STOP_SIGNAL] = stop_asked();
  reasons[STOP_TIME] = is_writer && t->spec->seconds > 0 && stopping_seconds_left(t) <= 0;
  reasons[STOP_PATIENCE] = is_writer && t->run.is_out_of_patience;
}

void stopping_take_sum(Trainer *t, const double sum[STOP_REASONS]) {
  memcpy(t->stop_sum, sum, sizeof t->stop_sum);
  t->has_stop_sum = true;
}

static void sum_votes(Trainer *t) {
  double reasons[STOP_REASONS];
  stopping_vote(t, reasons);
  comm_sum(t->world.comm, "reasons to stop", reasons, STOP_REASONS);
  stopping_take_sum(t, reasons);
}

bool stopping_decide(Trainer *t, TrainResult *r) {
  if (!t->has_stop_sum) sum_votes(t);
  t->has_stop_sum = false;
  r->stopped = t->stop_sum[STOP_SIGNAL] > 0;
  r->early = t->stop_sum[STOP_PATIENCE] > 0;
  return r->stopped || t->stop_sum[STOP_TIME] > 0 || r->early;
}
