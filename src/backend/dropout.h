/* Counter-based dropout masks (see Dropout in backend.h): the same bits on every machine and for
 * every distribution of the work over threads. Depends on base/rng. */
#ifndef BACKEND_DROPOUT_H
#define BACKEND_DROPOUT_H

#include "backend/backend.h"
#include "base/rng.h"

/* Rounds of Philox, for every backend. Seven are the fewest that pass all of BigCrush; three more,
 * as a margin of safety, would cost 1 % of a training step on a GPU. */
#define DROPOUT_ROUNDS 7

/* Returns the threshold: an element is dropped if its 16 random bits are below it. */
static inline uint32_t dropout_threshold(float rate) {
  return (uint32_t)(rate * 65536.0f + 0.5f);
}

/* Returns the factor of the elements that are kept: 1 / (1 - threshold / 65536). It is based on
 * the rounded rate, so that the expected value is exact. */
static inline float dropout_scale(float rate) {
  return 65536.0f / (65536.0f - (float)dropout_threshold(rate));
}

/* Returns the factor of one element: 0 or dropout_scale(). Eight elements share a Philox call of
 * four 32-bit words: element e uses half (e % 8) & 1 of word (e % 8) >> 1. */
static inline float dropout_factor(Dropout drop, uint64_t element) {
  if (drop.rate == 0) return 1;
  uint32_t word[4];
  rng_philox_rounds(DROPOUT_ROUNDS, *drop.key, drop.site, element / 8, word);
  uint32_t bits = word[element % 8 / 2] >> (element % 2 * 16) & 0xffff;
  return bits < dropout_threshold(drop.rate) ? 0 : dropout_scale(drop.rate);
}

#endif
