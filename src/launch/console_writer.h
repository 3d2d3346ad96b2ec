/* Writes log files with a thread, which has a queue. Threads: all functions are called by one
 * thread; only writer_close blocks, and no longer than 10 s without progress. Depends on base. */
#ifndef LAUNCH_CONSOLE_WRITER_H
#define LAUNCH_CONSOLE_WRITER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct Writer Writer;

/* `log_dir` and `run`: see ConsoleSpec. */
NODISCARD Err writer_open(Writer **w, const char *log_dir, const char *run);
/* Queues a line, with its line break, for the file LOGDIR/name. */
void writer_log(Writer *w, const char *name, const char *line, size_t len);
void writer_log_with_time(Writer *w, const char *name, const char *line, size_t len);
/* See console_own_run. */
void writer_own_run(Writer *w);
/* Returns true if the log directory exists and belongs to this launch: lines are written. */
bool writer_has_dir(const Writer *w);
/* Returns why the first lost line could not be written; NULL: no line is lost. */
const char *writer_error(const Writer *w);
/* Writes the queue and ends the thread; accepts NULL. Fails if lines were lost. */
NODISCARD Err writer_close(Writer *w);

#endif
