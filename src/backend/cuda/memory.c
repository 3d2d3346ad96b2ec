/* Memory of the GPU: taken, given back, filled and read. Depends on the CUDA
 * runtime. */
#include "backend/cuda/memory.h"

#include <string.h>

#include "backend/cuda/kernels.h"
#include "base/mem.h"

Cuda *cuda_of(const Backend *b) {
  return b->state;
}

static Err told(const Cuda *c, const char *what, cudaError_t e) {
  const char *remedy = e == cudaErrorMemoryAllocation
                           ? "lower --batch-tokens or end what else runs on it"
                           : "to see where, run again with CUDA_LAUNCH_BLOCKING=1";
  return err_set(ERR_WORK, "%s failed in %s: %s; %s", c->gpu, what, cudaGetErrorString(e),
                 remedy);
}

void cuda_note_err(Cuda *c, Err err) {
  if (err && !c->failed.code) c->failed = err_take(err);
}

void cuda_note(Cuda *c, const char *what, cudaError_t e) {
  if (e && !c->failed.code) cuda_note_err(c, told(c, what, e));
}

static void drop_scratch(Scratch *s) {
  cudaFree(s->at);
  *s = (Scratch){0};
}

bool cuda_refuses(Cuda *c, const char *what) {
  if (c->recording)
    cuda_note_err(c, err_set(ERR_WORK, "%s was asked for in the middle of a recording", what));
  return c->recording;
}

/* Recordings go on with the memory that they name. */
static void outgrow(Cuda *c, Scratch *s) {
  Outgrown *old = NULL;
  if (!c->recordings || !s->at) {
    drop_scratch(s);
    return;
  }
  cuda_note_err(c, mem_alloc(&old, 1, sizeof *old));
  if (old) *old = (Outgrown){s->at, c->outgrown}, c->outgrown = old;
  *s = (Scratch){0}; /* without a note it is lost, but nobody writes into another's */
}

void *cuda_scratch(Cuda *c, Scratch *s, size_t bytes) {
  if (bytes <= s->bytes) return s->at;
  if (cuda_refuses(c, "more working memory")) return NULL;
  cuda_note(c, "waiting", cudaStreamSynchronize(c->stream)); /* somebody may still use it */
  outgrow(c, s);
  cudaError_t e = cudaMalloc(&s->at, bytes);
  cuda_note(c, "taking memory", e);
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
  if (cuda_refuses(c, "memory")) return err_give(&c->failed);
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
                 "%s: %.2f GB could not be had (%s); %.2f of its %.2f GB are free: lower "
                 "--batch-tokens or end what else runs on it",
                 c->gpu, (double)bytes / 1e9, cudaGetErrorString(e), (double)left / 1e9,
                 (double)all / 1e9);
}

static Err memory(const Backend *b, uint64_t *left, uint64_t *all) {
  size_t bytes = 0, total = 0;
  cudaError_t e = cudaMemGetInfo(&bytes, &total);
  *left = bytes, *all = total;
  return e ? told(cuda_of(b), "counting its memory", e) : ERR_OK;
}

static void release(const Backend *b, void *block) {
  if (cuda_refuses(cuda_of(b), "a release")) return;
  cuda_note(cuda_of(b), "giving memory back", cudaFree(block));
}

static Err pin(const Backend *b, void *block, size_t bytes) {
  Cuda *c = cuda_of(b);
  cudaError_t e = cudaHostRegister(block, bytes, cudaHostRegisterDefault);
  if (!e) return ERR_OK;
  (void)cudaGetLastError();
  return err_set(ERR_WORK,
                 "%s: %.2f GB of the program's memory could not be held in place for it (%s); "
                 "raise the limit of locked memory (ulimit -l)",
                 c->gpu, (double)bytes / 1e9, cudaGetErrorString(e));
}

static void unpin(const Backend *b, void *block) {
  Cuda *c = cuda_of(b);
  cuda_note(c, "waiting", cudaStreamSynchronize(c->stream));
  cuda_note(c, "letting memory go", cudaHostUnregister(block));
}

static cudaError_t send(Cuda *c, char *to, const char *from, size_t bytes) {
  Stage *s = &c->stage[c->turn++ % STAGES];
  cudaError_t e = cudaEventSynchronize(s->free);
  if (e) return e;
  memcpy(s->host, from, bytes);
  e = cudaMemcpyAsync(s->device, s->host, bytes, cudaMemcpyHostToDevice, c->copies);
  if (!e) e = cudaEventRecord(s->there, c->copies);
  if (!e) e = cudaStreamWaitEvent(c->stream, s->there, 0);
  if (!e) e = cudaMemcpyAsync(to, s->device, bytes, cudaMemcpyDeviceToDevice, c->stream);
  if (!e) e = cudaEventRecord(s->free, c->stream);
  return e;
}

static void put(const Backend *b, void *to, const void *from, size_t bytes) {
  Cuda *c = cuda_of(b);
  if (cuda_refuses(c, "a put")) return;
  for (size_t at = 0; at < bytes; at += STAGE_BYTES) {
    size_t n = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
    cuda_note(c, "put", send(c, (char *)to + at, (const char *)from + at, n));
  }
}

static Err wait_for(Cuda *c, const char *what) {
  cuda_note(c, what, cudaStreamSynchronize(c->stream));
  return c->failed.code ? err_give(&c->failed) : ERR_OK;
}

static Err get(const Backend *b, void *to, const void *from, size_t bytes) {
  Cuda *c = cuda_of(b);
  if (cuda_refuses(c, "a get")) return err_give(&c->failed);
  cuda_note(c, "get", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->stream));
  return wait_for(c, "get");
}

static Err sync_all(const Backend *b) {
  Cuda *c = cuda_of(b);
  return cuda_refuses(c, "waiting") ? err_give(&c->failed) : wait_for(c, "sync");
}

/* An event is made when its number is first used, with all below it. */
static void stamp(const Backend *b, size_t i) {
  Cuda *c = cuda_of(b);
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
  TRY(wait_for(c, "stamps"));
  for (size_t i = 0; i < n; i++) {
    float ms = 0;
    cudaError_t e = cudaEventElapsedTime(&ms, c->stamp[0], c->stamp[i]);
    if (e) return told(c, "stamps", e);
    seconds[i] = (double)ms * 1e-3;
  }
  return ERR_OK;
}

static void copy(const Backend *b, void *to, const void *from, size_t bytes) {
  Cuda *c = cuda_of(b);
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
  if (e) return told(c, "its preparation", e);
  return cuda_scratch(c, &c->work, PRODUCT_WORK) ? ERR_OK : err_give(&c->failed);
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
  drop_scratch(&c->work);
  drop_scratch(&c->sorted);
  drop_scratch(&c->sums);
  drop_scratch(&c->fp8);
  while (c->outgrown) {
    Outgrown *old = c->outgrown;
    c->outgrown = old->next;
    cudaFree(old->at);
    mem_free(old);
  }
  if (c->copies) cudaStreamDestroy(c->copies);
  if (c->stream) cudaStreamDestroy(c->stream);
}

void cuda_memory(Backend *b) {
  b->alloc = alloc, b->release = release, b->memory = memory;
  b->put = put, b->get = get, b->copy = copy, b->zero = zero;
  b->pin = pin, b->unpin = unpin;
  b->sync = sync_all, b->lower = lower;
  b->stamp = stamp, b->stamps = stamps;
}
