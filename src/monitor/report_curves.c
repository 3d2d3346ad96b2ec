/* Answers from the curves of a run: how long it took, whether it is fully trained, whether it was
 * overfitting, the learning rate. Depends on facts, plot, trend. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "monitor/report_internal.h"
#include "monitor/trend.h"

#define FEWEST_VALIDATIONS 4     /* a slope and its noise need that many */
#define SMALL_GAIN         0.005 /* share of the loss that another tenth of the run would bring */
#define MOST_REASONS       3     /* restarts whose reasons are named */

/* Says why the run was restarted: the first reasons. */
static void say_reasons(Answer *a, const RunFacts *f) {
  size_t said = 0;
  for (size_t i = 0; i < f->log.event_count && said < MOST_REASONS; i++) {
    const RunEvent *e = &f->log.events[i];
    char reason[256], shown[128];
    if (strcmp(e->kind, "restart") != 0) continue;
    if (!runlog_event_text(e, "restart_reason", reason, sizeof reason)) continue;
    utf8_visible(reason, shown, sizeof shown);
    report_say(a, "%s%s (step %" PRIu64 ")", said++ ? "; " : " Restarted after: ", shown,
               e->step);
  }
  if (said) report_say(a, f->restarts > MOST_REASONS ? "; and others." : ".");
}

/* Says that the run ended with an error, if it did. */
static void say_error(Answer *a, const RunFacts *f) {
  char time[32], steps[32];
  if (!f->error[0]) return;
  report_verdict(a, VERDICT_BAD, "%s after %s and %s steps",
                 f->has_diverged ? "It diverged" : "It ended with an error",
                 report_seconds(time, f->seconds), report_count(steps, f->last_step));
  report_say(a, "The run ended with an error: %s. ", f->error);
}

static Err answer_duration(RunReport *r) {
  Answer *a = &r->answers[ANSWER_DURATION];
  const RunFacts *f = &r->facts;
  char time[32], steps[32], part[3][32];
  if (isnan(f->seconds)) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown");
    report_say(a, "metrics.jsonl has no record, so the duration is not known.");
    return ERR_OK;
  }
  report_verdict(a, VERDICT_FACT, "%s for %s steps", report_seconds(time, f->seconds),
                 report_count(steps, f->last_step));
  say_error(a, f);
  report_say(a,
             "Training took %s: %s in steps, %s in validations, %s for everything else "
             "(start, saving at the end, averaging%s).",
             time, report_seconds(part[0], f->step_seconds),
             report_seconds(part[1], f->valid_seconds),
             report_seconds(part[2], f->other_seconds),
             f->rollbacks > 0 ? ", steps that roll-backs undid" : "");
  if (f->planned_steps > f->last_step)
    report_say(a, " It has reached step %.0f of at most %.0f.", f->last_step, f->planned_steps);
  if (f->restarts > 0 || f->rollbacks > 0)
    report_say(a, " Restarts: %.0f, roll-backs: %.0f.", f->restarts, f->rollbacks);
  say_reasons(a, f);
  if (f->processes > 1)
    report_say(a,
               " %.0f processes trained one after another; what each did after its last "
               "checkpoint, and the time between them, is not part of the training time.",
               f->processes);
  report_figure(a, "seconds", "training time", f->seconds, "%s", time);
  report_figure(a, "step_seconds", "in steps", f->step_seconds, "%s", part[0]);
  report_figure(a, "valid_seconds", "in validations", f->valid_seconds, "%s", part[1]);
  report_figure(a, "checkpoint_seconds", "waited for checkpoints", f->checkpoint_seconds, "%s",
                report_seconds(part[2], f->checkpoint_seconds));
  report_figure(a, "wall_seconds", "wall clock, first to last sample", f->wall_seconds, "%s",
                report_seconds(part[2], f->wall_seconds));
  report_figure(a, "steps", "steps", f->last_step, "%s", steps);
  report_figure(a, "epochs", "epochs", f->epochs, "%.2f", f->epochs);
  report_figure(a, "processes", "processes, one after another", f->processes, "%.0f",
                f->processes);
  report_figure(a, "restarts", "of these by automatic restarts", f->restarts, "%.0f",
                f->restarts);
  report_figure(a, "rollbacks", "roll-backs", f->rollbacks, "%.0f", f->rollbacks);
  Curve c;
  TRY(report_curve(&f->log, facts_rate_column(f), &c));
  const char *name = f->is_text_task ? "tokens/s" : "target tokens/s";
  PlotSeries s = {.name = name, .x = c.x, .y = c.y, .points = c.points};
  PlotLines p = {.title = "Speed", .x_label = "step", .includes_zero = true, .mark = NAN};
  p.series = &s;
  p.count = 1;
  report_chart(a, &p);
  report_free_curve(&c);
  return ERR_OK;
}

static size_t find_lowest(const Curve *c) {
  size_t best = 0;
  for (size_t i = 1; i < c->points; i++)
    if (c->y[i] < c->y[best]) best = i;
  return best;
}

/* The last third of the validations, at least FEWEST_VALIDATIONS. */
static size_t get_window(size_t points) {
  size_t window = points / 3;
  if (window < FEWEST_VALIDATIONS) window = FEWEST_VALIDATIONS;
  return window < points ? window : points;
}

/* Returns by how much the last validation loss may exceed the lowest one: three times the noise, and
 * at least 1 %. */
static double get_limit(const Curve *valid) {
  double noise = trend_noise(valid->y, valid->points);
  return fmax(isnan(noise) ? 0 : 3 * noise, 0.01 * valid->y[find_lowest(valid)]);
}

/* Returns the most by which another tenth of the run could lower the validation loss, as a share of it:
 * along the steepest line that the noise allows (97.5 %). */
static double get_most_gain(const RunFacts *f, const Trend *t, double loss) {
  return (t->limit * t->error - t->slope) * 0.1 * f->last_step / loss;
}

/* The loss is above its lowest by more than its noise, and does not fall again. */
static void say_past_best(Answer *a, const Curve *valid, const Trend *t) {
  size_t best = find_lowest(valid);
  double now = valid->y[valid->points - 1];
  if (trend_is_significant(t)) {
    report_verdict(a, VERDICT_BAD, "Past its best: the loss rises since step %.0f",
                   valid->x[best]);
    report_say(a,
               "The validation loss rises by %.4f per 1,000 steps, more than its noise (±%.4f) "
               "explains; it was lowest at step %.0f.",
               1000 * t->slope, t->noise, valid->x[best]);
    return;
  }
  report_verdict(a, VERDICT_BAD, "Past its best: the loss was lowest at step %.0f",
                 valid->x[best]);
  report_say(
      a,
      "The validation loss was lowest at step %.0f (%.4f) and is %.4f now, which is more "
      "than its noise (±%.4f) explains.",
      valid->x[best], valid->y[best], now, t->noise);
}

/* Returns how many validations at the end, each lower than the one before, the curve has. Noise alone
 * makes 4 of them with a chance of 1/24: they prove a fall even where the curve is bent, so that a line
 * fits it badly. */
static size_t count_falling(const Curve *valid) {
  size_t n = valid->points, falling = 1;
  while (falling < n && valid->y[n - falling] < valid->y[n - falling - 1]) falling++;
  return falling;
}

/* The loss falls beyond doubt. */
static void say_falling(Answer *a, const Curve *valid, const Trend *t, double last_step) {
  size_t n = valid->points, falling = count_falling(valid);
  double slope = t->slope;
  if (falling >= FEWEST_VALIDATIONS) {
    /* The end of a curve that flattens. */
    slope = (valid->y[n - 1] - valid->y[n - 2]) / (valid->x[n - 1] - valid->x[n - 2]);
    report_say(a, "The validation loss fell at each of the last %zu validations", falling - 1);
  } else {
    report_say(a, "The validation loss falls, by more than its noise (±%.4f) explains",
               t->noise);
  }
  double share = -slope * 0.1 * last_step / valid->y[n - 1];
  report_verdict(a, VERDICT_MIXED, "%s",
                 share < SMALL_GAIN ? "Nearly: it improves, but slowly"
                                    : "No: the validation loss still falls");
  report_say(
      a,
      ", by %.4f per 1,000 steps at the end; at this slope another tenth of the run would "
      "lower it by %.2g %%, and by less if the curve flattens.",
      -1000 * slope, 100 * share);
}

static void judge_slope(Answer *a, const RunFacts *f, const Curve *valid, const Trend *t) {
  double now = valid->y[valid->points - 1];
  double gain = get_most_gain(f, t, now);
  bool is_falling =
      (trend_is_significant(t) && t->slope < 0) || count_falling(valid) >= FEWEST_VALIDATIONS;
  bool is_past = now - valid->y[find_lowest(valid)] > get_limit(valid);
  if (!isfinite(gain)) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown: the losses have no slope");
    report_say(a, "No line can be drawn through the last %zu validation losses.", t->points);
  } else if (is_falling) {
    say_falling(a, valid, t, f->last_step);
  } else if (is_past) {
    say_past_best(a, valid, t);
  } else if (gain < SMALL_GAIN) {
    report_verdict(a, VERDICT_GOOD, "Yes: the validation loss no longer %s",
                   trend_is_significant(t) ? "falls" : "changes");
    report_say(
        a,
        "Over the last %zu validations the loss changes by %+.4f ± %.4f per 1,000 steps: "
        "with what its noise allows, another tenth of the run would lower it by less than "
        "%.1f %%.",
        t->points, 1000 * t->slope, 1000 * t->limit * t->error, 100 * SMALL_GAIN);
  } else {
    report_verdict(a, VERDICT_UNKNOWN, "Unclear: the noise hides whether the loss still falls");
    report_say(
        a,
        "Over the last %zu validations the loss changes by %+.4f ± %.4f per 1,000 steps: "
        "it may be constant, and it may fall so that another tenth of the run lowers it by "
        "%.2g %%; more validations, or a larger validation set, would tell.",
        t->points, 1000 * t->slope, 1000 * t->limit * t->error, 100 * gain);
  }
}

/* A learning rate near 0 flattens every curve: say that more steps need a longer schedule. */
static void mention_rate(Answer *a, const Curve *rate) {
  double peak = 0;
  for (size_t i = 0; i < rate->points; i++) peak = fmax(peak, rate->y[i]);
  if (rate->points == 0 || !(rate->y[rate->points - 1] < 0.01 * peak)) return;
  report_say(a,
             " The learning rate has fallen below 1 %% of its peak, so more steps of this "
             "schedule would change little: a longer run needs a longer schedule.");
}

#define SCORE(name, label, digits, lower)                                \
  {                                                                      \
    "valid_" name, "best_" name, "best validation " label, "last_" name, \
        "last validation " label, digits, lower                          \
  }

const ReportScore report_scores[REPORT_SCORES] = {
    SCORE("bleu", "BLEU", 2, false),           SCORE("f1_macro", "macro-F1", 4, false),
    SCORE("accuracy", "accuracy", 4, false),   SCORE("auc", "AUC", 4, false),
    SCORE("pearson", "correlation", 4, false), SCORE("mae", "MAE", 4, true)};

/* Adds the best and the last value of a metric, if the run has it. */
static Err add_score(Answer *a, const RunLog *log, const ReportScore *score) {
  Curve c;
  size_t best = 0;
  TRY(report_curve(log, score->column, &c));
  for (size_t i = 1; i < c.points; i++)
    if (score->lower_is_better ? c.y[i] < c.y[best] : c.y[i] > c.y[best]) best = i;
  if (c.points) {
    double last = c.y[c.points - 1];
    report_figure(a, score->best_key, score->best_label, c.y[best], "%.*f at step %.0f",
                  score->digits, c.y[best], c.x[best]);
    report_figure(a, score->last_key, score->last_label, last, "%.*f", score->digits, last);
  }
  report_free_curve(&c);
  return ERR_OK;
}

static Err add_scores(RunReport *r) {
  for (size_t i = 0; i < REPORT_SCORES; i++)
    TRY(add_score(&r->answers[ANSWER_TRAINED], &r->facts.log, &report_scores[i]));
  return ERR_OK;
}

/* Returns the name of the loss for the axis of a chart. */
static const char *name_loss(const RunFacts *f) {
  return f->is_classifier ? "loss per label" : "loss (nats/token)";
}

/* Writes "is 1 validation" or "are 2 validations"; `out` has 48 bytes. Returns it. */
static const char *count_validations(char *out, size_t n) {
  snprintf(out, 48, n == 1 ? "is %zu validation" : "are %zu validations", n);
  return out;
}

static void answer_trained(RunReport *r, const Curve *valid, const Curve *rate) {
  Answer *a = &r->answers[ANSWER_TRAINED];
  size_t n = valid->points, window = get_window(n);
  char text[48];
  if (r->facts.has_diverged) {
    report_verdict(a, VERDICT_BAD, "No: the run diverged");
    report_say(a,
               "Its loss diverged again after %.0f roll-back%s, and it ended with an error at "
               "step %.0f; checkpoints/latest is from before that.",
               r->facts.rollbacks, r->facts.rollbacks == 1 ? "" : "s", r->facts.last_step);
  } else if (n < FEWEST_VALIDATIONS) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown: too few validations");
    report_say(a,
               "There %s; a slope and its noise need at least %d, so lower "
               "--valid-every.",
               count_validations(text, n), FEWEST_VALIDATIONS);
  } else {
    Trend t = trend_fit(valid->x + n - window, valid->y + n - window, window);
    judge_slope(a, &r->facts, valid, &t);
    mention_rate(a, rate);
    report_figure(a, "slope_per_1000_steps", "slope of the validation loss per 1,000 steps",
                  1000 * t.slope, "%+.4f ± %.4f", 1000 * t.slope, 1000 * t.error * t.limit);
    double noise = fmin(t.noise, trend_noise(valid->y + n - window, window));
    report_figure(a, "noise", "noise of a validation", noise, "±%.4f", noise);
  }
  if (n > 0)
    report_figure(a, "last_valid_nll", "last validation loss", valid->y[n - 1], "%.4f",
                  valid->y[n - 1]);
  PlotSeries s = {.name = "validation loss", .has_dots = true};
  s.x = valid->x;
  s.y = valid->y;
  s.points = n;
  PlotLines p = {
      .title = "Validation loss", .x_label = "step", .y_label = name_loss(&r->facts)};
  p.series = &s;
  p.count = 1;
  p.is_log = true;
  p.mark = NAN;
  report_chart(a, &p);
}

/* Returns the training loss at a step: the last record up to it. */
static double get_at(const Curve *c, double step) {
  double value = NAN;
  for (size_t i = 0; i < c->points && c->x[i] <= step; i++) value = c->y[i];
  return value;
}

static void mention_dropout(Answer *a, const RunFacts *f) {
  if (isnan(f->dropout))
    report_say(a, " Whether dropout was on is not known; it raises the training loss.");
  else if (f->dropout > 0)
    report_say(a,
               " The training loss is measured with dropout (%.2g), validation without, so the "
               "true gap is larger.",
               f->dropout);
  else
    report_say(a, " There was no dropout, so both losses are measured alike.");
}

/* Returns the mean training loss just before validation i: over half the distance of the last two
 * validations, because the loss of a few batches is noisy. NAN: there is no record. */
static double get_train_loss(const Curve *train, const Curve *valid, size_t i) {
  size_t n = valid->points, count = 0;
  double from = valid->x[i] - (valid->x[n - 1] - valid->x[n - 2]) / 2, sum = 0;
  for (size_t k = 0; k < train->points && train->x[k] <= valid->x[i]; k++) {
    if (train->x[k] <= from) continue;
    sum += train->y[k];
    count++;
  }
  return count ? sum / (double)count : get_at(train, valid->x[i]);
}

static void judge_overfitting(Answer *a, const Curve *train, const Curve *valid) {
  size_t n = valid->points, best = find_lowest(valid);
  double rise = valid->y[n - 1] - valid->y[best], limit = get_limit(valid);
  double before = get_train_loss(train, valid, best), now = get_train_loss(train, valid, n - 1);
  if (rise <= limit) {
    report_verdict(a, VERDICT_GOOD, "No");
    report_say(a,
               "The validation loss is at its lowest, or above it by no more than its noise or "
               "1 %% (%.4f now, %.4f at best).",
               valid->y[n - 1], valid->y[best]);
    if (now < valid->y[n - 1])
      report_say(a, " The training loss is lower by %.4f.", valid->y[n - 1] - now);
  } else if (n - 1 - best < 2) {
    report_verdict(a, VERDICT_MIXED, "Not clearly: too early to tell");
    report_say(
        a,
        "The last validation loss is %.4f above the one before it, which was the lowest; "
        "one validation is not enough to tell.",
        rise);
  } else if (now < before) {
    report_verdict(a, VERDICT_BAD, "Yes, since step %.0f", valid->x[best]);
    report_say(a,
               "From step %.0f on the training loss fell further (%.4f to %.4f) while the "
               "validation loss rose from %.4f to %.4f.",
               valid->x[best], before, now, valid->y[best], valid->y[n - 1]);
  } else {
    report_verdict(a, VERDICT_MIXED, "Not clearly: the training loss did not fall either");
    report_say(
        a,
        "The validation loss rose by %.4f since step %.0f, but the training loss did not "
        "fall (%.4f to %.4f): that is no overfitting; look at the learning rate and at "
        "grad_norm.",
        rise, valid->x[best], before, now);
  }
  report_figure(a, "lowest_valid_nll", "lowest validation loss", valid->y[best],
                "%.4f at step %.0f", valid->y[best], valid->x[best]);
  report_figure(a, "rise", "rise since then", rise, "%.4f", rise);
}

static void answer_overfitting(RunReport *r, const Curve *train, const Curve *valid) {
  Answer *a = &r->answers[ANSWER_OVERFITTING];
  size_t n = valid->points;
  char text[48];
  if (train->points == 0 || n < 3) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown: %s",
                   train->points ? "too few validations" : "no training loss");
    report_say(a, "There %s; at least 3 are needed beside the training loss.",
               count_validations(text, n));
  } else {
    double last = get_train_loss(train, valid, n - 1);
    report_figure(a, "train_nll", "training loss", last, "%.4f", last);
    report_figure(a, "valid_nll", "validation loss", valid->y[n - 1], "%.4f", valid->y[n - 1]);
    report_figure(a, "gap", "gap", valid->y[n - 1] - last, "%+.4f", valid->y[n - 1] - last);
    report_figure(a, "dropout", "dropout", r->facts.dropout, "%.2g", r->facts.dropout);
    judge_overfitting(a, train, valid);
    mention_dropout(a, &r->facts);
    report_say(a, " Both are %s, without label smoothing.",
               r->facts.is_classifier ? "the same loss, per label"
                                      : "negative log-likelihood per token");
  }
  PlotSeries s[] = {{.name = "training", .x = train->x, .y = train->y, .points = train->points},
                    {.name = "validation", .x = valid->x, .y = valid->y, .points = n}};
  s[1].has_dots = true;
  PlotLines p = {.title = "Training and validation loss", .x_label = "step"};
  p.y_label = name_loss(&r->facts);
  p.is_log = true;
  p.series = s;
  p.count = 2;
  p.mark = n ? valid->x[find_lowest(valid)] : NAN;
  p.mark_label = "lowest validation loss";
  report_chart(a, &p);
}

/* What the schedules do after the warm-up, by the names of --lr-scheduler. */
static const char *describe_schedule(const RunFacts *f, const char *name) {
  char power[32] = "1";
  static const char *const schedules[][2] = {
      {"noam", "falls with the inverse square root of the step (noam)"},
      {"transformer", "falls with the inverse square root of the step (noam)"},
      {"inverse-sqrt", "falls with the inverse square root of the step"},
      {"cosine", "falls along half a cosine"},
      {"polynomial", "falls along a polynomial"},
      {"polynomial-decay", "falls along a polynomial"},
      {"exponential", "falls by a constant factor at equal distances"},
      {"piecewise", "changes in steps, at the milestones"},
      {"inverse-time", "falls with the inverse of the step"},
      {"inverse", "falls with the inverse of the step"},
      {"constant", "stays constant"},
      {"constant-with-warmup", "stays constant"},
      {"fixed", "stays constant"}};
  facts_option(f, "lr-power", power, sizeof power);
  if (str_starts(name, "polynomial") && atof(power) == 1) return "falls in a straight line";
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
    if (strcmp(schedules[i][0], name) == 0) return schedules[i][1];
  return "follows the schedule of the config";
}

/* Returns the steps of the warm-up: those that train recorded, or those of the options for runs of
 * earlier versions. NAN: unknown, because the default of a text task depends on the number of steps. */
static double get_warmup(const RunFacts *f) {
  char text[32] = "";
  int64_t steps;
  if (!isnan(f->warmup_steps)) return f->warmup_steps;
  facts_option(f, "warmup", text, sizeof text); /* the name in earlier versions */
  facts_option(f, "warmup-steps", text, sizeof text);
  if (!text[0]) return f->is_text_task ? NAN : 8000;
  return str_count(text, &steps) ? NAN : (double)steps;
}

/* Says how the rate begins, up to its peak. */
static void say_warmup(Answer *a, const Curve *rate, size_t peak, double warmup) {
  report_say(a, "The rate rises linearly");
  if (!isnan(warmup))
    report_say(a, " during the warm-up of %.0f step%s", warmup, warmup == 1 ? "" : "s");
  report_say(a, ", because Adam's estimates begin with little data, to %.3g near step %.0f",
             rate->y[peak], rate->x[peak]);
}

/* Returns the last record of the warm-up, or the first of all. */
static size_t find_warmup_end(const Curve *rate, double warmup) {
  size_t end = 0;
  while (end + 1 < rate->points && rate->x[end + 1] <= warmup) end++;
  return end;
}

/* Explains the curve by the options of the run. */
static void explain_rate(Answer *a, const RunFacts *f, const Curve *rate, size_t peak) {
  char scheduler[64];
  size_t n = rate->points;
  double warmup = get_warmup(f);
  bool has_warmup = isnan(warmup) ? rate->y[peak] > rate->y[0] : warmup > 0;
  snprintf(scheduler, sizeof scheduler, f->is_text_task ? "polynomial" : "noam");
  facts_option(f, "lr-policy", scheduler, sizeof scheduler); /* the name in earlier versions */
  facts_option(f, "lr-scheduler", scheduler, sizeof scheduler);
  /* Milestones may raise the rate above that of the warm-up. */
  if (strcmp(scheduler, "piecewise") == 0 && has_warmup && !isnan(warmup))
    peak = find_warmup_end(rate, warmup);
  const char *settles = rate->y[n - 1] < rate->y[peak] ? ", so that the weights settle" : "";
  bool is_in_warmup = peak == n - 1 && f->last_step < warmup;
  if (is_in_warmup)
    report_say(a,
               "The rate rose from %.3g to %.3g and did not reach the end of its warm-up of "
               "%.0f steps, after which it %s: small steps at first keep Adam's "
               "estimates, which begin with little data, from doing damage.",
               rate->y[0], rate->y[peak], warmup, describe_schedule(f, scheduler));
  else if (has_warmup)
    say_warmup(a, rate, peak, warmup);
  else
    report_say(a, "%s begins at %.3g",
               isnan(warmup) ? "The rate" : "There is no warm-up: the rate", rate->y[0]);
  if (!is_in_warmup)
    report_say(a, ", then it %s%s; it ends at %.3g.", describe_schedule(f, scheduler), settles,
               rate->y[n - 1]);
}

static void answer_rate(RunReport *r, const Curve *rate) {
  Answer *a = &r->answers[ANSWER_LEARNING_RATE];
  size_t n = rate->points, peak = 0;
  if (n == 0) {
    report_verdict(a, VERDICT_UNKNOWN, "Unknown");
    report_say(a, "The learning rate was not recorded.");
    return;
  }
  for (size_t i = 1; i < n; i++)
    if (rate->y[i] > rate->y[peak]) peak = i;
  bool is_rising = peak == n - 1 && rate->y[0] < rate->y[peak];
  report_verdict(a, VERDICT_FACT,
                 is_rising ? "Still rising: %.3g at step %.0f" : "Peak %.3g at step %.0f",
                 rate->y[peak], rate->x[peak]);
  if (r->facts.config.len)
    explain_rate(a, &r->facts, rate, peak);
  else
    report_say(
        a,
        "The rate begins at %.3g, is highest near step %.0f and ends at %.3g; the options "
        "of its schedule are unknown, because there is no config.",
        rate->y[0], rate->x[peak], rate->y[n - 1]);
  if (r->facts.rollbacks > 0)
    report_say(a,
               r->facts.rollbacks == 1 ? " The %.0f roll-back halved it."
                                       : " Each of the %.0f roll-backs halved it.",
               r->facts.rollbacks);
  report_figure(a, "peak_lr", "highest rate", rate->y[peak], "%.4g", rate->y[peak]);
  report_figure(a, "peak_step", "at step", rate->x[peak], "%.0f", rate->x[peak]);
  report_figure(a, "last_lr", "last rate", rate->y[n - 1], "%.4g", rate->y[n - 1]);
  PlotSeries s = {.name = "learning rate", .x = rate->x, .y = rate->y, .points = n};
  PlotLines p = {
      .title = "Learning rate", .x_label = "step", .includes_zero = true, .mark = NAN};
  p.series = &s;
  p.count = 1;
  report_chart(a, &p);
}

Err report_answer_curves(RunReport *r) {
  const RunLog *log = &r->facts.log;
  Curve train = {0}, valid = {0}, rate = {0};
  Err err;
  TRY_DONE(answer_duration(r));
  TRY_DONE(report_curve(log, "nll", &train));
  TRY_DONE(report_curve(log, "valid_nll", &valid));
  TRY_DONE(report_curve(log, "lr", &rate));
  answer_trained(r, &valid, &rate);
  TRY_DONE(add_scores(r));
  answer_overfitting(r, &train, &valid);
  answer_rate(r, &rate);
done:
  report_free_curve(&train);
  report_free_curve(&valid);
  report_free_curve(&rate);
  return err;
}
