/* The state of an open GPU: streams, scratch memory, staging buffers for host-to-device copies.
 * Depends on the CUDA runtime, matmul.h. */
#ifndef BACKEND_CUDA_MEMORY_H
#define BACKEND_CUDA_MEMORY_H

#include "backend/backend.h"
#include "backend/cuda/matmul.h"

#define STAGES      4
#define STAGE_BYTES ((size_t)4 << 20)
/* maximum bytes that are copied without the copy stream: the arguments of a decoding step */
#define DIRECT_BYTES ((size_t)128 << 10)

/* A staging buffer of Backend.put: the data is copied to pinned memory, then on the copy stream
 * to the device while the compute stream is busy, then on the compute stream to its
 * destination. */
typedef struct {
  /* staging memory of STAGE_BYTES each, on the host and on the device */
  char *host, *device;
  cudaEvent_t there, free; /* events: the data is on the device; the buffer may be reused */
} Stage;

/* Scratch memory that grows to the largest request. */
typedef struct {
  void *at;
  size_t bytes;
} Scratch;

/* Scratch memory that became too small but is still used by captured graphs. */
typedef struct Outgrown {
  void *at;
  struct Outgrown *next;
} Outgrown;

/* The array whose fp8 rows the scratch memory of fp8 operands contains (kernel_fp8_rows):
 * `rows` rows of n elements in bf16. of NULL: none. Forgotten by the next operation that
 * might write the array or the scratch memory: the next call of cuda_of, growth of scratch
 * memory, the join of a collective, a GEMM. A weight gradient or a copy forgets it only if it
 * overwrites the array. */
typedef struct {
  const void *of;
  size_t rows, n;
} Converted;

typedef struct {
  cudaStream_t stream, copies; /* compute stream; stream of host-to-device copies */
  Type type;
  MatmulContext matmul;
  /* scratch memory of kernels and GEMMs, shared by all operations of the stream */
  Scratch work;
  Scratch sorted;         /* sorted token ids of an embedding, and their rows */
  Scratch sums;           /* scratch memory for sums of squares */
  Scratch fp8;            /* scratch memory for fp8 operands of a GEMM */
  Scratch loss;           /* what linear_loss keeps during its GEMMs */
  unsigned *tile_counter; /* of kernel_linear_relu_backward */
  Converted converted;
  Stage stage[STAGES];
  size_t next_stage;  /* number of the next staging buffer, modulo STAGES */
  cudaEvent_t *stamp; /* (stamps) events of Backend.stamp */
  size_t stamps, stamp_cap;
  bool is_capturing; /* true between graph_begin and graph_end */
  /* number of captured graphs that are not freed; they refer to scratch memory */
  size_t graphs;
  Outgrown *outgrown;
  char gpu[256];    /* name of the GPU, for messages and the GEMM algorithm cache */
  ErrRecord failed; /* the first error; returned by get and sync */
} Cuda;

/* Returns the state for an operation that may write arrays: forgets `converted`, which such an
 * operation may make stale. cuda_peek does not. */
Cuda *cuda_of(const Backend *b);
Cuda *cuda_peek(const Backend *b);
/* Forgets `converted` if its array shares memory with the `bytes` bytes at `at`. */
void cuda_forget_overwritten(Cuda *c, const void *at, size_t bytes);
/* Stores the error of `e` if it is the first one; `what` names the action that failed. */
void cuda_note(Cuda *c, const char *what, cudaError_t e);
void cuda_note_err(Cuda *c, Err err);
/* Returns true if a graph is being captured, and stores the error that `what` is not allowed
 * then. */
bool cuda_refuses(Cuda *c, const char *what);
/* Returns at least `bytes` bytes, valid until the next call with the same Scratch; or NULL after
 * storing the error. Blocks if the memory has to grow. */
void *cuda_scratch(Cuda *c, Scratch *s, size_t bytes);
NODISCARD Err cuda_open_memory(Cuda *c);
void cuda_close_memory(Cuda *c);
void cuda_fill_memory(Backend *b); /* Sets the memory operations of `b`. */

#endif
