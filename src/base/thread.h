/* How many cores this process may use. Relies on nothing. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

int thread_cores(void);

#endif
