/* Signals that ask to stop. Relies on the C library. */
#include "base/stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked;

static void note(int signal_number) {
  (void)signal_number;
  asked = 1;
}

static void set(void (*handler)(int), int flags) {
  struct sigaction action = {.sa_flags = flags};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  action.sa_flags &= ~(int)SA_RESETHAND; /* launchers repeat it */
  sigaction(SIGUSR1, &action, NULL);
}

void stop_watch(void) {
  set(note, SA_RESTART | (int)SA_RESETHAND);
}

void stop_unwatch(void) {
  set(SIG_DFL, 0);
}

bool stop_asked(void) {
  return asked != 0;
}
