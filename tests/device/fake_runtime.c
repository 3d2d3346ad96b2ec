/* Streams and events of a fake CUDA runtime: a stream is a thread that runs what was enqueued, in
 * order. Memory of the device is memory of the host. Depends on cuda/cuda_runtime_api.h, occupy.h. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../gpu/occupy.h"

typedef struct Work {
  struct Work *next;
  cudaHostFn_t run;
  void *context;
} Work;

struct FakeStream {
  pthread_t thread;
  Work *first, **last; /* work that has not begun; *last is the end of the list */
  uint64_t queued, done;
  bool is_ending;
};

struct FakeEvent {
  uint64_t recorded, done; /* number of records that were enqueued, and that have run */
};

/* One lock and one condition for all streams and events. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void *run_stream(void *context) {
  cudaStream_t s = context;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!s->first && !s->is_ending) pthread_cond_wait(&changed, &lock);
    Work *w = s->first;
    if (!w) break;
    s->first = w->next;
    if (!s->first) s->last = &s->first;
    pthread_mutex_unlock(&lock);
    w->run(w->context);
    free(w);
    pthread_mutex_lock(&lock);
    s->done++;
    pthread_cond_broadcast(&changed);
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t run, void *context) {
  Work *w = malloc(sizeof *w);
  if (!w) return cudaErrorMemoryAllocation;
  *w = (Work){NULL, run, context};
  pthread_mutex_lock(&lock);
  *s->last = w;
  s->last = &w->next;
  s->queued++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
  (void)flags, (void)priority;
  cudaStream_t s = calloc(1, sizeof *s);
  if (!s) return cudaErrorMemoryAllocation;
  s->last = &s->first;
  if (pthread_create(&s->thread, NULL, run_stream, s)) {
    free(s);
    return cudaErrorMemoryAllocation;
  }
  *out = s;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
  pthread_mutex_lock(&lock);
  s->is_ending = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  pthread_join(s->thread, NULL);
  free(s);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  pthread_mutex_lock(&lock);
  uint64_t least = s->queued;
  while (s->done < least) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
  (void)flags;
  *out = calloc(1, sizeof **out);
  return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
  pthread_mutex_lock(&lock);
  while (e->done < e->recorded) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  free(e);
  return cudaSuccess;
}

static void complete_record(void *context) {
  cudaEvent_t e = context;
  pthread_mutex_lock(&lock);
  e->done++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  pthread_mutex_lock(&lock);
  e->recorded++;
  pthread_mutex_unlock(&lock);
  return cudaLaunchHostFunc(s, complete_record, e);
}

typedef struct {
  cudaEvent_t event;
  uint64_t least; /* number of records that must have run */
} Wait;

static void wait_for_record(void *context) {
  Wait *w = context;
  pthread_mutex_lock(&lock);
  while (w->event->done < w->least) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  free(w);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
  (void)flags;
  Wait *w = malloc(sizeof *w);
  if (!w) return cudaErrorMemoryAllocation;
  pthread_mutex_lock(&lock);
  *w = (Wait){e, e->recorded};
  pthread_mutex_unlock(&lock);
  return cudaLaunchHostFunc(s, wait_for_record, w);
}

cudaError_t cudaEventQuery(cudaEvent_t e) {
  pthread_mutex_lock(&lock);
  bool is_done = e->done == e->recorded;
  pthread_mutex_unlock(&lock);
  return is_done ? cudaSuccess : cudaErrorNotReady;
}

typedef struct {
  void *to;
  const void *from;
  size_t bytes;
} Copy;

static void run_copy(void *context) {
  Copy *c = context;
  memcpy(c->to, c->from, c->bytes);
  free(c);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                            cudaStream_t stream) {
  (void)kind;
  Copy *c = malloc(sizeof *c);
  if (!c) return cudaErrorMemoryAllocation;
  *c = (Copy){to, from, bytes};
  return cudaLaunchHostFunc(stream, run_copy, c);
}

static void run_pause(void *context) {
  double *us = context;
  usleep((useconds_t)*us);
  free(us);
}

/* A fake GPU has no SMs, but its stream is blocked for that time. */
cudaError_t occupy_sms(int sms, double us, cudaStream_t stream) {
  (void)sms;
  double *time = malloc(sizeof *time);
  if (!time) return cudaErrorMemoryAllocation;
  *time = us;
  return cudaLaunchHostFunc(stream, run_pause, time);
}

cudaError_t cudaMalloc(void *pointer, size_t bytes) {
  void *at = malloc(bytes);
  memcpy(pointer, &at, sizeof at);
  return at ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *at) {
  free(at);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void *pointer, size_t bytes) {
  return cudaMalloc(pointer, bytes);
}

cudaError_t cudaFreeHost(void *at) {
  return cudaFree(at);
}

cudaError_t cudaSetDevice(int device) {
  return device < 0 ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
  return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e) {
  return e == cudaErrorMemoryAllocation ? "out of memory" : "fake CUDA error";
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -1;
  return cudaSuccess;
}
