/* Decoding: its two operations compared with the reference backend, packed weights, sampling, the
 * length of outputs, failing allocations. Uses a tiny model with random weights. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/rng.h"
#include "decode/beam.h"
#include "support.h"

#include "isa.h"

static Rng rng = {.key = 11};

static float *draw(size_t n) {
  float *x;
  OK(mem_alloc_aligned(&x, n * sizeof *x));
  for (size_t i = 0; i < n; i++) x[i] = (float)((double)(rng_next(&rng) >> 11) * 0x1p-52 - 1);
  return x;
}

/* Keys at random cache rows, different numbers of keys, and head sizes that are not multiples of
 * a vector. */
static void check_attend(Backend *b) {
  Backend reference;
  backend_reference(&reference);
  static const size_t shapes[][2] = {{8, 64}, {3, 5}, {2, 20}, {1, 33}};
  enum { ROWS = 6, CACHE = 70 };
  for (size_t s = 0; s < 4; s++) {
    size_t heads = shapes[s][0], d = shapes[s][1], width = heads * d;
    float *q = draw(ROWS * (width + 3)), *kv = draw((size_t)CACHE * 2 * width),
          *o = draw(2 * ROWS * width);
    int32_t len[ROWS] = {1, 2, 17, 64, 33, 0}, first[ROWS] = {3, 69 - 1, 0, 6, 30, 0};
    int32_t list[2 * ROWS][64], which[ROWS];
    for (size_t r = 0; r < 2 * ROWS; r++) {
      for (int j = 0; j < 64; j++) list[r][j] = (int32_t)rng_below(&rng, CACHE);
    }
    for (size_t r = 0; r < ROWS; r++) which[r] = (int32_t)((7 * r + 3) % (2 * ROWS));
    for (int listed = 0; listed < 2; listed++) {
      CachedAttention a = {.rows = ROWS,
                           .heads = heads,
                           .d = d,
                           .at = listed ? list[0] : NULL,
                           .at_ld = 64,
                           .list = which,
                           .first = first,
                           .len = len,
                           .q_ld = width + 3,
                           .kv_ld = 2 * width,
                           .o_ld = width};
      b->attend_cached(b, o, q, kv, kv + width, &a);
      reference.attend_cached(&reference, o + ROWS * width, q, kv, kv + width, &a);
      for (size_t i = 0; i < ROWS * width; i++) {
        if (!(fabsf(o[i] - o[ROWS * width + i]) < 2e-6f))
          fail_msg("%s, %zu heads of %zu: %g is not %g", b->about, heads, d, (double)o[i],
                   (double)o[ROWS * width + i]);
      }
    }
    mem_free(q), mem_free(kv), mem_free(o);
  }
}

static void test_attend_cached_matches_reference(void **state) {
  (void)state;
  on_every_isa(check_attend);
}

/* A row that appends its key and value gives the same bits as one whose key and value are in the
 * cache; a row without keys writes nothing. */
static void check_append(Backend *b) {
  enum { ROWS = 3, HEADS = 2, D = 20, WIDTH = HEADS * D, CACHE = 9, LD = 2 * WIDTH };
  float *in = draw(ROWS * 3 * WIDTH), *o = draw(2 * ROWS * WIDTH), *kv[2];
  int32_t at[ROWS][4] = {{1, 4, 6}, {5}, {8}}, len[ROWS] = {3, 1, 0}, list[ROWS] = {0, 1, 2};
  for (int i = 0; i < 2; i++) {
    OK(mem_alloc(&kv[i], CACHE * LD, sizeof **kv));
    for (size_t c = 0; c < CACHE * LD; c++) kv[i][c] = (float)(c % 13) - 6;
  }
  memcpy(kv[0] + (size_t)6 * LD, in + WIDTH, LD * sizeof *in);
  memcpy(kv[0] + (size_t)5 * LD, in + 4 * WIDTH, LD * sizeof *in);
  CachedAttention a = {.rows = ROWS,
                       .heads = HEADS,
                       .d = D,
                       .at = at[0],
                       .at_ld = 4,
                       .list = list,
                       .len = len,
                       .q_ld = 3 * WIDTH,
                       .kv_ld = LD,
                       .o_ld = WIDTH};
  b->attend_cached(b, o, in, kv[0], kv[0] + WIDTH, &a);
  a.appends = true;
  b->attend_cached(b, o + ROWS * WIDTH, in, kv[1], kv[1] + WIDTH, &a);
  assert_memory_equal(o, o + ROWS * WIDTH, ROWS * WIDTH * sizeof *o);
  assert_memory_equal(kv[0], kv[1], CACHE * LD * sizeof **kv);
  for (size_t c = 2 * WIDTH; c < ROWS * WIDTH; c++) assert_true(o[c] == 0);
  mem_free(in), mem_free(o), mem_free(kv[0]), mem_free(kv[1]);
}

static void test_attend_cached_appends_own_key(void **state) {
  (void)state;
  on_every_isa(check_append);
  Backend reference;
  backend_reference(&reference);
  check_append(&reference);
}

static void test_extend_copies_parent_and_adds_slot(void **state) {
  (void)state;
  Backend b;
  backend_reference(&b);
  int32_t at[6][3] = {{7, 8, 9}, {4, 5, 6}, {-1, -1, -1}, {-1, -1, -1}, {-1, -1, -1}};
  int32_t list[] = {3, 2, 4, 0}, parent[] = {1, 0, 99, 1}, len[] = {3, 2, 1, 0},
          slot[] = {20, 21, 22, 23};
  static const int32_t want[6][3] = {{7, 8, 9},  {4, 5, 6},    {7, 21, -1},
                                     {4, 5, 20}, {22, -1, -1}, {0}};
  b.extend(&b, at[0], list, parent, len, slot, 4, 3);
  assert_memory_equal(at, want, sizeof want);
}

/* Few distinct values, so that many are equal; rows of different sizes. */
static void check_top(Backend *b) {
  Backend reference;
  backend_reference(&reference);
  static const size_t vocabs[] = {1, 7, 256, 257, 1000, 32768};
  for (size_t s = 0; s < 6; s++) {
    size_t vocab = vocabs[s], rows = 3, best = vocab < 11 ? vocab : 11;
    float *x = draw(rows * vocab), value[2][33], lse[2][3];
    int32_t id[2][33];
    for (size_t i = 0; i < rows * vocab; i++) {
      if (i % 3 == 0) x[i] = floorf(x[i] * 4) / 4;
      if (i >= vocab) x[i] *= 30;
    }
    b->top_k(b, value[0], id[0], lse[0], x, rows, vocab, best);
    reference.top_k(&reference, value[1], id[1], lse[1], x, rows, vocab, best);
    assert_memory_equal(value[0], value[1], rows * best * sizeof(float));
    assert_memory_equal(id[0], id[1], rows * best * sizeof(int32_t));
    for (size_t r = 0; r < rows; r++)
      assert_true(fabsf(lse[0][r] - lse[1][r]) < 4e-6f * (1 + fabsf(lse[1][r])));
    mem_free(x);
  }
  /* A row of NaN must still return distinct ids of the vocabulary. */
  float bad[300], value[4], lse;
  int32_t id[4];
  for (int i = 0; i < 300; i++) bad[i] = NAN;
  b->top_k(b, value, id, &lse, bad, 1, 300, 4);
  for (int i = 0; i < 4; i++) assert_true(id[i] >= 0 && id[i] < 300);
}

static void test_top_matches_reference(void **state) {
  (void)state;
  on_every_isa(check_top);
}

/* Packed weights must give the same bits for any number of rows and threads; packing again must
 * use the new weights. */
static void check_packed(Backend *b) {
  static const size_t shapes[][2] = {{512, 130}, {2048, 96}, {700, 1000}, {17, 7}, {1, 1}},
                      counts[] = {1, 3, 4, 5, 14, 61, 600};
  for (size_t s = 0; s < 5; s++) {
    size_t in = shapes[s][0], out = shapes[s][1];
    float *w = draw(in * out), *x = draw(600 * in), *bias = draw(out), *y = draw(600 * out),
          *z = draw(600 * out);
    Backend own = *b;
    OK(own.pack(&own, w, in, out));
    w[in * out - 1] += 1;
    OK(own.pack(&own, w, in, out));
    for (size_t i = 0; i < 7; i++) {
      size_t rows = counts[i];
      b->linear(b, y, x, w, i % 2 ? bias : NULL, rows, in, out);
      own.linear(&own, z, x, w, i % 2 ? bias : NULL, rows, in, out);
      assert_memory_equal(y, z, rows * out * sizeof *y);
    }
    own.unpack(&own);
    assert_null(own.packed);
    mem_free(w), mem_free(x), mem_free(bias), mem_free(y), mem_free(z);
  }
}

static void test_linear_packed_weights_same_bits(void **state) {
  (void)state;
  on_every_isa(check_packed);
  Backend bf16;
  if (backend_cpu(&bf16, 2, true) == ERR_OK) check_packed(&bf16);
}

/* A model with random weights, and three sentences. */
typedef struct {
  Backend backend;
  TransformerConfig config;
  Params params;
  float *w;
} Tiny;

static int32_t src[] = {5, 6, 7, 8, 1, 9, 10, 1, 11, 12, 13, 14, 15, 16, 1},
               off[] = {0, 5, 8, 15};

static void open_tiny(Tiny *t) {
  t->config =
      (TransformerConfig){.vocab = 300, .bos = 2, .eos = 1, .pad = 0, .max_positions = 24};
  OK(backend_cpu(&t->backend, 2, false));
  OK(transformer_preset(&t->config, "tiny"));
  t->config.d_model = 32, t->config.ffn_dim = 48, t->config.heads = 4;
  t->config.layers[0] = t->config.layers[1] = 2;
  OK(transformer_lay_out_params(&t->params, &t->config));
  OK(mem_alloc_aligned(&t->w, t->params.padded * sizeof *t->w));
  params_init(&t->params, 3, t->w);
}

static void close_tiny(Tiny *t) {
  params_free(&t->params);
  mem_free(t->w);
}

static void test_beam_output_length_stays_within_limits(void **state) {
  (void)state;
  Tiny t;
  Beam *beam;
  Hypothesis best[12];
  open_tiny(&t);
  BeamSpec spec = {
      .beam_size = 4, .length_penalty = 0.6f, .extra_length = 6, .nbest = 4, .max_length = 3};
  OK(beam_new(&beam, &t.config, &t.backend, (Weights){t.w, t.w}, &spec, 64, 8));
  OK(beam_search(beam, src, off, 3, best));
  for (int i = 0; i < 12; i++) assert_true(best[i].len <= 3);
  beam_free(beam);
  spec.max_length = 0;
  OK(beam_new(&beam, &t.config, &t.backend, (Weights){t.w, t.w}, &spec, 64, 8));
  int32_t lengths[] = {1, 9, 20};
  beam_set_lengths(beam, lengths);
  OK(beam_search(beam, src, off, 3, best));
  for (int i = 0; i < 12; i++) {
    if (i >= 4 || best[i].id) assert_int_equal(best[i].len, lengths[i / 4]);
    for (size_t c = 0; c < best[i].len; c++) assert_int_not_equal(best[i].id[c], t.config.eos);
  }
  BeamTimes times = beam_times(beam);
  assert_int_equal(times.steps, 20);
  assert_true(times.rows > 20 && times.rows <= 4 * 30);
  beam_free(beam);
  close_tiny(&t);
}

/* score = log probability / ((5 + length) / 6)^length_penalty; the length includes
 * end-of-sentence. */
static void test_beam_length_penalty_counts_the_end_mark(void **state) {
  (void)state;
  Tiny t;
  Beam *beam;
  Hypothesis best[12];
  int ended = 0;
  open_tiny(&t);
  BeamSpec spec = {.beam_size = 4, .length_penalty = 0.6f, .extra_length = 30, .nbest = 4};
  OK(beam_new(&beam, &t.config, &t.backend, (Weights){t.w, t.w}, &spec, 64, 8));
  OK(beam_search(beam, src, off, 3, best));
  for (int i = 0; i < 12; i++) {
    size_t rows = (size_t)(off[i / 4 + 1] - off[i / 4]);
    /* A truncated output has no end-of-sentence token. */
    if (!best[i].id || best[i].len >= rows + 30) continue;
    double length = (double)best[i].len + 1;
    double score = (double)best[i].log_probability / pow((5 + length) / 6, 0.6);
    assert_true(fabs((double)best[i].score - score) < 1e-4 * fabs(score));
    ended++;
  }
  assert_true(ended > 0);
  beam_free(beam);
  close_tiny(&t);
}

/* Counts the steps of a search; fails when *context reaches 0. */
static Err count_step(void *context) {
  int *left = context;
  return --*left ? ERR_OK : err_set(ERR_WORK, "stopped on purpose");
}

static void test_beam_on_step_is_called_before_each_step(void **state) {
  (void)state;
  Tiny t;
  Beam *beam;
  Hypothesis best[3];
  int left = 1000;
  open_tiny(&t);
  BeamSpec spec = {.beam_size = 2, .extra_length = 6, .nbest = 1};
  OK(beam_new(&beam, &t.config, &t.backend, (Weights){t.w, t.w}, &spec, 64, 8));
  beam_on_step(beam, count_step, &left);
  OK(beam_search(beam, src, off, 3, best));
  assert_int_equal(1000 - left, beam_times(beam).steps);
  beam_free(beam);
  close_tiny(&t);
}

static void test_beam_on_step_error_ends_the_search(void **state) {
  (void)state;
  Tiny t;
  Beam *beam;
  Hypothesis best[3];
  int left = 3;
  open_tiny(&t);
  BeamSpec spec = {.beam_size = 2, .extra_length = 6, .nbest = 1};
  OK(beam_new(&beam, &t.config, &t.backend, (Weights){t.w, t.w}, &spec, 64, 8));
  beam_on_step(beam, count_step, &left);
  assert_int_equal(beam_search(beam, src, off, 3, best), ERR_WORK);
  assert_says("stopped on purpose");
  assert_int_equal(beam_times(beam).steps, 2);
  beam_on_step(beam, NULL, NULL);
  OK(beam_search(beam, src, off, 3, best)); /* The beam must be usable after the error. */
  beam_free(beam);
  close_tiny(&t);
}

/* A search with packed weights must find bit-identical hypotheses. */
static void test_beam_packed_weights_same_bits(void **state) {
  (void)state;
  Tiny t;
  Beam *beam[2];
  Hypothesis best[2][12];
  open_tiny(&t);
  BeamSpec spec = {.beam_size = 4, .length_penalty = 0.6f, .extra_length = 6, .nbest = 4};
  for (int i = 0; i < 2; i++) {
    OK(beam_new(&beam[i], &t.config, &t.backend, (Weights){t.w, t.w}, &spec, 64, 8));
    if (i) OK(beam_pack(beam[i]));
    OK(beam_search(beam[i], src, off, 3, best[i]));
  }
  for (int k = 0; k < 12; k++) {
    assert_int_equal(best[0][k].len, best[1][k].len);
    assert_memory_equal(best[0][k].id, best[1][k].id, best[0][k].len * sizeof(int32_t));
    assert_memory_equal(&best[0][k].score, &best[1][k].score, sizeof(float));
  }
  for (int i = 0; i < 2; i++) beam_free(beam[i]);
  close_tiny(&t);
}

typedef struct {
  size_t len;
  float sum;
  int32_t id[24];
} Kept;

static void keep(Kept *to, const Hypothesis *h) {
  assert_non_null(h->id);
  assert_true(h->len <= 24);
  to->len = h->len, to->sum = h->log_probability;
  memset(to->id, 0, sizeof to->id);
  memcpy(to->id, h->id, h->len * sizeof *to->id);
}

static void assert_same(const Kept *a, const Kept *b) {
  assert_int_equal(a->len, b->len);
  assert_memory_equal(a->id, b->id, sizeof a->id);
  assert_memory_equal(&a->sum, &b->sum, sizeof a->sum);
}

/* Samples must depend on the seed and the line number only, not on the batch, the order of the
 * lines or the number of samples. */
static void test_sampling_other_batch_same_samples(void **state) {
  (void)state;
  Tiny t;
  Beam *beam;
  Hypothesis best[12];
  Kept all[12], one;
  open_tiny(&t);
  for (int top = 0; top < 8; top += 7) {
    BeamSpec spec = {.beam_size = 4, .extra_length = 6, .nbest = 4, .is_sampling = true};
    spec.sample = (SampleSpec){.temperature = 0.8f, .top_k = top, .seed = 5};
    uint64_t lines[] = {100, 7, 1ull << 40};
    OK(beam_new(&beam, &t.config, &t.backend, (Weights){t.w, t.w}, &spec, 64, 8));
    beam_set_lines(beam, lines);
    OK(beam_search(beam, src, off, 3, best));
    for (int i = 0; i < 12; i++) keep(&all[i], &best[i]);
    int differ = 0; /* The samples of one sentence must not all be equal. */
    for (int i = 1; i < 4; i++) differ += memcmp(all[0].id, all[i].id, sizeof all[0].id) != 0;
    assert_true(differ > 0);
    /* Each sentence alone in its batch must give the same samples. */
    for (int s = 0; s < 3; s++) {
      beam_set_lines(beam, lines + s);
      OK(beam_search(beam, src + off[s], (int32_t[]){0, off[s + 1] - off[s]}, 1, best));
      for (int k = 0; k < 4; k++) {
        keep(&one, &best[k]);
        assert_same(&one, &all[4 * s + k]);
      }
    }
    beam_free(beam);
    spec.beam_size = spec.nbest = 1; /* With fewer samples the first one must be the same. */
    OK(beam_new(&beam, &t.config, &t.backend, (Weights){t.w, t.w}, &spec, 64, 8));
    beam_set_lines(beam, lines);
    OK(beam_search(beam, src, off, 3, best));
    for (int s = 0; s < 3; s++) {
      keep(&one, &best[s]);
      assert_same(&one, &all[4 * s]);
    }
    beam_free(beam);
    spec.sample.seed = 6; /* Another seed must give other samples. */
    OK(beam_new(&beam, &t.config, &t.backend, (Weights){t.w, t.w}, &spec, 64, 8));
    beam_set_lines(beam, lines);
    OK(beam_search(beam, src, off, 3, best));
    differ = 0;
    for (int s = 0; s < 3; s++) {
      keep(&one, &best[s]);
      differ += memcmp(one.id, all[4 * s].id, sizeof one.id) != 0;
    }
    assert_true(differ > 0);
    beam_free(beam);
  }
  close_tiny(&t);
}

/* With top-k 1 sampling must equal greedy search. */
static void test_sampling_top_1_is_greedy(void **state) {
  (void)state;
  Tiny t;
  Beam *beam;
  Hypothesis best[3];
  Kept greedy[3], drawn;
  open_tiny(&t);
  BeamSpec spec = {.beam_size = 1, .extra_length = 6, .nbest = 1};
  OK(beam_new(&beam, &t.config, &t.backend, (Weights){t.w, t.w}, &spec, 64, 8));
  OK(beam_search(beam, src, off, 3, best));
  for (int s = 0; s < 3; s++) keep(&greedy[s], &best[s]);
  beam_free(beam);
  spec.is_sampling = true, spec.sample = (SampleSpec){.temperature = 1, .top_k = 1, .seed = 1};
  OK(beam_new(&beam, &t.config, &t.backend, (Weights){t.w, t.w}, &spec, 64, 8));
  OK(beam_search(beam, src, off, 3, best));
  for (int s = 0; s < 3; s++) {
    keep(&drawn, &best[s]);
    assert_int_equal(drawn.len, greedy[s].len);
    assert_memory_equal(drawn.id, greedy[s].id, sizeof drawn.id);
  }
  beam_free(beam);
  close_tiny(&t);
}

/* Compares the frequencies of 20,000 draws with the probabilities: chi-square with 3 degrees of
 * freedom. */
static void test_sampling_draws_follow_probabilities(void **state) {
  (void)state;
  float logits[] = {0, 1, -INFINITY, 2, -1};
  for (int hot = 0; hot < 2; hot++) {
    SampleSpec spec = {.temperature = hot ? 2 : 1, .seed = 9};
    double p[5], total = 0, chi = 0;
    int count[5] = {0};
    for (int i = 0; i < 5; i++) total += p[i] = exp((double)(logits[i] / spec.temperature));
    for (uint32_t i = 0; i < 20000; i++)
      count[sample_draw(&spec, sample_uniform(&spec, i / 100, i % 10, i % 100 / 10), logits, 5,
                        2)]++;
    assert_int_equal(count[2], 0);
    for (int i = 0; i < 5; i++) {
      double expected = 20000 * p[i] / total;
      if (i != 2) chi += (count[i] - expected) * (count[i] - expected) / expected;
    }
    /* quantile that a correct generator exceeds with probability 0.1 % */
    if (!(chi < 16.27)) fail_msg("chi squared is %g", chi);
  }
  SampleSpec spec = {.temperature = 1};
  assert_int_equal(sample_draw(&spec, 1e-12, logits, 5, 2), 0);
  assert_int_equal(sample_draw(&spec, 1 - 1e-12, logits, 5, 2), 4);
}

/* Each allocation fails once; every time the call must return an error and leak nothing. */
static void test_beam_out_of_memory_is_error(void **state) {
  (void)state;
  Tiny t;
  open_tiny(&t);
  for (uint64_t n = 1;; n++) {
    Beam *beam;
    Hypothesis best[3];
    BeamSpec spec = {.beam_size = 2, .extra_length = 6, .nbest = 1};
    uint64_t before = mem_count();
    mem_fail_once(n);
    Err err = beam_new(&beam, &t.config, &t.backend, (Weights){t.w, t.w}, &spec, 64, 8);
    if (!err) err = beam_pack(beam);
    if (!err) err = beam_search(beam, src, off, 3, best);
    mem_fail_once(0);
    if (err) assert_says("out of memory");
    beam_free(beam);
    if (!err) {
      assert_true(mem_count() - before < n); /* no allocation failed */
      break;
    }
    assert_true(n < 200);
  }
  close_tiny(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attend_cached_matches_reference),
      cmocka_unit_test(test_attend_cached_appends_own_key),
      cmocka_unit_test(test_extend_copies_parent_and_adds_slot),
      cmocka_unit_test(test_top_matches_reference),
      cmocka_unit_test(test_linear_packed_weights_same_bits),
      cmocka_unit_test(test_beam_output_length_stays_within_limits),
      cmocka_unit_test(test_beam_length_penalty_counts_the_end_mark),
      cmocka_unit_test(test_beam_on_step_is_called_before_each_step),
      cmocka_unit_test(test_beam_on_step_error_ends_the_search),
      cmocka_unit_test(test_beam_packed_weights_same_bits),
      cmocka_unit_test(test_sampling_other_batch_same_samples),
      cmocka_unit_test(test_sampling_top_1_is_greedy),
      cmocka_unit_test(test_sampling_draws_follow_probabilities),
      cmocka_unit_test(test_beam_out_of_memory_is_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
