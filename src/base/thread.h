/* Cores that this process may use, threads that take no signals, and waits with a time limit.
 * Relies on nothing. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

int thread_cores(void);

/* Starts a thread that leaves all signals to the others. What its own instructions raise, as
 * SIGBUS for a mapped file that was truncated, still reaches its handler. */
bool thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Initialises a condition whose pthread_cond_timedwait takes times of CLOCK_MONOTONIC: a system
 * clock that is set back does not prolong the wait. */
void thread_cond_init(pthread_cond_t *cond);
/* Waits for `cond` at most so many seconds; `lock` is held before and after. */
void thread_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *lock, double seconds);

#endif
