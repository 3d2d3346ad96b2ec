/* Histograms of floats: counts, sums and limits of buckets. */
#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "support.h"
#include "train/histogram.h"

#define VALUES 5000

static Histogram h;

/* Every bucket must hold as many of the values as lie between its limits. */
static void assert_buckets(const float *x, size_t n, float scale) {
  double total = 0;
  for (size_t b = 0; b < h.buckets; b++) {
    double low = b ? h.limit[b - 1] : h.min, high = h.limit[b], count = 0;
    bool is_last = b == h.buckets - 1;
    assert_true(b == 0 || low < high);
    for (size_t i = 0; i < n; i++) {
      double value = (double)(x[i] * scale);
      count += value >= low && (value < high || (is_last && value <= high));
    }
    assert_true(fabs(count - h.bucket[b]) < 0.5);
    total += count;
  }
  assert_true(fabs(total - h.count) < 0.5);
}

static void test_histogram_of_random_values_counts_each_bucket(void **state) {
  (void)state;
  static float x[VALUES];
  Rng rng = {.key = 1};
  double sum = 0, squares = 0;
  for (size_t i = 0; i < VALUES; i++) {
    double size = ldexp(1, (int)rng_below(&rng, 60) - 50);
    /* Odd mantissas, so that no value equals a limit of a bucket: histogram_compute would
     * count a negative one in the bucket below. */
    double unit = (double)(rng_below(&rng, 1 << 20) * 2 + 1) / (1 << 21);
    x[i] = (float)((rng_below(&rng, 2) ? size : -size) * unit);
    sum += 0.5 * (double)x[i];
    squares += 0.25 * (double)x[i] * (double)x[i];
  }
  histogram_compute(&h, x, VALUES, 0.5f);
  assert_buckets(x, VALUES, 0.5f);
  assert_true(fabs(h.sum - sum) <= 1e-12 * fabs(sum));
  assert_true(fabs(h.square_sum - squares) <= 1e-12 * squares);
}

static void test_histogram_buckets_are_a_quarter_of_an_octave(void **state) {
  (void)state;
  const float x[] = {1.0f, 1.24f, 1.26f, 1.51f, 1.9f};
  const double limit[] = {1.25, 1.5, 1.75, 1.9f}, bucket[] = {2, 1, 1, 1};
  histogram_compute(&h, x, 5, 1);
  assert_int_equal(h.buckets, 4);
  assert_memory_equal(h.limit, limit, sizeof limit);
  assert_memory_equal(h.bucket, bucket, sizeof bucket);
}

static void test_histogram_empty_buckets_between_values_are_one(void **state) {
  (void)state;
  const float x[] = {-8.5f, 0, 1e-20f, 100};
  const double bucket[] = {1, 0, 2, 0, 1};
  histogram_compute(&h, x, 4, 1);
  assert_int_equal(h.buckets, 5);
  assert_memory_equal(h.bucket, bucket, sizeof bucket);
  assert_true(h.min < -8.4 && h.min > -8.6 && h.limit[0] >= -8.001 && h.limit[0] <= -7.999);
  assert_true(h.limit[2] > 0 && h.limit[2] < 1e-12);
}

static void test_histogram_leaves_out_values_that_are_not_finite(void **state) {
  (void)state;
  const float x[] = {NAN, INFINITY, -INFINITY, 3, FLT_MAX};
  histogram_compute(&h, x, 5, 1);
  assert_true(h.count > 1.5 && h.count < 2.5);
  assert_true(isfinite(h.sum) && isfinite(h.limit[h.buckets - 1]));
  assert_buckets(x, 5, 1);
}

static void test_histogram_without_finite_values_is_empty(void **state) {
  (void)state;
  const float x[] = {NAN, INFINITY};
  const Histogram empty = {0};
  histogram_compute(&h, x, 2, 1);
  assert_memory_equal(&h, &empty, sizeof h);
  histogram_compute(&h, x, 0, 1);
  assert_memory_equal(&h, &empty, sizeof h);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_histogram_of_random_values_counts_each_bucket),
      cmocka_unit_test(test_histogram_buckets_are_a_quarter_of_an_octave),
      cmocka_unit_test(test_histogram_empty_buckets_between_values_are_one),
      cmocka_unit_test(test_histogram_leaves_out_values_that_are_not_finite),
      cmocka_unit_test(test_histogram_without_finite_values_is_empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
