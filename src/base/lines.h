/* A text file that grows by whole lines, such as a log. A line that cannot be written is taken
 * back and counted, and the next one is tried again. Any thread may add. Relies on err, mem. */
#ifndef BASE_LINES_H
#define BASE_LINES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  bool is_open;
  int fd;
  char *path;
  pthread_mutex_t lock;
  _Atomic uint64_t lost; /* lines */
} LineFile;

/* Appends to the file, or makes it. */
NODISCARD Err lines_open(LineFile *f, const char *path);
/* `line` ends with a line break. Does not allocate. */
NODISCARD Err lines_add(LineFile *f, const char *line, size_t len);
void lines_close(LineFile *f); /* harmless where it is not open; `lost` stays */

#endif
