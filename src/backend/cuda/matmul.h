/* GEMMs through cuBLASLt, accumulated in fp32. For each new shape the algorithms that
 * cuBLASLt's heuristic proposes are timed once; the fastest is stored (algo_cache.h). Depends
 * on algo_shared.h, kernels.h (column sums). */
#ifndef BACKEND_CUDA_MATMUL_H
#define BACKEND_CUDA_MATMUL_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "backend/cuda/algo_shared.h"
#include "backend/cuda/kernels.h"
#include "backend/type.h"

#define MATMUL_WORK ((size_t)64 << 20) /* bytes of workspace for cuBLASLt */

/* Many algorithms of cuBLASLt use their workspace only for a tile counter of four bytes. cuBLASLt
 * enqueues a memset of the counter before each GEMM, which takes 4 us in a graph. Therefore each
 * GEMM of a graph has a counter of its own. One memset zeroes all counters, and graph_end
 * removes the memsets of cuBLASLt. */
#define MATMUL_COUNTERS      1024 /* GEMMs of a graph that can have a counter of their own */
#define MATMUL_COUNTER_BYTES 256  /* bytes per counter; keeps each aligned as by cudaMalloc */

/* True if the headers of cuBLASLt have fp8 GEMMs with one scale per row. */
#define MATMUL_HAS_ROW_SCALES (CUBLAS_VERSION >= 120900)

/* Which scales the fp8 operands of a GEMM have. Preferred are those per row, which cuBLASLt has
 * for Hopper; those per tensor it has from compute capability 8.9 on. */
typedef enum { FP8_ROW_SCALES, FP8_TENSOR_SCALES } Fp8Scales;

typedef enum {
  MATMUL_FPROP, /* y (rows, out) = x · wᵀ + bias */
  MATMUL_DGRAD, /* dx (rows, in) = dy · w */
  MATMUL_WGRAD, /* dw (out, in) = dyᵀ · x, in fp32; dbias = column sums of dy */
} MatmulKind;

typedef struct {
  MatmulKind kind;
  size_t rows, in, out;
  void *result;
  const void *x, *w, *dy; /* the two operands of this kind of GEMM; row-major */
  const void *bias;       /* bias (out) or NULL */
  bool relu;              /* forward: y = max(0, x · wᵀ + bias) */
  float *dbias;           /* bias gradient (out) or NULL */
  bool accumulate;        /* adds to dx, dw and dbias instead of overwriting them */
  const Fp8 *fp8; /* forward and dgrad: operands in fp8, used instead of x, w, dy; or NULL */
} Matmul;

typedef struct {
  cublasLtHandle_t lt;
  cudaStream_t stream;
  Type type;
  bool tf32;
  Fp8Scales scales;     /* of GEMMs with fp8 operands */
  void *work;           /* MATMUL_WORK bytes, shared with the kernels of the stream */
  float *bias;          /* buffer for the bias gradient of a fused GEMM */
  bool is_capturing;    /* The stream is being captured, so no shape can be timed. */
  char *counters;       /* MATMUL_COUNTERS of MATMUL_COUNTER_BYTES each */
  size_t counters_used; /* in the current capture */
  AlgoShared *shared;
  bool owns_shared; /* This is the first stream of the GPU, which is closed last. */
  /* Called before algorithms are timed: blocks until NCCL is idle on this GPU; NULL: no NCCL. */
  Err (*quiesce)(void *context);
  void *quiesce_context;
  int sms;          /* SMs of the GPU */
  int reserved_sms; /* how many of them dgrad and wgrad leave to NCCL */
} MatmulContext;

/* Returns for how many SMs algorithms of this kind are chosen, at least half of them; 0: all. */
static inline int matmul_sm_target(const MatmulContext *p, MatmulKind kind) {
  int most = p->sms / 2;
  if (kind == MATMUL_FPROP || p->reserved_sms == 0) return 0;
  return p->sms - (p->reserved_sms < most ? p->reserved_sms : most);
}

/* Opens cuBLASLt and reads the algorithm cache of `gpu`. The caller owns the stream and `work`. */
NODISCARD Err matmul_open(MatmulContext *p, cudaStream_t stream, Type type, bool tf32,
                          void *work, const char *gpu);
/* Opens cuBLASLt for another stream of the GPU of `first`, which must be closed after it. */
NODISCARD Err matmul_join(MatmulContext *p, const MatmulContext *first, cudaStream_t stream,
                          void *work);
/* Asks cuBLASLt's heuristic which scales fp8 GEMMs may have on this GPU, and sets p->scales; fails
 * if it has no fp8 GEMMs. The variable TRIREME_FP8_SCALES (row, tensor) overrides the choice.
 * capability: compute capability of the GPU times 10, for the message. */
NODISCARD Err matmul_choose_scales(MatmulContext *p, const char *gpu, int capability);
void matmul_close(MatmulContext *p);
/* Call these when the capture of a graph begins and ends. */
void matmul_begin_capture(MatmulContext *p);
void matmul_end_capture(MatmulContext *p);
/* Returns the number of the counter that contains the `bytes` bytes at `at`, or MATMUL_COUNTERS if
 * none does. */
size_t matmul_find_counter(const MatmulContext *p, const void *at, size_t bytes);
/* Enqueues the GEMM. The first call with a shape blocks while algorithms are timed. */
NODISCARD Err matmul_run(MatmulContext *p, const Matmul *x);

#endif
