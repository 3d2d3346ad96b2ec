/* Counts the cores that this process may use, sets signal masks of threads, and implements timed
 * waits on the monotonic clock. Depends on POSIX. */
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

int thread_cores(void) {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

bool thread_start(pthread_t *thread, void *(*run)(void *), void *argument) {
  /* Signals that an instruction raises are not blocked: a blocked one would end the process
   * without calling its handler. */
  static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
  sigset_t most, before;
  sigfillset(&most);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&most, faults[i]);
  pthread_sigmask(SIG_SETMASK, &most, &before);
  bool started = pthread_create(thread, NULL, run, argument) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return started;
}

void thread_cond_init(pthread_cond_t *cond) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(cond, &attributes);
  pthread_condattr_destroy(&attributes);
}

void thread_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *lock, double seconds) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  time_t whole = (time_t)seconds;
  until.tv_sec += whole;
  until.tv_nsec += (long)((seconds - (double)whole) * 1e9);
  if (until.tv_nsec >= 1000000000) {
    until.tv_nsec -= 1000000000;
    until.tv_sec++;
  }
  pthread_cond_timedwait(cond, lock, &until);
}
