/* Begins and ends a trace, and turns operations and collectives into spans. Depends on
 * backend/timed, comm, monitor/trace_file. */
#include "train/tracing.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "monitor/trace_file.h"

/* Sizes of the buffers of a rank: about 8 MB and 6 MB. A step of `base` has about 900 operations
 * per micro-batch. */
#define MAX_SPANS ((size_t)1 << 16)
#define MAX_CALLS ((size_t)1 << 17)

/* Returns the size of a buffer, which a test can lower (TRIREME_FAULT=trace-spans:N). */
static size_t limit_buffer(size_t most) {
  uint64_t lower = fault_number("trace-spans", most);
  return lower < most ? lower : most;
}

Err tracing_open(Tracing *t, Comm *comm, Backend *backend, uint64_t from, uint64_t steps) {
  size_t ranks = (size_t)comm_size(comm);
  *t = (Tracing){.from = from, .steps = steps, .backend = backend};
  if (!steps) return ERR_OK;
  TRY(mem_alloc(&t->before, ranks, sizeof *t->before));
  TRY(mem_alloc(&t->after, ranks, sizeof *t->after));
  TRY(trace_new(&t->trace, limit_buffer(MAX_SPANS)));
  t->inner = *backend;
  return timed_open_list(&t->timed, &t->inner, limit_buffer(MAX_CALLS));
}

static bool is_recording(const Tracing *t) {
  return t->trace && trace_is_on(t->trace);
}

static void stop_recording(Tracing *t, Comm *comm) {
  trace_end(t->trace);
  comm_set_observer(comm, NULL, NULL);
  *t->backend = t->inner;
}

void tracing_close(Tracing *t, Comm *comm) {
  if (is_recording(t)) stop_recording(t, comm);
  timed_close(&t->timed);
  trace_free(t->trace);
  mem_free(t->before);
  mem_free(t->after);
  *t = (Tracing){0};
}

/* Called after each collective, by the thread that ran it. */
static void add_collective(void *context, const CommEvent *e) {
  Tracing *t = context;
  char name[TRACE_NAME];
  TraceArgs args = {{{TRACE_COLLECTIVE, (double)e->number}, {TRACE_BYTES, (double)e->bytes}}};
  if (e->bucket >= 0) {
    args.arg[2] = (TraceArg){TRACE_BUCKET, (double)e->bucket};
    snprintf(name, sizeof name, "%s bucket %" PRId64, e->kind, e->bucket);
  } else {
    snprintf(name, sizeof name, "%s: %s", e->kind, e->name);
  }
  trace_span(t->trace, TRACE_COMM, name, e->start, e->end, args);
}

bool tracing_is_due(const Tracing *t) {
  return t->trace && !t->is_over && !is_recording(t) && t->skipped == t->from;
}

/* The device must be idle: only then does its first timestamp, from which it counts, have the
 * time that the host reads. */
Err tracing_begin(Tracing *t, Comm *comm, uint64_t step) {
  const Backend *b = t->backend;
  comm_report(comm, COMM_NO_LIMIT, "step %" PRIu64 ", beginning the trace", step);
  TRY(b->sync(b));
  TRY(trace_clock_measure(comm, t->before));
  t->first_step = step;
  t->inner = *b;
  t->begin = progress_clock();
  timed_begin(&t->timed);
  trace_begin(t->trace);
  comm_set_observer(comm, add_collective, t);
  *t->backend = t->timed.backend;
  return ERR_OK;
}

bool tracing_count_step(Tracing *t) {
  if (!t->trace || t->is_over) return false;
  if (!is_recording(t)) {
    t->skipped++;
    return false;
  }
  return ++t->recorded == t->steps;
}

/* Makes the span of operation i. A device counts seconds from timed_begin, the host's clock is
 * the same as that of all other spans. */
static void make_operation(const Tracing *t, uint64_t i, TraceSpan *s) {
  const TimedBackend *c = &t->timed;
  const TimedCall *call = &c->call[i];
  bool is_on_device = c->inner->stamp != NULL;
  double base = is_on_device ? t->begin : 0;
  *s = (TraceSpan){.start = base + c->at[2 * i + 1],
                   .end = base + c->at[2 * i + 2],
                   .track = is_on_device ? TRACE_DEVICE : TRACE_MAIN};
  snprintf(s->name, sizeof s->name, "%s", timed_name(call->kind));
  size_t n = 0;
  TraceArg list[] = {{TRACE_FLOPS, call->operations},
                     {TRACE_BYTES, call->bytes},
                     {TRACE_ROWS, call->shape[0]},
                     {TRACE_IN, call->shape[1]},
                     {TRACE_OUT, call->shape[2]}};
  for (size_t k = 0; k < sizeof list / sizeof *list; k++)
    if (list[k].value > 0) s->args.arg[n++] = list[k];
}

static void get_span(void *context, uint64_t i, TraceSpan *s) {
  const Tracing *t = context;
  double shift = trace_clock_shift();
  if (i < t->trace->spans)
    *s = t->trace->span[i];
  else
    make_operation(t, i - t->trace->spans, s);
  s->start += shift;
  s->end += shift;
}

static void print_written(const Tracing *t, const char *path, uint64_t dropped) {
  char count[32];
  log_info("trace    %" PRIu64 " steps from step %" PRIu64
           " on: %s; open it at ui.perfetto.dev or in chrome://tracing",
           t->recorded, t->first_step, path);
  if (dropped)
    log_warn(
        "the buffers of the trace were full: %s spans are missing from its end; pass a "
        "smaller --trace",
        str_of_count(count, dropped));
}

Err tracing_write(Tracing *t, Comm *comm, const char *run_dir) {
  char path[FILE_PATH_MAX];
  if (!is_recording(t)) return ERR_OK;
  stop_recording(t, comm);
  t->is_over = true;
  comm_report(comm, COMM_NO_LIMIT, "writing the trace");
  TRY(timed_end(&t->timed));
  TRY(trace_clock_measure(comm, t->after));
  for (int r = 0; r < comm_size(comm); r++) trace_clock_settle(&t->before[r], &t->after[r]);
  TRY(file_join(path, run_dir, "trace.json"));
  TraceSource source = {.spans = t->trace->spans + t->timed.calls,
                        .dropped = t->trace->dropped + t->timed.dropped,
                        .begin = t->begin + trace_clock_shift(),
                        .get = get_span,
                        .context = t};
  TraceFileSpec spec = {.path = path,
                        .first_step = t->first_step,
                        .steps = t->recorded,
                        .before = t->before,
                        .after = t->after};
  uint64_t dropped;
  Err err = trace_file_write(comm, &source, &spec, &dropped);
  if (comm_rank(comm) > 0) return err;
  if (err)
    log_warn("the trace was not written, training goes on: %s", err_message());
  else
    print_written(t, path, dropped);
  return ERR_OK;
}

void tracing_warn_unused(const Tracing *t, const Comm *comm) {
  if (!t->trace || t->is_over || comm_rank(comm) > 0) return;
  log_warn("--trace %" PRIu64 " recorded nothing: this process ended after %" PRIu64
           " steps, and the trace begins after %" PRIu64 "; pass a smaller --trace-from",
           t->steps, t->skipped, t->from);
}
