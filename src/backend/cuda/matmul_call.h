/* The arguments of a call of cuBLASLt for a GEMM. Depends on matmul.h. */
#ifndef BACKEND_CUDA_MATMUL_CALL_H
#define BACKEND_CUDA_MATMUL_CALL_H

#include <stdint.h>

#include "backend/cuda/matmul.h"

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

/* Sets *c to the description of the GEMM x. fused: its epilogue computes the bias gradient. */
cublasStatus_t matmul_describe(const MatmulContext *p, const Matmul *x, bool fused,
                               MatmulCall *c);
/* Returns the address to which a fused GEMM writes the bias gradient: dbias or, if the GEMM
 * accumulates or dbias is not aligned, a buffer, because the epilogue of cuBLASLt supports
 * neither. The caller then moves the result to dbias. */
float *matmul_bias_grad_target(const MatmulContext *p, const Matmul *x);

#endif
