/* Statistics of measured curves: a straight line through the last points against their noise.
 * Depends on nothing. */
#ifndef MONITOR_TREND_H
#define MONITOR_TREND_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
  size_t points; /* fewer than 3: nothing else is valid */
  double slope;  /* of y per x, by least squares */
  double noise;  /* standard deviation of the points around the line */
  double error;  /* standard error of the slope */
  double limit;  /* how many standard errors are significant: 97.5 % of Student's t */
} Trend;

Trend trend_fit(const double *x, const double *y, size_t points);
/* Returns true if the slope differs from 0 by more than its noise explains (two-sided, 5 %). */
bool trend_is_significant(const Trend *t);
/* Returns the noise of a curve without its slow changes: the standard deviation estimated from the
 * median of its second differences. NAN for fewer than 4 points. */
double trend_noise(const double *y, size_t points);
/* Returns the value below which a share (0 to 1) of the values lies; NAN if there are none. Sorts
 * a copy. */
double trend_quantile(const double *values, size_t count, double share);

#endif
