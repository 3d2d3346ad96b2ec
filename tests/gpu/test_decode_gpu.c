/* Compares beam search and sampling on the GPU with the CPU, with a tiny random model: the same
 * translations in fp32, similar scores in bf16 and fp16, and the same results for any batch
 * size. Steps launched as CUDA graphs give the bits of steps without graphs, and batches on
 * several streams those of batches one after the other. Returns 77 if there is no GPU. Needs
 * the plug-in in TRIREME_PLUGIN_PATH. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "decode/beam_pool.h"
#include "gpu.h"
#include "model/weights.h"

enum { SENTENCES = 64, LONGEST = 48, NBEST = 2, MOST = SENTENCES * 30 };

/* Largest number of sentences that may differ: another order of additions changes the last
 * bits, which can decide between two hypotheses of almost equal score. */
enum { OTHERWISE = 1 };

/* The model is so small that more threads would only wait for each other. */
enum { CPU_THREADS = 2 };

static TransformerConfig config;
static Params params;
static TransformerParams where;
static float *w;
static int32_t src[MOST], off[SENTENCES + 1], length[SENTENCES];

typedef struct {
  int32_t id[SENTENCES * NBEST][LONGEST];
  size_t len[SENTENCES * NBEST];
  float score[SENTENCES * NBEST];
} Output;

/* Weights larger than initial ones, so that the distribution over words is not uniform. */
static void make_model(void) {
  Rng rng = {.key = 17};
  config = (TransformerConfig){
      .vocab = 1200, .max_positions = LONGEST, .bos = 2, .eos = 1, .pad = 0};
  ok(transformer_preset(&config, "tiny"));
  config.d_model = 64, config.ffn_dim = 96, config.heads = 2,
  config.layers[0] = config.layers[1] = 2;
  config.tying = TIE_NONE;
  ok(transformer_lay_out(&where, &params, &config));
  ok(mem_alloc_aligned(&w, params.padded * sizeof *w));
  params_init(&params, 5, w);
  for (size_t i = 0; i < (size_t)(config.vocab * config.d_model); i++) w[where.output + i] *= 4;
  for (int s = 0; s < SENTENCES; s++) {
    int32_t n = 2 + (int32_t)rng_below(&rng, 26);
    for (int32_t i = 0; i < n; i++) src[off[s] + i] = 4 + (int32_t)rng_below(&rng, 1190);
    src[off[s] + n] = config.eos;
    off[s + 1] = off[s] + n + 1;
    length[s] = 3 + (int32_t)rng_below(&rng, 40);
  }
}

static void keep(Output *out, const Hypothesis *best, size_t first, size_t n) {
  for (size_t i = 0; i < n * NBEST; i++) {
    size_t at = first * NBEST + i;
    out->len[at] = best[i].len;
    out->score[at] = best[i].score;
    if (best[i].len) memcpy(out->id[at], best[i].id, best[i].len * sizeof(int32_t));
  }
}

static BeamTimes spent; /* of the last search() */

/* Translates all sentences, `together` at a time, twice, to check that memory can be reused. */
static void search(const Backend *b, const BeamSpec *spec, bool fixed_lengths, size_t together,
                   Output *out) {
  Beam *beam;
  Weights there;
  Hypothesis best[SENTENCES * NBEST];
  uint64_t line[SENTENCES], allocations = 0;
  ok(weights_new(&there, b, w, params.padded));
  ok(beam_new(&beam, &config, b, there, spec, MOST, SENTENCES));
  memset(out, 0, sizeof *out);
  for (int pass = 0; pass < 2; pass++) {
    for (size_t s = 0; s < SENTENCES; s += together) {
      int32_t part[SENTENCES + 1];
      for (size_t i = 0; i <= together; i++) part[i] = off[s + i] - off[s];
      for (size_t i = 0; i < together; i++) line[i] = s + i;
      beam_set_lines(beam, line);
      beam_set_lengths(beam, fixed_lengths ? length + s : NULL);
      ok(beam_search(beam, src + off[s], part, together, best));
      keep(out, best, s, together);
    }
    BeamTimes before = spent;
    spent = beam_times(beam);
    /* A graph captured in the second pass allocates its description and a list of its nodes. */
    if (pass) assert_in_range(mem_count() - allocations, 0, 2 * (spent.graphs - before.graphs));
    allocations = mem_count();
  }
  beam_free(beam);
  weights_free(&there, b);
}

/* Returns the number of best translations that differ; checks that scores differ by at most
 * `most`. */
static int compare(const Output *a, const Output *b, double most, const char *what) {
  int other = 0;
  for (size_t i = 0; i < SENTENCES * NBEST; i++) {
    double x = (double)a->score[i], y = (double)b->score[i];
    if (!isfinite(y) && x == y) continue;
    if (!(fabs(x - y) <= most * (1 + fabs(y))))
      fail_msg("%s: sentence %zu scores %.7g, not %.7g", what, i / NBEST, x, y);
    if (i % NBEST == 0 &&
        (a->len[i] != b->len[i] || memcmp(a->id[i], b->id[i], a->len[i] * sizeof(int32_t))))
      other++;
  }
  return other;
}

static Output on_cpu, on_gpu, alone;

static void test_beam_search_fp32_matches_cpu(void **state) {
  (void)state;
  Backend cpu, gpu;
  ok(backend_cpu(&cpu, CPU_THREADS, false));
  for (int fixed = 0; fixed < 2; fixed++) {
    for (int beam = 2; beam <= 8; beam += 3) {
      BeamSpec spec = {
          .beam_size = beam, .length_penalty = 0.6f, .extra_length = 12, .nbest = NBEST};
      search(&cpu, &spec, fixed, SENTENCES, &on_cpu);
      open_gpu(&gpu, "fp32");
      search(&gpu, &spec, fixed, SENTENCES, &on_gpu);
      assert_in_range(compare(&on_gpu, &on_cpu, 1e-4, "cpu"), 0, OTHERWISE);
      search(&gpu, &spec, fixed, 1, &alone);
      assert_in_range(compare(&alone, &on_gpu, 1e-4, "alone"), 0, OTHERWISE);
      backend_close(&gpu);
    }
  }
  int distinct = 0; /* the outputs are not empty */
  for (size_t i = NBEST; i < SENTENCES * NBEST; i += NBEST)
    distinct += on_gpu.id[i][1] != on_gpu.id[0][1];
  assert_true(distinct > SENTENCES / 4);
}

/* Rounding can lead the search of a random model to another hypothesis early: a few sentences
 * may have another score, but the mean score must agree. */
static void compare_low(const Output *a, const Output *b, double most, const char *what) {
  int far = 0;
  double mean = 0, size = 0;
  for (size_t i = 0; i < SENTENCES * NBEST; i += NBEST) {
    double x = (double)a->score[i], y = (double)b->score[i];
    far += !(fabs(x - y) <= most * (1 + fabs(y)));
    mean += (x - y) / SENTENCES;
    size += fabs(y) / SENTENCES;
  }
  if (far > SENTENCES / 8)
    fail_msg("%s: %d of %d sentences score otherwise", what, far, SENTENCES);
  if (!(fabs(mean) <= most * (1 + size))) fail_msg("%s: scores differ by %g", what, mean);
}

static void test_beam_search_bf16_and_fp16_scores_match_cpu(void **state) {
  (void)state;
  static const char *const precisions[] = {"tf32", "fp16", "bf16"};
  static const double most[] = {0.01, 0.01, 0.04};
  Backend cpu, gpu;
  BeamSpec spec = {.beam_size = 4, .length_penalty = 0.6f, .nbest = NBEST};
  ok(backend_cpu(&cpu, CPU_THREADS, false));
  search(&cpu, &spec, true, SENTENCES, &on_cpu);
  for (int p = 0; p < 3; p++) {
    open_gpu(&gpu, precisions[p]);
    search(&gpu, &spec, true, SENTENCES, &on_gpu);
    compare_low(&on_gpu, &on_cpu, most[p], precisions[p]);
    backend_close(&gpu);
  }
}

static void test_sampling_fp32_matches_cpu(void **state) {
  (void)state;
  Backend cpu, gpu;
  ok(backend_cpu(&cpu, CPU_THREADS, false));
  open_gpu(&gpu, "fp32");
  for (int top_k = 0; top_k <= 40; top_k += 40) {
    BeamSpec spec = {.beam_size = NBEST,
                     .extra_length = 12,
                     .nbest = NBEST,
                     .is_sampling = true,
                     .sample = {.temperature = 0.8f, .top_k = top_k, .seed = 3}};
    search(&cpu, &spec, false, SENTENCES, &on_cpu);
    search(&gpu, &spec, false, SENTENCES, &on_gpu);
    int other = 0; /* after one different word the rest of a sample differs */
    for (size_t i = 0; i < SENTENCES * NBEST; i++)
      other += on_gpu.len[i] != on_cpu.len[i] ||
               memcmp(on_gpu.id[i], on_cpu.id[i], on_cpu.len[i] * sizeof(int32_t));
    assert_in_range(other, 0, OTHERWISE);
  }
  Beam *beam;
  BeamSpec spec = {.beam_size = 1,
                   .nbest = 1,
                   .is_sampling = true,
                   .sample = {.temperature = 1, .top_k = 1100}};
  assert_int_equal(beam_new(&beam, &config, &gpu, (Weights){w, w}, &spec, 64, 1), ERR_USAGE);
  assert_non_null(strstr(err_message(), "--top-k"));
  backend_close(&gpu);
}

/* Batches of 64, 8 and 1 sentences, whose hypotheses end at different steps, so that the number of
 * rows shrinks; later batches are shorter or longer than the ones before. */
static void check_graphs(const Backend *gpu, const char *precision, const BeamSpec *spec) {
  Backend plain = *gpu;
  plain.graph_begin = NULL;
  for (size_t together = SENTENCES; together; together /= 8) {
    for (int fixed = 0; fixed < 2; fixed++) {
      search(&plain, spec, fixed, together, &alone);
      assert_int_equal(spent.launched, 0);
      search(gpu, spec, fixed, together, &on_gpu);
      if (memcmp(&alone, &on_gpu, sizeof alone) != 0)
        fail_msg("%s, %zu sentences: graphs change the result", precision, together);
      printf("%s, %zu sentences together: %d steps, %d graphs, %d launches\n", precision,
             together, (int)spent.steps, (int)spent.graphs, (int)spent.launched);
      /* There are at most four sizes of a step, and a new cache needs new graphs. */
      assert_in_range(spent.graphs, 1, 12);
      assert_true(spent.launched > spent.steps / 2);
    }
  }
}

static void test_steps_as_graphs_give_same_bits(void **state) {
  (void)state;
  static const char *const precisions[] = {"fp32", "bf16", "fp16"};
  BeamSpec beam = {.beam_size = 4, .length_penalty = 0.6f, .extra_length = 8, .nbest = NBEST},
           sample = {.beam_size = NBEST,
                     .extra_length = 8,
                     .nbest = NBEST,
                     .is_sampling = true,
                     .sample = {.temperature = 0.8f, .top_k = 12, .seed = 5}};
  for (int p = 0; p < 3; p++) {
    Backend gpu;
    open_gpu(&gpu, precisions[p]);
    assert_non_null(gpu.graph_begin);
    check_graphs(&gpu, precisions[p], &beam);
    check_graphs(&gpu, precisions[p], &sample);
    backend_close(&gpu);
  }
}

enum { TOGETHER = 8, BATCHES = SENTENCES / TOGETHER };

/* Searches eight sentences (PoolSearch). */
static Err search_batch(void *out, Beam *beam, size_t stream, size_t index) {
  Hypothesis best[TOGETHER * NBEST];
  int32_t part[TOGETHER + 1];
  size_t first = index * TOGETHER;
  (void)stream;
  for (size_t i = 0; i <= TOGETHER; i++) part[i] = off[first + i] - off[first];
  TRY(beam_search(beam, src + off[first], part, TOGETHER, best));
  keep(out, best, first, TOGETHER);
  return ERR_OK;
}

/* Searches all batches, several times, so that graphs are captured and launched. */
static void search_on_streams(const Backend *b, size_t streams, Output *out) {
  BeamSpec spec = {.beam_size = 4, .length_penalty = 0.6f, .extra_length = 8, .nbest = NBEST};
  BeamPool *pool;
  Weights there;
  ok(weights_new(&there, b, w, params.padded));
  BeamPoolSpec all = {.config = &config,
                      .backend = b,
                      .weights = there,
                      .spec = &spec,
                      .tokens = MOST,
                      .sentences = TOGETHER};
  ok(beam_pool_new(&pool, &all, streams));
  for (int pass = 0; pass < 4; pass++) {
    memset(out, 0, sizeof *out);
    ok(beam_pool_run(pool, BATCHES, search_batch, out));
  }
  assert_int_equal(beam_pool_opened(pool), streams);
  BeamTimes t = beam_pool_times(pool);
  printf("%zu streams: %d steps, %d graphs, %d launches\n", streams, (int)t.steps,
         (int)t.graphs, (int)t.launched);
  beam_pool_free(pool);
  weights_free(&there, b);
}

/* The algorithms of GEMMs that were never timed are selected while four streams need them. */
static void test_streams_give_same_bits(void **state) {
  (void)state;
  static const char *const precisions[] = {"bf16", "fp32"};
  char cache[] = "/tmp/trireme-streams-XXXXXX";
  assert_non_null(mkdtemp(cache));
  char *before = getenv("XDG_CACHE_HOME"), *kept = before ? strdup(before) : NULL;
  setenv("XDG_CACHE_HOME", cache, 1);
  for (int p = 0; p < 2; p++) {
    Backend gpu;
    open_gpu(&gpu, precisions[p]);
    search_on_streams(&gpu, 4, &on_gpu);
    for (size_t streams = 1; streams <= 3; streams++) {
      search_on_streams(&gpu, streams, &alone);
      if (memcmp(&alone, &on_gpu, sizeof alone) != 0)
        fail_msg("%s: %zu and 4 streams give different results", precisions[p], streams);
    }
    backend_close(&gpu);
  }
  if (kept)
    setenv("XDG_CACHE_HOME", kept, 1);
  else
    unsetenv("XDG_CACHE_HOME");
  free(kept);
  ok(file_remove_all(cache));
}

/* The epilogue of a GEMM gives what GEMM and activation give. */
static void test_linear_relu_matches_linear_and_activate(void **state) {
  (void)state;
  enum { ROWS = 70, IN = 64, OUT = 96 };
  static float x[ROWS * IN], m[OUT * IN], bias[OUT], want[ROWS * OUT], got[ROWS * OUT];
  Rng rng = {.key = 3};
  float *list[] = {x, m, bias};
  const size_t count[] = {ROWS * IN, OUT * IN, OUT};
  void *there[3], *y;
  Backend gpu;
  open_gpu(&gpu, "fp32");
  for (int i = 0; i < 3; i++) {
    for (size_t j = 0; j < count[i]; j++) list[i][j] = (float)rng_below(&rng, 2001) / 1000 - 1;
    ok(gpu.alloc(&gpu, &there[i], count[i] * sizeof(float)));
    gpu.put(&gpu, there[i], list[i], count[i] * sizeof(float));
  }
  ok(gpu.alloc(&gpu, &y, sizeof want));
  for (int with = 0; with < 2; with++) {
    const void *b = with ? there[2] : NULL;
    gpu.linear(&gpu, y, there[0], there[1], b, ROWS, IN, OUT);
    gpu.activate(&gpu, y, NULL, y, NULL, ROWS, OUT, ACT_RELU, (Dropout){0});
    ok(gpu.get(&gpu, want, y, sizeof want));
    gpu.linear_relu(&gpu, y, there[0], there[1], b, ROWS, IN, OUT);
    ok(gpu.get(&gpu, got, y, sizeof got));
    int zeros = 0;
    for (size_t i = 0; i < ROWS * OUT; i++) {
      zeros += got[i] == 0;
      if (!(fabsf(got[i] - want[i]) <= 1e-4f))
        fail_msg("element %zu is %g, not %g", i, (double)got[i], (double)want[i]);
    }
    assert_in_range(zeros, ROWS * OUT / 4, ROWS * OUT * 3 / 4);
  }
  for (int i = 0; i < 3; i++) gpu.release(&gpu, there[i]);
  gpu.release(&gpu, y);
  backend_close(&gpu);
}

int main(void) {
  int why = check_gpu();
  if (why) return why;
  make_model();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_beam_search_fp32_matches_cpu),
      cmocka_unit_test(test_beam_search_bf16_and_fp16_scores_match_cpu),
      cmocka_unit_test(test_sampling_fp32_matches_cpu),
      cmocka_unit_test(test_steps_as_graphs_give_same_bits),
      cmocka_unit_test(test_streams_give_same_bits),
      cmocka_unit_test(test_linear_relu_matches_linear_and_activate),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  params_free(&params);
  transformer_params_free(&where);
  mem_free(w);
  return failed;
}
