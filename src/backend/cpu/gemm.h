/* GEMM on the CPU: operands are packed and blocked for the caches; the bias is added to each
 * finished tile while it is in L1. The shape alone fixes the order of every sum, so results do
 * not depend on the number of threads. Depends on base. */
#ifndef BACKEND_CPU_GEMM_H
#define BACKEND_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* C (m, n) = op(A) (m, k) · op(B) (k, n) [+ C if accumulate] [+ bias], row-major. op transposes
 * if ta or tb: A is then stored as (k, m), B as (n, k). */
typedef struct {
  size_t m, n, k;
  const float *a, *b;
  size_t lda, ldb, ldc; /* elements from one stored row to the next */
  bool ta, tb;
  float *c;
  bool accumulate;
  const float *bias;  /* (n) or NULL */
  bool bf16;          /* round the operands to bf16 where the CPU has units for it */
  const void *packed; /* B as gemm_pack wrote it, or NULL */
} Gemm;

void gemm(const Gemm *g);

/* Packs B once for many GEMMs, which give the same bits as without. Reads n, k, b, ldb, tb and
 * bf16 of `g`. `out` has gemm_packed_bytes(g) bytes and belongs to the caller. */
size_t gemm_packed_bytes(const Gemm *g);
void gemm_pack(void *out, const Gemm *g);

/* Allocates the working memory of `threads` threads, so that gemm() allocates nothing. */
NODISCARD Err gemm_reserve(int threads);

#endif
