/* The word cache, and the checks of a tokenizer file before SentencePiece reads it. Depends on
 * text, cmocka. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "support.h"
#include "text/sp_facts.h"
#include "text/sp_rules.h"
#include "text/wordcache.h"

/* ---- word cache ---- */

static void test_wordcache_word_is_found_again(void **state) {
  (void)state;
  WordCache *cache;
  const int32_t ids[] = {4, 5, 6};
  size_t n = 0;
  OK(wordcache_new(&cache));
  wordcache_add(cache, "word", 4, 7, ids, 3);
  const int32_t *found = wordcache_find(cache, "word", 4, 7, &n);
  assert_non_null(found);
  assert_int_equal(n, 3);
  assert_memory_equal(found, ids, sizeof ids);
  wordcache_free(cache);
}

static void test_wordcache_300000_ids_are_not_remembered(void **state) {
  (void)state;
  enum { MANY = 300000 };
  WordCache *cache;
  int32_t *ids;
  size_t n = 0;
  OK(wordcache_new(&cache));
  OK(mem_alloc(&ids, MANY, sizeof *ids));
  /* more ids than one block of the cache can hold */
  wordcache_add(cache, "a", 1, 7, ids, MANY);
  assert_null(wordcache_find(cache, "a", 1, 7, &n));
  mem_free(ids);
  wordcache_free(cache);
}

static void test_wordcache_65537_ids_are_not_remembered_as_1(void **state) {
  (void)state;
  enum { MANY = UINT16_MAX + 2 };
  WordCache *cache;
  int32_t *ids;
  size_t n = 0;
  OK(wordcache_new(&cache));
  OK(mem_alloc(&ids, MANY, sizeof *ids));
  wordcache_add(cache, "a", 1, 7, ids, MANY);
  const int32_t *found = wordcache_find(cache, "a", 1, 7, &n);
  assert_true(!found || n == MANY);
  mem_free(ids);
  wordcache_free(cache);
}

/* ---- normalization rules ----
 * A trie of two blocks. The root's children are in the second block; "a" leads to a replacement,
 * whose offset is in the first block. */

enum {
  UNITS = 512,
  ROOT_BASE = 256,
  CHILD = ROOT_BASE ^ 'a',
  LEAF = 1,
  UNUSED_UNIT = 1u << 31
};

typedef struct {
  uint32_t size, unit[UNITS];
  char text[2048];
} Charsmap;

static uint32_t unit_to(uint32_t label, bool leaf, uint32_t from, uint32_t base) {
  return (from ^ base) << 10 | (uint32_t)leaf << 8 | label;
}

static void make_rules(Charsmap *c, size_t text_len) {
  *c = (Charsmap){.size = sizeof c->unit};
  for (size_t i = 0; i < UNITS; i++) c->unit[i] = UNUSED_UNIT;
  c->unit[0] = unit_to(0, false, 0, ROOT_BASE);
  c->unit[CHILD] = unit_to('a', true, CHILD, LEAF);
  c->unit[LEAF] = UNUSED_UNIT | 0; /* offset 0 of the replacement texts */
  memset(c->text, 'x', text_len);
}

static Err verify(const Charsmap *c, size_t text_bytes) {
  SpRules rules = {(const uint8_t *)c, 4 + sizeof c->unit + text_bytes, 0, "rules"};
  return sp_rules_verify(&rules);
}

static void assert_refused(const Charsmap *c, size_t text_bytes, const char *why) {
  assert_int_equal(verify(c, text_bytes), ERR_WORK);
  assert_says("rules is not a usable SentencePiece model");
  assert_says(why);
}

static void test_rules_whole_trie_is_accepted(void **state) {
  (void)state;
  Charsmap c;
  make_rules(&c, 3);
  OK(verify(&c, 4));
}

static void test_rules_wrong_size_is_refused(void **state) {
  (void)state;
  Charsmap c;
  static const uint32_t sizes[] = {0, 2, 2047, 4096, UINT32_MAX};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    make_rules(&c, 3);
    c.size = sizes[i];
    assert_refused(&c, 4, "size of the trie");
  }
}

static void test_rules_child_outside_is_refused(void **state) {
  (void)state;
  Charsmap c;
  make_rules(&c, 3);
  c.unit[CHILD] = unit_to('a', false, CHILD, UNITS);
  assert_refused(&c, 4, "outside the trie");
}

static void test_rules_cycle_is_refused(void **state) {
  (void)state;
  Charsmap c;
  make_rules(&c, 3);
  c.unit[CHILD] = unit_to('a', true, CHILD, ROOT_BASE);
  c.unit[ROOT_BASE] = UNUSED_UNIT | 0;
  assert_refused(&c, 4, "the trie has a cycle");
}

static void test_rules_text_outside_is_refused(void **state) {
  (void)state;
  Charsmap c;
  make_rules(&c, 3);
  c.unit[LEAF] = UNUSED_UNIT | 4;
  assert_refused(&c, 4, "outside");
}

static void test_rules_text_without_end_is_refused(void **state) {
  (void)state;
  Charsmap c;
  make_rules(&c, 3);
  assert_refused(&c, 3, "no end");
}

static void test_rules_text_of_1025_bytes_is_refused(void **state) {
  (void)state;
  Charsmap c;
  make_rules(&c, SP_RULE_LIMIT);
  OK(verify(&c, sizeof c.text));
  make_rules(&c, SP_RULE_LIMIT + 1);
  assert_refused(&c, sizeof c.text, "longer than");
}

/* Rules for "a", "aa", …: the children of each are in a block of their own. */
static void test_rules_33_matches_at_one_position_are_refused(void **state) {
  (void)state;
  enum { BLOCKS = 36 };
  static struct {
    uint32_t size, unit[BLOCKS * 256];
    char text[4];
  } c;
  for (uint32_t rules = 32; rules <= 33; rules++) {
    c.size = sizeof c.unit;
    for (int i = 0; i < BLOCKS * 256; i++) c.unit[i] = UNUSED_UNIT;
    uint32_t from = 0, label = 0;
    for (uint32_t k = 0; k <= rules; k++) {
      uint32_t base = 256 * (k + 1);
      c.unit[from] = unit_to(label, k > 0, from, base);
      label = 'a';
      from = base ^ 'a';
    }
    SpRules all = {(const uint8_t *)&c, sizeof c, 0, "rules"};
    assert_int_equal(sp_rules_verify(&all), rules > 32 ? ERR_WORK : ERR_OK);
  }
  assert_says("more than 32 rules match at one position");
}

/* ---- vocabulary pieces ---- */

static void add_field(Str *s, int number, const void *bytes, size_t len) {
  str_addc(s, (char)(number << 3 | 2));
  if (len >= 128) str_addc(s, (char)((len & 127) | 128));
  str_addc(s, (char)(len >= 128 ? len >> 7 : len));
  str_addn(s, bytes, len);
}

static void add_piece(Str *model, const char *text, size_t len, int type, float score) {
  Str piece = {0};
  add_field(&piece, 1, text, len);
  str_addc(&piece, 2 << 3 | 5);
  str_addn(&piece, (const char *)&score, 4);
  str_addc(&piece, 3 << 3);
  str_addc(&piece, (char)type);
  add_field(model, 1, piece.s, piece.len);
  str_free(&piece);
}

static void begin_model(Str *model) {
  *model = (Str){0};
  add_piece(model, "<unk>", 5, 2, 0);
  add_piece(model, "<s>", 3, 3, 0);
  add_piece(model, "</s>", 4, 3, 0);
}

static void assert_model(Str *model, const char *why) {
  SpFacts facts;
  Err err = sp_facts(&facts, model->s, model->len, "a model");
  assert_int_equal(err, why ? ERR_WORK : ERR_OK);
  if (why) assert_says(why);
  str_free(model);
}

static void test_pieces_valid_are_accepted(void **state) {
  (void)state;
  Str model;
  begin_model(&model);
  add_piece(&model, "a", 1, 1, -1);
  assert_model(&model, NULL);
}

static void test_pieces_empty_one_is_refused(void **state) {
  (void)state;
  Str model;
  begin_model(&model);
  add_piece(&model, "", 0, 1, -1);
  assert_model(&model, "piece 3 is empty");
}

static void test_pieces_nul_is_refused(void **state) {
  (void)state;
  Str model;
  begin_model(&model);
  add_piece(&model, "a\0b", 3, 1, -1);
  assert_model(&model, "piece 3 holds a NUL");
}

static void test_pieces_nan_score_is_refused(void **state) {
  (void)state;
  Str model;
  begin_model(&model);
  add_piece(&model, "a", 1, 1, NAN);
  assert_model(&model, "piece 3 has a score that is not finite");
}

static void test_pieces_unknown_type_is_refused(void **state) {
  (void)state;
  Str model;
  begin_model(&model);
  add_piece(&model, "a", 1, 7, 0);
  assert_model(&model, "piece 3 is of an unknown type");
}

static void test_pieces_second_unknown_is_refused(void **state) {
  (void)state;
  Str model;
  begin_model(&model);
  add_piece(&model, "a", 1, 2, 0);
  assert_model(&model, "second unknown piece");
}

static void test_pieces_65_user_defined_matches_are_refused(void **state) {
  (void)state;
  char text[65];
  memset(text, 'a', sizeof text);
  for (size_t most = 64; most <= 65; most++) {
    Str model;
    begin_model(&model);
    for (size_t n = 1; n <= most; n++) add_piece(&model, text, n, 4, 0);
    add_piece(&model, "b", 1, 4, 0);
    assert_model(&model, most > 64 ? "prefixes of one another" : NULL);
  }
}

static void test_pieces_eos_outside_is_refused(void **state) {
  (void)state;
  /* protocol buffer field eos_id = 9 */
  static const char trainer[] = {(char)0xd0, 0x02, 0x09};
  Str model;
  begin_model(&model);
  add_field(&model, 2, trainer, sizeof trainer);
  assert_model(&model, "eos_id 9 is outside");
}

static void test_model_two_normalizers_are_refused(void **state) {
  (void)state;
  Str model;
  begin_model(&model);
  add_field(&model, 3, "", 0);
  add_field(&model, 3, "", 0);
  assert_model(&model, "damaged at byte");
}

/* The rules of the denormalizer (field 5) are checked like those of the normalizer (field 3); other
 * fields of both are skipped. */
static void test_model_denormalizer_rules_are_checked(void **state) {
  (void)state;
  static Charsmap c;
  const size_t whole = 4 + sizeof c.unit + 4;
  static const char number[] = {3 << 3, 1}, name[] = "name";
  make_rules(&c, 3);
  for (int part = 3; part <= 5; part += 2) {
    for (int is_whole = 0; is_whole < 2; is_whole++) {
      Str model, spec = {0};
      begin_model(&model);
      add_field(&spec, 1, name, 4);
      str_addn(&spec, number, 2);
      add_field(&spec, 2, &c, is_whole ? whole : whole - 1); /* without the last NUL */
      add_field(&model, part, spec.s, spec.len);
      assert_model(&model, is_whole ? NULL : "is not a usable SentencePiece model");
      str_free(&spec);
    }
  }
}

static void test_model_denormalizer_that_is_truncated_is_refused(void **state) {
  (void)state;
  static const char spec[] = {2 << 3 | 2, 9, 'x'}; /* has 1 of 9 bytes */
  Str model;
  begin_model(&model);
  add_field(&model, 5, spec, sizeof spec);
  assert_model(&model, "damaged at byte");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wordcache_word_is_found_again),
      cmocka_unit_test(test_wordcache_300000_ids_are_not_remembered),
      cmocka_unit_test(test_wordcache_65537_ids_are_not_remembered_as_1),
      cmocka_unit_test(test_rules_whole_trie_is_accepted),
      cmocka_unit_test(test_rules_wrong_size_is_refused),
      cmocka_unit_test(test_rules_child_outside_is_refused),
      cmocka_unit_test(test_rules_cycle_is_refused),
      cmocka_unit_test(test_rules_text_outside_is_refused),
      cmocka_unit_test(test_rules_text_without_end_is_refused),
      cmocka_unit_test(test_rules_text_of_1025_bytes_is_refused),
      cmocka_unit_test(test_rules_33_matches_at_one_position_are_refused),
      cmocka_unit_test(test_pieces_valid_are_accepted),
      cmocka_unit_test(test_pieces_empty_one_is_refused),
      cmocka_unit_test(test_pieces_nul_is_refused),
      cmocka_unit_test(test_pieces_nan_score_is_refused),
      cmocka_unit_test(test_pieces_unknown_type_is_refused),
      cmocka_unit_test(test_pieces_second_unknown_is_refused),
      cmocka_unit_test(test_pieces_65_user_defined_matches_are_refused),
      cmocka_unit_test(test_pieces_eos_outside_is_refused),
      cmocka_unit_test(test_model_two_normalizers_are_refused),
      cmocka_unit_test(test_model_denormalizer_rules_are_checked),
      cmocka_unit_test(test_model_denormalizer_that_is_truncated_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
