/* Tests GEMMs in fp8 with one scale per row and per tensor: they round as fp8 does, and operands that
 * norm and activation kernels convert give the same bits. Returns 77 if there is no GPU. Needs the
 * plug-in in TRIREME_PLUGIN_PATH. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arrays.h"

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
 * one scale per tensor. Returns false if the GPU has no fp8 with these scales. */
static bool check_producers(const char *scales) {
  Backend b;
  static const size_t d[] = {1024, 2048, 2048};
  size_t rows = 4099, n = rows * 1056;
  setenv("TRIREME_FP8_SCALES", scales, 1);
  Err err = backend_open(&b, &(BackendSpec){"cuda", "fp8", 1});
  unsetenv("TRIREME_FP8_SCALES");
  if (err) {
    assert_non_null(strstr(err_message(), "fp8 is not available"));
    return false;
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
  return true;
}

static void test_linear_fp8_operand_of_producer_same_bits(void **state) {
  (void)state;
  bool per_row = check_producers("row"), per_tensor = check_producers("tensor");
  if (!per_row && !per_tensor) skip();
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

int main(void) {
  int why = check_gpu();
  if (why) return why;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear_fp8_rounds_operands),
      cmocka_unit_test(test_linear_fp8_operand_of_producer_same_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
