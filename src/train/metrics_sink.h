/* Where metrics go: one entry in the table of metrics.c and one file (metrics_jsonl.c) for each
 * sink. Depends on base. */
#ifndef TRAIN_METRICS_SINK_H
#define TRAIN_METRICS_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define METRICS_SINKS  1
#define METRICS_VALUES 24 /* of a record */

typedef struct {
  const char *name;
  const char *text; /* UTF-8; NULL: a number */
  bool is_count;    /* a whole number: `count`; else `real` */
  double real;
  uint64_t count;
} MetricsValue;

typedef struct {
  uint64_t step;
  double seconds;
  bool undoes_later; /* earlier records of steps after `step` no longer count */
  size_t values;
  MetricsValue value[METRICS_VALUES];
} MetricsRecord;

typedef struct {
  /* Opens the file to append, or makes it. *last_step: that of the last record that counts; 0
   * where there is none. */
  Err (*open)(void **sink, const char *run_dir, uint64_t *last_step);
  /* Writes the whole record or nothing. The error says what failed and why. */
  Err (*write)(void *sink, const MetricsRecord *record);
  void (*close)(void *sink); /* NULL is fine */
} MetricsSink;

extern const MetricsSink metrics_jsonl;

#endif
