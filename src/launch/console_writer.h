/* The thread that writes log files, and its queue. Threads: all functions are called by one thread,
 * and none but writer_close waits for a file. Depends on base. */
#ifndef LAUNCH_CONSOLE_WRITER_H
#define LAUNCH_CONSOLE_WRITER_H

#include <stddef.h>

#include "base/err.h"

typedef struct Writer Writer;

/* See ConsoleSpec for log_dir and run. */
NODISCARD Err writer_open(Writer **w, const char *log_dir, const char *run);
/* Queues a line, with its line break, for LOGDIR/name. */
void writer_log(Writer *w, const char *name, const char *line, size_t len);
void writer_log_with_time(Writer *w, const char *name, const char *line, size_t len);
/* Writes what is queued and ends the thread. An error: lines were lost. NULL is allowed. */
NODISCARD Err writer_close(Writer *w);

#endif
