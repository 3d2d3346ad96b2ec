/* Scores of classifiers. Curves (ROC, precision and recall) are computed from the texts sorted by
 * probability, with equal probabilities taken together. Depends on base. */
#include "metric/classify.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

#define ECE_BINS 15

typedef struct {
  const ClassifyInput *in;
  uint32_t *chosen; /* CLASSIFY_ONE: (texts) the predicted class */
} Work;

/* A text in the order of a class's probability. */
typedef struct {
  double probability;
  bool is_positive;
} Ranked;

static bool has_class(const ClassifyInput *in, size_t text, size_t class) {
  return in->kind == CLASSIFY_ONE ? in->label[text] == class
                                  : in->has[text * in->classes + class];
}

/* Sets w->chosen to the most probable class of each text, of equal ones the first. */
static Err choose_classes(Work *w) {
  const ClassifyInput *in = w->in;
  if (in->kind != CLASSIFY_ONE) return ERR_OK;
  TRY(mem_alloc(&w->chosen, in->texts, sizeof *w->chosen));
  for (size_t i = 0; i < in->texts; i++) {
    const double *p = in->probability + i * in->classes;
    for (uint32_t c = 1; c < in->classes; c++)
      if (p[c] > p[w->chosen[i]]) w->chosen[i] = c;
  }
  return ERR_OK;
}

static bool is_predicted(const Work *w, size_t text, size_t class) {
  if (w->in->kind == CLASSIFY_ONE) return w->chosen[text] == class;
  return w->in->probability[text * w->in->classes + class] > w->in->threshold;
}

static Err check_input(const ClassifyInput *in) {
  size_t fewest = in->kind == CLASSIFY_ONE ? 2 : 1;
  if (in->texts == 0) return err_set(ERR_WORK, "there are no texts to score");
  if (in->classes < fewest)
    return err_set(ERR_WORK, "there is %zu class; a classifier needs at least %zu", in->classes,
                   fewest);
  for (size_t i = 0; i < in->texts; i++) {
    if (in->kind == CLASSIFY_ONE && in->label[i] >= in->classes)
      return err_set(ERR_WORK, "text %zu has label %u, but there are %zu classes", i + 1,
                     in->label[i], in->classes);
    for (size_t c = 0; c < in->classes; c++) {
      double p = in->probability[i * in->classes + c];
      if (!(p >= 0 && p <= 1))
        return err_set(ERR_WORK,
                       "the probability %g of text %zu, class %zu, is not between 0 and 1", p,
                       i + 1, c);
    }
  }
  return ERR_OK;
}

/* --- one class against the others --- */

static double divide(double a, double b) {
  return b > 0 ? a / b : 0;
}

static int by_probability(const void *a, const void *b) {
  double x = ((const Ranked *)a)->probability, y = ((const Ranked *)b)->probability;
  return (x < y) - (x > y);
}

/* Computes the area under the ROC curve with the trapezoidal rule, and the average precision: the sum of
 * precision times the increase of recall. `ranked` has the texts in falling order of probability. */
static void compute_curves(const Ranked *ranked, size_t texts, ClassifyClass *class) {
  double positives = (double)class->support, negatives = (double)texts - positives;
  double hits = 0, misses = 0, area = 0, precision = 0;
  for (size_t i = 0; i < texts;) {
    double hits_before = hits, misses_before = misses;
    double p = ranked[i].probability;
    for (; i < texts && ranked[i].probability == p; i++) {
      hits += ranked[i].is_positive;
      misses += !ranked[i].is_positive;
    }
    area += (misses - misses_before) * (hits + hits_before) / 2;
    precision += (hits - hits_before) * (hits / (hits + misses));
  }
  class->auc = positives > 0 && negatives > 0 ? area / (positives * negatives) : NAN;
  class->average_precision = positives > 0 ? precision / positives : NAN;
}

/* Sets the scores of a class, and *hits to the number of texts for which it was rightly predicted. */
static void score_class(const Work *w, size_t c, Ranked *ranked, ClassifyClass *class,
                        uint64_t *hits) {
  const ClassifyInput *in = w->in;
  *class = (ClassifyClass){0};
  *hits = 0;
  for (size_t i = 0; i < in->texts; i++) {
    bool is_true = has_class(in, i, c), is_chosen = is_predicted(w, i, c);
    class->support += is_true;
    class->predicted += is_chosen;
    *hits += is_true && is_chosen;
    ranked[i] =
        (Ranked){.probability = in->probability[i * in->classes + c], .is_positive = is_true};
  }
  class->precision = divide((double)*hits, (double)class->predicted);
  class->recall = divide((double)*hits, (double)class->support);
  class->f1 = divide(2 * (double)*hits, (double)(class->predicted + class->support));
  qsort(ranked, in->texts, sizeof *ranked, by_probability);
  compute_curves(ranked, in->texts, class);
}

static double mean_defined(const ClassifyScore *s, size_t classes, bool of_auc) {
  double sum = 0;
  size_t count = 0;
  for (size_t c = 0; c < classes; c++) {
    double x = of_auc ? s->class[c].auc : s->class[c].average_precision;
    if (isnan(x)) continue;
    sum += x;
    count++;
  }
  return count ? sum / (double)count : NAN;
}

static Err score_classes(const Work *w, ClassifyScore *s) {
  const ClassifyInput *in = w->in;
  Ranked *ranked;
  uint64_t hits, all_hits = 0, all_predicted = 0, all_support = 0;
  double weighted = 0, sum = 0;
  TRY(mem_alloc(&ranked, in->texts, sizeof *ranked));
  for (size_t c = 0; c < in->classes; c++) {
    score_class(w, c, ranked, &s->class[c], &hits);
    all_hits += hits;
    all_predicted += s->class[c].predicted;
    all_support += s->class[c].support;
    sum += s->class[c].f1;
    weighted += s->class[c].f1 * (double)s->class[c].support;
  }
  s->f1_macro = sum / (double)in->classes;
  s->f1_micro = divide(2 * (double)all_hits, (double)(all_predicted + all_support));
  s->f1_weighted = divide(weighted, (double)all_support);
  s->auc = mean_defined(s, in->classes, true);
  s->average_precision = mean_defined(s, in->classes, false);
  mem_free(ranked);
  return ERR_OK;
}

/* --- all classes --- */

/* Matthews correlation for several classes (Gorodkin 2004), from the confusion matrix. */
static double compute_mcc(const ClassifyInput *in, const ClassifyScore *s) {
  double n = (double)in->texts, right = 0, both = 0, of_true = 0, of_predicted = 0;
  for (size_t c = 0; c < in->classes; c++) {
    double t = (double)s->class[c].support, p = (double)s->class[c].predicted;
    right += (double)s->confusion[c * in->classes + c];
    both += t * p;
    of_true += t * t;
    of_predicted += p * p;
  }
  double scale = (n * n - of_predicted) * (n * n - of_true);
  return scale > 0 ? (right * n - both) / sqrt(scale) : 0;
}

/* Expected calibration error: the mean difference between the probability of the predicted class and the
 * share of right predictions, in bins of equal width. */
static double compute_ece(const Work *w) {
  const ClassifyInput *in = w->in;
  double count[ECE_BINS] = {0}, right[ECE_BINS] = {0}, sum[ECE_BINS] = {0}, error = 0;
  for (size_t i = 0; i < in->texts; i++) {
    uint32_t c = w->chosen[i];
    double p = in->probability[i * in->classes + c];
    /* A bin includes its upper end. */
    int bin = (int)ceil(p * ECE_BINS) - 1;
    bin = bin < 0 ? 0 : bin >= ECE_BINS ? ECE_BINS - 1 : bin;
    count[bin]++;
    right[bin] += in->label[i] == c;
    sum[bin] += p;
  }
  for (int b = 0; b < ECE_BINS; b++) error += fabs(right[b] - sum[b]);
  return error / (double)in->texts;
}

/* Keeps a probability away from 0 and 1, whose logarithms are infinite, as scikit-learn does. */
static double clip(double p) {
  return p < DBL_EPSILON ? DBL_EPSILON : p > 1 - DBL_EPSILON ? 1 - DBL_EPSILON : p;
}

static double compute_log_loss(const ClassifyInput *in) {
  double sum = 0;
  for (size_t i = 0; i < in->texts; i++) {
    const double *p = in->probability + i * in->classes;
    if (in->kind == CLASSIFY_ONE) {
      sum -= log(clip(p[in->label[i]]));
      continue;
    }
    for (size_t c = 0; c < in->classes; c++)
      sum -= log(has_class(in, i, c) ? clip(p[c]) : 1 - clip(p[c]));
  }
  return sum / (double)(in->kind == CLASSIFY_ONE ? in->texts : in->texts * in->classes);
}

/* Returns the share of the texts whose class, or set of labels, was predicted. */
static double compute_accuracy(const Work *w) {
  const ClassifyInput *in = w->in;
  size_t right = 0;
  for (size_t i = 0; i < in->texts; i++) {
    bool is_right = true;
    for (size_t c = 0; c < in->classes && is_right; c++)
      is_right = has_class(in, i, c) == is_predicted(w, i, c);
    right += is_right;
  }
  return (double)right / (double)in->texts;
}

static void count_confusion(const Work *w, uint64_t *confusion) {
  const ClassifyInput *in = w->in;
  for (size_t i = 0; i < in->texts; i++) confusion[in->label[i] * in->classes + w->chosen[i]]++;
}

Err classify_score(const ClassifyInput *in, ClassifyScore *s) {
  Err err;
  Work w = {.in = in};
  *s = (ClassifyScore){.mcc = NAN, .ece = NAN};
  TRY(check_input(in));
  TRY_DONE(mem_alloc(&s->class, in->classes, sizeof *s->class));
  TRY_DONE(choose_classes(&w));
  TRY_DONE(score_classes(&w, s));
  s->accuracy = compute_accuracy(&w);
  s->log_loss = compute_log_loss(in);
  if (in->kind == CLASSIFY_ONE) {
    TRY_DONE(mem_alloc(&s->confusion, in->classes * in->classes, sizeof *s->confusion));
    count_confusion(&w, s->confusion);
    s->mcc = compute_mcc(in, s);
    s->ece = compute_ece(&w);
  }
done:
  mem_free(w.chosen);
  if (err) classify_free(s);
  return err;
}

void classify_free(ClassifyScore *s) {
  mem_free(s->class);
  mem_free(s->confusion);
  s->class = NULL;
  s->confusion = NULL;
}
