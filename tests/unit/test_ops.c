/* Every operation of the backends. Compare: each instruction set this machine has,
 * and bf16 where it has it, against the reference. Gradient: the reference's way
 * back against finite differences. Support: a backend without an operation fails.
 * Speed: `test_ops speed` prints time and rate of each and checks nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/progress.h"
#include "ops_cases.h"

static Case twin(const Case *c) {
  Case t = *c;
  for (int i = 0; i < 12; i++) {
    if (c->a[i]) t.a[i] = copy(c->a[i], c->n[i]);
  }
  return t;
}

static void compare_with_reference(const Backend *fast) {
  Backend reference;
  assert_int_equal(fast->reserve(fast, 128, 128), ERR_OK);
  backend_reference(&reference);
  for (size_t o = 0; o < OPS; o++) {
    for (int which = 0; which < (fast->bf16 ? 3 : 4);
         which++) { /* one bf16 product alone may cancel */
      Case a = shape(which);
      ops[o].make(&a);
      Case b = twin(&a);
      ops[o].run(fast, &a);
      ops[o].run(&reference, &b);
      double limit = ops[o].product && fast->bf16 ? 0.01 : ops[o].units * 0x1p-24;
      double e = off_by(&a, &b);
      if (!(e <= limit))
        fail_msg("%s, %s, shape %d: off by %g, %g allowed", fast->about, ops[o].name, which, e,
                 limit);
      drop_arrays(&a);
      drop_arrays(&b);
    }
  }
}

static void test_every_instruction_set(void **state) {
  (void)state;
  const char *names[] = {"avx512", "avx2", "sse2", "neon"};
  int tested = 0;
  for (int i = 0; i < 4; i++) {
    Backend fast;
    setenv("TRIREME_ISA", names[i], 1);
    if (backend_cpu(&fast, 2, false) == ERR_OK) compare_with_reference(&fast), tested++;
  }
  unsetenv("TRIREME_ISA");
  assert_true(tested > 0);
}

static void test_bf16(void **state) {
  (void)state;
  Backend fast;
  if (backend_cpu(&fast, 2, true)) {
    printf("skip: %s\n", err_message());
    skip();
  }
  compare_with_reference(&fast);
}

/* The number of threads changes no bit. */
static void test_threads_change_nothing(void **state) {
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
    for (int i = 0; i < 12; i++) {
      if (a.n[i]) assert_memory_equal(a.a[i], b.a[i], a.n[i] * sizeof(float));
    }
    assert_memory_equal(a.loss, b.loss, sizeof a.loss);
    drop_arrays(&a);
    drop_arrays(&b);
  }
}

/* A row's result does not depend on the rows beside it. */
static void test_rows_are_independent(void **state) {
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
    mem_free(x), mem_free(w), mem_free(y), mem_free(one);
  }
}

/* Sum of outputs times fixed random weights, as a function of the inputs. */
static double probe(const Backend *b, void (*run)(const Backend *, Case *), const Case *c,
                    const int *output, const float *const *weights) {
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

/* Nudges some elements of an input both ways and compares with its gradient. */
static void check_slope(const char *name, const Backend *b,
                        void (*run)(const Backend *, Case *), Case *c, const int *output,
                        const float *const *weights, int input, const float *gradient) {
  const float h = 0.02f;
  double error = 0, size = 0;
  for (int trial = 0; trial < 40; trial++) {
    size_t k = rng_below(&rng, c->n[input]);
    float kept = c->a[input][k];
    c->a[input][k] = kept + h;
    double up = probe(b, run, c, output, weights);
    c->a[input][k] = kept - h;
    double down = probe(b, run, c, output, weights);
    c->a[input][k] = kept;
    double slope = (up - down) / (2 * (double)h);
    error += (slope - gradient[k]) * (slope - gradient[k]);
    size += slope * slope;
  }
  if (!(sqrt(error / (size + 1e-12)) < 0.01))
    fail_msg("%s: gradient of input %d is off by %g", name, input, sqrt(error / size));
}

static void test_reference_gradients(void **state) {
  (void)state;
  Backend b;
  backend_reference(&b);
  Case c = shape(1);
  c.act = ACT_GELU; /* smooth, so that differences mean something */
  {                 /* linear: y = x w + bias */
    make_linear(&c);
    const float *weight[] = {c.a[3]};
    Case g = twin(&c);
    memset(g.a[0], 0, g.n[0] * 4), memset(g.a[1], 0, g.n[1] * 4), memset(g.a[2], 0, g.n[2] * 4);
    b.linear_dx(&b, g.a[0], c.a[3], c.a[1], c.rows, c.in, c.out, false);
    b.linear_dw(&b, g.a[1], g.a[2], c.a[3], c.a[0], c.rows, c.in, c.out);
    for (int i = 0; i < 3; i++)
      check_slope("linear", &b, do_linear, &c, (int[]){3, -1}, weight, i, g.a[i]);
    drop_arrays(&g), drop_arrays(&c);
  }
  c = shape(1);
  { /* add_norm: sum and y both weigh in */
    make_norm(&c);
    float *dy = draw(c.n[5]), *through = draw(c.n[4]);
    const float *weight[] = {through, dy};
    Case g = twin(&c);
    AddNorm n = norm_of(&c);
    do_add_norm(&b, &g);
    memset(g.a[2], 0, g.n[2] * 4), memset(g.a[3], 0, g.n[3] * 4);
    b.add_norm_back(&b, g.a[7], g.a[8], g.a[2], g.a[3], dy, through, g.a[4], g.a[6], c.a[2],
                    &n);
    const float *gradient[] = {g.a[7], g.a[8], g.a[2], g.a[3]};
    for (int i = 0; i < 4; i++)
      check_slope("add_norm", &b, do_add_norm, &c, (int[]){4, 5, -1}, weight, i, gradient[i]);
    mem_free(dy), mem_free(through), drop_arrays(&g), drop_arrays(&c);
  }
  for (int causal = 0; causal < 2; causal++) {
    c = shape(causal);
    make_attend_back(&c);
    const float *weight[] = {c.a[6]};
    Case g = twin(&c);
    memset(g.a[4], 0, g.n[4] * 4); /* between the rows there are gaps */
    do_attend_back(&b, &g);
    check_slope("attend q", &b, do_attend, &c, (int[]){2, -1}, weight, 0, g.a[4]);
    check_slope("attend k, v", &b, do_attend, &c, (int[]){2, -1}, weight, 1, g.a[5]);
    drop_arrays(&g), drop_arrays(&c);
  }
  for (int act = ACT_GELU; act <= ACT_SILU; act++) {
    c = shape(1);
    c.act = (Activation)act;
    make_flat(&c);
    const float *weight[] = {c.a[1]};
    float *dy = copy(c.a[1], c.n[1]), *dx = draw(c.n[0]);
    b.activate_back(&b, dx, dy, c.a[0], c.n[0], c.act, c.drop);
    const float *fixed[] = {dy};
    (void)weight;
    check_slope("activate", &b, do_activate, &c, (int[]){1, -1}, fixed, 0, dx);
    mem_free(dy), mem_free(dx), drop_arrays(&c);
  }
}

/* loss: the gradient it leaves is that of the sum it adds. */
static void test_loss_gradient(void **state) {
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
  drop_arrays(&g), drop_arrays(&c);
}

static void test_every_operation_is_there(void **state) {
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

static int print_speed(void) {
  Backend b;
  if (backend_cpu(&b, 0, false) || b.reserve(&b, 128, 64)) return 1;
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
    c.off_q = c.off_k = off, c.id = id, c.pos = pos, c.drop = (Dropout){1, 1, 0.1f};
    ops[o].make(&c);
    double best = 1e9, bytes = 0;
    for (int i = 0; i < 12; i++) bytes += 4.0 * (double)c.n[i];
    for (int i = 0; i < 10; i++) {
      double start = progress_clock();
      ops[o].run(&b, &c);
      double took = progress_clock() - start;
      if (took < best) best = took;
    }
    printf("%-14s %8.3f ms", ops[o].name, 1e3 * best);
    if (ops[o].product)
      printf(" %8.1f GFLOP/s\n", 2e-9 * (double)(c.rows * c.in * c.out) / best);
    else
      printf(" %8.1f GB/s\n", 1e-9 * bytes / best);
    drop_arrays(&c);
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "speed") == 0) return print_speed();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_instruction_set),
      cmocka_unit_test(test_bf16),
      cmocka_unit_test(test_threads_change_nothing),
      cmocka_unit_test(test_rows_are_independent),
      cmocka_unit_test(test_reference_gradients),
      cmocka_unit_test(test_loss_gradient),
      cmocka_unit_test(test_every_operation_is_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
