/* The set of hashes of seen pairs: pairs that differ in only a few bits are distinguished;
 * SHA-256 compared with published digests. Depends on data/seen, base/sha256, cmocka.
 * run-tests: own program */
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/seen.h"
#include "support.h"

/* Includes the plain C implementation of sha256.c under other names, because the library may use
 * libcrypto. */
#undef HAVE_CRYPTO
#define sha256_begin plain_begin
#define sha256_add   plain_add
#define sha256_end   plain_end
void plain_begin(Sha256 *sha);
void plain_add(Sha256 *sha, const void *bytes, size_t len);
void plain_end(Sha256 *sha, char hex[65]);
#include "../../src/base/sha256.c"
#undef sha256_begin
#undef sha256_add
#undef sha256_end

static bool was_seen(Seen *s, const void *source, size_t source_len, const void *target,
                     size_t target_len) {
  const char *text[2] = {source, target};
  size_t len[2] = {source_len, target_len};
  uint64_t key[2];
  bool before;
  OK(seen_hash(text, len, key));
  OK(seen_add(s, key, &before));
  return before;
}

static void test_seen_equal_pair_is_a_duplicate(void **state) {
  (void)state;
  Seen s = {0};
  assert_false(was_seen(&s, "ab", 2, "c", 1));
  assert_true(was_seen(&s, "ab", 2, "c", 1));
  assert_false(was_seen(&s, "a", 1, "bc",
                        2)); /* The same bytes, split differently between source and target. */
  assert_false(was_seen(&s, "c", 1, "ab", 2));
  assert_false(was_seen(&s, "", 0, "abc", 3));
  assert_false(was_seen(&s, "abc", 3, "", 0));
  assert_int_equal(s.used, 5);
  seen_free(&s);
}

/* Flipping 0x40 at bytes 7, 11 and 15 cancels out in a hash that only multiplies and folds
 * 64-bit words; half of such pairs were taken for duplicates. */
static void test_seen_0x40_flipped_at_bytes_7_11_15_is_distinct(void **state) {
  (void)state;
  Rng rng = {.key = 5};
  Seen s = {0};
  for (int trial = 0; trial < 2000; trial++) {
    char text[40];
    size_t len = 16 + rng_below(&rng, 24);
    for (size_t i = 0; i < len; i++) text[i] = (char)rng_next(&rng);
    assert_false(was_seen(&s, text, len, "target", 6));
    for (size_t i = 7; i <= 15; i += 4) text[i] ^= 0x40;
    assert_false(was_seen(&s, text, len, "target", 6));
    assert_false(was_seen(&s, "source", 6, text, len));
    for (size_t i = 7; i <= 15; i += 4) text[i] ^= 0x40;
    assert_false(was_seen(&s, "source", 6, text, len));
  }
  seen_free(&s);
}

/* Adds every text that differs from one text in a single bit, in two bits, or in the same bit of
 * three bytes: 200,000 texts of 40 bytes, none of which is a duplicate. */
static void test_seen_few_flipped_bits_are_distinct(void **state) {
  (void)state;
  enum { BYTES = 40, BITS = 8 * BYTES };
  uint8_t text[BYTES];
  Seen s = {0};
  for (size_t i = 0; i < BYTES; i++) text[i] = (uint8_t)('a' + i % 26);
  assert_false(was_seen(&s, text, BYTES, "", 0));
  for (size_t a = 0; a < BITS; a++) {
    text[a / 8] ^= (uint8_t)(1u << a % 8);
    assert_false(was_seen(&s, text, BYTES, "", 0));
    for (size_t b = 0; b < a; b++) {
      text[b / 8] ^= (uint8_t)(1u << b % 8);
      assert_false(was_seen(&s, text, BYTES, "", 0));
      for (size_t c = b % 8; c < b && a % 8 == b % 8; c += 8) {
        text[c / 8] ^= (uint8_t)(1u << c % 8);
        assert_false(was_seen(&s, text, BYTES, "", 0));
        text[c / 8] ^= (uint8_t)(1u << c % 8);
      }
      text[b / 8] ^= (uint8_t)(1u << b % 8);
    }
    text[a / 8] ^= (uint8_t)(1u << a % 8);
  }
  seen_free(&s);
}

/* Flips one to six random bits of the source or of the target: every bit of the key must change
 * in about half of the trials, so that no set of flips cancels out more often than by chance. */
static void test_seen_key_multi_bit_flips_change_half_the_bits(void **state) {
  (void)state;
  enum { TRIALS = 3000, BYTES = 48 };
  Rng rng = {.key = 8};
  for (int flips = 1; flips <= 6; flips++) {
    uint32_t turned[128] = {0};
    for (int t = 0; t < TRIALS; t++) {
      uint8_t text[BYTES];
      for (size_t i = 0; i < BYTES; i++) text[i] = (uint8_t)rng_next(&rng);
      size_t cut = rng_below(&rng, BYTES + 1);
      uint64_t key[2][2];
      for (int k = 0; k < 2; k++) {
        Seen s = {0};
        assert_false(was_seen(&s, text, cut, text + cut, BYTES - cut));
        for (size_t i = 0; i < s.size; i++) {
          if (s.slot[i][0] || s.slot[i][1]) memcpy(key[k], s.slot[i], sizeof key[k]);
        }
        seen_free(&s);
        uint8_t mask[BYTES] = {0};
        for (int n = 0; n < flips;) {
          size_t bit = rng_below(&rng, 8 * BYTES);
          if (mask[bit / 8] >> bit % 8 & 1) continue;
          mask[bit / 8] |= (uint8_t)(1u << bit % 8);
          n++;
        }
        for (size_t i = 0; i < BYTES; i++) text[i] ^= mask[i];
      }
      for (int bit = 0; bit < 128; bit++)
        turned[bit] += (uint32_t)((key[0][bit / 64] ^ key[1][bit / 64]) >> bit % 64 & 1);
    }
    /* 6 standard deviations of TRIALS fair coins are 164; bit 64 is always set. */
    for (int bit = 0; bit < 128; bit++) {
      if (bit != 64) assert_between(turned[bit], 1336, 1664);
    }
  }
}

static void check_digits(const char *text, size_t times, const char *digits) {
  char hex[2][65];
  Sha256 sha, plain;
  sha256_begin(&sha);
  plain_begin(&plain);
  for (size_t i = 0; i < times; i++) {
    sha256_add(&sha, text, strlen(text));
    plain_add(&plain, text, strlen(text));
  }
  sha256_end(&sha, hex[0]);
  plain_end(&plain, hex[1]);
  assert_string_equal(hex[0], digits);
  assert_string_equal(hex[1], digits);
}

static void test_sha256_published_messages_give_published_digests(void **state) {
  (void)state;
  check_digits("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  check_digits("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  check_digits("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  check_digits("aaaaaaaaaa", 100000,
               "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_sha256_plain_c_and_library_agree_at_every_length(void **state) {
  (void)state;
  Rng rng = {.key = 3};
  uint8_t bytes[300];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)rng_next(&rng);
  for (size_t len = 0; len <= sizeof bytes; len++) {
    size_t cut = rng_below(&rng, len + 1);
    char hex[2][65];
    Sha256 sha, plain;
    sha256_begin(&sha);
    sha256_add(&sha, bytes, len);
    plain_begin(&plain);
    plain_add(&plain, bytes, cut);
    plain_add(&plain, bytes + cut, len - cut);
    sha256_end(&sha, hex[0]);
    plain_end(&plain, hex[1]);
    assert_string_equal(hex[0], hex[1]);
  }
}

static void test_sha256_copy_continues_independently(void **state) {
  (void)state;
  char hex[2][65];
  Sha256 sha, copy;
  sha256_begin(&sha);
  sha256_add(&sha, "ab", 2);
  copy = sha;
  sha256_end(&copy, hex[0]);
  sha256_add(&sha, "c", 1);
  sha256_end(&sha, hex[1]);
  assert_string_equal(hex[0],
                      "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603");
  assert_string_equal(hex[1],
                      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_seen_equal_pair_is_a_duplicate),
      cmocka_unit_test(test_seen_0x40_flipped_at_bytes_7_11_15_is_distinct),
      cmocka_unit_test(test_seen_few_flipped_bits_are_distinct),
      cmocka_unit_test(test_seen_key_multi_bit_flips_change_half_the_bits),
  };
  const struct CMUnitTest hashes[] = {
      cmocka_unit_test(test_sha256_published_messages_give_published_digests),
      cmocka_unit_test(test_sha256_plain_c_and_library_agree_at_every_length),
      cmocka_unit_test(test_sha256_copy_continues_independently),
  };
  int failed = cmocka_run_group_tests(hashes, NULL, NULL);
  if (!seen_is_built()) return failed;
  return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
