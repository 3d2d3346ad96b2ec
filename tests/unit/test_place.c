/* Storage kinds: ranges of local files, and a second kind in memory, from which a data set and a
 * model are read like from a directory.
 * run-tests: own program */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/filesum.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/rng.h"
#include "data/batch.h"
#include "data/prepare.h"
#include "model/store.h"
#include "model/transformer.h"
#include "support.h"

/* ---- a storage kind in memory: mem://NAME is a copy of the local file NAME ---- */

#define MEM_FILES 64

typedef struct {
  char path[FILE_PATH_MAX];
  Str text;
} MemFile;

static MemFile mem_file[MEM_FILES];
static size_t mem_files;
static size_t mem_open_now;

static MemFile *find_mem(const char *path) {
  for (size_t i = 0; i < mem_files; i++)
    if (strcmp(mem_file[i].path, path) == 0) return &mem_file[i];
  return NULL;
}

static Err open_mem(PlaceFile *f) {
  MemFile *m = find_mem(f->path);
  if (!m) return err_set(ERR_WORK, "cannot open %s: nothing has this name", f->path);
  f->size = m->text.len;
  f->state = m;
  mem_open_now++;
  return ERR_OK;
}

static void close_mem(PlaceFile *f) {
  (void)f;
  mem_open_now--;
}

static Err read_mem(const PlaceFile *f, uint64_t offset, void *to, size_t len) {
  memcpy(to, ((MemFile *)f->state)->text.s + offset, len);
  return ERR_OK;
}

static PlaceType type_mem(const char *path) {
  if (find_mem(path)) return PLACE_FILE;
  size_t len = strlen(path);
  for (size_t i = 0; i < mem_files; i++)
    if (strncmp(mem_file[i].path, path, len) == 0 && mem_file[i].path[len] == '/')
      return PLACE_DIRECTORY;
  return PLACE_MISSING;
}

static Err size_mem(const char *path, uint64_t *bytes) {
  MemFile *m = find_mem(path);
  if (!m) return err_set(ERR_WORK, "cannot read %s: nothing has this name", path);
  *bytes = m->text.len;
  return ERR_OK;
}

static const PlaceKind mem_place = {.scheme = "mem",
                                    .open = open_mem,
                                    .close = close_mem,
                                    .read = read_mem,
                                    .type = type_mem,
                                    .size = size_mem};

typedef struct {
  const char *local, *mem;
} Upload;

static Err upload_file(void *context, const char *name) {
  const Upload *u = context;
  char path[FILE_PATH_MAX];
  MemFile *m = &mem_file[mem_files];
  TRY(file_join(path, u->local, name));
  TRY(file_join(m->path, u->mem, name));
  assert_true(mem_files < MEM_FILES);
  mem_files++;
  return file_read(path, (size_t)1 << 24, &m->text);
}

/* Copies the files of a local directory to the directory `mem`. */
static void upload(const char *local, const char *mem) {
  OK(place_list(local, upload_file, &(Upload){local, mem}));
}

static void clear_mem(void) {
  for (size_t i = 0; i < mem_files; i++) str_free(&mem_file[i].text);
  memset(mem_file, 0, sizeof mem_file);
  mem_files = 0;
}

/* ---- ranges ---- */

static void make_file(const char *name, size_t len) {
  char *bytes;
  OK(mem_alloc(&bytes, len, 1));
  for (size_t i = 0; i < len; i++) bytes[i] = (char)(i * 7 + i / 256);
  OK(file_write(at(name), bytes, len));
  mem_free(bytes);
}

static void test_place_local_pin_at_any_offset_holds_the_files_bytes(void **state) {
  (void)state;
  size_t pins = place_pins();
  PlaceFile f;
  make_file("range", 20000);
  OK(place_open(&f, at("range")));
  assert_int_equal(f.size, 20000);
  static const size_t begin[] = {0, 1, 4095, 4096, 4097, 19999};
  for (size_t i = 0; i < sizeof begin / sizeof *begin; i++) {
    size_t len = 20000 - begin[i] < 9000 ? 20000 - begin[i] : 9000;
    uint8_t read[9000];
    PlacePin pin;
    OK(place_read(&f, begin[i], read, len));
    OK(place_pin(&f, begin[i], len, &pin));
    assert_int_equal(place_pins(), pins + 1);
    assert_int_equal(pin.size, len);
    assert_memory_equal(pin.bytes, read, len);
    for (size_t k = 0; k < len; k++)
      assert_int_equal(read[k], (uint8_t)((begin[i] + k) * 7 + (begin[i] + k) / 256));
    place_unpin(&pin);
    place_unpin(&pin); /* A second place_unpin must have no effect. */
    assert_int_equal(place_pins(), pins);
  }
  place_close(&f);
  place_close(&f); /* A second place_close must have no effect. */
}

/* Replaces fstatfs of the C library in this program: every file system looks like NFS. */
int fstatfs(int fd, struct statfs *fs) {
  (void)fd;
  *fs = (struct statfs){.f_type = 0x6969};
  return 0;
}

static void test_place_pin_on_a_network_file_system_is_mapped(void **state) {
  (void)state;
  PlacePin pin;
  make_file("network", 5000);
  OK(place_pin_file(&pin, at("network")));
  /* size of the mapping; a copy in private memory would have 0 */
  assert_int_equal(pin.state_size, 5000);
  assert_int_equal(pin.bytes[4999], (uint8_t)(4999 * 7 + 4999 / 256));
  place_unpin(&pin);
}

static void test_place_pin_stays_valid_after_close(void **state) {
  (void)state;
  PlaceFile f;
  PlacePin pin;
  make_file("closed", 5000);
  OK(place_open(&f, at("closed")));
  OK(place_pin(&f, 100, 50, &pin));
  place_close(&f);
  assert_int_equal(pin.bytes[0], (uint8_t)(100 * 7));
  assert_int_equal(pin.offset, 100);
  place_unpin(&pin);
}

static void test_place_range_past_the_end_is_refused_with_path_and_offset(void **state) {
  (void)state;
  PlaceFile f;
  PlacePin pin;
  uint8_t byte[11];
  size_t pins = place_pins();
  make_file("short", 100);
  OK(place_open(&f, at("short")));
  OK(place_read(&f, 100, byte, 0));
  static const uint64_t bad[] = {90, 101, UINT64_MAX - 3};
  for (size_t i = 0; i < 3; i++) {
    char offset[32];
    snprintf(offset, sizeof offset, "at byte %llu", (unsigned long long)bad[i]);
    assert_int_equal(place_read(&f, bad[i], byte, 11), ERR_WORK);
    assert_says(at("short"));
    assert_says(offset);
    assert_says("it has 100 bytes");
    assert_int_equal(place_pin(&f, bad[i], 11, &pin), ERR_WORK);
    assert_says(offset);
    place_unpin(&pin); /* Nothing is pinned after an error. */
  }
  assert_int_equal(place_pins(), pins);
  place_close(&f);
}

static void test_place_file_truncated_after_open_is_an_error_of_read(void **state) {
  (void)state;
  PlaceFile f;
  uint8_t byte[2000];
  make_file("cut", 5000);
  OK(place_open(&f, at("cut")));
  assert_int_equal(truncate(at("cut"), 1000), 0);
  OK(place_read(&f, 0, byte, 1000));
  assert_int_equal(place_read(&f, 500, byte, 2000), ERR_WORK);
  assert_says(at("cut"));
  assert_says("truncated while it was in use: it ends at byte 1000 and had 5000");
  place_close(&f);
}

static void test_place_open_of_a_missing_file_leaves_no_path(void **state) {
  (void)state;
  PlaceFile f;
  assert_int_equal(place_open(&f, at("missing")), ERR_WORK);
  assert_null(f.path);
  place_close(&f); /* Closing a file that is not open must have no effect. */
}

static void test_place_empty_file_can_be_pinned(void **state) {
  (void)state;
  PlacePin pin;
  OK(file_write(at("empty"), "", 0));
  OK(place_pin_file(&pin, at("empty")));
  assert_int_equal(pin.size, 0);
  assert_non_null(pin.bytes);
  place_unpin(&pin);
}

static void test_place_unknown_scheme_is_refused_with_remedy(void **state) {
  (void)state;
  PlaceFile f;
  DataSet d;
  uint64_t bytes;
  assert_int_equal(place_open(&f, "s3://bucket/set"), ERR_WORK);
  assert_says("s3://bucket/set");
  assert_says("copy the files to a local directory");
  assert_int_equal(place_size("s3://bucket/set", &bytes), ERR_WORK);
  assert_int_equal(place_list("s3://bucket/set", upload_file, NULL), ERR_WORK);
  assert_false(place_exists("s3://bucket/set"));
  assert_int_equal(dataset_open(&d, "s3://bucket/set"), ERR_WORK);
  assert_says("only local files are supported, not s3://");
  /* A colon inside a name does not make a scheme. */
  OK(file_mkdirs(at("a:")));
  OK(file_write(at("a:/b"), "x", 1));
  OK(place_size(at("a://b"), &bytes));
  assert_int_equal(bytes, 1);
}

static void test_place_without_listings_says_so(void **state) {
  (void)state;
  assert_int_equal(place_list("mem://x", upload_file, NULL), ERR_WORK);
  assert_says("mem://x");
}

/* Counts names; fails at the third one. */
static Err count_name(void *context, const char *name) {
  size_t *count = context;
  assert_true(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
  return ++*count == 3 ? err_set(ERR_WORK, "three") : ERR_OK;
}

static void test_place_list_visits_every_name_and_ends_at_an_error(void **state) {
  (void)state;
  size_t count = 0;
  OK(file_mkdirs(at("list")));
  OK(file_write(at("list/a"), "", 0));
  OK(file_write(at("list/b"), "", 0));
  OK(place_list(at("list"), count_name, &count));
  assert_int_equal(count, 2);
  OK(file_write(at("list/c"), "", 0));
  OK(file_write(at("list/d"), "", 0));
  count = 0;
  assert_int_equal(place_list(at("list"), count_name, &count), ERR_WORK);
  assert_int_equal(count, 3);
  assert_int_equal(place_list(at("missing"), count_name, &count), ERR_WORK);
  assert_says(at("missing"));
}

/* ---- a data set ---- */

static void make_dataset(void) {
  Str text[2] = {{0}, {0}};
  Rng rng = {.key = 9};
  for (int i = 0; i < 2000; i++) {
    uint64_t words = 1 + rng_below(&rng, 12);
    for (uint64_t w = 0; w < words; w++) {
      unsigned a = (unsigned)rng_below(&rng, 20), c = (unsigned)rng_below(&rng, 20);
      str_addf(&text[0], "%s%c%co%c", w ? " " : "", 'a' + a, 'a' + c, 'a' + a);
      str_addf(&text[1], "%s%cu%c", w ? " " : "", 'a' + c, 'a' + a);
    }
    str_addc(&text[0], '\n');
    str_addc(&text[1], '\n');
  }
  OK(file_write(at("text.a"), text[0].s, text[0].len));
  OK(file_write(at("text.b"), text[1].s, text[1].len));
  str_free(&text[0]);
  str_free(&text[1]);
  TextPair train = {.path = {at("text.a"), at("text.b")}};
  PrepareSpec spec = {.out = at("set"),
                      .train = &train,
                      .trains = 1,
                      .valid = train,
                      .lang = {"a", "b"},
                      .rules = {1, 80, 1000, 9},
                      .max_tokens = 255,
                      .training = {"bpe", 300, 1.0},
                      .sample = 2000,
                      .seed = 1,
                      .shard_bytes = 16384,
                      .threads = 2};
  Meta meta;
  OK(prepare_run(&spec, &meta));
  assert_true(meta.split[SPLIT_TRAIN].shards > 1);
  meta_free(&meta);
}

/* Computes a CRC-32 over all batches of two epochs. */
static uint32_t sum_batches(const char *dir) {
  DataSet d;
  OrderPlan plan;
  Batch b;
  uint32_t crc = 0;
  OK(dataset_open(&d, dir));
  OK(dataset_verify(&d));
  OK(order_plan(&plan, &d.order, 256));
  OK(batch_new(&b, plan.capacity, plan.most_sentences));
  for (uint64_t i = 0; i < 2 * plan.batches; i++) {
    OK(batch_fill(&b, &d, &plan, 3, i / plan.batches, i % plan.batches));
    FileSum sum =
        filesum_bytes((const uint8_t *)b.memory_,
                      batch_ints(plan.capacity, plan.most_sentences) * sizeof(int32_t));
    crc = (uint32_t)rng_mix(crc, sum.crc);
  }
  batch_free(&b);
  order_plan_free(&plan);
  dataset_close(&d);
  return crc;
}

static void test_dataset_in_another_place_gives_the_same_batches(void **state) {
  (void)state;
  size_t pins = place_pins();
  make_dataset();
  upload(at("set"), "mem://set");
  assert_int_equal(sum_batches("mem://set"), sum_batches(at("set")));
  assert_int_equal(place_pins(), pins);
  assert_int_equal(mem_open_now, 0);
  clear_mem();
}

/* Each file of the data set in turn is truncated to half its size, then removed. */
static void test_dataset_with_truncated_or_missing_file_names_it(void **state) {
  (void)state;
  size_t pins = place_pins();
  upload(at("set"), "mem://set");
  for (size_t i = 0; i < mem_files; i++) {
    MemFile *m = &mem_file[i];
    DataSet d;
    for (int missing = 0; missing < 2; missing++) {
      char path[FILE_PATH_MAX];
      memcpy(path, m->path, sizeof path);
      size_t len = m->text.len;
      m->text.len = len / 2;
      if (missing) m->path[0] = 'x';
      Err err = dataset_open(&d, "mem://set");
      if (!err) {
        err = dataset_verify(&d);
        dataset_close(&d);
      }
      assert_int_equal(err, ERR_WORK);
      if (!strstr(err_message(), strrchr(path, '/') + 1))
        fail_msg("\"%s\" does not name %s", err_message(), path);
      m->path[0] = path[0];
      m->text.len = len;
    }
  }
  assert_int_equal(place_pins(), pins);
  clear_mem();
}

/* ---- a model ---- */

static void test_model_in_another_place_has_the_same_weights(void **state) {
  (void)state;
  size_t pins = place_pins();
  TransformerConfig config;
  OK(transformer_preset(&config, "tiny"));
  config.vocab = 300;
  config.max_positions = 256;
  config.pad = 0;
  config.bos = 2;
  config.eos = 3;
  ModelConfig model = transformer_model_config(&config), back;
  Params params;
  StoreSums sums = {.known = true}, read;
  float *w, *local, *mem;
  OK(transformer_lay_out_params(&params, &config));
  OK(mem_alloc_aligned(&w, params.padded * sizeof *w));
  params_init(&params, 5, w);
  OK(file_mkdirs(at("model")));
  OK(store_save_summed(&params, w, at("model/weights.safetensors"), &sums.weights));
  OK(store_save_config(&model, &sums, at("model")));
  upload(at("model"), "mem://model");
  OK(store_load_config(&back, &read, "mem://model"));
  OK(store_load_weights(&params, &read, at("model/weights.safetensors"), &local));
  OK(store_load_weights(&params, &read, "mem://model/weights.safetensors", &mem));
  assert_memory_equal(local, w, params.padded * sizeof *w);
  assert_memory_equal(mem, w, params.padded * sizeof *w);
  mem_free(mem);
  find_mem("mem://model/weights.safetensors")->text.len -= 4;
  assert_int_equal(store_load_weights(&params, &read, "mem://model/weights.safetensors", &mem),
                   ERR_WORK);
  assert_says("mem://model/weights.safetensors");
  assert_int_equal(place_pins(), pins);
  mem_free(w);
  mem_free(local);
  params_free(&params);
  clear_mem();
}

int main(void) {
  place_register(&mem_place);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_place_local_pin_at_any_offset_holds_the_files_bytes),
      cmocka_unit_test(test_place_pin_on_a_network_file_system_is_mapped),
      cmocka_unit_test(test_place_pin_stays_valid_after_close),
      cmocka_unit_test(test_place_range_past_the_end_is_refused_with_path_and_offset),
      cmocka_unit_test(test_place_file_truncated_after_open_is_an_error_of_read),
      cmocka_unit_test(test_place_open_of_a_missing_file_leaves_no_path),
      cmocka_unit_test(test_place_empty_file_can_be_pinned),
      cmocka_unit_test(test_place_unknown_scheme_is_refused_with_remedy),
      cmocka_unit_test(test_place_without_listings_says_so),
      cmocka_unit_test(test_place_list_visits_every_name_and_ends_at_an_error),
      cmocka_unit_test(test_dataset_in_another_place_gives_the_same_batches),
      cmocka_unit_test(test_dataset_with_truncated_or_missing_file_names_it),
      cmocka_unit_test(test_model_in_another_place_has_the_same_weights),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
