/* Watches and counts the signals that end a launch; saves and restores the signal mask. Depends
 * on Linux (signalfd). */
#include "launch/signals.h"

#include <errno.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <time.h>

int signals_watch(int more) {
  sigset_t set;
  struct sigaction hangup;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, more);
  sigaction(SIGHUP, NULL, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, NULL);
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int signals_note(int *demands, int signal_number) {
  if (signal_number == SIGINT || signal_number == SIGTERM) (*demands)++;
  return *demands > 1 ? *demands : 1;
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
