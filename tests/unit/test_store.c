/* Model directories: every member of model.json that is missing, has a wrong type or is out of range
 * is refused with the name of the file; so are tensors that do not fit it, and files that changed. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/jsondoc.h"
#include "base/mem.h"
#include "format/safetensors.h"
#include "model/store.h"
#include "model/transformer.h"
#include "support.h"

/* Sizes that allow the least and the largest value of each field while the others stay. */
static const TransformerConfig sizes = {.vocab = 23,
                                        .d_model = 1024,
                                        .ffn_dim = 4,
                                        .heads = 1,
                                        .layers = {1, 1},
                                        .max_positions = 8,
                                        .positions = POSITION_LEARNED,
                                        .norm_epsilon = 1e-6f};

static json_t *parse(const char *text) {
  json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
  if (!j) fail_msg("the test has an error in its JSON: %s", text);
  return j;
}

/* Writes scratch/model.json without waiting for the disk. */
static void put_text(const char *text, size_t len) {
  FILE *f = fopen(at("model.json"), "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(text, 1, len, f), len);
  assert_int_equal(fclose(f), 0);
}

static void put_json(const json_t *root) {
  Str out = {0};
  char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  assert_non_null(text);
  str_add(&out, text);
  free(text);
  jsondoc_seal(&out);
  put_text(str_text(&out), out.len);
  str_free(&out);
}

static json_t *sound; /* the JSON of a model that is read without an error */

static int make_sound(void **state) {
  ModelConfig model = transformer_model_config(&sizes);
  StoreSums sums = {.known = true};
  Str text = {0};
  if (make_scratch(state)) return -1;
  store_add_file(&sums, "tokenizer.model", (FileSum){.bytes = 1, .crc = 2});
  OK(store_save_config(&model, &sums, scratch));
  OK(file_read(at("model.json"), 1 << 16, &text));
  sound = parse(str_text(&text));
  str_free(&text);
  return json_object_set_new(sound, "checksum", json_string(JSONDOC_NO_SUM));
}

static int drop_sound(void **state) {
  json_decref(sound);
  return remove_scratch(state);
}

/* Reads model.json with one changed member. `where`: the object of the member, NULL: the whole
 * document. `value`: JSON, NULL: the member is missing. */
static Err try_member(const char *where, const char *key, const char *value) {
  ModelConfig config;
  StoreSums sums;
  json_t *root = json_deep_copy(sound), *object = root;
  if (where) object = json_object_get(root, "files");
  if (where && strcmp(where, "files") != 0) object = json_object_get(object, where);
  assert_true(json_is_object(object));
  if (value)
    json_object_set_new(object, key, parse(value));
  else
    json_object_del(object, key);
  put_json(root);
  json_decref(root);
  return store_load_config(&config, &sums, scratch);
}

static void refuse_member(const char *where, const char *key, const char *value,
                          const char *words) {
  if (try_member(where, key, value) == ERR_OK)
    fail_msg("%s %s is accepted", key, value ? value : "(missing)");
  assert_says(at("model.json"));
  assert_says(words);
}

static void accept_member(const char *where, const char *key, const char *value) {
  if (try_member(where, key, value))
    fail_msg("%s %s: %s", key, value ? value : "(missing)", err_message());
}

/* ---- fields of the family ---- */

static void print_number(char out[32], const ConfigField *f, double value) {
  if (f->kind == FIELD_FLOAT)
    snprintf(out, 32, "%.9f", value);
  else
    snprintf(out, 32, "%.0f", value);
}

/* Checks both limits of a number: they are accepted, and the next number outside is not. */
static void check_limits(const ConfigField *f) {
  char number[32], damaged[96];
  double max = f->kind == FIELD_ID ? sizes.vocab - 1 : f->max;
  double next = f->kind == FIELD_FLOAT ? 1e-6 : 1;
  snprintf(damaged, sizeof damaged, "'%s' is missing or is not ", f->key);
  print_number(number, f, f->min);
  accept_member(NULL, f->key, number);
  print_number(number, f, max);
  accept_member(NULL, f->key, number);
  print_number(number, f, f->min - next);
  refuse_member(NULL, f->key, number, damaged);
  print_number(number, f, max + next);
  refuse_member(NULL, f->key, number, damaged);
}

static void test_config_field_missing_or_of_wrong_type_is_refused(void **state) {
  (void)state;
  static const char *const wrong[] = {NULL, "null", "[]", "{}", "\"other\""};
  char damaged[96];
  for (const ConfigField *f = transformer_fields; f->key; f++) {
    snprintf(damaged, sizeof damaged, "'%s' is missing or is not ", f->key);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
      if (f->kind != FIELD_FLAG || wrong[i])
        refuse_member(NULL, f->key, wrong[i], damaged);
      else
        accept_member(NULL, f->key, NULL); /* a flag that is missing is false */
    }
    if (f->kind != FIELD_FLAG) refuse_member(NULL, f->key, "true", damaged);
    if (f->kind == FIELD_CHOICE || f->kind == FIELD_FLAG)
      refuse_member(NULL, f->key, "0", damaged);
    if (f->kind == FIELD_INT || f->kind == FIELD_ID)
      refuse_member(NULL, f->key, "1.0", damaged);
  }
}

static void test_config_field_has_exact_limits(void **state) {
  (void)state;
  for (const ConfigField *f = transformer_fields; f->key; f++)
    if (f->kind != FIELD_CHOICE && f->kind != FIELD_FLAG) check_limits(f);
}

static void test_config_fields_that_contradict_each_other_are_refused(void **state) {
  (void)state;
  refuse_member(NULL, "heads", "3", "--heads 3 does not divide --d-model 1024");
  assert_int_equal(try_member(NULL, "heads", "3"), ERR_WORK);
  assert_says("copy the model again");
}

/* ---- members that all families have ---- */

#define SUM    "an object with \"bytes\", an integer, and \"crc32\", 8 hexadecimal digits"
#define FILES  "'files' is missing or is not an object with names of 1 to 5 files"
#define NEWER  "newer version of trireme: use that version"
#define WEIGHT "weights.safetensors"
#define A_SUM  "{\"bytes\": 1, \"crc32\": \"00000002\"}"
#define NAME63 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk"

static void test_model_json_wrong_member_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *where, *key, *value, *words;
  } cases[] = {
      {NULL, "format", NULL, "'format' is missing or is not a string"},
      {NULL, "format", "1", "'format' is missing or is not a string"},
      {NULL, "format", "\"other\"",
       "format 'other'; this trireme reads trireme-transformer, trireme-bert: use"},
      {NULL, "format", "\"trireme-bert\"", "model.json is damaged: '"},
      {NULL, "version", NULL, "'version' is missing or is not an integer from 1 to 2"},
      {NULL, "version", "\"2\"", "'version' is missing or is not an integer from 1 to 2"},
      {NULL, "version", "2.0", "'version' is missing or is not an integer from 1 to 2"},
      {NULL, "version", "0", "'version' is missing or is not an integer from 1 to 2"},
      {NULL, "version", "3",
       "version 3, this trireme reads 1 and 2; it was written by a " NEWER},
      {NULL, "checksum", NULL, "its checksum is wrong"},
      {NULL, "files", NULL, FILES},
      {NULL, "files", "[]", FILES},
      {NULL, "files", "{}", SUM},
      {"files", WEIGHT, NULL, "'" WEIGHT "' is missing or is not " SUM},
      {"files", WEIGHT, "1", "'" WEIGHT "' is missing or is not " SUM},
      {"files", "other", "{}", "'other' is missing or is not " SUM},
      {"files", "", A_SUM, FILES},
      {"files", ".", A_SUM, FILES},
      {"files", "..", A_SUM, FILES},
      {"files", "../other", A_SUM, FILES},
      {"files", NAME63 "l", A_SUM, FILES},
      {WEIGHT, "bytes", NULL, SUM},
      {WEIGHT, "bytes", "-1", SUM},
      {WEIGHT, "bytes", "1.0", SUM},
      {WEIGHT, "bytes", "\"1\"", SUM},
      {WEIGHT, "crc32", NULL, SUM},
      {WEIGHT, "crc32", "12345678", SUM},
      {WEIGHT, "crc32", "\"0000000\"", SUM},
      {WEIGHT, "crc32", "\"000000000\"", SUM},
      {WEIGHT, "crc32", "\"0000000A\"", SUM},
      {WEIGHT, "crc32", "\"0x000000\"", SUM},
      {"tokenizer.model", "crc32", NULL, "'tokenizer.model' is missing or is not " SUM},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    refuse_member(cases[i].where, cases[i].key, cases[i].value, cases[i].words);
}

static void test_model_json_member_at_its_limit_is_accepted(void **state) {
  (void)state;
  accept_member("files", "...", A_SUM);
  accept_member("files", NAME63, A_SUM);
  accept_member(WEIGHT, "bytes", "0");
  accept_member(WEIGHT, "bytes", "9223372036854775807");
  accept_member(WEIGHT, "crc32", "\"ffffffff\"");
}

static void test_model_json_lists_at_most_4_files_and_the_weights(void **state) {
  (void)state;
  ModelConfig config;
  StoreSums sums;
  char name[16];
  json_t *root = json_deep_copy(sound), *files = json_object_get(root, "files");
  for (int i = 1; i <= STORE_FILES; i++) {
    put_json(root);
    OK(store_load_config(&config, &sums, scratch));
    assert_int_equal(sums.files, i);
    assert_int_equal(sums.file[0].sum.bytes, 1);
    assert_int_equal(sums.file[0].sum.crc, 2);
    snprintf(name, sizeof name, "file%d", i);
    json_object_set_new(files, name, parse(A_SUM));
  }
  put_json(root);
  json_decref(root);
  assert_int_equal(store_load_config(&config, &sums, scratch), ERR_WORK);
  assert_says(at("model.json"));
  assert_says(FILES);
}

static void test_model_json_of_version_1_has_no_checksums(void **state) {
  (void)state;
  ModelConfig config;
  StoreSums sums;
  json_t *root = json_deep_copy(sound);
  json_object_set_new(root, "version", json_integer(1));
  json_object_del(root, "files");
  json_object_del(root, "checksum");
  put_json(root);
  json_decref(root);
  OK(store_load_config(&config, &sums, scratch));
  assert_false(sums.known);
  assert_true(store_has_file(&sums, "tokenizer.model"));
  assert_false(store_has_file(&sums, "vocab.json"));
  OK(store_check_file(&sums, scratch, "tokenizer.model")); /* there is no such file */
}

static void test_model_json_text_that_is_no_object_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
  } cases[] = {{"", "not JSON"},
               {"{", "not JSON"},
               {"[]", "'format' is missing or is not a string"},
               {"{\"format\": \"a\", \"format\": \"a\"}", "duplicate object key"},
               {"{\"format\": \"trireme-transformer\", \"version\": 2}", "'vocab' is missing"}};
  ModelConfig config;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_text(cases[i].text, strlen(cases[i].text));
    assert_int_equal(store_load_config(&config, NULL, scratch), ERR_WORK);
    assert_says(at("model.json"));
    assert_says(cases[i].words);
  }
}

static void test_model_json_of_too_many_values_is_refused(void **state) {
  (void)state;
  ModelConfig config;
  Str text = {0};
  str_add(&text, "[0");
  for (size_t i = 0; i < JSONDOC_VALUES; i++) str_add(&text, ",0");
  str_add(&text, "]");
  put_text(str_text(&text), text.len);
  str_free(&text);
  assert_int_equal(store_load_config(&config, NULL, scratch), ERR_WORK);
  assert_says(at("model.json"));
  assert_says("JSON values");
}

static void test_model_json_changed_after_it_was_sealed_is_refused(void **state) {
  (void)state;
  ModelConfig config;
  Str text = {0};
  json_t *root = json_deep_copy(sound);
  put_json(root);
  json_decref(root);
  OK(file_read(at("model.json"), 1 << 16, &text));
  char *digit = strstr(text.s, "\"vocab\": 23");
  assert_non_null(digit);
  digit[strlen("\"vocab\": 2")] = '4';
  put_text(text.s, text.len);
  str_free(&text);
  assert_int_equal(store_load_config(&config, NULL, scratch), ERR_WORK);
  assert_says(at("model.json"));
  assert_says("its checksum is wrong");
}

static void test_directory_without_model_json_is_refused(void **state) {
  (void)state;
  ModelConfig config;
  OK(file_mkdirs(at("empty")));
  assert_int_equal(store_load_config(&config, NULL, at("empty")), ERR_WORK);
  assert_says("empty is not a model: it has no model.json");
}

/* ---- files beside model.json ---- */

static void test_store_check_file_refuses_other_contents(void **state) {
  (void)state;
  StoreSums sums = {.known = true};
  FileSum sum;
  OK(file_write(at("first"), "1", 1));
  OK(file_write(at("second"), "2", 1));
  OK(filesum_file(at("second"), &sum));
  store_add_file(&sums, "first", sum);
  store_add_file(&sums, "second", sum);
  OK(store_check_file(&sums, scratch, "second"));
  assert_true(store_has_file(&sums, "first") && !store_has_file(&sums, "third"));
  assert_int_equal(store_check_file(&sums, scratch, "first"), ERR_WORK);
  assert_says(at("first"));
  assert_int_equal(store_check_file(&sums, scratch, "third"), ERR_WORK);
  assert_says("'files' has no 'third'");
  assert_int_equal(unlink(at("second")), 0);
  assert_int_equal(store_check_file(&sums, scratch, "second"), ERR_WORK);
  assert_says("No such file");
}

static void copy_file(const char *from, const char *to) {
  Str bytes = {0};
  OK(file_read(from, (size_t)1 << 20, &bytes));
  OK(file_write(to, str_text(&bytes), bytes.len));
  str_free(&bytes);
}

/* Adds a file of the directory to the list, with its checksum. */
static void list_file(StoreSums *sums, const char *dir, const char *name) {
  char path[FILE_PATH_MAX];
  FileSum sum;
  OK(file_join(path, dir, name));
  OK(filesum_file(path, &sum));
  store_add_file(sums, name, sum);
}

#define GOLDEN "tests/golden/marian/hf/"

/* Opens the tokenizer for a model of `vocab` tokens; `words`: of the error, NULL: none. */
static void check_tokenizer(const StoreSums *sums, int vocab, const char *words) {
  Tokenizer t = {0};
  Err err = store_open_tokenizer(&t, sums, vocab, at("words"));
  if (!words) {
    if (err) fail_msg("%s", err_message());
    tokenizer_close(&t);
    return;
  }
  assert_int_equal(err, ERR_WORK);
  assert_says(at("words"));
  assert_says(words);
}

static void test_tokenizer_of_another_model_is_refused(void **state) {
  (void)state;
  StoreSums sums = {.known = true};
  Tokenizer t;
  char words[96];
  OK(file_mkdirs(at("words")));
  copy_file(GOLDEN "source.spm", at("words/tokenizer.model"));
  list_file(&sums, at("words"), "tokenizer.model");
  OK(tokenizer_open(&t, at("words/tokenizer.model")));
  int pieces = t.vocab;
  tokenizer_close(&t);
  check_tokenizer(&sums, pieces, NULL);
  for (int vocab = pieces - 1; vocab <= pieces + 1; vocab += 2) {
    snprintf(words, sizeof words, "has %d pieces, but the model has %d: ", pieces, vocab);
    check_tokenizer(&sums, vocab, words);
  }
  sums.file[0].sum.crc++;
  check_tokenizer(&sums, pieces, "CRC-32");
  sums.known = false;
  check_tokenizer(&sums, pieces, NULL);
  OK(file_write(at("words/tokenizer.model"), "x", 1));
  check_tokenizer(&sums, pieces, "tokenizer.model");
}

/* A pair of SentencePiece models may have fewer ids than the model has tokens. */
static void test_tokenizer_pair_of_another_model_is_refused(void **state) {
  (void)state;
  static const char *const files[] = {"source.spm", "target.spm", "vocab.json"};
  StoreSums sums = {.known = true};
  Tokenizer t;
  char from[64], to[64], words[96];
  OK(file_mkdirs(at("words")));
  for (int i = 0; i < 3; i++) {
    snprintf(from, sizeof from, GOLDEN "%s", files[i]);
    snprintf(to, sizeof to, "words/%s", files[i]);
    copy_file(from, at(to));
    list_file(&sums, at("words"), files[i]);
  }
  OK(tokenizer_open_pair(&t, at("words")));
  int ids = t.vocab;
  tokenizer_close(&t);
  check_tokenizer(&sums, ids, NULL);
  check_tokenizer(&sums, ids + 1, NULL);
  snprintf(words, sizeof words, "has ids up to %d, but the model has %d tokens", ids - 1,
           ids - 1);
  check_tokenizer(&sums, ids - 1, words);
  for (int i = 0; i < 3; i++) {
    sums.file[i].sum.crc++;
    check_tokenizer(&sums, ids, files[i]);
    assert_says("CRC-32");
    sums.file[i].sum.crc--;
  }
  sums.known = false;
  OK(file_write(at("words/vocab.json"), "x", 1));
  check_tokenizer(&sums, ids, "vocab.json");
}

static void test_store_path_that_is_too_long_is_refused(void **state) {
  (void)state;
  static char dir[FILE_PATH_MAX];
  memset(dir, 'd', sizeof dir - 1);
  ModelConfig model = transformer_model_config(&sizes);
  StoreSums sums = {.known = true};
  Tokenizer t;
  assert_int_equal(store_load_config(&model, NULL, dir), ERR_WORK);
  assert_says("this path is too long");
  model = transformer_model_config(&sizes);
  assert_int_equal(store_save_config(&model, &sums, dir), ERR_WORK);
  assert_says("this path is too long");
  assert_int_equal(store_check_file(&sums, dir, "other"), ERR_WORK);
  assert_says("this path is too long");
  store_add_file(&sums, "other", (FileSum){0});
  assert_int_equal(store_check_file(&sums, dir, "other"), ERR_WORK);
  assert_says("this path is too long");
  assert_int_equal(store_open_tokenizer(&t, &(StoreSums){0}, 1, dir), ERR_WORK);
  assert_says("this path is too long");
}

static void test_store_place_that_is_unknown_is_refused(void **state) {
  (void)state;
  ModelConfig model;
  assert_int_equal(store_load_config(&model, NULL, "other://model"), ERR_WORK);
  assert_says("other://");
  assert_null(strstr(err_message(), "is not a model"));
}

static void test_store_directory_that_is_missing_is_an_error(void **state) {
  (void)state;
  ModelConfig model = transformer_model_config(&sizes);
  Params p = {0};
  FileSum sum;
  assert_int_equal(store_save_config(&model, &(StoreSums){0}, at("missing")), ERR_WORK);
  assert_says(at("missing/model.json"));
  assert_int_equal(store_save_summed(&p, NULL, at("missing/tensors"), &sum), ERR_WORK);
  assert_says(at("missing/tensors"));
}

/* ---- tensors ---- */

/* A matrix (2, 3), a vector (4) and a matrix (5, 2). */
static void lay_out_arrays(Params *p) {
  Err err = ERR_OK;
  *p = (Params){0};
  params_add(p, &err, INIT_ZERO, 0, 2, 3, "first");
  params_add(p, &err, INIT_ZERO, 0, 4, 1, "second");
  params_add(p, &err, INIT_ZERO, 0, 5, 2, "third");
  OK(err);
  params_finish(p);
}

/* Writes the tensors with values 1, 2, 3 … */
static void put_tensors(const SafeEntry *entry, size_t entries) {
  FileWriter w;
  OK(file_create(&w, at("tensors")));
  OK(safetensors_begin(&w, entry, entries, NULL));
  float value = 0;
  for (size_t i = 0; i < entries; i++) {
    uint64_t count = 1;
    for (int k = 0; k < entry[i].dimensions; k++) count *= entry[i].shape[k];
    for (; count > 0; count--) {
      value++;
      OK(file_put(&w, &value, sizeof value));
    }
  }
  OK(file_finish(&w, NULL));
  file_abandon(&w);
}

static void test_array_whose_tensors_fit_is_read_by_name(void **state) {
  (void)state;
  static const SafeEntry entry[] = {{.name = "third", .dimensions = 2, .shape = {5, 2}},
                                    {.name = "first", .dimensions = 2, .shape = {2, 3}},
                                    {.name = "second", .dimensions = 1, .shape = {4}}};
  Params p;
  float *array;
  lay_out_arrays(&p);
  put_tensors(entry, 3);
  OK(mem_alloc(&array, p.padded, sizeof *array));
  OK(store_load_array(&p, array, at("tensors")));
  assert_true(array[p.param[2].offset] == 1 && array[p.param[2].offset + 9] == 10);
  assert_true(array[p.param[0].offset] == 11 && array[p.param[0].offset + 5] == 16);
  assert_true(array[p.param[1].offset] == 17 && array[p.param[1].offset + 3] == 20);
  mem_free(array);
  params_free(&p);
}

static void test_array_whose_tensors_do_not_fit_is_refused(void **state) {
  (void)state;
#define FIRST                                           \
  {                                                     \
    .name = "first", .dimensions = 2, .shape = { 2, 3 } \
  }
#define SECOND                                        \
  {                                                   \
    .name = "second", .dimensions = 1, .shape = { 4 } \
  }
#define THIRD                                           \
  {                                                     \
    .name = "third", .dimensions = 2, .shape = { 5, 2 } \
  }
#define SHAPE "' does not have the shape that model.json requires"
  static const struct {
    SafeEntry entry[4];
    size_t entries;
    const char *words;
  } cases[] = {
      {{FIRST, SECOND}, 2, "has no tensor 'third', which model.json requires"},
      {{SECOND, THIRD}, 2, "has no tensor 'first', which model.json requires"},
      {{FIRST, {.name = "seconds", .dimensions = 1, .shape = {4}}, THIRD},
       3,
       "has no tensor 'second', which model.json requires"},
      {{FIRST, SECOND, THIRD, {.name = "fourth", .dimensions = 1, .shape = {1}}},
       4,
       "has 4 tensors, model.json requires 3"},
      {{{.name = "first", .dimensions = 2, .shape = {3, 3}}, SECOND, THIRD},
       3,
       "tensor 'first" SHAPE},
      {{{.name = "first", .dimensions = 2, .shape = {2, 2}}, SECOND, THIRD},
       3,
       "tensor 'first" SHAPE},
      {{{.name = "first", .dimensions = 2, .shape = {3, 2}}, SECOND, THIRD},
       3,
       "tensor 'first" SHAPE},
      {{{.name = "first", .dimensions = 3, .shape = {2, 3, 1}}, SECOND, THIRD},
       3,
       "tensor 'first" SHAPE},
      {{{.name = "first", .dimensions = 1, .shape = {2}}, SECOND, THIRD},
       3,
       "tensor 'first" SHAPE},
      {{FIRST, {.name = "second", .dimensions = 1, .shape = {5}}, THIRD},
       3,
       "tensor 'second" SHAPE},
      {{FIRST, {.name = "second", .dimensions = 2, .shape = {4, 1}}, THIRD},
       3,
       "tensor 'second" SHAPE},
  };
  Params p;
  float *array, *weights;
  lay_out_arrays(&p);
  OK(mem_alloc(&array, p.padded, sizeof *array));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_tensors(cases[i].entry, cases[i].entries);
    if (store_load_array(&p, array, at("tensors")) == ERR_OK) fail_msg("case %zu", i);
    assert_says(at("tensors"));
    assert_says(cases[i].words);
    assert_int_equal(store_load_weights(&p, &(StoreSums){0}, at("tensors"), &weights),
                     ERR_WORK);
    assert_null(weights);
  }
  mem_free(array);
  params_free(&p);
}

static void test_weights_with_another_checksum_are_refused(void **state) {
  (void)state;
  Params p;
  float *array, *weights;
  StoreSums sums = {.known = true};
  lay_out_arrays(&p);
  OK(mem_alloc(&array, p.padded, sizeof *array));
  OK(store_save_summed(&p, array, at("tensors"), &sums.weights));
  OK(store_load_weights(&p, &sums, at("tensors"), &weights));
  mem_free(weights);
  sums.weights.crc++;
  assert_int_equal(store_load_weights(&p, &sums, at("tensors"), &weights), ERR_WORK);
  assert_says(at("tensors"));
  assert_says("CRC-32");
  sums.known = false;
  OK(store_load_weights(&p, &sums, at("tensors"), &weights));
  mem_free(weights);
  mem_free(array);
  params_free(&p);
}

/* The error names the number and the byte, which is where the file has it. */
static void test_weight_that_is_not_finite_is_refused_with_its_byte(void **state) {
  (void)state;
  static const struct {
    float value;
    size_t param, k;
  } cases[] = {{NAN, 0, 0}, {-NAN, 2, 9}, {INFINITY, 1, 3}, {-INFINITY, 2, 4}};
  Params p;
  float *array, *weights;
  lay_out_arrays(&p);
  OK(mem_alloc(&array, p.padded, sizeof *array));
  for (size_t i = 0; i < p.padded; i++) array[i] = i % 2 ? 3e38f : 1e-45f;
  OK(store_save_array(&p, array, at("tensors")));
  OK(store_load_weights(&p, &(StoreSums){0}, at("tensors"), &weights));
  mem_free(weights);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Param *q = &p.param[cases[i].param];
    float kept = array[q->offset + cases[i].k], found;
    char words[96];
    Str file = {0};
    unsigned long long byte;
    array[q->offset + cases[i].k] = cases[i].value;
    OK(store_save_array(&p, array, at("tensors")));
    array[q->offset + cases[i].k] = kept;
    assert_int_equal(store_load_weights(&p, &(StoreSums){0}, at("tensors"), &weights),
                     ERR_WORK);
    mem_free(weights);
    assert_says(at("tensors"));
    snprintf(words, sizeof words, "number %zu of '%s' (byte ", cases[i].k, q->name);
    assert_says(words);
    assert_int_equal(
        sscanf(strstr(err_message(), words) + strlen(words), "%llu) is not finite", &byte), 1);
    OK(file_read(at("tensors"), 1 << 16, &file));
    assert_true(byte + sizeof found <= file.len);
    memcpy(&found, file.s + byte, sizeof found);
    assert_memory_equal(&found, &cases[i].value, sizeof found);
    str_free(&file);
  }
  mem_free(array);
  params_free(&p);
}

/* ---- memory ---- */

static Err save_and_load(const Params *p, float *array) {
  ModelConfig config = transformer_model_config(&sizes);
  StoreSums sums = {.known = true};
  float *weights;
  TRY(store_save_summed(p, array, at("tensors"), &sums.weights));
  TRY(store_save_config(&config, &sums, scratch));
  TRY(store_load_config(&config, NULL, scratch));
  TRY(store_load_array(p, array, at("tensors")));
  Err err = store_load_weights(p, &sums, at("tensors"), &weights);
  mem_free(weights);
  return err;
}

static void test_store_out_of_memory_is_an_error(void **state) {
  (void)state;
  Params p;
  float *array;
  lay_out_arrays(&p);
  OK(mem_alloc(&array, p.padded, sizeof *array));
  for (uint64_t n = 1;; n++) {
    uint64_t before = mem_count();
    mem_fail_once(n);
    Err err = save_and_load(&p, array);
    mem_fail_once(0);
    if (!err) {
      assert_true(mem_count() - before < n); /* no allocation failed */
      break;
    }
    assert_says("out of memory");
    assert_true(n < 200);
  }
  mem_free(array);
  params_free(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_config_field_missing_or_of_wrong_type_is_refused),
      cmocka_unit_test(test_config_field_has_exact_limits),
      cmocka_unit_test(test_config_fields_that_contradict_each_other_are_refused),
      cmocka_unit_test(test_model_json_wrong_member_is_refused),
      cmocka_unit_test(test_model_json_member_at_its_limit_is_accepted),
      cmocka_unit_test(test_model_json_lists_at_most_4_files_and_the_weights),
      cmocka_unit_test(test_model_json_of_version_1_has_no_checksums),
      cmocka_unit_test(test_model_json_text_that_is_no_object_is_refused),
      cmocka_unit_test(test_model_json_of_too_many_values_is_refused),
      cmocka_unit_test(test_model_json_changed_after_it_was_sealed_is_refused),
      cmocka_unit_test(test_directory_without_model_json_is_refused),
      cmocka_unit_test(test_store_check_file_refuses_other_contents),
      cmocka_unit_test(test_tokenizer_of_another_model_is_refused),
      cmocka_unit_test(test_tokenizer_pair_of_another_model_is_refused),
      cmocka_unit_test(test_store_path_that_is_too_long_is_refused),
      cmocka_unit_test(test_store_place_that_is_unknown_is_refused),
      cmocka_unit_test(test_store_directory_that_is_missing_is_an_error),
      cmocka_unit_test(test_array_whose_tensors_fit_is_read_by_name),
      cmocka_unit_test(test_array_whose_tensors_do_not_fit_is_refused),
      cmocka_unit_test(test_weights_with_another_checksum_are_refused),
      cmocka_unit_test(test_weight_that_is_not_finite_is_refused_with_its_byte),
      cmocka_unit_test(test_store_out_of_memory_is_an_error),
  };
  return cmocka_run_group_tests(tests, make_sound, drop_sound);
}
