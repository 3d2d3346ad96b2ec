/* backend_open on a machine without a GPU: the test compiles its own plug-in. Also tests the GEMM
 * algorithm cache, whose source is included because it is part of the CUDA plug-in. Depends on
 * backend.h, a C compiler.
 * run-tests: own program */
#include <stdio.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/cuda/algo_cache.c"
#include "base/log.h"
#include "base/plugin.h"
#include "support.h"

static Err try_open(Backend *b, const char *device, const char *precision) {
  return backend_open(b, &(BackendSpec){device, precision, 1});
}

static void test_backend_open_cpu_succeeds(void **state) {
  (void)state;
  Backend b;
  OK(try_open(&b, "cpu", "fp32"));
  assert_string_equal(b.name, "cpu");
  assert_true(b.host && b.type == TYPE_F32 && b.device_id == 0);
  uint64_t left, all;
  OK(b.memory(&b, &left, &all));
  assert_true(left > 1 << 20 && left <= all && all < (uint64_t)1 << 50);
  backend_close(&b);
  backend_close(&b);
  assert_null(b.linear);
}

static void test_backend_open_unknown_values_are_usage_errors(void **state) {
  (void)state;
  static const struct {
    const char *device, *precision, *says;
  } cases[] = {
      {"gpu", "fp32", "unknown --device 'gpu'"},
      {"cuda:", "fp32", "unknown --device 'cuda:'"},
      {"cuda:x", "fp32", "cuda:N"},
      {"cuda:-1", "fp32", "cuda:N"},
      {"cuda:-0", "fp32", "cuda:N"},
      {"cuda: 1", "fp32", "cuda:N"},
      {"cuda:1x", "fp32", "cuda:N"},
      {"cuda:9999999999", "fp32", "cuda:N"},
      {"cpu", "fp4", "unknown --precision 'fp4'"},
      {"cpu", "fp8", "--precision fp8 is not available on the CPU"},
      {"cpu", "tf32", "--precision fp32 or bf16"},
      {"cpu", "fp16", "--device cuda"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Backend b;
    assert_int_equal(try_open(&b, cases[i].device, cases[i].precision), ERR_USAGE);
    assert_says(cases[i].says);
  }
}

/* Must run before the test compiles its plug-in. */
static void test_backend_open_without_plugin_falls_back_only_for_auto(void **state) {
  (void)state;
  Backend b;
  assert_int_equal(try_open(&b, "cuda", "fp32"), ERR_WORK);
  assert_says("--device cuda is not available");
  assert_says("libtrireme-cuda.so");
  assert_says("--device cpu");
  OK(try_open(&b, "auto", "fp32"));
  assert_string_equal(b.name, "cpu");
  backend_close(&b);
  /* tf32 must not fall back to fp32 */
  assert_int_equal(try_open(&b, "auto", "tf32"), ERR_USAGE);
}

/* The plug-in pretends to have GPUs 0 and 1 without bf16; it calls err_set of the program. */
static void test_backend_open_with_plugin_selects_gpu_by_rank(void **state) {
  (void)state;
  char source[2048], command[4 * FILE_PATH_MAX];
  const char *cc = getenv("CC");
  snprintf(source, sizeof source,
           "#include \"backend/cuda/cuda.h\"\n"
           "const char trireme_plugin_version[] = \"%s\";\n"
           "Err trireme_backend_cuda(Backend *b, const CudaSpec *s) {\n"
           "  if (s->table != sizeof *b) return err_set(ERR_WORK, \"of another size\");\n"
           "  if (s->type == TYPE_BF16) return err_set(ERR_USAGE, \"no bf16 units\");\n"
           "  int device = s->any ? s->device %% 2 : s->device;\n"
           "  if (device > 1) return err_set(ERR_WORK, \"no GPU %%d\", device);\n"
           "  *b = (Backend){.name = \"cuda\", .type = s->type, .threads = device,\n"
           "                 .bf16 = s->tf32};\n"
           "  return ERR_OK;\n"
           "}\n",
           PLUGIN_VERSION);
  OK(file_write(at("fake.c"), source, strlen(source)));
  snprintf(command, sizeof command,
           "%s -shared -fPIC -Isrc -D_GNU_SOURCE -o %s/libtrireme-cuda.so %s",
           cc && *cc ? cc : "cc", scratch, at("fake.c"));
  assert_int_equal(system(command), 0);
  Backend b;
  OK(try_open(&b, "auto", "fp32"));
  assert_true(strcmp(b.name, "cuda") == 0 && b.threads == 0 && b.type == TYPE_F32 && !b.bf16);
  OK(try_open(&b, "cuda:1", "tf32"));
  assert_true(b.threads == 1 && b.type == TYPE_F32 && b.bf16);
  for (int turn = 0; turn < 5; turn++) { /* The GPU is the local rank modulo 2. */
    OK(backend_open_for_rank(&b, &(BackendSpec){"cuda", "fp32", 1}, turn));
    assert_int_equal(b.threads, turn % 2);
    OK(backend_open_for_rank(&b, &(BackendSpec){"cuda:1", "fp32", 1}, turn));
    assert_int_equal(b.threads, 1);
  }
  OK(try_open(&b, "cuda", "fp16"));
  assert_int_equal(b.type, TYPE_F16);
  assert_int_equal(try_open(&b, "cuda:2", "fp32"), ERR_WORK);
  assert_says("no GPU 2");
  /* auto must not fall back to the CPU */
  assert_int_equal(try_open(&b, "auto", "bf16"), ERR_USAGE);
  assert_says("no bf16 units");
}

static AlgoEntry make_entry(uint32_t rows, uint64_t seed) {
  AlgoEntry p = {
      .key = {.kind = 1, .rows = rows, .in = 512, .out = 2048, .aligned = 1, .sms = rows % 3},
      .fused = rows % 2,
      .checked = 7};
  for (int i = 0; i < ALGO_WORDS; i++) p.algorithm[i] = rng_mix(seed, (uint64_t)i);
  return p;
}

static void test_algo_cache_saved_entries_are_read_back(void **state) {
  (void)state;
  AlgoCache p;
  setenv("XDG_CACHE_HOME", at("cache"), 1);
  OK(algo_cache_open(&p, "GPU one", 130000));
  assert_int_equal(p.count, 0);
  for (uint32_t i = 0; i < 40; i++) {
    AlgoEntry x = make_entry(i, i);
    OK(algo_cache_add(&p, &x));
  }
  AlgoEntry changed = make_entry(3, 99);
  OK(algo_cache_add(&p, &changed));
  assert_int_equal(p.count, 40);
  OK(algo_cache_save(&p));
  char path[FILE_PATH_MAX];
  memcpy(path, p.path, sizeof path);
  algo_cache_free(&p);
  OK(algo_cache_open(&p, "GPU one", 130000));
  assert_int_equal(p.count, 40);
  for (uint32_t i = 0; i < 40; i++) {
    AlgoEntry want = make_entry(i, i == 3 ? 99 : i);
    const AlgoEntry *got = algo_cache_find(&p, &want.key);
    AlgoKey other = want.key;
    other.sms += 128; /* for other SMs another algorithm may be the fastest */
    assert_null(algo_cache_find(&p, &other));
    assert_non_null(got);
    assert_memory_equal(got->algorithm, want.algorithm, sizeof want.algorithm);
    assert_int_equal(got->fused, want.fused);
    assert_int_equal(got->checked, 0); /* `checked` is not stored on disk */
  }
  algo_cache_free(&p);
  /* Another GPU or version of cuBLASLt has a cache of its own. */
  OK(algo_cache_open(&p, "GPU two", 130000));
  assert_int_equal(p.count, 0);
  algo_cache_free(&p);
  OK(algo_cache_open(&p, "GPU one", 130001));
  assert_int_equal(p.count, 0);
  algo_cache_free(&p);
  /* The complete lines of a truncated file are used. */
  Str text = {0};
  OK(file_read(path, 1 << 20, &text));
  OK(file_write(path, text.s, text.len - 30));
  OK(algo_cache_open(&p, "GPU one", 130000));
  assert_int_equal(p.count, 39);
  algo_cache_free(&p);
  OK(file_write(path, "nonsense\n1 2 3\n", 15));
  OK(algo_cache_open(&p, "GPU one", 130000));
  assert_int_equal(p.count, 0);
  algo_cache_free(&p);
  str_free(&text);
}

/* Two ranks use one file: entries of the other rank are added, own entries take precedence. */
static void test_algo_cache_read_merges_entries_of_other_rank(void **state) {
  (void)state;
  AlgoCache mine, other;
  AlgoEntry x[] = {make_entry(1, 1), make_entry(2, 2), make_entry(2, 22), make_entry(3, 3)};
  setenv("XDG_CACHE_HOME", at("shared"), 1);
  OK(algo_cache_open(&mine, "GPU one", 130000));
  OK(algo_cache_open(&other, "GPU one", 130000));
  OK(algo_cache_add(&mine, &x[2]));
  for (int i = 0; i < 4; i++)
    if (i != 2) OK(algo_cache_add(&other, &x[i]));
  OK(algo_cache_save(&other));
  OK(algo_cache_read(&mine));
  assert_int_equal(mine.count, 3);
  for (int i = 0; i < 4; i++) {
    const AlgoEntry *got = algo_cache_find(&mine, &x[i].key);
    assert_non_null(got);
    if (i != 1) assert_memory_equal(got->algorithm, x[i].algorithm, sizeof got->algorithm);
  }
  algo_cache_free(&mine);
  algo_cache_free(&other);
}

/* A cache that cannot be read, or has no XDG_CACHE_HOME and no HOME, starts empty. */
static void test_algo_cache_without_file_works_in_memory(void **state) {
  (void)state;
  AlgoCache p;
  AlgoEntry x = make_entry(1, 1);
  setenv("XDG_CACHE_HOME", at("folder"), 1);
  OK(algo_cache_open(&p, "GPU one", 130000));
  OK(file_mkdirs(p.path)); /* a directory at the path of the file */
  algo_cache_free(&p);
  OK(algo_cache_open(&p, "GPU one", 130000));
  assert_int_equal(p.count, 0);
  OK(algo_cache_add(&p, &x));
  assert_int_equal(algo_cache_save(&p), ERR_WORK);
  algo_cache_free(&p);
  char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  OK(algo_cache_open(&p, "GPU one", 130000));
  assert_string_equal(p.path, "");
  OK(algo_cache_add(&p, &x));
  OK(algo_cache_read(&p));
  OK(algo_cache_save(&p));
  assert_int_equal(p.count, 1);
  algo_cache_free(&p);
  if (home) setenv("HOME", home, 1);
  free(home);
}

/* Writes the file of `p`: its head and these lines, which are freed. */
static void write_lines(const AlgoCache *p, Str *lines) {
  Str text = {0};
  char folder[FILE_PATH_MAX];
  snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(p->path, '/') - p->path), p->path);
  str_addf(&text, "%s\n%s", p->head, str_text(lines));
  OK(file_mkdirs(folder));
  OK(file_write(p->path, text.s, text.len));
  str_free(&text);
  str_free(lines);
}

static void write_entries(const AlgoCache *p, size_t count) {
  Str lines = {0};
  for (size_t i = 0; i < count; i++)
    str_addf(&lines, "1 0 0 0 0 1 %zu 1 1 0 0 1 1 1 1 1 1 1 1\n", i);
  write_lines(p, &lines);
}

typedef struct {
  int count;
  char last[FILE_PATH_MAX + 256];
} Warnings;

static void take_warning(void *context, const char *label, const char *line) {
  Warnings *w = context;
  if (strcmp(label, "warning: ") != 0) return;
  w->count++;
  snprintf(w->last, sizeof w->last, "%s", line);
}

/* The time to read a file grows with the square of its entries, so it has a limit. */
static void test_algo_cache_with_too_many_entries_is_ignored(void **state) {
  (void)state;
  AlgoCache p;
  Warnings w = {0};
  setenv("XDG_CACHE_HOME", at("many"), 1);
  OK(algo_cache_open(&p, "GPU one", 130000));
  log_divert(take_warning, &w);
  write_entries(&p, MAX_ENTRIES);
  OK(algo_cache_read(&p));
  assert_int_equal(p.count, MAX_ENTRIES);
  assert_int_equal(w.count, 0);
  algo_cache_free(&p);
  OK(algo_cache_open(&p, "GPU one", 130000));
  write_entries(&p, MAX_ENTRIES + 1);
  algo_cache_free(&p);
  OK(algo_cache_open(&p, "GPU one", 130000));
  OK(algo_cache_read(&p));
  assert_int_equal(p.count, 0);
  assert_int_equal(w.count, 1);
  assert_non_null(strstr(w.last, p.path));
  assert_non_null(
      strstr(w.last, "has more than 4096 entries and will be replaced; GEMMs are timed again"));
  log_divert(NULL, NULL);
  algo_cache_free(&p);
}

/* A sign, or a flag that is neither 0 nor 1: the line counts as damaged. */
static void test_algo_cache_line_with_impossible_number_is_ignored(void **state) {
  (void)state;
  AlgoCache p;
  Str lines = {0};
  setenv("XDG_CACHE_HOME", at("signs"), 1);
  OK(algo_cache_open(&p, "GPU one", 130000));
  str_add(&lines, "1 0 0 0 0 1 8 1 1 -1 0 1 1 1 1 1 1 1 1\n");
  str_add(&lines, "1 0 0 0 0 1 8 1 1 0 2 1 1 1 1 1 1 1 1\n");
  str_add(&lines, "1 0 0 0 0 1 8 1 1 0 1 1 1 1 1 1 1 1 1\n");
  write_lines(&p, &lines);
  OK(algo_cache_read(&p));
  assert_int_equal(p.count, 1);
  algo_cache_free(&p);
}

/* A file that this program writes is never above the limit: the newest entries stay. */
static void test_algo_cache_saves_at_most_the_limit(void **state) {
  (void)state;
  AlgoCache p;
  setenv("XDG_CACHE_HOME", at("many"), 1);
  OK(algo_cache_open(&p, "GPU three", 130000));
  for (uint32_t i = 0; i < MAX_ENTRIES + 2; i++) {
    AlgoEntry x = make_entry(i, i);
    OK(algo_cache_add(&p, &x));
  }
  OK(algo_cache_save(&p));
  algo_cache_free(&p);
  OK(algo_cache_open(&p, "GPU three", 130000));
  assert_int_equal(p.count, MAX_ENTRIES);
  assert_int_equal(p.entry[0].key.rows, 2);
  algo_cache_free(&p);
}

/* The user has not named the file, so the advice is not to name another. */
static void test_algo_cache_unusable_file_says_remove(void **state) {
  (void)state;
  AlgoCache p;
  Warnings w = {0};
  setenv("XDG_CACHE_HOME", at("odd"), 1);
  OK(algo_cache_open(&p, "GPU one", 130000));
  log_divert(take_warning, &w);
  OK(file_mkdirs(p.path));
  OK(algo_cache_read(&p));
  assert_non_null(strstr(w.last, "is not a regular file; remove it"));
  OK(file_remove_all(p.path));
  OK(file_write(p.path, "", 0));
  assert_int_equal(truncate(p.path, (off_t)MAX_FILE_BYTES + 1), 0);
  p.warned = false;
  OK(algo_cache_read(&p));
  assert_non_null(strstr(w.last, "is larger than 4194304 bytes and will be replaced"));
  assert_int_equal(w.count, 2);
  log_divert(NULL, NULL);
  algo_cache_free(&p);
}

static int set_up(void **state) {
  if (make_scratch(state)) return -1;
  setenv("TRIREME_PLUGIN_PATH", scratch, 1);
  log_quiet(true);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_backend_open_cpu_succeeds),
      cmocka_unit_test(test_backend_open_unknown_values_are_usage_errors),
      cmocka_unit_test(test_backend_open_without_plugin_falls_back_only_for_auto),
      cmocka_unit_test(test_backend_open_with_plugin_selects_gpu_by_rank),
      cmocka_unit_test(test_algo_cache_saved_entries_are_read_back),
      cmocka_unit_test(test_algo_cache_read_merges_entries_of_other_rank),
      cmocka_unit_test(test_algo_cache_without_file_works_in_memory),
      cmocka_unit_test(test_algo_cache_with_too_many_entries_is_ignored),
      cmocka_unit_test(test_algo_cache_line_with_impossible_number_is_ignored),
      cmocka_unit_test(test_algo_cache_saves_at_most_the_limit),
      cmocka_unit_test(test_algo_cache_unusable_file_says_remove),
  };
  return cmocka_run_group_tests(tests, set_up, remove_scratch);
}
