/* Accuracy of fp32 GEMMs in each instruction set: bits of single products, errors of long sums, numbers
 * that are not finite, and the kernels for few rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support.h"

#include "isa.h"

static Rng rng = {.key = 11};

/* Draws n numbers from -1 to 1 that use all 24 bits of a float. */
static float *draw(size_t n) {
  float *x;
  OK(mem_alloc_aligned(&x, n * sizeof *x));
  for (size_t i = 0; i < n; i++) x[i] = (float)((double)(rng_next(&rng) >> 11) * 0x1p-52 - 1);
  return x;
}

/* Products with the identity matrix must return every bit of the other operand. */
static void check_identity(Backend *b) {
  enum { N = 70 };
  float *one = draw(N * N), *x = draw(N * N), *y = draw(N * N);
  for (size_t i = 0; i < N * N; i++) one[i] = i % (N + 1) == 0;
  b->linear(b, y, x, one, NULL, N, N, N);
  assert_memory_equal(y, x, N * N * sizeof *x);
  b->linear_dx(b, y, one, x, N, N, N, false);
  assert_memory_equal(y, x, N * N * sizeof *x);
  b->linear_dw(b, y, NULL, one, x, N, N, N, false);
  assert_memory_equal(y, x, N * N * sizeof *x);
  mem_free(one);
  mem_free(x);
  mem_free(y);
}

static void test_gemm_identity_keeps_all_bits(void **state) {
  (void)state;
  on_every_isa(check_identity);
}

/* Fails if c (m, n) = op(a) · op(b) is off by more than `limit` of its norm. Strides: elements to the
 * next row or column and to the next step of k. */
static void check_error(const char *what, const float *c, size_t m, size_t n, size_t k,
                        const float *a, const size_t a_step[2], const float *b,
                        const size_t b_step[2]) {
  const double limit = 12 * 0x1p-24;
  double error = 0, norm = 0;
  for (size_t i = 0; i < m; i++) {
    for (size_t j = 0; j < n; j++) {
      double sum = 0;
      for (size_t p = 0; p < k; p++)
        sum +=
            (double)a[i * a_step[0] + p * a_step[1]] * (double)b[j * b_step[0] + p * b_step[1]];
      error += (sum - (double)c[i * n + j]) * (sum - (double)c[i * n + j]);
      norm += sum * sum;
    }
  }
  if (!(error <= limit * limit * norm))
    fail_msg("%s: relative error %g, %g allowed", what, sqrt(error / norm), limit);
}

/* Sums of 1,100 terms: several blocks of k, the last of them incomplete. */
static void check_long_sums(Backend *b) {
  enum { LONG = 1100, M = 37, N = 45 };
  float *x = draw(LONG * M), *w = draw(LONG * N), *y = draw(M * N);
  b->linear(b, y, x, w, NULL, M, LONG, N);
  check_error(b->about, y, M, N, LONG, x, (size_t[]){LONG, 1}, w, (size_t[]){LONG, 1});
  b->linear_dx(b, y, x, w, M, N, LONG, false);
  check_error(b->about, y, M, N, LONG, x, (size_t[]){LONG, 1}, w, (size_t[]){1, N});
  b->linear_dw(b, y, NULL, x, w, LONG, N, M, false);
  check_error(b->about, y, M, N, LONG, x, (size_t[]){1, M}, w, (size_t[]){1, N});
  mem_free(x);
  mem_free(w);
  mem_free(y);
}

static void test_gemm_long_sums_are_accurate(void **state) {
  (void)state;
  on_every_isa(check_long_sums);
}

/* A result with an operand that is not finite must not be finite; other rows must not change. */
static void check_not_finite(Backend *b) {
  static const uint32_t bits[] = {0x7f800000, 0xff800000, 0x7fc00000,
                                  0x7f800001, 0x7fffffff, 0xffffffff};
  for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
    float x[3] = {1, 0, 3}, y[3], two = 2;
    memcpy(&x[1], &bits[i], 4);
    b->linear(b, y, x, &two, NULL, 3, 1, 1);
    assert_true(!isfinite(y[1]) && y[0] == 2 && y[2] == 6);
    b->linear(b, y, &two, x, NULL, 1, 1, 3);
    assert_true(!isfinite(y[1]) && y[0] == 2 && y[2] == 6);
  }
}

static void test_gemm_operand_not_finite_gives_result_not_finite(void **state) {
  (void)state;
  on_every_isa(check_not_finite);
}

/* The kernels for few rows are those of avx512, so that decoding has the same bits with and without
 * AMX. */
static void test_gemm_few_rows_with_amx_same_bits_as_avx512(void **state) {
  (void)state;
  enum { ROWS = 5, IN = 300, OUT = 50 };
  Backend plain, amx;
  float *x = draw(ROWS * IN), *w = draw(OUT * IN), *y = draw(ROWS * OUT), *z = draw(ROWS * OUT);
  setenv("TRIREME_ISA", "avx512", 1);
  bool available = backend_cpu(&plain, 2, false) == ERR_OK;
  if (available) plain.linear(&plain, y, x, w, NULL, ROWS, IN, OUT);
  setenv("TRIREME_ISA", "avx512+amx", 1);
  available = available && backend_cpu(&amx, 2, false) == ERR_OK;
  if (available) {
    amx.few_rows = true;
    amx.linear(&amx, z, x, w, NULL, ROWS, IN, OUT);
    assert_memory_equal(y, z, ROWS * OUT * sizeof *y);
  }
  unsetenv("TRIREME_ISA");
  mem_free(x);
  mem_free(w);
  mem_free(y);
  mem_free(z);
  if (!available) skip();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gemm_identity_keeps_all_bits),
      cmocka_unit_test(test_gemm_long_sums_are_accurate),
      cmocka_unit_test(test_gemm_operand_not_finite_gives_result_not_finite),
      cmocka_unit_test(test_gemm_few_rows_with_amx_same_bits_as_avx512),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
