/* Every operation of the CPU backends: each instruction set of this machine, and bf16 if the
 * machine has bf16 units, compared with the reference backend; the backward of the reference
 * compared with finite differences; edge cases. `test_ops speed [THREADS]` prints time and rate
 * of each operation and checks nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "backend/dropout.h"
#include "base/progress.h"
#include "isa.h"
#include "ops_cases.h"

static Case twin(const Case *c) {
  Case t = *c;
  for (int i = 0; i < ARRAYS; i++) {
    if (c->a[i]) t.a[i] = copy(c->a[i], c->n[i]);
  }
  return t;
}

static void compare_with_reference(Backend *fast) {
  Backend reference;
  assert_int_equal(fast->reserve(fast, 128, 128), ERR_OK);
  backend_reference(&reference);
  for (size_t o = 0; o < OPS; o++) {
    /* Shape 3 is not tested in bf16, because a single product may cancel to 0. */
    for (int which = 0; which < (fast->bf16 ? 3 : 4); which++) {
      Case a = shape(which);
      ops[o].make(&a);
      Case b = twin(&a);
      ops[o].run(fast, &a);
      ops[o].run(&reference, &b);
      double limit = ops[o].is_gemm && fast->bf16 ? 0.01 : ops[o].units * 0x1p-24;
      double e = off_by(&a, &b);
      if (!(e <= limit))
        fail_msg("%s, %s, shape %d: off by %g, %g allowed", fast->about, ops[o].name, which, e,
                 limit);
      drop_arrays(&a);
      drop_arrays(&b);
    }
  }
}

static void test_ops_each_instruction_set_matches_reference(void **state) {
  (void)state;
  on_every_isa(compare_with_reference);
}

/* Opens a backend with bf16 GEMMs; skips the test if the CPU has no bf16 units. */
static void open_bf16(Backend *b) {
  if (backend_cpu(b, 2, true) == ERR_OK) return;
  printf("skip: %s\n", err_message());
  skip();
}

static void test_ops_bf16_gemm_matches_reference(void **state) {
  (void)state;
  Backend fast;
  open_bf16(&fast);
  compare_with_reference(&fast);
}

/* Rounds to bf16, to nearest even; x must not be NaN. */
static float rounded(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  bits += 0x7fff + (bits >> 16 & 1);
  bits &= 0xffff0000;
  memcpy(&x, &bits, 4);
  return x;
}

/* Checks c (m, n) = a · b over k with operands rounded to bf16. Tolerance: one fp32 rounding per
 * term, doubled because the bf16 units add pairs of terms in their own order. */
static void check_rounded_gemm(const float *c, const float *a, size_t a_row, size_t a_step,
                               const float *b, size_t b_col, size_t b_step, size_t m, size_t n,
                               size_t k) {
  for (size_t i = 0; i < m; i++) {
    for (size_t j = 0; j < n; j++) {
      double sum = 0, size = 0;
      for (size_t p = 0; p < k; p++) {
        double term = (double)rounded(a[i * a_row + p * a_step]) *
                      (double)rounded(b[j * b_col + p * b_step]);
        sum += term;
        size += fabs(term);
      }
      double off = fabs((double)c[i * n + j] - sum),
             limit = 2 * (double)(k + 1) * 0x1p-24 * size;
      if (!(off <= limit))
        fail_msg("%zu x %zu x %zu at %zu, %zu: off by %g, %g allowed", m, n, k, i, j, off,
                 limit);
    }
  }
}

static void test_linear_bf16_odd_shapes_match_rounded_operands(void **state) {
  (void)state;
  static const size_t sizes[][3] = {{1, 1, 1},   {1, 3, 13},   {4, 4, 12},  {5, 7, 11},
                                    {8, 12, 24}, {13, 66, 37}, {9, 5, 100}, {70, 1030, 33}};
  Backend b;
  open_bf16(&b);
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    size_t rows = sizes[s][0], in = sizes[s][1], out = sizes[s][2];
    float *x = draw(rows * in), *w = draw(out * in), *y = draw(rows * out);
    float *dx = draw(rows * in), *dw = draw(out * in);
    b.linear(&b, y, x, w, NULL, rows, in, out);
    check_rounded_gemm(y, x, in, 1, w, in, 1, rows, out, in);
    b.linear_dx(&b, dx, y, w, rows, in, out, false);
    check_rounded_gemm(dx, y, out, 1, w, 1, in, rows, in, out);
    b.linear_dw(&b, dw, NULL, y, x, rows, in, out, false);
    check_rounded_gemm(dw, y, 1, out, x, 1, in, out, in, rows);
    mem_free(x);
    mem_free(w);
    mem_free(y);
    mem_free(dx);
    mem_free(dw);
  }
}

/* Draws n whole numbers from -4 to 4: sums of their products are exact in any order. */
static float *draw_whole(size_t n) {
  float *x = draw(n);
  for (size_t i = 0; i < n; i++) x[i] = fmaxf(-4, fminf(4, roundf(4 * x[i])));
  return x;
}

/* Compares all GEMMs of a linear layer, and the sums of columns, with the reference, to the bit. */
static void check_linear_exact(const Backend *fast, size_t rows, size_t in, size_t out) {
  Backend ref;
  backend_reference(&ref);
  const Backend *list[2] = {&ref, fast};
  float *x = draw_whole(rows * in), *w = draw_whole(out * in), *bias = draw_whole(out),
        *dy = draw_whole(rows * out);
  float *y[2], *dx[2], *dw[2], *dbias[2];
  for (int i = 0; i < 2; i++) {
    const Backend *b = list[i];
    y[i] = draw(rows * out);
    dx[i] = draw(rows * in);
    dw[i] = draw(out * in);
    dbias[i] = draw(out);
    b->linear(b, y[i], x, w, bias, rows, in, out);
    b->linear_dx(b, dx[i], dy, w, rows, in, out, false);
    b->linear_dw(b, dw[i], dbias[i], dy, x, rows, in, out, false);
    b->linear_dw(b, dw[i], dbias[i], dy, x, rows, in, out, true);
  }
  assert_memory_equal(y[0], y[1], rows * out * sizeof **y);
  assert_memory_equal(dx[0], dx[1], rows * in * sizeof **dx);
  assert_memory_equal(dw[0], dw[1], out * in * sizeof **dw);
  assert_memory_equal(dbias[0], dbias[1], out * sizeof **dbias);
  float *all[] = {x, w, bias, dy, y[0], y[1], dx[0], dx[1], dw[0], dw[1], dbias[0], dbias[1]};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) mem_free(all[i]);
}

static void test_linear_odd_shapes_exact_in_each_instruction_set(void **state) {
  (void)state;
  static const size_t sizes[][3] = {{1, 1, 1},     {3, 2, 5},     {4, 3, 31},   {13, 6, 14},
                                    {17, 35, 300}, {47, 70, 271}, {90, 519, 33}};
  const char *names[] = {"avx512+amx", "avx512", "avx2", "sse2", "neon"};
  for (int i = 0; i < 5; i++) {
    Backend b;
    setenv("TRIREME_ISA", names[i], 1);
    if (backend_cpu(&b, 1 + i % 3, false) != ERR_OK) continue;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      check_linear_exact(&b, sizes[s][0], sizes[s][1], sizes[s][2]);
  }
  unsetenv("TRIREME_ISA");
}

static void test_linear_bf16_rounds_to_nearest_even(void **state) {
  (void)state;
  static const float x[] = {1 + 0x1p-8f, 1 + 0x3p-8f, -1 - 0x1p-8f, 1 + 0x1.01p-8f, 1 + 0x1p-9f,
                            3.14159265f, -65504,      0x1.fep100f,  0x1.ffp100f,    0x1p-120f};
  enum { N = sizeof x / sizeof *x };
  Backend b;
  open_bf16(&b);
  float y[N], one = 1;
  b.linear(&b, y, x, &one, NULL, N, 1, 1);
  for (int i = 0; i < N; i++) assert_true(y[i] == rounded(x[i]));
  b.linear(&b, y, &one, x, NULL, 1, 1, N);
  for (int i = 0; i < N; i++) assert_true(y[i] == rounded(x[i]));
}

static void test_linear_bf16_nan_and_infinity_propagate(void **state) {
  (void)state;
  /* a NaN whose only fraction bit is lost by rounding to bf16 */
  uint32_t low_bits = 0x7f800001;
  float x[5] = {NAN, INFINITY, -INFINITY, 0x1.fffffep127f, 0}, y[5], one = 1;
  memcpy(&x[4], &low_bits, 4);
  Backend b;
  open_bf16(&b);
  b.linear(&b, y, x, &one, NULL, 5, 1, 1);
  assert_true(isnan(y[0]) && isnan(y[4]));
  assert_true(y[1] == INFINITY && y[2] == -INFINITY && y[3] == INFINITY);
  b.linear(&b, y, &one, x, NULL, 1, 1, 5);
  assert_true(isnan(y[0]) && isnan(y[4]));
  assert_true(y[1] == INFINITY && y[2] == -INFINITY && y[3] == INFINITY);
}

static void test_backend_cpu_bf16_about_names_unit(void **state) {
  (void)state;
  Backend b;
  open_bf16(&b);
  assert_non_null(strstr(b.about, " with bf16 GEMMs in "));
#ifdef __aarch64__
  assert_non_null(strstr(b.about, "bfmmla"));
#else
  assert_non_null(strstr(b.about, "amx"));
#endif
}

static void test_ops_3_threads_same_bits_as_1(void **state) {
  (void)state;
  Backend one, three;
  assert_int_equal(backend_cpu(&one, 1, false), ERR_OK);
  assert_int_equal(backend_cpu(&three, 3, false), ERR_OK);
  assert_int_equal(three.reserve(&three, 128, 128), ERR_OK);
  for (size_t o = 0; o < OPS; o++) {
    Case a = shape(0);
    ops[o].make(&a);
    Case b = twin(&a);
    ops[o].run(&one, &a);
    ops[o].run(&three, &b);
    for (int i = 0; i < ARRAYS; i++) {
      if (a.n[i]) assert_memory_equal(a.a[i], b.a[i], a.n[i] * sizeof(float));
    }
    assert_memory_equal(a.loss, b.loss, sizeof a.loss);
    drop_arrays(&a);
    drop_arrays(&b);
  }
}

static void test_linear_row_alone_same_bits_as_in_batch(void **state) {
  (void)state;
  for (int bf16 = 0; bf16 < 2; bf16++) {
    Backend b;
    if (backend_cpu(&b, 2, bf16)) continue;
    size_t rows = 150, in = 200, out = 90;
    float *x = draw(rows * in), *w = draw(out * in), *y = draw(rows * out), *one = draw(out);
    b.linear(&b, y, x, w, NULL, rows, in, out);
    for (size_t r = 0; r < rows; r++) {
      b.linear(&b, one, x + r * in, w, NULL, 1, in, out);
      assert_memory_equal(one, y + r * out, out * sizeof(float));
    }
    mem_free(x);
    mem_free(w);
    mem_free(y);
    mem_free(one);
  }
}

/* With accumulate false, gradients must overwrite NaN, also for a batch of 0 rows. */
static void test_gradients_without_accumulate_overwrite_nan(void **state) {
  (void)state;
  Backend b[2];
  backend_reference(&b[0]);
  assert_int_equal(backend_cpu(&b[1], 2, false), ERR_OK);
  float x[3 * 5] = {1, 2}, dy[3 * 7] = {3, 4}, stat[6] = {0, 1, 0, 1, 0, 1}, dx[3 * 5],
              dbranch[3 * 5];
  uint8_t mask[2] = {0xff, 0x7f};
  for (int i = 0; i < 2; i++) {
    for (size_t rows = 0; rows < 4; rows++) {
      float dw[5 * 7], dbias[7], dgain[5], dshift[5];
      AddNorm n = {.rows = rows, .d = 5, .epsilon = 1e-6f};
      for (int k = 0; k < 5 * 7; k++) {
        dw[k] = NAN;
        dbias[k % 7] = dgain[k % 5] = dshift[k % 5] = NAN;
      }
      b[i].linear_dw(&b[i], dw, dbias, dy, x, rows, 5, 7, false);
      assert_true(dw[0] == (rows ? 3 : 0) && dw[6] == (rows ? 8 : 0));
      for (int k = 0; k < 5 * 7; k++) assert_true(isfinite(dw[k]));
      for (int k = 0; k < 7; k++) assert_true(dbias[k] == (rows ? dy[k] : 0));
      for (int k = 0; k < 5; k++) dbias[k] = NAN;
      b[i].add_norm_backward(&b[i], dx, dbranch, dgain, dbias, dshift, dy, NULL, x, stat, x, &n,
                             false);
      for (int k = 0; k < 5; k++) {
        float sum = 0, product = 0, shift = 0;
        for (size_t r = 0, e = (size_t)k; r < rows; r++, e += 5) {
          sum += dy[e];
          product += dy[e] * x[e];
          shift += dbranch[e];
        }
        assert_true(dbias[k] == sum && dgain[k] == product && dshift[k] == shift);
        dshift[k] = NAN;
      }
      b[i].activate_backward(&b[i], dx, dshift, dy, mask, rows, 5, ACT_RELU, (Dropout){0},
                             false);
      for (int k = 0; k < 5; k++) assert_true(dshift[k] == dbias[k]);
    }
  }
}

/* A scalar function of the inputs: the sum of the outputs times fixed random weights. */
static double weighted_output(const Backend *b, void (*run)(const Backend *, Case *),
                              const Case *c, const int *output, const float *const *weights) {
  Case t = twin(c);
  double sum = 0;
  run(b, &t);
  for (int i = 0; output[i] >= 0; i++) {
    for (size_t k = 0; k < t.n[output[i]]; k++)
      sum += (double)weights[i][k] * t.a[output[i]][k];
  }
  drop_arrays(&t);
  return sum;
}

/* Compares 40 elements of a gradient with central finite differences. */
static void check_gradient(const char *name, const Backend *b,
                           void (*run)(const Backend *, Case *), Case *c, const int *output,
                           const float *const *weights, int input, const float *gradient) {
  const float h = 0.02f;
  double error = 0, size = 0;
  for (int trial = 0; trial < 40; trial++) {
    size_t k = rng_below(&rng, c->n[input]);
    float kept = c->a[input][k];
    c->a[input][k] = kept + h;
    double up = weighted_output(b, run, c, output, weights);
    c->a[input][k] = kept - h;
    double down = weighted_output(b, run, c, output, weights);
    c->a[input][k] = kept;
    double slope = (up - down) / (2 * (double)h);
    error += (slope - gradient[k]) * (slope - gradient[k]);
    size += slope * slope;
  }
  if (!(sqrt(error / (size + 1e-12)) < 0.01))
    fail_msg("%s: gradient of input %d is off by %g", name, input, sqrt(error / size));
}

static void test_reference_gradients_match_finite_differences(void **state) {
  (void)state;
  Backend b;
  backend_reference(&b);
  Case c = shape(1);
  c.act = ACT_GELU; /* GELU is smooth, so that finite differences converge. */
  {                 /* linear: y = x w + bias */
    make_linear(&c);
    const float *weight[] = {c.a[3]};
    Case g = twin(&c);
    memset(g.a[0], 0, g.n[0] * 4);
    memset(g.a[1], 0, g.n[1] * 4);
    memset(g.a[2], 0, g.n[2] * 4);
    b.linear_dx(&b, g.a[0], c.a[3], c.a[1], c.rows, c.in, c.out, false);
    b.linear_dw(&b, g.a[1], g.a[2], c.a[3], c.a[0], c.rows, c.in, c.out, true);
    for (int i = 0; i < 3; i++)
      check_gradient("linear", &b, do_linear, &c, (int[]){3, -1}, weight, i, g.a[i]);
    drop_arrays(&g);
    drop_arrays(&c);
  }
  c = shape(1);
  { /* add_norm: both outputs, sum and y */
    make_norm(&c);
    float *dy = draw(c.n[5]), *through = draw(c.n[4]);
    const float *weight[] = {through, dy};
    Case g = twin(&c);
    AddNorm n = norm_of(&c);
    do_add_norm(&b, &g);
    memset(g.a[2], 0, g.n[2] * 4);
    memset(g.a[3], 0, g.n[3] * 4);
    memset(g.a[12], 0, g.n[12] * 4);
    b.add_norm_backward(&b, g.a[7], g.a[8], g.a[2], g.a[3], g.a[12], dy, through, g.a[4],
                        g.a[6], c.a[2], &n, true);
    for (size_t i = 0; i < c.rows * c.d; i++) g.a[12][i % c.d] -= g.a[8][i];
    for (size_t i = 0; i < c.d; i++) assert_true(fabsf(g.a[12][i]) < 1e-5f);
    const float *gradient[] = {g.a[7], g.a[8], g.a[2], g.a[3]};
    for (int i = 0; i < 4; i++)
      check_gradient("add_norm", &b, do_add_norm, &c, (int[]){4, 5, -1}, weight, i,
                     gradient[i]);
    mem_free(dy);
    mem_free(through);
    drop_arrays(&g);
    drop_arrays(&c);
  }
  for (int causal = 0; causal < 2; causal++) {
    c = shape(causal);
    make_attend_back(&c);
    const float *weight[] = {c.a[6]};
    Case g = twin(&c);
    memset(g.a[4], 0, g.n[4] * 4); /* Clears the gaps between the rows. */
    do_attend_back(&b, &g);
    check_gradient("attend q", &b, do_attend, &c, (int[]){2, -1}, weight, 0, g.a[4]);
    check_gradient("attend k, v", &b, do_attend, &c, (int[]){2, -1}, weight, 1, g.a[5]);
    drop_arrays(&g);
    drop_arrays(&c);
  }
  for (int act = ACT_GELU; act <= ACT_NONE; act++) {
    c = shape(1);
    c.act = (Activation)act;
    make_flat(&c);
    const float *weight[] = {c.a[1]};
    float *dy = copy(c.a[1], c.n[1]), *dx = draw(c.n[0]);
    b.activate_backward(&b, dx, NULL, dy, c.a[0], c.rows, c.d, c.act, c.drop, true);
    const float *fixed[] = {dy};
    (void)weight;
    check_gradient("activate", &b, do_activate, &c, (int[]){1, -1}, fixed, 0, dx);
    mem_free(dy);
    mem_free(dx);
    drop_arrays(&c);
  }
}

/* The gradient that `loss` leaves in the logits must be that of the sum in loss[0]. */
static void test_loss_gradient_matches_finite_differences(void **state) {
  (void)state;
  Backend b;
  backend_reference(&b);
  Case c = shape(0);
  make_loss(&c);
  Case g = twin(&c);
  do_loss(&b, &g);
  for (int trial = 0; trial < 40; trial++) {
    size_t k = rng_below(&rng, c.n[0]);
    double sum[2] = {0};
    for (int way = 0; way < 2; way++) {
      Case t = twin(&c);
      t.a[0][k] += way ? 0.02f : -0.02f;
      double loss[3] = {0};
      b.loss(&b, t.a[0], loss, t.id, t.rows, t.out, 0.1f, 0);
      sum[way] = 0.5 * loss[0];
      drop_arrays(&t);
    }
    assert_true(fabs((sum[1] - sum[0]) / 0.04 - (double)g.a[0][k]) <
                1e-3 * fabs((double)g.a[0][k]) + 1e-6);
  }
  drop_arrays(&g);
  drop_arrays(&c);
}

/* Opens the reference and each instruction set of this machine. */
static int open_all_backends(Backend list[5]) {
  const char *names[] = {"avx512", "avx2", "sse2", "neon"};
  int n = 1;
  backend_reference(&list[0]);
  for (int i = 0; i < 4; i++) {
    setenv("TRIREME_ISA", names[i], 1);
    if (backend_cpu(&list[n], 2, false) == ERR_OK) n++;
  }
  unsetenv("TRIREME_ISA");
  assert_true(n > 1);
  return n;
}

/* A row with a negative target must add no loss and have gradient 0; other rows must be
 * unchanged. */
static void test_loss_negative_target_adds_nothing(void **state) {
  (void)state;
  enum { ROWS = 40, VOCAB = 37 };
  Backend list[5];
  int n = open_all_backends(list);
  for (int i = 0; i < n; i++) {
    const Backend *b = &list[i];
    float *some = draw(ROWS * VOCAB), *all = copy(some, ROWS * VOCAB),
          *kept = copy(some, ROWS * VOCAB);
    int32_t target[ROWS], few[ROWS];
    double loss[2][3] = {{0}}, want[3] = {0}, last[3] = {0};
    for (int r = 0; r < ROWS; r++) few[r] = target[r] = r % VOCAB;
    for (int r = 30; r < ROWS; r++) few[r] = -1;
    b->loss(b, all, loss[0], target, 30, VOCAB, 0.1f, 0.5f);
    b->loss(b, some, loss[1], few, ROWS, VOCAB, 0.1f, 0.5f);
    assert_memory_equal(loss[0], loss[1], sizeof want);
    assert_memory_equal(all, some, 30 * VOCAB * sizeof(float));
    for (int k = 30 * VOCAB; k < ROWS * VOCAB; k++) assert_true(some[k] == 0);
    /* With scale 0 the logits must not be written. */
    b->loss(b, kept, want, few, ROWS, VOCAB, 0.1f, 0);
    assert_memory_equal(kept + 30 * VOCAB, all + 30 * VOCAB, 10 * VOCAB * sizeof(float));
    for (int k = 0; k < 3; k++) assert_true(fabs(want[k] - loss[0][k]) <= 1e-6 * fabs(want[k]));
    b->loss(b, kept, last, few + 30, 10, VOCAB, 0.1f, 0.5f);
    assert_true(last[0] == 0 && last[1] == 0 && last[2] == 0);
    mem_free(some);
    mem_free(all);
    mem_free(kept);
  }
}

/* Queries without keys must give o = dq = 0, keys without queries dk = dv = 0. The other
 * sentences must have the same bits as in a batch of their own. */
static void test_attend_sentence_without_keys_or_queries_gives_zero(void **state) {
  (void)state;
  enum { HEADS = 2, D = 20, W = HEADS * D, ROWS = 34, KEYS = 31 };
  static const int32_t q_off[] = {0, 5, 5, 21, 34, 34}, k_off[] = {0, 7, 19, 19, 31, 31};
  /* offsets of the first and the fourth sentence, packed alone */
  static const int32_t lone_q[] = {0, 5, 18}, lone_k[] = {0, 7, 19};
  Backend list[5];
  int n = open_all_backends(list);
  for (int i = 0; i < n; i++) {
    const Backend *b = &list[i];
    assert_int_equal(b->reserve(b, 64, D), ERR_OK);
    float *q = draw(ROWS * W), *k = draw(KEYS * W), *v = draw(KEYS * W), *d_o = draw(ROWS * W);
    float *o = draw(ROWS * W), *lse = draw(ROWS * HEADS), *dq = draw(ROWS * W),
          *dk = draw(KEYS * W), *dv = draw(KEYS * W);
    Attention a = {.sentences = 5, .heads = HEADS, .d = D, .q_off = q_off, .k_off = k_off};
    a.q_ld = a.kv_ld = a.o_ld = W;
    a.q_rows = ROWS;
    b->attend(b, o, lse, q, k, v, &a);
    b->attend_backward(b, dq, dk, dv, d_o, o, lse, q, k, v, &a);
    for (size_t e = 5 * W; e < 21 * W; e++) assert_true(o[e] == 0 && dq[e] == 0);
    for (size_t e = 7 * W; e < 19 * W; e++) assert_true(dk[e] == 0 && dv[e] == 0);
    /* The first and the fourth sentence, packed without the others. */
    float *pack[4] = {draw(18 * W), draw(19 * W), draw(19 * W), draw(18 * W)},
          *from[4] = {q, k, v, d_o};
    for (int x = 0; x < 4; x++) {
      size_t first = x == 0 || x == 3 ? 5 * W : 7 * W, gap = x == 0 || x == 3 ? 21 * W : 19 * W;
      size_t rest = x == 0 || x == 3 ? 13 * W : 12 * W;
      memcpy(pack[x], from[x], first * sizeof(float));
      memcpy(pack[x] + first, from[x] + gap, rest * sizeof(float));
    }
    float *o2 = draw(18 * W), *lse2 = draw(18 * HEADS), *dq2 = draw(18 * W),
          *dk2 = draw(19 * W), *dv2 = draw(19 * W);
    a.sentences = 2;
    a.q_off = lone_q;
    a.k_off = lone_k;
    a.q_rows = 18;
    b->attend(b, o2, lse2, pack[0], pack[1], pack[2], &a);
    b->attend_backward(b, dq2, dk2, dv2, pack[3], o2, lse2, pack[0], pack[1], pack[2], &a);
    assert_memory_equal(o, o2, 5 * W * sizeof(float));
    assert_memory_equal(o + 21 * W, o2 + 5 * W, 13 * W * sizeof(float));
    assert_memory_equal(dq + 21 * W, dq2 + 5 * W, 13 * W * sizeof(float));
    assert_memory_equal(dk + 19 * W, dk2 + 7 * W, 12 * W * sizeof(float));
    assert_memory_equal(dv, dv2, 7 * W * sizeof(float));
    float *array[] = {q,  k,    v,   d_o, o,   lse,     dq,      dk,      dv,
                      o2, lse2, dq2, dk2, dv2, pack[0], pack[1], pack[2], pack[3]};
    for (size_t x = 0; x < sizeof array / sizeof *array; x++) mem_free(array[x]);
  }
}

/* The backward of ReLU must be dy * (x > 0) * dropout factor, bit for bit, also in place and if
 * the last byte of the mask is partly used. */
static void test_activate_backward_relu_uses_mask_only(void **state) {
  (void)state;
  static const size_t lengths[] = {1, 7, 8, 9, 1023, 1024, 1029, 5003};
  Backend list[2];
  backend_reference(&list[0]);
  assert_int_equal(backend_cpu(&list[1], 2, false), ERR_OK);
  for (size_t k = 0; k < 2 * 2 * sizeof lengths / sizeof *lengths; k++) {
    const Backend *b = &list[k % 2];
    size_t n = lengths[k / 4], bytes = (n + 7) / 8;
    Dropout drop = {&drop_key, 6, k / 2 % 2 ? 0.3f : 0};
    float *x = draw(n), *dy = draw(n), *y = copy(x, n), *dx = copy(dy, n);
    uint8_t mask[5003 / 8 + 2];
    memset(mask, 0xa5, sizeof mask);
    b->activate(b, y, mask, y, NULL, 1, n, ACT_RELU, drop);
    b->activate_backward(b, dx, NULL, dx, mask, 1, n, ACT_RELU, drop, false);
    for (size_t i = 0; i < n; i++) {
      float factor = dropout_factor(drop, i), want = dy[i] * (x[i] > 0 ? 1.0f : 0) * factor;
      assert_int_equal(mask[i / 8] >> i % 8 & 1, x[i] > 0 && factor != 0);
      assert_true(y[i] == (x[i] > 0 ? x[i] : 0) * factor);
      assert_memory_equal(&dx[i], &want, sizeof want);
    }
    if (n % 8) assert_int_equal(mask[n / 8] >> n % 8, 0);
    assert_int_equal(mask[bytes], 0xa5);
    mem_free(x);
    mem_free(dy);
    mem_free(y);
    mem_free(dx);
  }
}

static void test_backend_every_operation_is_set(void **state) {
  (void)state;
  Backend list[2];
  backend_reference(&list[0]);
  assert_int_equal(backend_cpu(&list[1], 1, false), ERR_OK);
  for (int i = 0; i < 2; i++) {
    const void *const *at = (const void *const *)(const void *)&list[i].reserve;
    for (const void *const *end = (const void *const *)(const void *)(&list[i].ema + 1);
         at < end; at++)
      assert_non_null(*at);
  }
}

/* Returns seconds; with one thread CPU time, which other processes hardly affect. */
static double speed_clock(const Backend *b) {
  struct timespec t;
  if (b->threads > 1) return progress_clock();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int print_speed(int threads) {
  Backend b;
  if (backend_cpu(&b, threads, false) || b.reserve(&b, 128, 64)) return 1;
  printf("%s\n", b.about);
  for (size_t o = 0; o < OPS; o++) {
    static int32_t off[65], id[2048], pos[2048];
    Case c = {.rows = 2048,
              .in = 512,
              .out = 2048,
              .d = strncmp(ops[o].name, "att", 3) ? 512 : 64,
              .heads = 8,
              .sentences = 64};
    for (int32_t i = 0; i <= 64; i++) off[i] = 32 * i;
    for (int i = 0; i < 2048; i++) id[i] = i % 40, pos[i] = i % 64;
    c.off_q = c.off_k = off;
    c.id = id;
    c.pos = pos;
    c.drop = (Dropout){&drop_key, 1, 0.1f};
    c.mask = masks;
    ops[o].make(&c);
    double best = 1e9, bytes = 0;
    for (int i = 0; i < ARRAYS; i++) bytes += 4.0 * (double)c.n[i];
    for (int i = 0; i < 20; i++) {
      double start = speed_clock(&b);
      ops[o].run(&b, &c);
      double took = speed_clock(&b) - start;
      if (took < best) best = took;
    }
    printf("%-14s %8.3f ms", ops[o].name, 1e3 * best);
    if (ops[o].is_gemm)
      printf(" %8.1f GFLOP/s\n", 2e-9 * (double)(c.rows * c.in * c.out) / best);
    else
      printf(" %8.1f GB/s\n", 1e-9 * bytes / best);
    drop_arrays(&c);
  }
  return 0;
}

/* ReLU must be x > 0 ? x : 0 bit for bit, in place or not: NaN and -0 become 0. */
static void test_activate_relu_in_place_gives_same_bits(void **state) {
  (void)state;
  enum { N = 75 }; /* covers unrolled vectors, single vectors and a remainder */
  static const float special[] = {NAN, -0.0f, 0, INFINITY, -INFINITY, 0x1p-149f, -1, 3};
  Backend list[5];
  float x[N], apart[N], bias[N] = {0};
  int n = open_all_backends(list);
  for (int i = 0; i < N; i++) x[i] = special[i % 8];
  for (int k = 0; k < n; k++) {
    const Backend *b = &list[k];
    float inside[N];
    memcpy(inside, x, sizeof x);
    b->activate(b, apart, NULL, x, NULL, 1, N, ACT_RELU, (Dropout){0});
    b->activate(b, inside, NULL, inside, bias, 1, N, ACT_RELU, (Dropout){0});
    for (int i = 0; i < N; i++) {
      float want = x[i] > 0 ? x[i] : 0;
      assert_memory_equal(&apart[i], &want, sizeof want);
      assert_memory_equal(&inside[i], &want, sizeof want);
    }
  }
}

/* fast_exp overflows above 88, and the sigmoid uses fast_exp(-x). */
static void test_activate_silu_below_minus_88_is_zero(void **state) {
  (void)state;
  enum { N = 37 }; /* covers whole vectors and a remainder */
  Backend list[5];
  Dropout none = {0};
  float x[N], y[N], dy[N], dx[N];
  int n = open_all_backends(list);
  for (int i = 0; i < N; i++) {
    x[i] = -80 - 5 * (float)i;
    dy[i] = 1;
  }
  for (int k = 0; k < n; k++) {
    const Backend *b = &list[k];
    b->activate(b, y, NULL, x, NULL, 1, N, ACT_SILU, none);
    b->activate_backward(b, dx, NULL, dy, x, 1, N, ACT_SILU, none, false);
    for (int i = 0; i < N; i++) {
      if (fabsf(y[i]) > 1e-30f || fabsf(dx[i]) > 1e-30f)
        fail_msg("%s: silu(%g) = %g, slope %g", b->about, (double)x[i], (double)y[i],
                 (double)dx[i]);
    }
  }
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "speed") == 0)
    return print_speed(argc > 2 ? atoi(argv[2]) : 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ops_each_instruction_set_matches_reference),
      cmocka_unit_test(test_ops_bf16_gemm_matches_reference),
      cmocka_unit_test(test_linear_bf16_odd_shapes_match_rounded_operands),
      cmocka_unit_test(test_linear_odd_shapes_exact_in_each_instruction_set),
      cmocka_unit_test(test_linear_bf16_rounds_to_nearest_even),
      cmocka_unit_test(test_linear_bf16_nan_and_infinity_propagate),
      cmocka_unit_test(test_backend_cpu_bf16_about_names_unit),
      cmocka_unit_test(test_ops_3_threads_same_bits_as_1),
      cmocka_unit_test(test_linear_row_alone_same_bits_as_in_batch),
      cmocka_unit_test(test_gradients_without_accumulate_overwrite_nan),
      cmocka_unit_test(test_reference_gradients_match_finite_differences),
      cmocka_unit_test(test_loss_gradient_matches_finite_differences),
      cmocka_unit_test(test_loss_negative_target_adds_nothing),
      cmocka_unit_test(test_attend_sentence_without_keys_or_queries_gives_zero),
      cmocka_unit_test(test_activate_backward_relu_uses_mask_only),
      cmocka_unit_test(test_activate_relu_in_place_gives_same_bits),
      cmocka_unit_test(test_activate_silu_below_minus_88_is_zero),
      cmocka_unit_test(test_backend_every_operation_is_set),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
