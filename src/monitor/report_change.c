/* What the run cost, and the changes that would bring most: each gain is computed from the measured
 * parts of a step. Depends on facts. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "monitor/report_internal.h"

#define LEAST_GAIN 0.01 /* share of the run's time; a change that gains less is not listed */
#define CANDIDATES 8

static double or_zero(double value) {
  return isnan(value) ? 0 : value;
}

static void add_cost(RunReport *r, const char *key, const char *label, double value,
                     const char *shown) {
  if (r->cost_count < REPORT_FIGURES)
    report_set_figure(&r->costs[r->cost_count++], key, label, value, shown);
}

static void add_energy(RunReport *r) {
  const RunFacts *f = &r->facts;
  char text[96], seconds[32];
  double joules = or_zero(f->gpu_joules) + or_zero(f->cpu_joules);
  bool is_known = !isnan(f->gpu_joules) || !isnan(f->cpu_joules);
  const char *what = isnan(f->cpu_joules)   ? "all GPUs of the hosts; the CPUs report no power"
                     : isnan(f->gpu_joules) ? "the hosts' CPUs alone"
                                            : "all GPUs and CPUs of the hosts";
  if (!is_known) {
    add_cost(r, "energy_kwh", "energy", NAN, "unknown: no GPU or CPU reported its power");
    return;
  }
  snprintf(text, sizeof text, "%.3g kWh (%s; over %s)", joules / 3.6e6, what,
           report_seconds(seconds, f->sampled_seconds));
  add_cost(r, "energy_kwh", "energy", joules / 3.6e6, text);
}

void report_sum_costs(RunReport *r, double price_per_hour) {
  const RunFacts *f = &r->facts;
  char text[96], time[32];
  double hours = f->seconds / 3600, host_hours = hours * f->hosts;
  double price = host_hours * price_per_hour;
  snprintf(text, sizeof text, "%s on %.0f host%s", report_seconds(time, f->seconds), f->hosts,
           f->hosts == 1 ? "" : "s");
  add_cost(r, "host_hours", "machine time", host_hours, text);
  if (!isnan(price_per_hour)) {
    snprintf(text, sizeof text, "%.2f (at %.4g per machine and hour)", price, price_per_hour);
    add_cost(r, "cost", "cost", price, text);
    double per_million = price / (f->target_tokens / 1e6);
    snprintf(text, sizeof text, "%.4g", per_million);
    if (!f->is_text_task)
      add_cost(r, "cost_per_million_tokens", "cost per million target tokens", per_million,
               text);
  }
  add_energy(r);
}

/* Candidates for changes, sorted by what they save. */
typedef struct {
  Change list[CANDIDATES];
  size_t count;
  double seconds; /* of the run */
} Candidates;

static Change *add_change(Candidates *c, double saved_seconds) {
  double share = saved_seconds / c->seconds;
  if (!(share >= LEAST_GAIN) || c->count == CANDIDATES) return NULL;
  size_t at = c->count++;
  for (; at > 0 && c->list[at - 1].share < share; at--) c->list[at] = c->list[at - 1];
  c->list[at] = (Change){.share = share};
  char time[32];
  snprintf(c->list[at].gain, sizeof c->list[at].gain, "saves %s, %.0f %% of the run",
           report_seconds(time, saved_seconds), 100 * share);
  return &c->list[at];
}

static void set_change(Change *c, const char *what, const char *how) {
  if (!c) return;
  snprintf(c->what, sizeof c->what, "%s", what);
  snprintf(c->how, sizeof c->how, "%s", how);
}

/* Steps of the run times ms per step. */
static double get_run_seconds(const RunFacts *f, double ms) {
  return f->step_seconds * ms / f->parts.total;
}

static void consider_data(const RunFacts *f, Candidates *c) {
  Waiting w = report_waiting(f);
  if (w.slowest != SIZE_MAX && w.is_data) return; /* the straggler's change covers it */
  char how[320];
  snprintf(how, sizeof how,
           "Put the data set on a local disk or in memory, %suse larger --batch-tokens.",
           f->threads > 1 && !f->is_on_gpu
               ? "give the loader's thread a free core (--threads one less), and "
               : "and ");
  set_change(add_change(c, get_run_seconds(f, or_zero(f->parts.data))),
             "Feed data faster: no step should wait for its batch", how);
}

static double get_load(const RankTimes *t) {
  return t->work + t->data;
}

/* Returns true if all ranks on the host of rank `slowest` are slower than all others, and there are
 * several: the host is slow. */
static bool is_host_slow(const RunFacts *f, size_t slowest) {
  const char *host = f->rank[slowest].host;
  double least = INFINITY, most = 0;
  size_t here = 0;
  for (size_t r = 0; r < f->rank_count; r++) {
    double load = get_load(&f->rank[r]);
    bool is_here = strcmp(f->rank[r].host, host) == 0;
    here += is_here;
    if (is_here)
      least = fmin(least, load);
    else
      most = fmax(most, load);
  }
  return *host && here > 1 && here < f->rank_count && least > most;
}

/* Returns by how much the slowest rank, or the ranks of its host, exceed the next slower one: steps
 * become shorter by that and not by more. */
static double get_saved_ms(const RunFacts *f, size_t slowest, bool with_host) {
  double next = 0;
  for (size_t r = 0; r < f->rank_count; r++) {
    bool is_here =
        r == slowest || (with_host && strcmp(f->rank[r].host, f->rank[slowest].host) == 0);
    if (!is_here) next = fmax(next, get_load(&f->rank[r]));
  }
  return get_load(&f->rank[slowest]) - next;
}

static void consider_straggler(const RunFacts *f, Candidates *c) {
  Waiting w = report_waiting(f);
  if (w.slowest == SIZE_MAX) return;
  char what[200], how[320], ms[32];
  const char *host = f->rank[w.slowest].host;
  bool is_host = is_host_slow(f, w.slowest);
  if (is_host)
    snprintf(what, sizeof what, "Make the ranks on %s as fast as the others", host);
  else
    snprintf(what, sizeof what, "Make rank %zu%s%s as fast as the others", w.slowest,
             *host ? " on " : "", host);
  snprintf(
      how, sizeof how,
      "Rank %zu %s %s longer per step than the mean of the others, who wait for it: look for "
      "%s (trireme doctor)%s.",
      w.slowest, w.is_data ? "waits for data" : "works", report_ms(ms, w.slowest_extra),
      w.is_data ? "a slow disk or file system there"
                : "other processes, fewer cores, heat or lower clocks there",
      f->hosts > 1 ? ", or leave the machine out" : "");
  set_change(add_change(c, get_run_seconds(f, get_saved_ms(f, w.slowest, is_host))), what, how);
}

/* The time that even the last rank waits is transfer that is not hidden. Half the bytes halve the
 * whole transfer; what is hidden today stays hidden, so at least half of the wait is saved. */
static void consider_network(const RunFacts *f, Candidates *c) {
  Waiting w = report_waiting(f);
  char dtype[16] = "fp32", text[320], ms[32];
  if (!(f->hosts > 1)) return;
  double wait = isnan(w.network) ? f->parts.comm : w.network;
  facts_option(f, "allreduce-dtype", dtype, sizeof dtype);
  if (strcmp(dtype, "bf16") != 0)
    set_change(
        add_change(c, get_run_seconds(f, wait / 2)), "Send half the bytes: gradients in bf16",
        "--allreduce-dtype bf16 halves the traffic, and with it at least half of the wait "
        "that is not hidden.");
  snprintf(text, sizeof text,
           "%s of each step wait for the transfer. Twice the --micro-batches send the same "
           "bytes for twice the tokens, which saves half of the wait per token (check the "
           "learning rate); a faster network saves up to all of it.",
           report_ms(ms, wait));
  set_change(add_change(c, get_run_seconds(f, wait / 2)),
             "Send gradients half as often per token, or over a faster link", text);
}

static void consider_validation(const RunFacts *f, Candidates *c) {
  char every[32] = "", beam[32] = "";
  char how[320];
  facts_option(f, "beam-size", beam, sizeof beam);
  bool has_beam = !f->is_text_task && strcmp(beam, "1") != 0;
  bool has_every = facts_option(f, "valid-every", every, sizeof every);
  snprintf(how, sizeof how,
           "Validations take %.0f %% of the run; raise --valid-every%s%s to twice its value%s.",
           100 * f->valid_seconds / f->seconds, has_every ? " from " : "", every,
           has_beam ? ", or lower --beam-size" : "");
  set_change(add_change(c, f->valid_seconds / 2), "Validate half as often", how);
}

static void consider_checkpoints(const RunFacts *f, Candidates *c) {
  set_change(
      add_change(c, or_zero(f->checkpoint_seconds) / 2), "Save half as often",
      "Raise --save-every to twice its value: steps wait for the copy of a checkpoint, or for "
      "the disk.");
}

/* Training beyond the best validation brought nothing. */
static void consider_stopping(const RunReport *r, Candidates *c) {
  const RunFacts *f = &r->facts;
  const Answer *over = &r->answers[ANSWER_OVERFITTING];
  double best = NAN, rise = NAN;
  char how[320];
  for (size_t i = 0; i < over->figure_count; i++)
    if (strcmp(over->figures[i].key, "rise") == 0) rise = over->figures[i].value;
  if (over->verdict != VERDICT_BAD) return;
  const RunColumn *v = runlog_column(&f->log, "valid_nll");
  double lowest = INFINITY;
  for (size_t i = 0; v && i < v->points; i++) {
    RunPoint p = runlog_point(&f->log, v, i);
    if (p.value >= lowest) continue;
    lowest = p.value;
    best = p.seconds;
  }
  snprintf(how, sizeof how, "%s The validation loss is lower by %.4f there than at the end. %s",
           "Stop at the lowest validation loss (--patience 3).", rise,
           f->dropout > 0 ? "More data or more --dropout would move that point."
                          : "--dropout 0.1 to 0.3, or more data, would move that point.");
  set_change(add_change(c, f->seconds - best), "Stop when the model begins to overfit", how);
}

/* The first change of a run that diverged: without it no other one matters. */
static void put_divergence_first(RunReport *r) {
  Change *first = r->changes;
  if (r->change_count < REPORT_CHANGES) r->change_count++;
  memmove(first + 1, first, (r->change_count - 1) * sizeof *first);
  *first = (Change){.share = NAN};
  set_change(
      first, "Keep the loss from diverging",
      "Lower --lr or the factors of --lr-milestones, or raise --warmup-steps, and continue "
      "with --resume. Each roll-back has halved the rate, which was not enough.");
  snprintf(first->gain, sizeof first->gain, "the run cannot go on without it");
}

void report_find_changes(RunReport *r) {
  const RunFacts *f = &r->facts;
  Candidates c = {.seconds = f->seconds};
  if (!(f->seconds > 0)) {
    if (f->has_diverged) put_divergence_first(r);
    return;
  }
  consider_stopping(r, &c);
  if (!isnan(f->parts.total)) {
    consider_data(f, &c);
    consider_straggler(f, &c);
    consider_network(f, &c);
    consider_checkpoints(f, &c);
  }
  consider_validation(f, &c);
  r->change_count = c.count < REPORT_CHANGES ? c.count : REPORT_CHANGES;
  memcpy(r->changes, c.list, r->change_count * sizeof *r->changes);
  if (f->has_diverged) put_divergence_first(r);
}
