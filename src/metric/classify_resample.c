/* Bootstrap samples of the texts of a classifier, and the list of its scores. Depends on classify,
 * pcg64. */
#include <string.h>

#include "base/mem.h"
#include "metric/classify.h"
#include "metric/pcg64.h"

static const struct {
  const char *title, *key;
} scores[CLASSIFY_SCORES] = {
    [CLASSIFY_ACCURACY] = {"accuracy", "accuracy"},
    [CLASSIFY_F1_MACRO] = {"F1 macro", "f1_macro"},
    [CLASSIFY_F1_MICRO] = {"F1 micro", "f1_micro"},
    [CLASSIFY_F1_WEIGHTED] = {"F1 weighted", "f1_weighted"},
    [CLASSIFY_AUC] = {"ROC AUC", "auc"},
    [CLASSIFY_AVERAGE_PRECISION] = {"average precision", "average_precision"},
    [CLASSIFY_MCC] = {"MCC", "mcc"},
    [CLASSIFY_LOG_LOSS] = {"log loss", "log_loss"},
    [CLASSIFY_ECE] = {"ECE", "ece"},
};

const char *classify_title(int i) {
  return scores[i].title;
}

const char *classify_key(int i) {
  return scores[i].key;
}

double classify_value(const ClassifyScore *s, int i) {
  const double value[CLASSIFY_SCORES] = {
      [CLASSIFY_ACCURACY] = s->accuracy, [CLASSIFY_F1_MACRO] = s->f1_macro,
      [CLASSIFY_F1_MICRO] = s->f1_micro, [CLASSIFY_F1_WEIGHTED] = s->f1_weighted,
      [CLASSIFY_AUC] = s->auc,           [CLASSIFY_AVERAGE_PRECISION] = s->average_precision,
      [CLASSIFY_MCC] = s->mcc,           [CLASSIFY_LOG_LOSS] = s->log_loss,
      [CLASSIFY_ECE] = s->ece,
  };
  return value[i];
}

/* A bootstrap sample: arrays like those of ClassifyInput. */
typedef struct {
  uint32_t *label;
  uint8_t *has;
  double *probability;
} Sample;

static Err allocate_sample(Sample *s, const ClassifyInput *in) {
  TRY(mem_alloc(&s->probability, in->texts * in->classes, sizeof *s->probability));
  if (in->kind == CLASSIFY_ONE) return mem_alloc(&s->label, in->texts, sizeof *s->label);
  return mem_alloc(&s->has, in->texts * in->classes, sizeof *s->has);
}

/* Draws as many texts as there are, with replacement. */
static void draw_sample(Sample *s, const ClassifyInput *in, Pcg64 *rng) {
  size_t n = in->classes;
  for (size_t i = 0; i < in->texts; i++) {
    size_t from = pcg64_below(rng, (uint32_t)in->texts);
    memcpy(s->probability + i * n, in->probability + from * n, n * sizeof *s->probability);
    if (s->label)
      s->label[i] = in->label[from];
    else
      memcpy(s->has + i * n, in->has + from * n, n);
  }
}

Err classify_resample(const ClassifyInput *in, size_t resamples, uint64_t seed,
                      double **value) {
  Sample sample = {0};
  ClassifyInput drawn = *in;
  Pcg64 rng;
  Err err;
  *value = NULL;
  if (in->texts >= UINT32_MAX)
    return err_set(ERR_WORK, "cannot resample %zu texts; the maximum is 4,294,967,294",
                   in->texts);
  TRY_DONE(mem_alloc(value, CLASSIFY_SCORES * resamples, sizeof **value));
  TRY_DONE(allocate_sample(&sample, in));
  drawn.label = sample.label;
  drawn.has = sample.has;
  drawn.probability = sample.probability;
  pcg64_seed(&rng, seed);
  for (size_t r = 0; r < resamples; r++) {
    ClassifyScore score;
    draw_sample(&sample, in, &rng);
    TRY_DONE(classify_score(&drawn, &score));
    for (size_t i = 0; i < CLASSIFY_SCORES; i++)
      (*value)[i * resamples + r] = classify_value(&score, (int)i);
    classify_free(&score);
  }
done:
  mem_free(sample.label);
  mem_free(sample.has);
  mem_free(sample.probability);
  if (err) {
    mem_free(*value);
    *value = NULL;
  }
  return err;
}
