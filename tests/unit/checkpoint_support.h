/* A tiny model whose arrays are a function of the step, and functions for tests of checkpoints.
 * Depends on support.h. */
#ifndef TESTS_CHECKPOINT_SUPPORT_H
#define TESTS_CHECKPOINT_SUPPORT_H

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/transformer.h"
#include "support.h"
#include "train/checkpoint.h"

static TransformerConfig config;
static ModelConfig model_config; /* the configuration in the form that checkpoints store */
static Params params;
static float *floats[2][4]; /* weights, EMA, m, v; index 0 is saved, index 1 is loaded */
static double *doubles[2];

enum { WITH_E = 1, WITH_M = 2, WITH_V = 4, WITH_SECOND = 8, WITH_ALL = 15 };

static const SaveSteps every_step = {0};

static ModelFile tokenizer_file = {.what = "tokenizer", .name = "tokenizer.model"};

/* Returns the arrays of one side (0: to save, 1: to load) that are in `set`. */
UNUSED static TrainArrays arrays(int side, int set) {
  return (TrainArrays){.config = &model_config,
                       .params = &params,
                       .file = &tokenizer_file,
                       .files = 1,
                       .w = floats[side][0],
                       .e = set & WITH_E ? floats[side][1] : NULL,
                       .m = set & WITH_M ? floats[side][2] : NULL,
                       .v = set & WITH_V ? floats[side][3] : NULL,
                       .second = set & WITH_SECOND ? doubles[side] : NULL};
}

/* Returns the arrays with another tokenizer path. */
UNUSED static TrainArrays arrays_with_tokenizer(int side, int set, ModelFile *file,
                                                const char *path) {
  TrainArrays a = arrays(side, set);
  *file = tokenizer_file;
  snprintf(file->path, FILE_PATH_MAX, "%s", path);
  a.file = file;
  return a;
}

/* Fills the arrays with random bits, including NaNs: a load must return exactly the saved bits.
 * The padding between parameters stays zero. */
static void fill_array(float *array, uint64_t step, int which) {
  memset(array, 0, params.padded * sizeof *array);
  for (size_t i = 0; i < params.count; i++) {
    const Param *q = &params.param[i];
    for (size_t k = 0; k < q->rows * q->cols; k++) {
      uint32_t bits = (uint32_t)rng_mix(8 * step + (uint64_t)which, q->offset + k);
      memcpy(&array[q->offset + k], &bits, 4);
    }
  }
}

UNUSED static void fill_arrays(const TrainArrays *a, uint64_t step) {
  float *list[4] = {a->w, a->e, a->m, a->v};
  for (int i = 0; i < 4; i++) {
    if (list[i]) fill_array(list[i], step, i);
  }
  for (size_t i = 0; i < params.count && a->second; i++)
    a->second[i] = (double)rng_mix(step, i) / 3 * (i % 2 ? 1e-30 : 1e30);
}

UNUSED static TrainCounters counters(uint64_t step) {
  TrainCounters c = {.step = step,
                     .predictions = 1000 * step,
                     .examples = 30 * step,
                     .micro_batches = 4 * step,
                     .best_score = 12.3 + 1.0 / (double)(step + 3),
                     .best_step = step / 2,
                     .worse = 3,
                     .validated = step / 3,
                     .seconds = 0.1 * (double)step,
                     .lr_scale = 1.0 / 3,
                     .rollbacks = 2,
                     .scaler = {.scale = 512, .clean = step + 7},
                     .task = "translate"};
  snprintf(c.data, sizeof c.data, "%064" PRIx64, step * 0x123456789);
  return c;
}

UNUSED static void clear_loaded(void) {
  for (int i = 0; i < 4; i++) memset(floats[1][i], 0, params.padded * sizeof(float));
  memset(doubles[1], 0, params.count * sizeof(double));
}

/* Asserts that the loaded arrays equal the state of that step, bit for bit. Overwrites side
 * 0. */
UNUSED static void assert_loaded(int set, uint64_t step, const TrainCounters *c) {
  TrainArrays want = arrays(0, set);
  TrainCounters counts = counters(step);
  fill_arrays(&want, step);
  for (int i = 0; i < 4; i++) {
    if (i == 0 || set & 1 << (i - 1))
      assert_memory_equal(floats[0][i], floats[1][i], params.padded * sizeof(float));
  }
  if (set & WITH_SECOND)
    assert_memory_equal(doubles[0], doubles[1], params.count * sizeof(double));
  assert_true(c->step == counts.step && c->predictions == counts.predictions);
  assert_true(c->examples == counts.examples && c->micro_batches == counts.micro_batches);
  assert_memory_equal(&c->best_score, &counts.best_score, sizeof(double));
  assert_true(c->best_step == counts.best_step && c->worse == counts.worse);
  assert_int_equal(c->validated, counts.validated);
  assert_memory_equal(&c->seconds, &counts.seconds, sizeof(double));
  assert_memory_equal(&c->lr_scale, &counts.lr_scale, sizeof(double));
  assert_int_equal(c->rollbacks, counts.rollbacks);
  assert_string_equal(c->data, counts.data);
  assert_string_equal(c->task, counts.task);
  assert_true(c->scaler.scale == counts.scaler.scale && c->scaler.clean == counts.scaler.clean);
}

UNUSED static void save(const char *run, int set, uint64_t step, bool best) {
  TrainArrays a = arrays(0, set);
  TrainCounters c = counters(step);
  fill_arrays(&a, step);
  OK(checkpoint_save(run, &a, &c));
  if (best) OK(checkpoint_add_validation(run, &c, true));
}

/* Finds and loads the newest checkpoint; returns its step. */
UNUSED static uint64_t resume(const char *run, int set, char dir[FILE_PATH_MAX]) {
  TrainArrays a = arrays(1, set);
  TrainCounters c;
  bool found = false;
  clear_loaded();
  OK(checkpoint_find(run, dir, &found));
  assert_true(found);
  OK(checkpoint_load(dir, &a, &c));
  assert_loaded(set, c.step, &c);
  return c.step;
}

/* Captures standard error between listen_begin and listen_end. */
static int real_stderr = -1;
static Str said;

UNUSED static void listen_begin(void) {
  fflush(stderr);
  real_stderr = dup(STDERR_FILENO);
  int fd = open(at("stderr"), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0666);
  assert_true(real_stderr >= 0 && fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
  close(fd);
}

UNUSED static const char *listen_end(void) {
  fflush(stderr);
  assert_true(dup2(real_stderr, STDERR_FILENO) >= 0);
  close(real_stderr);
  str_clear(&said);
  OK(file_read(at("stderr"), (size_t)1 << 20, &said));
  return str_text(&said);
}

UNUSED static void assert_holds(const char *text, const char *words) {
  if (!strstr(text, words)) fail_msg("\"%s\" lacks \"%s\"", text, words);
}

UNUSED static int set_up_model(void **state) {
  if (make_scratch(state) != 0) return -1;
  config = (TransformerConfig){
      .vocab = 40, .d_model = 8, .ffn_dim = 16, .heads = 2, .layers = {1, 2}};
  config.max_positions = 50, config.pre_norm = true, config.norm_epsilon = 1e-6f;
  model_config = transformer_model_config(&config);
  if (transformer_lay_out_params(&params, &config)) return -1;
  for (int i = 0; i < 8; i++) {
    if (mem_alloc_aligned(&floats[i / 4][i % 4], params.padded * sizeof(float))) return -1;
  }
  for (int i = 0; i < 2; i++) {
    if (mem_alloc(&doubles[i], params.count, sizeof(double))) return -1;
  }
  snprintf(tokenizer_file.path, FILE_PATH_MAX, "%s", at("tokenizer.model"));
  return file_write(tokenizer_file.path, "pieces", 6) ? -1 : 0;
}

UNUSED static int tear_down_model(void **state) {
  for (int i = 0; i < 8; i++) mem_free(floats[i / 4][i % 4]);
  for (int i = 0; i < 2; i++) mem_free(doubles[i]);
  params_free(&params);
  str_free(&said);
  return remove_scratch(state);
}

#endif
