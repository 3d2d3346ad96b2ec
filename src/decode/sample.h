/* Drawing words at random. What is drawn is arithmetic: a pure function of the
 * seed, the line, which of its samples it is, and the position; so it depends
 * neither on the batch nor on the order of the lines. Relies on base/rng. */
#ifndef DECODE_SAMPLE_H
#define DECODE_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  float temperature; /* logits are divided by it */
  int top_k;         /* only among so many likeliest words; 0: among all */
  uint64_t seed;
} SampleSpec;

/* Uniform in (0, 1). */
double sample_uniform(const SampleSpec *spec, uint64_t line, uint32_t which, uint32_t position);
/* Index of the value drawn with u from n logits, by exp(value / temperature);
 * `largest` of them, and none of those that are -INFINITY. */
size_t sample_draw(const SampleSpec *spec, double u, const float *value, size_t n,
                   float largest);

#endif
