/* Training of a WordPiece vocabulary: which pieces are joined, and the errors. Depends on text,
 * cmocka. */
#include "base/mem.h"
#include "support.h"
#include "text/stringmap.h"
#include "text/wordpiece.h"
#include "text/wordpiece_train.h"

typedef struct {
  const char *const *text; /* ends with NULL */
} Texts;

static bool next_text(void *context, const char **text, size_t *len) {
  Texts *t = context;
  if (!*t->text) return false;
  *text = *t->text++;
  *len = strlen(*text);
  return true;
}

static Err train(const char *const *texts, size_t vocab_size, size_t alphabet, size_t *size) {
  WordpieceTraining spec = {.vocab_size = vocab_size, .alphabet = alphabet, .min_count = 2};
  Texts t = {.text = texts};
  return wordpiece_train(&spec, next_text, &t, at("vocab.txt"), size);
}
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void assert_vocab(const char *expected) {
  Str got = {0};
  OK(file_read(at("vocab.txt"), 1 << 20, &got));
  assert_string_equal(str_text(&got), expected);
  str_free(&got);
}
#define SPECIALS "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

static void test_most_frequent_pair_is_joined_first(void **state) {
  size_t size;
  (void)state;
  /* "##b ##c" occurs 5 times, "a ##b" 3 times; then "a ##bc" 3 times and "x ##bc" twice. */
  OK(train(TEXTS("abc abc abc xbc xbc"), 100, 1000, &size));
  assert_vocab(SPECIALS "a\nx\n##b\n##c\n##bc\nabc\nxbc\n");
  assert_int_equal(size, 12);
}

static void test_pair_that_occurs_once_is_not_joined(void **state) {
  size_t size;
  (void)state;
  OK(train(TEXTS("ab", "cd", "cd"), 100, 1000, &size));
  assert_vocab(SPECIALS "a\nc\n##b\n##d\ncd\n");
}

static void test_repeated_letters_are_joined_from_the_left(void **state) {
  size_t size;
  (void)state;
  OK(train(TEXTS("aaaaa aaaaa"), 9, 1000, &size));
  assert_vocab(SPECIALS "a\n##a\n##aa\naaa\n");
}

static void test_vocabulary_ends_at_its_size(void **state) {
  size_t size;
  (void)state;
  OK(train(TEXTS("abc abc abc xbc xbc"), 10, 1000, &size));
  assert_int_equal(size, 10);
  assert_vocab(SPECIALS "a\nx\n##b\n##c\n##bc\n");
}

static void test_words_with_rare_characters_are_left_out(void **state) {
  size_t size;
  (void)state;
  OK(train(TEXTS("ab ab az"), 100, 2, &size));
  assert_vocab(SPECIALS "a\n##b\nab\n");
}

static void test_result_does_not_depend_on_the_order_of_texts(void **state) {
  size_t size;
  Str first = {0};
  (void)state;
  OK(train(TEXTS("the cat sat", "on the mat", "the cat"), 30, 1000, &size));
  OK(file_read(at("vocab.txt"), 1 << 20, &first));
  OK(train(TEXTS("the cat", "on the mat", "the cat sat"), 30, 1000, &size));
  assert_vocab(first.s);
  str_free(&first);
}

static void test_words_of_the_text_are_encoded_without_unk(void **state) {
  Wordpiece w;
  IdList ids = {0};
  size_t size;
  const char *text = "Größe, unaffable! 中国 affable";
  (void)state;
  OK(train(TEXTS(text, text), 60, 1000, &size));
  OK(wordpiece_open(&w, at("vocab.txt"), (BertRules){0}));
  assert_int_equal(w.vocab, size);
  OK(wordpiece_encode(&w, text, strlen(text), &ids));
  for (size_t i = 0; i < ids.len; i++) assert_int_not_equal(ids.id[i], w.unk);
  ids_free(&ids);
  wordpiece_close(&w);
}

static void test_vocabulary_smaller_than_the_alphabet_is_an_error(void **state) {
  size_t size;
  (void)state;
  assert_int_equal(train(TEXTS("abc"), 7, 1000, &size), ERR_USAGE);
  assert_says(
      "--vocab-size 7 is too small: the text has 3 different characters, which need 8 pieces");
}

static void test_text_without_words_is_an_error(void **state) {
  size_t size;
  (void)state;
  assert_int_equal(train(TEXTS("", "  \n"), 100, 1000, &size), ERR_WORK);
  assert_says("the text has no words");
}

static void test_train_without_memory_fails_cleanly(void **state) {
  size_t size;
  (void)state;
  for (uint64_t n = 1; n < 400; n++) {
    mem_fail_after(n);
    Err err = train(TEXTS("abc abc xbc xbc"), 20, 1000, &size);
    mem_fail_after(0);
    if (!err) return;
  }
  fail_msg("more than 400 allocations");
}

static void test_stringmap_numbers_texts_in_their_order(void **state) {
  StringMap m = {0};
  uint32_t n;
  char text[16];
  (void)state;
  for (int i = 0; i < 5000; i++) {
    int len = snprintf(text, sizeof text, "%d", i);
    OK(stringmap_add(&m, text, (size_t)len, &n));
    assert_int_equal(n, i);
  }
  OK(stringmap_add(&m, "77", 2, &n));
  assert_int_equal(n, 77);
  assert_string_equal(stringmap_text(&m, 4999), "4999");
  assert_int_equal(m.count, 5000);
  stringmap_free(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_most_frequent_pair_is_joined_first),
      cmocka_unit_test(test_pair_that_occurs_once_is_not_joined),
      cmocka_unit_test(test_repeated_letters_are_joined_from_the_left),
      cmocka_unit_test(test_vocabulary_ends_at_its_size),
      cmocka_unit_test(test_words_with_rare_characters_are_left_out),
      cmocka_unit_test(test_result_does_not_depend_on_the_order_of_texts),
      cmocka_unit_test(test_words_of_the_text_are_encoded_without_unk),
      cmocka_unit_test(test_vocabulary_smaller_than_the_alphabet_is_an_error),
      cmocka_unit_test(test_text_without_words_is_an_error),
      cmocka_unit_test(test_train_without_memory_fails_cleanly),
      cmocka_unit_test(test_stringmap_numbers_texts_in_their_order),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
