/* The number of cores that this process may use, threads with signals blocked, and waits with a
 * time limit. No dependencies. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

int thread_cores(void);

/* Starts a thread in which all signals are blocked, except those that its own instructions raise,
 * such as SIGBUS for a mapped file that was truncated. Returns false if the thread could not be
 * started. */
bool thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Initialises a condition whose pthread_cond_timedwait takes times of CLOCK_MONOTONIC: a system
 * clock that is set back does not prolong the wait. */
void thread_cond_init(pthread_cond_t *cond);
/* Waits for `cond` for at most `seconds`; the caller holds `lock` before and after. */
void thread_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *lock, double seconds);

#endif
