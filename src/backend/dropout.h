/* Counter-based dropout masks (see Dropout in backend.h): the same bits on every machine and for
 * every distribution of the work over threads. Depends on base/rng. */
#ifndef BACKEND_DROPOUT_H
#define BACKEND_DROPOUT_H

#include "backend/backend.h"
#include "base/rng.h"

/* Marks what CUDA kernels call too. */
#ifdef __CUDACC__
#define DROPOUT_DEVICE __host__ __device__
#else
#define DROPOUT_DEVICE
#endif

/* Rounds of Philox, for every backend. With four, masks of keys or sites that differ in one bit are
 * correlated; with five, tests/unit/test_dropout.c finds nothing. Two more are a margin of
 * safety. */
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

/* Returns the second word of Philox's counter for a group of eight elements with this upper half.
 * The first word is the lower half of the group, the key of Philox is the lower half of `key`.
 * Keys must be hashes; sites are below 2^16, groups below 2^48. */
static inline DROPOUT_DEVICE uint32_t dropout_counter(uint64_t key, uint32_t site,
                                                      uint32_t group_high) {
  return (uint32_t)(key >> 32) ^ site ^ group_high << 16;
}

/* Sets the four words that decide the eight elements of a group: half e % 2 (0: low) of word e / 2
 * contains the 16 bits of element e. Words 0 and 2 are random. Words 1 and 3 are the same words
 * rotated left by eight bits, which halves the work for random numbers. The bits of an element are
 * two different bytes of a random word, so it is dropped with the exact rate, a multiple of
 * 1 / 65536. No two elements have the same upper byte. The lower byte of an element is the upper
 * byte of another one, and matters only if the upper byte equals that of the threshold: the
 * correlation of two elements is below 1 / 256. */
static inline void dropout_words(uint64_t key, uint32_t site, uint64_t group,
                                 uint32_t word[4]) {
  const uint32_t counter[2] = {(uint32_t)group,
                               dropout_counter(key, site, (uint32_t)(group >> 32))};
  uint32_t random[2];
  rng_philox_2x32(DROPOUT_ROUNDS, (uint32_t)key, counter, random);
  for (int i = 0; i < 2; i++) {
    word[2 * i] = random[i];
    word[2 * i + 1] = random[i] << 8 | random[i] >> 24;
  }
}

/* Returns the factor of one element: 0 or dropout_scale(). */
static inline float dropout_factor(Dropout drop, uint64_t element) {
  if (drop.rate == 0) return 1;
  uint32_t word[4];
  dropout_words(*drop.key, drop.site, element / 8, word);
  uint32_t bits = word[element % 8 / 2] >> (element % 2 * 16) & 0xffff;
  return bits < dropout_threshold(drop.rate) ? 0 : dropout_scale(drop.rate);
}

#endif
