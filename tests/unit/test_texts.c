/* Data sets of labeled texts: labels, stratified split, cutting, and packed batches. Depends on data,
 * cmocka. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/prepare_classify.h"
#include "data/text_loader.h"
#include "data/text_shard.h"
#include "data/text_split.h"
#include "support.h"

/* ---- labels ---- */

static Err read_label(TextLabels *l, const char *text) {
  TableField field = {text, strlen(text)};
  return text_labels_read(l, &field);
}

static const char *const one_column[] = {"class"};
static const LabelSpec class_spec = {.kind = LABEL_CLASS, .column = one_column, .columns = 1};

static void test_labels_of_numbers_are_sorted_by_value(void **state) {
  (void)state;
  TextLabels l;
  OK(text_labels_begin(&l, &class_spec));
  OK(read_label(&l, "10"));
  OK(read_label(&l, " 9 "));
  OK(read_label(&l, "-1"));
  OK(text_labels_close(&l));
  assert_int_equal(l.labels, 3);
  assert_string_equal(l.name[0], "-1");
  assert_string_equal(l.name[1], "9");
  assert_string_equal(l.name[2], "10");
  OK(read_label(&l, "10"));
  assert_int_equal(l.label, 2);
  text_labels_free(&l);
}

static void test_labels_with_names_are_sorted_by_bytes(void **state) {
  (void)state;
  TextLabels l;
  Str text = {0};
  OK(text_labels_begin(&l, &class_spec));
  OK(read_label(&l, "b"));
  OK(read_label(&l, "10"));
  OK(read_label(&l, "9"));
  OK(text_labels_close(&l));
  text_labels_print(&l, &text);
  assert_string_equal(str_text(&text), "10\n9\nb\n");
  str_free(&text);
  text_labels_free(&l);
}

static void test_label_that_training_lacks_is_refused(void **state) {
  (void)state;
  TextLabels l;
  OK(text_labels_begin(&l, &class_spec));
  OK(read_label(&l, "no"));
  OK(read_label(&l, "yes"));
  OK(text_labels_close(&l));
  assert_int_equal(read_label(&l, "maybe"), ERR_WORK);
  assert_says("'maybe' does not occur in the training text, whose classes are no, yes");
  text_labels_free(&l);
}

static void test_label_one_class_alone_is_refused(void **state) {
  (void)state;
  TextLabels l;
  OK(text_labels_begin(&l, &class_spec));
  OK(read_label(&l, "no"));
  OK(read_label(&l, "no"));
  assert_int_equal(text_labels_close(&l), ERR_WORK);
  assert_says("one class alone, 'no'");
  text_labels_free(&l);
}

static void test_label_empty_is_refused(void **state) {
  (void)state;
  TextLabels l;
  OK(text_labels_begin(&l, &class_spec));
  assert_int_equal(read_label(&l, " "), ERR_WORK);
  assert_says("column 'class' is empty");
  text_labels_free(&l);
}

static void test_label_threshold_includes_itself(void **state) {
  (void)state;
  LabelSpec spec = class_spec;
  TextLabels l;
  spec.has_threshold = true;
  spec.threshold = 0.5;
  OK(text_labels_begin(&l, &spec));
  OK(read_label(&l, "0.5"));
  assert_int_equal(l.label, 1);
  OK(read_label(&l, "0.4999"));
  assert_int_equal(l.label, 0);
  assert_int_equal(read_label(&l, "nan"), ERR_WORK);
  assert_says("'nan' in column 'class' is not a number");
  OK(text_labels_close(&l));
  assert_int_equal(l.labels, 2);
  text_labels_free(&l);
}

static void test_label_threshold_with_all_rows_above_is_refused(void **state) {
  (void)state;
  LabelSpec spec = class_spec;
  TextLabels l;
  spec.has_threshold = true;
  OK(text_labels_begin(&l, &spec));
  OK(read_label(&l, "3"));
  assert_int_equal(text_labels_close(&l), ERR_WORK);
  assert_says("all labels of the training text are 1");
  assert_says("pass another --label-threshold");
  text_labels_free(&l);
}

static void test_labels_multi_takes_flags_and_missing(void **state) {
  (void)state;
  static const char *const columns[] = {"a", "b", "c"};
  LabelSpec spec = {.kind = LABEL_MULTI, .column = columns, .columns = 3};
  TableField row[3] = {{"1", 1}, {"", 0}, {"FALSE", 5}},
             bad[3] = {{"1", 1}, {"0.3", 3}, {"0", 1}};
  TextLabels l;
  OK(text_labels_begin(&l, &spec));
  OK(text_labels_read(&l, row));
  assert_true(l.value[0] == 1 && isnan(l.value[1]) && l.value[2] == 0);
  assert_int_equal(text_labels_read(&l, bad), ERR_WORK);
  assert_says("'0.3' in column 'b' is neither 0 nor 1");
  OK(text_labels_close(&l));
  assert_string_equal(l.name[2], "c");
  text_labels_free(&l);
}

/* ---- split ---- */

enum { ROWS = 10000 };

/* Splits rows of three strata with 70 %, 29.99 % and a single row. */
static void split_rows(uint32_t *stratum, uint8_t *part, double share, uint64_t seed) {
  for (uint32_t i = 0; i < ROWS; i++) {
    stratum[i] = i % 10 < 3;
    part[i] = SPLIT_TRAIN;
  }
  stratum[5000] = 2;
  OK(text_split(stratum, part, ROWS, share, seed, SPLIT_VALID));
}

static void test_split_takes_the_share_of_every_stratum(void **state) {
  (void)state;
  uint32_t *stratum;
  uint8_t *part;
  size_t taken[3] = {0};
  OK(mem_alloc(&stratum, ROWS, sizeof *stratum));
  OK(mem_alloc(&part, ROWS, 1));
  split_rows(stratum, part, 0.1, 1);
  for (size_t i = 0; i < ROWS; i++) taken[stratum[i]] += part[i] == SPLIT_VALID;
  assert_between(taken[0], 699, 701);
  assert_between(taken[1], 299, 301);
  assert_int_equal(taken[0] + taken[1], 1000);
  assert_int_equal(taken[2], 0); /* its only row stays in training */
  mem_free(stratum);
  mem_free(part);
}

static void test_split_depends_on_seed_alone(void **state) {
  (void)state;
  uint32_t *stratum;
  uint8_t *part[3];
  OK(mem_alloc(&stratum, ROWS, sizeof *stratum));
  for (int i = 0; i < 3; i++) {
    OK(mem_alloc(&part[i], ROWS, 1));
    split_rows(stratum, part[i], 0.2, i < 2 ? 7 : 8);
  }
  assert_memory_equal(part[0], part[1], ROWS);
  assert_memory_not_equal(part[0], part[2], ROWS);
  for (int i = 0; i < 3; i++) mem_free(part[i]);
  mem_free(stratum);
}

static void test_split_leaves_a_row_of_every_stratum(void **state) {
  (void)state;
  uint32_t stratum[40];
  uint8_t part[40] = {0};
  bool is_left[20] = {false};
  for (uint32_t i = 0; i < 40; i++) stratum[i] = i / 2;
  OK(text_split(stratum, part, 40, 0.25, 3, SPLIT_VALID));
  OK(text_split(stratum, part, 40, 0.25 / 0.75, 3, SPLIT_TEST));
  for (uint32_t i = 0; i < 40; i++)
    if (part[i] == SPLIT_TRAIN) is_left[stratum[i]] = true;
  for (int i = 0; i < 20; i++) assert_true(is_left[i]);
}

/* ---- encoder ---- */

static const char vocab[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\ng\nh\n##a\n##b\n";
enum { UNK = 1, CLS, SEP, MASK, A, B, C, D, E, F, G, H };

static void open_encoder(TextEncoder *e) {
  OK(file_write(at("vocab.txt"), vocab, sizeof vocab - 1));
  OK(text_encoder_open(e, at("vocab.txt"), TEXT_WORDPIECE, (BertRules){0}));
}

static void assert_ids(const EncodedText *t, const int32_t *want, size_t n) {
  assert_int_equal(t->ids.len, n);
  assert_memory_equal(t->ids.id, want, n * sizeof *want);
}
#define ASSERT_IDS(t, ...)                                \
  do {                                                    \
    const int32_t want_[] = {__VA_ARGS__};                \
    assert_ids((t), want_, sizeof want_ / sizeof *want_); \
  } while (0)

static void test_encode_text_is_cut_at_its_end(void **state) {
  (void)state;
  TextEncoder e;
  EncodedText t = {0};
  TableField text = {"a b c d", 7}, empty = {"", 0};
  open_encoder(&e);
  OK(text_encode(&e, &text, 1, 6, &t));
  ASSERT_IDS(&t, CLS, A, B, C, D, SEP);
  assert_false(t.is_cut);
  OK(text_encode(&e, &text, 1, 5, &t));
  ASSERT_IDS(&t, CLS, A, B, C, SEP);
  assert_true(t.is_cut);
  OK(text_encode(&e, &empty, 1, 5, &t));
  ASSERT_IDS(&t, CLS, SEP);
  assert_true(t.is_empty);
  encoded_text_free(&t);
  text_encoder_close(&e);
}

/* The expected ids are those of Hugging Face tokenizers 0.22, truncation longest_first. */
static void test_encode_pair_loses_tokens_of_the_longer_text(void **state) {
  (void)state;
  TextEncoder e;
  EncodedText t = {0};
  TableField text[2] = {{"a b c d", 7}, {"e f", 3}}, turned[2] = {text[1], text[0]};
  TableField equal[2] = {{"a b c d", 7}, {"e f g h", 7}};
  open_encoder(&e);
  OK(text_encode(&e, text, 2, 8, &t));
  ASSERT_IDS(&t, CLS, A, B, C, SEP, E, F, SEP);
  assert_int_equal(t.first, 5);
  OK(text_encode(&e, turned, 2, 8, &t));
  ASSERT_IDS(&t, CLS, E, F, SEP, A, B, C, SEP);
  assert_int_equal(t.first, 4);
  OK(text_encode(&e, equal, 2, 8, &t));
  ASSERT_IDS(&t, CLS, A, B, SEP, E, F, G, SEP);
  OK(text_encode(&e, text, 2, 6, &t));
  ASSERT_IDS(&t, CLS, A, B, SEP, E, SEP);
  OK(text_encode(&e, text, 2, 5, &t));
  ASSERT_IDS(&t, CLS, A, SEP, E, SEP);
  encoded_text_free(&t);
  text_encoder_close(&e);
}

/* The expected ids are those of RobertaTokenizer of transformers, truncation longest_first. */
static void test_encode_pair_of_roberta_has_two_separators(void **state) {
  enum { BYTE_CLS, BYTE_SEP, BYTE_A, BYTE_B, BYTE_C };
  static const char pieces[] = "{\"<s>\":0,\"</s>\":1,\"a\":2,\"b\":3,\"c\":4}";
  (void)state;
  TextEncoder e;
  EncodedText t = {0};
  TableField text[2] = {{"abc", 3}, {"cb", 2}};
  OK(file_write(at("vocab.json"), pieces, sizeof pieces - 1));
  OK(file_write(at("merges.txt"), "", 0));
  OK(text_encoder_copy(at("vocab.json"), TEXT_BYTE_BPE, at("tokenizer.json")));
  OK(text_encoder_open(&e, at("tokenizer.json"), TEXT_BYTE_BPE, (BertRules){0}));
  assert_string_equal(e.type, "byte-bpe");
  OK(text_encode(&e, text, 2, 9, &t));
  ASSERT_IDS(&t, BYTE_CLS, BYTE_A, BYTE_B, BYTE_C, BYTE_SEP, BYTE_SEP, BYTE_C, BYTE_B,
             BYTE_SEP);
  assert_int_equal(t.first, 5);
  OK(text_encode(&e, text, 2, 7, &t));
  ASSERT_IDS(&t, BYTE_CLS, BYTE_A, BYTE_B, BYTE_SEP, BYTE_SEP, BYTE_C, BYTE_SEP);
  OK(text_encode(&e, text, 1, 9, &t));
  ASSERT_IDS(&t, BYTE_CLS, BYTE_A, BYTE_B, BYTE_C, BYTE_SEP);
  encoded_text_free(&t);
  text_encoder_close(&e);
}

static void test_casing_of_vocabulary_is_found(void **state) {
  (void)state;
  BertRules rules;
  OK(file_write(at("lower.txt"), vocab, sizeof vocab - 1));
  OK(text_encoder_find_rules(at("lower.txt"), &rules));
  assert_true(rules.is_lower && rules.strips_accents);
  static const char cased[] = "[UNK]\n[CLS]\n[SEP]\nThe\n";
  OK(file_write(at("cased.txt"), cased, sizeof cased - 1));
  OK(text_encoder_find_rules(at("cased.txt"), &rules));
  assert_false(rules.is_lower || rules.strips_accents);
}

/* ---- data sets ---- */

/* Writes a table of `rows` pairs: text a with 0 to 12 words, text b with one word, three labels. */
static void write_table(const char *path, int rows) {
  Rng rng = {.key = 5};
  Str text = {0};
  str_add(&text, "a,b,x,y,class\n");
  for (int i = 0; i < rows; i++) {
    uint64_t words = rng_below(&rng, 13);
    str_add(&text, "\"");
    for (uint64_t k = 0; k < words; k++)
      str_addf(&text, "%c ", (char)('a' + rng_below(&rng, 8)));
    str_addf(&text, "\",%c,%d,%s,%s\n", 'a' + i % 8, i % 2,
             i % 7 == 0 ? ""
             : i % 3    ? "0"
                        : "1",
             i % 5 ? "no" : "yes");
  }
  OK(str_check(&text));
  OK(file_write(path, text.s, text.len));
  str_free(&text);
}

static const char *const pair_columns[] = {"a", "b"};
static const char *const multi_columns[] = {"x", "y"};

static ClassifySpec make_spec(const char *out) {
  static const char *input[1];
  static char path[FILE_PATH_MAX];
  snprintf(path, sizeof path, "%s", at("table.csv"));
  input[0] = path;
  ClassifySpec s = {.out = out, .text_column = pair_columns, .texts = 2};
  s.input[SPLIT_TRAIN] = input;
  s.inputs[SPLIT_TRAIN] = 1;
  s.labels = (LabelSpec){.kind = LABEL_MULTI, .column = multi_columns, .columns = 2};
  s.max_tokens = 12;
  s.seed = 3;
  s.shard_bytes = 4096;
  s.threads = 2;
  return s;
}

static void prepare_set(const char *name, double share) {
  Meta meta;
  char words[FILE_PATH_MAX], out[FILE_PATH_MAX];
  snprintf(out, sizeof out, "%s", at(name));
  write_table(at("table.csv"), 3000);
  OK(file_write(at("vocab.txt"), vocab, sizeof vocab - 1));
  snprintf(words, sizeof words, "%s", at("vocab.txt"));
  ClassifySpec s = make_spec(out);
  s.tokenizer = words;
  s.share[SPLIT_VALID] = share;
  OK(prepare_classify(&s, &meta));
  meta_free(&meta);
}

static int make_set(void **state) {
  if (make_scratch(state)) return -1;
  prepare_set("set", 0.1);
  return 0;
}

static void open_set(DataSet *d, OrderPlan *plan) {
  OK(dataset_open_texts(d, at("set")));
  OK(order_plan(plan, &d->order, 128));
}

static void close_set(DataSet *d, OrderPlan *plan) {
  order_plan_free(plan);
  dataset_close(d);
}

static void test_set_of_texts_has_many_shards_and_passes_verify(void **state) {
  (void)state;
  DataSet d;
  OK(dataset_open_texts(&d, at("set")));
  assert_true(d.meta.split[SPLIT_TRAIN].shards > 3);
  assert_int_equal(d.meta.split[SPLIT_TRAIN].pairs + d.meta.split[SPLIT_VALID].pairs, 3000);
  assert_between(d.meta.split[SPLIT_VALID].pairs, 299, 301);
  OK(dataset_verify(&d));
  dataset_close(&d);
}

static void test_set_of_texts_is_refused_by_translation(void **state) {
  (void)state;
  DataSet d;
  assert_int_equal(dataset_open(&d, at("set")), ERR_WORK);
  assert_says("is a data set for the task classify, not for translate");
}

static void check_batch(const TextBuffer *b) {
  const TextBatch *t = &b->batch;
  assert_true(t->tokens <= b->capacity);
  assert_int_equal(t->off[0], 0);
  assert_int_equal(t->off[t->texts], t->tokens);
  for (uint32_t k = 0; k < t->texts; k++) {
    int32_t begin = t->off[k], end = t->off[k + 1];
    int seps = 0;
    assert_int_equal(t->id[begin], CLS);
    assert_int_equal(t->id[end - 1], SEP);
    for (int32_t i = begin; i < end; i++) {
      assert_int_equal(t->position[i], i - begin);
      assert_int_equal(t->segment[i], seps);
      seps += t->id[i] == SEP;
    }
    assert_int_equal(seps, 2);
    for (size_t j = 0; j < 2; j++) {
      float v = t->target[2 * k + j];
      assert_true(v == 0 || v == 1 || isnan(v));
    }
  }
}

static void test_epoch_has_every_text_once(void **state) {
  (void)state;
  DataSet d;
  OrderPlan plan;
  TextBuffer b;
  uint8_t *seen;
  uint64_t tokens = 0;
  open_set(&d, &plan);
  const MetaSplit *m = &d.meta.split[SPLIT_TRAIN];
  OK(mem_alloc(&seen, m->pairs, 1));
  OK(text_buffer_new(&b, &d, plan.capacity, plan.most_sentences));
  for (uint64_t i = 0; i < plan.batches; i++) {
    OK(text_buffer_fill(&b, &d, &plan, 1, 4, i));
    check_batch(&b);
    tokens += b.batch.tokens;
    for (uint32_t k = 0; k < b.batch.texts; k++) assert_int_equal(seen[b.example[k]]++, 0);
  }
  for (uint64_t i = 0; i < m->pairs; i++) assert_int_equal(seen[i], 1);
  assert_int_equal(tokens, m->tokens[0]);
  text_buffer_free(&b);
  mem_free(seen);
  close_set(&d, &plan);
}

/* Returns a hash of the contents of a batch. */
static uint64_t hash_batch(const TextBuffer *b) {
  const TextBatch *t = &b->batch;
  uint64_t h = rng_hash(t->id, t->tokens * sizeof *t->id, 1);
  h = rng_hash(t->off, (t->texts + 1) * sizeof *t->off, h);
  return rng_hash(t->target, 2 * t->texts * sizeof *t->target, h);
}

/* Two ranks that take micro-batches in turn, also from a later step on, have the batches of one. */
static void test_loaders_of_ranks_have_batches_of_one_process(void **state) {
  (void)state;
  enum { GROUP = 4, STEPS = 120, LATER = 17 };
  DataSet d;
  OrderPlan plan;
  TextLoader *all, *part[2];
  const TextBuffer *b;
  uint64_t hash[STEPS * GROUP];
  open_set(&d, &plan);
  assert_true(plan.batches < STEPS * GROUP); /* more than one epoch */
  OK(text_loader_open(&all, &d, &plan, &(LoaderSpec){.seed = 9, .group = GROUP, .end = GROUP}));
  for (int i = 0; i < STEPS * GROUP; i++) {
    OK(text_loader_next(all, &b));
    hash[i] = hash_batch(b);
  }
  text_loader_close(all);
  for (uint32_t r = 0; r < 2; r++)
    OK(text_loader_open(
        &part[r], &d, &plan,
        &(LoaderSpec){
            .seed = 9, .step = LATER, .group = GROUP, .begin = r, .end = GROUP, .stride = 2}));
  for (int i = LATER * GROUP; i < STEPS * GROUP; i++) {
    OK(text_loader_next(part[i % 2], &b));
    assert_true(hash_batch(b) == hash[i]);
  }
  for (int r = 0; r < 2; r++) text_loader_close(part[r]);
  close_set(&d, &plan);
}

static void test_validation_batches_have_all_texts_in_order(void **state) {
  (void)state;
  DataSet d;
  TextBuffer b;
  uint64_t next = 0, seen = 0;
  OK(dataset_open_texts(&d, at("set")));
  OK(text_buffer_new(&b, &d, 64, 5));
  while (next < d.meta.split[SPLIT_VALID].pairs) {
    OK(text_buffer_fill_from(&b, &d, SPLIT_VALID, &next));
    check_batch(&b);
    for (uint32_t k = 0; k < b.batch.texts; k++) assert_int_equal(b.example[k], seen++);
  }
  assert_int_equal(seen, d.meta.split[SPLIT_VALID].pairs);
  text_buffer_free(&b);
  OK(text_buffer_new(&b, &d, 4, 5));
  next = 0;
  assert_int_equal(text_buffer_fill_from(&b, &d, SPLIT_VALID, &next), ERR_USAGE);
  assert_says("raise --batch-tokens");
  text_buffer_free(&b);
  dataset_close(&d);
}

/* ---- shards that do not belong to the data set ---- */

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define BAD "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

enum { COLUMNS = 5, COLUMN_VOCAB = 100 };

#define IDS_COLUMN \
  { .name = "ids", .kind = SHARD_IDS, .vocab = COLUMN_VOCAB, .tokenizer_sha256 = SHA }
#define SEGMENT_COLUMN \
  { .name = "segment", .kind = SHARD_LABEL, .vocab = SHARD_LONGEST + 1 }
#define LABEL_COLUMN \
  { .name = "label", .kind = SHARD_LABEL, .vocab = 3 }
#define LABELS_COLUMN \
  { .name = "labels", .kind = SHARD_IDS, .vocab = 6, .tokenizer_sha256 = SHA }
#define VALUE_COLUMN(n) \
  { .name = "value-" #n, .kind = SHARD_FLOAT }

/* Writes an empty shard with these columns and opens it. */
static void open_columns(Shard *s, const ShardColumnSpec *column) {
  ShardBuilder b;
  uint64_t bytes;
  char hex[65];
  size_t n = 0;
  while (n < COLUMNS && column[n].name) n++;
  OK(shard_begin(&b, column, n));
  OK(shard_write(&b, at("columns.tok"), &bytes, hex));
  shard_builder_free(&b);
  OK(shard_open(s, at("columns.tok")));
}

/* A data set with three classes, labels or values. */
static void make_meta(Meta *m, MetaClassify *c, LabelKind kind, size_t texts) {
  *c = (MetaClassify){.kind = kind, .labels = 3, .texts = texts};
  snprintf(c->label_file.sha256, sizeof c->label_file.sha256, SHA);
  *m = (Meta){.vocab = COLUMN_VOCAB, .max_tokens = 8, .classify = c};
  snprintf(m->tokenizer_sha256, sizeof m->tokenizer_sha256, SHA);
}

static void test_shard_without_the_columns_of_the_data_set_is_refused(void **state) {
  (void)state;
  static const struct {
    LabelKind kind;
    size_t texts;
    ShardColumnSpec column[COLUMNS];
    const char *words; /* NULL: it belongs to the data set */
  } cases[] = {
      {LABEL_CLASS, 1, {IDS_COLUMN, LABEL_COLUMN}, NULL},
      {LABEL_CLASS, 2, {IDS_COLUMN, SEGMENT_COLUMN, LABEL_COLUMN}, NULL},
      {LABEL_MULTI, 1, {IDS_COLUMN, LABELS_COLUMN}, NULL},
      {LABEL_NUMBER, 1, {IDS_COLUMN, VALUE_COLUMN(0), VALUE_COLUMN(1), VALUE_COLUMN(2)}, NULL},
      {LABEL_CLASS, 1, {LABEL_COLUMN}, "column 'ids' is missing or differs"},
      {LABEL_CLASS, 1, {IDS_COLUMN}, "column 'label' is missing or differs"},
      {LABEL_CLASS, 2, {IDS_COLUMN, LABEL_COLUMN}, "column 'segment' is missing or differs"},
      {LABEL_MULTI, 1, {IDS_COLUMN}, "column 'labels' is missing or differs"},
      {LABEL_NUMBER,
       1,
       {IDS_COLUMN, VALUE_COLUMN(0), VALUE_COLUMN(1)},
       "column 'value-2' is missing or differs"},
      {LABEL_CLASS,
       1,
       {{.name = "ids", .kind = SHARD_IDS, .vocab = 101, .tokenizer_sha256 = SHA},
        LABEL_COLUMN},
       "column 'ids' is missing or differs"},
      {LABEL_CLASS,
       1,
       {{.name = "ids", .kind = SHARD_IDS, .vocab = 100, .tokenizer_sha256 = BAD},
        LABEL_COLUMN},
       "column 'ids' is missing or differs"},
      {LABEL_CLASS,
       1,
       {{.name = "ids", .kind = SHARD_LABEL, .vocab = 100}, LABEL_COLUMN},
       "column 'ids' is missing or differs"},
      {LABEL_CLASS,
       1,
       {IDS_COLUMN, {.name = "label", .kind = SHARD_LABEL, .vocab = 4}},
       "column 'label' is missing or differs"},
      {LABEL_CLASS,
       1,
       {IDS_COLUMN, {.name = "label", .kind = SHARD_FLOAT}},
       "column 'label' is missing or differs"},
      {LABEL_CLASS,
       2,
       {IDS_COLUMN, {.name = "segment", .kind = SHARD_LABEL, .vocab = 9}, LABEL_COLUMN},
       "column 'segment' is missing or differs"},
      {LABEL_MULTI,
       1,
       {IDS_COLUMN, {.name = "labels", .kind = SHARD_IDS, .vocab = 3, .tokenizer_sha256 = SHA}},
       "column 'labels' is missing or differs"},
      {LABEL_MULTI,
       1,
       {IDS_COLUMN, {.name = "labels", .kind = SHARD_IDS, .vocab = 6, .tokenizer_sha256 = BAD}},
       "column 'labels' is missing or differs"},
      {LABEL_NUMBER,
       1,
       {IDS_COLUMN,
        VALUE_COLUMN(0),
        VALUE_COLUMN(1),
        {.name = "value-2", .kind = SHARD_LABEL, .vocab = 2}},
       "column 'value-2' is missing or differs"},
      {LABEL_CLASS,
       1,
       {IDS_COLUMN, LABEL_COLUMN, VALUE_COLUMN(0)},
       "required column 'value-0', which this trireme does not use"},
      {LABEL_CLASS,
       1,
       {IDS_COLUMN, LABEL_COLUMN, SEGMENT_COLUMN},
       "required column 'segment', which this trireme does not use"},
      {LABEL_CLASS,
       1,
       {IDS_COLUMN, LABEL_COLUMN, {.name = "note", .kind = SHARD_FLOAT, .is_optional = true}},
       NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Shard s;
    Meta m;
    MetaClassify c;
    open_columns(&s, cases[i].column);
    make_meta(&m, &c, cases[i].kind, cases[i].texts);
    Err err = text_shard_check(&s, &m);
    if (!cases[i].words && err) fail_msg("case %zu: %s", i, err_message());
    if (cases[i].words) {
      if (!err) fail_msg("case %zu is accepted", i);
      assert_says(at("columns.tok"));
      assert_says(cases[i].words);
    }
    shard_close(&s);
  }
}

/* The data set has texts of at most 8 tokens; the caller has room for 7. */
static void test_shard_example_out_of_bounds_is_refused(void **state) {
  (void)state;
  static const int32_t ids[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  static const struct {
    size_t tokens;
    int32_t segment;
    uint32_t max_tokens;
    const char *words;
  } cases[] = {{7, 7, 8, NULL},
               {1, 1, 8, NULL},
               {7, 1, 7, NULL},
               {0, 1, 8, "example 0 has no tokens, or more than expected"},
               {8, 1, 8, "example 0 has no tokens, or more than expected"},
               {7, 1, 6, "example 0 has no tokens, or more than expected"},
               {7, 0, 8, "example 0 has a first text that is longer than both texts"},
               {7, 8, 8, "example 0 has a first text that is longer than both texts"}};
  static const ShardColumnSpec column[] = {IDS_COLUMN, SEGMENT_COLUMN, LABEL_COLUMN};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ShardBuilder b;
    Shard s;
    Meta m;
    MetaClassify c;
    int32_t out[7], label = 2;
    uint32_t tokens, first;
    uint64_t bytes;
    char hex[65];
    OK(shard_begin(&b, column, 3));
    OK(shard_add(&b,
                 (ShardValues[]){{ids, cases[i].tokens}, {&cases[i].segment, 1}, {&label, 1}}));
    OK(shard_write(&b, at("example.tok"), &bytes, hex));
    shard_builder_free(&b);
    OK(shard_open(&s, at("example.tok")));
    make_meta(&m, &c, LABEL_CLASS, 2);
    m.max_tokens = cases[i].max_tokens;
    Err err = text_shard_ids(&s, &m, 0, out, 7, &tokens, &first);
    if (cases[i].words) {
      assert_int_equal(err, ERR_WORK);
      assert_says(at("example.tok"));
      assert_says(cases[i].words);
    } else {
      if (err) fail_msg("case %zu: %s", i, err_message());
      assert_int_equal(tokens, cases[i].tokens);
      assert_int_equal(first, cases[i].segment);
      assert_memory_equal(out, ids, tokens * sizeof *ids);
    }
    shard_close(&s);
  }
}

static void test_prepare_without_memory_makes_no_data_set(void **state) {
  (void)state;
  Meta meta;
  char words[FILE_PATH_MAX], out[FILE_PATH_MAX], partial[FILE_PATH_MAX];
  snprintf(words, sizeof words, "%s", at("vocab.txt"));
  snprintf(out, sizeof out, "%s", at("none"));
  snprintf(partial, sizeof partial, "%s", at("none.partial"));
  write_table(at("table.csv"), 40);
  ClassifySpec s = make_spec(out);
  s.tokenizer = words;
  s.share[SPLIT_TEST] = 0.2;
  s.threads = 1;
  for (uint64_t n = 1;; n += 1 + n / 16) {
    uint64_t before = mem_count();
    mem_fail_once(n);
    Err err = prepare_classify(&s, &meta);
    mem_fail_once(0);
    if (!err && mem_count() - before < n) break; /* no allocation failed */
    if (!err) { /* it does without, as the cache of words does */
      meta_free(&meta);
      OK(file_remove_all(out));
      continue;
    }
    assert_false(file_exists(out));
    OK(file_remove_all(partial)); /* finished shards are kept for --resume */
  }
  meta_free(&meta);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_labels_of_numbers_are_sorted_by_value),
      cmocka_unit_test(test_labels_with_names_are_sorted_by_bytes),
      cmocka_unit_test(test_label_that_training_lacks_is_refused),
      cmocka_unit_test(test_label_one_class_alone_is_refused),
      cmocka_unit_test(test_label_empty_is_refused),
      cmocka_unit_test(test_label_threshold_includes_itself),
      cmocka_unit_test(test_label_threshold_with_all_rows_above_is_refused),
      cmocka_unit_test(test_labels_multi_takes_flags_and_missing),
      cmocka_unit_test(test_split_takes_the_share_of_every_stratum),
      cmocka_unit_test(test_split_depends_on_seed_alone),
      cmocka_unit_test(test_split_leaves_a_row_of_every_stratum),
      cmocka_unit_test(test_encode_text_is_cut_at_its_end),
      cmocka_unit_test(test_encode_pair_loses_tokens_of_the_longer_text),
      cmocka_unit_test(test_encode_pair_of_roberta_has_two_separators),
      cmocka_unit_test(test_casing_of_vocabulary_is_found),
      cmocka_unit_test(test_set_of_texts_has_many_shards_and_passes_verify),
      cmocka_unit_test(test_set_of_texts_is_refused_by_translation),
      cmocka_unit_test(test_epoch_has_every_text_once),
      cmocka_unit_test(test_loaders_of_ranks_have_batches_of_one_process),
      cmocka_unit_test(test_validation_batches_have_all_texts_in_order),
      cmocka_unit_test(test_shard_without_the_columns_of_the_data_set_is_refused),
      cmocka_unit_test(test_shard_example_out_of_bounds_is_refused),
      cmocka_unit_test(test_prepare_without_memory_makes_no_data_set),
  };
  return cmocka_run_group_tests(tests, make_set, remove_scratch);
}
