/* Bootstrap resampling of sentences: confidence intervals and paired tests (Koehn 2004). The
 * random draws and float32 roundings equal those of sacreBLEU on NumPy 2, so that results agree
 * in every digit. Depends on internal, pcg64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "metric/internal.h"
#include "metric/pcg64.h"

/* Scores of the bootstrap samples. `single`: the scores are float32, and mean and percentiles are
 * computed in float32 too. */
typedef struct {
  double *score; /* (n) score of each sample */
  size_t n;
  bool single;
} Sample;

static Err draw_resamples(const Metric *m, size_t resamples, uint64_t seed, Sample *out) {
  *out = (Sample){.n = resamples, .single = true};
  if (m->lines == 0 || resamples == 0) {
    return err_set(ERR_WORK,
                   "cannot resample: no sentence was scored; give a reference and a hypothesis "
                   "with lines");
  }
  if (m->lines > UINT32_MAX - 1)
    return err_set(ERR_WORK,
                   "cannot resample more than 4,294,967,294 sentences; split the test set");
  float *rows = NULL; /* (lines, stats) statistics of each sentence */
  Err err;
  TRY_DONE(mem_alloc(&rows, m->lines * m->stats, sizeof *rows));
  TRY_DONE(mem_alloc(&out->score, resamples, sizeof *out->score));
  for (size_t i = 0; i < m->lines * m->stats; i++) rows[i] = (float)m->rows[i];

  Pcg64 rng;
  pcg64_seed(&rng, seed);
  for (size_t s = 0; s < resamples; s++) {
    float sum[METRIC_STATS_MAX] = {0};
    for (size_t i = 0; i < m->lines; i++) {
      const float *row = rows + pcg64_below(&rng, (uint32_t)m->lines) * m->stats;
      for (size_t k = 0; k < m->stats; k++) sum[k] += row[k];
    }
    double wide[METRIC_STATS_MAX];
    for (size_t k = 0; k < m->stats; k++) wide[k] = (double)sum[k];
    bool single;
    MetricScore score;
    metric_compute(m, wide, &single, &score);
    out->score[s] = score.score;
    if (!single) out->single = false;
  }
done:
  mem_free(rows);
  if (err) {
    mem_free(out->score);
    out->score = NULL;
  }
  return err;
}

static int compare_values(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns half the distance between the 2.5th and the 97.5th percentile of sorted scores. */
static double half_width(const double *score, size_t n, bool single) {
  size_t low = n / 40, high = n - low - 1;
  if (!single) return 0.5 * (score[high] - score[low]);
  float distance = (float)score[high] - (float)score[low];
  return (double)(0.5f * distance);
}

/* Computes a sum in float32 in the order of NumPy's pairwise summation. */
static float sum_pairwise(const double *x, size_t n) {
  if (n < 8) {
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += (float)x[i];
    return sum;
  }
  if (n <= 128) {
    float r[8];
    size_t i, whole = n - n % 8;
    for (i = 0; i < 8; i++) r[i] = (float)x[i];
    for (i = 8; i < whole; i++) r[i % 8] += (float)x[i];
    float sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; i++) sum += (float)x[i];
    return sum;
  }
  size_t half = n / 2;
  half -= half % 8;
  return sum_pairwise(x, half) + sum_pairwise(x + half, n - half);
}

/* Computes the mean in double precision, in which the order of summation changes only digits that
 * are never printed. */
static double mean_wide(const double *x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += x[i];
  return sum / (double)n;
}

static double mean_numpy(const double *x, size_t n, bool single) {
  return single ? (double)(sum_pairwise(x, n) / (float)n) : mean_wide(x, n);
}

/* Computes mean and confidence interval; sorts the scores. */
static MetricInterval interval_of(Sample *sample) {
  qsort(sample->score, sample->n, sizeof *sample->score, compare_values);
  return (MetricInterval){mean_numpy(sample->score, sample->n, sample->single),
                          half_width(sample->score, sample->n, sample->single)};
}

Err metric_confidence(const Metric *m, size_t resamples, uint64_t seed,
                      MetricInterval *interval) {
  Sample sample;
  TRY(draw_resamples(m, resamples, seed, &sample));
  *interval = interval_of(&sample);
  /* sacreBLEU uses Python's statistics.mean here, which is exact up to one rounding. */
  double mean = mean_wide(sample.score, sample.n);
  interval->mean = sample.single ? (double)(float)mean : mean;
  mem_free(sample.score);
  return ERR_OK;
}

/* Returns the p-value: counts the samples in which the absolute difference of the two scores
 * exceeds its mean over all samples by more than `observed`. Overwrites `a`. */
static double p_value(Sample *a, const Sample *b, double observed) {
  bool single = a->single && b->single;
  size_t n = a->n, beyond = 0;
  for (size_t i = 0; i < n; i++) {
    double difference = fabs(b->score[i] - a->score[i]);
    a->score[i] = single ? (double)(float)difference : difference;
  }
  double mean = mean_numpy(a->score, n, single);
  for (size_t i = 0; i < n; i++) {
    double excess = a->score[i] - mean;
    if (single) {
      beyond += (float)excess > (float)observed;
    } else {
      beyond += excess > observed;
    }
  }
  return (double)(beyond + 1) / (double)(n + 1);
}

static Err copy_scores(const double *score, size_t n, Sample *copy) {
  *copy = (Sample){.n = n};
  TRY(mem_alloc(&copy->score, n, sizeof *score));
  memcpy(copy->score, score, n * sizeof *score);
  return ERR_OK;
}

Err metric_interval(const double *score, size_t n, MetricInterval *interval) {
  Sample sample;
  TRY(copy_scores(score, n, &sample));
  *interval = interval_of(&sample);
  mem_free(sample.score);
  return ERR_OK;
}

Err metric_p_value(const double *base, const double *other, size_t n, double observed,
                   double *p) {
  Sample a, b;
  *p = 1;
  if (observed == 0) return ERR_OK;
  TRY(copy_scores(base, n, &a));
  Err err = copy_scores(other, n, &b);
  if (!err) {
    *p = p_value(&a, &b, observed);
    mem_free(b.score);
  }
  mem_free(a.score);
  return err;
}

Err metric_paired(const Metric *base, const Metric *other, size_t resamples, uint64_t seed,
                  MetricInterval *of_base, MetricInterval *of_other, double *p) {
  if (base->lines != other->lines || base->config.kind != other->config.kind) {
    return err_set(ERR_WORK,
                   "cannot compare the systems: a paired test needs outputs for the same "
                   "sentences; give files with the same number of lines");
  }
  Sample a = {0}, b = {0}, a_sorted = {0}, b_sorted = {0};
  Err err;
  TRY_DONE(draw_resamples(base, resamples, seed, &a));
  TRY_DONE(draw_resamples(other, resamples, seed, &b));
  a_sorted = a;
  b_sorted = b;
  a_sorted.score = b_sorted.score = NULL;
  TRY_DONE(mem_alloc(&a_sorted.score, a.n, sizeof *a.score));
  TRY_DONE(mem_alloc(&b_sorted.score, b.n, sizeof *b.score));
  memcpy(a_sorted.score, a.score, a.n * sizeof *a.score);
  memcpy(b_sorted.score, b.score, b.n * sizeof *b.score);
  *of_base = interval_of(&a_sorted);
  *of_other = interval_of(&b_sorted);

  MetricScore score_a, score_b;
  metric_score(base, &score_a);
  metric_score(other, &score_b);
  *p = p_value(&a, &b, fabs(score_a.score - score_b.score));
done:
  mem_free(a.score);
  mem_free(b.score);
  mem_free(a_sorted.score);
  mem_free(b_sorted.score);
  return err;
}
