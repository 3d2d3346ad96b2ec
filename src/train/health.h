/* Detects divergence: a loss that is NaN or infinite, or above its recent range for HEALTH_STEPS
 * steps in a row. Depends on nothing. */
#ifndef TRAIN_HEALTH_H
#define TRAIN_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

/* Number of steps before the range is estimated; until then it is wide. */
#define HEALTH_WARM  20
#define HEALTH_STEPS 10 /* number of steps in a row out of range that count as divergence */

typedef struct {
  double mean, spread; /* running means of the loss and of its absolute deviation */
  uint64_t seen;
  int out; /* number of steps in a row out of range */
} Health;

/* Adds the loss of a step; returns false if the run has diverged. */
bool health_take(Health *h, double loss);
/* Returns true if the last loss was in range, so that a checkpoint may be saved. */
bool health_good(const Health *h);

#endif
