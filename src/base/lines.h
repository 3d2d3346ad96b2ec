/* A text file to which whole lines are appended, such as a log. A line that cannot be written
 * completely is removed and counted in `lost`; later lines are still written. Threads: any
 * thread may add lines. Depends on err, mem. */
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
  _Atomic uint64_t lost; /* number of lines that were not written */
} LineFile;

/* Opens the file for appending; creates it if it does not exist. */
NODISCARD Err lines_open(LineFile *f, const char *path);
/* Appends `line`, which must end with a line break. Does not allocate memory. */
NODISCARD Err lines_add(LineFile *f, const char *line, size_t len);
/* Adds a line break if the file ends without one, as after a crash within a line. Call it after
 * lines_open. */
NODISCARD Err lines_complete(LineFile *f);
/* Closes the file, if it is open. The field `lost` keeps its value. */
void lines_close(LineFile *f);

#endif
