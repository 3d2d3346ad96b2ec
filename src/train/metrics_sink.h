/* The interface of a sink for metrics. Each sink is one file (metrics_jsonl.c, metrics_tfevents.c,
 * metrics_wandb.c) and one entry in the table of metrics.c. Depends on base, histogram. */
#ifndef TRAIN_METRICS_SINK_H
#define TRAIN_METRICS_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "train/histogram.h"

/* The sinks, in the order of the table in metrics.c. */
enum { METRICS_JSONL, METRICS_TFEVENTS, METRICS_WANDB, METRICS_SAMPLES, METRICS_SINKS };
#define METRICS_VALUES 32 /* largest number of values in a record */

/* Arguments with which a sink opens its file. */
typedef struct {
  const char *run_dir;
  uint64_t step;         /* the step at which the run begins or resumes */
  double seconds;        /* training time so far, including earlier processes of the run */
  const char *options;   /* all options of the run, as lines of a config file */
  bool with_tensorboard; /* write RUN/events.out.tfevents.* */
  /* Project of the run on Weights & Biases: write RUN/wandb. NULL: write nothing. */
  const char *wandb_project;
} MetricsSpec;

typedef enum {
  METRICS_REAL,
  METRICS_COUNT,
  METRICS_TEXT,
  METRICS_LIST,
  METRICS_TEXTS,
  METRICS_TABLE,
  METRICS_HISTOGRAM
} MetricsKind;

/* A table of texts in UTF-8. `cells`: rows * columns strings, one after another, each ends with
 * NUL. */
typedef struct {
  const char *cells;
  size_t rows, columns;
} MetricsTable;

typedef struct {
  const double *item;
  size_t n;
} MetricsList;

typedef struct {
  const char *const *item; /* UTF-8 */
  size_t n;
} MetricsTexts;

typedef struct {
  const char *name;
  MetricsKind kind;
  union {
    double real;
    uint64_t count;
    const char *text; /* UTF-8 */
    MetricsList list;
    MetricsTexts texts;
    MetricsTable table;
    const Histogram *histogram;
  };
} MetricsValue;

typedef struct {
  uint64_t step;
  double seconds;
  const char *event; /* what the record reports, such as "restart"; NULL: measurements */
  bool undoes_later; /* earlier records of later steps are no longer valid */
  size_t values;
  MetricsValue value[METRICS_VALUES];
} MetricsRecord;

typedef struct {
  /* Opens the file for appending, or creates it. *last_step: step of the last valid record; 0
   * if there is none, or if the sink itself has undone the steps after spec->step. *sink is NULL
   * if the sink is switched off. */
  Err (*open)(void **sink, const MetricsSpec *spec, uint64_t *last_step);
  /* Writes the whole record or nothing. A sink may leave out kinds of values. The error says what failed and why. */
  Err (*write)(void *sink, const MetricsRecord *record);
  /* Notes that the run has reached its end; no record follows. NULL: nothing is to be done. */
  Err (*finish)(void *sink, double seconds);
  void (*close)(void *sink); /* closes the file; accepts NULL */
} MetricsSink;

extern const MetricsSink metrics_jsonl, metrics_tfevents, metrics_wandb, metrics_samples;

/* Makes the name of a value for programs that show the part before the slash as a group:
 * train/NAME, time/NAME_ms, valid/NAME for valid_NAME, average/NAME for average_NAME. A name that
 * has a group already stays as it is. */
#define METRICS_TAG 128
void metrics_make_tag(char tag[METRICS_TAG], const char *name);

#endif
