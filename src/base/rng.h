/* Counter-based random numbers: every value is a pure function of a key and a counter, so results
 * do not depend on the order of calls or on the number of threads. No dependencies. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Philox-4x32-10: four words for one 128-bit counter under a 64-bit key. */
void rng_philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo, uint32_t out[4]);

/* Hashes a key and a value to 64 bits (splitmix64 finalizer, twice). */
uint64_t rng_mix(uint64_t key, uint64_t value);

/* Element `i` of the permutation of 0 … n-1 selected by `key`. O(1) on average. */
uint64_t rng_permute(uint64_t key, uint64_t n, uint64_t i);

/* 64-bit hash of bytes, for tables and samples; not for security. */
uint64_t rng_hash(const void *bytes, size_t len, uint64_t seed);

/* A sequential generator, for callers that draw in a fixed order. */
typedef struct {
  uint64_t key, counter;
} Rng;
uint64_t rng_next(Rng *rng);
/* Uniform in 0 … n-1, n > 0, without bias. */
uint64_t rng_below(Rng *rng, uint64_t n);

#endif
