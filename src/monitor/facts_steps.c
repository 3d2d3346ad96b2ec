/* Times of steps and of the whole run, from metrics.jsonl. Depends on runlog, trend. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "monitor/facts_internal.h"
#include "monitor/trend.h"

/* Mean of a column over the steps that its records stand for: a record is the mean of the steps since
 * the previous one. The first record is left out if there are at least four, because it contains the
 * start (page faults, choice of GEMM algorithms). NAN: not measured. */
static double get_step_mean(const RunFacts *f, const char *name) {
  const RunColumn *c = runlog_column(&f->log, name);
  if (!c) return NAN;
  double sum = 0, weights = 0;
  size_t first = c->points >= 4 ? 1 : 0;
  for (size_t i = first; i < c->points; i++) {
    RunPoint p = runlog_point(&f->log, c, i);
    uint64_t before = i > 0 ? runlog_point(&f->log, c, i - 1).step : 0;
    double weight = (double)(p.step - before);
    sum += weight * p.value;
    weights += weight;
  }
  return weights > 0 ? sum / weights : NAN;
}

/* Mean time of a step in ms: the mean of 1 / rate, weighted by steps. */
static double get_step_ms(const RunFacts *f, double *ms, size_t *count) {
  const RunColumn *c = runlog_column(&f->log, "steps_per_s");
  double sum = 0, weights = 0;
  *count = 0;
  if (!c) return NAN;
  for (size_t i = c->points >= 4 ? 1 : 0; i < c->points; i++) {
    RunPoint p = runlog_point(&f->log, c, i);
    uint64_t before = i > 0 ? runlog_point(&f->log, c, i - 1).step : 0;
    double weight = (double)(p.step - before);
    if (!(p.value > 0)) continue;
    ms[(*count)++] = 1e3 / p.value;
    sum += weight * 1e3 / p.value;
    weights += weight;
  }
  return weights > 0 ? sum / weights : NAN;
}

static double or_zero(double value) {
  return isnan(value) ? 0 : value;
}

static void set_other(StepParts *p) {
  double known = or_zero(p->data) + or_zero(p->forward) + or_zero(p->backward) +
                 or_zero(p->comm) + or_zero(p->update) + or_zero(p->checkpoint);
  if (isnan(p->total)) return;
  p->other = fmax(p->total - known, 0);
}

/* Sum of a column over all records, such as the seconds of all validations; 0 if there are none. */
static double sum_column(const RunFacts *f, const char *name) {
  const RunColumn *c = runlog_column(&f->log, name);
  double sum = 0;
  for (size_t i = 0; c && i < c->points; i++) sum += runlog_point(&f->log, c, i).value;
  return sum;
}

static void sum_run(RunFacts *f) {
  const RunLog *log = &f->log;
  RunPoint p;
  if (log->records == 0) return;
  f->last_step = 0;
  f->seconds = 0;
  for (size_t i = 0; i < log->records; i++) {
    f->last_step = fmax(f->last_step, (double)log->step[i]);
    f->seconds = fmax(f->seconds, log->seconds[i]);
  }
  f->valid_seconds = sum_column(f, "valid_seconds");
  double steps = runlog_last(log, "steps_per_s", &p) ? (double)p.step : 0;
  if (!isnan(f->parts.total)) f->step_seconds = steps * f->parts.total / 1e3;
  if (!isnan(f->parts.checkpoint)) f->checkpoint_seconds = steps * f->parts.checkpoint / 1e3;
  f->other_seconds = fmax(f->seconds - or_zero(f->step_seconds) - f->valid_seconds, 0);
  if (runlog_last(log, "epoch", &p)) f->epochs = p.value;
  if (runlog_last(log, "mfu", &p)) f->mfu = get_step_mean(f, "mfu");
}

static void count_events(RunFacts *f) {
  f->restarts = 0;
  f->rollbacks = 0;
  for (size_t i = 0; i < f->log.event_count; i++) {
    if (strcmp(f->log.events[i].kind, "restart") == 0) f->restarts++;
    if (strcmp(f->log.events[i].kind, "rollback") == 0) f->rollbacks++;
  }
}

Err facts_sum_steps(RunFacts *f) {
  StepParts *p = &f->parts;
  double *ms;
  size_t count;
  TRY(mem_alloc(&ms, f->log.records + 1, sizeof *ms));
  p->total = get_step_ms(f, ms, &count);
  f->step_median = trend_quantile(ms, count, 0.5);
  f->step_p95 = trend_quantile(ms, count, 0.95);
  mem_free(ms);
  p->data = get_step_mean(f, "data_wait_ms");
  p->forward = get_step_mean(f, "forward_ms");
  p->backward = get_step_mean(f, "backward_ms");
  p->comm = get_step_mean(f, "comm_wait_ms");
  p->update = get_step_mean(f, "update_ms");
  p->checkpoint = get_step_mean(f, "checkpoint_ms");
  set_other(p);
  f->tokens_per_s = get_step_mean(f, "target_tokens_per_s");
  f->pairs_per_s = get_step_mean(f, "pairs_per_s");
  f->tflops = get_step_mean(f, "tflops_per_s");
  f->sent_bytes = get_step_mean(f, "sent_bytes");
  f->received_bytes = get_step_mean(f, "received_bytes");
  sum_run(f);
  count_events(f);
  return ERR_OK;
}
