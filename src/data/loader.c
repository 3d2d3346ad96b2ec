/* The prefetch thread: fills the batches of a ring buffer in order before they are used. Depends
 * on batch. */
#include <pthread.h>
#include <stdbool.h>

#include "base/mem.h"
#include "data/batch.h"

#define RING 4

struct Loader {
  DataSet *data;
  const OrderPlan *plan;
  LoaderSpec spec;
  Batch ring[RING];
  /* Total numbers of batches filled and returned. The ring contains filled - taken batches and
   * the one in use. */
  uint64_t filled, taken;
  bool in_use, stop;
  ErrRecord error;
  bool started;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
};

/* Returns the micro-batch number of the n-th batch that this loader returns. */
static uint64_t get_number(const LoaderSpec *s, uint64_t n) {
  uint64_t stride = s->stride ? s->stride : 1;
  /* batches of each group that this loader returns */
  uint64_t mine = (s->end - s->begin + stride - 1) / stride;
  return (s->step + n / mine) * s->group + s->begin + n % mine * stride;
}

static void *fill_batches(void *argument) {
  Loader *l = argument;
  for (uint64_t n = 0;; n++) {
    pthread_mutex_lock(&l->lock);
    while (!l->stop && n - l->taken + (l->in_use ? 1 : 0) >= RING)
      pthread_cond_wait(&l->changed, &l->lock);
    bool stop = l->stop;
    pthread_mutex_unlock(&l->lock);
    if (stop) return NULL;
    uint64_t number = get_number(&l->spec, n);
    Err err = batch_fill(&l->ring[n % RING], l->data, l->plan, l->spec.seed,
                         number / l->plan->batches, number % l->plan->batches);
    pthread_mutex_lock(&l->lock);
    if (err)
      l->error = err_take(err);
    else
      l->filled = n + 1;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (err) return NULL;
  }
}

Err loader_open(Loader **out, DataSet *d, const OrderPlan *plan, const LoaderSpec *spec) {
  *out = NULL;
  Loader *l;
  TRY(mem_alloc(&l, 1, sizeof *l));
  l->data = d;
  l->plan = plan;
  l->spec = *spec;
  pthread_mutex_init(&l->lock, NULL);
  pthread_cond_init(&l->changed, NULL);
  Err err = ERR_OK;
  for (int i = 0; i < RING && !err; i++)
    err = batch_new(&l->ring[i], plan->capacity, plan->most_sentences);
  if (!err) {
    l->started = pthread_create(&l->thread, NULL, fill_batches, l) == 0;
    if (!l->started)
      err = err_set(
          ERR_WORK,
          "cannot start a thread to read data; raise the limit of processes (ulimit -u)");
  }
  if (err)
    loader_close(l);
  else
    *out = l;
  return err;
}

Err loader_next(Loader *l, const Batch **batch) {
  pthread_mutex_lock(&l->lock);
  l->in_use = false;
  pthread_cond_broadcast(&l->changed);
  while (l->filled == l->taken && !l->error.code) pthread_cond_wait(&l->changed, &l->lock);
  Err err = ERR_OK;
  if (l->filled == l->taken) {
    err = err_give(&l->error);
  } else {
    *batch = &l->ring[l->taken++ % RING];
    l->in_use = true;
  }
  pthread_mutex_unlock(&l->lock);
  return err;
}

void loader_close(Loader *l) {
  if (!l) return;
  pthread_mutex_lock(&l->lock);
  l->stop = true;
  pthread_cond_broadcast(&l->changed);
  pthread_mutex_unlock(&l->lock);
  if (l->started) pthread_join(l->thread, NULL);
  for (int i = 0; i < RING; i++) batch_free(&l->ring[i]);
  pthread_cond_destroy(&l->changed);
  pthread_mutex_destroy(&l->lock);
  mem_free(l);
}
