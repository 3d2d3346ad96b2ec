/* Compares fp8 operands of GEMMs with their definition, byte by byte. Depends on check.h. */
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

/* Converts n elements, `step` elements apart, to a row of fp8; returns the scale of the row. */
static float want_row(uint8_t *to, const float *x, size_t n, size_t step) {
  float most = 0;
  for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i * step]));
  float by = most < 1e-35f ? 0 : 448 / most;
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
  }
  mem_free(want_x);
  mem_free(want_w);
  arrays_free();
}

void fp8_kernels(void) {
  static const size_t shape[][3] = {{1, 32, 32},    {5, 64, 160},   {37, 1024, 96},
                                    {70, 1056, 64}, {9, 4096, 256}, {3, 8192, 2048},
                                    {6, 16384, 32}, {51, 96, 16384}};
  for (size_t i = 0; i < COUNT(shape); i++) {
    check_one(shape[i][0], shape[i][1], shape[i][2], false);
    check_one(shape[i][0], shape[i][1], shape[i][2], true);
  }
  Fp8 none;
  BEGIN("fp8 of columns that cannot be");
  if (kernel_fp8(&none, NULL, NULL, 1, 40, 32, false, NULL, 0) != cudaErrorInvalidValue)
    failures++;
  if (kernel_fp8(&none, NULL, NULL, 1, 32, 40, false, NULL, 0) != cudaErrorInvalidValue)
    failures++;
  checks += 2;
}
