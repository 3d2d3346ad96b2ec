/* Selects the algorithm of a GEMM by timing. Depends on matmul.h. */
#ifndef BACKEND_CUDA_MATMUL_TIME_H
#define BACKEND_CUDA_MATMUL_TIME_H

#include "backend/cuda/matmul.h"

typedef struct {
  cublasLtMatmulAlgo_t algorithm;
  bool fused; /* the epilogue computes the bias gradient */
} MatmulChoice;

/* Times the algorithms for x and sets *out to the fastest. Blocks until all streams of the GPU are
 * idle. The caller is between algo_shared_begin_timing and algo_shared_end_timing. */
NODISCARD Err matmul_choose(MatmulContext *p, const Matmul *x, MatmulChoice *out);

#endif
