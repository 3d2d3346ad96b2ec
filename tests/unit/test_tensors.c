/* The tensors of a directory of Hugging Face: one file, several files with an index, PyTorch files,
 * and directories in which something is missing. */
#include <stdio.h>

#include "base/mem.h"
#include "format/tensors.h"
#include "support.h"

/* Writes a file with one tensor of three floats: first, first + 1, first + 2. */
static void write_file(const char *path, const char *name, float first) {
  SafeEntry entry = {.name = name, .type = SAFE_F32, .dimensions = 1, .shape = {3}};
  float data[3] = {first, first + 1, first + 2};
  FileWriter w;
  OK(file_create(&w, path));
  OK(safetensors_begin(&w, &entry, 1, NULL));
  OK(file_put(&w, data, sizeof data));
  OK(file_finish(&w, NULL));
}

static void write_text(const char *path, const char *text) {
  OK(file_write(path, text, strlen(text)));
}

/* Empties the directory "hf" in the scratch directory. */
static void make_empty(void) {
  if (file_exists(at("hf"))) OK(file_remove_all(at("hf")));
  OK(file_mkdirs(at("hf")));
}

static void assert_refused(const char *words) {
  TensorSource s;
  assert_int_equal(tensors_open(&s, at("hf")), ERR_WORK);
  assert_says(words);
}

static void assert_value(const TensorSource *s, const char *name, float first) {
  float out[3];
  const TensorEntry *e = tensors_find(s, name);
  assert_non_null(e);
  assert_int_equal(e->dimensions, 1);
  assert_int_equal(e->shape[0], 3);
  OK(tensors_read(s, e, out, 3));
  assert_true(out[0] == first && out[2] == first + 2);
}

static void test_tensors_of_one_file_are_found(void **state) {
  TensorSource s;
  (void)state;
  make_empty();
  write_file(at("hf/model.safetensors"), "a", 5);
  OK(tensors_open(&s, at("hf")));
  assert_int_equal(s.entries, 1);
  assert_value(&s, "a", 5);
  assert_null(tensors_find(&s, "b"));
  tensors_close(&s);
}

static void write_shards(void) {
  make_empty();
  write_file(at("hf/model-00001-of-00002.safetensors"), "b", 1);
  write_file(at("hf/model-00002-of-00002.safetensors"), "a", 7);
  write_text(at("hf/model.safetensors.index.json"),
             "{\"metadata\": {}, \"weight_map\": {\"b\": \"model-00001-of-00002.safetensors\","
             " \"a\": \"model-00002-of-00002.safetensors\"}}");
}

static void test_tensors_of_several_files_are_found(void **state) {
  TensorSource s;
  (void)state;
  write_shards();
  OK(tensors_open(&s, at("hf")));
  assert_int_equal(s.entries, 2);
  assert_value(&s, "a", 7);
  assert_value(&s, "b", 1);
  tensors_close(&s);
}

static void test_tensors_of_a_torch_file_are_found(void **state) {
  TensorSource s;
  float out[12];
  Str bytes = {0};
  (void)state;
  make_empty();
  OK(file_read("tests/golden/torch/state.bin", (size_t)1 << 20, &bytes));
  OK(file_write(at("hf/pytorch_model.bin"), bytes.s, bytes.len));
  str_free(&bytes);
  OK(tensors_open(&s, at("hf")));
  const TensorEntry *e = tensors_find(&s, "transposed");
  assert_non_null(e);
  OK(tensors_read(&s, e, out, 12));
  assert_true(out[11] == 0.75f);
  tensors_close(&s);
}

static void test_tensors_missing_shard_is_named(void **state) {
  (void)state;
  write_shards();
  OK(file_remove_all(at("hf/model-00002-of-00002.safetensors")));
  assert_refused("model-00002-of-00002.safetensors");
}

static void test_tensors_in_another_shard_than_indexed_are_refused(void **state) {
  (void)state;
  write_shards();
  write_file(at("hf/model-00002-of-00002.safetensors"), "other", 7);
  assert_refused("has no tensor 'a'");
}

static void test_tensors_with_the_same_name_in_two_shards_are_refused(void **state) {
  (void)state;
  write_shards();
  write_file(at("hf/model-00002-of-00002.safetensors"), "b", 7);
  assert_refused("both have a tensor 'b'");
}

static void test_tensors_index_with_paths_or_without_map_is_refused(void **state) {
  (void)state;
  make_empty();
  write_text(at("hf/model.safetensors.index.json"), "{\"weight_map\": {\"a\": \"../x\"}}");
  assert_refused("is not a file name");
  write_text(at("hf/model.safetensors.index.json"), "{\"weight_map\": {\"a\": 3}}");
  assert_refused("is not a file name");
  write_text(at("hf/model.safetensors.index.json"), "{}");
  assert_refused("has no \"weight_map\"");
  write_text(at("hf/model.safetensors.index.json"), "{");
  assert_refused("not JSON");
}

static void test_tensors_of_a_directory_without_weights_are_refused(void **state) {
  (void)state;
  make_empty();
  assert_refused("has no weights");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tensors_of_one_file_are_found),
      cmocka_unit_test(test_tensors_of_several_files_are_found),
      cmocka_unit_test(test_tensors_of_a_torch_file_are_found),
      cmocka_unit_test(test_tensors_missing_shard_is_named),
      cmocka_unit_test(test_tensors_in_another_shard_than_indexed_are_refused),
      cmocka_unit_test(test_tensors_with_the_same_name_in_two_shards_are_refused),
      cmocka_unit_test(test_tensors_index_with_paths_or_without_map_is_refused),
      cmocka_unit_test(test_tensors_of_a_directory_without_weights_are_refused),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
