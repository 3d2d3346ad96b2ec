/* Random sampling of tokens. A draw is a pure function of the seed, the line number, the index of
 * the sample and the position, so it depends neither on the batch nor on the order of the lines.
 * Depends on base/rng. */
#ifndef DECODE_SAMPLE_H
#define DECODE_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  float temperature; /* divisor of the logits */
  int top_k;         /* samples from the top_k most likely tokens; 0: from all tokens */
  uint64_t seed;
} SampleSpec;

/* Returns a random number, uniformly distributed in (0, 1). */
double sample_uniform(const SampleSpec *spec, uint64_t line, uint32_t which, uint32_t position);
/* Draws an index of `value` (n logits) with probabilities proportional to exp(value /
 * temperature); u: uniform in (0, 1); `largest`: the maximum of the logits. Never returns an
 * index whose logit is -INFINITY. */
size_t sample_draw(const SampleSpec *spec, double u, const float *value, size_t n,
                   float largest);

#endif
