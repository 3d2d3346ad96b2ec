/* Column sums for the CPU backend: the gradient of a bias is the sum of its layer's output
 * gradients over all tokens. Depends on fast/fast.h. */
#include <string.h>

#include "backend/cpu/fast/fast.h"

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

/* Sums n <= 32 columns of x over `rows` rows; `ld`: elements between the starts of two rows. */
static void sum_columns(float *total, const float *x, size_t rows, size_t ld, size_t n) {
  if (n < 32) {
    memset(total, 0, n * sizeof *total);
    for (size_t r = 0; r < rows; r++) {
      for (size_t i = 0; i < n; i++) total[i] += x[r * ld + i];
    }
    return;
  }
  Four sum[8] = {{0}};
  for (size_t r = 0; r < rows; r++, x += ld) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) sum[i] += *(const Four *)(x + 4 * i);
  }
  memcpy(total, sum, sizeof sum);
}

void cpu_column_sums(const Backend *b, float *sum, const float *x, size_t rows, size_t cols,
                     bool accumulate) {
  size_t part = 32, parts = (cols + part - 1) / part;
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t p = 0; p < parts; p++) {
    size_t c = p * part, n = cols - c < part ? cols - c : part;
    float total[32];
    sum_columns(total, x + c, rows, cols, n);
    for (size_t i = 0; i < n; i++) sum[c + i] = (accumulate ? sum[c + i] : 0) + total[i];
  }
}
