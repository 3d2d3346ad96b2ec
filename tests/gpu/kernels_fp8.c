/* Compares fp8 operands of GEMMs with their definition, and kernels that convert their result
 * with the kernel without conversion followed by kernel_fp8, byte by byte. Depends on
 * check.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"

void fp8_kernels(void);

/* Rounds to e4m3, to nearest, ties to even: one sign bit, four exponent bits, three fraction
 * bits; largest value 448; NaN is 0x7f. */
static uint8_t to_e4m3(float x) {
  int exponent = 0;
  uint8_t sign = signbit(x) ? 0x80 : 0;
  if (isnan(x)) return 0x7f;
  frexpf(fabsf(x), &exponent);
  exponent = exponent < -5 || x == 0 ? -5 : exponent; /* subnormal below 2^-6 */
  long bits = lrintf(ldexpf(fabsf(x), 4 - exponent)) + ((exponent + 5) << 3);
  return sign | (uint8_t)(bits > 0x7e ? 0x7e : bits);
}

/* The same for e5m2: five exponent bits, two fraction bits; largest value 57344; NaN is 0x7f. */
static uint8_t to_e5m2(float x) {
  int exponent = 0;
  uint8_t sign = signbit(x) ? 0x80 : 0;
  if (isnan(x)) return 0x7f;
  frexpf(fabsf(x), &exponent);
  exponent = exponent < -13 || x == 0 ? -13 : exponent; /* subnormal below 2^-14 */
  long bits = lrintf(ldexpf(fabsf(x), 3 - exponent)) + ((exponent + 13) << 2);
  return sign | (uint8_t)(bits > 0x7b ? 0x7b : bits);
}

/* Converts n elements, `step` elements apart, to a row of fp8; returns the scale of the row. */
static float want_row(uint8_t *to, const float *x, size_t n, size_t step) {
  float most = 0;
  for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i * step]));
  float by = most < 448 * 2.3e-38f ? 0 : 448 / most;
  for (size_t i = 0; i < n; i++) to[i] = to_e4m3(x[i * step] * by);
  return most / 448;
}

static void check_one(size_t rows, size_t in, size_t out, bool back) {
  BEGIN("fp8, %zu rows, %zu in, %zu out%s", rows, in, out, back ? ", back" : "");
  size_t n = back ? out : in, more = back ? in : out;
  Array *x = array_draw(TYPE_BF16, rows * n, 1), *w = array_draw(TYPE_BF16, in * out, 0.03f);
  for (size_t i = 0; i < n; i++) x->host[i] = 0;
  for (size_t i = 0; i < rows * n;
       i++) /* rows of different magnitude, with some much smaller elements */
    x->host[i] *= ldexpf(1, (int)(i / n % 50) - 30 - (i % 5 ? 0 : (int)(i % 13)));
  for (size_t i = 0; i < rows * n; i++) x->host[i] = type_round(TYPE_BF16, x->host[i]);
  if (rows > 4) x->host[3 * n + 1] = NAN;
  array_put(x);
  uint8_t *want_x, *want_w;
  float *scale_x = host_floats(rows), *scale_w = host_floats(more);
  if (mem_alloc(&want_x, rows, n) || mem_alloc(&want_w, more, n)) exit(1);
  for (size_t r = 0; r < rows; r++)
    scale_x[r] = want_row(want_x + r * n, x->host + r * n, n, 1);
  for (size_t r = 0; r < more; r++)
    scale_w[r] = want_row(want_w + r * n, w->host + (back ? r : r * n), n, back ? in : 1);
  size_t bytes = kernel_fp8_work(rows, in, out);
  void *work = device_scratch(bytes);
  TWICE {
    Fp8 got;
    MUST(kernel_fp8(&got, x->at, w->at, rows, in, out, back, work, 0));
    if ((char *)(got.w_scale + more) > (char *)work + bytes)
      must(cudaErrorInvalidValue, "room");
    expect_exact(got.x, want_x, rows * n, "rows");
    expect_exact(got.w, want_w, more * n, "weights");
    expect_exact(got.x_scale, scale_x, rows * sizeof *scale_x, "scales of rows");
    expect_exact(got.w_scale, scale_w, more * sizeof *scale_w, "scales of weights");
    MUST(cudaMemset(got.w, 1, more * n));
    MUST(cudaMemset(got.w_scale, 1, more * sizeof *scale_w));
    MUST(kernel_fp8(&got, NULL, w->at, rows, in, out, back, work, 0));
    expect_exact(got.x, want_x, rows * n, "rows that are there");
    expect_exact(got.x_scale, scale_x, rows * sizeof *scale_x, "scales that are there");
    expect_exact(got.w, want_w, more * n, "weights alone");
    expect_exact(got.w_scale, scale_w, more * sizeof *scale_w, "scales of weights alone");
  }
  mem_free(want_x);
  mem_free(want_w);
  arrays_free();
}

/* Compares arrays in device memory. */
static void expect_same(const void *got, const void *want, size_t bytes, const char *what) {
  char *host;
  if (mem_alloc(&host, bytes, 1)) exit(1);
  MUST(cudaMemcpy(host, want, bytes, cudaMemcpyDeviceToHost));
  expect_exact(got, host, bytes, what);
  mem_free(host);
}

/* Compares `got`, the rows of y that a kernel has converted itself, with those of
 * kernel_fp8. */
static void expect_converted(Fp8Rows got, const void *y, size_t rows, size_t n) {
  Fp8 want;
  void *work = device_scratch(kernel_fp8_work(rows, n, 32));
  Array *w = array_zero(TYPE_BF16, n * 32);
  MUST(kernel_fp8(&want, y, w->at, rows, n, 32, false, work, 0));
  expect_same(got.x, want.x, rows * n, "rows");
  expect_same(got.scale, want.x_scale, rows * sizeof(float), "scales of rows");
}

static Fp8Rows make_rows(size_t rows, size_t n) {
  return kernel_fp8_rows(device_scratch(kernel_fp8_work(rows, n, 32)), rows, n);
}

static Dropout make_dropout(float rate) {
  uint64_t key = 0x1234567890abcdef;
  return (Dropout){device_copy(&key, sizeof key), 7, rate};
}

static void check_norm(size_t rows, size_t d, float rate) {
  BEGIN("add_norm to fp8, %zu rows, d %zu, rate %g", rows, d, (double)rate);
  AddNorm n = {.rows = rows, .d = d, .epsilon = 1e-5f, .drop = make_dropout(rate)};
  Array *x = array_draw(TYPE_BF16, rows * d, 1), *branch = array_draw(TYPE_BF16, rows * d, 1);
  Array *gain = array_draw(TYPE_F32, d, 1), *bias = array_draw(TYPE_F32, d, 1);
  Array *sum[2], *y[2], *stat[2];
  for (int i = 0; i < 2; i++) {
    sum[i] = array_blank(TYPE_BF16, rows * d);
    y[i] = array_blank(TYPE_BF16, rows * d);
    stat[i] = array_blank(TYPE_F32, rows * 2);
  }
  Fp8Rows to = make_rows(rows, d);
  MUST(kernel_add_norm(TYPE_BF16, sum[0]->at, y[0]->at, stat[0]->at, x->at, branch->at,
                       gain->at, bias->at, &n, 0));
  MUST(kernel_add_norm_fp8(to, sum[1]->at, y[1]->at, stat[1]->at, x->at, branch->at, gain->at,
                           bias->at, &n, 0));
  expect_same(sum[1]->at, sum[0]->at, rows * d * 2, "sum");
  expect_same(y[1]->at, y[0]->at, rows * d * 2, "y");
  expect_same(stat[1]->at, stat[0]->at, rows * 2 * sizeof(float), "statistics");
  expect_converted(to, y[0]->at, rows, d);
  arrays_free();
}

static void check_relu(size_t rows, size_t width, float rate) {
  BEGIN("ReLU to fp8, %zu rows of %zu, rate %g", rows, width, (double)rate);
  size_t n = rows * width;
  Array *x = array_draw(TYPE_BF16, n, 1), *bias = array_draw(TYPE_BF16, width, 1);
  Array *y[2] = {array_blank(TYPE_BF16, n), array_blank(TYPE_BF16, n)};
  uint8_t *mask[2] = {device_scratch(n / 8), device_scratch(n / 8)};
  Fp8Rows to = make_rows(rows, width);
  Dropout drop = make_dropout(rate);
  MUST(kernel_activate(TYPE_BF16, y[0]->at, mask[0], x->at, bias->at, rows, width, ACT_RELU,
                       drop, 0));
  MUST(kernel_relu_fp8(to, y[1]->at, mask[1], x->at, bias->at, rows, width, drop, 0));
  expect_same(y[1]->at, y[0]->at, n * 2, "y");
  expect_same(mask[1], mask[0], n / 8, "mask");
  expect_converted(to, y[0]->at, rows, width);
  arrays_free();
}

static void check_relu_backward(size_t rows, size_t width, bool add) {
  BEGIN("ReLU backward to fp8, %zu rows of %zu%s", rows, width, add ? ", add" : "");
  size_t n = rows * width;
  Array *x = array_draw(TYPE_BF16, n, 1), *y = array_blank(TYPE_BF16, n);
  Array *dx[2] = {array_draw(TYPE_BF16, n, 1), array_draw(TYPE_BF16, n, 1)};
  Array *dbias[2] = {array_zero(TYPE_F32, width), array_zero(TYPE_F32, width)};
  uint8_t *mask = device_scratch(n / 8);
  void *work = device_scratch(kernel_column_sums_work(rows, width));
  void *more = device_scratch(kernel_relu_backward_fp8_work(width));
  float *want = host_floats(width);
  Fp8Rows to = make_rows(rows, width);
  Dropout drop = make_dropout(0.1f);
  MUST(kernel_activate(TYPE_BF16, y->at, mask, x->at, NULL, rows, width, ACT_RELU, drop, 0));
  MUST(cudaMemcpy(dx[1]->at, dx[0]->at, n * 2, cudaMemcpyDeviceToDevice));
  for (int i = 0; i <= add; i++) {
    bool adds = i;
    MUST(kernel_activate_backward(TYPE_BF16, dx[0]->at, dbias[0]->at, dx[0]->at, mask, rows,
                                  width, ACT_RELU, drop, adds, work, 0));
    MUST(kernel_relu_backward_fp8(to, dx[1]->at, dbias[1]->at, dx[1]->at, mask, rows, width,
                                  drop, adds, more, 0));
  }
  expect_same(dx[1]->at, dx[0]->at, n * 2, "dx");
  MUST(cudaMemcpy(want, dbias[0]->at, width * sizeof(float), cudaMemcpyDeviceToHost));
  expect(dbias[1], want, 64, "dbias");
  expect_converted(to, dx[0]->at, rows, width);
  arrays_free();
}

static void check_converting_kernels(void) {
  static const size_t rows[] = {1, 37, 130};
  static const size_t norm[] = {512, 1024, 1056, 2048, 4096};
  static const size_t relu[] = {1024, 2048, 2080, 4096, 4128, 8192, 8224, 16384};
  static const size_t backward[] = {1024, 2048, 2080, 4096};
  for (size_t r = 0; r < COUNT(rows); r++) {
    for (size_t i = 0; i < COUNT(norm); i++) check_norm(rows[r], norm[i], i % 2 ? 0.1f : 0);
    for (size_t i = 0; i < COUNT(relu); i++) check_relu(rows[r], relu[i], i % 2 ? 0.1f : 0);
  }
  for (size_t i = 0; i < COUNT(backward); i++) {
    check_relu_backward(1, backward[i], false);
    check_relu_backward(37, backward[i], true);
    check_relu_backward(2300, backward[i], false); /* blocks have several turns */
  }
}

/* Converts (rows, n), element (r, c) at r * row + c * column, with one scale; returns it. */
static float want_tensor(uint8_t *to, const float *x, size_t rows, size_t n, size_t row,
                         size_t column, bool is_e5m2) {
  float most = 0, limit = is_e5m2 ? 57344 : 448;
  for (size_t i = 0; i < rows * n; i++)
    most = fmaxf(most, fabsf(x[i / n * row + i % n * column]));
  float by = most < limit * 2.3e-38f ? 0 : limit / most;
  for (size_t i = 0; i < rows * n; i++) {
    float y = x[i / n * row + i % n * column] * by;
    to[i] = is_e5m2 ? to_e5m2(y) : to_e4m3(y);
  }
  return most / limit;
}

/* One scale per tensor. size: factor of x, whose last element is NaN. */
static void check_tensor(size_t rows, size_t in, size_t out, bool back, float size) {
  BEGIN("fp8 per tensor, %zu rows, %zu in, %zu out%s, size %g", rows, in, out,
        back ? ", back" : "", (double)size);
  size_t n = back ? out : in, more = back ? in : out;
  Array *x = array_draw(TYPE_BF16, rows * n, 1), *w = array_draw(TYPE_BF16, in * out, 0.03f);
  for (size_t i = 0; i < rows * n; i++) /* from far below the smallest fp8 number */
    x->host[i] *= size * ldexpf(1, (int)(i / n % 50) - 30);
  for (size_t i = 0; i < rows * n; i++) x->host[i] = type_round(TYPE_BF16, x->host[i]);
  x->host[rows * n - 1] = NAN;
  array_put(x);
  uint8_t *want_x, *want_w;
  if (mem_alloc(&want_x, rows, n) || mem_alloc(&want_w, more, n)) exit(1);
  float scale_x = want_tensor(want_x, x->host, rows, n, n, 1, back);
  float scale_w =
      want_tensor(want_w, w->host, more, n, back ? 1 : n, back ? in : 1, /*is_e5m2=*/false);
  void *work = device_scratch(kernel_fp8_work(rows, in, out));
  TWICE {
    Fp8 got;
    MUST(kernel_fp8_tensor(&got, x->at, w->at, rows, in, out, back, work, 0));
    expect_exact(got.x, want_x, rows * n, "x");
    expect_exact(got.w, want_w, more * n, "weights");
    expect_exact(got.x_scale, &scale_x, sizeof scale_x, "scale of x");
    expect_exact(got.w_scale, &scale_w, sizeof scale_w, "scale of weights");
  }
  mem_free(want_x);
  mem_free(want_w);
  arrays_free();
}

void fp8_kernels(void) {
  static const size_t shape[][3] = {
      {1, 32, 32},     {5, 64, 160},   {37, 1024, 96},  {70, 1056, 64}, {9, 4096, 256},
      {3, 8192, 2048}, {6, 16384, 32}, {51, 96, 16384}, {2, 96, 4096},  {2, 64, 4128}};
  for (size_t i = 0; i < COUNT(shape); i++) {
    check_one(shape[i][0], shape[i][1], shape[i][2], false);
    check_one(shape[i][0], shape[i][1], shape[i][2], true);
  }
  check_converting_kernels();
  for (size_t i = 0; i < COUNT(shape); i++) {
    check_tensor(shape[i][0], shape[i][1], shape[i][2], false, 1);
    check_tensor(shape[i][0], shape[i][1], shape[i][2], true, 1);
  }
  /* zeros, and elements of up to 6e-35: the factor of e5m2 would overflow, that of e4m3 would not */
  static const float small[] = {0, 1e-36f};
  for (size_t i = 0; i < COUNT(small); i++) {
    check_tensor(37, 96, 64, false, small[i]);
    check_tensor(37, 96, 64, true, small[i]);
  }
  Fp8 none;
  BEGIN("fp8 of columns that cannot be");
  if (kernel_fp8(&none, NULL, NULL, 1, 40, 32, false, NULL, 0) != cudaErrorInvalidValue)
    failures++;
  if (kernel_fp8(&none, NULL, NULL, 1, 32, 40, false, NULL, 0) != cudaErrorInvalidValue)
    failures++;
  if (kernel_fp8_tensor(&none, NULL, NULL, 1, 32, 40, true, NULL, 0) != cudaErrorInvalidValue)
    failures++;
  checks += 3;
}
