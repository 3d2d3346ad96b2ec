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

#include "backend/backend.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"

static Rng rng = {.key = 7};

static float *draw(size_t n) {
  float *x;
  assert_int_equal(mem_alloc_aligned(&x, (n + 16) * sizeof *x), ERR_OK);
  for (size_t i = 0; i < n; i++) {
    double u = ((double)(rng_next(&rng) >> 11) + 1) * 0x1p-53,
           v = (double)(rng_next(&rng) >> 11) * 0x1p-53;
    x[i] = (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
  }
  return x;
}

static float *copy(const float *x, size_t n) {
  float *y;
  assert_int_equal(mem_alloc_aligned(&y, (n + 16) * sizeof *y), ERR_OK);
  memcpy(y, x, n * sizeof *y);
  return y;
}

/* An operation made into f(inputs) -> outputs on arrays of its own. */
typedef struct {
  float *a[12]; /* inputs and outputs */
  size_t n[12];
  int32_t *id, *pos, *off_q, *off_k;
  size_t rows, in, out, d, heads, sentences;
  Dropout drop;
  Activation act;
  bool causal;
  double loss[3];
} Case;

static void set(Case *c, int i, size_t n) {
  c->a[i] = draw(n);
  c->n[i] = n;
}

static Case twin(const Case *c) {
  Case t = *c;
  for (int i = 0; i < 12; i++) {
    if (c->a[i]) t.a[i] = copy(c->a[i], c->n[i]);
  }
  return t;
}

static void drop_arrays(Case *c) {
  for (int i = 0; i < 12; i++) mem_free(c->a[i]);
}

static Attention attention_of(const Case *c) {
  size_t width = c->heads * c->d;
  return (Attention){.sentences = c->sentences,
                     .heads = c->heads,
                     .d = c->d,
                     .q_off = c->off_q,
                     .k_off = c->off_k,
                     .q_ld = width + 3,
                     .kv_ld = 2 * width,
                     .o_ld = width,
                     .causal = c->causal,
                     .drop = c->drop};
}

static AddNorm norm_of(const Case *c) {
  return (AddNorm){.rows = c->rows, .d = c->d, .epsilon = 1e-6f, .drop = c->drop};
}

static void do_linear(const Backend *b, Case *c) {
  b->linear(b, c->a[3], c->a[0], c->a[1], c->a[2], c->rows, c->in, c->out);
}
static void do_linear_dx(const Backend *b, Case *c) {
  b->linear_dx(b, c->a[0], c->a[3], c->a[1], c->rows, c->in, c->out, true);
}
static void do_linear_dw(const Backend *b, Case *c) {
  b->linear_dw(b, c->a[1], c->a[2], c->a[3], c->a[0], c->rows, c->in, c->out);
}
static void do_embed(const Backend *b, Case *c) {
  b->embed(b, c->a[2], c->a[0], c->a[1], c->id, c->pos, c->rows, c->d, 3, c->drop);
}
static void do_embed_back(const Backend *b, Case *c) {
  b->embed_back(b, c->a[0], c->a[1], c->a[2], c->id, c->pos, c->rows, c->d, 3, c->drop);
}
static void do_add_norm(const Backend *b, Case *c) {
  AddNorm n = norm_of(c);
  b->add_norm(b, c->a[4], c->a[5], c->a[6], c->a[0], c->a[1], c->a[2], c->a[3], &n);
}
/* The way back wants what the way forward left: the reference makes it. */
static void do_add_norm_back(const Backend *b, Case *c) {
  AddNorm n = norm_of(c);
  b->add_norm_back(b, c->a[7], c->a[8], c->a[2], c->a[3], c->a[9], c->a[10], c->a[4], c->a[6],
                   c->a[11], &n);
}
static void do_attend(const Backend *b, Case *c) {
  Attention a = attention_of(c);
  size_t width = c->heads * c->d;
  b->attend(b, c->a[2], c->a[3], c->a[0], c->a[1], c->a[1] + width, &a);
}
static void do_attend_back(const Backend *b, Case *c) {
  Attention a = attention_of(c);
  size_t width = c->heads * c->d;
  b->attend_back(b, c->a[4], c->a[5], c->a[5] + width, c->a[6], c->a[2], c->a[3], c->a[0],
                 c->a[1], c->a[1] + width, &a);
}
static void do_activate(const Backend *b, Case *c) {
  b->activate(b, c->a[1], c->a[0], c->n[0], c->act, c->drop);
}
static void do_activate_back(const Backend *b, Case *c) {
  b->activate_back(b, c->a[2], c->a[1], c->a[0], c->n[0], c->act, c->drop);
}
static void do_loss(const Backend *b, Case *c) {
  b->loss(b, c->a[0], c->loss, c->id, c->rows, c->out, 0.1f, 0.5f);
}
static void do_norm2(const Backend *b, Case *c) {
  static double sums[256]; /* 2048 x 512 elements at most */
  b->norm2(b, sums, c->a[0], c->n[0]);
  for (size_t i = 0; i * NORM_UNIT < c->n[0]; i++) c->a[1][i] = (float)sums[i];
}
static void do_add(const Backend *b, Case *c) {
  b->add(b, c->a[0], c->a[1], 0.3f, c->n[0]);
}
static void run_adam(const Backend *b, Case *c, bool coupled) {
  AdamStep s = {.lr = 1e-3f,
                .beta1 = 0.9f,
                .beta2 = 0.98f,
                .epsilon = 1e-9f,
                .decay = 0.01f,
                .correction1 = 0.1f,
                .correction2 = 0.02f,
                .scale = 0.5f,
                .coupled = coupled};
  for (size_t i = 0; i < c->n[2]; i++) c->a[2][i] = fabsf(c->a[2][i]);
  b->adam(b, c->a[0], c->a[1], c->a[2], c->a[3], c->n[0], &s);
}
static void do_adam(const Backend *b, Case *c) {
  run_adam(b, c, false);
}
static void do_adam_coupled(const Backend *b, Case *c) {
  run_adam(b, c, true);
}
static void do_momentum(const Backend *b, Case *c) {
  MomentumStep s = {.lr = 0.1f, .beta = 0.9f, .decay = 0.01f, .scale = 0.5f};
  b->momentum(b, c->a[0], c->a[1], c->a[2], c->n[0], &s);
}
static void do_ema(const Backend *b, Case *c) {
  b->ema(b, c->a[0], c->a[1], 0.7, c->n[0]);
}

static void make_linear(Case *c) {
  set(c, 0, c->rows * c->in), set(c, 1, c->out * c->in), set(c, 2, c->out),
      set(c, 3, c->rows * c->out);
}
static void make_embed(Case *c) {
  set(c, 0, 40 * c->d), set(c, 1, 64 * c->d), set(c, 2, c->rows * c->d);
}
static void make_norm(Case *c) {
  for (int i = 0; i < 12; i++)
    set(c, i, i == 2 || i == 3 || i == 11 ? c->d : i == 6 ? 2 * c->rows : c->rows * c->d);
}
static void make_norm_back(Case *c) {
  Backend reference;
  backend_reference(&reference);
  make_norm(c);
  do_add_norm(&reference, c);
}
static void make_attend(Case *c) {
  size_t width = c->heads * c->d, rows = (size_t)c->off_q[c->sentences],
         keys = (size_t)c->off_k[c->sentences];
  set(c, 0, rows * (width + 3)), set(c, 1, keys * 2 * width), set(c, 2, rows * width),
      set(c, 3, rows * c->heads);
  set(c, 4, rows * (width + 3)), set(c, 5, keys * 2 * width), set(c, 6, rows * width);
}
static void make_attend_back(Case *c) {
  Backend reference;
  backend_reference(&reference);
  make_attend(c);
  do_attend(&reference, c);
}
static void make_flat(Case *c) {
  for (int i = 0; i < 4; i++) set(c, i, c->rows * c->d);
}
static void make_loss(Case *c) {
  if (c->out < 2) c->out = 5; /* one class has no loss */
  set(c, 0, c->rows * c->out);
}

/* Tolerances in units of single precision's rounding, 6e-8, of norms. */
static const struct {
  const char *name;
  void (*make)(Case *);
  void (*run)(const Backend *, Case *);
  double units;
  bool product; /* bf16 rounds its operands */
} ops[] = {
    {"linear", make_linear, do_linear, 20, true},
    {"linear_dx", make_linear, do_linear_dx, 20, true},
    {"linear_dw", make_linear, do_linear_dw, 20, true},
    {"embed", make_embed, do_embed, 4, false},
    {"embed_back", make_embed, do_embed_back, 8, false},
    {"add_norm", make_norm, do_add_norm, 16, false},
    {"add_norm_back", make_norm_back, do_add_norm_back, 32, false},
    {"attend", make_attend, do_attend, 32, false},
    {"attend_back", make_attend_back, do_attend_back, 64, false},
    {"activate", make_flat, do_activate, 16, false},
    {"activate_back", make_flat, do_activate_back, 16, false},
    {"loss", make_loss, do_loss, 32, false},
    {"norm2", make_flat, do_norm2, 4, false},
    {"add", make_flat, do_add, 4, false},
    {"adam", make_flat, do_adam, 8, false},
    {"adam_coupled", make_flat, do_adam_coupled, 8, false},
    {"momentum", make_flat, do_momentum, 8, false},
    {"ema", make_flat, do_ema, 8, false},
};
#define OPS (sizeof ops / sizeof *ops)

static int32_t ids[512], positions[512];
static int32_t off_q[] = {0, 7, 8, 41, 77, 177}, off_k[] = {0, 9, 12, 45, 70, 171};

static Case shape(int which) {
  static const size_t table[][5] = {
      {77, 96, 130, 64, 4}, {33, 17, 7, 24, 3}, {128, 64, 256, 128, 2}, {1, 1, 1, 5, 1}};
  Case c = {.rows = table[which][0],
            .in = table[which][1],
            .out = table[which][2],
            .d = table[which][3],
            .heads = table[which][4]};
  c.id = ids, c.pos = positions, c.off_q = off_q, c.off_k = which % 2 ? off_q : off_k;
  c.causal = which % 2, c.sentences = which == 3 ? 2 : 5;
  c.act = (Activation)(which % 3);
  c.drop = (Dropout){0x123456789abcdefu, 3, which == 2 ? 0 : 0.1f};
  for (size_t i = 0; i < 512; i++) {
    ids[i] = (int32_t)rng_below(&rng, c.out < 40 ? c.out : 40);
    positions[i] = (int32_t)(i % 64);
  }
  return c;
}

static double off_by(const Case *a, const Case *b) {
  double worst = 0;
  for (int i = 0; i < 12; i++) {
    double error = 0, size = 0;
    for (size_t k = 0; k < a->n[i]; k++) {
      double d = (double)a->a[i][k] - b->a[i][k];
      error += d * d;
      size += (double)b->a[i][k] * b->a[i][k];
    }
    error = sqrt(error / (size + 1e-12));
    if (!(error <= worst)) worst = error; /* catches NaN */
  }
  for (int i = 0; i < 3; i++) {
    double error = fabs(a->loss[i] - b->loss[i]) / (fabs(b->loss[i]) + 1e-6);
    if (b->loss[i] != 0 && !(error <= worst)) worst = error;
  }
  return worst;
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
