/* The signals that end a launch. The supervisor and the agents block them and read them from a
 * descriptor. Depends on Linux (signalfd). */
#ifndef LAUNCH_SIGNALS_H
#define LAUNCH_SIGNALS_H

#include <signal.h>

/* Blocks SIGINT, SIGTERM, `more` and, unless it is ignored as under nohup, SIGHUP. Returns a
 * descriptor from which they are read (signalfd), or -1 with errno. */
int signals_watch(int more);
/* Counts a signal. Returns 1 if the processes should save and stop, 2 or more if they should end
 * at once. *demands, 0 at first, is the number of SIGINT and SIGTERM. SIGHUP (the terminal was
 * closed) and SIGUSR1 (a batch system's time limit is near) are not counted there: they are often
 * repeated, or followed by SIGTERM, and ask only to save and stop. */
int signals_note(int *demands, int signal_number);

void signals_save(sigset_t *mask);
/* Discards the signals that arrived while they were blocked, and restores the mask. A second Ctrl-C
 * at the end of a launch then does not replace its exit status. */
void signals_restore(const sigset_t *mask);

#endif
