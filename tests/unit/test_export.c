/* Export of models: the files of CTranslate2 have the variables that its own classes write
 * (tests/golden/export, made by make_golden.py beside it), the files of Hugging Face come back through
 * import, and models of another form are refused. */
#include <stdio.h>

#include "base/mem.h"
#include "model/export_ct2.h"
#include "model/export_hf.h"
#include "model/hf_import.h"
#include "model/marian.h"
#include "support.h"

#define MARIAN "tests/golden/marian/hf/"
#define GOLDEN "tests/golden/export/"

/* A model that a test writes and exports. */
typedef struct {
  TransformerConfig config;
  TransformerParams at;
  Params params;
  float *w;
} Made;

/* A MarianMT model of the sizes of make_golden.py, with the tokenizer of the golden model. */
static TransformerConfig make_marian(void) {
  return (TransformerConfig){.vocab = 378,
                             .d_model = 16,
                             .ffn_dim = 32,
                             .heads = 2,
                             .layers = {2, 1},
                             .max_positions = 64,
                             .attention_bias = true,
                             .output_bias = true,
                             .activation = ACT_SILU,
                             .positions = POSITION_MARIAN,
                             .tying = TIE_ALL,
                             .norm_epsilon = MARIAN_EPSILON,
                             .eos = 0,
                             .bos = 377,
                             .pad = 377};
}

static TransformerConfig make_pre_norm(void) {
  TransformerConfig c = make_marian();
  c.pre_norm = true;
  c.attention_bias = false;
  c.output_bias = false;
  c.activation = ACT_RELU;
  c.positions = POSITION_HALVES;
  c.norm_epsilon = 1e-6f;
  return c;
}

/* Writes a model directory with random weights, all of which differ from 0 and 1. */
static void write_model(Made *m, const TransformerConfig *c, const char *dir) {
  static const char *const files[] = {"source.spm", "target.spm", "vocab.json"};
  char path[FILE_PATH_MAX];
  StoreSums sums = {.known = true};
  ModelConfig config = transformer_model_config(c);
  *m = (Made){.config = *c};
  OK(file_mkdirs(dir));
  OK(transformer_lay_out(&m->at, &m->params, c));
  OK(mem_alloc_aligned(&m->w, m->params.padded * sizeof *m->w));
  for (size_t i = 0; i < m->params.padded; i++) m->w[i] = (float)i / 65536 + 2;
  for (size_t i = 0; i < 3; i++) {
    FileSum sum;
    Str bytes = {0};
    snprintf(path, sizeof path, MARIAN "%s", files[i]);
    OK(file_read(path, (size_t)1 << 20, &bytes));
    OK(file_join(path, dir, files[i]));
    OK(file_write(path, bytes.s, bytes.len));
    OK(filesum_file(path, &sum));
    store_add_file(&sums, files[i], sum);
    str_free(&bytes);
  }
  OK(file_join(path, dir, "weights.safetensors"));
  OK(store_save_summed(&m->params, m->w, path, &sums.weights));
  OK(store_save_config(&config, &sums, dir));
}

static void free_made(Made *m) {
  mem_free(m->w);
  params_free(&m->params);
  transformer_params_free(&m->at);
}

/* Reads model.bin. */
typedef struct {
  Str bytes;
  size_t at;
} Reader;

static uint32_t read_number(Reader *r, int bytes) {
  uint32_t value = 0;
  assert_true(r->at + (size_t)bytes <= r->bytes.len);
  for (int i = 0; i < bytes; i++) value |= (uint32_t)(uint8_t)r->bytes.s[r->at++] << 8 * i;
  return value;
}

static const char *read_text(Reader *r) {
  uint32_t len = read_number(r, 2);
  const char *text = r->bytes.s + r->at;
  assert_true(len > 0 && r->at + len <= r->bytes.len);
  r->at += len;
  assert_int_equal(text[len - 1], 0);
  assert_int_equal(strlen(text), len - 1);
  return text;
}

/* Reads a variable and appends its line as in ct2_prenorm.tsv. Returns its name; *data receives its
 * data. */
static const char *read_variable(Reader *r, Str *list, const char **data) {
  static const uint32_t size[] = {4, 1, 2};
  uint32_t shape[2], count = 1;
  const char *name = read_text(r);
  int dimensions = (int)read_number(r, 1);
  assert_between(dimensions, 0, 2);
  for (int i = 0; i < dimensions; i++) {
    shape[i] = read_number(r, 4);
    count *= shape[i];
  }
  uint32_t type = read_number(r, 1);
  assert_between(type, 0, 2);
  assert_int_equal(read_number(r, 4), count * size[type]);
  str_addf(list, "%s\t%u\t", name, type);
  for (int i = 0; i < dimensions; i++) str_addf(list, i ? " %u" : "%u", shape[i]);
  str_addc(list, '\n');
  *data = r->bytes.s + r->at;
  r->at += count * size[type];
  assert_true(r->at <= r->bytes.len);
  return name;
}

/* Compares floats of a variable with those of the model. */
static void assert_floats(const char *data, const float *expected, size_t count) {
  assert_memory_equal(data, expected, count * sizeof *expected);
}

/* Checks the data of variables that are parts of a weight or computed. */
static void check_data(const Made *m, const char *name, const char *data) {
  size_t d = (size_t)m->config.d_model;
  if (strcmp(name, "decoder/layer_0/attention/linear_1/weight") == 0)
    assert_floats(data, m->w + m->at.cross_kv, 2 * d * d);
  if (strcmp(name, "encoder/layer_1/self_attention/linear_0/weight") == 0)
    assert_floats(data, m->w + m->at.layer[0][1].self.in, 3 * d * d);
  if (strcmp(name, "encoder/layer_1/ffn/layer_norm/gamma") == 0)
    assert_floats(data, m->w + m->at.layer[0][1].norm[1].gain, d);
  if (strcmp(name, "decoder/layer_0/ffn/layer_norm/beta") == 0)
    assert_floats(data, m->w + m->at.layer[1][0].norm[2].bias, d);
  if (strcmp(name, "decoder/layer_norm/gamma") == 0)
    assert_floats(data, m->w + m->at.final_norm[1].gain, d);
  if (strcmp(name, "decoder/embeddings/weight") == 0)
    assert_floats(data, m->w + m->at.target_embedding, 378 * d);
  if (strcmp(name, "decoder/alignment_layer") == 0) assert_memory_equal(data, "\xff\xff", 2);
  if (strcmp(name, "decoder/projection/bias") == 0) {
    float bias[378] = {0};
    bias[377] = -30000;
    assert_floats(data, bias, 378);
  }
}

/* Reads all of model.bin and appends its list as in ct2_prenorm.tsv. */
static void read_model_bin(const char *path, const Made *m, Str *list) {
  Reader r = {0};
  OK(file_read(path, (size_t)1 << 24, &r.bytes));
  assert_int_equal(read_number(&r, 4), 6);
  assert_string_equal(read_text(&r), "TransformerSpec");
  assert_int_equal(read_number(&r, 4), 7);
  for (uint32_t n = read_number(&r, 4); n > 0; n--) {
    const char *data;
    const char *name = read_variable(&r, list, &data);
    check_data(m, name, data);
  }
  for (uint32_t n = read_number(&r, 4); n > 0; n--) {
    const char *alias = read_text(&r);
    str_addf(list, "%s\t%s\n", alias, read_text(&r));
  }
  assert_int_equal(r.at, r.bytes.len);
  str_free(&r.bytes);
}

static void test_export_ct2_of_a_pre_norm_model_has_the_variables_of_the_golden_file(
    void **state) {
  TransformerConfig c = make_pre_norm();
  Exported exported;
  Made m;
  Str list = {0}, expected = {0};
  (void)state;
  write_model(&m, &c, at("pre"));
  OK(export_model(&export_ct2, at("pre"), at("pre_ct2"), &exported));
  read_model_bin(at("pre_ct2/model.bin"), &m, &list);
  OK(file_read(GOLDEN "ct2_prenorm.tsv", (size_t)1 << 20, &expected));
  assert_string_equal(str_text(&list), str_text(&expected));
  str_free(&list);
  str_free(&expected);
  free_made(&m);
}

static void test_export_ct2_of_separate_embeddings_has_no_aliases(void **state) {
  TransformerConfig c = make_pre_norm();
  Exported exported;
  Made m;
  Str list = {0};
  (void)state;
  c.tying = TIE_NONE;
  c.positions = POSITION_LEARNED;
  write_model(&m, &c, at("free"));
  OK(export_model(&export_ct2, at("free"), at("free_ct2"), &exported));
  read_model_bin(at("free_ct2/model.bin"), &m, &list);
  assert_non_null(strstr(list.s, "decoder/projection/weight\t0\t378 16\n"));
  assert_non_null(strstr(list.s, "encoder/embeddings_0/weight\t0\t378 16\n"));
  assert_non_null(strstr(list.s, "encoder/position_encodings/encodings\t0\t64 16\n"));
  assert_null(strstr(list.s, "\tdecoder/"));
  str_free(&list);
  free_made(&m);
}

/* Exports a model to Hugging Face, imports it, and compares all weights. */
static void check_round_trip(const TransformerConfig *c) {
  Exported exported;
  HfImported imported;
  Made m;
  Str a = {0}, b = {0};
  write_model(&m, c, at("trip"));
  OK(export_model(&export_hf, at("trip"), at("trip_hf"), &exported));
  OK(hf_import(at("trip_hf"), at("trip_back"), &imported));
  OK(file_read(at("trip/weights.safetensors"), (size_t)1 << 24, &a));
  OK(file_read(at("trip_back/weights.safetensors"), (size_t)1 << 24, &b));
  assert_int_equal(a.len, b.len);
  assert_memory_equal(a.s, b.s, a.len);
  str_free(&a);
  str_free(&b);
  free_made(&m);
  OK(file_remove_all(at("trip")));
  OK(file_remove_all(at("trip_hf")));
  OK(file_remove_all(at("trip_back")));
}

static void test_export_hf_and_import_give_the_same_weights(void **state) {
  TransformerConfig c = make_marian();
  (void)state;
  check_round_trip(&c);
}

static void test_export_hf_writes_positions_that_are_not_those_of_marian(void **state) {
  TransformerConfig c = make_marian();
  (void)state;
  c.positions = POSITION_LEARNED;
  check_round_trip(&c);
}

static void test_export_hf_fills_missing_biases_with_zeros(void **state) {
  TransformerConfig c = make_marian();
  Exported exported;
  HfImported imported;
  Made m;
  (void)state;
  c.attention_bias = false;
  c.output_bias = false;
  write_model(&m, &c, at("bare"));
  OK(export_model(&export_hf, at("bare"), at("bare_hf"), &exported));
  OK(hf_import(at("bare_hf"), at("bare_back"), &imported));
  free_made(&m);
}

static void assert_refused(const TransformerConfig *c, const char *words) {
  Exported exported;
  Made m;
  write_model(&m, c, at("other"));
  assert_int_equal(export_model(&export_hf, at("other"), at("other_hf"), &exported), ERR_WORK);
  assert_says(words);
  assert_says("pass --to ctranslate2");
  assert_false(file_exists(at("other_hf")));
  assert_false(file_exists(at("other_hf.partial")));
  free_made(&m);
}

static void test_export_hf_of_another_form_names_it_and_ctranslate2(void **state) {
  TransformerConfig pre = make_pre_norm(), tied = make_marian(), epsilon = make_marian();
  (void)state;
  tied.tying = TIE_DECODER;
  epsilon.norm_epsilon = 1e-6f;
  assert_refused(&pre, "pre-norm");
  assert_refused(&tied, "not all tied");
  assert_refused(&epsilon, "epsilon of its layer norms is 1e-06");
}

static void assert_bert_refused(const BertConfig *c, const char *words) {
  Export e = {.dir = "model", .bert = *c};
  assert_int_equal(export_hf.check(&e), ERR_WORK);
  assert_says(words);
}

static void test_export_hf_of_another_bert_names_its_form(void **state) {
  BertConfig c = {0};
  (void)state;
  OK(bert_preset(&c, "bert-tiny"));
  c.head = BERT_HEAD_SOFTMAX;
  c.labels = 2;
  Export e = {.dir = "model", .bert = c};
  OK(export_hf.check(&e));
  c.pooler = BERT_POOLER_NONE;
  assert_bert_refused(&c, "its classifier has another pooler, a form that Bert of");
  c.pooler = BERT_POOLER_RELU;
  c.segments = 0;
  c.norm_epsilon = 1e-5f;
  assert_bert_refused(&c, "is not 1e-12, a form that DistilBert of");
}

static void test_export_hf_of_sentencepiece_classifier_says_what_to_prepare(void **state) {
  Export e = {.dir = "model", .sums = {.files = 1}};
  (void)state;
  OK(bert_preset(&e.bert, "bert-tiny"));
  strcpy(e.sums.file[0].name, "tokenizer.model");
  assert_int_equal(export_hf.check(&e), ERR_WORK);
  assert_says("its tokenizer is a SentencePiece model");
  assert_says("prepare the texts with --vocab vocab.txt or --vocab-size N");
}

static void test_export_never_replaces_a_directory(void **state) {
  Exported exported;
  (void)state;
  OK(file_mkdirs(at("full")));
  assert_int_equal(export_model(&export_ct2, at("none"), at("full"), &exported), ERR_USAGE);
  assert_says("exists; pass the path of a new directory");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(
          test_export_ct2_of_a_pre_norm_model_has_the_variables_of_the_golden_file),
      cmocka_unit_test(test_export_ct2_of_separate_embeddings_has_no_aliases),
      cmocka_unit_test(test_export_hf_and_import_give_the_same_weights),
      cmocka_unit_test(test_export_hf_writes_positions_that_are_not_those_of_marian),
      cmocka_unit_test(test_export_hf_fills_missing_biases_with_zeros),
      cmocka_unit_test(test_export_hf_of_another_form_names_it_and_ctranslate2),
      cmocka_unit_test(test_export_hf_of_another_bert_names_its_form),
      cmocka_unit_test(test_export_hf_of_sentencepiece_classifier_says_what_to_prepare),
      cmocka_unit_test(test_export_never_replaces_a_directory),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
