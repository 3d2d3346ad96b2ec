/* Histograms of arrays of floats. No dependencies. */
#include "train/histogram.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A value's magnitude bucket is the exponent and the two highest mantissa bits of the float,
 * which are adjacent: the bits above BUCKET_SHIFT. */
#define BUCKET_SHIFT 21
#define MAGNITUDES   ((size_t)255 << 2) /* exponent 255 is infinity and NaN */
#define ZERO_MAGNITUDE \
  ((size_t)(127 - 40) << 2) /* 2^-40; below it lies the bucket around zero */

/* Returns the smallest float of a magnitude bucket; of MAGNITUDES it is infinity. */
static double get_lower_edge(size_t magnitude) {
  uint32_t bits = (uint32_t)magnitude << BUCKET_SHIFT;
  float value;
  memcpy(&value, &bits, sizeof value);
  return (double)value;
}

/* Counts the finite values by sign and magnitude, and sums them. */
static void count_values(Histogram *h, uint64_t count[2][MAGNITUDES], const float *x, size_t n,
                         float scale) {
  float min = 0, max = 0;
  uint64_t finite = 0;
  for (size_t i = 0; i < n; i++) {
    float value = x[i] * scale;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    size_t magnitude = (bits & 0x7fffffff) >> BUCKET_SHIFT;
    if (magnitude >= MAGNITUDES) continue;
    count[bits >> 31][magnitude]++;
    if (finite == 0 || value < min) min = value;
    if (finite == 0 || value > max) max = value;
    finite++;
    h->sum += (double)value;
    h->square_sum += (double)value * (double)value;
  }
  h->min = (double)min;
  h->max = (double)max;
  h->count = (double)finite;
}

typedef struct {
  Histogram *h;
  double empty_limit; /* upper limit of the empty buckets since the last one that was added */
  bool has_empty;
} Builder;

/* Adds the next bucket. Consecutive empty buckets are added as one, before the next bucket that
 * is not empty; empty buckets at either end are left out. */
static void add_bucket(Builder *b, double limit, uint64_t count) {
  Histogram *h = b->h;
  if (!count) {
    b->has_empty = h->buckets > 0;
    b->empty_limit = limit;
    return;
  }
  if (b->has_empty) {
    h->limit[h->buckets] = b->empty_limit;
    h->bucket[h->buckets++] = 0;
    b->has_empty = false;
  }
  h->limit[h->buckets] = limit;
  h->bucket[h->buckets++] = (double)count;
}

void histogram_compute(Histogram *h, const float *x, size_t n, float scale) {
  uint64_t count[2][MAGNITUDES] = {{0}};
  uint64_t zero = 0;
  *h = (Histogram){0};
  count_values(h, count, x, n, scale);
  Builder b = {.h = h};
  for (size_t i = MAGNITUDES; i-- > ZERO_MAGNITUDE;)
    add_bucket(&b, -get_lower_edge(i), count[1][i]);
  for (size_t i = 0; i < ZERO_MAGNITUDE; i++) zero += count[0][i] + count[1][i];
  add_bucket(&b, get_lower_edge(ZERO_MAGNITUDE), zero);
  for (size_t i = ZERO_MAGNITUDE; i < MAGNITUDES; i++)
    add_bucket(&b, get_lower_edge(i + 1), count[0][i]);
  /* The upper edge of the last bucket may be infinity. */
  if (h->buckets && h->limit[h->buckets - 1] > h->max) h->limit[h->buckets - 1] = h->max;
}
