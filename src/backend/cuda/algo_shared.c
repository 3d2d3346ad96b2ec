/* A lock around the GEMM algorithm cache, and the list of the streams that use it. Depends on
 * algo_cache.h, the CUDA runtime. */
#include "backend/cuda/algo_shared.h"

#include "base/mem.h"

Err algo_shared_new(AlgoShared **out, const char *gpu, size_t version) {
  AlgoShared *s;
  *out = NULL;
  TRY(mem_alloc(&s, 1, sizeof *s));
  Err err = algo_cache_open(&s->cache, gpu, version);
  if (err) {
    mem_free(s);
    return err;
  }
  /* Streams launch without pause: by default they would keep a thread from timing
   * algorithms. */
  pthread_rwlockattr_t attributes;
  pthread_rwlockattr_init(&attributes);
  pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  pthread_rwlock_init(&s->lock, &attributes);
  pthread_rwlockattr_destroy(&attributes);
  *out = s;
  return ERR_OK;
}

void algo_shared_free(AlgoShared *s) {
  if (!s) return;
  algo_cache_free(&s->cache);
  pthread_rwlock_destroy(&s->lock);
  mem_free(s);
}

void algo_shared_begin_use(AlgoShared *s) {
  pthread_rwlock_rdlock(&s->lock);
}

void algo_shared_end_use(AlgoShared *s) {
  pthread_rwlock_unlock(&s->lock);
}

void algo_shared_begin_timing(AlgoShared *s) {
  pthread_rwlock_wrlock(&s->lock);
}

void algo_shared_end_timing(AlgoShared *s) {
  pthread_rwlock_unlock(&s->lock);
}

cudaError_t algo_shared_wait(const AlgoShared *s) {
  cudaError_t e = cudaSuccess;
  for (size_t i = 0; i < s->streams && !e; i++) e = cudaStreamSynchronize(s->stream[i]);
  return e;
}

Err algo_shared_add_stream(AlgoShared *s, cudaStream_t stream) {
  pthread_rwlock_wrlock(&s->lock);
  bool fits = s->streams < ALGO_STREAMS;
  if (fits) s->stream[s->streams++] = stream;
  pthread_rwlock_unlock(&s->lock);
  if (fits) return ERR_OK;
  return err_set(ERR_WORK, "bug: more than %d streams of a GPU; please report it",
                 ALGO_STREAMS);
}

void algo_shared_remove_stream(AlgoShared *s, cudaStream_t stream) {
  pthread_rwlock_wrlock(&s->lock);
  for (size_t i = 0; i < s->streams; i++) {
    if (s->stream[i] == stream) s->stream[i--] = s->stream[--s->streams];
  }
  pthread_rwlock_unlock(&s->lock);
}
