/* The byte-level BPE of RoBERTa, compared with Hugging Face tokenizers: every case of
 * tests/golden/byte_bpe/cases.jsonl (made by make_golden.py beside it). Files that are damaged or of
 * another form are refused. Depends on text, jansson, cmocka. */
#include <jansson.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/str.h"
#include "support.h"
#include "text/byte_bpe.h"

#define GOLDEN "tests/golden/byte_bpe/"

/* Makes a scratch directory "t" with copies of files of the golden. */
static void copy_files(const char *const *names) {
  if (file_exists(at("t"))) OK(file_remove_all(at("t")));
  OK(file_mkdirs(at("t")));
  for (; *names; names++) {
    char from[128], to[64];
    Str bytes = {0};
    snprintf(from, sizeof from, GOLDEN "%s", *names);
    snprintf(to, sizeof to, "t/%s", *names);
    OK(file_read(from, (size_t)1 << 20, &bytes));
    OK(file_write(at(to), str_text(&bytes), bytes.len));
    str_free(&bytes);
  }
}
#define FILES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void write_file(const char *name, const char *text) {
  OK(file_write(at(name), text, strlen(text)));
}

static void check_case(const ByteBpe *b, const json_t *one, const char *kind, size_t line) {
  const json_t *text = json_object_get(one, "text"), *expected = json_object_get(one, kind);
  IdList ids = {0};
  OK(byte_bpe_encode(b, json_string_value(text), json_string_length(text), &ids));
  bool is_equal = ids.len == json_array_size(expected);
  for (size_t i = 0; is_equal && i < ids.len; i++)
    is_equal = ids.id[i] == json_integer_value(json_array_get(expected, i));
  if (!is_equal) fail_msg("%s, line %zu: %zu ids", kind, line, ids.len);
  ids_free(&ids);
}

/* Encodes every text twice: the second time from the cache. */
static void check_cases(const ByteBpe *b, const char *kind) {
  for (int pass = 0; pass < 2; pass++) {
    FILE *in = fopen(GOLDEN "cases.jsonl", "r");
    char line[8192];
    size_t lines = 0;
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) {
      json_t *one = json_loads(line, JSON_ALLOW_NUL, NULL);
      assert_non_null(one);
      check_case(b, one, kind, ++lines);
      json_decref(one);
    }
    assert_true(lines > 300);
    fclose(in);
  }
}

/* Checks the tokenizer at `path`, and the one that reads what the first prints. */
static void check_golden(const char *path, const char *kind) {
  ByteBpe first, second;
  Str printed = {0}, again = {0};
  OK(byte_bpe_import(&first, path));
  check_cases(&first, kind);
  OK(byte_bpe_print(&first, &printed));
  OK(byte_bpe_read(&second, printed.s, printed.len, "printed"));
  check_cases(&second, kind);
  OK(byte_bpe_print(&second, &again));
  assert_string_equal(printed.s, again.s);
  assert_int_equal(first.vocab, second.vocab);
  byte_bpe_close(&first);
  byte_bpe_close(&second);
  str_free(&printed);
  str_free(&again);
}

static void test_vocab_and_merges_give_the_ids_of_hugging_face(void **state) {
  (void)state;
  check_golden(GOLDEN "vocab.json", "plain");
}

static void test_prefix_space_gives_the_ids_of_hugging_face(void **state) {
  (void)state;
  copy_files(FILES("vocab.json", "merges.txt"));
  write_file(
      "t/tokenizer_config.json",
      "{\"add_prefix_space\": true, \"model_max_length\": 1000000000000000019884624838656}");
  check_golden(at("t"), "prefix");
}

static void test_tokenizer_json_gives_the_ids_of_hugging_face(void **state) {
  (void)state;
  check_golden(GOLDEN, "added");
  check_golden(GOLDEN "tokenizer.json", "added");
}

static void test_specials_have_their_ids(void **state) {
  ByteBpe b;
  (void)state;
  OK(byte_bpe_import(&b, GOLDEN "vocab.json"));
  assert_int_equal(b.vocab, 520);
  assert_int_equal(b.cls, 0);
  assert_int_equal(b.pad, 1);
  assert_int_equal(b.sep, 2);
  assert_int_equal(b.unk, 3);
  assert_int_equal(b.mask, 4);
  assert_string_equal(byte_bpe_piece(&b, 0), "<s>");
  assert_null(byte_bpe_piece(&b, 520));
  assert_null(byte_bpe_piece(&b, -1));
  byte_bpe_close(&b);
}

static void test_printed_vocab_and_merges_are_the_files(void **state) {
  ByteBpe b;
  Str vocab = {0}, merges = {0}, expected = {0};
  (void)state;
  OK(byte_bpe_import(&b, GOLDEN "vocab.json"));
  OK(byte_bpe_print_vocab(&b, &vocab));
  OK(byte_bpe_print_merges(&b, &merges));
  OK(file_read(GOLDEN "vocab.json", (size_t)1 << 20, &expected));
  assert_string_equal(vocab.s, expected.s);
  str_clear(&expected);
  OK(file_read(GOLDEN "merges.txt", (size_t)1 << 20, &expected));
  assert_string_equal(merges.s, expected.s);
  byte_bpe_close(&b);
  str_free(&vocab);
  str_free(&merges);
  str_free(&expected);
}

#define VOCAB \
  "\"<s>\":0,\"</s>\":1,\"a\":2,\"b\":3,\"c\":4,\"ab\":5,\"bc\":6,\"abc\":7,\"\xc4\xa0\":8"

/* Reads a tokenizer.json with the pieces of VOCAB. */
static Err read_json(ByteBpe *b, const char *merges, const char *model, const char *more) {
  char json[2048];
  snprintf(json, sizeof json,
           "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},%s\"model\":{%s\"vocab\":{" VOCAB
           "},\"merges\":[%s]}}",
           more, model, merges);
  return byte_bpe_read(b, json, strlen(json), "tokenizer.json");
}

/* Fails unless the text has exactly the ids in the list, which ends with -1. */
static void assert_ids(const ByteBpe *b, const char *text, const int32_t *expected) {
  IdList ids = {0};
  size_t n = 0;
  while (expected[n] >= 0) n++;
  OK(byte_bpe_encode(b, text, strlen(text), &ids));
  assert_int_equal(ids.len, n);
  if (n) assert_memory_equal(ids.id, expected, n * sizeof *expected);
  ids_free(&ids);
}
#define IDS(...) ((const int32_t[]){__VA_ARGS__, -1})

static void test_merges_are_applied_by_rank_from_the_left(void **state) {
  ByteBpe b;
  (void)state;
  OK(read_json(&b, "\"b c\",\"a b\"", "", ""));
  assert_ids(&b, "abc", IDS(2, 6));
  assert_ids(&b, "abbc ab", IDS(5, 6, 8, 5));
  byte_bpe_close(&b);
  OK(read_json(&b, "[\"a\",\"b\"],[\"b\",\"c\"],[\"ab\",\"c\"]", "", ""));
  assert_ids(&b, "abcabbc", IDS(7, 5, 6));
  byte_bpe_close(&b);
}

static void test_bytes_without_a_piece_are_left_out_or_unknown(void **state) {
  ByteBpe b;
  (void)state;
  OK(read_json(&b, "", "", ""));
  assert_ids(&b, "axb", IDS(2, 3));
  assert_ids(&b, "xyz", IDS(-1));
  byte_bpe_close(&b);
  OK(read_json(&b, "", "\"unk_token\":\"c\",", ""));
  assert_ids(&b, "axb", IDS(2, 4, 3));
  byte_bpe_close(&b);
}

static void test_bytes_that_are_not_utf8_are_removed(void **state) {
  ByteBpe b;
  (void)state;
  OK(read_json(&b, "\"a b\"", "", ""));
  assert_ids(&b,
             "\xff"
             "a\xc3"
             "b\x80",
             IDS(5));
  assert_ids(&b, "\xff\xfe", IDS(-1));
  byte_bpe_close(&b);
}

static void test_a_word_of_a_million_bytes_is_merged(void **state) {
  enum { LEN = 1 << 20 };
  ByteBpe b;
  IdList ids = {0};
  char *text;
  (void)state;
  OK(read_json(&b, "\"a b\"", "", ""));
  OK(mem_alloc(&text, LEN, 1));
  for (size_t i = 0; i < LEN; i++) text[i] = "ab"[i & 1];
  OK(byte_bpe_encode(&b, text, LEN, &ids));
  assert_int_equal(ids.len, LEN / 2);
  ids_free(&ids);
  mem_free(text);
  byte_bpe_close(&b);
}

static void assert_json_refused(const char *merges, const char *model, const char *more,
                                const char *words) {
  ByteBpe b;
  assert_int_equal(read_json(&b, merges, model, more), ERR_WORK);
  assert_says(words);
  assert_null(b.vocab_);
}

static void test_tokenizer_json_of_another_form_is_refused(void **state) {
  (void)state;
  assert_json_refused("\"a x\"", "", "",
                      "tokenizer.json, merge 1: 'a' and 'x' cannot be merged");
  assert_json_refused("\"c a\"", "", "", "cannot be merged");
  assert_json_refused("7", "", "", "merge 1 is not a pair");
  assert_json_refused("[\"a\"]", "", "", "merge 1 is not a pair");
  assert_json_refused("\"ab\"", "", "", "merge 1 is not a pair");
  assert_json_refused("", "\"type\":\"Unigram\",", "", "another type");
  assert_json_refused("", "\"dropout\":0.1,", "", "dropout");
  assert_json_refused("", "\"end_of_word_suffix\":\"</w>\",", "", "suffix");
  assert_json_refused("", "\"byte_fallback\":true,", "", "byte_fallback");
  assert_json_refused("", "\"unk_token\":\"<none>\",", "", "\"unk_token\" is '<none>'");
  assert_json_refused("", "", "\"normalizer\":{\"type\":\"NFC\"},", "normalizer");
  assert_json_refused("", "", "\"added_tokens\":[{\"id\":9}],", "\"content\"");
  assert_json_refused("", "", "\"added_tokens\":[{\"id\":9,\"content\":\"a\"}],",
                      "'a' has the id 9, but 2");
  assert_json_refused("", "", "\"added_tokens\":[{\"id\":2,\"content\":\"x\"}],",
                      "have the same id 2");
  assert_json_refused("", "", "\"added_tokens\":[{\"id\":4000000,\"content\":\"x\"}],",
                      "most ids below 4000001 have no piece");
  assert_json_refused("", "",
                      "\"added_tokens\":[{\"id\":9,\"content\":\"x\",\"single_word\":true}],",
                      "single_word");
}

/* Reads a tokenizer.json with these members of "model" beside the vocabulary, and of the document. */
static void assert_members_refused(const char *model, const char *root, const char *words) {
  ByteBpe b;
  char json[1024];
  snprintf(json, sizeof json,
           "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},%s\"model\":{%s\"vocab\":{" VOCAB "}}}",
           root, model);
  assert_int_equal(byte_bpe_read(&b, json, strlen(json), "tokenizer.json"), ERR_WORK);
  assert_says(words);
  assert_null(b.vocab_);
}

static void test_tokenizer_json_without_its_lists_is_refused(void **state) {
  (void)state;
  assert_members_refused("", "", "no list \"merges\"");
  assert_members_refused("\"merges\":{},", "", "no list \"merges\"");
  assert_members_refused("\"merges\":[],", "\"added_tokens\":{},",
                         "\"added_tokens\" is not a list");
}

static void test_tokenizer_json_member_with_a_wrong_type_is_refused(void **state) {
  static const char *const token_flags[] = {"single_word", "lstrip", "rstrip", "normalized",
                                            "special"};
  ByteBpe b;
  char more[96], words[96];
  (void)state;
  assert_json_refused("", "\"type\":1,", "",
                      "tokenizer.json: \"type\" must be a string; copy the model again");
  assert_json_refused("", "\"end_of_word_suffix\":[],", "", "must be a string");
  assert_json_refused("", "\"unk_token\":3,", "", "\"unk_token\" must be a string");
  assert_json_refused("", "\"byte_fallback\":1,", "",
                      "tokenizer.json: \"byte_fallback\" must be true or false");
  assert_json_refused("", "\"dropout\":\"0.1\",", "", "\"dropout\" must be a number");
  for (size_t i = 0; i < sizeof token_flags / sizeof *token_flags; i++) {
    snprintf(more, sizeof more, "\"added_tokens\":[{\"id\":9,\"content\":\"x\",\"%s\":1}],",
             token_flags[i]);
    snprintf(words, sizeof words, "\"%s\" must be true or false", token_flags[i]);
    assert_json_refused("", "", more, words);
  }
  OK(read_json(&b, "", "\"type\":null,\"dropout\":null,\"fuse_unk\":null,", ""));
  byte_bpe_close(&b);
}

/* Reads a tokenizer.json with this member of the pre-tokenizer. */
static void assert_split_refused(const char *member, const char *words) {
  ByteBpe b;
  char json[1024];
  snprintf(json, sizeof json,
           "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",%s},\"model\":{\"merges\":[],"
           "\"vocab\":{" VOCAB "}}}",
           member);
  assert_int_equal(byte_bpe_read(&b, json, strlen(json), "tokenizer.json"), ERR_WORK);
  assert_says(words);
}

static void test_prefix_space_with_a_wrong_type_is_refused(void **state) {
  ByteBpe b;
  (void)state;
  assert_split_refused("\"add_prefix_space\":1",
                       "tokenizer.json: \"add_prefix_space\" must be true or false");
  assert_split_refused("\"use_regex\":0", "\"use_regex\" must be true or false");
  copy_files(FILES("vocab.json", "merges.txt"));
  write_file("t/tokenizer_config.json", "{\"add_prefix_space\": \"true\"}");
  assert_int_equal(byte_bpe_import(&b, at("t")), ERR_WORK);
  assert_says("t/tokenizer_config.json: \"add_prefix_space\" must be true or false");
  assert_null(b.vocab_);
}

/* Appends a tokenizer.json with an added token of n bytes. */
static void print_long_token(Str *json, size_t n) {
  str_add(
      json,
      "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":[{\"id\":9,\"content\":\"");
  for (size_t i = 0; i < n; i++) str_addc(json, 'x');
  str_add(json, "\"}],\"model\":{\"merges\":[],\"vocab\":{" VOCAB "}}}");
}

static void test_added_token_longer_than_a_piece_is_refused(void **state) {
  ByteBpe b;
  Str longest = {0}, longer = {0}, printed = {0};
  (void)state;
  print_long_token(&longest, 4096);
  print_long_token(&longer, 4097);
  assert_int_equal(byte_bpe_read(&b, longer.s, longer.len, "tokenizer.json"), ERR_WORK);
  assert_says("the added token with id 9 has more than 4096 bytes");
  /* What is read can be printed and read again. */
  OK(byte_bpe_read(&b, longest.s, longest.len, "tokenizer.json"));
  OK(byte_bpe_print(&b, &printed));
  byte_bpe_close(&b);
  OK(byte_bpe_read(&b, printed.s, printed.len, "printed"));
  byte_bpe_close(&b);
  str_free(&longest);
  str_free(&longer);
  str_free(&printed);
}

/* Reads a tokenizer.json of 80,000 pieces whose merges are n pairs. */
static Err read_many(ByteBpe *b, size_t pairs) {
  Str json = {0};
  str_add(&json, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"vocab\":{" VOCAB);
  for (int i = 0; i < 80000; i++) str_addf(&json, ",\"x%d\":%d", i, 9 + i);
  str_add(&json, "},\"merges\":[[\"a\",\"b\"]");
  for (size_t i = 1; i < pairs; i++) str_add(&json, ",[\"b\",\"c\"]");
  str_add(&json, "]}}");
  Err err = byte_bpe_read(b, json.s, json.len, "tokenizer.json");
  str_free(&json);
  return err;
}

static void test_large_vocabulary_with_merges_as_pairs_is_read(void **state) {
  ByteBpe b;
  (void)state;
  OK(read_many(&b, 80000));
  assert_int_equal(b.vocab, 80009);
  byte_bpe_close(&b);
  assert_int_equal(read_many(&b, 400000), ERR_WORK);
  assert_says("and at most 1048576 can be read");
}

static void assert_pair_refused(const char *vocab, const char *merges, const char *words) {
  ByteBpe b;
  copy_files((const char *const[]){NULL});
  if (vocab) write_file("t/vocab.json", vocab);
  if (merges) write_file("t/merges.txt", merges);
  assert_int_equal(byte_bpe_import(&b, at("t")), ERR_WORK);
  assert_says(words);
  assert_null(b.vocab_);
}

static void test_damaged_files_are_refused_with_their_place(void **state) {
  (void)state;
  assert_pair_refused(NULL, NULL, "neither tokenizer.json nor vocab.json with merges.txt");
  assert_pair_refused("{" VOCAB "}", NULL, "neither tokenizer.json nor");
  assert_pair_refused("{\"a\":", "", "vocab.json:1: not JSON");
  assert_pair_refused("[]", "", "vocab.json is not a JSON object");
  assert_pair_refused("{}", "", "has no vocabulary");
  assert_pair_refused("{\"a\":0}", "", "has no piece <s>");
  assert_pair_refused("{\"a\":-1}", "", "the id of 'a'");
  assert_pair_refused("{\"a\":\"1\"}", "", "the id of 'a'");
  assert_pair_refused("{\"a\":1,\"b\":1}", "", "'a' and 'b' have the same id 1");
  assert_pair_refused("{" VOCAB "}", "#version: 0.2\na b\nab\n",
                      "merges.txt, line 3 (byte 18): is not two pieces");
  assert_pair_refused("{" VOCAB "}", "a b c\n", "merges.txt, line 1: 'a' and 'b c'");
  assert_pair_refused("{" VOCAB "}", "a \xff\n", "line 1 (byte 0)");
  assert_pair_refused("{" VOCAB "}", " a\n", "line 1: '' and 'a'");
}

static void test_merges_end_with_crlf_or_nothing(void **state) {
  ByteBpe b;
  (void)state;
  copy_files((const char *const[]){NULL});
  write_file("t/vocab.json", "{" VOCAB "}");
  write_file("t/merges.txt", "#version: 0.2\r\na b\r\n\r\nab c");
  OK(byte_bpe_import(&b, at("t")));
  assert_ids(&b, "abc", IDS(7));
  byte_bpe_close(&b);
}

static void test_read_without_memory_fails_cleanly(void **state) {
  (void)state;
  for (uint64_t n = 1; n < 200; n++) {
    ByteBpe b;
    IdList ids = {0};
    mem_fail_after(n);
    Err err = byte_bpe_import(&b, GOLDEN "vocab.json");
    if (!err) err = byte_bpe_encode(&b, "the <mask> \xff", 12, &ids);
    mem_fail_after(0);
    bool is_done = err == ERR_OK;
    ids_free(&ids);
    byte_bpe_close(&b);
    if (is_done) return;
  }
  fail_msg("more than 200 allocations");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_vocab_and_merges_give_the_ids_of_hugging_face),
      cmocka_unit_test(test_prefix_space_gives_the_ids_of_hugging_face),
      cmocka_unit_test(test_tokenizer_json_gives_the_ids_of_hugging_face),
      cmocka_unit_test(test_specials_have_their_ids),
      cmocka_unit_test(test_printed_vocab_and_merges_are_the_files),
      cmocka_unit_test(test_merges_are_applied_by_rank_from_the_left),
      cmocka_unit_test(test_bytes_without_a_piece_are_left_out_or_unknown),
      cmocka_unit_test(test_bytes_that_are_not_utf8_are_removed),
      cmocka_unit_test(test_a_word_of_a_million_bytes_is_merged),
      cmocka_unit_test(test_tokenizer_json_of_another_form_is_refused),
      cmocka_unit_test(test_tokenizer_json_without_its_lists_is_refused),
      cmocka_unit_test(test_tokenizer_json_member_with_a_wrong_type_is_refused),
      cmocka_unit_test(test_prefix_space_with_a_wrong_type_is_refused),
      cmocka_unit_test(test_added_token_longer_than_a_piece_is_refused),
      cmocka_unit_test(test_large_vocabulary_with_merges_as_pairs_is_read),
      cmocka_unit_test(test_damaged_files_are_refused_with_their_place),
      cmocka_unit_test(test_merges_end_with_crlf_or_nothing),
      cmocka_unit_test(test_read_without_memory_fails_cleanly),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
