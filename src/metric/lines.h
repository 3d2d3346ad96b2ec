/* Files of sentences, one per line, which the command `score` reads. Depends on base/file, utf8,
 * metric/unicode. */
#ifndef METRIC_LINES_H
#define METRIC_LINES_H

#include "metric/metric.h"

typedef struct {
  const char *path; /* path of the caller, not copied; "-" is standard input */
  Str bytes;
  MetricText *line; /* lines without white space at the end */
  size_t lines, line_cap;
} MetricLines;

/* Reads the whole file and checks that it is UTF-8. */
NODISCARD Err metric_lines_read(MetricLines *l, const char *path);
/* Like metric_lines_read for a file that the user has not named: only a regular file of at most `limit`
 * bytes is read, so that a pipe does not block and a device does not fill the memory. */
NODISCARD Err metric_lines_read_regular(MetricLines *l, const char *path, size_t limit);
/* Returns the name of the file for messages. */
const char *metric_lines_name(const char *path);
void metric_lines_free(MetricLines *l);

#endif
