/* PCG XSL-RR 128/64 (O'Neill 2014), seeded through NumPy's SeedSequence; indices by Lemire's
 * multiplication. No dependencies. */
#include "metric/pcg64.h"

__extension__ typedef unsigned __int128 Wide;

/* Size of NumPy's SeedSequence pool in words; each word is mixed into every other one. */
#define POOL 4

static uint32_t hash_word(uint32_t value, uint32_t *constant, uint32_t multiplier) {
  value ^= *constant;
  *constant *= multiplier;
  value *= *constant;
  return value ^ value >> 16;
}

static uint32_t mix_words(uint32_t x, uint32_t y) {
  uint32_t value = 0xca01f9ddu * x - 0x4973f715u * y;
  return value ^ value >> 16;
}

static void spread_seed(uint64_t seed, uint64_t out[4]) {
  uint32_t pool[POOL] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  uint32_t constant = 0x43b0d7e5u;
  for (int i = 0; i < POOL; i++) pool[i] = hash_word(pool[i], &constant, 0x931e8875u);
  for (int from = 0; from < POOL; from++) {
    for (int to = 0; to < POOL; to++) {
      if (from != to)
        pool[to] = mix_words(pool[to], hash_word(pool[from], &constant, 0x931e8875u));
    }
  }
  constant = 0x8b51f9ddu;
  for (int i = 0; i < 4; i++) {
    uint64_t low = hash_word(pool[2 * i % POOL], &constant, 0x58f38dedu);
    uint64_t high = hash_word(pool[(2 * i + 1) % POOL], &constant, 0x58f38dedu);
    out[i] = high << 32 | low;
  }
}

static void advance_state(Pcg64 *rng) {
  const Wide multiplier = (Wide)0x2360ed051fc65da4u << 64 | 0x4385df649fccf645u;
  rng->state = rng->state * multiplier + rng->increment;
}

void pcg64_seed(Pcg64 *rng, uint64_t seed) {
  uint64_t word[4];
  spread_seed(seed, word);
  Wide stream = (Wide)word[2] << 64 | word[3];
  *rng = (Pcg64){.increment = stream << 1 | 1};
  advance_state(rng);
  rng->state += (Wide)word[0] << 64 | word[1];
  advance_state(rng);
}

uint64_t pcg64_next(Pcg64 *rng) {
  advance_state(rng);
  uint64_t value = (uint64_t)(rng->state >> 64) ^ (uint64_t)rng->state;
  unsigned turn = (unsigned)(rng->state >> 122);
  return value >> turn | value << (-turn & 63);
}

uint32_t pcg64_next32(Pcg64 *rng) {
  if (rng->has_kept) {
    rng->has_kept = false;
    return rng->kept;
  }
  uint64_t value = pcg64_next(rng);
  rng->kept = (uint32_t)(value >> 32);
  rng->has_kept = true;
  return (uint32_t)value;
}

uint32_t pcg64_below(Pcg64 *rng, uint32_t n) {
  /* Like NumPy, draws no random number if there is only one possible result. */
  if (n == 1) return 0;
  uint64_t product = (uint64_t)pcg64_next32(rng) * n;
  if ((uint32_t)product < n) {
    uint32_t threshold = (UINT32_MAX - (n - 1)) % n;
    while ((uint32_t)product < threshold) product = (uint64_t)pcg64_next32(rng) * n;
  }
  return (uint32_t)(product >> 32);
}
