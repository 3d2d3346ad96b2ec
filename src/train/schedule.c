/* Learning-rate schedules. Depends on base/str. */
#include "train/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

const char *const lr_policy_names =
    "noam|constant|piecewise|exponential|polynomial|cosine|inverse-time|inverse-sqrt";

static double get_piecewise_lr(const Schedule *s, uint64_t step) {
  double factor = 1;
  for (int i = 0; i < s->milestones && step >= s->at[i]; i++) factor = s->factor[i];
  return s->lr * factor;
}

/* The decay starts at the end of the warm-up, as in fairseq and Hugging Face. */
static double get_lr_without_warmup(const Schedule *s, uint64_t step) {
  double since = step > s->warmup ? (double)(step - s->warmup) : 0;
  double decay = s->decay ? (double)s->decay : 1;
  double part = since / decay;
  double bounded = part < 1 ? part : 1;
  double now = (double)(step + 1);
  double w = s->warmup ? (double)s->warmup : 1;
  switch (s->policy) {
    case LR_NOAM:
      break; /* noam: its formula, after the switch, contains the warm-up */
    case LR_CONSTANT:
      return s->lr;
    case LR_INVERSE_SQRT:
      return s->lr * fmin(1, sqrt(w / now));
    case LR_PIECEWISE:
      return get_piecewise_lr(s, step);
    case LR_EXPONENTIAL:
      return fmax(s->min_lr, s->lr * pow(s->rate, part));
    case LR_POLYNOMIAL:
      return s->min_lr + (s->lr - s->min_lr) * pow(1 - bounded, s->power);
    case LR_COSINE:
      return s->min_lr + (s->lr - s->min_lr) * 0.5 * (1 + cos(3.141592653589793 * bounded));
    case LR_INVERSE_TIME: {
      double c = (pow(s->lr / s->min_lr, 1 / s->power) - 1) / decay;
      return s->lr / pow(1 + c * since, s->power);
    }
  }
  return s->lr * pow(s->d_model, -0.5) * fmin(now * pow(w, -1.5), pow(now, -0.5));
}

double schedule_lr(const Schedule *s, uint64_t step) {
  double lr = get_lr_without_warmup(s, step);
  bool warming = s->policy != LR_NOAM && step < s->warmup;
  return warming ? lr * (double)(step + 1) / (double)s->warmup : lr;
}

Err schedule_parse_milestones(Schedule *s, const char *text) {
  s->milestones = 0;
  while (*text) {
    size_t n = strcspn(text, ",");
    char part[64];
    snprintf(part, sizeof part, "%.*s", (int)(n < 60 ? n : 60), text);
    char *colon = strchr(part, ':');
    int64_t at = 0;
    double factor = 0;
    if (colon) *colon = '\0';
    if (!colon || s->milestones == LR_MILESTONES || str_count(part, &at) ||
        str_real(colon + 1, &factor) || at < 0) {
      return err_set(
          ERR_USAGE,
          "--lr-milestones: '%s' is not a list of STEP:FACTOR; write it as 10k:0.5,20k:0.1",
          text);
    }
    if (s->milestones && (uint64_t)at <= s->at[s->milestones - 1])
      return err_set(
          ERR_USAGE,
          "--lr-milestones: step %s comes after a later one; sort the steps in ascending order",
          part);
    s->at[s->milestones] = (uint64_t)at;
    s->factor[s->milestones++] = factor;
    text += n + (text[n] == ',');
  }
  return ERR_OK;
}
