/* The buffer of spans. Depends on base. */
#include "monitor/trace.h"

#include <stdio.h>

#include "base/mem.h"

Err trace_new(Trace **out, size_t max_spans) {
  Trace *t;
  *out = NULL;
  TRY(mem_alloc(&t, 1, sizeof *t));
  Err err = mem_alloc(&t->span, max_spans, sizeof *t->span);
  if (err) {
    mem_free(t);
    return err;
  }
  t->max_spans = max_spans;
  pthread_mutex_init(&t->lock, NULL);
  *out = t;
  return ERR_OK;
}

void trace_free(Trace *t) {
  if (!t) return;
  pthread_mutex_destroy(&t->lock);
  mem_free(t->span);
  mem_free(t);
}

void trace_begin(Trace *t) {
  pthread_mutex_lock(&t->lock);
  t->spans = 0;
  t->dropped = 0;
  atomic_store(&t->is_on, true);
  pthread_mutex_unlock(&t->lock);
}

void trace_end(Trace *t) {
  pthread_mutex_lock(&t->lock);
  atomic_store(&t->is_on, false);
  pthread_mutex_unlock(&t->lock);
}

/* Looks at is_on again: another thread may have ended the trace since the caller did. */
void trace_add(Trace *t, TraceTrack track, const char *name, double start, double end,
               const TraceArgs *args) {
  pthread_mutex_lock(&t->lock);
  if (!atomic_load(&t->is_on)) {
    pthread_mutex_unlock(&t->lock);
    return;
  }
  if (t->spans < t->max_spans) {
    TraceSpan *s = &t->span[t->spans++];
    *s = (TraceSpan){.start = start, .end = end, .args = *args, .track = track};
    snprintf(s->name, sizeof s->name, "%s", name);
  } else {
    t->dropped++;
  }
  pthread_mutex_unlock(&t->lock);
}
