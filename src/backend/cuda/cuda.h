/* The one entry of the plug-in libtrireme-cuda.so, which backend.c finds by name.
 * Depends on backend. */
#ifndef BACKEND_CUDA_H
#define BACKEND_CUDA_H

#include "backend/backend.h"

typedef struct {
  size_t table; /* sizeof(Backend) as the program knows it */
  int device;
  bool any; /* or, where there are fewer, counted round */
  Type type;
  bool tf32; /* round the operands of fp32 products to tf32 */
  bool fp8;  /* round those of large bf16 products to fp8 */
} CudaSpec;

typedef Err CudaOpen(Backend *backend, const CudaSpec *spec);

/* ERR_WORK: there is no GPU to be had here; ERR_USAGE: not with this type. */
NODISCARD Err trireme_backend_cuda(Backend *backend, const CudaSpec *spec);

#endif
