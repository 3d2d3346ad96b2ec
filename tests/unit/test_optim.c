/* The optimizers, compared with the formulas in double precision and with PyTorch
 * (tests/golden/optim/steps.txt, made by make_golden.py). Pieces, ranks and threads must not
 * change a bit. All tests run on every backend. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "support.h"
#include "train/optim.h"

#define UNIT ((size_t)NORM_UNIT)
#define EPS  0x1p-24 /* unit roundoff of fp32 */

static Rng rng = {.key = 11};

static float *floats(size_t n) {
  float *x;
  OK(mem_alloc_aligned(&x, (n + 1) * sizeof *x));
  return x;
}

/* Returns a random number, uniform in [-size, size]. */
static void draw(float *x, size_t n, double size) {
  for (size_t i = 0; i < n; i++)
    x[i] = (float)(size * ((double)(rng_next(&rng) >> 11) * 0x1p-52 - 1));
}

/* The reference backend, and each instruction set with one thread and with three. */
enum { BACKENDS_MOST = 9 };
static int backends(Backend *list) {
  const char *names[] = {"avx512", "avx2", "sse2", "neon"};
  int n = 0;
  backend_reference(&list[n++]);
  for (int i = 0; i < 8; i++) {
    setenv("TRIREME_ISA", names[i / 2], 1);
    if (backend_cpu(&list[n], i % 2 ? 3 : 1, false) == ERR_OK) n++;
  }
  unsetenv("TRIREME_ISA");
  assert_true(n > 2);
  return n;
}

/* Two weights, the first longer than several norm units, with padding around them. */
#define FIRST  ((size_t)2 * NORM_UNIT + 77)
#define SECOND ((size_t)5)
#define TOTAL  ((size_t)3 * NORM_UNIT)
static Param two[] = {{.name = "first", .offset = 16, .rows = FIRST, .cols = 1},
                      {.name = "second", .offset = 16 + FIRST + 11, .rows = SECOND, .cols = 1}};
static const Params params = {
    .param = two, .count = 2, .total = FIRST + SECOND, .padded = TOTAL};

static const OptimSpec specs[] = {
    {OPTIM_ADAM, 0.9f, 0.98f, 1e-9f, 0.1f}, {OPTIM_ADAMW, 0.8f, 0.95f, 1e-6f, 0.1f},
    {OPTIM_SGD, 0.9f, 0, 0, 0.01f},         {OPTIM_NOVOGRAD, 0.95f, 0.5f, 1e-8f, 0.01f},
    {OPTIM_ADAM, 0.9f, 0.999f, 1e-8f, 0},   {OPTIM_SGD, 0, 0, 0, 0},
};
#define SPECS (sizeof specs / sizeof *specs)

/* Runs a step on a piece, with its own StepNumbers. */
static void piece(const OptimSpec *o, const Backend *b, float *w, float *m, float *v,
                  const float *g, size_t n, uint64_t step, double lr, double scale) {
  StepNumbers now = optim_numbers(o, step, lr);
  now.grad_scale = (float)scale;
  optim_update(o, NULL, b, &now, &(OptimPiece){.n = n, .w = w, .m = m, .v = v, .g = g});
}

/* Runs a step of any optimizer on whole arrays, with the function that train uses. */
static void step_of(const OptimSpec *o, const Backend *b, const Params *p, float *w, float *m,
                    float *v, double *second, const float *g, uint64_t step, double lr,
                    double scale) {
  if (o->kind == OPTIM_NOVOGRAD)
    optim_layers(o, NULL, b, p, w, m, second, g, lr, scale);
  else
    piece(o, b, w, m, v, g, p->padded, step, lr, scale);
}

/* The formulas of the papers, evaluated in double precision. */
typedef struct {
  double w[TOTAL], m[TOTAL], v[TOTAL], second[2];
} Plain;

static void plain_adam(Plain *s, const OptimSpec *o, const float *g, int t, double lr,
                       double scale) {
  double b1 = o->beta1, b2 = o->beta2;
  for (size_t i = 0; i < TOTAL; i++) {
    double grad = g[i] * scale;
    if (o->kind == OPTIM_ADAM) grad += o->decay * s->w[i];
    if (o->kind == OPTIM_ADAMW) s->w[i] *= 1 - lr * o->decay;
    s->m[i] += (1 - b1) * (grad - s->m[i]);
    s->v[i] += (1 - b2) * (grad * grad - s->v[i]);
    double mean = s->m[i] / (1 - pow(b1, t)), square = s->v[i] / (1 - pow(b2, t));
    s->w[i] -= lr * mean / (sqrt(square) + (double)o->epsilon);
  }
}

static void plain_sgd(Plain *s, const OptimSpec *o, const float *g, double lr, double scale) {
  for (size_t i = 0; i < TOTAL; i++) {
    s->m[i] = o->beta1 * s->m[i] + g[i] * scale + o->decay * s->w[i];
    s->w[i] -= lr * s->m[i];
  }
}

static void plain_novograd(Plain *s, const OptimSpec *o, const float *g, int t, double lr,
                           double scale) {
  for (size_t k = 0; k < 2; k++) {
    size_t begin = two[k].offset, end = begin + two[k].rows;
    double square_sums = 0;
    for (size_t i = begin; i < end; i++) square_sums += pow(g[i] * scale, 2);
    s->second[k] +=
        t == 1 ? square_sums : (1 - (double)o->beta2) * (square_sums - s->second[k]);
    for (size_t i = begin; i < end; i++) {
      double normal = g[i] * scale / (sqrt(s->second[k]) + (double)o->epsilon);
      s->m[i] = o->beta1 * s->m[i] + normal + o->decay * s->w[i];
      s->w[i] -= lr * s->m[i];
    }
  }
}

static void plain_step(Plain *s, const OptimSpec *o, const float *g, int t, double lr,
                       double scale) {
  if (o->kind == OPTIM_NOVOGRAD)
    plain_novograd(s, o, g, t, lr, scale);
  else if (o->kind == OPTIM_SGD)
    plain_sgd(s, o, g, lr, scale);
  else
    plain_adam(s, o, g, t, lr, scale);
}

static void assert_near(const Backend *b, const OptimSpec *o, int step, const float *got,
                        const double *want) {
  double error = 0, size = 0;
  for (size_t i = 0; i < TOTAL; i++) {
    error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
    size += want[i] * want[i];
  }
  if (!(sqrt(error) <= 8 * EPS * sqrt(size)))
    fail_msg("%s, kind %d, step %d: off by %g of rounding", b->about, (int)o->kind, step,
             sqrt(error / size) / EPS);
}

static void check_restatement(const Backend *b, const OptimSpec *o) {
  static Plain plain;
  float *w = floats(TOTAL), *m = floats(TOTAL), *v = floats(TOTAL), *g = floats(TOTAL);
  double second[2] = {0};
  memset(&plain, 0, sizeof plain);
  draw(w, TOTAL, 1);
  for (size_t i = 0; i < TOTAL; i++) plain.w[i] = (double)w[i];
  for (int step = 0; step < 6; step++) {
    double lr = 0.01 * (step + 1), scale = step % 2 ? 0.25 : 1.5;
    draw(g, TOTAL, 2);
    step_of(o, b, &params, w, m, v, second, g, (uint64_t)step, lr, scale);
    plain_step(&plain, o, g, step + 1, lr, scale);
    assert_near(b, o, step, w, plain.w);
    if (optim_has_moment(o, 1)) assert_near(b, o, step, m, plain.m);
    if (optim_has_moment(o, 2)) assert_near(b, o, step, v, plain.v);
    for (int k = 0; k < 2 && o->kind == OPTIM_NOVOGRAD; k++)
      assert_true(fabs(second[k] - plain.second[k]) <= 1e-12 * plain.second[k]);
  }
  mem_free(w), mem_free(m), mem_free(v), mem_free(g);
}

static void test_optim_steps_equal_plain_formulas(void **state) {
  (void)state;
  Backend list[BACKENDS_MOST];
  int n = backends(list);
  for (int i = 0; i < n; i++) {
    for (size_t k = 0; k < SPECS; k++) check_restatement(&list[i], &specs[k]);
  }
}

/* Tests with values that can be checked by hand. */
static void test_optim_first_steps_equal_worked_example(void **state) {
  (void)state;
  Backend list[BACKENDS_MOST];
  Param one[] = {{.name = "one", .rows = 2, .cols = 1}};
  Params p = {.param = one, .count = 1, .total = 2, .padded = 2};
  int n = backends(list);
  for (int i = 0; i < n; i++) {
    const float g[] = {6, 8}, next[] = {0, 12};
    { /* grad_scale halves (6, 8) to (3, 4): norm 5; then 0.5 * 25 + 0.5 * 36 = 30.5 */
      float w[] = {1, 2}, m[2] = {0};
      double second = 0;
      OptimSpec o = {OPTIM_NOVOGRAD, 0.5f, 0.5f, 0, 0.125f};
      optim_layers(&o, NULL, &list[i], &p, w, m, &second, g, 0.5, 0.5);
      assert_true(second == 25);
      assert_float_equal(m[0], 0.6f + 0.125f, 1e-6);
      assert_float_equal(m[1], 0.8f + 0.25f, 1e-6);
      assert_float_equal(w[0], 1 - 0.3625f, 1e-6);
      assert_float_equal(w[1], 2 - 0.525f, 1e-6);
      optim_layers(&o, NULL, &list[i], &p, w, m, &second, next, 0, 0.5);
      assert_true(second == 30.5);
      /* unchanged, because the learning rate is 0. */
      assert_float_equal(w[1], 2 - 0.525f, 1e-6);
    }
    { /* momentum: the second step adds half of the first */
      float w[] = {1, 2}, m[2] = {0};
      OptimSpec o = {OPTIM_SGD, 0.5f, 0, 0, 0};
      piece(&o, &list[i], w, m, NULL, g, 2, 0, 0.25, 0.5);
      assert_true(w[0] == 0.25f && w[1] == 1 && m[0] == 3 && m[1] == 4);
      piece(&o, &list[i], w, m, NULL, next, 2, 1, 0.5, 0.5);
      assert_true(w[0] == -0.5f && w[1] == -3 && m[0] == 1.5f && m[1] == 8);
    }
    { /* Adam: the first step has the size of the learning rate for any gradient */
      float w[] = {1, 2}, m[2] = {0}, v[2] = {0};
      OptimSpec o = {OPTIM_ADAM, 0.9f, 0.98f, 0, 0};
      piece(&o, &list[i], w, m, v, g, 2, 0, 0.25, -0.5);
      assert_float_equal(w[0], 1.25f, 1e-6);
      assert_float_equal(w[1], 2.25f, 1e-6);
    }
    { /* EMA: moves a quarter of the distance to the weights */
      float e[] = {4, -4}, w[] = {8, 0};
      list[i].ema(&list[i], e, w, 0.75, 2, &(StepNumbers){.grad_scale = 1});
      assert_true(e[0] == 5 && e[1] == -3);
    }
  }
}

/* Without a gradient, decoupled decay shrinks weights by lr * decay; coupled decay is a
 * gradient, which Adam scales to the learning rate. With decay 0 both give the same bits. */
static void test_optim_weight_decay_is_coupled_or_decoupled(void **state) {
  (void)state;
  Backend list[BACKENDS_MOST];
  int n = backends(list);
  for (int i = 0; i < n; i++) {
    const float none[2] = {0}, some[2] = {0.3f, -7};
    float w[2][2] = {{1, -3}, {1, -3}}, m[2][2] = {{0}}, v[2][2] = {{0}};
    for (int k = 0; k < 2; k++) {
      OptimSpec o = {k ? OPTIM_ADAMW : OPTIM_ADAM, 0.9f, 0.98f, 1e-9f, 0.5f};
      piece(&o, &list[i], w[k], m[k], v[k], none, 2, 0, 0.125, 1);
    }
    assert_float_equal(w[0][0], 0.875f, 1e-6);
    assert_float_equal(w[0][1], -2.875f, 1e-6);
    assert_true(w[1][0] == 0.9375f && w[1][1] == -2.8125f && m[1][0] == 0 && v[1][0] == 0);
    memcpy(w[1], w[0], sizeof w[1]), memset(m, 0, sizeof m), memset(v, 0, sizeof v);
    for (int k = 0; k < 2; k++) {
      OptimSpec o = {k ? OPTIM_ADAMW : OPTIM_ADAM, 0.9f, 0.98f, 1e-9f, 0};
      piece(&o, &list[i], w[k], m[k], v[k], some, 2, 0, 0.125, 1);
    }
    assert_memory_equal(w[0], w[1], sizeof w[0]);
  }
}

/* A rank may own any piece: updating piece by piece gives the same bits. */
static void test_optim_update_in_pieces_same_bits(void **state) {
  (void)state;
  const size_t cut[] = {0, 1, 3, 20, UNIT, UNIT + 1, 2 * UNIT - 5, 3 * UNIT - 1, TOTAL};
  Backend list[BACKENDS_MOST];
  int n = backends(list);
  float *whole[3], *parts[3], *g = floats(TOTAL);
  for (int a = 0; a < 3; a++) whole[a] = floats(TOTAL), parts[a] = floats(TOTAL);
  for (int i = 0; i < n * (int)SPECS; i++) {
    const Backend *b = &list[i / (int)SPECS];
    const OptimSpec *o = &specs[i % (int)SPECS];
    if (o->kind == OPTIM_NOVOGRAD) continue;
    for (int a = 0; a < 3; a++) {
      memset(whole[a], 0, TOTAL * sizeof(float));
      if (a == 0) draw(whole[a], TOTAL, 1);
      memcpy(parts[a], whole[a], TOTAL * sizeof(float));
    }
    for (uint64_t step = 0; step < 3; step++) {
      draw(g, TOTAL, 1);
      piece(o, b, whole[0], whole[1], whole[2], g, TOTAL, step, 0.01, 0.3);
      for (size_t c = 0; c + 1 < sizeof cut / sizeof *cut; c++)
        piece(o, b, parts[0] + cut[c], parts[1] + cut[c], parts[2] + cut[c], g + cut[c],
              cut[c + 1] - cut[c], step, 0.01, 0.3);
    }
    for (int a = 0; a < 3; a++) assert_memory_equal(whole[a], parts[a], TOTAL * sizeof(float));
  }
  for (int a = 0; a < 3; a++) mem_free(whole[a]), mem_free(parts[a]);
  mem_free(g);
}

/* Any division at norm units gives the same sums and the same norm; so do threads and
 * instruction sets. */
static void test_optim_grad_norm_same_bits_for_any_sharding(void **state) {
  (void)state;
  enum { UNITS = 1030 }; /* more units than optim_norm2 processes at once */
  const size_t n = (UNITS - 1) * UNIT + 1234, cut[] = {0, 1, 4, 700, 1029, UNITS};
  static double sums[UNITS + 1], parts[UNITS + 1], first[UNITS + 1];
  Backend list[BACKENDS_MOST];
  int count = backends(list);
  float *x = floats(n);
  draw(x, n, 3);
  double plain = 0;
  for (size_t i = 0; i < n; i++) plain += (double)x[i] * (double)x[i];
  for (int i = 0; i < count; i++) {
    const Backend *b = &list[i];
    sums[UNITS] = parts[UNITS] = -1; /* must not be written: beyond the last unit */
    b->square_sums(b, sums, x, n);
    for (size_t c = 0; c + 1 < sizeof cut / sizeof *cut; c++) {
      size_t begin = cut[c] * UNIT, end = cut[c + 1] == UNITS ? n : cut[c + 1] * UNIT;
      b->square_sums(b, parts + cut[c], x + begin, end - begin);
    }
    assert_true(sums[UNITS] == -1);
    assert_memory_equal(sums, parts, sizeof sums);
    double norm = optim_norm(sums, UNITS);
    assert_true(fabs(norm - sqrt(plain)) <= 1e-12 * norm);
    assert_true(sqrt(optim_norm2(b, x, n)) == norm);
    if (i == 1) memcpy(first, sums, sizeof first);
    if (i > 1) assert_memory_equal(sums, first, sizeof sums);
  }
  /* An element affects only the sum of its own unit. */
  x[2 * UNIT] = 1000;
  list[1].square_sums(&list[1], sums, x, n);
  for (size_t u = 0; u < UNITS; u++) assert_int_equal(sums[u] != first[u], u == 2);
  list[1].square_sums(&list[1], sums, x, 0);
  assert_true(sums[0] == first[0] && optim_norm2(&list[1], x, 0) == 0 &&
              optim_norm(NULL, 0) == 0);
  mem_free(x);
}

/* A NaN or infinite gradient must make the norm NaN or infinite. */
static void test_optim_grad_norm_of_nan_or_inf_is_not_finite(void **state) {
  (void)state;
  Backend list[BACKENDS_MOST];
  int count = backends(list);
  const float bad[] = {NAN, INFINITY, -INFINITY};
  float *x = floats(TOTAL);
  for (int i = 0; i < count; i++) {
    for (size_t k = 0; k < 3; k++) {
      memset(x, 0, TOTAL * sizeof *x);
      x[TOTAL - 1 - k] = bad[k];
      assert_true(!isfinite(optim_norm2(&list[i], x, TOTAL)));
    }
  }
  mem_free(x);
}

/* Clipping on the backend and on the host gives the same bits, for any order of the units: with
 * a limit, without one, and with a NaN. */
static void test_optim_clip_scales_to_max_grad_norm(void **state) {
  (void)state;
  enum { UNITS = 1030 };
  Backend list[BACKENDS_MOST];
  int count = backends(list);
  static double sums[UNITS];
  for (size_t i = 0; i < UNITS; i++) sums[i] = (double)(rng_next(&rng) >> 11) * 0x1p-40;
  double plain = 0, norm = optim_norm(sums, UNITS);
  for (size_t i = 0; i < UNITS; i++) plain += sums[i];
  assert_true(fabs(norm - sqrt(plain)) < 1e-12 * norm);
  static const struct {
    double most, loss;
    bool spoilt;
  } cases[] = {
      {0, 1, false}, {0.01, 1, false}, {1e9, 1, false}, {1, 1, true}, {1, (double)NAN, false}};
  for (int i = 0; i < count * 5; i++) {
    const Backend *b = &list[i / 5];
    StepNumbers here = {.grad_divisor = 48000, .max_grad_norm = cases[i % 5].most, .lr = 3},
                there = here;
    double loss[3] = {cases[i % 5].loss, 2, 3}, kept = sums[700];
    if (cases[i % 5].spoilt) sums[700] = (double)INFINITY;
    here.loss[0] = there.loss[0] = loss[0], here.loss[1] = 2, here.loss[2] = 3;
    there.loss[0] = 99;
    optim_clip(&here, sums, UNITS);
    b->clip(b, &there, sums, UNITS, loss);
    sums[700] = kept;
    assert_memory_equal(&here, &there, sizeof here);
    assert_true(loss[0] == 0 && loss[1] == 0 && loss[2] == 0);
    if (i % 5 < 3) assert_true(here.grad_norm == norm / 48000);
    double by = i % 5 == 1 ? 0.01 / here.grad_norm : 1;
    if (i % 5 < 3)
      assert_true(here.grad_scale == (float)(by / 48000));
    else
      assert_true(isnan(here.grad_scale) && isfinite(here.grad_norm) == (i % 5 == 4));
  }
}

/* With ranks the sums are in now->loss and now->count, and the divisor follows from them. */
static void test_optim_clip_divides_by_predictions_of_all_ranks(void **state) {
  (void)state;
  Backend list[BACKENDS_MOST];
  int count = backends(list);
  static const double predictions[] = {48000, 0};
  for (int i = 0; i < count * 2; i++) {
    const Backend *b = &list[i / 2];
    double sums[2] = {9, 16}, divisor = 4 * (i % 2 ? 1 : 48000.0);
    StepNumbers now = {.loss = {1, 2, 3}, .count = {predictions[i % 2]}, .loss_scale = 4};
    b->clip(b, &now, sums, 2, NULL);
    assert_true(now.grad_divisor == divisor);
    assert_true(now.grad_norm == 5 / divisor);
    assert_true(now.grad_scale == (float)(1 / divisor));
    assert_true(now.loss[0] == 1 && now.loss[2] == 3);
  }
}

/* If grad_scale is NaN, no array changes. */
static void test_optim_skipped_update_changes_nothing(void **state) {
  (void)state;
  Backend list[BACKENDS_MOST];
  int count = backends(list);
  enum { N = 100 };
  for (int i = 0; i < count; i++) {
    for (size_t k = 0; k < SPECS; k++) {
      if (specs[k].kind == OPTIM_NOVOGRAD) continue;
      float w[2][N], m[2][N], v[2][N], e[2][N], g[N];
      draw(w[0], N, 1), draw(m[0], N, 1), draw(v[0], N, 0), draw(e[0], N, 1), draw(g, N, 1);
      memcpy(w[1], w[0], sizeof g), memcpy(m[1], m[0], sizeof g);
      memcpy(v[1], v[0], sizeof g), memcpy(e[1], e[0], sizeof g);
      StepNumbers now = optim_numbers(&specs[k], 3, 0.1);
      now.grad_scale = NAN;
      OptimPiece all = {.n = N, .w = w[0], .m = m[0], .v = v[0], .g = g};
      optim_update(&specs[k], NULL, &list[i], &now, &all);
      list[i].ema(&list[i], e[0], w[0], 0.5, N, &now);
      assert_memory_equal(w[0], w[1], sizeof g);
      assert_memory_equal(m[0], m[1], sizeof g);
      assert_memory_equal(v[0], v[1], sizeof g);
      assert_memory_equal(e[0], e[1], sizeof g);
      now.grad_scale = 1;
      optim_update(&specs[k], NULL, &list[i], &now, &all);
      list[i].ema(&list[i], e[0], w[0], 0.5, N, &now);
      assert_true(memcmp(w[0], w[1], sizeof g) != 0 && memcmp(e[0], e[1], sizeof g) != 0);
    }
  }
}

/* NovoGrad normalises each weight separately and ignores the padding. A weight without
 * gradients stays finite, even with epsilon 0 and after its second moment has underflowed. */
static void test_optim_novograd_norms_each_weight(void **state) {
  (void)state;
  Backend list[BACKENDS_MOST];
  int count = backends(list);
  float *w = floats(TOTAL), *m = floats(TOTAL), *g = floats(TOTAL), *start = floats(TOTAL);
  for (int i = 0; i < count; i++) {
    const OptimSpec o = {OPTIM_NOVOGRAD, 0.9f, 0.25f, 0, 0};
    double second[2] = {0};
    draw(start, TOTAL, 1), draw(g, TOTAL, 1);
    memcpy(w, start, TOTAL * sizeof *w), memset(m, 0, TOTAL * sizeof *m);
    memset(g + two[1].offset, 0, SECOND * sizeof *g);
    optim_layers(&o, NULL, &list[i], &params, w, m, second, g, 0.1, 1);
    double moved = 0;
    for (size_t k = 0; k < TOTAL; k++) {
      bool of_first = k >= two[0].offset && k < two[0].offset + FIRST;
      if (of_first)
        moved += pow((double)w[k] - (double)start[k], 2);
      else
        assert_true(w[k] == start[k] && m[k] == 0);
    }
    assert_true(fabs(sqrt(moved) - 0.1) < 1e-5); /* the learning rate times a unit vector */
    /* Many steps without gradients, so that the second moment underflows. */
    const double tiny[] = {1e-80, 1e-200, 1e-310, 0};
    memset(g, 0, TOTAL * sizeof *g);
    for (size_t k = 0; k < 4; k++) {
      second[0] = tiny[k];
      optim_layers(&o, NULL, &list[i], &params, w, m, second, g, 0.1, 1);
    }
    for (size_t k = 0; k < TOTAL; k++) assert_true(isfinite(w[k]) && isfinite(m[k]));
  }
  mem_free(w), mem_free(m), mem_free(g), mem_free(start);
}

/* A skipped step leaves the second moment 0; the first update with a gradient sets it to the
 * squared norm, instead of averaging it with 0. */
static void test_novograd_first_update_starts_the_second_moment(void **state) {
  (void)state;
  Backend list[BACKENDS_MOST];
  Param one[] = {{.name = "one", .rows = 2, .cols = 1}};
  Params p = {.param = one, .count = 1, .total = 2, .padded = 2};
  const OptimSpec o = {OPTIM_NOVOGRAD, 0.5f, 0.75f, 0, 0};
  const float none[] = {0, 0}, g[] = {3, 4};
  int n = backends(list);
  for (int i = 0; i < n; i++) {
    float w[] = {1, 2}, m[2] = {0};
    double second = 0;
    optim_layers(&o, NULL, &list[i], &p, w, m, &second, none, 0.5, 1);
    assert_true(second == 0);
    optim_layers(&o, NULL, &list[i], &p, w, m, &second, g, 0.5, 1);
    assert_true(second == 25); /* |g|^2, not 0.25 * |g|^2 */
    optim_layers(&o, NULL, &list[i], &p, w, m, &second, none, 0.5, 1);
    assert_true(second == 0.75 * 25);
  }
}

/* Each optimizer minimises a quadratic function with different curvatures. */
static void test_optim_every_kind_minimises(void **state) {
  (void)state;
  static const struct {
    OptimSpec spec;
    double lr;
  } run[] = {{{OPTIM_ADAM, 0.9f, 0.98f, 1e-9f, 0}, 0.1},
             {{OPTIM_ADAMW, 0.9f, 0.98f, 1e-9f, 0}, 0.1},
             {{OPTIM_SGD, 0.9f, 0, 0, 0}, 0.05},
             {{OPTIM_NOVOGRAD, 0.9f, 0.5f, 1e-8f, 0}, 0.1}};
  enum { N = 24, STEPS = 600 };
  Param one[] = {{.name = "one", .rows = N, .cols = 1}};
  Params p = {.param = one, .count = 1, .total = N, .padded = N};
  Backend list[BACKENDS_MOST];
  int count = backends(list);
  for (int i = 0; i < 4 * count; i++) {
    float w[N], m[N] = {0}, v[N] = {0}, g[N], bottom[N];
    double second[1] = {0}, begin = 0, end = 0;
    draw(w, N, 1), draw(bottom, N, 1);
    for (int step = 0; step <= STEPS; step++) {
      double value = 0, off;
      for (int k = 0; k < N; k++) {
        double steep = 0.25 + 0.1 * k;
        off = (double)w[k] - (double)bottom[k];
        value += 0.5 * steep * off * off;
        g[k] = (float)(steep * off);
      }
      if (step == 0) begin = value;
      end = value;
      step_of(&run[i % 4].spec, &list[i / 4], &p, w, m, v, second, g, (uint64_t)step,
              run[i % 4].lr * (1 - (double)step / (STEPS + 1)), 1);
    }
    if (!(end < 1e-6 * begin))
      fail_msg("%s, kind %d: from %g only to %g", list[i / 4].about, i % 4, begin, end);
  }
}

/* Reads the next line of the golden file: a word and the numbers after it. */
static int read_line(FILE *f, char *word, char *kind, double *x, int most) {
  char line[1024], *at = line;
  do {
    if (!fgets(line, sizeof line, f)) return -1;
  } while (line[0] == '#');
  int used = 0, n = 0;
  assert_int_equal(sscanf(at, "%15s%n", word, &used), 1);
  at += used;
  if (strcmp(word, "kind") == 0) {
    assert_int_equal(sscanf(at, "%15s%n", kind, &used), 1);
    at += used;
  }
  for (char *end; n < most; n++, at = end) {
    x[n] = strtod(at, &end);
    if (end == at) break;
  }
  return n;
}

static OptimKind kind_named(const char *name) {
  const char *at = optim_names;
  for (int kind = 0;; kind++, at++) {
    size_t n = strcspn(at, "|");
    if (n == strlen(name) && strncmp(at, name, n) == 0) return (OptimKind)kind;
    at += n;
    if (!*at) fail_msg("no optimiser is called %s", name);
  }
}

static void check_golden(const Backend *b) {
  enum { N = 8 };
  FILE *f = fopen("tests/golden/optim/steps.txt", "r");
  assert_non_null(f);
  char word[16], kind[16] = "";
  double x[N], most[N] = {0}, lr = 0;
  float w[N] = {0}, m[N] = {0}, v[N] = {0}, g[N] = {0};
  OptimSpec o = {0};
  uint64_t step = 0;
  int n, compared = 0;
  while ((n = read_line(f, word, kind, x, N)) >= 0) {
    if (strcmp(word, "kind") == 0) {
      assert_int_equal(n, 4);
      o = (OptimSpec){kind_named(kind), (float)x[0], (float)x[1], (float)x[2], (float)x[3]};
      memset(m, 0, sizeof m), memset(v, 0, sizeof v), memset(most, 0, sizeof most);
      step = 0;
    } else if (strcmp(word, "step") == 0) {
      assert_int_equal(n, 1);
      lr = x[0];
    } else {
      assert_int_equal(n, N);
      /* A line "start" contains the initial weights. */
      for (int i = 0; i < N && *word == 's'; i++) w[i] = (float)x[i];
      /* A line "grad" contains the gradient. */
      for (int i = 0; i < N && *word == 'g'; i++) g[i] = (float)x[i];
      if (strcmp(word, "want") != 0) continue;
      piece(&o, b, w, m, v, g, N, step, lr, 1);
      for (int i = 0; i < N; i++) {
        /* The error is relative to the largest value so far, because it contains the
         * rounding errors of earlier steps. */
        most[i] = fmax(most[i], fabs(x[i]));
        if (!(fabs((double)w[i] - x[i]) <= 16 * EPS * fmax(most[i], 0.1)))
          fail_msg("%s, %s, step %d, weight %d: %.9g, PyTorch has %.9g", b->about, kind,
                   (int)step, i, (double)w[i], x[i]);
      }
      step++, compared++;
    }
  }
  fclose(f);
  assert_int_equal(compared, 60);
}

static void test_optim_steps_equal_pytorch(void **state) {
  (void)state;
  Backend list[BACKENDS_MOST];
  int n = backends(list);
  for (int i = 0; i < n; i++) check_golden(&list[i]);
}

static void test_optim_kind_has_name_and_its_moments(void **state) {
  (void)state;
  const bool second[] = {true, true, false, false};
  const char *names[] = {"adam", "adamw", "sgd", "novograd"};
  for (int k = 0; k < 4; k++) {
    OptimSpec o = {.kind = (OptimKind)k};
    assert_int_equal(kind_named(names[k]), k);
    assert_true(optim_has_moment(&o, 1));
    assert_int_equal(optim_has_moment(&o, 2), second[k]);
    assert_false(optim_has_moment(&o, 0) || optim_has_moment(&o, 3));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_optim_steps_equal_plain_formulas),
      cmocka_unit_test(test_optim_first_steps_equal_worked_example),
      cmocka_unit_test(test_optim_weight_decay_is_coupled_or_decoupled),
      cmocka_unit_test(test_optim_update_in_pieces_same_bits),
      cmocka_unit_test(test_optim_grad_norm_same_bits_for_any_sharding),
      cmocka_unit_test(test_optim_grad_norm_of_nan_or_inf_is_not_finite),
      cmocka_unit_test(test_optim_clip_scales_to_max_grad_norm),
      cmocka_unit_test(test_optim_clip_divides_by_predictions_of_all_ranks),
      cmocka_unit_test(test_optim_skipped_update_changes_nothing),
      cmocka_unit_test(test_optim_novograd_norms_each_weight),
      cmocka_unit_test(test_novograd_first_update_starts_the_second_moment),
      cmocka_unit_test(test_optim_every_kind_minimises),
      cmocka_unit_test(test_optim_steps_equal_pytorch),
      cmocka_unit_test(test_optim_kind_has_name_and_its_moments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
