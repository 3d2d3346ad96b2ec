/* Learning-rate policies. Depends on base/str. */
#include "train/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

const char *const lr_policy_names =
    "noam|constant|piecewise|exponential|polynomial|cosine|inverse-time|inverse-sqrt";

static double get_piecewise_lr(const Schedule *s, uint64_t step) {
  double factor = 1;
  for (int i = 0; i < s->pieces && step >= s->at[i]; i++) factor = s->factor[i];
  return s->lr * factor;
}

/* Progress of the decay counts from the end of the warm-up, as fairseq and Hugging Face do. */
static double get_lr_without_warmup(const Schedule *s, uint64_t step) {
  double since = step > s->warmup ? (double)(step - s->warmup) : 0;
  double decay = s->decay ? (double)s->decay : 1;
  double part = since / decay;
  double bounded = part < 1 ? part : 1;
  double now = (double)(step + 1);
  double w = s->warmup ? (double)s->warmup : 1;
  switch (s->policy) {
    case LR_TRANSFORMER:
      break; /* has a warm-up of its own */
    case LR_FIXED:
      return s->lr;
    case LR_INVERSE_SQRT:
      return s->lr * fmin(1, sqrt(w / now));
    case LR_PIECEWISE:
      return get_piecewise_lr(s, step);
    case LR_EXPONENTIAL:
      return fmax(s->least, s->lr * pow(s->rate, part));
    case LR_POLYNOMIAL:
      return s->least + (s->lr - s->least) * pow(1 - bounded, s->power);
    case LR_COSINE:
      return s->least + (s->lr - s->least) * 0.5 * (1 + cos(3.141592653589793 * bounded));
    case LR_INVERSE: {
      double c = (pow(s->lr / s->least, 1 / s->power) - 1) / decay;
      return s->lr / pow(1 + c * since, s->power);
    }
  }
  return s->lr * pow(s->d, -0.5) * fmin(now * pow(w, -1.5), pow(now, -0.5));
}

double schedule_lr(const Schedule *s, uint64_t step) {
  double lr = get_lr_without_warmup(s, step);
  bool warming = s->policy != LR_TRANSFORMER && step < s->warmup;
  return warming ? lr * (double)(step + 1) / (double)s->warmup : lr;
}

Err schedule_pieces(Schedule *s, const char *text) {
  s->pieces = 0;
  while (*text) {
    size_t n = strcspn(text, ",");
    char part[64];
    snprintf(part, sizeof part, "%.*s", (int)(n < 60 ? n : 60), text);
    char *colon = strchr(part, ':');
    int64_t at = 0;
    double factor = 0;
    if (colon) *colon = '\0';
    if (!colon || s->pieces == LR_PIECES || str_count(part, &at) ||
        str_real(colon + 1, &factor) || at < 0) {
      return err_set(ERR_USAGE, "'%s' is not a list such as 10k:0.5,20k:0.1", text);
    }
    if (s->pieces && (uint64_t)at <= s->at[s->pieces - 1])
      return err_set(ERR_USAGE, "the steps of the pieces must rise, but %s does not", part);
    s->at[s->pieces] = (uint64_t)at;
    s->factor[s->pieces++] = factor;
    text += n + (text[n] == ',');
  }
  return ERR_OK;
}
