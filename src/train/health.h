/* Is the loss where it should be? A run diverges when its loss is not a number, or
 * far above its recent range for several steps on end. Relies on nothing. */
#ifndef TRAIN_HEALTH_H
#define TRAIN_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#define HEALTH_WARM  20 /* steps before the range is known; till then it is wide */
#define HEALTH_STEPS 10 /* out of range on end: diverged */

typedef struct {
  double mean, spread; /* running means of the loss and of its distance from the mean */
  uint64_t seen;
  int out; /* steps out of range, on end */
} Health;

/* Takes a step's loss; false when the run has diverged. */
bool health_take(Health *h, double loss);
/* Is it in range now, so that what it has learnt is worth keeping? */
bool health_good(const Health *h);

#endif
