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
/* Prints a line that explains the error message after it: without a label, and also when
 * quiet. */
void log_detail(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Prints a status line; on a terminal it overwrites the previous status line. */
void log_live(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Prints a line of at most 250 bytes to standard error only. Async-signal-safe. */
void log_answer(const char *line);
void log_live_end(void); /* Ends the status line with a line break. */
/* Prints nothing from now on, because another rank reports the error. */
void log_mute(void);
void log_quiet(bool quiet); /* Suppresses log_info and progress while `quiet` is true. */
bool log_is_quiet(void);
/* Sets the prefix of every warning and error, for example "rank 2 on host: "; "" removes it. */
void log_speaker(const char *name);
/* Writes to the log file only. Used for text that other code prints to standard output. */
void log_record(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Appends every later message, with the time, to this file; first the messages stored since
 * log_hold. The first line that cannot be written is reported by a warning. */
NODISCARD Err log_to(const char *path);
void log_hold(void); /* Stores messages in memory until log_to opens the log file. */
void log_to_end(void);
/* Returns the number of lines that could not be written to the log file. */
uint64_t log_lost(void);
/* Passes messages to `take` instead of printing them; NULL: prints them again. `label` is "",
 * "warning: " or "trireme: "; `line` has no line break. */
typedef void (*LogTaker)(void *context, const char *label, const char *line);
void log_divert(LogTaker take, void *context);
/* Prints an error from a signal handler, before _exit. Takes no lock and allocates nothing. */
void log_from_signal(const char *text);
/* Returns true if standard error is a terminal and the variable NO_COLOR does not forbid
 * colours. */
bool log_is_terminal(void);
bool log_has_color(void);
/* Returns true if standard error is a terminal on which a line can be overwritten (TERM is not
 * dumb). */
bool log_is_live(void);
/* Returns how many bytes of `line` fit into the width of the terminal. A status line that wraps
 * cannot be overwritten. */
int log_fit(const char *line);

#endif
