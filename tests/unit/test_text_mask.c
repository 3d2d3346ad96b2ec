/* Masking of tokens: rates, determinism, special tokens, and masked batches. Depends on data, cmocka. */
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/prepare_classify.h"
#include "data/text_loader.h"
#include "support.h"

enum { PAD, UNK, CLS, SEP, MASK, WORDS, VOCAB = 1000, TOKENS = 100, TEXTS = 1000 };

static TextMask begin_mask(double rate) {
  MetaClassify c = {.mask = MASK, .kind = LABEL_NONE};
  Meta meta = {.vocab = VOCAB, .pad = PAD, .unk = UNK, .bos = CLS, .eos = SEP, .classify = &c};
  TextMask m;
  text_mask_begin(&m, &meta, rate);
  return m;
}

/* Fills a text with [CLS], words and [SEP]. */
static void write_text(int32_t *id, uint64_t number, uint32_t tokens) {
  for (uint32_t i = 0; i < tokens; i++)
    id[i] = WORDS + (int32_t)(rng_mix(number, i) % (VOCAB - WORDS));
  id[0] = CLS;
  id[tokens - 1] = SEP;
}

typedef struct {
  uint32_t chosen, masked, kept, random;
} Counts;

static Counts count_masks(uint64_t seed) {
  TextMask m = begin_mask(0.15);
  Counts n = {0};
  for (uint64_t k = 0; k < TEXTS; k++) {
    int32_t id[TOKENS], row[TOKENS], true_id[TOKENS];
    write_text(id, k, TOKENS);
    MaskedText text = {.number = k, .id = id, .tokens = TOKENS};
    uint32_t chosen =
        text_mask_apply(&m, text_mask_key(seed, SPLIT_TRAIN, 0), &text, row, true_id);
    n.chosen += chosen;
    for (uint32_t i = 0; i < chosen; i++) {
      n.masked += id[row[i]] == MASK;
      n.kept += id[row[i]] == true_id[i];
      n.random += id[row[i]] != MASK && id[row[i]] != true_id[i];
    }
  }
  return n;
}

static void assert_share(uint32_t count, uint32_t of, double share) {
  double got = (double)count / of;
  if (got < 0.95 * share || got > 1.05 * share)
    fail_msg("share %g, expected %g within 5 %%", got, share);
}

static void test_mask_rates_are_those_of_bert(void **state) {
  (void)state;
  Counts n = count_masks(1);
  assert_share(n.chosen, TEXTS * (TOKENS - 2), 0.15);
  assert_share(n.masked, n.chosen, 0.8);
  assert_share(n.kept, n.chosen, 0.1);
  assert_share(n.random, n.chosen, 0.1);
}

static void test_mask_leaves_special_tokens_and_true_ids(void **state) {
  (void)state;
  TextMask m = begin_mask(0.9);
  int32_t id[8] = {CLS, 50, UNK, MASK, 60, PAD, 70, SEP}, row[8], true_id[8];
  const int32_t before[8] = {CLS, 50, UNK, MASK, 60, PAD, 70, SEP};
  MaskedText text = {.number = 3, .id = id, .tokens = 8, .row = 100};
  uint32_t n = text_mask_apply(&m, 1, &text, row, true_id);
  assert_true(n >= 1 && n <= 3);
  for (uint32_t i = 0; i < n; i++) {
    int32_t k = row[i] - 100;
    assert_true(k == 1 || k == 4 || k == 6);
    assert_int_equal(true_id[i], before[k]);
    if (i) assert_true(row[i] > row[i - 1]);
  }
  assert_int_equal(id[0], CLS);
  assert_int_equal(id[2], UNK);
  assert_int_equal(id[3], MASK);
  assert_int_equal(id[5], PAD);
  assert_int_equal(id[7], SEP);
}

static void test_mask_chooses_one_token_at_least(void **state) {
  (void)state;
  TextMask m = begin_mask(1e-9);
  for (uint64_t k = 0; k < 100; k++) {
    int32_t id[5], row[5], true_id[5];
    write_text(id, k, 5);
    MaskedText text = {.number = k, .id = id, .tokens = 5};
    assert_int_equal(text_mask_apply(&m, 1, &text, row, true_id), 1);
    assert_between(row[0], 1, 3);
  }
}

static void test_mask_of_special_tokens_alone_is_empty(void **state) {
  (void)state;
  TextMask m = begin_mask(0.5);
  int32_t id[3] = {CLS, UNK, SEP}, row[3], true_id[3];
  MaskedText text = {.id = id, .tokens = 3};
  assert_int_equal(text_mask_apply(&m, 1, &text, row, true_id), 0);
}

/* Returns a hash of all masks of a text. */
static uint64_t hash_masks(uint64_t key, uint64_t number, uint32_t tokens) {
  TextMask m = begin_mask(0.15);
  int32_t id[TOKENS], row[TOKENS], true_id[TOKENS];
  write_text(id, 7, tokens);
  MaskedText text = {.number = number, .id = id, .tokens = tokens};
  text_mask_apply(&m, key, &text, row, true_id);
  return rng_hash(id, tokens * sizeof *id, 0);
}

static void test_mask_depends_on_seed_epoch_split_and_text(void **state) {
  (void)state;
  uint64_t key = text_mask_key(1, SPLIT_TRAIN, 0), same = hash_masks(key, 5, TOKENS);
  assert_true(same == hash_masks(text_mask_key(1, SPLIT_TRAIN, 0), 5, TOKENS));
  assert_true(same != hash_masks(text_mask_key(2, SPLIT_TRAIN, 0), 5, TOKENS));
  assert_true(same != hash_masks(text_mask_key(1, SPLIT_TRAIN, 1), 5, TOKENS));
  assert_true(same != hash_masks(text_mask_key(1, SPLIT_VALID, 0), 5, TOKENS));
  assert_true(same != hash_masks(key, 6, TOKENS));
}

/* ---- batches ---- */

static char set[FILE_PATH_MAX];

/* Prepares 40 lines of plain text, 10 of them for validation. */
static int make_set(void **state) {
  char input[FILE_PATH_MAX], vocab[FILE_PATH_MAX];
  Str lines = {0}, pieces = {0};
  if (make_scratch(state)) return -1;
  snprintf(input, sizeof input, "%s", at("lines.txt"));
  snprintf(vocab, sizeof vocab, "%s", at("vocab.txt"));
  snprintf(set, sizeof set, "%s", at("set"));
  for (int i = 0; i < 40; i++)
    for (int k = 0; k <= i % 9; k++)
      str_addf(&lines, "%c%s", 'a' + (i + k) % 6, k == i % 9 ? "\n" : " ");
  str_add(&pieces, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\n");
  OK(file_write(input, str_text(&lines), lines.len));
  OK(file_write(vocab, str_text(&pieces), pieces.len));
  const char *inputs[] = {input};
  ClassifySpec spec = {.out = set,
                       .input = {inputs},
                       .inputs = {1},
                       .share = {[SPLIT_VALID] = 0.25},
                       .texts = 1,
                       .labels = {.kind = LABEL_NONE},
                       .tokenizer = vocab,
                       .tokenizer_kind = TEXT_WORDPIECE,
                       .max_tokens = 8,
                       .seed = 1,
                       .shard_bytes = 4096,
                       .threads = 1};
  Meta meta;
  OK(prepare_classify(&spec, &meta));
  meta_free(&meta);
  str_free(&lines);
  str_free(&pieces);
  return 0;
}

static void test_masked_batch_restores_the_text(void **state) {
  (void)state;
  DataSet d;
  OrderPlan plan;
  TextBuffer plain, masked;
  OK(dataset_open_unlabeled(&d, set));
  OK(order_plan(&plan, &d.order, 64));
  OK(text_buffer_new(&plain, &d, plan.capacity, plan.most_sentences));
  OK(text_buffer_new(&masked, &d, plan.capacity, plan.most_sentences));
  OK(text_buffer_mask(&masked, &d, 0.15));
  for (uint64_t i = 0; i < plan.batches; i++) {
    OK(text_buffer_fill(&plain, &d, &plan, 1, 2, i));
    OK(text_buffer_fill(&masked, &d, &plan, 1, 2, i));
    const TextBatch *b = &masked.batch;
    assert_int_equal(plain.batch.masked, 0);
    assert_true(b->masked >= b->texts && !b->target);
    for (uint32_t k = 0; k < b->masked; k++) masked.id[b->masked_at[k]] = b->masked_id[k];
    assert_memory_equal(plain.id, masked.id, b->tokens * sizeof *plain.id);
  }
  text_buffer_free(&plain);
  text_buffer_free(&masked);
  order_plan_free(&plan);
  dataset_close(&d);
}

static void test_validation_masks_are_always_the_same(void **state) {
  (void)state;
  DataSet d;
  TextBuffer wide, narrow;
  uint64_t next = 0, other = 0;
  OK(dataset_open_unlabeled(&d, set));
  OK(text_buffer_new(&wide, &d, 1000, 1000));
  OK(text_buffer_new(&narrow, &d, 8, 8));
  OK(text_buffer_mask(&wide, &d, 0.15));
  OK(text_buffer_mask(&narrow, &d, 0.15));
  OK(text_buffer_fill_from(&wide, &d, SPLIT_VALID, &next));
  uint32_t tokens = 0, chosen = 0;
  while (other < d.meta.split[SPLIT_VALID].pairs) {
    OK(text_buffer_fill_from(&narrow, &d, SPLIT_VALID, &other));
    assert_memory_equal(wide.id + tokens, narrow.id, narrow.batch.tokens * sizeof *wide.id);
    tokens += narrow.batch.tokens;
    chosen += narrow.batch.masked;
  }
  assert_int_equal(tokens, wide.batch.tokens);
  assert_int_equal(chosen, wide.batch.masked);
  text_buffer_free(&wide);
  text_buffer_free(&narrow);
  dataset_close(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_mask_rates_are_those_of_bert),
      cmocka_unit_test(test_mask_leaves_special_tokens_and_true_ids),
      cmocka_unit_test(test_mask_chooses_one_token_at_least),
      cmocka_unit_test(test_mask_of_special_tokens_alone_is_empty),
      cmocka_unit_test(test_mask_depends_on_seed_epoch_split_and_text),
      cmocka_unit_test(test_masked_batch_restores_the_text),
      cmocka_unit_test(test_validation_masks_are_always_the_same),
  };
  return cmocka_run_group_tests(tests, make_set, remove_scratch);
}
