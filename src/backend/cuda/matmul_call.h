/* The calls of cuBLASLt for a GEMM. Depends on matmul.h. */
#ifndef BACKEND_CUDA_MATMUL_CALL_H
#define BACKEND_CUDA_MATMUL_CALL_H

#include <stdint.h>

#include "backend/cuda/matmul.h"

/* maximum width of a fused bias gradient */
#define MATMUL_MAX_BIAS ((size_t)1 << 16)

/* Arguments of cublasLtMatmul except the algorithm. */
typedef struct {
  cublasLtMatmulDescOpaque_t how;
  cublasLtMatrixLayoutOpaque_t a, b, c;
  const void *pa, *pb;
  void *pc;
  float beta;
} MatmulCall;

/* Returns true if cuBLASLt can use its fastest algorithms with an array at this address. */
static inline bool matmul_is_aligned(const void *pointer) {
  return (uintptr_t)pointer % 16 == 0;
}

static inline bool matmul_has_aligned_arrays(const Matmul *x) {
  return matmul_is_aligned(x->result) && matmul_is_aligned(x->x) && matmul_is_aligned(x->w) &&
         matmul_is_aligned(x->dy) && matmul_is_aligned(x->bias);
}

/* Sets *c to the description of the GEMM x. fused: its epilogue computes the bias gradient. */
cublasStatus_t matmul_describe(const MatmulContext *p, const Matmul *x, bool fused,
                               MatmulCall *c);
/* Returns the address to which a fused GEMM writes the bias gradient: dbias or, if the GEMM
 * accumulates or dbias is not aligned, a buffer, because the epilogue of cuBLASLt supports
 * neither. The caller then moves the result to dbias. */
float *matmul_bias_grad_target(const MatmulContext *p, const Matmul *x);
/* Requests up to `max` algorithms from the heuristic, the best guess first. Returns the number
 * found; 0 is not an error. */
int matmul_query_heuristic(const MatmulContext *p, const Matmul *x, MatmulCall *c, int max,
                           cublasLtMatmulHeuristicResult_t *found);
/* Returns true if the algorithm uses its workspace for a tile counter only. */
bool matmul_needs_counter(const MatmulContext *p, MatmulCall *c,
                          const cublasLtMatmulAlgo_t *algorithm);
/* Enqueues the GEMM with one algorithm, and what the bias gradient needs besides it. */
NODISCARD Err matmul_enqueue(MatmulContext *p, const Matmul *x, MatmulCall *c, bool fused,
                             const cublasLtMatmulAlgo_t *algorithm);
/* Returns the error of a failed cuBLASLt call; `what` names the action that failed. */
NODISCARD Err matmul_report_failure(const char *what, const Matmul *x, cublasStatus_t status);

#endif
