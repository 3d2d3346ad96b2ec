/* The product's nccl.c with fake GPUs: this file provides what it uses of the CUDA backend. Fake
 * GPUs compute when they are called, not on a stream, so `join` waits on the host; what was
 * computed before a collective is complete when the collective is enqueued.
 * Depends on nccl.c, fake_runtime.c. */
#include <stdlib.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/nccl.h"
#include "comm/add.h"

const DeviceCommOps *fake_nccl(void);

static Cuda cuda;

Cuda *cuda_of(const Backend *b) {
  (void)b;
  if (!cuda.stream)
    cuda_note(&cuda, "a stream", cudaStreamCreateWithPriority(&cuda.stream, 0, 0));
  return &cuda;
}

void cuda_note_err(Cuda *c, Err err) {
  if (err && !c->failed.code) c->failed = err_take(err);
}

void cuda_note(Cuda *c, const char *what, cudaError_t e) {
  if (e) cuda_note_err(c, err_set(ERR_WORK, "%s failed: %s", what, cudaGetErrorString(e)));
}

typedef struct {
  float *x;
  uint16_t *low;
  size_t n;
} Cast;

static void run_cast_to(void *context) {
  Cast *c = context;
  bf16_of_floats(c->low, c->x, c->n);
  free(c);
}

static void run_cast_from(void *context) {
  Cast *c = context;
  floats_of_bf16(c->x, c->low, c->n);
  free(c);
}

static cudaError_t enqueue_cast(Cast cast, cudaHostFn_t run, cudaStream_t stream) {
  Cast *c = malloc(sizeof *c);
  if (!c) return cudaErrorMemoryAllocation;
  *c = cast;
  return cudaLaunchHostFunc(stream, run, c);
}

cudaError_t kernel_cast_to(Type type, void *low, const float *x, size_t n, cudaStream_t s) {
  (void)type;
  /* Cast away const: run_cast_to does not write to it. */
  return enqueue_cast((Cast){(float *)(uintptr_t)x, low, n}, run_cast_to, s);
}

cudaError_t kernel_cast_from(Type type, float *x, const void *low, size_t n, cudaStream_t s) {
  (void)type;
  return enqueue_cast((Cast){x, (uint16_t *)(uintptr_t)low, n}, run_cast_from, s);
}

static void join_on_host(DeviceComm *w) {
  nccl_comm.join(w);
  cuda_note(&cuda, "a collective", cudaStreamSynchronize(cuda.stream));
}

const DeviceCommOps *fake_nccl(void) {
  static DeviceCommOps ops;
  ops = nccl_comm;
  ops.join = join_on_host;
  return &ops;
}
