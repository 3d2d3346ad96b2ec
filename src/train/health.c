/* Running mean of the loss and of its absolute deviation. Depends on nothing. */
#include "train/health.h"

#include <math.h>

#define RATE 0.05 /* of the running means: about the last twenty steps */

bool health_good(const Health *h) {
  return h->out == 0;
}

bool health_take(Health *h, double loss) {
  if (!isfinite(loss)) {
    h->out = HEALTH_STEPS;
    return false;
  }
  double width = 8 * h->spread > 0.2 * h->mean ? 8 * h->spread : 0.2 * h->mean;
  if (h->seen < HEALTH_WARM) width = 2 * h->mean; /* far above what early training shows */
  if (h->seen > 0 && loss > h->mean + width) return ++h->out < HEALTH_STEPS;
  h->out = 0;
  double rate = h->seen == 0 ? 1 : RATE;
  h->spread += h->seen == 0 ? 0 : RATE * (fabs(loss - h->mean) - h->spread);
  h->mean += rate * (loss - h->mean);
  h->seen++;
  return true;
}
