/* A GPU as the plug-in holds it: streams, scratch memory, the way in and out.
 * Depends on the CUDA runtime, product. */
#ifndef BACKEND_CUDA_MEMORY_H
#define BACKEND_CUDA_MEMORY_H

#include "backend/backend.h"
#include "backend/cuda/product.h"

#define STAGES      4
#define STAGE_BYTES ((size_t)4 << 20)

/* A piece on its way to the GPU: from pinned memory on the copies' stream, while
 * the compute stream is still busy; then to its place in that stream's order. */
typedef struct {
  char *host, *device;
  cudaEvent_t there, free;
} Stage;

/* Scratch memory that grows to what was asked of it. */
typedef struct {
  void *at;
  size_t bytes;
} Scratch;

/* Scratch memory that became too small while recordings may still name it. */
typedef struct Outgrown {
  void *at;
  struct Outgrown *next;
} Outgrown;

typedef struct {
  cudaStream_t stream, copies;
  Type type;
  Products products;
  Scratch work;   /* of kernels and products, one after the other */
  Scratch sorted; /* ids of an embedding and their rows */
  Scratch sums;   /* of squares */
  Scratch fp8;    /* operands of a product */
  Stage stage[STAGES];
  cudaEvent_t *stamp; /* (stamps) points in the stream's order */
  size_t stamps, stamp_cap;
  size_t turn;
  bool recording;    /* between record and recorded */
  size_t recordings; /* there are, which name scratch memory */
  Outgrown *outgrown;
  char gpu[256];
  ErrRecord failed; /* the first thing that went wrong; told by get and sync */
} Cuda;

Cuda *cuda_of(const Backend *b);
/* Notes that a queued operation failed, if it did. */
void cuda_note(Cuda *c, const char *what, cudaError_t e);
void cuda_note_err(Cuda *c, Err err);
/* Notes that `what` cannot be recorded, and is true, while that is asked for. */
bool cuda_refuses(Cuda *c, const char *what);
/* At least so many bytes, or NULL, noted. */
void *cuda_scratch(Cuda *c, Scratch *s, size_t bytes);
NODISCARD Err cuda_open_memory(Cuda *c);
void cuda_close_memory(Cuda *c);
void cuda_memory(Backend *b); /* fills that part of the table */

#endif
