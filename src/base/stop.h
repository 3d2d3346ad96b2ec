/* Asked to stop by SIGINT, SIGTERM or SIGUSR1: signals set a flag that long jobs look at
 * between pieces of work. Relies on log. */
#ifndef BASE_STOP_H
#define BASE_STOP_H

#include <stdbool.h>

/* From now on the first signal sets the flag, and a second SIGINT or SIGTERM ends the program
 * at once. Launchers repeat SIGUSR1, so a second one of these is ignored. */
void stop_watch(void);
/* The same, but the handler prints answer[0] for the first signal at once, and answer[1] for a
 * second one, after which stop_hurried() is true; the third ends the program. */
void stop_watch_twice(const char *const answer[2]);
/* Replaces both answers of stop_watch_twice, for work that stops otherwise; NULL: the answers of
 * stop_watch_twice again. */
void stop_answer_with(const char *const answer[2]);
void stop_unwatch(void); /* signals end the program again */
bool stop_asked(void);
bool stop_hurried(void); /* a second signal came: leave undone what can be done again */

#endif
