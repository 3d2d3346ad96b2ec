/* Compares every operation of the CUDA backend with the reference in fp32, bf16 and fp16, at
 * shapes that are and are not multiples of 8; then a whole Transformer with the CPU. Returns 77
 * if there is no GPU. Needs the plug-in in TRIREME_PLUGIN_PATH. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../unit/ops_cases.h"
#include "gpu.h"
#include "model/transformer.h"

static const char *const precisions[] = {"fp32", "bf16", "fp16"};
static const double rounding[] = {0x1p-24, 0x1p-9, 0x1p-12}; /* unit roundoff of each type */

static float widen(Type type, uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  if (type == TYPE_F16) {
    int exponent = half >> 10 & 31;
    value = ldexpf((float)(exponent ? half % 1024 + 1024 : half % 1024),
                   exponent ? exponent - 25 : -24);
    if (exponent == 31) value = half % 1024 ? NAN : INFINITY;
    return half >> 15 ? -value : value;
  }
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Copy floats to and from an array on the GPU. low: the array has the backend's type. */
static void *upload(const Backend *b, const float *x, size_t n, bool low) {
  float *full;
  void *there;
  ok(b->alloc(b, &full, n * sizeof *full));
  b->put(b, full, x, n * sizeof *full);
  if (!low || b->type == TYPE_F32) return full;
  ok(b->alloc(b, &there, n * type_size(b->type)));
  b->lower(b, there, full, n);
  b->release(b, full);
  return there;
}

static void download(const Backend *b, float *x, const void *there, size_t n, bool low) {
  if (!low || b->type == TYPE_F32) {
    ok(b->get(b, x, there, n * sizeof *x));
    return;
  }
  uint16_t *half;
  ok(mem_alloc(&half, n, sizeof *half));
  ok(b->get(b, half, there, n * sizeof *half));
  for (size_t i = 0; i < n; i++) x[i] = widen(b->type, half[i]);
  mem_free(half);
}

static void *upload_ints(const Backend *b, const int32_t *x, size_t n) {
  void *there;
  ok(b->alloc(b, &there, n * sizeof *x));
  b->put(b, there, x, n * sizeof *x);
  return there;
}

static const uint64_t *upload_key(const Backend *b, const uint64_t *key) {
  uint64_t *there;
  ok(b->alloc(b, &there, sizeof *there));
  b->put(b, there, key, sizeof *key);
  return there;
}

/* Copies a test case to the GPU. Also rounds the host's arrays to the type, so that both sides
 * start with the same numbers. */
static Case upload_case(const Backend *b, Case *c, unsigned low) {
  Case g = *c;
  for (int i = 0; i < ARRAYS; i++) {
    if (!c->a[i]) continue;
    g.a[i] = upload(b, c->a[i], c->n[i], low >> i & 1);
    download(b, c->a[i], g.a[i], c->n[i], low >> i & 1);
  }
  g.id = upload_ints(b, c->id, 512);
  g.pos = upload_ints(b, c->pos, 512);
  if (c->index) g.index = upload_ints(b, c->index, MAX_ROWS);
  g.off_q = upload_ints(b, c->off_q, 6);
  g.off_k = upload_ints(b, c->off_k, 6);
  g.drop.key = upload_key(b, c->drop.key);
  ok(b->alloc(b, &g.sums, 3 * sizeof *g.sums));
  ok(b->alloc(b, &g.mask, MASK_BYTES));
  return g;
}

/* Copies a test case back to the host. */
static Case download_case(const Backend *b, const Case *g, unsigned low) {
  Case c = *g;
  for (int i = 0; i < ARRAYS; i++) {
    if (!g->a[i]) continue;
    ok(mem_alloc_aligned(&c.a[i], (g->n[i] + 16) * sizeof(float)));
    download(b, c.a[i], g->a[i], g->n[i], low >> i & 1);
  }
  ok(b->get(b, c.loss, g->sums, sizeof c.loss));
  return c;
}

static void drop_case(const Backend *b, Case *g) {
  for (int i = 0; i < ARRAYS; i++) b->release(b, g->a[i]);
  void *rest[] = {g->id,    g->pos,  g->index, g->off_q,
                  g->off_k, g->sums, g->mask,  (void *)(uintptr_t)g->drop.key};
  for (int i = 0; i < 8; i++) b->release(b, rest[i]);
}

/* Returns the tolerance of an operation. In bf16 and fp16 each stored value has one rounding
 * error; attention also rounds its probabilities, twice in backward. */
static double limit_of(const Backend *b, size_t op) {
  double units = ops[op].units * 4; /* other orders of additions, faster exponentials */
  if (b->type != TYPE_F32) units = strncmp(ops[op].name, "attend", 6) == 0 ? 6 : 2;
  return units * rounding[b->type];
}

static void compare_one(const Backend *b, const Backend *reference, size_t op, int which,
                        size_t gap) {
  Case c = shape(which);
  c.gap = gap;
  ops[op].make(&c);
  Case first = upload_case(b, &c, ops[op].low);
  Case second = upload_case(b, &c, ops[op].low);
  ops[op].run(b, &first);
  ops[op].run(b, &second);
  Case got = download_case(b, &first, ops[op].low),
       again = download_case(b, &second, ops[op].low);
  ops[op].run(reference, &c);
  double e = off_by(&got, &c), most = limit_of(b, op);
  if (!(e <= most))
    fail_msg("%s: %s, shape %d, gap %zu: off by %g, %g allowed", b->about, ops[op].name, which,
             gap, e, most);
  for (int i = 0; i < ARRAYS; i++) {
    if (got.a[i] && memcmp(got.a[i], again.a[i], got.n[i] * sizeof(float)) != 0)
      fail_msg("%s: %s, shape %d: array %d differs from run to run", b->about, ops[op].name,
               which, i);
  }
  drop_arrays(&c);
  drop_arrays(&got);
  drop_arrays(&again);
  drop_case(b, &first);
  drop_case(b, &second);
}

static void test_ops_match_reference_in_all_types(void **state) {
  (void)state;
  Backend reference;
  backend_reference(&reference);
  for (int p = 0; p < 3; p++) {
    Backend b;
    open_gpu(&b, precisions[p]);
    ok(b.reserve(&b, 128, 128));
    for (size_t op = 0; op < OPS; op++) {
      /* Skips shape 3 in bf16 and fp16, where a single product may cancel to 0. */
      for (int which = 0; which < (b.type == TYPE_F32 ? 4 : 3); which++) {
        compare_one(&b, &reference, op, which, 3);
        if (strncmp(ops[op].name, "attend", 6) == 0)
          /* Uses the fast implementation of attention. */
          compare_one(&b, &reference, op, which, 8);
      }
    }
    backend_close(&b);
  }
}

/* tf32 keeps ten fraction bits of the operands. */
static void test_linear_tf32_rounds_operands(void **state) {
  (void)state;
  Backend b, reference;
  backend_reference(&reference);
  open_gpu(&b, "tf32");
  for (size_t op = 0; op < 3; op++) {
    Case c = shape(2);
    ops[op].make(&c);
    Case g = upload_case(&b, &c, ops[op].low);
    ops[op].run(&b, &g);
    Case got = download_case(&b, &g, ops[op].low);
    ops[op].run(&reference, &c);
    assert_true(off_by(&got, &c) <= 0x1p-10);
    drop_arrays(&c);
    drop_arrays(&got);
    drop_case(&b, &g);
  }
  backend_close(&b);
}

/* Rounds to e4m3, to nearest even: three fraction bits, down to 2^-9. */
static float to_e4m3(float x) {
  int exponent;
  frexpf(x, &exponent);
  if (exponent < -5) exponent = -5;
  return ldexpf(rintf(ldexpf(x, 4 - exponent)), exponent - 4);
}

/* Rounds to e5m2, to nearest even: two fraction bits, down to 2^-16. */
static float to_e5m2(float x) {
  int exponent;
  frexpf(x, &exponent);
  if (exponent < -13) exponent = -13;
  return ldexpf(rintf(ldexpf(x, 3 - exponent)), exponent - 3);
}

/* Rounds each row of x to fp8 with the scale of the row. Rows are `step` elements apart,
 * elements of a row `apart`. */
static void round_rows(float *x, size_t rows, size_t n, size_t step, size_t apart) {
  for (size_t r = 0; r < rows; r++) {
    float most = 0, *row = x + r * step;
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(row[i * apart]));
    float by = most > 0 ? 448 / most : 0;
    for (size_t i = 0; i < n; i++) row[i * apart] = to_e4m3(row[i * apart] * by) * (most / 448);
  }
}

/* Rounds x to fp8 with one scale. */
static void round_tensor(float *x, size_t n, bool is_e5m2) {
  float most = 0, limit = is_e5m2 ? 57344 : 448;
  for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
  float by = limit / most;
  for (size_t i = 0; i < n; i++)
    x[i] = (is_e5m2 ? to_e5m2(x[i] * by) : to_e4m3(x[i] * by)) * (most / limit);
}

static double apart(const float *a, const float *b, size_t n) {
  double error = 0, size = 0;
  for (size_t i = 0; i < n; i++) {
    error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    size += (double)b[i] * b[i];
  }
  return sqrt(error / (size + 1e-30));
}

/* Fills an array with random numbers of draw(), repeated, because draw() is slow. */
static float *draw_many(size_t n) {
  size_t few = 65521;
  float *some = draw(few), *x;
  ok(mem_alloc_aligned(&x, (n + 16) * sizeof *x));
  for (size_t i = 0; i < n; i++) x[i] = some[(i * 7 + i / few * 131) % few];
  mem_free(some);
  return x;
}

/* An fp8 GEMM must agree with a GEMM of operands rounded to fp8, and differ from one in
 * bf16. per_tensor: one scale per tensor instead of one per row. */
static void check_fp8(const Backend *b, const Backend *cpu, size_t rows, size_t in, size_t out,
                      bool back, bool per_tensor) {
  size_t n = rows * (back ? out : in), m = in * out, k = rows * (back ? in : out);
  float *x = draw_many(n), *w = draw_many(m), *y = draw_many(k), *got = copy(y, k);
  float *bias = draw(out);
  for (size_t i = 0; i < (back ? out : in); i++)
    x[i] = 0; /* scale of the first row; the others differ */
  for (size_t i = 0; i < n; i++) x[i] *= ldexpf(1, (int)(i / (back ? out : in) % 40) - 20);
  void *x_at = upload(b, x, n, true), *w_at = upload(b, w, m, true),
       *y_at = upload(b, y, k, true);
  void *bias_at = upload(b, bias, out, true);
  download(b, x, x_at, n, true);
  download(b, w, w_at, m, true);
  download(b, y, y_at, k, true);
  download(b, bias, bias_at, out, true);
  float *exact = copy(y, k);
  for (int rounded = 0; rounded < 2; rounded++) {
    float *to = rounded ? y : exact;
    if (rounded && per_tensor) {
      round_tensor(x, n, back);
      round_tensor(w, m, false);
    } else if (rounded && back) {
      round_rows(x, rows, out, out, 1);
      round_rows(w, in, out, 1, in);
    } else if (rounded) {
      round_rows(x, rows, in, in, 1);
      round_rows(w, out, in, in, 1);
    }
    if (back)
      cpu->linear_dx(cpu, to, x, w, rows, in, out, true);
    else
      cpu->linear(cpu, to, x, w, bias, rows, in, out);
  }
  if (back)
    b->linear_dx(b, y_at, x_at, w_at, rows, in, out, true);
  else
    b->linear(b, y_at, x_at, w_at, bias_at, rows, in, out);
  download(b, got, y_at, k, true);
  size_t wide = back ? in : out;
  double off = 0, better = 0; /* compared row by row, because their magnitudes differ */
  for (size_t r = 0; r < rows; r++) {
    off = fmax(off, apart(got + r * wide, y + r * wide, wide));
    if (r % 40 == 39) better = fmax(better, apart(got + r * wide, exact + r * wide, wide));
  }
  double most = per_tensor && back ? 0.12 : 0.06; /* e5m2 has one bit less than e4m3 */
  if (!(off < 0.006 && better > 0.02 && better < most))
    fail_msg("%zu rows, %zu in, %zu out%s%s: off by %g, beside bf16 by %g", rows, in, out,
             back ? ", back" : "", per_tensor ? ", per tensor" : "", off, better);
  b->release(b, x_at), b->release(b, w_at), b->release(b, y_at), b->release(b, bias_at);
  mem_free(x);
  mem_free(w);
  mem_free(y);
  mem_free(got);
  mem_free(bias);
  mem_free(exact);
}

/* With a scale per row, a NaN or an infinity in x makes only its own row of y NaN. */
static void check_nan_row(const Backend *b) {
  size_t rows = FP8_MIN_TOKENS, in = 1024, out = 1024;
  float *x = draw_many(rows * in), *w = draw(in * out), *y = draw_many(rows * out);
  x[3 * in + 7] = NAN;
  x[5 * in] = INFINITY;
  x[6 * in + 9] = -INFINITY;
  void *x_at = upload(b, x, rows * in, true), *w_at = upload(b, w, in * out, true);
  void *y_at = upload(b, y, rows * out, true);
  b->linear(b, y_at, x_at, w_at, NULL, rows, in, out);
  download(b, y, y_at, rows * out, true);
  for (size_t i = 0; i < rows * out; i++) {
    size_t r = i / out;
    assert_int_equal(isnan(y[i]) != 0, r == 3 || r == 5 || r == 6);
  }
  b->release(b, x_at), b->release(b, w_at), b->release(b, y_at);
  mem_free(x);
  mem_free(w);
  mem_free(y);
}

enum { AFTER_NORM, AFTER_RELU, AFTER_RELU_BACKWARD };

/* What happens between the operation that writes x and the GEMM that reads it. */
enum {
  ANOTHER_OPERATION = 1, /* so that the GEMM converts x itself */
  OVERWRITTEN = 2,       /* x is replaced by other numbers */
  OTHER_OPERAND = 4,     /* the GEMM reads those other numbers from their own array */
  WEIGHT_GRADIENT = 8,   /* as in a training step */
  GRADIENT_IN_X = 16,    /* a weight gradient is written to the memory of x */
  COPY = 32,             /* as in a training step with post-norm */
};

/* spare: memory that nothing reads any more; dw: memory of a weight gradient (d, d). */
static void come_between(const Backend *b, int between, void *x, const void *other, void *spare,
                         void *dw, size_t rows, size_t d) {
  if (between & OVERWRITTEN) b->copy(b, x, other, rows * d * 2);
  if (between & WEIGHT_GRADIENT) b->linear_dw(b, dw, NULL, other, other, rows, d, d, false);
  if (between & GRADIENT_IN_X) b->linear_dw(b, x, NULL, other, other, rows, d, d, false);
  if (between & COPY) b->copy(b, dw, other, d * d * 2);
  if (between & ANOTHER_OPERATION) b->zero(b, spare, sizeof(float));
}

/* Returns the product of x, the result of add_norm, of ReLU or of ReLU's backward, in fp8. The
 * operands are the same in every call. */
static float *multiply_after(const Backend *b, int after, size_t rows, size_t d, int between) {
  size_t out = 1056, n = rows * d;
  rng = (Rng){.key = 11};
  float *from = draw_many(n), *w = draw_many(d * out), *vector = draw_many(d), *y;
  void *x_at = upload(b, from, n, true), *branch_at = upload(b, from, n, true);
  void *w_at = upload(b, w, d * out, true), *bias_at = upload(b, vector, d, true);
  void *gain_at = upload(b, vector, d, false), *y_at, *stat_at, *mask_at, *sums_at, *other_at,
       *dw_at;
  void *sum_at = upload(b, from, n, true);
  ok(b->alloc(b, &y_at, rows * out * 2));
  ok(b->alloc(b, &stat_at, rows * 2 * sizeof(float)));
  ok(b->alloc(b, &mask_at, n / 8));
  ok(b->alloc(b, &sums_at, d * sizeof(float)));
  ok(b->alloc(b, &dw_at, d * d * sizeof(float)));
  for (size_t i = 0; i < n; i++) from[i] *= -0.5f;
  other_at = upload(b, from, n, true);
  AddNorm norm = {.rows = rows, .d = d, .epsilon = 1e-5f};
  if (after == AFTER_NORM)
    b->add_norm(b, sum_at, x_at, stat_at, sum_at, branch_at, gain_at, gain_at, &norm);
  else
    b->activate(b, x_at, mask_at, x_at, bias_at, rows, d, ACT_RELU, (Dropout){0});
  if (after == AFTER_RELU_BACKWARD)
    b->activate_backward(b, x_at, sums_at, x_at, mask_at, rows, d, ACT_RELU, (Dropout){0},
                         false);
  come_between(b, between, x_at, other_at, stat_at, dw_at, rows, d);
  const void *operand = between & OTHER_OPERAND ? other_at : x_at;
  if (after == AFTER_RELU_BACKWARD)
    b->linear_dx(b, y_at, operand, w_at, rows, out, d, false);
  else
    b->linear(b, y_at, operand, w_at, NULL, rows, d, out);
  ok(mem_alloc(&y, rows * out, sizeof *y));
  download(b, y, y_at, rows * out, true);
  void *all[] = {x_at,    branch_at, w_at,    bias_at,  gain_at, y_at,
                 stat_at, mask_at,   sums_at, other_at, sum_at,  dw_at};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) b->release(b, all[i]);
  mem_free(from);
  mem_free(w);
  mem_free(vector);
  return y;
}

static size_t count_nonzero(const float *x, size_t n) {
  size_t count = 0;
  for (size_t i = 0; i < n; i++) count += x[i] != 0;
  return count;
}

/* An operand that its producer converts to fp8 gives the bits of one that the GEMM converts, and
 * an operand that was overwritten since is converted again. The second round repeats the first in
 * memory that no longer grows between the operation and the GEMM. Producers must not convert for
 * one scale per tensor. */
static void check_producers(const char *scales) {
  Backend b;
  static const size_t d[] = {1024, 2048, 2048};
  size_t rows = 4099, n = rows * 1056;
  setenv("TRIREME_FP8_SCALES", scales, 1);
  Err err = backend_open(&b, &(BackendSpec){"cuda", "fp8", 1});
  unsetenv("TRIREME_FP8_SCALES");
  if (err) {
    printf("cannot run with one scale per %s: %s\n", scales, err_message());
    return;
  }
  static const int pairs[][2] = {{0, ANOTHER_OPERATION},
                                 {OVERWRITTEN, OTHER_OPERAND},
                                 {WEIGHT_GRADIENT, WEIGHT_GRADIENT | ANOTHER_OPERATION},
                                 {COPY, COPY | ANOTHER_OPERATION},
                                 {GRADIENT_IN_X, GRADIENT_IN_X | ANOTHER_OPERATION}};
  bool per_row = strcmp(scales, "row") == 0;
  size_t kinds = per_row ? sizeof pairs / sizeof *pairs : 2;
  for (int i = 0; i < (per_row ? 6 : 3); i++) {
    int after = i % 3; /* two rounds */
    for (size_t k = 0; k < kinds; k++) {
      float *got = multiply_after(&b, after, rows, d[after], pairs[k][0]);
      float *want = multiply_after(&b, after, rows, d[after], pairs[k][1]);
      assert_true(count_nonzero(want, n) > n / 2);
      assert_memory_equal(got, want, n * sizeof *got);
      mem_free(got);
      mem_free(want);
    }
  }
  backend_close(&b);
}

static void test_linear_fp8_operand_of_producer_same_bits(void **state) {
  (void)state;
  check_producers("row");
  check_producers("tensor");
}

/* Another stream has the scales of the first. */
static void check_stream(const Backend *b) {
  size_t rows = FP8_MIN_TOKENS, in = 1024, out = 1024, n = rows * out;
  float *x = draw_many(rows * in), *w = draw_many(in * out), *y[2];
  void *x_at = upload(b, x, rows * in, true), *w_at = upload(b, w, in * out, true), *y_at;
  Backend other;
  ok(b->alloc(b, &y_at, n * 2));
  ok(b->open_stream(b, &other));
  for (int i = 0; i < 2; i++) {
    const Backend *by = i ? &other : b;
    ok(mem_alloc(&y[i], n, sizeof *y[i]));
    by->linear(by, y_at, x_at, w_at, NULL, rows, in, out);
    download(by, y[i], y_at, n, true);
  }
  assert_memory_equal(y[0], y[1], n * sizeof *y[0]);
  backend_close(&other);
  b->release(b, x_at), b->release(b, w_at), b->release(b, y_at);
  mem_free(x);
  mem_free(w);
  mem_free(y[0]);
  mem_free(y[1]);
}

/* With one scale per tensor an infinity makes all of y NaN. */
static void check_infinity(const Backend *b) {
  size_t rows = FP8_MIN_TOKENS, in = 1024, out = 1024;
  float *x = draw_many(rows * in), *w = draw(in * out), *y = draw_many(rows * out);
  x[5 * in] = -INFINITY;
  void *x_at = upload(b, x, rows * in, true), *w_at = upload(b, w, in * out, true);
  void *y_at = upload(b, y, rows * out, true);
  b->linear(b, y_at, x_at, w_at, NULL, rows, in, out);
  download(b, y, y_at, rows * out, true);
  for (size_t i = 0; i < rows * out; i++) assert_true(isnan(y[i]));
  b->release(b, x_at), b->release(b, w_at), b->release(b, y_at);
  mem_free(x);
  mem_free(w);
  mem_free(y);
}

static void check_scales(const char *scales, bool per_tensor) {
  Backend b, cpu;
  setenv("TRIREME_FP8_SCALES", scales, 1);
  Err err = backend_open(&b, &(BackendSpec){"cuda", "fp8", 1});
  unsetenv("TRIREME_FP8_SCALES");
  if (err) {
    printf("cannot run with one scale per %s: %s\n", scales, err_message());
    assert_non_null(strstr(err_message(), "fp8 is not available: "));
    return;
  }
  assert_int_equal(strstr(b.about, "one scale per tensor") != NULL, per_tensor);
  ok(backend_cpu(&cpu, 0, false));
  static const size_t shapes[][3] = {{4096, 1024, 1024}, {4097, 1056, 1120},
                                     {4111, 4096, 2080}, {4100, 1024, 4128},
                                     {4098, 8224, 1024}, {4099, 1024, 8224}};
  /* The shapes that differ in how rows are converted do not concern scales per tensor. */
  size_t n = per_tensor ? 4 : sizeof shapes / sizeof *shapes;
  for (size_t i = 0; i < n; i++) {
    const size_t *s = shapes[i];
    assert_true(backend_takes_fp8(s[0], s[1], s[2]));
    check_fp8(&b, &cpu, s[0], s[1], s[2], false, per_tensor);
    check_fp8(&b, &cpu, s[0], s[1], s[2], true, per_tensor);
  }
  if (per_tensor)
    check_infinity(&b);
  else
    check_nan_row(&b);
  check_stream(&b);
  backend_close(&b);
}

static void test_linear_fp8_rounds_operands(void **state) {
  (void)state;
  Backend b;
  if (backend_open(&b, &(BackendSpec){"cuda", "fp8", 1})) {
    printf("cannot run: %s\n", err_message());
    skip();
  }
  backend_close(&b);
  setenv("TRIREME_FP8_SCALES", "column", 1);
  assert_int_equal(backend_open(&b, &(BackendSpec){"cuda", "fp8", 1}), ERR_USAGE);
  assert_non_null(strstr(err_message(), "TRIREME_FP8_SCALES is 'column'"));
  check_scales("row", false);
  check_scales("tensor", true);
}

/* Compares linear_relu_backward with linear_dx and activate_backward on the same GPU. */
static void check_relu_backward(const Backend *b, const size_t shape[3], size_t askew) {
  size_t rows = shape[0], in = shape[1], out = shape[2];
  float *dy = draw_many(rows * out), *w = draw_many(in * out), *one = draw(in);
  float *dx[2] = {draw_many(rows * in), draw_many(rows * in)}, *db[2];
  uint8_t *mask, *mask_at;
  /* Backward needs only the rate, for the scale: the mask says which elements were dropped. */
  Dropout drop = {.rate = 0.1f};
  ok(mem_alloc(&mask, rows * in / 8, 1));
  for (size_t i = 0; i < rows * in / 8; i++) mask[i] = (uint8_t)(i * 40503 >> 7);
  ok(b->alloc(b, &mask_at, rows * in / 8));
  b->put(b, mask_at, mask, rows * in / 8);
  /* an unaligned dy, whose last elements are not used */
  const char *dy_at = upload(b, dy, rows * out, true),
             *from = dy_at + askew * type_size(b->type);
  void *w_at = upload(b, w, in * out, true);
  size_t used = rows - (askew ? 1 : 0);
  for (int way = 0; way < 2; way++) {
    void *dx_at = upload(b, dx[way], rows * in, true), *db_at = upload(b, one, in, false);
    if (way == 0) {
      b->linear_relu_backward(b, dx_at, db_at, from, w_at, mask_at, used, in, out, drop, true);
    } else {
      b->linear_dx(b, dx_at, from, w_at, used, in, out, false);
      b->activate_backward(b, dx_at, db_at, dx_at, mask_at, used, in, ACT_RELU, drop, true);
    }
    db[way] = draw(in);
    download(b, dx[way], dx_at, used * in, true);
    download(b, db[way], db_at, in, false);
    b->release(b, dx_at), b->release(b, db_at);
  }
  double off = apart(dx[0], dx[1], used * in), db_off = apart(db[0], db[1], in);
  if (!(off < 0.5 * rounding[b->type] && db_off < rounding[b->type]))
    fail_msg("%s: %zu rows, %zu in, %zu out: off by %g, %g", b->about, rows, in, out, off,
             db_off);
  b->release(b, mask_at), b->release(b, w_at), b->release(b, (void *)(uintptr_t)dy_at);
  mem_free(dy);
  mem_free(w);
  mem_free(one);
  mem_free(mask);
  for (int way = 0; way < 2; way++) mem_free(dx[way]), mem_free(db[way]);
}

static void test_linear_relu_backward_matches_two_operations(void **state) {
  (void)state;
  int fused = 0;
  for (int p = 0; p < 3; p++) {
    static const size_t shape[][3] = {{16411, 512, 512}, {8200, 1024, 1024}, {4099, 2048, 576}};
    Backend b;
    open_gpu(&b, precisions[p]);
    assert_false(b.fuses_relu(&b, 100, 512, 512)); /* too small for the fused kernel */
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
      if (!b.fuses_relu(&b, shape[i][0], shape[i][1], shape[i][2])) continue;
      check_relu_backward(&b, shape[i], 0);
      check_relu_backward(&b, shape[i], 1);
      fused++;
    }
    backend_close(&b);
  }
  if (fused == 0) skip(); /* only Hopper GPUs have the fused kernel */
  assert_int_equal(fused, 2 * 3);
}

/* Compares linear_relu_dropout, with bits from add_norm, with linear and activate on the same
 * GPU. */
static void check_relu_forward(const Backend *b, const size_t shape[3], float rate,
                               size_t askew) {
  size_t rows = shape[0], out = shape[1], in = shape[2], bytes = rows * out / 8, differ = 0;
  float *x = draw_many(rows * in), *w = draw_many(in * out), *bias = draw(out + 8),
        *ones = draw(in), *y[2] = {draw_many(rows * out), draw_many(rows * out)};
  static const uint64_t key = 99;
  uint8_t *mask[2], *mask_at;
  ok(b->alloc(b, &mask_at, bytes));
  Dropout drop = {.key = upload_key(b, &key), .site = 5, .rate = rate};
  const char *bias_at = upload(b, bias, out + 8, true);
  void *x_at = upload(b, x, rows * in, true), *w_at = upload(b, w, in * out, true),
       *gain_at = upload(b, ones, in, false), *norm_at = upload(b, x, rows * in, true),
       *stat_at = upload(b, y[0], 2 * rows, false);
  const void *from = bias_at + askew * type_size(b->type); /* an unaligned bias */
  AddNorm n = {.rows = rows, .d = in, .epsilon = 1e-6f, .ahead = mask_at, .ahead_width = out};
  n.ahead_drop = drop;
  for (int way = 0; way < 2; way++) {
    void *y_at = upload(b, y[way], rows * out, true);
    if (way == 0) {
      b->add_norm(b, NULL, norm_at, stat_at, x_at, NULL, gain_at, gain_at, &n);
      b->linear_relu_dropout(b, y_at, mask_at, norm_at, w_at, from, rows, in, out, drop);
    } else {
      b->linear(b, y_at, norm_at, w_at, NULL, rows, in, out);
      b->activate(b, y_at, mask_at, y_at, from, rows, out, ACT_RELU, drop);
    }
    ok(mem_alloc(&mask[way], bytes, 1));
    ok(b->get(b, mask[way], mask_at, bytes));
    download(b, y[way], y_at, rows * out, true);
    b->release(b, y_at);
  }
  for (size_t i = 0; i < bytes; i++)
    for (int bit = mask[0][i] ^ mask[1][i]; bit; bit &= bit - 1) differ++;
  /* A sum next to 0 may have another sign with another order of additions. */
  double off = apart(y[0], y[1], rows * out);
  if (!(off < 1.5 * rounding[b->type] && differ <= rows * out / 2000))
    fail_msg("%s: %zu rows, %zu in, %zu out: off by %g, %zu bits differ", b->about, rows, in,
             out, off, differ);
  const void *all[] = {mask_at, drop.key, x_at, w_at, gain_at, norm_at, stat_at, bias_at};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    b->release(b, (void *)(uintptr_t)all[i]);
  mem_free(x), mem_free(w), mem_free(bias), mem_free(ones);
  for (int way = 0; way < 2; way++) mem_free(y[way]), mem_free(mask[way]);
}

static void test_linear_relu_dropout_matches_two_operations(void **state) {
  (void)state;
  int fused = 0;
  for (int p = 0; p < 3; p++) {
    static const size_t shape[][3] = {{16411, 512, 512}, {8200, 1024, 1024}, {4099, 2048, 576}};
    Backend b;
    open_gpu(&b, precisions[p]);
    assert_false(
        b.fuses_linear_relu_dropout(&b, 100, 512, 512)); /* too small for the fused kernel */
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
      if (!b.fuses_linear_relu_dropout(&b, shape[i][0], shape[i][2], shape[i][1])) continue;
      check_relu_forward(&b, shape[i], 0.1f, 0);
      check_relu_forward(&b, shape[i], 0, 0);
      check_relu_forward(&b, shape[i], 0.3f, 1);
      fused++;
    }
    backend_close(&b);
  }
  if (fused == 0) skip(); /* only Hopper GPUs have the fused kernel */
  assert_int_equal(fused, 2 * 3);
}

/* Compares linear_loss with its four operations on the same GPU: the losses, and the gradients,
 * which are added to what is in dw. */
static void check_linear_loss(const Backend *b, const size_t shape[3], float smoothing,
                              size_t askew) {
  size_t rows = shape[0], d = shape[1], vocab = shape[2], all = rows + LOSS_EXTRA_ROWS;
  float *x = draw_many(rows * d + 8), *w = draw_many(vocab * d), *dx[2], *dw[2];
  int32_t *target;
  double loss[2][3];
  ok(mem_alloc(&target, rows, sizeof *target));
  for (size_t r = 0; r < rows; r++) target[r] = r % 9 == 5 ? -1 : (int32_t)(r * 40503 % vocab);
  for (size_t i = 0; i < vocab * d; i++) w[i] *= 1 / sqrtf((float)d);
  const char *x_at = upload(b, x, rows * d + 8, true);
  void *w_at = upload(b, w, vocab * d, true), *target_at = upload_ints(b, target, rows),
       *logits, *scaled, *dx_at;
  ok(b->alloc(b, &logits, all * vocab * type_size(b->type)));
  ok(b->alloc(b, &scaled, all * d * type_size(b->type)));
  ok(b->alloc(b, &dx_at, rows * d * type_size(b->type)));
  for (int way = 0; way < 2; way++) {
    LinearLoss j = {.rows = rows,
                    .in = d,
                    .vocab = vocab,
                    .x = x_at + askew * type_size(b->type),
                    .w = w_at,
                    .target = target_at,
                    .smoothing = smoothing,
                    .scale = 2,
                    .logits = logits,
                    .scaled = scaled,
                    .dx = dx_at,
                    .accumulate = true};
    dx[way] = draw_many(rows * d);
    dw[way] = draw_many(vocab * d);
    j.dw = upload(b, dw[way], vocab * d, false);
    ok(b->alloc(b, &j.loss, 3 * sizeof *j.loss));
    if (way == 0) {
      b->linear_loss(b, &j);
      b->linear_loss_dx(b, &j);
      b->linear_loss_dw(b, &j);
    } else {
      b->linear(b, logits, j.x, w_at, NULL, rows, d, vocab);
      b->loss(b, logits, j.loss, target_at, rows, vocab, smoothing, j.scale);
      b->linear_dx(b, dx_at, logits, w_at, rows, d, vocab, false);
      b->linear_dw(b, j.dw, NULL, logits, j.x, rows, d, vocab, true);
    }
    ok(b->get(b, loss[way], j.loss, sizeof loss[way]));
    download(b, dx[way], dx_at, rows * d, true);
    download(b, dw[way], j.dw, vocab * d, false);
    b->release(b, j.loss), b->release(b, j.dw);
  }
  /* Both ways round the logits, or their distance from the target's, and their gradient. */
  double off = apart(dx[0], dx[1], rows * d), dw_off = apart(dw[0], dw[1], vocab * d);
  bool near = fabs(loss[0][2] - loss[1][2]) <= 2 + (double)rows / 200;
  for (int i = 0; i < 2; i++) near = near && fabs(loss[0][i] / loss[1][i] - 1) < 1e-3;
  if (!(off < 4 * rounding[b->type] && dw_off < 4 * rounding[b->type] && near))
    fail_msg(
        "%s: %zu rows, d %zu, vocab %zu: off by %g, %g; losses %g, %g, not %g, %g; %g and "
        "%g correct",
        b->about, rows, d, vocab, off, dw_off, loss[0][0], loss[0][1], loss[1][0], loss[1][1],
        loss[0][2], loss[1][2]);
  const void *arrays[] = {x_at, w_at, target_at, logits, scaled, dx_at};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
    b->release(b, (void *)(uintptr_t)arrays[i]);
  mem_free(x), mem_free(w), mem_free(target);
  for (int way = 0; way < 2; way++) mem_free(dx[way]), mem_free(dw[way]);
}

static void test_linear_loss_matches_four_operations(void **state) {
  (void)state;
  int fused = 0;
  for (int p = 0; p < 3; p++) {
    static const size_t shape[][3] = {{4099, 512, 2048}, {8200, 1024, 1024}, {16411, 576, 512}};
    Backend b;
    open_gpu(&b, precisions[p]);
    assert_false(b.fuses_loss(&b, 100, 512, 512)); /* too small for the fused kernel */
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
      if (!b.fuses_loss(&b, shape[i][0], shape[i][1], shape[i][2])) continue;
      check_linear_loss(&b, shape[i], 0.1f, 0);
      check_linear_loss(&b, shape[i], 0, 0);
      fused++;
    }
    if (fused) check_linear_loss(&b, shape[0], 0.1f, 1);
    backend_close(&b);
  }
  if (fused == 0) skip(); /* only Hopper GPUs have the fused kernel */
  assert_int_equal(fused, 3);
}

/* The layer norm could write fp8 rows, but the GEMM is too small for fp8 and reads the bits. */
static void test_linear_relu_dropout_after_norm_in_fp8(void **state) {
  (void)state;
  static const size_t shape[3] = {16411, 512, 1024};
  Backend b;
  if (backend_open(&b, &(BackendSpec){"cuda", "fp8", 1})) {
    print_message("cannot run: %s\n", err_message());
    skip();
  }
  bool fuses = b.fuses_linear_relu_dropout(&b, shape[0], shape[2], shape[1]);
  if (fuses) check_relu_forward(&b, shape, 0.1f, 0);
  backend_close(&b);
  if (!fuses) skip(); /* only Hopper GPUs have the fused kernel */
}

static void test_memory_copies_and_errors(void **state) {
  (void)state;
  Backend b;
  open_gpu(&b, "fp32");
  /* More elements than all pipeline stages hold, and an odd number. */
  size_t n = ((size_t)37 << 20) / 4 + 3;
  float *x = draw(n), *y = draw(n), *there, *other;
  float *kept = copy(x, n);
  ok(b.alloc(&b, &there, n * sizeof *x));
  ok(b.alloc(&b, &other, n * sizeof *x));
  ok(b.get(&b, y, there, n * sizeof *y));
  for (size_t i = 0; i < n; i++) assert_true(y[i] == 0); /* new memory is zeroed */
  b.put(&b, there, x, n * sizeof *x);
  memset(x, 0, n * sizeof *x); /* put() has copied the host memory, which may be overwritten */
  b.copy(&b, other, there, n * sizeof *x);
  b.zero(&b, there, 4);
  ok(b.get(&b, y, other, n * sizeof *y));
  assert_memory_equal(y, kept, n * sizeof *y);
  ok(b.get(&b, y, there, n * sizeof *y));
  assert_true(y[0] == 0 && y[1] == kept[1]);
  b.release(&b, there), b.release(&b, other), b.release(&b, NULL);
  void *block;
  assert_int_equal(b.alloc(&b, &block, (size_t)1 << 50), ERR_WORK);
  assert_non_null(strstr(err_message(), "--batch-tokens"));
  assert_null(block);
  ok(b.sync(&b)); /* a failed allocation does not affect later operations */
  mem_free(x);
  mem_free(y);
  mem_free(kept);
  backend_close(&b);
}

/* Makes a batch of sentences of 3 to 40 tokens with random ids. */
static void fill(Batch *batch, const TransformerConfig *c) {
  batch->sentences = 0;
  batch->rows[0] = batch->rows[1] = 0;
  batch->src_off[0] = batch->tgt_off[0] = 0;
  while (batch->rows[0] + 40 <= batch->capacity && batch->rows[1] + 40 <= batch->capacity) {
    uint32_t n = 3 + (uint32_t)rng_below(&rng, 38), m = 3 + (uint32_t)rng_below(&rng, 38);
    for (uint32_t i = 0; i < n; i++) {
      batch->src[batch->rows[0] + i] = (int32_t)rng_below(&rng, (uint64_t)c->vocab);
      batch->src_pos[batch->rows[0] + i] = (int32_t)i;
    }
    for (uint32_t i = 0; i < m; i++) {
      batch->tgt_in[batch->rows[1] + i] = (int32_t)rng_below(&rng, (uint64_t)c->vocab);
      batch->tgt_out[batch->rows[1] + i] = (int32_t)rng_below(&rng, (uint64_t)c->vocab);
      batch->tgt_pos[batch->rows[1] + i] = (int32_t)i;
    }
    batch->rows[0] += n;
    batch->rows[1] += m;
    batch->src_off[++batch->sentences] = (int32_t)batch->rows[0];
    batch->tgt_off[batch->sentences] = (int32_t)batch->rows[1];
  }
  batch_pad(batch, 0);
}

/* Computes loss and accumulated gradients of two steps with dropout. */
static void run_model(const Backend *b, const TransformerConfig *c, const Batch batch[2],
                      const float *w, float *g, ModelLoss *loss) {
  Transformer t;
  ok(transformer_new(&t, c, b, batch[0].capacity, 0, true));
  size_t n = t.model.params.padded;
  float *full = upload(b, w, n, false), *there;
  void *low = b->type == TYPE_F32 ? full : upload(b, w, n, true);
  ok(b->alloc(b, &there, n * sizeof *there));
  for (int i = 0; i < 2; i++) {
    StepKey key = {100 + (uint64_t)i, true, i == 0};
    transformer_step(&t, (Weights){full, low}, there, &batch[i], key, 0.1f, 1.0f / 64, NULL,
                     NULL);
  }
  ok(model_loss(&t.model, loss));
  ok(b->get(b, g, there, n * sizeof *g));
  if (low != full) b->release(b, low);
  b->release(b, full), b->release(b, there);
  transformer_free(&t);
}

static void compare_models(bool post) {
  TransformerConfig c = {.vocab = 500, .max_positions = 48, .bos = 2, .eos = 1};
  ok(transformer_preset(&c, "tiny"));
  c.d_model = 64;
  c.ffn_dim = 96;
  c.heads = post ? 2 : 1;
  c.layers[0] = c.layers[1] = 2;
  c.pre_norm = !post;
  c.attention_bias = post;
  c.activation = post ? ACT_GELU : ACT_RELU;
  c.positions = post ? POSITION_LEARNED : POSITION_HALVES;
  c.tying = post ? TIE_NONE : TIE_ALL;
  c.drop_embed = c.drop_attention = c.drop_activation = c.drop_residual = 0.1f;
  Params params;
  Batch batch[2];
  ok(transformer_lay_out_params(&params, &c));
  size_t n = params.padded;
  float *w = draw(n), *g[2] = {draw(n), draw(n)};
  params_init(&params, 5, w);
  for (int i = 0; i < 2; i++) {
    ok(batch_new(&batch[i], 512, 256));
    fill(&batch[i], &c);
  }
  Backend cpu;
  ModelLoss want, got;
  ok(backend_cpu(&cpu, 0, false));
  run_model(&cpu, &c, batch, w, g[0], &want);
  for (int p = 0; p < 3; p++) {
    /* The error is relative to the norm of all gradients. */
    static const double most[] = {2e-5, 0.04, 0.015};
    Backend b;
    open_gpu(&b, precisions[p]);
    run_model(&b, &c, batch, w, g[1], &got);
    double e = apart(g[1], g[0], n), l = fabs(got.sum[0] - want.sum[0]) / want.sum[0];
    if (!(e < most[p]) || !(l < most[p] / 5) || got.predictions != want.predictions)
      fail_msg("%s, %s-norm: gradients off by %g (%g allowed), loss %.8g for %.8g", b.about,
               post ? "post" : "pre", e, most[p], got.sum[0], want.sum[0]);
    backend_close(&b);
  }
  for (int i = 0; i < 2; i++) batch_free(&batch[i]);
  mem_free(w);
  mem_free(g[0]);
  mem_free(g[1]);
  params_free(&params);
}

static void test_transformer_step_matches_cpu(void **state) {
  (void)state;
  compare_models(false);
  compare_models(true);
}

int main(void) {
  Backend b;
  int why = find_gpu(&b, "fp32");
  if (why) return why;
  backend_close(&b);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear_relu_backward_matches_two_operations),
      cmocka_unit_test(test_linear_relu_dropout_matches_two_operations),
      cmocka_unit_test(test_linear_relu_dropout_after_norm_in_fp8),
      cmocka_unit_test(test_linear_loss_matches_four_operations),
      cmocka_unit_test(test_memory_copies_and_errors),
      cmocka_unit_test(test_ops_match_reference_in_all_types),
      cmocka_unit_test(test_linear_tf32_rounds_operands),
      cmocka_unit_test(test_linear_fp8_rounds_operands),
      cmocka_unit_test(test_linear_fp8_operand_of_producer_same_bits),
      cmocka_unit_test(test_transformer_step_matches_cpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
