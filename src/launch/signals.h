/* The signals that end a launch. The supervisor and the agents block them and read them from a
 * descriptor. Depends on POSIX. */
#ifndef LAUNCH_SIGNALS_H
#define LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* Signals that ask for the end of a launch. SIGHUP (the terminal was closed) and SIGUSR1 (a batch
 * system's time limit is near) announce the end; they are often repeated, or followed by SIGTERM.
 * SIGINT and SIGTERM demand it. */
typedef struct {
  bool is_announced;
  int demands; /* number of SIGINT and SIGTERM */
} StopSignals;

/* Returns 1 if the processes should save and stop, 2 or more if they should end at once. */
int signals_note(StopSignals *s, int signal_number);

void signals_save(sigset_t *mask);
/* Discards the signals that arrived while they were blocked, and restores the mask. A second Ctrl-C
 * at the end of a launch then does not replace its exit status. */
void signals_restore(const sigset_t *mask);

#endif
