/* Random numbers: Philox compared with published values, permutations that are bijective and
 * uniform, draws without bias. Depends on base, cmocka. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/rng.h"
#include "support.h"

static void test_rng_philox_matches_published_words(void **state) {
  (void)state;
  /* philox4x32 with 10 rounds, from kat_vectors of Random123; words from low to high. */
  static const struct {
    uint64_t key, high, low;
    uint32_t words[4];
  } cases[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x299f31d0a4093822,
       0x0370734413198a2e,
       0x85a308d3243f6a88,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint32_t out[4];
    rng_philox(cases[i].key, cases[i].high, cases[i].low, out);
    assert_memory_equal(out, cases[i].words, sizeof out);
  }
}

static void test_rng_philox_2x32_matches_published_words(void **state) {
  (void)state;
  /* philox2x32 with 7 and 10 rounds, from kat_vectors of Random123 */
  static const struct {
    uint32_t key, counter[2], seven[2], ten[2];
  } cases[] = {
      {0, {0, 0}, {0x257a3673, 0xcd26be2a}, {0xff1dae59, 0x6cd10df2}},
      {UINT32_MAX,
       {UINT32_MAX, UINT32_MAX},
       {0xab302c4d, 0x3dc9d239},
       {0x2c3f628b, 0xab4fd7ad}},
      {0x13198a2e,
       {0x243f6a88, 0x85a308d3},
       {0xbedbbe6b, 0xe4c770b3},
       {0xdd7ce038, 0xf62a4c12}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint32_t out[2];
    rng_philox_2x32(7, cases[i].key, cases[i].counter, out);
    assert_memory_equal(out, cases[i].seven, sizeof out);
    rng_philox_2x32(10, cases[i].key, cases[i].counter, out);
    assert_memory_equal(out, cases[i].ten, sizeof out);
  }
}

static void check_permutation(uint64_t key, uint64_t n) {
  uint8_t *seen;
  OK(mem_alloc(&seen, (size_t)n, 1));
  for (uint64_t i = 0; i < n; i++) {
    uint64_t to = rng_permute(key, n, i);
    if (to >= n || seen[to])
      fail_msg("key %llx, n %llu, i %llu", (unsigned long long)key, (unsigned long long)n,
               (unsigned long long)i);
    seen[to] = 1;
  }
  mem_free(seen);
}

static void test_rng_permute_is_a_bijection(void **state) {
  (void)state;
  static const uint64_t keys[] = {0, 1, 2, 0xdeadbeef, UINT64_MAX, 0x123456789abcdef};
  static const uint64_t large[] = {1000, 1023, 1024, 1025, 4095, 4097, 65536, 65537, 100003};
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
    for (uint64_t n = 1; n <= 300; n++) check_permutation(keys[k], n);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
      check_permutation(keys[k], large[i]);
  }
  for (uint64_t i = 0; i < 1000; i++) {
    assert_true(rng_permute(i, ((uint64_t)1 << 63) + 5, i) < ((uint64_t)1 << 63) + 5);
    assert_true(rng_permute(i, UINT64_MAX, i) < UINT64_MAX);
  }
  assert_int_equal(rng_permute(5, 1, 0), 0);
}

/* Returns true if the chi-square of `cells` equally likely cells is below a bound that is
 * exceeded once in a million: its mean is cells - 1, its variance twice that. */
static bool is_even(const uint64_t *count, size_t cells, uint64_t draws) {
  double sum = 0, expected = (double)draws / (double)cells, mean = (double)cells - 1;
  for (size_t i = 0; i < cells; i++)
    sum += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
  return sum < mean + 5 * sqrt(2 * mean) + 20;
}

/* Checks to which positions the first positions are mapped, alone and in pairs. */
static void check_places(uint64_t n) {
  enum { DRAWS = 100000 };
  uint64_t place[3][64] = {{0}}, pair[64 * 63] = {0};
  for (uint64_t k = 0; k < DRAWS; k++) {
    uint64_t to[3], key = rng_mix(7, k);
    for (uint64_t i = 0; i < 3 && i < n; i++) place[i][to[i] = rng_permute(key, n, i)]++;
    if (n > 2) pair[to[0] * (n - 1) + to[1] - (to[1] > to[0])]++;
  }
  for (int i = 0; i < 2; i++) assert_true(is_even(place[i], (size_t)n, DRAWS));
  if (n > 2) assert_true(is_even(place[2], (size_t)n, DRAWS));
  if (n > 2) assert_true(is_even(pair, (size_t)(n * (n - 1)), DRAWS));
}

static void test_rng_below_is_uniform(void **state) {
  (void)state;
  enum { DRAWS = 200000 };
  uint64_t below[10] = {0};
  Rng rng = {.key = 42};
  for (uint64_t i = 0; i < DRAWS; i++) below[rng_below(&rng, 10)]++;
  assert_true(is_even(below, 10, DRAWS));
  static const uint64_t sizes[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 25, 40, 64};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check_places(sizes[i]);
}

static void test_rng_below_stays_below_the_bound(void **state) {
  (void)state;
  Rng rng = {.key = 1}, same = {.key = 1};
  /* limit: 3/4 of the range of uint64_t */
  uint64_t upper = 0, limit = ((uint64_t)1 << 63) + ((uint64_t)1 << 62);
  for (int i = 0; i < 30000; i++) {
    assert_int_equal(rng_below(&rng, 1), 0);
    uint64_t x = rng_below(&rng, limit);
    assert_true(x < limit);
    upper += x >= limit / 3; /* 2/3 are expected; x % n without rejection would give 1/2 */
    assert_true(rng_below(&rng, UINT64_MAX) < UINT64_MAX);
  }
  assert_true(upper > 19500 && upper < 20500);
  for (int i = 0; i < 100; i++) rng_next(&same);
  Rng jumped = {.key = 1, .counter = 100};
  /* The generator must have no state besides key and counter. */
  assert_int_equal(rng_next(&same), rng_next(&jumped));
}

static void test_rng_hash_depends_on_every_byte(void **state) {
  (void)state;
  uint8_t bytes[40] = {0};
  uint64_t seen[41 + 40 * 8];
  size_t n = 0;
  for (size_t len = 0; len <= 40; len++) seen[n++] = rng_hash(bytes, len, 0);
  for (size_t bit = 0; bit < 40 * 8; bit++) {
    bytes[bit / 8] = (uint8_t)(1u << (bit % 8));
    seen[n++] = rng_hash(bytes, 40, 0);
    bytes[bit / 8] = 0;
  }
  for (size_t i = 0; i < n; i++) {
    for (size_t j = 0; j < i; j++) assert_true(seen[i] != seen[j]);
  }
  assert_true(rng_hash(bytes, 40, 0) != rng_hash(bytes, 40, 1));
  assert_true(rng_mix(1, 2) != rng_mix(2, 1));
}

/* Flips one to six random bits of the value: each of the 64 output bits must change in about half
 * of the trials. */
static void test_mix_multi_bit_flips_change_half_the_bits(void **state) {
  (void)state;
  enum { TRIALS = 4000 };
  Rng rng = {.key = 11};
  for (int flips = 1; flips <= 6; flips++) {
    uint32_t turned[64] = {0};
    for (int t = 0; t < TRIALS; t++) {
      uint64_t key = rng_next(&rng), value = rng_next(&rng), mask = 0;
      while (__builtin_popcountll(mask) < flips) mask |= (uint64_t)1 << rng_below(&rng, 64);
      uint64_t change = rng_mix(key, value) ^ rng_mix(key, value ^ mask);
      for (int bit = 0; bit < 64; bit++) turned[bit] += (uint32_t)(change >> bit & 1);
    }
    /* 6 standard deviations of TRIALS fair coins are 190. */
    for (int bit = 0; bit < 64; bit++) assert_between(turned[bit], 1810, 2190);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rng_philox_matches_published_words),
      cmocka_unit_test(test_rng_philox_2x32_matches_published_words),
      cmocka_unit_test(test_rng_permute_is_a_bijection),
      cmocka_unit_test(test_rng_below_is_uniform),
      cmocka_unit_test(test_rng_below_stays_below_the_bound),
      cmocka_unit_test(test_rng_hash_depends_on_every_byte),
      cmocka_unit_test(test_mix_multi_bit_flips_change_half_the_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
