/* A text file that grows by whole lines, such as a log. A line that cannot be written completely
 * is removed again and counted in `lost`; later lines are still tried. Threads: any may add.
 * Depends on err, mem. */
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

/* Opens the file for appending, or creates it. */
NODISCARD Err lines_open(LineFile *f, const char *path);
/* `line` ends with a line break. Does not allocate. */
NODISCARD Err lines_add(LineFile *f, const char *line, size_t len);
void lines_close(LineFile *f); /* no effect if it is not open; keeps `lost` */

#endif
