/* GPU memory: allocation, copies, scratch memory, timestamps, and the deferred error.
 * Depends on the CUDA runtime. */
#include "backend/cuda/memory.h"

#include <string.h>

#include "backend/cuda/kernels.h"
#include "base/mem.h"

Cuda *cuda_peek(const Backend *b) {
  return b->state;
}

Cuda *cuda_of(const Backend *b) {
  Cuda *c = cuda_peek(b);
  c->converted.of = NULL;
  return c;
}

void cuda_forget_overwritten(Cuda *c, const void *at, size_t bytes) {
  const Converted *is = &c->converted;
  uintptr_t begin = (uintptr_t)is->of, from = (uintptr_t)at;
  size_t size = is->rows * is->n * type_size(TYPE_BF16);
  if (begin < from + bytes && from < begin + size) c->converted.of = NULL;
}

static Err report_failure(const Cuda *c, const char *what, cudaError_t e) {
  const char *remedy = e == cudaErrorMemoryAllocation
                           ? "lower --batch-tokens or end other programs on it"
                           : "to see where, run again with CUDA_LAUNCH_BLOCKING=1";
  return err_set(ERR_WORK, "%s failed in %s: %s; %s", c->gpu, what, cudaGetErrorString(e),
                 remedy);
}

void cuda_note_err(Cuda *c, Err err) {
  if (err && !c->failed.code) c->failed = err_take(err);
}

void cuda_note(Cuda *c, const char *what, cudaError_t e) {
  if (e && !c->failed.code) cuda_note_err(c, report_failure(c, what, e));
}

static void free_scratch(Scratch *s) {
  cudaFree(s->at);
  *s = (Scratch){0};
}

bool cuda_refuses(Cuda *c, const char *what) {
  if (c->is_capturing)
    cuda_note_err(c, err_set(ERR_WORK,
                             "bug: %s is not allowed while a CUDA graph is captured; set "
                             "TRIREME_GRAPH=0 and report it",
                             what));
  return c->is_capturing;
}

/* Frees scratch memory that is too small, or keeps it until the backend is closed if captured
 * graphs may use it. */
static void retire_scratch(Cuda *c, Scratch *s) {
  Outgrown *old = NULL;
  if (!c->graphs || !s->at) {
    free_scratch(s);
    return;
  }
  cuda_note_err(c, mem_alloc(&old, 1, sizeof *old));
  if (old) {
    *old = (Outgrown){s->at, c->outgrown};
    c->outgrown = old;
  }
  /* If `old` could not be allocated, the memory leaks; freeing it would make graphs use freed
   * memory. */
  *s = (Scratch){0};
}

void *cuda_scratch(Cuda *c, Scratch *s, size_t bytes) {
  if (bytes <= s->bytes) return s->at;
  if (cuda_refuses(c, "allocating working memory")) return NULL;
  /* The new memory does not contain the fp8 rows, even if it has the address of the old. */
  c->converted.of = NULL;
  /* Kernels may still use the old memory. */
  cuda_note(c, "waiting for the GPU", cudaStreamSynchronize(c->stream));
  retire_scratch(c, s);
  cudaError_t e = cudaMalloc(&s->at, bytes);
  cuda_note(c, "allocating memory", e);
  if (e) {
    *s = (Scratch){0};
    return NULL;
  }
  s->bytes = bytes;
  return s->at;
}

static Err alloc(const Backend *b, void *pointer, size_t bytes) {
  Cuda *c = cuda_of(b);
  void *block = NULL;
  size_t left = 0, all = 0;
  memset(pointer, 0, sizeof block);
  if (cuda_refuses(c, "alloc")) return err_give(&c->failed);
  cudaError_t e = cudaMalloc(&block, bytes ? bytes : 1);
  if (!e) e = cudaMemsetAsync(block, 0, bytes, c->stream);
  if (e) {
    cudaFree(block);
    block = NULL;
  }
  memcpy(pointer, &block, sizeof block);
  if (!e) return ERR_OK;
  cudaMemGetInfo(&left, &all);
  (void)cudaGetLastError();
  return err_set(ERR_WORK,
                 "%s: cannot allocate %.2f GB (%s); %.2f of its %.2f GB are free: lower "
                 "--batch-tokens or end other programs on it",
                 c->gpu, (double)bytes / 1e9, cudaGetErrorString(e), (double)left / 1e9,
                 (double)all / 1e9);
}

static Err memory(const Backend *b, uint64_t *left, uint64_t *all) {
  size_t bytes = 0, total = 0;
  cudaError_t e = cudaMemGetInfo(&bytes, &total);
  *left = bytes;
  *all = total;
  return e ? report_failure(cuda_peek(b), "reading its free memory", e) : ERR_OK;
}

static void release(const Backend *b, void *block) {
  if (cuda_refuses(cuda_of(b), "release")) return;
  cuda_note(cuda_of(b), "freeing memory", cudaFree(block));
}

static Err pin(const Backend *b, void *block, size_t bytes) {
  Cuda *c = cuda_of(b);
  cudaError_t e = cudaHostRegister(block, bytes, cudaHostRegisterDefault);
  if (!e) return ERR_OK;
  (void)cudaGetLastError();
  return err_set(ERR_WORK,
                 "%s: cannot page-lock %.2f GB of host memory (%s); raise the limit of locked "
                 "memory (ulimit -l)",
                 c->gpu, (double)bytes / 1e9, cudaGetErrorString(e));
}

static void unpin(const Backend *b, void *block) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "waiting for the GPU", cudaStreamSynchronize(c->stream));
  cuda_note(c, "unpinning host memory", cudaHostUnregister(block));
}

/* Copies at most STAGE_BYTES to the device through the next staging buffer: a few bytes on the
 * compute stream, because waiting for another stream takes longer than they do. */
static cudaError_t send_stage(Cuda *c, char *to, const char *from, size_t bytes) {
  Stage *s = &c->stage[c->next_stage++ % STAGES];
  cudaError_t e = cudaEventSynchronize(s->free);
  if (e) return e;
  memcpy(s->host, from, bytes);
  if (bytes <= DIRECT_BYTES) {
    e = cudaMemcpyAsync(to, s->host, bytes, cudaMemcpyHostToDevice, c->stream);
    return e ? e : cudaEventRecord(s->free, c->stream);
  }
  e = cudaMemcpyAsync(s->device, s->host, bytes, cudaMemcpyHostToDevice, c->copies);
  if (!e) e = cudaEventRecord(s->there, c->copies);
  if (!e) e = cudaStreamWaitEvent(c->stream, s->there, 0);
  if (!e) e = cudaMemcpyAsync(to, s->device, bytes, cudaMemcpyDeviceToDevice, c->stream);
  if (!e) e = cudaEventRecord(s->free, c->stream);
  return e;
}

static void put(const Backend *b, void *to, const void *from, size_t bytes) {
  Cuda *c = cuda_of(b);
  if (cuda_refuses(c, "put")) return;
  for (size_t at = 0; at < bytes; at += STAGE_BYTES) {
    size_t n = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
    cuda_note(c, "put", send_stage(c, (char *)to + at, (const char *)from + at, n));
  }
}

/* Blocks until the compute stream is idle; returns the first error. */
static Err wait_for_stream(Cuda *c, const char *what) {
  cuda_note(c, what, cudaStreamSynchronize(c->stream));
  return c->failed.code ? err_give(&c->failed) : ERR_OK;
}

static Err get(const Backend *b, void *to, const void *from, size_t bytes) {
  Cuda *c = cuda_of(b);
  if (cuda_refuses(c, "get")) return err_give(&c->failed);
  cuda_note(c, "get", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->stream));
  return wait_for_stream(c, "get");
}

static Err sync_all(const Backend *b) {
  Cuda *c = cuda_of(b);
  return cuda_refuses(c, "sync") ? err_give(&c->failed) : wait_for_stream(c, "sync");
}

/* Records event i. Creates this event, and all before it, at first use. */
static void stamp(const Backend *b, size_t i) {
  Cuda *c = cuda_peek(b);
  Err err = mem_grow(&c->stamp, &c->stamp_cap, i + 1, sizeof *c->stamp);
  cudaError_t e = cudaSuccess;
  if (err) {
    cuda_note_err(c, err);
    return;
  }
  while (c->stamps <= i && !e) {
    e = cudaEventCreate(&c->stamp[c->stamps]);
    if (!e) c->stamps++;
  }
  if (!e) e = cudaEventRecord(c->stamp[i], c->stream);
  cuda_note(c, "stamp", e);
}

static Err stamps(const Backend *b, double *seconds, size_t n) {
  Cuda *c = cuda_of(b);
  TRY(wait_for_stream(c, "stamps"));
  for (size_t i = 0; i < n; i++) {
    float ms = 0;
    cudaError_t e = cudaEventElapsedTime(&ms, c->stamp[0], c->stamp[i]);
    if (e) return report_failure(c, "stamps", e);
    seconds[i] = (double)ms * 1e-3;
  }
  return ERR_OK;
}

/* With post-norm a copy is between the backward of ReLU and the input gradient that reads its
 * fp8 rows. */
static void copy(const Backend *b, void *to, const void *from, size_t bytes) {
  Cuda *c = cuda_peek(b);
  cuda_forget_overwritten(c, to, bytes);
  cuda_note(c, "copy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->stream));
}

static void zero(const Backend *b, void *block, size_t bytes) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "zero", cudaMemsetAsync(block, 0, bytes, c->stream));
}

static void lower(const Backend *b, void *low, const float *full, size_t n) {
  Cuda *c = cuda_of(b);
  if (low != full) cuda_note(c, "lower", kernel_cast_to(c->type, low, full, n, c->stream));
}

Err cuda_open_memory(Cuda *c) {
  cudaError_t e = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
  if (!e) e = cudaStreamCreateWithFlags(&c->copies, cudaStreamNonBlocking);
  for (int i = 0; i < STAGES && !e; i++) {
    Stage *s = &c->stage[i];
    e = cudaHostAlloc((void **)&s->host, STAGE_BYTES, cudaHostAllocDefault);
    if (!e) e = cudaMalloc((void **)&s->device, STAGE_BYTES);
    if (!e) e = cudaEventCreateWithFlags(&s->there, cudaEventDisableTiming);
    if (!e) e = cudaEventCreateWithFlags(&s->free, cudaEventDisableTiming);
    if (!e) e = cudaEventRecord(s->free, c->stream);
  }
  if (!e) e = cudaMalloc((void **)&c->tile_counter, sizeof *c->tile_counter);
  if (!e) e = cudaMemsetAsync(c->tile_counter, 0, sizeof *c->tile_counter, c->stream);
  if (e) return report_failure(c, "creating streams and staging buffers", e);
  return cuda_scratch(c, &c->work, MATMUL_WORK) ? ERR_OK : err_give(&c->failed);
}

void cuda_close_memory(Cuda *c) {
  if (c->stream) cudaStreamSynchronize(c->stream);
  for (int i = 0; i < STAGES; i++) {
    Stage *s = &c->stage[i];
    if (s->host) cudaFreeHost(s->host);
    cudaFree(s->device);
    if (s->there) cudaEventDestroy(s->there);
    if (s->free) cudaEventDestroy(s->free);
  }
  for (size_t i = 0; i < c->stamps; i++) cudaEventDestroy(c->stamp[i]);
  mem_free(c->stamp);
  cudaFree(c->tile_counter);
  free_scratch(&c->work);
  free_scratch(&c->sorted);
  free_scratch(&c->sums);
  free_scratch(&c->fp8);
  free_scratch(&c->loss);
  while (c->outgrown) {
    Outgrown *old = c->outgrown;
    c->outgrown = old->next;
    cudaFree(old->at);
    mem_free(old);
  }
  if (c->copies) cudaStreamDestroy(c->copies);
  if (c->stream) cudaStreamDestroy(c->stream);
}

void cuda_fill_memory(Backend *b) {
  b->alloc = alloc;
  b->release = release;
  b->memory = memory;
  b->put = put;
  b->get = get;
  b->copy = copy;
  b->zero = zero;
  b->pin = pin;
  b->unpin = unpin;
  b->sync = sync_all;
  b->lower = lower;
  b->stamp = stamp;
  b->stamps = stamps;
}
