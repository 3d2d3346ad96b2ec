/* Counter-based random numbers: every value is a pure function of a key and a counter, so results
 * do not depend on the order of calls or on the number of threads. No dependencies. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Philox-4x32-10: four words for one 128-bit counter under a 64-bit key (Salmon et al., "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011). */
void rng_philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo, uint32_t out[4]);
/* Philox-2x32: two words for one 64-bit counter under a 32-bit key. */
void rng_philox_2x32(int rounds, uint32_t key, const uint32_t counter[2], uint32_t out[2]);

/* Hashes a key and a value to 64 bits (splitmix64 finalizer, twice). */
uint64_t rng_mix(uint64_t key, uint64_t value);

/* Returns element `i` of the permutation of 0 … n-1 that `key` selects. O(1) on average. */
uint64_t rng_permute(uint64_t key, uint64_t n, uint64_t i);

/* Computes a 64-bit hash of bytes, for hash tables and sampling; not for security. */
uint64_t rng_hash(const void *bytes, size_t len, uint64_t seed);

/* A sequential generator, for callers that draw numbers in a fixed order. */
typedef struct {
  uint64_t key, counter;
} Rng;
uint64_t rng_next(Rng *rng);
/* Returns a uniformly distributed integer from 0 to n-1, without bias; n > 0. */
uint64_t rng_below(Rng *rng, uint64_t n);

#endif
