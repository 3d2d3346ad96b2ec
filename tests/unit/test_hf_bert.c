/* Models of the BERT family from Hugging Face: imported weights are those that were saved, their logits
 * are those of transformers, tokenizer and labels are taken over, and models of another form are
 * refused. tests/golden/bert_import has the models and the script that made them.
 * run-tests: own program */
#include "bert_support.h"
#include "format/safetensors.h"
#include "model/hf_import.h"
#include "model/store.h"
#include "model/transformer.h"

#define GOLDEN          "tests/golden/bert_import/"
#define LOGIT_TOLERANCE 1e-5 /* largest relative error of a norm */

const ModelFamily *const model_families[] = {&bert_family, &transformer_family, NULL};

/* Directory of the model, and form of the golden file with its logits. */
static const struct {
  const char *dir, *form;
} models[] = {
    {"bert", "softmax"}, {"mlm", "mlm"}, {"roberta", "roberta"}, {"distil", "distil"}};

static void import_model(const char *from, const char *to) {
  HfImported imported;
  if (file_exists(at(to))) OK(file_remove_all(at(to)));
  OK(hf_import(from, at(to), &imported));
  assert_true(imported.parameters > 0);
}

/* Imports a model to the scratch directory "model" and opens it. */
static void open_model(Fixture *f, const char *from, bool reference) {
  ModelConfig config;
  StoreSums sums;
  float *w;
  import_model(from, "model");
  OK(store_load_config(&config, &sums, at("model")));
  open_config(f, bert_config(&config), reference, /*training=*/false);
  OK(store_load_weights(&f->model->params, &sums, at("model/weights.safetensors"), &w));
  const Params *p = &f->model->params;
  for (size_t i = 0; i < p->count; i++) { /* open_config filled f->w with the golden weights */
    size_t n = p->param[i].rows * p->param[i].cols;
    const float *a = w + p->param[i].offset, *b = f->w + p->param[i].offset;
    if (memcmp(a, b, n * sizeof *a) != 0) fail_msg("%s: %s differs", from, p->param[i].name);
  }
  memcpy(f->w, w, p->padded * sizeof *w);
  mem_free(w);
}

static void open_imported(Fixture *f, const char *dir, bool reference) {
  char from[96];
  snprintf(from, sizeof from, GOLDEN "%s", dir);
  open_model(f, from, reference);
}

static void check_output(Fixture *f, const char *path, const char *name, size_t n) {
  SafeFile golden;
  float expected[TOKENS * 32];
  run_step(f, NULL, (StepKey){0}, &(ModelPass){0});
  OK(safetensors_open(&golden, path));
  const SafeTensor *t = safetensors_find(&golden, name);
  assert_non_null(t);
  OK(safetensors_read(&golden, t, expected, n));
  assert_close(path, name, bert_output(f->bert), expected, n, LOGIT_TOLERANCE);
  safetensors_close(&golden);
}

static void test_imported_logits_equal_transformers(void **state) {
  (void)state;
  for (size_t i = 0; i < 2 * sizeof models / sizeof *models; i++) {
    Fixture f;
    char path[96];
    snprintf(path, sizeof path, "tests/golden/bert/%s.safetensors", models[i / 2].form);
    open_imported(&f, models[i / 2].dir, i % 2);
    check_output(&f, path, "logits", logit_count(&f));
    close_fixture(&f);
  }
}

static BertConfig load_config(void) {
  ModelConfig config;
  OK(store_load_config(&config, NULL, at("model")));
  return *bert_config(&config);
}

/* Heads whose golden file is in the directory of the model. */
static void test_imported_heads_of_other_forms_equal_transformers(void **state) {
  static const struct {
    const char *dir;
    BertHead head;
    BertPooler pooler;
    size_t logits;
  } cases[] = {{"roberta_mlm", BERT_HEAD_MLM, BERT_POOLER_TANH, MASKED * 29},
               {"distil_mlm", BERT_HEAD_MLM, BERT_POOLER_NONE, MASKED * 29},
               {"number", BERT_HEAD_SQUARE, BERT_POOLER_TANH, TEXTS}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Fixture f;
    char path[96];
    snprintf(path, sizeof path, GOLDEN "%s/logits.safetensors", cases[i].dir);
    open_imported(&f, cases[i].dir, /*reference=*/false);
    assert_int_equal(f.bert->config.head, cases[i].head);
    assert_int_equal(f.bert->config.pooler, cases[i].pooler);
    check_output(&f, path, "logits", cases[i].logits);
    close_fixture(&f);
  }
}

static void test_import_keeps_the_length_to_which_texts_are_cut(void **state) {
  (void)state;
  import_model(GOLDEN "number", "model");
  assert_int_equal(load_config().max_tokens, 10);
  assert_int_equal(bert_max_tokens(&(BertConfig){.max_positions = 14, .max_tokens = 10}), 10);
  import_model(GOLDEN "bert", "model"); /* model_max_length has 31 digits */
  assert_int_equal(load_config().max_tokens, 0);
}

static void test_imported_base_model_has_the_hidden_state_of_transformers(void **state) {
  Fixture f;
  (void)state;
  open_imported(&f, "base", false);
  assert_int_equal(f.bert->config.head, BERT_HEAD_NONE);
  assert_int_equal(f.bert->config.pooler, BERT_POOLER_TANH);
  check_output(&f, GOLDEN "base/hidden.safetensors", "hidden", TOKENS * 32);
  close_fixture(&f);
}

static void assert_contents(const char *path, const char *expected) {
  Str text = {0};
  OK(file_read(at(path), 4096, &text));
  assert_string_equal(str_text(&text), expected);
  str_free(&text);
}

static void test_import_takes_over_vocabulary_rules_and_labels(void **state) {
  Str vocab = {0}, expected = {0};
  (void)state;
  import_model(GOLDEN "bert", "model");
  BertConfig c = load_config();
  assert_true(c.is_lower && c.strips_accents);
  assert_int_equal(c.head, BERT_HEAD_SOFTMAX);
  assert_contents("model/labels.txt", "clean\nrude\nthreat\n");
  OK(file_read(at("model/vocab.txt"), 4096, &vocab)); /* made of tokenizer.json */
  OK(file_read(GOLDEN "mlm/vocab.txt", 4096, &expected));
  assert_string_equal(str_text(&vocab), str_text(&expected));
  import_model(GOLDEN "mlm", "model");
  c = load_config();
  assert_true(!c.is_lower && c.strips_accents);
  assert_false(file_exists(at("model/labels.txt")));
  import_model(GOLDEN "distil", "model"); /* its vocabulary has capital letters */
  c = load_config();
  assert_true(!c.is_lower && !c.strips_accents);
  assert_contents("model/labels.txt", "LABEL_0\nLABEL_1\nLABEL_2\n");
  import_model(GOLDEN "roberta", "model");
  assert_int_equal(load_config().position_offset, 2);
  assert_false(file_exists(at("model/vocab.txt")));
  assert_true(file_exists(at("model/tokenizer.json")));
  str_free(&vocab);
  str_free(&expected);
}

/* Makes a copy of a golden model in the scratch directory "copy". */
static void copy_model(const char *dir) {
  static const char *const files[] = {"config.json",       "model.safetensors",
                                      "pytorch_model.bin", "vocab.txt",
                                      "tokenizer.json",    "tokenizer_config.json"};
  if (file_exists(at("copy"))) OK(file_remove_all(at("copy")));
  OK(file_mkdirs(at("copy")));
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char from[128], to[128];
    Str bytes = {0};
    snprintf(from, sizeof from, GOLDEN "%s/%s", dir, files[i]);
    snprintf(to, sizeof to, "copy/%s", files[i]);
    if (!file_exists(from)) continue;
    OK(file_read(from, (size_t)1 << 24, &bytes));
    OK(file_write(at(to), str_text(&bytes), bytes.len));
    str_free(&bytes);
  }
}

/* Replaces every `old` by `new` in a file of "copy", which has at least one. */
static void edit_file(const char *name, const char *old, const char *new) {
  char path[128];
  Str bytes = {0}, edited = {0};
  size_t n = strlen(old), found = 0;
  snprintf(path, sizeof path, "copy/%s", name);
  OK(file_read(at(path), (size_t)1 << 24, &bytes));
  for (size_t i = 0; i < bytes.len; i++) {
    bool is_here = i + n <= bytes.len && memcmp(bytes.s + i, old, n) == 0;
    str_addn(&edited, is_here ? new : bytes.s + i, is_here ? strlen(new) : 1);
    if (is_here) i += n - 1;
    found += is_here;
  }
  assert_true(found > 0);
  OK(file_write(at(path), edited.s, edited.len));
  str_free(&bytes);
  str_free(&edited);
}

static void test_import_sets_the_head_by_the_problem_type(void **state) {
  static const struct {
    const char *type;
    BertHead head;
    const char *golden;
  } cases[] = {{"\"multi_label_classification\"", BERT_HEAD_SIGMOID,
                GOLDEN "../bert/sigmoid.safetensors"},
               {"\"regression\"", BERT_HEAD_SQUARE, GOLDEN "../bert/square.safetensors"},
               {"null", BERT_HEAD_SOFTMAX, GOLDEN "../bert/softmax.safetensors"}};
  (void)state;
  for (size_t i = 0; i < 3; i++) {
    Fixture f;
    copy_model("bert");
    edit_file("config.json", "\"single_label_classification\"", cases[i].type);
    open_model(&f, at("copy"), /*reference=*/false);
    assert_int_equal(f.bert->config.head, cases[i].head);
    check_output(&f, cases[i].golden, "logits", logit_count(&f));
    close_fixture(&f);
  }
}

/* Files of the first version of BERT call gain and bias of a norm gamma and beta. A space keeps the
 * length of the header. */
static void test_import_reads_the_names_of_older_files(void **state) {
  Str a = {0}, b = {0};
  (void)state;
  copy_model("bert");
  edit_file("model.safetensors", "LayerNorm.weight\":", "LayerNorm.gamma\" :");
  edit_file("model.safetensors", "LayerNorm.bias\":", "LayerNorm.beta\":");
  import_model(at("copy"), "older");
  import_model(GOLDEN "bert", "model");
  OK(file_read(at("model/weights.safetensors"), (size_t)1 << 24, &a));
  OK(file_read(at("older/weights.safetensors"), (size_t)1 << 24, &b));
  assert_int_equal(a.len, b.len);
  assert_memory_equal(a.s, b.s, a.len);
  str_free(&a);
  str_free(&b);
}

/* As BertForMaskedLM a classifier lacks its head; as a base model its head is left over. */
static void test_import_leaves_out_a_head_that_the_class_does_not_have(void **state) {
  (void)state;
  copy_model("bert");
  edit_file("config.json", "BertForSequenceClassification", "BertModel");
  import_model(at("copy"), "model");
  BertConfig c = load_config();
  assert_int_equal(c.head, BERT_HEAD_NONE);
  assert_int_equal(c.pooler, BERT_POOLER_TANH);
  copy_model("distil");
  edit_file("config.json", "DistilBertForSequenceClassification", "DistilBertModel");
  import_model(at("copy"), "model");
  assert_int_equal(load_config().pooler, BERT_POOLER_NONE);
}

static void assert_refused(const char *dir, const char *name, const char *old, const char *new,
                           const char *words) {
  HfImported imported;
  copy_model(dir);
  edit_file(name, old, new);
  assert_int_equal(hf_import(at("copy"), at("none"), &imported), ERR_WORK);
  assert_says(words);
  assert_false(file_exists(at("none")));
  assert_false(file_exists(at("none.partial")));
}

static void test_import_of_another_form_is_refused(void **state) {
  (void)state;
  assert_refused("bert", "config.json", "\"bert\"", "\"electra\"", "imports marian");
  assert_refused("bert", "config.json", "BertForSequenceClassification",
                 "BertForTokenClassification",
                 "\"architectures\" is 'BertForTokenClassification'");
  assert_refused("bert", "config.json", "BertForSequenceClassification", "BertForMaskedLM",
                 "lack the tensor 'cls.predictions.transform.dense.weight'");
  assert_refused("bert", "config.json", "\"gelu\"", "\"gelu_new\"",
                 "\"hidden_act\" is 'gelu_new'");
  assert_refused("distil", "config.json", "\"gelu\"", "\"tanh\"", "\"activation\" is 'tanh'");
  assert_refused("bert", "config.json", "\"single_label_classification\"", "\"ranking\"",
                 "\"problem_type\" is 'ranking'");
  assert_refused("bert", "config.json", "\"is_decoder\": false", "\"is_decoder\": true",
                 "\"is_decoder\" is true");
  assert_refused("bert", "config.json", "\"use_cache\": true",
                 "\"position_embedding_type\": \"relative_key\"", "is 'relative_key'");
  assert_refused("mlm", "config.json", "\"tie_word_embeddings\": true",
                 "\"tie_word_embeddings\": false", "\"tie_word_embeddings\" is false");
}

static void test_import_of_a_member_with_a_wrong_type_is_refused(void **state) {
  static const struct {
    const char *dir, *name, *old, *new, *words;
  } cases[] = {
      {"bert", "config.json", "\"model_type\": \"bert\"", "\"model_type\": 1",
       "copy/config.json: \"model_type\" must be a string"},
      {"bert", "config.json", "\"gelu\"", "[\"gelu\"]",
       "copy/config.json: \"hidden_act\" must be a string"},
      {"distil", "config.json", "\"gelu\"", "{}", "\"activation\" must be a string"},
      {"bert", "config.json", "\"single_label_classification\"", "3",
       "\"problem_type\" must be a string"},
      {"bert", "config.json", "\"use_cache\": true", "\"position_embedding_type\": true",
       "\"position_embedding_type\" must be a string"},
      {"bert", "config.json", "[\n    \"BertForSequenceClassification\"\n  ]",
       "\"BertForSequenceClassification\"", "\"architectures\" must be an array of strings"},
      {"bert", "config.json", "\"BertForSequenceClassification\"", "1",
       "\"architectures\" must be an array of strings"},
      {"bert", "config.json", "\"1\": \"rude\"", "\"1\": 1",
       "label 1 of \"id2label\" must be a string"},
      {"bert", "config.json", "\"hidden_size\": 32", "\"hidden_size\": 32.0",
       "\"hidden_size\" must be an integer from 1 to 65536"},
      {"bert", "config.json", "\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": \"1e-12\"",
       "\"layer_norm_eps\" must be a number from 0 to 1"},
      {"bert", "config.json", "\"is_decoder\": false", "\"is_decoder\": 0",
       "\"is_decoder\" must be true or false"},
      {"bert", "tokenizer_config.json", "1000000000000000019884624838656", "\"512\"",
       "copy/tokenizer_config.json: \"model_max_length\" must be a number"},
      {"bert", "tokenizer_config.json", "\"do_lower_case\": true", "\"do_lower_case\": 1",
       "\"do_lower_case\" must be true or false"},
      {"bert", "tokenizer_config.json", "\"strip_accents\": null", "\"strip_accents\": 1",
       "\"strip_accents\" must be true or false"},
      {"bert", "tokenizer.json", "\"lowercase\": true", "\"lowercase\": \"yes\"",
       "copy/tokenizer.json: \"lowercase\" of \"normalizer\" must be true or false"},
      {"bert", "tokenizer.json", "\"normalizer\": {", "\"normalizer\": 1, \"x\": {",
       "\"normalizer\" must be an object"},
      {"bert", "tokenizer.json", "\"added_tokens\": [", "\"added_tokens\": 1, \"x\": [",
       "\"added_tokens\" must be an array"},
      {"bert", "tokenizer.json", "\"##\"", "35",
       "\"continuing_subword_prefix\" of \"model\" must be a string"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_refused(cases[i].dir, cases[i].name, cases[i].old, cases[i].new, cases[i].words);
}

static void test_import_of_weights_of_other_shapes_is_refused(void **state) {
  (void)state;
  assert_refused("bert", "config.json", "\"hidden_size\": 32", "\"hidden_size\": 64",
                 "config.json requires (29, 64)");
  assert_refused("bert", "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
                 "lack the tensor 'bert.encoder.layer.2.");
  assert_refused("bert", "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1",
                 "has no tensor 'bert.encoder.layer.1.");
  assert_refused("bert", "config.json", "\"num_attention_heads\": 4",
                 "\"num_attention_heads\": 5",
                 "is not a multiple of \"num_attention_heads\", 5");
  assert_refused("bert", "config.json", "\"2\": \"threat\"", "\"2\": \"threat\", \"3\": \"x\"",
                 "'classifier.weight' has 2 dimensions (3, 32)");
  assert_refused("bert", "config.json", "\"2\": \"threat\"", "\"4\": \"threat\"",
                 "label 2 of \"id2label\" has no name");
  assert_refused("bert", "config.json", "\"rude\"", "\"ru\\nde\"",
                 "label 1 of \"id2label\" has a name with control");
  assert_refused("bert", "model.safetensors", "pooler.dense.weight", "pooler.dense.wight_",
                 "lack the tensor 'bert.pooler.dense.weight'");
}

static void test_import_of_other_tokenizer_files_is_refused(void **state) {
  HfImported imported;
  (void)state;
  assert_refused("bert", "tokenizer.json", "\"WordPiece\"", "\"Unigram\"", "type Unigram");
  assert_refused("bert", "tokenizer.json", "\"a\": 5", "\"a\": 6",
                 "or is that of another piece");
  assert_refused("bert", "tokenizer.json", "\"a\": 5", "\"a\": 99", "from 0 to 28");
  assert_refused("bert", "tokenizer.json", "\"a\": 5", "\"a\\nb\": 5", "has a line break");
  assert_refused("bert", "tokenizer.json", "\"content\": \"[MASK]\"", "\"content\": \"<x>\"",
                 "added token '<x>'");
  assert_refused("bert", "tokenizer.json", "\"##\"", "\"@@\"", "not with '##'");
  assert_refused("bert", "tokenizer_config.json", "\"tokenize_chinese_chars\": true",
                 "\"tokenize_chinese_chars\": false", "\"tokenize_chinese_chars\" is false");
  assert_refused("mlm", "vocab.txt", "[CLS]\n", "cls\n", "[CLS]");
  assert_refused("mlm", "vocab.txt", "un\n", "un\nx\ny\n", "has 31 pieces");
  copy_model("mlm");
  OK(file_remove_all(at("copy/vocab.txt")));
  assert_int_equal(hf_import(at("copy"), at("none"), &imported), ERR_WORK);
  assert_says("has neither vocab.txt nor tokenizer.json");
}

/* RoBERTa has one segment; both texts of a pair are in it. */
static void test_model_with_one_segment_reads_pairs(void **state) {
  Fixture f;
  (void)state;
  open_imported(&f, "roberta", false);
  f.batch.segment = segment;
  check_output(&f, "tests/golden/bert/roberta.safetensors", "logits", logit_count(&f));
  close_fixture(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_imported_logits_equal_transformers),
      cmocka_unit_test(test_imported_heads_of_other_forms_equal_transformers),
      cmocka_unit_test(test_import_keeps_the_length_to_which_texts_are_cut),
      cmocka_unit_test(test_imported_base_model_has_the_hidden_state_of_transformers),
      cmocka_unit_test(test_import_takes_over_vocabulary_rules_and_labels),
      cmocka_unit_test(test_import_sets_the_head_by_the_problem_type),
      cmocka_unit_test(test_import_reads_the_names_of_older_files),
      cmocka_unit_test(test_import_leaves_out_a_head_that_the_class_does_not_have),
      cmocka_unit_test(test_import_of_another_form_is_refused),
      cmocka_unit_test(test_import_of_a_member_with_a_wrong_type_is_refused),
      cmocka_unit_test(test_import_of_weights_of_other_shapes_is_refused),
      cmocka_unit_test(test_import_of_other_tokenizer_files_is_refused),
      cmocka_unit_test(test_model_with_one_segment_reads_pairs),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
