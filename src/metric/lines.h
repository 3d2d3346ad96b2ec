/* Files of sentences, one per line, as `score` reads them. Depends on base/file, utf8,
 * metric/unicode. */
#ifndef METRIC_LINES_H
#define METRIC_LINES_H

#include "metric/metric.h"

typedef struct {
  const char *path; /* not copied; "-" is standard input */
  Str bytes;
  MetricText *line; /* lines, without white space at the end */
  size_t lines, line_cap;
} MetricLines;

/* Reads all of the file and checks that it is UTF-8. */
NODISCARD Err metric_lines_read(MetricLines *l, const char *path);
const char *metric_lines_name(const char *path); /* name of the file for messages */
void metric_lines_free(MetricLines *l);

#endif
