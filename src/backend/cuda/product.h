/* Matrix products through cuBLASLt, summed in fp32. For each shape the candidates
 * of the library's heuristic are timed once, and the choice is kept. Depends on
 * plans, kernels (column sums). */
#ifndef BACKEND_CUDA_PRODUCT_H
#define BACKEND_CUDA_PRODUCT_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/plans.h"
#include "backend/type.h"

#define PRODUCT_WORK ((size_t)64 << 20) /* bytes of scratch memory */

/* Has the library fp8 products with a scale for each row? */
#define PRODUCT_FP8 (CUBLAS_VERSION >= 120900)

typedef enum {
  PRODUCT_Y,  /* y (rows, out) = x · wᵀ + bias */
  PRODUCT_DX, /* dx (rows, in) = dy · w */
  PRODUCT_DW, /* dw (out, in) = dyᵀ · x, in fp32; dbias = column sums of dy */
} ProductKind;

typedef struct {
  ProductKind kind;
  size_t rows, in, out;
  void *result;
  const void *x, *w, *dy; /* the two that the kind names; rows contiguous */
  const void *bias;       /* (out) or NULL */
  float *dbias;           /* (out) or NULL */
  bool add;               /* dx, dw and dbias: to what is there */
  const Fp8 *fp8;         /* y, dx: the operands in fp8 take the place of x, w, dy; or NULL */
} Product;

typedef struct {
  cublasLtHandle_t lt;
  cudaStream_t stream;
  Type type;
  bool tf32;
  void *work;   /* PRODUCT_WORK bytes, shared with the kernels of the stream */
  float *bias;  /* where a fused product leaves the bias's gradient */
  bool settled; /* nothing new may be timed: the stream is being recorded */
  Plans plans;
  /* Called before an algorithm is timed: waits for other work on this GPU (NCCL); or NULL. */
  Err (*quiesce)(void *context);
  void *quiesce_context;
} Products;

/* The stream and `work` are the caller's. */
NODISCARD Err products_open(Products *p, cudaStream_t stream, Type type, bool tf32, void *work,
                            const char *gpu);
void products_close(Products *p);
/* Queues the product. The first of a shape also waits for the timing. */
NODISCARD Err products_run(Products *p, const Product *x);

#endif
