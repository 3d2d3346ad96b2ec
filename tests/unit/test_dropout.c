/* Dropout masks: known words, how often elements are dropped, and that the masks of groups, sites
 * and keys do not depend on each other. The limits are 5 standard deviations of independent draws,
 * plus 1 / 256 for two elements of a group; the draws are always the same. Depends on
 * backend/dropout.h, cmocka. */
#include <math.h>

#include "backend/dropout.h"
#include "support.h"

#define GROUPS 100000

static const uint64_t drop_key = 0x123456789abcdef;

/* Returns a mask: bit e is set if element e of the group is dropped. */
static uint32_t mask_of(uint64_t key, uint32_t site, uint64_t group, uint32_t threshold) {
  uint32_t word[4], mask = 0;
  dropout_words(key, site, group, word);
  for (uint32_t e = 0; e < 8; e++)
    mask |= (uint32_t)((word[e / 2] >> e % 2 * 16 & 0xffff) < threshold) << e;
  return mask;
}

static void test_dropout_words_are_those_of_philox_and_rotated(void **state) {
  (void)state;
  /* The counter and the key of published words of philox2x32 with 7 rounds (test_rng.c). */
  uint64_t group = (uint64_t)5 << 32 | 0x243f6a88;
  uint64_t key = (uint64_t)(0x85a308d3 ^ 0x1234 ^ 5 << 16) << 32 | 0x13198a2e;
  static const uint32_t want[2][4] = {{0x257a3673, 0x7a367325, 0xcd26be2a, 0x26be2acd},
                                      {0xbedbbe6b, 0xdbbe6bbe, 0xe4c770b3, 0xc770b3e4}};
  uint32_t word[4];
  dropout_words(0, 0, 0, word);
  assert_memory_equal(word, want[0], sizeof word);
  dropout_words(key, 0x1234, group, word);
  assert_memory_equal(word, want[1], sizeof word);
}

static void test_dropout_factor_is_that_of_the_words(void **state) {
  (void)state;
  Dropout drop = {&drop_key, 7, 0.1f};
  uint64_t first = ((uint64_t)1 << 36) + 8000;
  /* So many elements that the bits of some equal the threshold. */
  for (uint64_t i = first; i < first + 8 * GROUPS; i++) {
    uint32_t mask = mask_of(drop_key, 7, i / 8, dropout_threshold(0.1f));
    assert_true(dropout_factor(drop, i) == (mask >> i % 8 & 1 ? 0 : dropout_scale(0.1f)));
  }
}

static void test_dropout_drops_each_element_at_the_rate(void **state) {
  (void)state;
  static const float rates[] = {0.001f, 0.004f, 0.1f, 0.3f, 0.5f, 0.9f};
  for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
    uint32_t threshold = dropout_threshold(rates[r]), dropped[8] = {0};
    double rate = threshold / 65536.0, sigma = sqrt(rate * (1 - rate) / GROUPS);
    for (uint64_t g = 0; g < GROUPS; g++) {
      uint32_t mask = mask_of(drop_key, 3, g, threshold);
      for (int e = 0; e < 8; e++) dropped[e] += mask >> e & 1;
    }
    for (int e = 0; e < 8; e++)
      if (fabs(dropped[e] / (double)GROUPS - rate) > 5 * sigma)
        fail_msg("rate %g, element %d: %u of %d dropped", rate, e, dropped[e], GROUPS);
  }
}

/* Returns the correlation of two events: n times both, first and second of `GROUPS` draws. */
static double correlation(uint32_t both, uint32_t first, uint32_t second) {
  double n = GROUPS, p = first / n, q = second / n;
  return (both / n - p * q) / sqrt(p * (1 - p) * q * (1 - q));
}

static void test_dropout_elements_of_a_group_are_nearly_independent(void **state) {
  (void)state;
  static const float rates[] = {0.1f, 0.3f, 0.5f};
  for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
    uint32_t threshold = dropout_threshold(rates[r]), both[8][8] = {0};
    double limit = 1 / 256.0 + 5 / sqrt(GROUPS);
    for (uint64_t g = 0; g < GROUPS; g++) {
      uint32_t mask = mask_of(drop_key, 3, g, threshold);
      for (int a = 0; a < 8; a++)
        for (int b = 0; b < 8; b++) both[a][b] += mask >> a & mask >> b & 1;
    }
    for (int a = 0; a < 8; a++)
      for (int b = 0; b < a; b++)
        if (fabs(correlation(both[a][b], both[a][a], both[b][b])) > limit)
          fail_msg("rate %g: elements %d and %d are both dropped %u times", (double)rates[r], a,
                   b, both[a][b]);
  }
}

/* Every element of a group is compared with every element of the group with another key, site or
 * number. */
static void check_independence(uint64_t key, uint32_t site, uint64_t step) {
  uint32_t threshold = dropout_threshold(0.3f), both[8][8] = {0}, here[8] = {0}, there[8] = {0};
  for (uint64_t g = 0; g < GROUPS; g++) {
    uint32_t x = mask_of(drop_key, 3, g, threshold);
    uint32_t y = mask_of(key, site, g + step, threshold);
    for (int a = 0; a < 8; a++) {
      here[a] += x >> a & 1;
      there[a] += y >> a & 1;
      for (int b = 0; b < 8; b++) both[a][b] += x >> a & y >> b & 1;
    }
  }
  for (int a = 0; a < 8; a++)
    for (int b = 0; b < 8; b++)
      if (fabs(correlation(both[a][b], here[a], there[b])) > 5 / sqrt(GROUPS))
        fail_msg(
            "key %llx, site %u, group + %llu: elements %d and %d are both dropped %u times",
            (unsigned long long)key, site, (unsigned long long)step, a, b, both[a][b]);
}

static void test_dropout_groups_sites_and_keys_are_independent(void **state) {
  (void)state;
  for (uint64_t step = 1; step <= (uint64_t)1 << 40; step *= 2)
    check_independence(drop_key, 3, step);
  for (uint32_t bit = 0; bit < 14; bit++) check_independence(drop_key, 3 ^ 1u << bit, 0);
  for (uint32_t bit = 0; bit < 64; bit++)
    check_independence(drop_key ^ (uint64_t)1 << bit, 3, 0);
}

/* The masks of `STEPS` successive steps for `TOKENS` x `DIM` elements, with the keys of training.
 * For independent draws of variance 1 a sum of n of them has the variance n: sums over the elements
 * of a token, over the tokens and over the steps. */
static void test_dropout_sums_vary_as_those_of_independent_draws(void **state) {
  (void)state;
  enum { TOKENS = 2048, DIM = 256, STEPS = 32 };
  static int8_t over_steps[TOKENS * DIM];
  uint32_t threshold = dropout_threshold(0.3f);
  double rate = threshold / 65536.0, variance = rate * (1 - rate);
  double token_squares = 0, dim_squares = 0, step_squares = 0;
  for (uint64_t step = 0; step < STEPS; step++) {
    uint64_t key = rng_mix(rng_mix(1, step), 0);
    int over_tokens[DIM] = {0};
    for (int t = 0; t < TOKENS; t++) {
      int over_token = 0;
      for (int i = 0; i < DIM; i += 8) {
        uint32_t mask = mask_of(key, 3, (uint64_t)(t * DIM + i) / 8, threshold);
        for (int e = 0; e < 8; e++) {
          int dropped = mask >> e & 1;
          over_token += dropped;
          over_tokens[i + e] += dropped;
          over_steps[t * DIM + i + e] += (int8_t)dropped;
        }
      }
      token_squares += pow(over_token - DIM * rate, 2);
    }
    for (int i = 0; i < DIM; i++) dim_squares += pow(over_tokens[i] - TOKENS * rate, 2);
  }
  for (int i = 0; i < TOKENS * DIM; i++) step_squares += pow(over_steps[i] - STEPS * rate, 2);
  const struct {
    const char *name;
    double squares, sums, draws, correlated;
  } sums[] = {/* Each element shares bits with two others of its token. */
              {"the elements of a token", token_squares, TOKENS * STEPS, DIM, 2 / 256.0},
              {"the tokens", dim_squares, DIM * STEPS, TOKENS, 0},
              {"the steps", step_squares, TOKENS * DIM, STEPS, 0}};
  for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
    double ratio = sums[i].squares / sums[i].sums / sums[i].draws / variance;
    if (fabs(ratio - 1) > 5 * sqrt(2 / sums[i].sums) + sums[i].correlated)
      fail_msg("sums over %s: %g times the variance of independent draws", sums[i].name, ratio);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dropout_words_are_those_of_philox_and_rotated),
      cmocka_unit_test(test_dropout_factor_is_that_of_the_words),
      cmocka_unit_test(test_dropout_drops_each_element_at_the_rate),
      cmocka_unit_test(test_dropout_elements_of_a_group_are_nearly_independent),
      cmocka_unit_test(test_dropout_groups_sites_and_keys_are_independent),
      cmocka_unit_test(test_dropout_sums_vary_as_those_of_independent_draws),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
