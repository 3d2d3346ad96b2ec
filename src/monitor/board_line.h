/* One line of metrics.jsonl: its step, its time, its numbers. Depends on scan. */
#ifndef MONITOR_BOARD_LINE_H
#define MONITOR_BOARD_LINE_H

#include <stdbool.h>
#include <stddef.h>

#define LINE_VALUES 64 /* further numbers of a line are ignored */
#define LINE_EVENT  24

/* What a line reports. The records of each kind are a series of their own: a validation and the
 * training record of the same step are no duplicates. */
typedef enum { LINE_TRAIN, LINE_VALID, LINE_AVERAGE, LINE_KINDS } LineKind;

typedef struct {
  LineKind kind;
  double step, seconds;
  bool undoes_later; /* earlier lines whose step is greater than undone_after do not count */
  double undone_after;
  char event[LINE_EVENT]; /* "" for measurements */
  size_t values;
  struct {
    const char *name; /* in the text of the line */
    size_t name_len;
    double number;
  } value[LINE_VALUES];
} Line;

/* Reads a line. Returns false if it is not a JSON object with a step that is 0 or more. */
bool line_read(Line *line, const char *text, size_t len);

#endif
