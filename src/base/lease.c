/* Leases on a shared resource. The mutex protects only the flags and is not held while the
 * resource is in use, because such a use may block for a long time. Depends on thread. */
#include "base/lease.h"

#include <errno.h>
#include <time.h>

#include "base/thread.h"

void lease_open(Lease *l) {
  *l = (Lease){0};
  pthread_mutex_init(&l->lock, NULL);
  thread_cond_init(&l->returned);
}

void lease_close(Lease *l) {
  pthread_cond_destroy(&l->returned);
  pthread_mutex_destroy(&l->lock);
}

bool lease_take(Lease *l) {
  pthread_mutex_lock(&l->lock);
  bool allowed = !l->ended;
  l->taken = allowed;
  pthread_mutex_unlock(&l->lock);
  return allowed;
}

bool lease_return(Lease *l) {
  pthread_mutex_lock(&l->lock);
  bool mine = l->handed_over;
  l->taken = false;
  l->handed_over = false;
  pthread_cond_broadcast(&l->returned);
  pthread_mutex_unlock(&l->lock);
  return mine;
}

static struct timespec deadline_in(double seconds) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  long nanoseconds = at.tv_nsec + (long)((seconds - (double)(time_t)seconds) * 1e9);
  at.tv_sec += (time_t)seconds + nanoseconds / 1000000000;
  at.tv_nsec = nanoseconds % 1000000000;
  return at;
}

bool lease_end(Lease *l, double seconds) {
  struct timespec until = deadline_in(seconds);
  bool mine = false;
  int wrong = 0;
  pthread_mutex_lock(&l->lock);
  if (!l->ended) {
    l->ended = true;
    while (l->taken && wrong != ETIMEDOUT)
      wrong = pthread_cond_timedwait(&l->returned, &l->lock, &until);
    mine = !l->taken;
    l->handed_over = l->taken;
  }
  pthread_mutex_unlock(&l->lock);
  return mine;
}
