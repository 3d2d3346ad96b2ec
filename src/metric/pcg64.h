/* The random numbers of NumPy's default_rng(seed), so that bootstrap samples equal those of
 * sacreBLEU. No dependencies. */
#ifndef METRIC_PCG64_H
#define METRIC_PCG64_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  __extension__ unsigned __int128 state, increment;
  uint32_t kept; /* unused upper half of the last 64-bit number */
  bool has_kept;
} Pcg64;

void pcg64_seed(Pcg64 *rng, uint64_t seed);
uint64_t pcg64_next(Pcg64 *rng);
uint32_t pcg64_next32(Pcg64 *rng);
/* Returns an index below n like NumPy's Generator.choice(n); 0 < n <= 2^32 - 1. */
uint32_t pcg64_below(Pcg64 *rng, uint32_t n);

#endif
