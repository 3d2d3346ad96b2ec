/* Records what one rank does during some training steps (train --trace), in a buffer of fixed
 * size. trace_file.h writes the spans of all ranks to one file.
 *
 *   trace_span(t, TRACE_MAIN, "update", start, progress_clock(),
 *              (TraceArgs){{{TRACE_STEP, 12}}});
 *
 * Spans of one track nest or do not overlap. Threads: any thread may add spans; a Trace that is
 * NULL or off takes none. Depends on base. */
#ifndef MONITOR_TRACE_H
#define MONITOR_TRACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The rows of a rank in the viewer. */
typedef enum {
  TRACE_MAIN,   /* the thread that trains; on a CPU also its operations */
  TRACE_DEVICE, /* operations on a GPU, measured by the GPU */
  TRACE_COMM,   /* collectives, whichever thread runs them */
  TRACE_SAVER,  /* the thread that writes checkpoints */
  TRACE_TRACKS,
} TraceTrack;

/* Figures of a span. TRACE_NONE ends the list. */
typedef enum {
  TRACE_NONE,
  TRACE_STEP,
  TRACE_MICRO_BATCH,
  TRACE_TOKENS,
  TRACE_BUCKET,
  TRACE_COLLECTIVE, /* number of the collective, the same on every rank */
  TRACE_BYTES,
  TRACE_FLOPS,
  TRACE_ROWS,
  TRACE_IN,
  TRACE_OUT,
  TRACE_KEYS,
} TraceKey;

typedef struct {
  TraceKey key;
  double value;
} TraceArg;

#define TRACE_ARGS 5
typedef struct {
  TraceArg arg[TRACE_ARGS];
} TraceArgs;

#define TRACE_NAME 40 /* longer names are cut */
typedef struct {
  double start, end; /* progress_clock() of this rank */
  char name[TRACE_NAME];
  TraceArgs args;
  TraceTrack track;
} TraceSpan;

typedef struct {
  pthread_mutex_t lock;
  atomic_bool is_on;
  TraceSpan *span;
  size_t spans, max_spans;
  uint64_t dropped; /* spans that did not fit */
} Trace;

NODISCARD Err trace_new(Trace **trace, size_t max_spans);
void trace_free(Trace *trace); /* accepts NULL */
/* Spans are taken between these two calls. */
void trace_begin(Trace *trace);
void trace_end(Trace *trace);

static inline bool trace_is_on(Trace *t) {
  return t && atomic_load_explicit(&t->is_on, memory_order_relaxed);
}

/* Adds a span to the buffer, or counts it if the buffer is full. */
void trace_add(Trace *trace, TraceTrack track, const char *name, double start, double end,
               const TraceArgs *args);
static inline void trace_span(Trace *t, TraceTrack track, const char *name, double start,
                              double end, TraceArgs args) {
  if (trace_is_on(t)) trace_add(t, track, name, start, end, &args);
}

#endif
