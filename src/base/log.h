/* Messages for people, on standard error. Results go to standard output and are
 * not this file's business. Relies on lines, str, utf8. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

void log_info(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_warn(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* A line that on a terminal takes the place of the one before it. */
void log_live(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* A line from a signal handler: at once, to standard error alone, of at most 250 bytes. */
void log_answer(const char *line);
void log_live_end(void);    /* the cursor goes below it */
void log_mute(void);        /* nothing more at all: somebody else says it */
void log_quiet(bool quiet); /* leaves out log_info and progress */
bool log_is_quiet(void);
/* Who speaks, before each warning and error: "rank 2 on host: "; "" for nobody. */
void log_speaker(const char *name);
/* To the file of log_to alone: what standard output has. */
void log_record(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Every message also goes to the end of this file, with the time, and so do those since
 * log_hold. The first line that cannot be written is a warning. */
NODISCARD Err log_to(const char *path);
void log_hold(void); /* keeps messages for a file whose place is not known yet */
void log_to_end(void);
uint64_t log_lost(void); /* lines that are not in the file */
/* An error as the last word before _exit, from the handler of a signal: no lock, no memory. */
void log_from_signal(const char *text);
/* Is standard error a terminal, and may it be coloured (NO_COLOR)? */
bool log_is_terminal(void);
bool log_has_color(void);
/* Is it a terminal that a line can be rewritten on (TERM is not dumb)? */
bool log_is_live(void);
/* Bytes of a line of text that a live line has room for: one that wraps cannot be rewritten. */
int log_fit(const char *line);

#endif
