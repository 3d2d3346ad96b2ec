/* Counter-based random numbers. Depends on the C library. */
#include "base/rng.h"

#include <string.h>

void rng_philox(uint64_t key, uint64_t counter_hi, uint64_t counter_lo, uint32_t out[4]) {
  uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
  uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

void rng_philox_2x32(int rounds, uint32_t key, const uint32_t counter[2], uint32_t out[2]) {
  uint32_t c0 = counter[0], c1 = counter[1];
  for (int round = 0; round < rounds; round++) {
    uint64_t p = (uint64_t)0xD256D193u * c0;
    c0 = (uint32_t)(p >> 32) ^ key ^ c1;
    c1 = (uint32_t)p;
    key += 0x9E3779B9u;
  }
  out[0] = c0;
  out[1] = c1;
}

static uint64_t finalize_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t rng_mix(uint64_t key, uint64_t value) {
  return finalize_bits(finalize_bits(key + 0x9e3779b97f4a7c15u) ^
                       finalize_bits(value + 0x632be59bd9b4e019u));
}

/* A Feistel network on 2h bits, the smallest even number of bits that can hold n - 1. A result
 * of n or more is permuted again until it is below n (cycle walking), on average at most 4 times.
 * Halves of fewer than 4 bits mix slowly: with four Feistel rounds some permutations would be more
 * likely than others, so they get twelve. */
uint64_t rng_permute(uint64_t key, uint64_t n, uint64_t i) {
  if (n < 2) return 0;
  unsigned half = (unsigned)(64 - __builtin_clzll(n - 1) + 1) / 2;
  uint64_t mask = ((uint64_t)1 << half) - 1, rounds = half < 4 ? 12 : 4;
  do {
    uint64_t left = i >> half, right = i & mask;
    for (uint64_t round = 0; round < rounds; round++) {
      uint64_t mixed = (right + key) * 0x9e3779b97f4a7c15u + round * 0xd1342543de82ef95u;
      mixed = (mixed ^ (mixed >> 32)) * 0xbf58476d1ce4e5b9u;
      mixed = (mixed ^ (mixed >> 29)) + (key >> 32);
      uint64_t next = left ^ ((mixed ^ (mixed >> 31)) & mask);
      left = right;
      right = next;
    }
    i = left << half | right;
  } while (i >= n);
  return i;
}

uint64_t rng_hash(const void *bytes, size_t len, uint64_t seed) {
  const uint8_t *p = bytes;
  uint64_t h = seed ^ (len * 0x9e3779b97f4a7c15u), word;
  for (; len >= 8; p += 8, len -= 8) {
    memcpy(&word, p, 8);
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  if (len) {
    word = 0;
    memcpy(&word, p, len);
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  return finalize_bits(h);
}

uint64_t rng_next(Rng *rng) {
  return rng_mix(rng->key, rng->counter++);
}

uint64_t rng_below(Rng *rng, uint64_t n) {
  /* The largest multiple of n that fits. Larger values are drawn again, because x % n would be
   * biased. */
  uint64_t limit = UINT64_MAX - UINT64_MAX % n;
  uint64_t x;
  do x = rng_next(rng);
  while (x >= limit);
  return x % n;
}
