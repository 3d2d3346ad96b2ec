/* Histograms of arrays of floats, with buckets of a relative width: four per power of two, between
 * 2^-40 and the largest float, for each sign; smaller values share one bucket around zero. No
 * dependencies. */
#ifndef TRAIN_HISTOGRAM_H
#define TRAIN_HISTOGRAM_H

#include <stddef.h>

/* Two signs, exponents -40 to 127, four buckets each, and the bucket around zero. */
#define HISTOGRAM_BUCKETS (2 * 168 * 4 + 1)

typedef struct {
  /* Statistics of the finite values; the others are not counted. If count is 0, the other
   * fields are 0 too. */
  double min, max, count, sum, square_sum;
  size_t buckets;
  /* bucket[i] is the number of values below limit[i] and at least limit[i - 1]; the first
   * bucket begins at `min`. Neighbouring empty buckets are merged. */
  double limit[HISTOGRAM_BUCKETS], bucket[HISTOGRAM_BUCKETS];
} Histogram;

/* Computes the histogram of scale * x[i] for n values. */
void histogram_compute(Histogram *h, const float *x, size_t n, float scale);

#endif
