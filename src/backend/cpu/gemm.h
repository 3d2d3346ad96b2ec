/* Matrix products on the CPU: packed, blocked, with an epilogue on each finished
 * tile while it is in the nearest cache. The order of every sum is fixed by the
 * shape, so results do not depend on the number of threads. Relies on base. */
#ifndef BACKEND_CPU_GEMM_H
#define BACKEND_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* C (m, n) = op(A) (m, k) · op(B) (k, n), rows contiguous; a transposed operand is
 * stored the other way round. Then, in this order: + C if accumulate, + bias. */
typedef struct {
  size_t m, n, k;
  const float *a, *b;
  size_t lda, ldb, ldc; /* elements from row to row as stored */
  bool ta, tb;
  float *c;
  bool accumulate;
  const float *bias;  /* (n) or NULL */
  bool bf16;          /* round the operands to bf16 where the machine has such units */
  const void *packed; /* B as gemm_pack left it, or NULL */
} Gemm;

void gemm(const Gemm *g);

/* Lays B out once for many products: n, k, b, ldb, tb and bf16 of `g` count. The
 * products have the same bits as without. */
size_t gemm_packed_bytes(const Gemm *g);
void gemm_pack(void *out, const Gemm *g);

/* Takes the working memory for `threads` threads now, so that no call does later. */
NODISCARD Err gemm_reserve(int threads);

#endif
