/* Detects divergence: a loss that is NaN or infinite, or far above its recent range for HEALTH_STEPS
 * steps in a row. Depends on nothing. */
#ifndef TRAIN_HEALTH_H
#define TRAIN_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#define HEALTH_WARM  20 /* steps before the range is estimated; until then it is wide */
#define HEALTH_STEPS 10 /* out of range in a row: diverged */

typedef struct {
  double mean, spread; /* running means of the loss and of its distance from the mean */
  uint64_t seen;
  int out; /* steps out of range in a row */
} Health;

/* Adds the loss of a step; false when the run has diverged. */
bool health_take(Health *h, double loss);
/* Was the last loss in range, so that a checkpoint is worth keeping? */
bool health_good(const Health *h);

#endif
