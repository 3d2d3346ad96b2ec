/* Column sums for the CPU backend: the gradient of a bias is the sum of its layer's output
 * gradients over all tokens. Depends on fast/fast.h. */
#include <string.h>

#include "backend/cpu/fast/fast.h"

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

#define GROUP 32  /* columns whose sums are in registers */
#define PART  256 /* largest number of columns of a thread's part */
#define BLOCK \
  32 /* rows that are read at once, so that all columns of a part are read together */

/* Adds n <= GROUP columns of x over `rows` rows to `total`; `ld`: elements between the starts of two
 * rows. */
static void add_columns(float *total, const float *x, size_t rows, size_t ld, size_t n) {
  if (n < GROUP) {
    for (size_t r = 0; r < rows; r++) {
      for (size_t i = 0; i < n; i++) total[i] += x[r * ld + i];
    }
    return;
  }
  Four sum[GROUP / 4];
  memcpy(sum, total, sizeof sum);
  for (size_t r = 0; r < rows; r++, x += ld) {
#pragma GCC unroll 8
    for (int i = 0; i < GROUP / 4; i++) sum[i] += *(const Four *)(x + 4 * i);
  }
  memcpy(total, sum, sizeof sum);
}

/* Sums n <= PART columns. Every column is added in the order of the rows. */
static void sum_columns(float *total, const float *x, size_t rows, size_t ld, size_t n) {
  memset(total, 0, n * sizeof *total);
  for (size_t r = 0; r < rows; r += BLOCK) {
    size_t height = rows - r < BLOCK ? rows - r : BLOCK;
    for (size_t c = 0; c < n; c += GROUP)
      add_columns(total + c, x + r * ld + c, height, ld, n - c < GROUP ? n - c : GROUP);
  }
}

/* Returns the columns of a part: about cols / threads, in groups. */
static size_t choose_part(size_t cols, size_t threads) {
  size_t part = (cols / threads + GROUP - 1) / GROUP * GROUP;
  if (part > PART) return PART;
  return part ? part : GROUP;
}

void cpu_column_sums(const Backend *b, float *sum, const float *x, size_t rows, size_t cols,
                     bool accumulate) {
  size_t part = choose_part(cols, (size_t)b->threads), parts = (cols + part - 1) / part;
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t p = 0; p < parts; p++) {
    size_t c = p * part, n = cols - c < part ? cols - c : part;
    float total[PART];
    sum_columns(total, x + c, rows, cols, n);
    for (size_t i = 0; i < n; i++) sum[c + i] = (accumulate ? sum[c + i] : 0) + total[i];
  }
}
