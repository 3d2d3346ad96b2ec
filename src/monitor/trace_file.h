/* Writes the spans of all ranks to one file in the trace-event format of chrome://tracing and
 * Perfetto: a process per rank, a thread per track. Depends on comm, trace, trace_clock. */
#ifndef MONITOR_TRACE_FILE_H
#define MONITOR_TRACE_FILE_H

#include "comm/comm.h"
#include "monitor/trace.h"
#include "monitor/trace_clock.h"

/* The spans of one rank. get() copies span i, or computes it if it is in no Trace's buffer. */
typedef struct {
  uint64_t spans, dropped;
  double begin; /* time at which recording began, of this rank's clock */
  void (*get)(void *context, uint64_t i, TraceSpan *span);
  void *context;
} TraceSource;

typedef struct {
  const char *path;
  uint64_t first_step, steps;
  const ClockPoint *before, *after; /* (ranks) valid on rank 0 */
} TraceFileSpec;

/* Sends the spans to rank 0, which writes the file. Every rank calls it. Memory: two blocks of
 * 4,096 spans. If rank 0 cannot write, it returns the error after it has received everything;
 * the other ranks do not learn of it. *dropped: spans of all ranks that did not fit into the
 * buffers. */
NODISCARD Err trace_file_write(Comm *comm, const TraceSource *source, const TraceFileSpec *spec,
                               uint64_t *dropped);

#endif
