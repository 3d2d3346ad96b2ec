/* Metrics of a run: records of named values, each of one step, written to every sink
 * (metrics_sink.h). Rank 0 opens it; on the other ranks, where it is zero, nothing is
 * written. One thread. Depends on base.
 *
 *   metrics_begin(m, step, seconds);
 *   metrics_add(m, "loss", 2.31);
 *   metrics_add_count(m, "skipped", 0);
 *   metrics_end(m);
 *
 * Sinks only append. A run that goes back to an earlier step, to recover or to resume, writes a
 * record that undoes the steps after it, so that no reader counts a step twice. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include "train/metrics_sink.h"

typedef struct {
  bool is_open;
  void *sink[METRICS_SINKS]; /* in the order of metrics_sinks */
  uint64_t lost[METRICS_SINKS];
  MetricsRecord record; /* the one that metrics_begin began */
} Metrics;

/* Opens every sink in the run directory. `step`: where the run begins or resumes. A sink that
 * has records of later steps gets one that undoes them; `seconds` is its time. */
NODISCARD Err metrics_open(Metrics *m, const char *run_dir, uint64_t step, double seconds);
void metrics_close(Metrics *m); /* harmless when not open */

/* seconds: of training so far, over all calls. */
void metrics_begin(Metrics *m, uint64_t step, double seconds);
/* `name` is kept as a pointer until metrics_end. At most METRICS_VALUES in a record. */
void metrics_add(Metrics *m, const char *name, double value);
void metrics_add_count(Metrics *m, const char *name, uint64_t count);
/* `text`: UTF-8, at most 1,024 bytes; like `name` kept as a pointer until metrics_end. */
void metrics_add_text(Metrics *m, const char *name, const char *text);
/* The record begun undoes all earlier records of steps after its own. */
void metrics_undo_later(Metrics *m);
/* Writes the record to every sink. The first one that a sink cannot write is a warning;
 * training goes on, and metrics_lost counts. */
void metrics_end(Metrics *m);
/* Records that could not be written, over all sinks; also after metrics_close. */
uint64_t metrics_lost(const Metrics *m);

#endif
