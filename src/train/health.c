/* Running mean of the loss and of its absolute deviation. Depends on nothing. */
#include "train/health.h"

#include <math.h>

/* Weight of a new loss in the running means, which thus cover about 20 steps. */
#define RATE 0.05

bool health_good(const Health *h) {
  return h->out == 0;
}

bool health_take(Health *h, double loss) {
  if (!isfinite(loss)) {
    h->out = HEALTH_STEPS;
    return false;
  }
  double width = 8 * h->spread > 0.2 * h->mean ? 8 * h->spread : 0.2 * h->mean;
  /* A wide range, because the loss changes quickly at first. */
  if (h->seen < HEALTH_WARM) width = 2 * h->mean;
  if (h->seen > 0 && loss > h->mean + width) return ++h->out < HEALTH_STEPS;
  h->out = 0;
  double rate = h->seen == 0 ? 1 : RATE;
  h->spread += h->seen == 0 ? 0 : RATE * (fabs(loss - h->mean) - h->spread);
  h->mean += rate * (loss - h->mean);
  h->seen++;
  return true;
}
