/* Requests to stop by SIGINT, SIGTERM or SIGUSR1. The signal handler sets a flag, which long jobs
 * check between units of work. Depends on log. */
#ifndef BASE_STOP_H
#define BASE_STOP_H

#include <stdbool.h>

/* Installs the signal handler: the first signal sets the flag, a second SIGINT or SIGTERM ends
 * the program immediately. A second SIGUSR1 is ignored, because job schedulers repeat it. */
void stop_watch(void);
/* Like stop_watch, but the handler prints answer[0] at the first signal and answer[1] at the
 * second, after which stop_hurried() is true; the third ends the program. A SIGINT or SIGTERM that
 * follows SIGUSR1 asks for the same and is not counted; SIGINT is answered again. */
void stop_watch_twice(const char *const answer[2]);
/* Replaces both messages during work that reacts differently to a signal; NULL restores the
 * messages of stop_watch_twice. */
void stop_answer_with(const char *const answer[2]);
/* From now on the handler prints nothing, and the second SIGINT or SIGTERM ends the program. For a
 * process that is about to end because of an error: it keeps no promise of these messages. Any
 * thread may call it. */
void stop_answer_nothing(void);
void stop_unwatch(void); /* Removes the signal handler: the signals end the program again. */
bool stop_asked(void);   /* Returns true if a stop signal has arrived. */
/* Returns true if a second stop signal has arrived. The caller should then skip work that a
 * resumed run repeats. */
bool stop_hurried(void);

#endif
