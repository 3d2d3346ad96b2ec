/* Interface between gemm.c (blocking, threads) and the micro-kernels. A micro-kernel multiplies
 * packed panels: A in slices of `mr` rows, B in slices of `nr` columns, both k-major within a
 * slice. Depends on gemm.h. */
#ifndef BACKEND_CPU_GEMM_INTERNAL_H
#define BACKEND_CPU_GEMM_INTERNAL_H

#include "backend/cpu/gemm.h"

typedef struct {
  size_t mr, nr; /* rows and columns of a tile of C */
  /* Block sizes: mc * kc elements of A stay in the L2 cache, kc * nc elements of B in the L3
   * cache. */
  size_t mc, kc, nc;
  size_t k_unit;  /* kc is padded to a multiple of k_unit */
  size_t element; /* bytes of a packed element */
  /* Packs `rows` rows of op(A) beginning at i0, or `cols` columns of op(B) beginning at j0, over
   * `depth` elements of k beginning at p0; incomplete slices are padded with zeros. */
  void (*pack_a)(void *out, const Gemm *g, size_t i0, size_t rows, size_t p0, size_t depth);
  void (*pack_b)(void *out, const Gemm *g, size_t j0, size_t cols, size_t p0, size_t depth);
  /* c (mr, nr) = slice of A · slice of B over `depth`, + c if `add`. */
  void (*tile)(size_t depth, const void *a, const void *b, float *c, size_t ldc, bool add);
  /* Like `tile`, for the first few_rows rows of a slice only; 0 and NULL if the kernel has no
   * such function. */
  size_t few_rows;
  void (*few)(size_t depth, const void *a, const void *b, float *c, size_t ldc, bool add);
  /* Adds bias (cols) to each row of c (rows, cols). NULL: gemm.c does it. */
  void (*add_bias)(float *c, size_t ldc, const float *bias, size_t rows, size_t cols);
} GemmKernel;

/* Return the addresses of element (i, p) of op(A) and of element (p, j) of op(B), for packing. */
static inline const float *gemm_a_at(const Gemm *g, size_t i, size_t p) {
  return g->ta ? g->a + p * g->lda + i : g->a + i * g->lda + p;
}
static inline const float *gemm_b_at(const Gemm *g, size_t p, size_t j) {
  return g->tb ? g->b + j * g->ldb + p : g->b + p * g->ldb + j;
}

extern const GemmKernel gemm_amx; /* Use gemm_amx only if gemm_amx_usable() returns true. */
bool gemm_amx_usable(void);
extern const GemmKernel gemm_amx_f32; /* Likewise. */
/* Executes products of AMX tiles without memory; returns their fp32 FLOPs as gemm_amx_f32 counts them. */
double gemm_amx_f32_peak(size_t rounds);
extern const GemmKernel gemm_bfmmla; /* Use gemm_bfmmla only if the CPU supports BFMMLA. */
/* The kernels that gemm() uses. few_rows: for Gemm.few_rows, or NULL to use f32; bf16 or NULL. */
typedef struct {
  const GemmKernel *f32, *few_rows, *bf16;
} GemmKernels;
void gemm_use(GemmKernels kernels);

#endif
