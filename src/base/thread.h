/* Threads: how many cores this process may use, and one parallel loop.
 * Relies on err, mem. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "base/err.h"

int thread_cores(void);
/* Runs work(context, i) for i in 0 … n-1, each on a thread of its own; waits;
 * the error is that of the lowest i that failed. */
typedef Err (*ThreadWork)(void *context, int i);
NODISCARD Err thread_each(int n, ThreadWork work, void *context);

#endif
