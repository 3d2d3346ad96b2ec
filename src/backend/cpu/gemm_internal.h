/* What gemm.c and the kernels share. A kernel multiplies packed panels: A in
 * slices of `mr` rows, B in slices of `nr` columns, both k-major within. */
#ifndef BACKEND_CPU_GEMM_INTERNAL_H
#define BACKEND_CPU_GEMM_INTERNAL_H

#include "backend/cpu/gemm.h"

typedef struct {
  size_t mr, nr; /* rows and columns of a tile */
  size_t mc, kc,
      nc;         /* block sizes: mc * kc of A in the second cache, kc * nc of B in the third */
  size_t k_unit;  /* kc is padded to a multiple of it */
  size_t element; /* bytes of a packed element */
  /* Packs rows i0 … of op(A), columns p0 …, into slices; pads with zeros. */
  void (*pack_a)(void *out, const Gemm *g, size_t i0, size_t rows, size_t p0, size_t depth);
  void (*pack_b)(void *out, const Gemm *g, size_t j0, size_t cols, size_t p0, size_t depth);
  /* tile (mr, nr) = slice of A · slice of B over `depth`; ld is the tile's row step. */
  void (*tile)(size_t depth, const void *a, const void *b, float *c, size_t ldc, bool add);
  /* The same for the first few_rows rows alone, or 0 and NULL. */
  size_t few_rows;
  void (*few)(size_t depth, const void *a, const void *b, float *c, size_t ldc, bool add);
} GemmKernel;

extern const GemmKernel gemm_amx; /* use it only when gemm_amx_usable() */
bool gemm_amx_usable(void);
extern const GemmKernel gemm_bfmmla; /* use it only where the processor has BFMMLA */
/* Which kernels gemm() uses; bf16 may be NULL. */
void gemm_use(const GemmKernel *f32, const GemmKernel *bf16);

#endif
