/* The GEMM algorithms that all streams of a GPU in one process share, so that equal shapes have
 * equal bits in all. Algorithms are timed while no stream has other GEMMs or graphs to run. Any
 * thread may call the functions. Depends on algo_cache.h, the CUDA runtime. */
#ifndef BACKEND_CUDA_ALGO_SHARED_H
#define BACKEND_CUDA_ALGO_SHARED_H

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "backend/cuda/algo_cache.h"

#define ALGO_STREAMS 8 /* maximum number of streams of a GPU in one process */

typedef struct {
  /* Held for reading while a GEMM or a graph is launched and while a graph is captured: another
   * thread must not synchronize with a stream that is being captured. Held for writing while
   * algorithms are timed. */
  pthread_rwlock_t lock;
  AlgoCache cache;
  cudaStream_t stream[ALGO_STREAMS];
  size_t streams;
} AlgoShared;

/* Reads the algorithms for this GPU and version of cuBLASLt; see algo_cache_open. */
NODISCARD Err algo_shared_new(AlgoShared **shared, const char *gpu, size_t version);
void algo_shared_free(AlgoShared *shared);
NODISCARD Err algo_shared_add_stream(AlgoShared *shared, cudaStream_t stream);
void algo_shared_remove_stream(AlgoShared *shared, cudaStream_t stream);

/* Begin and end a launch or a capture. Between the two no thread times algorithms. A thread
 * must not begin twice: it would wait for a thread that waits for it. */
void algo_shared_begin_use(AlgoShared *shared);
void algo_shared_end_use(AlgoShared *shared);
/* Begin and end the timing of algorithms. Begin blocks until no other thread launches or
 * captures; what was launched may still run. */
void algo_shared_begin_timing(AlgoShared *shared);
void algo_shared_end_timing(AlgoShared *shared);
/* Blocks until all streams are idle. Call it between begin_timing and end_timing. */
NODISCARD cudaError_t algo_shared_wait(const AlgoShared *shared);

#endif
