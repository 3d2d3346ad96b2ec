/* Requests to stop by SIGINT, SIGTERM or SIGUSR1. The signal handler sets a flag, which long jobs
 * check between units of work. Depends on log. */
#ifndef BASE_STOP_H
#define BASE_STOP_H

#include <stdbool.h>

/* Installs the handler: the first signal sets the flag, a second SIGINT or SIGTERM ends the program
 * at once. A second SIGUSR1 is ignored, because launchers repeat it. */
void stop_watch(void);
/* Like stop_watch, but the handler prints answer[0] at the first signal and answer[1] at the
 * second, after which stop_hurried() is true; the third ends the program. */
void stop_watch_twice(const char *const answer[2]);
/* Replaces both answers during work that reacts differently to a signal; NULL restores those of
 * stop_watch_twice. */
void stop_answer_with(const char *const answer[2]);
void stop_unwatch(void); /* restores the default: signals end the program */
bool stop_asked(void);   /* has a signal arrived? */
/* Has a second signal arrived? Then skip work that a resumed run repeats. */
bool stop_hurried(void);

#endif
