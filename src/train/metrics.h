/* Metrics of a run: records of named values of one step, written to every sink
 * (metrics_sink.h). Only rank 0 opens a Metrics; on the other ranks it is zero and nothing is
 * written. Called by one thread. Depends on base.
 *
 *   metrics_begin(m, step, seconds);
 *   metrics_add(m, "loss", 2.31);
 *   metrics_add_count(m, "skipped", 0);
 *   metrics_end(m);
 *
 * Sinks only append. When a run returns to an earlier step (roll-back or resume), it writes a
 * record that undoes the later steps, so that readers count no step twice. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include "train/metrics_sink.h"

typedef struct {
  bool is_open;
  void *sink[METRICS_SINKS]; /* state of each sink; NULL: switched off */
  uint64_t lost[METRICS_SINKS];
  MetricsRecord record; /* the record that metrics_begin started */
} Metrics;

/* Opens every sink in the run directory. A sink that has records of later steps than
 * spec->step gets a record that undoes them. */
NODISCARD Err metrics_open(Metrics *m, const MetricsSpec *spec);
void metrics_close(Metrics *m); /* closes all sinks; does nothing if they are not open */

/* Starts a record. `seconds`: training time so far, including earlier processes of the run. */
void metrics_begin(Metrics *m, uint64_t step, double seconds);
/* Marks the record as the report of an event, such as "restart". */
void metrics_set_event(Metrics *m, const char *event);
/* Adds a value; at most METRICS_VALUES per record. The pointer `name` must stay valid until
 * metrics_end. */
void metrics_add(Metrics *m, const char *name, double value);
void metrics_add_count(Metrics *m, const char *name, uint64_t count);
/* Adds a text: UTF-8, at most 1,024 bytes. The pointers must stay valid until metrics_end. */
void metrics_add_text(Metrics *m, const char *name, const char *text);
/* Add a list of numbers or of texts, which only metrics.jsonl contains. The pointers must stay valid
 * until metrics_end. */
void metrics_add_list(Metrics *m, const char *name, const double *list, size_t n);
void metrics_add_texts(Metrics *m, const char *name, const char *const *list, size_t n);
/* Adds a table of texts or a histogram, which metrics.jsonl does not contain. */
void metrics_add_table(Metrics *m, const char *name, MetricsTable table);
void metrics_add_histogram(Metrics *m, const char *name, const Histogram *histogram);
/* Marks the record as undoing all earlier records of later steps. */
void metrics_undo_later(Metrics *m);
/* Writes the record to every sink. The first failure of a sink is a warning; training continues
 * and metrics_lost counts. */
void metrics_end(Metrics *m);
/* Notes that the run has reached its end. A run that is resumed after that goes on. */
void metrics_finish(Metrics *m, double seconds);
/* Returns the number of records that a sink (METRICS_JSONL, METRICS_TFEVENTS, METRICS_WANDB) could not
 * write; may be called after metrics_close. */
uint64_t metrics_lost(const Metrics *m, int sink);

#endif
