/* Messages on standard error, optionally copied to a log file. Results are printed to standard
 * output by other code. Depends on lines, str, utf8. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

void log_info(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_warn(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* A line that explains the error that follows it: printed even when quiet, without a label. */
void log_detail(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* A status line; on a terminal it overwrites the previous status line. */
void log_live(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Prints a line of at most 250 bytes to standard error only. Async-signal-safe. */
void log_answer(const char *line);
void log_live_end(void);    /* ends the status line with a line break */
void log_mute(void);        /* prints nothing from now on: another rank reports the error */
void log_quiet(bool quiet); /* true: omits log_info and progress */
bool log_is_quiet(void);
/* Sets the prefix of each warning and error, "rank 2 on host: "; "" for none. */
void log_speaker(const char *name);
/* Writes to the log file only: a copy of what is printed to standard output. */
void log_record(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Appends every message to this file from now on, with the time, and first the messages since
 * log_hold. The first line that cannot be written is reported by a warning. */
NODISCARD Err log_to(const char *path);
void log_hold(void); /* keeps messages in memory for a log_to that follows */
void log_to_end(void);
uint64_t log_lost(void); /* lines that could not be written to the file */
/* Prints an error from a signal handler, before _exit. Takes no lock and allocates nothing. */
void log_from_signal(const char *text);
/* Is standard error a terminal, and may it be coloured (NO_COLOR)? */
bool log_is_terminal(void);
bool log_has_color(void);
/* Is it a terminal on which a line can be overwritten (TERM is not dumb)? */
bool log_is_live(void);
/* Number of bytes of `line` that fit into the terminal's width: a status line that wraps cannot
 * be overwritten. */
int log_fit(const char *line);

#endif
