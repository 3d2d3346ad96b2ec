/* The ring and its thread. Depends on base. */
#include "data/prefetch.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/mem.h"

struct Prefetch {
  PrefetchFill fill;
  void *context;
  /* Total numbers of items filled and returned. The ring contains filled - taken items and the one
   * in use. */
  uint64_t filled, taken;
  bool in_use, stop;
  ErrRecord error;
  bool started;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
};

static void *fill_slots(void *argument) {
  Prefetch *p = argument;
  for (uint64_t n = 0;; n++) {
    pthread_mutex_lock(&p->lock);
    while (!p->stop && n - p->taken + (p->in_use ? 1 : 0) >= PREFETCH_SLOTS)
      pthread_cond_wait(&p->changed, &p->lock);
    bool stop = p->stop;
    pthread_mutex_unlock(&p->lock);
    if (stop) return NULL;
    Err err = p->fill(p->context, (int)(n % PREFETCH_SLOTS), n);
    pthread_mutex_lock(&p->lock);
    if (err)
      p->error = err_take(err);
    else
      p->filled = n + 1;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (err) return NULL;
  }
}

Err prefetch_open(Prefetch **out, PrefetchFill fill, void *context) {
  Prefetch *p;
  *out = NULL;
  TRY(mem_alloc(&p, 1, sizeof *p));
  p->fill = fill;
  p->context = context;
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->changed, NULL);
  p->started = pthread_create(&p->thread, NULL, fill_slots, p) == 0;
  if (p->started) {
    *out = p;
    return ERR_OK;
  }
  prefetch_close(p);
  return err_set(
      ERR_WORK, "cannot start a thread to read data; raise the limit of processes (ulimit -u)");
}

Err prefetch_next(Prefetch *p, int *slot) {
  pthread_mutex_lock(&p->lock);
  p->in_use = false;
  pthread_cond_broadcast(&p->changed);
  while (p->filled == p->taken && !p->error.code) pthread_cond_wait(&p->changed, &p->lock);
  Err err = ERR_OK;
  if (p->filled == p->taken) {
    err = err_give(&p->error);
  } else {
    *slot = (int)(p->taken++ % PREFETCH_SLOTS);
    p->in_use = true;
  }
  pthread_mutex_unlock(&p->lock);
  return err;
}

void prefetch_close(Prefetch *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
  if (p->started) pthread_join(p->thread, NULL);
  pthread_cond_destroy(&p->changed);
  pthread_mutex_destroy(&p->lock);
  mem_free(p);
}
