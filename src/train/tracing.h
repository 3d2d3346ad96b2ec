/* train --trace: records some steps on every rank and writes RUN/trace.json. Operations are
 * measured by putting a TimedBackend in the place of the rank's Backend while it records, so
 * that the model does not know of it; collectives by an observer of Comm; everything else by
 * trace_span() in step.c, loop.c, allreduce.c and saver.c. Outside the recorded steps nothing is measured.
 * Depends on backend/timed, comm, monitor/trace. */
#ifndef TRAIN_TRACING_H
#define TRAIN_TRACING_H

#include "backend/timed.h"
#include "monitor/trace.h"
#include "monitor/trace_clock.h"

typedef struct {
  Trace *trace;         /* NULL without --trace */
  uint64_t from, steps; /* skip so many steps of this process, then record so many */
  uint64_t skipped, recorded;
  uint64_t first_step; /* number of the first recorded step */
  bool is_over;        /* the file has been written */
  Backend *backend;    /* the table that is replaced while recording */
  Backend inner;       /* its contents before */
  TimedBackend timed;
  double begin;               /* time at which recording began */
  ClockPoint *before, *after; /* (ranks) */
} Tracing;

/* Allocates the buffers; does nothing if `steps` is 0. `backend` must outlive the Tracing. */
NODISCARD Err tracing_open(Tracing *t, Comm *comm, Backend *backend, uint64_t from,
                           uint64_t steps);
/* Restores the backend if it is still recording, and frees the buffers. */
void tracing_close(Tracing *t, Comm *comm);

/* Every rank calls these three. */
/* Returns true if recording begins with the next step: call tracing_begin then. */
bool tracing_is_due(const Tracing *t);
/* Begins to record, at `step`. No collective may be running on a device. */
NODISCARD Err tracing_begin(Tracing *t, Comm *comm, uint64_t step);
/* Counts a step. Returns true if it was the last to be recorded: call tracing_write then. */
bool tracing_count_step(Tracing *t);
/* Stops recording and writes RUN_DIR/trace.json; does nothing if it does not record. Rank 0
 * prints what was written, or a warning if it could not be: training continues. No collective
 * may be running on a device. */
NODISCARD Err tracing_write(Tracing *t, Comm *comm, const char *run_dir);
/* At the end of a run: rank 0 warns if recording was asked for and never began. */
void tracing_warn_unused(const Tracing *t, const Comm *comm);

#endif
