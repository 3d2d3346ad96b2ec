/* One thread, one snapshot, one write at a time. Relies on backend, base, checkpoint, text. */
#include "train/saver.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/thread.h"
#include "text/tokenizer.h"

struct Saver {
  char *run, *tokenizer;
  Str pieces; /* the tokenizer as it was at the start: the data set may change or go away */
  int keep;
  TrainArrays snapshot;
  const Backend *backend;
  float *pinned[4]; /* of the snapshot: w, e, m, v; or NULL */
  uint64_t bytes;
  TrainCounters counters, verdict;
  bool awaited; /* the write: its caller reports a failure */
  bool best;    /* the verdict */
  bool busy;    /* the snapshot is the thread's */
  bool judging; /* so is the verdict */
  bool stop, started;
  ErrRecord last;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
};

static void remove_older(const Saver *s) {
  if (checkpoint_prune(s->run, s->keep))
    log_warn("older checkpoints were not removed, training goes on: %s", err_message());
}

static void write_snapshot(Saver *s) {
  fault_point("save");
  Err err = checkpoint_save(s->run, &s->snapshot, &s->counters);
  s->last = err ? err_take(err) : (ErrRecord){0};
  if (err && !s->awaited)
    log_warn("the checkpoint of step %" PRIu64 " was not saved, training goes on: %s",
             s->counters.step, err_message());
  if (!err) remove_older(s);
}

static void write_verdict(Saver *s) {
  if (s->last.code) {
    if (s->best)
      log_warn("step %" PRIu64 " does not count as the best: its checkpoint is not on disk",
               s->verdict.step);
    return;
  }
  Err err = checkpoint_judge(s->run, &s->verdict, s->best);
  s->last = err ? err_take(err) : (ErrRecord){0};
  if (err)
    log_warn("the validation of step %" PRIu64
             " was not added to its checkpoint, training goes on: %s",
             s->verdict.step, err_message());
  if (!err && s->best) remove_older(s); /* what was the best may go */
}

static void *run(void *argument) {
  Saver *s = argument;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (!s->busy && !s->judging && !s->stop) pthread_cond_wait(&s->changed, &s->lock);
    bool *task = s->busy ? &s->busy : s->judging ? &s->judging : NULL;
    if (!task) break;
    pthread_mutex_unlock(&s->lock);
    if (task == &s->busy)
      write_snapshot(s);
    else
      write_verdict(s);
    pthread_mutex_lock(&s->lock);
    *task = false;
    pthread_cond_broadcast(&s->changed);
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

/* Signals are for the other threads: none shall cut a write short, and a file that may
 * not grow is then an error like any other. */
static Err start(Saver *s) {
  s->started = thread_start(&s->thread, run, s);
  return s->started ? ERR_OK : err_set(ERR_WORK, "cannot start a thread to save checkpoints");
}

static Err new_array(Saver *s, void *pointer, bool wanted, size_t bytes) {
  if (!wanted) return ERR_OK;
  s->bytes += bytes;
  return mem_alloc_aligned(pointer, bytes);
}

static Err new_snapshot(Saver *s, const TrainArrays *shape) {
  size_t floats = shape->params->padded * sizeof(float);
  TrainArrays *a = &s->snapshot;
  a->config = shape->config, a->params = shape->params;
  TRY(mem_dup(&s->tokenizer, shape->tokenizer, strlen(shape->tokenizer)));
  a->tokenizer = s->tokenizer;
  TRY(place_read_all(s->tokenizer, TOKENIZER_LIMIT, &s->pieces));
  a->pieces = &s->pieces;
  TRY(new_array(s, &a->w, shape->w, floats));
  TRY(new_array(s, &a->e, shape->e, floats));
  TRY(new_array(s, &a->m, shape->m, floats));
  TRY(new_array(s, &a->v, shape->v, floats));
  return new_array(s, &a->second, shape->second, shape->params->count * sizeof *a->second);
}

/* From memory that is not pinned a GPU reads through a buffer of the driver, several times
 * as slowly, while it does nothing else. */
static void pin_snapshot(Saver *s) {
  const TrainArrays *a = &s->snapshot;
  float *const list[] = {a->w, a->e, a->m, a->v};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    if (!list[i]) continue;
    if (s->backend->pin(s->backend, list[i], a->params->padded * sizeof(float))) {
      log_warn("checkpoints stop the GPU for longer than they could: %s", err_message());
      return;
    }
    s->pinned[i] = list[i];
  }
}

Err saver_new(Saver **out, const char *run_dir, const TrainArrays *shape, int keep,
              const Backend *backend) {
  Saver *s;
  *out = NULL;
  TRY(mem_alloc(&s, 1, sizeof *s));
  s->keep = keep;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  Err err = mem_dup(&s->run, run_dir, strlen(run_dir));
  s->backend = backend;
  if (!err) err = new_snapshot(s, shape);
  if (!err && !backend->host) pin_snapshot(s);
  if (!err) err = start(s);
  if (err)
    saver_free(s);
  else
    *out = s;
  return err;
}

TrainArrays *saver_begin(Saver *s) {
  saver_wait(s, NULL);
  return &s->snapshot;
}

void saver_commit(Saver *s, const TrainCounters *c, bool awaited) {
  pthread_mutex_lock(&s->lock);
  s->counters = *c;
  s->awaited = awaited;
  s->busy = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

void saver_judge(Saver *s, const TrainCounters *c, bool best) {
  pthread_mutex_lock(&s->lock);
  while (s->judging) pthread_cond_wait(&s->changed, &s->lock);
  s->verdict = *c;
  s->best = best;
  s->judging = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

void saver_wait(Saver *s, Err *last) {
  pthread_mutex_lock(&s->lock);
  while (s->busy || s->judging) pthread_cond_wait(&s->changed, &s->lock);
  if (last) *last = s->last.code ? err_give(&s->last) : ERR_OK;
  pthread_mutex_unlock(&s->lock);
}

void saver_free(Saver *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  s->stop = true; /* after the write that is under way */
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  if (s->started) pthread_join(s->thread, NULL);
  for (size_t i = 0; i < sizeof s->pinned / sizeof *s->pinned; i++)
    if (s->pinned[i]) s->backend->unpin(s->backend, s->pinned[i]);
  TrainArrays *a = &s->snapshot;
  void *list[] = {a->w, a->e, a->m, a->v, a->second, s->run, s->tokenizer};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) mem_free(list[i]);
  str_free(&s->pieces);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  mem_free(s);
}

uint64_t saver_bytes(const Saver *s) {
  return s->bytes;
}
