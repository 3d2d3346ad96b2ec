/* The signals that a launch blocks while it runs (supervisor_run reads them from a descriptor).
 * Depends on POSIX. */
#ifndef LAUNCH_SIGNALS_H
#define LAUNCH_SIGNALS_H

#include <signal.h>

void signals_save(sigset_t *mask);
/* Discards the signals that arrived while they were blocked, and restores the mask. A second Ctrl-C
 * at the end of a launch then does not replace its exit status. */
void signals_restore(const sigset_t *mask);

#endif
