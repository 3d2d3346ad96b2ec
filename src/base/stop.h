/* Asked to stop: the first SIGINT, SIGTERM or SIGUSR1 sets a flag that long jobs look
 * at between pieces of work; a second SIGINT or SIGTERM ends the program at once. Relies on nothing. */
#ifndef BASE_STOP_H
#define BASE_STOP_H

#include <stdbool.h>

void stop_watch(void);   /* from now on signals set the flag */
void stop_unwatch(void); /* signals end the program again */
bool stop_asked(void);

#endif
