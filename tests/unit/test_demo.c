/* The demo corpus as a whole: a pure function of seed and number, exactly one German sentence for
 * each English one, disjoint splits, files without repeated pairs. Depends on demo/demo. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* must come after the headers that it needs */
#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "demo/grammar.h"

#define PAIRS 1000000
#define SLOTS (1u << 22)

static char dir[] = "/tmp/test_demo_XXXXXX";
static char en_path[64], de_path[64];

static void assert_ok(Err err) {
  if (err) fail_msg("%s", err_message());
}

static int make_dir(void **state) {
  (void)state;
  if (!mkdtemp(dir)) return -1;
  snprintf(en_path, sizeof en_path, "%s/text.en", dir);
  snprintf(de_path, sizeof de_path, "%s/text.de", dir);
  return 0;
}

static int drop_dir(void **state) {
  (void)state;
  return file_remove_all(dir) ? -1 : 0;
}

static void test_demo_same_seed_and_number_give_same_pair(void **state) {
  (void)state;
  Str en = {0}, de = {0}, en2 = {0}, de2 = {0};
  for (uint64_t i = 0; i < 2000; i++) {
    assert_ok(demo_pair(7, i, &en, &de));
    /* A call with other arguments in between must not matter. */
    assert_ok(demo_pair(8, 1999 - i, &en2, &de2));
    assert_ok(demo_pair(7, i, &en2, &de2));
    assert_string_equal(en.s, en2.s);
    assert_string_equal(de.s, de2.s);
  }
  str_free(&en), str_free(&de), str_free(&en2), str_free(&de2);
}

static void test_demo_other_seed_gives_other_pairs(void **state) {
  (void)state;
  Str a = {0}, b = {0}, de = {0};
  int equal = 0;
  for (uint64_t i = 0; i < 2000; i++) {
    assert_ok(demo_pair(1, i, &a, &de));
    assert_ok(demo_pair(2, i, &b, &de));
    equal += !strcmp(a.s, b.s);
  }
  assert_true(equal < 20);
  str_free(&a), str_free(&b), str_free(&de);
}

/* Checks the form of a sentence: capital letter, punctuation mark, single spaces. */
static void check_form(const Str *text) {
  const char *s = text->s;
  size_t len = text->len;
  assert_int_equal(utf8_valid(s, len), len);
  bool high = (unsigned char)s[0] == 0xC3 && (unsigned char)s[1] < 0xA0;
  if (!(s[0] >= 'A' && s[0] <= 'Z') && !high) fail_msg("no capital: %s", s);
  if (s[len - 1] != '.' && s[len - 1] != '?') fail_msg("no full stop: %s", s);
  if (strstr(s, "  ") || strstr(s, " ,") || strstr(s, ",,") || strstr(s, " .") ||
      strstr(s, ",.") || strstr(s, ",?") || strchr(s, '\n')) {
    fail_msg("stray blank or comma: %s", s);
  }
}

static void test_demo_english_has_one_german(void **state) {
  (void)state;
  typedef struct {
    uint64_t en, de;
  } Slot;
  Slot *slots;
  assert_ok(mem_alloc(&slots, SLOTS, sizeof *slots));
  Str en = {0}, de = {0};
  uint64_t distinct = 0, words = 0, split[3] = {0};
  uint64_t pairs = getenv("TEST_EMULATED") ? PAIRS / 10 : PAIRS; /* qemu is slow */
  for (uint64_t i = 0; i < pairs; i++) {
    assert_ok(demo_pair(2024, i, &en, &de));
    check_form(&en);
    check_form(&de);
    uint64_t in_this = 1;
    for (size_t k = 0; k < en.len; k++) in_this += en.s[k] == ' ';
    assert_true(in_this >= 3 && in_this <= 14);
    words += in_this;
    uint64_t hash = rng_hash(en.s, en.len, 11) | 1, german = rng_hash(de.s, de.len, 12);
    uint64_t at = hash >> 8 & (SLOTS - 1);
    while (slots[at].en && slots[at].en != hash) at = (at + 1) & (SLOTS - 1);
    if (slots[at].en) {
      if (slots[at].de != german) fail_msg("two translations: %s -> %s", en.s, de.s);
      continue;
    }
    slots[at] = (Slot){hash, german};
    distinct++;
    split[demo_split(en.s, en.len)]++;
  }
  assert_true(distinct > pairs / 100 * 88);
  assert_true(words >= 8 * pairs && words <= 9 * pairs);
  assert_true(split[SPLIT_TRAIN] >= distinct * 89 / 100 &&
              split[SPLIT_TRAIN] <= distinct * 91 / 100);
  assert_true(split[SPLIT_VALID] >= distinct * 47 / 1000 &&
              split[SPLIT_VALID] <= distinct * 53 / 1000);
  assert_true(split[SPLIT_TEST] >= distinct * 47 / 1000 &&
              split[SPLIT_TEST] <= distinct * 53 / 1000);
  mem_free(slots);
  str_free(&en), str_free(&de);
}

/* Writes every noun, adjective and verb, with a space on both sides, to `words`. */
static void list_lexicon(Str *words) {
  for (int n = 0; n < demo_noun_count; n++) str_addf(words++, " %s ", demo_nouns[n].en);
  for (int n = 0; n < demo_adj_count; n++) str_addf(words++, " %s ", demo_adjs[n].en);
  for (int n = 1; n < demo_verb_count; n++) str_addf(words++, " %s ", demo_verbs[n].en_part);
}

/* Every noun, adjective and verb must occur often enough to be learned. */
static void test_demo_every_word_of_lexicon_occurs(void **state) {
  (void)state;
  enum { LINES = 50000 };
  Str en = {0}, de = {0}, padded = {0}, *words;
  int rows = demo_noun_count + demo_adj_count + demo_verb_count - 1;
  int first_verb = demo_noun_count + demo_adj_count;
  uint32_t *seen;
  assert_ok(mem_alloc(&seen, (size_t)rows, sizeof *seen));
  assert_ok(mem_alloc(&words, (size_t)rows, sizeof *words));
  list_lexicon(words);
  for (uint64_t i = 0; i < LINES; i++) {
    assert_ok(demo_pair(3, i, &en, &de));
    str_clear(&padded);
    str_addc(&padded, ' ');
    for (size_t k = 0; k < en.len; k++) {
      char c = en.s[k];
      bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
      str_addc(&padded, letter ? c : ' ');
    }
    for (int n = 0; n < rows; n++)
      seen[n] += strstr(padded.s, words[n].s) ||
                 (n >= first_verb && strstr(padded.s, demo_verbs[n - first_verb + 1].en));
  }
  for (int n = 0; n < rows; n++) {
    if (seen[n] < 50) fail_msg("word %d of the lexicon is met only %u times", n, seen[n]);
  }
  for (int n = 0; n < rows; n++) str_free(&words[n]);
  mem_free(seen), mem_free(words);
  str_free(&en), str_free(&de), str_free(&padded);
}

static void read_lines(const char *path, Str *text, uint64_t *hashes, uint64_t lines) {
  str_clear(text);
  assert_ok(file_read(path, 1 << 28, text));
  char *at = text->s;
  for (uint64_t i = 0; i < lines; i++) {
    char *end = strchr(at, '\n');
    assert_non_null(end);
    hashes[i] = rng_hash(at, (size_t)(end - at), 5);
    at = end + 1;
  }
  assert_int_equal(*at, 0);
}

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static void test_demo_files_hold_distinct_pairs(void **state) {
  (void)state;
  enum { TRAIN = 50000, TEST = 2000 };
  uint64_t *train, *test;
  Str text = {0}, again = {0};
  assert_ok(mem_alloc(&train, TRAIN, sizeof *train));
  assert_ok(mem_alloc(&test, TEST, sizeof *test));

  assert_ok(demo_write(en_path, de_path, SPLIT_TRAIN, TRAIN, 1));
  read_lines(de_path, &text, train, TRAIN);
  read_lines(en_path, &text, train, TRAIN);
  qsort(train, TRAIN, sizeof *train, by_value);
  for (int i = 1; i < TRAIN; i++) assert_true(train[i] != train[i - 1]);

  /* Equal seeds must give equal bytes, other seeds other bytes. */
  assert_ok(demo_write(en_path, de_path, SPLIT_TRAIN, TRAIN, 1));
  assert_ok(file_read(en_path, 1 << 28, &again));
  assert_int_equal(text.len, again.len);
  assert_memory_equal(text.s, again.s, text.len);
  assert_ok(demo_write(en_path, de_path, SPLIT_TRAIN, 100, 2));
  str_clear(&again);
  assert_ok(file_read(en_path, 1 << 28, &again));
  assert_memory_not_equal(text.s, again.s, 200);

  /* The test split of another seed must have no sentence in common with the training text. */
  assert_ok(demo_write(en_path, de_path, SPLIT_TEST, TEST, 2));
  read_lines(en_path, &text, test, TEST);
  for (int i = 0; i < TEST; i++) {
    assert_null(bsearch(&test[i], train, TRAIN, sizeof *train, by_value));
  }
  mem_free(train), mem_free(test);
  str_free(&text), str_free(&again);
}

/* Drawing 200,000 distinct training pairs must not need many more draws than that. */
static void test_demo_repetitions_are_rare(void **state) {
  (void)state;
  enum { WANTED = 200000 };
  uint64_t *hashes, draws = 0;
  Str en = {0}, de = {0};
  assert_ok(mem_alloc(&hashes, WANTED, sizeof *hashes));
  for (uint64_t i = 0; draws < WANTED; i++) {
    assert_ok(demo_pair(1, i, &en, &de));
    if (demo_split(en.s, en.len) == SPLIT_TRAIN) hashes[draws++] = rng_hash(en.s, en.len, 5);
  }
  qsort(hashes, WANTED, sizeof *hashes, by_value);
  uint64_t distinct = 1;
  for (int i = 1; i < WANTED; i++) distinct += hashes[i] != hashes[i - 1];
  assert_true((double)draws / (double)distinct < 1.10);
  mem_free(hashes);
  str_free(&en), str_free(&de);
}

static Err three_pairs(uint64_t seed, uint64_t i, Str *en, Str *de) {
  return demo_pair(seed, i % 3, en, de);
}

static void test_demo_too_many_pairs_is_an_error(void **state) {
  (void)state;
  assert_int_equal(demo_write_from(three_pairs, en_path, de_path, SPLIT_TRAIN, 10, 1),
                   ERR_WORK);
  assert_non_null(strstr(err_message(), "distinct pairs, but 10 were requested"));
  assert_int_equal(demo_write(en_path, de_path, SPLIT_TRAIN, UINT64_MAX, 1), ERR_USAGE);
  assert_int_equal(demo_write(en_path, de_path, SPLIT_TRAIN, 50000001, 1), ERR_USAGE);
}

static void test_demo_bad_path_is_an_error(void **state) {
  (void)state;
  assert_int_equal(demo_write("/nonexistent/x.en", de_path, SPLIT_TEST, 5, 1), ERR_WORK);
  assert_non_null(strstr(err_message(), "/nonexistent/x.en"));
  assert_int_equal(demo_write(en_path, "/nonexistent/x.de", SPLIT_TEST, 5, 1), ERR_WORK);
}

/* Each allocation fails in turn; each time the call must return an error and leak nothing. */
static void test_demo_out_of_memory_is_an_error(void **state) {
  (void)state;
  uint64_t n = 1;
  for (;; n++) {
    uint64_t before = mem_count();
    mem_fail_once(n);
    Err err = demo_write(en_path, de_path, SPLIT_TRAIN, 50, 1);
    mem_fail_once(0);
    if (!err) {
      assert_true(mem_count() - before < n); /* no allocation failed */
      break;
    }
    assert_int_equal(err, ERR_WORK);
    assert_true(n < 1000);
  }
  assert_true(n > 5);
}

static void test_demo_no_pairs_gives_two_empty_files(void **state) {
  (void)state;
  const char *const path[] = {en_path, de_path};
  assert_ok(demo_write(en_path, de_path, SPLIT_VALID, 1, 1));
  assert_ok(demo_write(en_path, de_path, SPLIT_VALID, 0, 1));
  for (int i = 0; i < 2; i++) {
    uint64_t bytes;
    assert_ok(file_size(path[i], &bytes));
    assert_int_equal(bytes, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_demo_same_seed_and_number_give_same_pair),
      cmocka_unit_test(test_demo_other_seed_gives_other_pairs),
      cmocka_unit_test(test_demo_english_has_one_german),
      cmocka_unit_test(test_demo_every_word_of_lexicon_occurs),
      cmocka_unit_test(test_demo_files_hold_distinct_pairs),
      cmocka_unit_test(test_demo_repetitions_are_rare),
      cmocka_unit_test(test_demo_too_many_pairs_is_an_error),
      cmocka_unit_test(test_demo_bad_path_is_an_error),
      cmocka_unit_test(test_demo_out_of_memory_is_an_error),
      cmocka_unit_test(test_demo_no_pairs_gives_two_empty_files),
  };
  return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
