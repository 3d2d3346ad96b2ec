/* Cores that this process may use, and waits with a time limit. Relies on nothing. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

int thread_cores(void);

/* Initialises a condition whose pthread_cond_timedwait takes times of CLOCK_MONOTONIC: a system
 * clock that is set back does not prolong the wait. */
void thread_cond_init(pthread_cond_t *cond);
/* Waits for `cond` at most so many seconds; `lock` is held before and after. */
void thread_cond_wait_for(pthread_cond_t *cond, pthread_mutex_t *lock, double seconds);

#endif
