/* MarianMT models of Hugging Face: tokenizer, greedy search and beam search give the ids of
 * MarianTokenizer and generate for 200 sentences (tests/golden/marian, made by make_golden.py beside
 * it), and for 50 of a trained model, whose outputs vary (make_varied.py); models of another form are
 * refused. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "decode/beam.h"
#include "model/hf_import.h"
#include "model/store.h"
#include "model/weights.h"
#include "support.h"

#define GOLDEN    "tests/golden/marian/"
#define LIMIT     40 /* tokens of an output in make_golden.py */
#define SENTENCES 200
#define VARIED    50 /* sentences of make_varied.py */
#define COLUMNS   4 /* of ids.tsv: source, greedy, beam search without and with length penalty */

/* An imported model. */
typedef struct {
  ModelConfig config;
  Params params;
  Tokenizer tokenizer;
  float *w;
  Backend backend;
  Weights weights;
} Imported;

static void copy_file(const char *from, const char *to) {
  Str bytes = {0};
  OK(file_read(from, (size_t)1 << 24, &bytes));
  OK(file_write(to, str_text(&bytes), bytes.len));
  str_free(&bytes);
}

static void open_imported(Imported *m, const char *dir) {
  char path[FILE_PATH_MAX];
  StoreSums sums;
  OK(store_load_config(&m->config, &sums, dir));
  const TransformerConfig *c = transformer_config(&m->config);
  OK(transformer_lay_out_params(&m->params, c));
  OK(file_join(path, dir, "weights.safetensors"));
  OK(store_load_weights(&m->params, &sums, path, &m->w));
  OK(store_open_tokenizer(&m->tokenizer, &sums, c->vocab, dir));
  OK(backend_cpu(&m->backend, 1, false));
  OK(weights_new(&m->weights, &m->backend, m->w, m->params.padded));
}

static void close_imported(Imported *m) {
  weights_free(&m->weights, &m->backend);
  backend_close(&m->backend);
  tokenizer_close(&m->tokenizer);
  params_free(&m->params);
  mem_free(m->w);
}

/* Parses ids up to a tab or a line break, and returns the position after it. */
static const char *parse_ids(const char *text, IdList *ids) {
  ids->len = 0;
  while (*text != '\t' && *text != '\n') {
    char *end;
    OK(mem_grow(&ids->id, &ids->cap, ids->len + 1, sizeof *ids->id));
    ids->id[ids->len++] = (int32_t)strtol(text, &end, 10);
    assert_true(end > text);
    text = *end == ' ' ? end + 1 : end;
  }
  return text + 1;
}

/* Reads an ids.tsv with this number of sentences. */
static void read_ids(const char *path, int sentences, IdList ids[SENTENCES][COLUMNS]) {
  Str text = {0};
  OK(file_read(path, (size_t)1 << 20, &text));
  const char *p = text.s;
  for (int i = 0; i < sentences; i++) {
    for (int k = 0; k < COLUMNS; k++) p = parse_ids(p, &ids[i][k]);
  }
  assert_ptr_equal(p, text.s + text.len);
  str_free(&text);
}

static void free_ids(IdList ids[SENTENCES][COLUMNS]) {
  for (int i = 0; i < SENTENCES; i++) {
    for (int k = 0; k < COLUMNS; k++) ids_free(&ids[i][k]);
  }
}

static void assert_same_ids(const int32_t *id, size_t len, const IdList *expected, int line) {
  bool same = len == expected->len && (!len || memcmp(id, expected->id, len * sizeof *id) == 0);
  if (!same)
    fail_msg("line %d: %zu ids, expected %zu, or other ids", line + 1, len, expected->len);
}

static int import_once(void **state) {
  HfImported imported;
  if (make_scratch(state)) return -1;
  return (int)hf_import(GOLDEN "hf", at("model"), &imported);
}

static void test_marian_tokenizer_gives_the_ids_of_hugging_face(void **state) {
  static IdList ids[SENTENCES][COLUMNS];
  Imported m = {0};
  Str text = {0};
  (void)state;
  read_ids(GOLDEN "ids.tsv", SENTENCES, ids);
  open_imported(&m, at("model"));
  OK(file_read(GOLDEN "source.txt", (size_t)1 << 20, &text));
  const char *line = text.s;
  for (int i = 0; i < SENTENCES; i++) {
    IdList made = {0};
    const char *end = strchr(line, '\n');
    assert_non_null(end);
    OK(tokenizer_encode(&m.tokenizer, line, (size_t)(end - line), &made));
    OK(mem_grow(&made.id, &made.cap, made.len + 1, sizeof *made.id));
    made.id[made.len++] = m.tokenizer.eos;
    assert_same_ids(made.id, made.len, &ids[i][0], i);
    ids_free(&made);
    line = end + 1;
  }
  str_free(&text);
  close_imported(&m);
  free_ids(ids);
}

/* Searches all sentences of a model in the scratch directory, 50 in a batch, and compares with a column of
 * its ids. */
static void check_model(const char *model, const char *path, int sentences, int beam_size,
                        float length_penalty, int column) {
  enum { BATCH = 50, TOKENS = 8192 };
  static IdList ids[SENTENCES][COLUMNS];
  static int32_t src[TOKENS];
  int32_t off[BATCH + 1] = {0};
  Hypothesis best[BATCH];
  Imported m = {0};
  Beam *beam;
  BeamSpec spec = {.beam_size = beam_size,
                   .length_penalty = length_penalty,
                   .is_hf = true,
                   .extra_length = 4096,
                   .nbest = 1,
                   .max_length = LIMIT};
  read_ids(path, sentences, ids);
  open_imported(&m, at(model));
  OK(beam_new(&beam, transformer_config(&m.config), &m.backend, m.weights, &spec, TOKENS,
              BATCH));
  for (int first = 0; first < sentences; first += BATCH) {
    for (int i = 0; i < BATCH; i++) {
      const IdList *s = &ids[first + i][0];
      memcpy(src + off[i], s->id, s->len * sizeof *src);
      off[i + 1] = off[i] + (int32_t)s->len;
    }
    OK(beam_search(beam, src, off, BATCH, best));
    for (int i = 0; i < BATCH; i++)
      assert_same_ids(best[i].id, best[i].len, &ids[first + i][column], first + i);
  }
  beam_free(beam);
  close_imported(&m);
  free_ids(ids);
}

static void check_search(int beam_size, float length_penalty, int column) {
  check_model("model", GOLDEN "ids.tsv", SENTENCES, beam_size, length_penalty, column);
}

static void test_marian_greedy_search_gives_the_ids_of_generate(void **state) {
  (void)state;
  check_search(1, 0, 1);
}

static void test_marian_beam_search_gives_the_ids_of_generate(void **state) {
  (void)state;
  check_search(4, 0, 2);
}

static void test_marian_beam_search_with_length_penalty_gives_the_ids_of_generate(
    void **state) {
  (void)state;
  check_search(4, 1, 3);
}

/* Copies files of a golden model to the scratch directory "copy". */
static void copy_files(const char *dir, const char *const *files, size_t count) {
  for (size_t i = 0; i < count; i++) {
    char from[128], to[128];
    snprintf(from, sizeof from, GOLDEN "%s/%s", dir, files[i]);
    snprintf(to, sizeof to, "copy/%s", files[i]);
    copy_file(from, at(to));
  }
}

/* Makes a copy of the golden model in the scratch directory "copy". */
static void copy_model(void) {
  static const char *const files[] = {"config.json", "model.safetensors", "source.spm",
                                      "target.spm", "vocab.json"};
  if (file_exists(at("copy"))) OK(file_remove_all(at("copy")));
  OK(file_mkdirs(at("copy")));
  copy_files("hf", files, sizeof files / sizeof *files);
}

/* The trained model has the tokenizer of the other. */
static void test_marian_trained_model_gives_the_varied_ids_of_generate(void **state) {
  static const char *const files[] = {"config.json", "model.safetensors"};
  static const struct {
    int beam_size;
    float length_penalty;
  } searches[] = {{1, 0}, {4, 0}, {4, 1}};
  HfImported imported;
  (void)state;
  copy_model();
  copy_files("varied", files, 2);
  OK(hf_import(at("copy"), at("varied"), &imported));
  for (int i = 0; i < 3; i++)
    check_model("varied", GOLDEN "varied/ids.tsv", VARIED, searches[i].beam_size,
                searches[i].length_penalty, i + 1);
}

/* Replaces `old`, which the file must have, by `new` in a file of "copy". */
static void edit_file(const char *name, const char *old, const char *new) {
  char path[128];
  Str text = {0}, edited = {0};
  snprintf(path, sizeof path, "copy/%s", name);
  OK(file_read(at(path), (size_t)1 << 20, &text));
  char *found = strstr(text.s, old);
  assert_non_null(found);
  str_addn(&edited, text.s, (size_t)(found - text.s));
  str_add(&edited, new);
  str_add(&edited, found + strlen(old));
  OK(file_write(at(path), edited.s, edited.len));
  str_free(&text);
  str_free(&edited);
}

static void assert_refused(const char *name, const char *old, const char *new,
                           const char *words) {
  HfImported imported;
  copy_model();
  edit_file(name, old, new);
  assert_int_equal(hf_import(at("copy"), at("none"), &imported), ERR_WORK);
  assert_says(words);
  assert_false(file_exists(at("none")));
  assert_false(file_exists(at("none.partial")));
}

static void test_import_of_a_torch_file_gives_the_same_weights(void **state) {
  HfImported imported;
  Str a = {0}, b = {0};
  (void)state;
  copy_model();
  OK(file_remove_all(at("copy/model.safetensors")));
  copy_file(GOLDEN "bin/pytorch_model.bin", at("copy/pytorch_model.bin"));
  OK(hf_import(at("copy"), at("from_bin"), &imported));
  OK(file_read(at("model/weights.safetensors"), (size_t)1 << 24, &a));
  OK(file_read(at("from_bin/weights.safetensors"), (size_t)1 << 24, &b));
  assert_int_equal(a.len, b.len);
  assert_memory_equal(a.s, b.s, a.len);
  str_free(&a);
  str_free(&b);
}

static void test_import_of_another_form_is_refused(void **state) {
  (void)state;
  assert_refused("config.json", "\"marian\"", "\"gpt2\"", "\"model_type\" is 'gpt2'");
  assert_refused("config.json", "\"scale_embedding\": true", "\"scale_embedding\": false",
                 "\"scale_embedding\" is false");
  assert_refused("config.json", "\"is_decoder\": false", "\"normalize_before\": true",
                 "\"normalize_before\" is true");
  assert_refused("config.json", "\"swish\"", "\"gelu\"", "is 'gelu'");
  assert_refused("config.json", "\"decoder_ffn_dim\": 32", "\"decoder_ffn_dim\": 64",
                 "must be equal");
  assert_refused("config.json", "\"encoder_layers\": 2", "\"encoder_layers\": 3",
                 "lack the tensor 'model.encoder.layers.2.");
  assert_refused("config.json", "\"encoder_layers\": 2", "\"encoder_layers\": 1",
                 "tensors, of which");
  assert_refused("config.json", "\"d_model\": 16", "\"d_model\": 32", "config.json requires");
  assert_refused("config.json", "\"d_model\": 16", "\"d_model\": \"x\"",
                 "\"d_model\" must be an integer");
  assert_refused("config.json", "\"swish\"", "1",
                 "copy/config.json: \"activation_function\" must be a string");
}

static void test_import_of_other_tokenizer_files_is_refused(void **state) {
  (void)state;
  assert_refused("vocab.json", "\"</s>\": 0", "\"zzz\": 0", "vocab.json lacks </s>");
  assert_refused("vocab.json", "\"<unk>\": 1", "\"<unk>\": 999999", "have no piece");
  assert_refused("vocab.json", "\"<unk>\": 1", "\"<unk>\": 0", "have the same id 0");
  assert_refused("vocab.json", "\"<unk>\": 1", "\"<unk>\": -1", "is not an integer");
  assert_refused("vocab.json", "{", "[", "not a JSON object");
}

static void test_import_never_replaces_a_directory(void **state) {
  HfImported imported;
  (void)state;
  assert_int_equal(hf_import(GOLDEN "hf", at("model"), &imported), ERR_USAGE);
  assert_says("exists; pass the path of a new directory");
}

static void test_marian_text_of_ids_leaves_special_tokens_out(void **state) {
  Imported m = {0};
  Str text = {0};
  IdList ids = {0};
  (void)state;
  open_imported(&m, at("model"));
  OK(tokenizer_encode(&m.tokenizer, ">>deu<< a man", 13, &ids));
  assert_true(ids.len >= 2);
  ids.id[0] = m.tokenizer.pad;
  OK(mem_grow(&ids.id, &ids.cap, ids.len + 1, sizeof *ids.id));
  ids.id[ids.len++] = m.tokenizer.eos;
  OK(tokenizer_decode(&m.tokenizer, ids.id, ids.len, &text));
  assert_string_equal(str_text(&text), "a man");
  str_free(&text);
  ids_free(&ids);
  close_imported(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_marian_tokenizer_gives_the_ids_of_hugging_face),
      cmocka_unit_test(test_marian_trained_model_gives_the_varied_ids_of_generate),
      cmocka_unit_test(test_marian_greedy_search_gives_the_ids_of_generate),
      cmocka_unit_test(test_marian_beam_search_gives_the_ids_of_generate),
      cmocka_unit_test(test_marian_beam_search_with_length_penalty_gives_the_ids_of_generate),
      cmocka_unit_test(test_import_of_a_torch_file_gives_the_same_weights),
      cmocka_unit_test(test_import_of_another_form_is_refused),
      cmocka_unit_test(test_import_of_other_tokenizer_files_is_refused),
      cmocka_unit_test(test_import_never_replaces_a_directory),
      cmocka_unit_test(test_marian_text_of_ids_leaves_special_tokens_out),
  };
  return cmocka_run_group_tests(tests, import_once, remove_scratch);
}
