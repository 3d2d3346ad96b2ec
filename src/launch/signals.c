/* Counts the signals that end a launch; saves and restores the signal mask. Depends on POSIX. */
#include "launch/signals.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

int signals_note(StopSignals *s, int signal_number) {
  if (signal_number == SIGHUP || signal_number == SIGUSR1)
    s->is_announced = true;
  else
    s->demands++;
  return s->demands > 1 ? s->demands : 1;
}

void signals_save(sigset_t *mask) {
  pthread_sigmask(SIG_BLOCK, NULL, mask);
}

void signals_restore(const sigset_t *mask) {
  static const int endings[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  struct timespec at_once = {0};
  sigset_t discard;
  sigemptyset(&discard);
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
    if (!sigismember(mask, endings[i])) sigaddset(&discard, endings[i]);
  while (sigtimedwait(&discard, NULL, &at_once) > 0 || errno == EINTR) {}
  pthread_sigmask(SIG_SETMASK, mask, NULL);
}
