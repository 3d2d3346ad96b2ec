/* Beams, their streams and their threads. The calling thread uses the first beam; the others
 * have a thread each while beam_pool_run runs. Depends on beam, base/thread. */
#include "decode/beam_pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

#define STREAMS_DEVICE 3 /* fastest on an H200; bench/RESULTS.md, "Beam search on one GPU" */

typedef struct {
  BeamPool *pool;
  size_t number;
  Backend backend; /* that of stream 0 belongs to the caller and is not closed */
  Beam *beam;
  pthread_t thread;
  bool is_running; /* has a thread */
  size_t first;    /* first batch that it searches in this run */
} Stream;

struct BeamPool {
  BeamPoolSpec spec;
  Stream stream[BEAM_POOL_MAX];
  size_t limit, opened; /* maximum and current number of streams */
  bool is_packed;
  pthread_mutex_t lock; /* protects the fields after it while beam_pool_run runs */
  BeamStep on_step;
  void *step_context;
  PoolSearch search;
  void *context;
  size_t next, batches; /* next batch that no stream has taken, and their number */
  ErrRecord failed;     /* the first error of this run */
};

size_t beam_pool_default_streams(const Backend *b) {
  const char *wanted = getenv("TRIREME_STREAMS");
  if (!b->open_stream) return 1;
  if (!wanted || !*wanted) return STREAMS_DEVICE;
  if (wanted[0] >= '1' && wanted[0] <= '0' + BEAM_POOL_MAX && !wanted[1])
    return (size_t)(wanted[0] - '0');
  log_warn("TRIREME_STREAMS=%s is ignored: it must be 1 to %d", wanted, BEAM_POOL_MAX);
  return STREAMS_DEVICE;
}

/* Called before each step of a search. Ends the search if another one has failed. */
static Err report_step(void *pool) {
  BeamPool *p = pool;
  Err err = ERR_OK;
  pthread_mutex_lock(&p->lock);
  if (!p->failed.code && p->on_step) {
    err = p->on_step(p->step_context);
    if (err) p->failed = err_take(err);
  }
  if (p->failed.code) err = err_give(&p->failed);
  pthread_mutex_unlock(&p->lock);
  return err;
}

static Err open_beam(BeamPool *p, Stream *s) {
  const BeamPoolSpec *x = &p->spec;
  TRY(beam_new(&s->beam, x->config, &s->backend, x->weights, x->spec, x->tokens, x->sentences));
  TRY(beam_reserve(s->beam, x->words));
  if (p->is_packed) TRY(beam_pack(s->beam));
  beam_on_step(s->beam, report_step, p);
  return ERR_OK;
}

static void close_stream(Stream *s) {
  beam_free(s->beam);
  if (s->number) backend_close(&s->backend);
  *s = (Stream){0};
}

Err beam_pool_new(BeamPool **out, const BeamPoolSpec *spec, size_t streams) {
  BeamPool *p;
  *out = NULL;
  TRY(mem_alloc(&p, 1, sizeof *p));
  p->spec = *spec;
  p->limit = !spec->backend->open_stream ? 1
             : streams < 1               ? 1
             : streams > BEAM_POOL_MAX   ? BEAM_POOL_MAX
                                         : streams;
  pthread_mutex_init(&p->lock, NULL);
  p->stream[0] = (Stream){.pool = p, .backend = *spec->backend};
  p->opened = 1;
  Err err = open_beam(p, &p->stream[0]);
  if (err)
    beam_pool_free(p);
  else
    *out = p;
  return err;
}

void beam_pool_free(BeamPool *p) {
  if (!p) return;
  while (p->opened) close_stream(&p->stream[--p->opened]);
  pthread_mutex_destroy(&p->lock);
  mem_free(p);
}

size_t beam_pool_streams(const BeamPool *p) {
  return p->limit;
}

size_t beam_pool_opened(const BeamPool *p) {
  return p->opened;
}

Err beam_pool_pack(BeamPool *p) {
  p->is_packed = true;
  for (size_t i = 0; i < p->opened; i++) TRY(beam_pack(p->stream[i].beam));
  return ERR_OK;
}

void beam_pool_on_step(BeamPool *p, BeamStep step, void *context) {
  p->on_step = step;
  p->step_context = context;
}

bool beam_pool_fits(const BeamPoolSpec *x, size_t opened) {
  uint64_t bytes, fixed, left, all; /* fixed: without the KV cache */
  /* outputs twice as long as their sources */
  size_t words = x->words ? x->words : 2 * x->tokens * (size_t)x->spec->beam_size;
  if (beam_bytes(x->config, x->backend, x->spec, x->tokens, x->sentences, words, &bytes) ||
      beam_bytes(x->config, x->backend, x->spec, x->tokens, x->sentences, 0, &fixed) ||
      x->backend->memory(x->backend, &left, &all))
    return false;
  uint64_t other_caches = x->words ? 0 : opened * (bytes - fixed);
  uint64_t stream = opened ? BEAM_POOL_STREAM_BYTES : 0; /* the first is that of the backend */
  return 2 * (bytes + other_caches) + stream <= left;
}

static Err open_next_stream(BeamPool *p) {
  Stream *s = &p->stream[p->opened];
  Stream stream = {.pool = p, .number = p->opened};
  TRY(p->spec.backend->open_stream(p->spec.backend, &stream.backend));
  *s = stream;
  Err err = open_beam(p, s);
  if (err) {
    ErrRecord kept = err_take(err);
    close_stream(s);
    return err_give(&kept);
  }
  p->opened++;
  return ERR_OK;
}

/* Opens streams until each batch has one. Without memory for another the pool stays as it
 * is. */
static void open_streams(BeamPool *p, size_t batches) {
  while (p->opened < p->limit && p->opened < batches) {
    bool fits = beam_pool_fits(&p->spec, p->opened);
    if (fits && !open_next_stream(p)) continue;
    log_info("device   batches at a time: %zu instead of %zu: %s", p->opened, p->limit,
             fits ? err_message() : "not enough free memory; lower --batch-tokens for more");
    p->limit = p->opened;
  }
}

static void note_failure(BeamPool *p, Err err) {
  pthread_mutex_lock(&p->lock);
  if (!p->failed.code) p->failed = err_take(err);
  pthread_mutex_unlock(&p->lock);
}

static bool take_batch(BeamPool *p, size_t *index) {
  pthread_mutex_lock(&p->lock);
  bool is_taken = !p->failed.code && p->next < p->batches;
  if (is_taken) *index = p->next++;
  pthread_mutex_unlock(&p->lock);
  return is_taken;
}

static void search_batches(Stream *s) {
  BeamPool *p = s->pool;
  size_t index = s->first;
  do {
    Err err = p->search(p->context, s->beam, s->number, index);
    if (err) note_failure(p, err);
  } while (take_batch(p, &index));
}

/* The thread of a stream. */
static void *run_stream(void *stream) {
  Stream *s = stream;
  Err err = s->backend.bind_thread ? s->backend.bind_thread(&s->backend) : ERR_OK;
  if (err)
    note_failure(s->pool, err);
  else
    search_batches(s);
  return NULL;
}

/* Starts the threads of the streams. Stream i begins with batch i, so that batches that are
 * sorted by length need KV caches of about the same size in every run. */
static void start_threads(BeamPool *p) {
  pthread_mutex_lock(&p->lock); /* Threads take their second batch after p->next is set. */
  size_t started = 1;
  for (size_t i = 1; i < p->opened && i < p->batches; i++) {
    Stream *s = &p->stream[i];
    s->first = started;
    s->is_running = thread_start(&s->thread, run_stream, s);
    /* Without a thread the other streams search the batches of this one. */
    if (s->is_running) started++;
  }
  p->next = started;
  pthread_mutex_unlock(&p->lock);
}

Err beam_pool_run(BeamPool *p, size_t batches, PoolSearch search, void *context) {
  if (batches == 0) return ERR_OK;
  open_streams(p, batches);
  p->search = search;
  p->context = context;
  p->batches = batches;
  p->failed = (ErrRecord){0};
  start_threads(p);
  search_batches(&p->stream[0]);
  for (size_t i = 1; i < p->opened; i++) {
    if (p->stream[i].is_running) pthread_join(p->stream[i].thread, NULL);
    p->stream[i].is_running = false;
  }
  return p->failed.code ? err_give(&p->failed) : ERR_OK;
}

BeamTimes beam_pool_times(const BeamPool *p) {
  BeamTimes sum = {0};
  for (size_t i = 0; i < p->opened; i++) {
    BeamTimes t = beam_times(p->stream[i].beam);
    sum.encode += t.encode;
    sum.step += t.step;
    sum.choose += t.choose;
    sum.steps += t.steps;
    sum.rows += t.rows;
    sum.graphs += t.graphs;
    sum.launched += t.launched;
  }
  return sum;
}
