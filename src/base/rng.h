/* Random numbers as arithmetic: every value is a pure function of a key and a
 * counter, so nothing depends on who asks first. Relies on nothing. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Philox-4x32-10: four words for one 128-bit counter under a 64-bit key. */
void rng_philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo, uint32_t out[4]);

/* A good 64-bit mixture of a key and a value (splitmix64 finaliser, twice). */
uint64_t rng_mix(uint64_t key, uint64_t value);

/* Position of `i` under the permutation of 0 … n-1 that `key` chooses. O(1). */
uint64_t rng_permute(uint64_t key, uint64_t n, uint64_t i);

/* 64-bit hash of bytes, for tables and samples; not for security. */
uint64_t rng_hash(const void *bytes, size_t len, uint64_t seed);

/* A small sequential generator for places where order is natural. */
typedef struct {
  uint64_t key, counter;
} Rng;
uint64_t rng_next(Rng *rng);
/* Uniform in 0 … n-1, n > 0, without bias. */
uint64_t rng_below(Rng *rng, uint64_t n);

#endif
