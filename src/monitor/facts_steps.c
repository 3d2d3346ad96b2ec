/* Times of steps and of the whole run, from metrics.jsonl. Depends on runlog, trend. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "monitor/facts_internal.h"
#include "monitor/trend.h"

/* Number of steps that a point stands for: a record is the mean of the steps since the previous one. */
static double get_weight(const RunFacts *f, const RunColumn *c, size_t i) {
  uint64_t before = i > 0 ? runlog_point(&f->log, c, i - 1).step : 0;
  return (double)(runlog_point(&f->log, c, i).step - before);
}

/* Returns the first point that counts for means: of steps since the last change of ranks, because what is
 * known of the ranks describes those. Of four or more points the first is left out: it contains the start
 * (page faults, choice of GEMM algorithms). */
static size_t find_first(const RunFacts *f, const RunColumn *c) {
  size_t first = 0;
  while (first < c->points && (double)runlog_point(&f->log, c, first).step <= f->since_step)
    first++;
  return c->points - first >= 4 ? first + 1 : first;
}

/* Mean of a column over steps. NAN: not measured. */
static double get_step_mean(const RunFacts *f, const char *name) {
  const RunColumn *c = runlog_column(&f->log, name);
  double sum = 0, weights = 0;
  for (size_t i = c ? find_first(f, c) : 0; c && i < c->points; i++) {
    double weight = get_weight(f, c, i);
    sum += weight * runlog_point(&f->log, c, i).value;
    weights += weight;
  }
  return weights > 0 ? sum / weights : NAN;
}

/* Mean time of a step in ms: the mean of 1 / rate, weighted by steps. */
static double get_step_ms(const RunFacts *f, double *ms, size_t *count) {
  const RunColumn *c = runlog_column(&f->log, "steps_per_s");
  double sum = 0, weights = 0;
  *count = 0;
  for (size_t i = c ? find_first(f, c) : 0; c && i < c->points; i++) {
    double rate = runlog_point(&f->log, c, i).value, weight = get_weight(f, c, i);
    if (!(rate > 0)) continue;
    ms[(*count)++] = 1e3 / rate;
    sum += weight * 1e3 / rate;
    weights += weight;
  }
  return weights > 0 ? sum / weights : NAN;
}

/* Returns the value of a column in the record of a step; NAN if it has none. *from: point at which the
 * search begins; later calls must ask for later steps. */
static double find_value(const RunFacts *f, const RunColumn *c, uint64_t step, size_t *from) {
  while (c && *from < c->points && runlog_point(&f->log, c, *from).step < step) ++*from;
  if (!c || *from == c->points) return NAN;
  RunPoint p = runlog_point(&f->log, c, *from);
  return p.step == step ? p.value : NAN;
}

/* Mean of a rate such as tokens per second: weighted by time, so that it is the sum of the tokens divided
 * by the sum of the seconds. */
static double get_rate_mean(const RunFacts *f, const char *name) {
  const RunColumn *c = runlog_column(&f->log, name);
  const RunColumn *steps = runlog_column(&f->log, "steps_per_s");
  double sum = 0, seconds = 0;
  size_t at = 0;
  for (size_t i = c ? find_first(f, c) : 0; c && i < c->points; i++) {
    RunPoint p = runlog_point(&f->log, c, i);
    double took = get_weight(f, c, i) / find_value(f, steps, p.step, &at);
    if (!(took > 0 && isfinite(took))) continue;
    sum += took * p.value;
    seconds += took;
  }
  return seconds > 0 ? sum / seconds : NAN;
}

/* Adds up all steps that were not undone: their time, what of it was spent on checkpoints, and their
 * target tokens. */
static void sum_steps(RunFacts *f) {
  const RunColumn *c = runlog_column(&f->log, "steps_per_s");
  const RunColumn *tokens = runlog_column(&f->log, "target_tokens_per_s");
  const RunColumn *saving = runlog_column(&f->log, "checkpoint_ms");
  size_t at_tokens = 0, at_saving = 0;
  double seconds = 0, saved = 0, predicted = 0;
  for (size_t i = 0; c && i < c->points; i++) {
    RunPoint p = runlog_point(&f->log, c, i);
    double weight = get_weight(f, c, i);
    if (!(p.value > 0)) continue;
    seconds += weight / p.value;
    saved += weight * find_value(f, saving, p.step, &at_saving) / 1e3;
    predicted += weight / p.value * find_value(f, tokens, p.step, &at_tokens);
  }
  if (!(seconds > 0)) return;
  f->step_seconds = seconds;
  f->checkpoint_seconds = saved;
  /* The checkpoint has the exact number, but perhaps that of an earlier step. */
  if (f->checkpoint_step != f->last_step) f->target_tokens = predicted;
}

static double or_zero(double value) {
  return isnan(value) ? 0 : value;
}

/* Sets the time in no part. Times whose sum is no number are unknown. */
static void set_other(StepParts *p) {
  double known = or_zero(p->data) + or_zero(p->forward) + or_zero(p->backward) +
                 or_zero(p->comm) + or_zero(p->update) + or_zero(p->checkpoint);
  if (isnan(p->total)) return;
  /* A step is at least as long as its parts. The rates of earlier versions were too high where a
   * validation fell between two records. */
  p->total = fmax(p->total, known);
  if (!isfinite(p->total)) {
    p->total = NAN;
    return;
  }
  p->other = p->total - known;
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
  sum_steps(f);
  f->other_seconds = fmax(f->seconds - or_zero(f->step_seconds) - f->valid_seconds, 0);
  if (runlog_last(log, "epoch", &p)) f->epochs = p.value;
}

static void count_events(RunFacts *f) {
  f->restarts = 0;
  f->rollbacks = 0;
  for (size_t i = 0; i < f->log.event_count; i++) {
    if (strcmp(f->log.events[i].kind, "restart") == 0) f->restarts++;
    if (strcmp(f->log.events[i].kind, "rollback") == 0) f->rollbacks++;
  }
}

const char *facts_rate_column(const RunFacts *f) {
  return f->is_text_task ? "tokens_per_s" : "target_tokens_per_s";
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
  f->tokens_per_s = get_rate_mean(f, facts_rate_column(f));
  f->pairs_per_s = get_rate_mean(f, "pairs_per_s");
  f->tflops = get_rate_mean(f, "tflops_per_s");
  f->mfu = get_rate_mean(f, "mfu");
  f->sent_bytes = get_step_mean(f, "sent_bytes");
  f->received_bytes = get_step_mean(f, "received_bytes");
  sum_run(f);
  count_events(f);
  return ERR_OK;
}
