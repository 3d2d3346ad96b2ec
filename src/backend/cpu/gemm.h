/* GEMM on the CPU: operands are packed and blocked for the caches; the bias is added to each
 * finished tile while the tile is in L1. The order of every sum depends only on the shape, so
 * results do not depend on the number of threads. Depends on base. */
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
  size_t lda, ldb, ldc; /* elements between the starts of two stored rows */
  bool ta, tb;
  float *c;
  bool accumulate;
  const float *bias;  /* bias (n) or NULL */
  bool bf16;          /* rounds the operands to bf16 if the CPU has bf16 matrix units */
  bool few_rows;      /* selects the fp32 kernel that is fast with few rows of A */
  const void *packed; /* B as packed by gemm_pack, or NULL */
} Gemm;

void gemm(const Gemm *g);

/* Packs B once for many GEMMs; these give the same bits as without packing. Reads n, k, b, ldb,
 * tb, bf16 and few_rows of `g`. `out` has gemm_packed_bytes(g) bytes and belongs to the caller. */
size_t gemm_packed_bytes(const Gemm *g);
void gemm_pack(void *out, const Gemm *g);

/* Allocates the working memory of `threads` threads, so that gemm() does not allocate. */
NODISCARD Err gemm_reserve(int threads);

#endif
