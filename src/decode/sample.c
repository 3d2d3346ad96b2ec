/* Random sampling. Sums are computed in a fixed order, so equal logits give the same token.
 * Depends on base/rng. */
#include "decode/sample.h"

#include <math.h>

#include "base/rng.h"

double sample_uniform(const SampleSpec *spec, uint64_t line, uint32_t which,
                      uint32_t position) {
  uint32_t word[4];
  rng_philox(spec->seed, line, (uint64_t)which << 32 | position, word);
  return ((double)((uint64_t)word[0] << 21 | word[1] >> 11) + 0.5) * 0x1p-53;
}

size_t sample_draw(const SampleSpec *spec, double u, const float *value, size_t n,
                   float largest) {
  float sharp = 1 / spec->temperature;
  double total = 0, so_far = 0;
  for (size_t i = 0; i < n; i++) total += (double)expf((value[i] - largest) * sharp);
  size_t last = 0;
  for (size_t i = 0; i < n; i++) {
    double share = (double)expf((value[i] - largest) * sharp);
    if (!(share > 0)) continue;
    so_far += share;
    last = i;
    if (so_far > u * total) break;
  }
  return last;
}
