/* Least squares, Student's t, robust noise. Depends on base/mem. */
#include "monitor/trend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* 97.5 % quantile of Student's t for 1, 2, … degrees of freedom (any table of t). */
static double get_limit(size_t degrees) {
  static const double limits[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                  2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131};
  size_t known = sizeof limits / sizeof *limits;
  if (degrees == 0) return INFINITY;
  if (degrees <= known) return limits[degrees - 1];
  /* Cornish-Fisher expansion around the normal quantile 1.96; exact to 0.002 from here on. */
  return 1.96 + 2.37 / (double)degrees + 2.8 / (double)(degrees * degrees);
}

Trend trend_fit(const double *x, const double *y, size_t points) {
  Trend t = {.points = points};
  if (points < 3) return t;
  double n = (double)points, mean_x = 0, mean_y = 0, xx = 0, xy = 0, rest = 0;
  for (size_t i = 0; i < points; i++) {
    mean_x += x[i] / n;
    mean_y += y[i] / n;
  }
  for (size_t i = 0; i < points; i++) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  t.slope = xx > 0 ? xy / xx : 0;
  for (size_t i = 0; i < points; i++) {
    double e = y[i] - mean_y - t.slope * (x[i] - mean_x);
    rest += e * e;
  }
  t.noise = sqrt(rest / (n - 2));
  t.error = xx > 0 ? t.noise / sqrt(xx) : INFINITY;
  t.limit = get_limit(points - 2);
  return t;
}

bool trend_is_significant(const Trend *t) {
  return t->points >= 3 && fabs(t->slope) > t->limit * t->error;
}

static int compare(const void *a, const void *b) {
  double left, right;
  memcpy(&left, a, sizeof left);
  memcpy(&right, b, sizeof right);
  return (left > right) - (left < right);
}

double trend_quantile(const double *values, size_t count, double share) {
  double *sorted;
  if (count == 0 || mem_alloc(&sorted, count, sizeof *sorted)) return NAN;
  memcpy(sorted, values, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, compare);
  double at = share * (double)(count - 1);
  size_t below = (size_t)at;
  size_t above = below + 1 < count ? below + 1 : below;
  double value = sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
  mem_free(sorted);
  return value;
}

double trend_noise(const double *y, size_t points) {
  double *bends;
  if (points < 4 || mem_alloc(&bends, points - 2, sizeof *bends)) return NAN;
  for (size_t i = 0; i + 2 < points; i++) bends[i] = fabs(y[i] - 2 * y[i + 1] + y[i + 2]);
  double median = trend_quantile(bends, points - 2, 0.5);
  mem_free(bends);
  /* A second difference of independent noise has sqrt(1 + 4 + 1) times its deviation; 1.4826 turns a
   * median of absolute values into a standard deviation (normal distribution). */
  return 1.4826 * median / sqrt(6);
}
