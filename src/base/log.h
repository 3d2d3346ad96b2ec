/* Messages for people, on standard error. Results go to standard output and are
 * not this file's business. Relies on nothing. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

#include "base/err.h"

void log_info(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_warn(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_error(const char *fmt, ...) PRINTF_LIKE(1, 2);
void log_quiet(bool quiet); /* leaves out log_info and progress */
bool log_is_quiet(void);
/* Is standard error a terminal, and may it be coloured (NO_COLOR)? */
bool log_is_terminal(void);
bool log_has_color(void);

#endif
