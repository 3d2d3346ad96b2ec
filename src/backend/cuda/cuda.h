/* The entry point of the plug-in libtrireme-cuda.so, which backend.c looks up by name.
 * Depends on backend.h. */
#ifndef BACKEND_CUDA_H
#define BACKEND_CUDA_H

#include "backend/backend.h"

typedef struct {
  size_t table; /* sizeof(Backend) in the program; the plug-in compares it with its own */
  int device;   /* index of the GPU */
  bool any;     /* take `device` modulo the number of GPUs */
  Type type;
  bool tf32; /* rounds the operands of fp32 GEMMs to tf32 */
  bool fp8;  /* rounds the operands of large bf16 GEMMs to fp8 */
} CudaSpec;

typedef Err CudaOpen(Backend *backend, const CudaSpec *spec);

/* Opens the GPU. Returns ERR_WORK if it is not available, ERR_USAGE if it does not support the
 * element type. */
NODISCARD Err trireme_backend_cuda(Backend *backend, const CudaSpec *spec);

#endif
