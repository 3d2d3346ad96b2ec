/* The WordPiece tokenizer compared with Hugging Face tokenizers: every case of
 * tests/golden/wordpiece/cases.jsonl (made by make_golden.py beside it), and the toxicity comments with
 * the vocabulary of bert-base-uncased if they are installed. Depends on text, data/table, jansson,
 * cmocka. */
#include <jansson.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "base/str.h"
#include "data/table.h"
#include "support.h"
#include "text/bert_chars.h"
#include "text/wordpiece.h"

#define GOLDEN "tests/golden/wordpiece/"
#define VOCAB  "../shared/data/bert-base-uncased/vocab.txt"
#define TWEETS "../shared/data/toxicity/tweets.csv.gz"

static const BertRules uncased = {.is_lower = true, .strips_accents = true};
static const BertRules cased = {0};

#define SPECIALS "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

static void open_text(Wordpiece *w, const char *vocab) {
  OK(wordpiece_read(w, vocab, strlen(vocab), "vocab.txt", cased));
}

/* Fails unless the text has exactly the ids in the list, which ends with -1. */
static void assert_ids(const Wordpiece *w, const char *text, const int32_t *expected) {
  IdList ids = {0};
  size_t n = 0;
  while (expected[n] >= 0) n++;
  OK(wordpiece_encode(w, text, strlen(text), &ids));
  assert_int_equal(ids.len, n);
  if (n) assert_memory_equal(ids.id, expected, n * sizeof *expected);
  ids_free(&ids);
}
#define IDS(...) ((const int32_t[]){__VA_ARGS__, -1})

static void check_case(const Wordpiece *w, const json_t *one, const char *kind, size_t line) {
  const json_t *text = json_object_get(one, "text"), *expected = json_object_get(one, kind);
  IdList ids = {0};
  OK(wordpiece_encode(w, json_string_value(text), json_string_length(text), &ids));
  bool is_equal = ids.len == json_array_size(expected);
  for (size_t i = 0; is_equal && i < ids.len; i++)
    is_equal = ids.id[i] == json_integer_value(json_array_get(expected, i));
  if (!is_equal) fail_msg("%s, line %zu: %zu ids", kind, line, ids.len);
  ids_free(&ids);
}

/* Encodes every text twice: the second time from the cache. */
static void check_golden(BertRules rules, const char *kind) {
  Wordpiece w;
  OK(wordpiece_open(&w, GOLDEN "vocab.txt", rules));
  for (int pass = 0; pass < 2; pass++) {
    FILE *in = fopen(GOLDEN "cases.jsonl", "r");
    char line[8192];
    size_t lines = 0;
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) {
      json_t *one = json_loads(line, JSON_ALLOW_NUL, NULL);
      assert_non_null(one);
      check_case(&w, one, kind, ++lines);
      json_decref(one);
    }
    assert_true(lines > 150);
    fclose(in);
  }
  wordpiece_close(&w);
}

static void need_unicode(void) {
#ifndef HAVE_UTF8PROC
  printf("skip: built without utf8proc\n");
  skip();
#endif
}

static void test_encode_uncased_has_the_ids_of_hugging_face(void **state) {
  (void)state;
  need_unicode();
  check_golden(uncased, "uncased");
}

static void test_encode_cased_has_the_ids_of_hugging_face(void **state) {
  (void)state;
  check_golden(cased, "cased");
}

/* make_golden.py prints these checksums of all ids. */
static void check_tweets(BertRules rules, const char *expected) {
  static const char *const column[] = {"text"};
  Wordpiece w;
  Table *t;
  const TableField *row;
  IdList ids = {0};
  Sha256 sha;
  char hex[65];
  if (!file_exists(VOCAB) || !file_exists(TWEETS)) {
    printf("skip: no %s or %s\n", VOCAB, TWEETS);
    skip();
  }
  OK(wordpiece_open(&w, VOCAB, rules));
  OK(table_open(&t, TWEETS, TABLE_CSV, column, 1));
  sha256_begin(&sha);
  for (;;) {
    OK(table_row(t, &row));
    if (!row) break;
    ids.len = 0;
    OK(wordpiece_encode(&w, row->text, row->len, &ids));
    int32_t count = (int32_t)ids.len;
    sha256_add(&sha, &count, sizeof count);
    if (count) sha256_add(&sha, ids.id, ids.len * sizeof *ids.id);
  }
  sha256_end(&sha, hex);
  assert_string_equal(hex, expected);
  ids_free(&ids);
  table_close(t);
  wordpiece_close(&w);
}

static void test_encode_of_comments_uncased_has_the_ids_of_hugging_face(void **state) {
  (void)state;
  need_unicode();
  check_tweets(uncased, "10be8b442a9dbd769605deac00f3b3ad64f0314ddf8138a4828fb5db88340f74");
}

static void test_encode_of_comments_cased_has_the_ids_of_hugging_face(void **state) {
  (void)state;
  check_tweets(cased, "8ad7a86e930b4f4793bb131a541d8f3f22d6949220e7a81750143d8319e48dd3");
}

static void test_encode_takes_the_longest_piece(void **state) {
  Wordpiece w;
  (void)state;
  open_text(&w, SPECIALS "a\nab\n##b\n##bc\n##c\nabcd\n");
  assert_ids(&w, "abc", IDS(6, 9));
  assert_ids(&w, "abcd", IDS(10));
  assert_ids(&w, "abbc", IDS(6, 8));
  wordpiece_close(&w);
}

static void test_encode_word_with_an_unknown_end_is_one_unk(void **state) {
  Wordpiece w;
  (void)state;
  open_text(&w, SPECIALS "a\n##b\n");
  assert_ids(&w, "a abx ab", IDS(5, 1, 5, 6));
  wordpiece_close(&w);
}

static void test_encode_bytes_that_are_not_utf8_are_removed(void **state) {
  Wordpiece w;
  (void)state;
  open_text(&w, SPECIALS "ab\n");
  assert_ids(&w,
             "\xff"
             "a\xc3"
             "b\x80",
             IDS(5));
  assert_ids(&w, "\xff\xfe", IDS(-1));
  wordpiece_close(&w);
}

static void test_encode_piece_ends_at_a_whole_character(void **state) {
  Wordpiece w;
  (void)state;
  open_text(&w, SPECIALS "\xc3\xa9\n##\xc3\xa8\n");
  assert_ids(&w, "\xc3\xa9\xc3\xa8", IDS(5, 6));
  wordpiece_close(&w);
}

static void test_read_lines_end_with_crlf_or_nothing(void **state) {
  Wordpiece w;
  (void)state;
  open_text(&w, "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\na\r\nb");
  assert_int_equal(w.vocab, 6);
  assert_int_equal(w.mask, -1);
  assert_string_equal(wordpiece_piece(&w, 4), "a");
  assert_string_equal(wordpiece_piece(&w, 5), "b");
  assert_null(wordpiece_piece(&w, 6));
  assert_null(wordpiece_piece(&w, -1));
  assert_ids(&w, "b a", IDS(5, 4));
  wordpiece_close(&w);
}

static void test_read_of_two_equal_lines_the_later_counts(void **state) {
  Wordpiece w;
  (void)state;
  open_text(&w, SPECIALS "a\nb\na\n");
  assert_ids(&w, "a", IDS(7));
  wordpiece_close(&w);
}

static void assert_refused(const char *bytes, size_t len, const char *words) {
  Wordpiece w;
  assert_int_equal(wordpiece_read(&w, bytes, len, "vocab.txt", cased), ERR_WORK);
  assert_says(words);
  assert_null(w.vocab_);
}

static void test_read_without_cls_is_an_error(void **state) {
  (void)state;
  const char vocab[] = "[UNK]\n[SEP]\na\n";
  assert_refused(vocab, sizeof vocab - 1, "vocab.txt has no line [CLS]");
  assert_refused("", 0, "vocab.txt has no line [UNK]");
}

static void test_read_other_bytes_are_refused_with_their_line(void **state) {
  (void)state;
  const char nul[] = "[UNK]\n[CLS]\na\0b\n", latin[] = "[UNK]\n\xe9t\xe9\n";
  assert_refused(nul, sizeof nul - 1, "vocab.txt, line 3: has a NUL byte");
  assert_refused(latin, sizeof latin - 1, "vocab.txt, line 2: is not UTF-8");
}

static void test_read_without_memory_fails_cleanly(void **state) {
  const char vocab[] = SPECIALS "a\n##b\n";
  (void)state;
  for (uint64_t n = 1; n < 100; n++) {
    Wordpiece w;
    IdList ids = {0};
    mem_fail_after(n);
    Err err = wordpiece_read(&w, vocab, sizeof vocab - 1, "vocab.txt", cased);
    if (!err) err = wordpiece_encode(&w, "ab [SEP] xyz", 12, &ids);
    mem_fail_after(0);
    bool is_done = err == ERR_OK;
    ids_free(&ids);
    wordpiece_close(&w);
    if (is_done) return;
  }
  fail_msg("more than 100 allocations");
}

static void test_chars_have_the_classes_of_bert(void **state) {
  (void)state;
  assert_true(bert_is_removed(0) && bert_is_removed(0xfffd) && !bert_is_removed('\n'));
  assert_true(bert_is_space(0x3000) && !bert_is_space(0x200b) && !bert_is_space('a'));
  assert_true(bert_is_cjk(0x4e2d) && !bert_is_cjk(0x304b) && !bert_is_cjk(0xac00));
  assert_true(bert_is_punctuation('$') && bert_is_punctuation(0x2026) &&
              !bert_is_punctuation(0x20ac));
  assert_true(bert_is_mark(0x301) && !bert_is_mark(0x302e) && !bert_is_mark(0x10ffff));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_encode_uncased_has_the_ids_of_hugging_face),
      cmocka_unit_test(test_encode_cased_has_the_ids_of_hugging_face),
      cmocka_unit_test(test_encode_of_comments_uncased_has_the_ids_of_hugging_face),
      cmocka_unit_test(test_encode_of_comments_cased_has_the_ids_of_hugging_face),
      cmocka_unit_test(test_encode_takes_the_longest_piece),
      cmocka_unit_test(test_encode_word_with_an_unknown_end_is_one_unk),
      cmocka_unit_test(test_encode_bytes_that_are_not_utf8_are_removed),
      cmocka_unit_test(test_encode_piece_ends_at_a_whole_character),
      cmocka_unit_test(test_read_lines_end_with_crlf_or_nothing),
      cmocka_unit_test(test_read_of_two_equal_lines_the_later_counts),
      cmocka_unit_test(test_read_without_cls_is_an_error),
      cmocka_unit_test(test_read_other_bytes_are_refused_with_their_line),
      cmocka_unit_test(test_read_without_memory_fails_cleanly),
      cmocka_unit_test(test_chars_have_the_classes_of_bert),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
