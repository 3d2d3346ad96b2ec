/* A job for the communication thread. Depends on nothing. */
#ifndef COMM_JOB_H
#define COMM_JOB_H

#include <stdbool.h>

typedef struct Comm Comm;

/* Owned by the caller; it must not move between comm_submit and the return of comm_wait. */
typedef struct CommJob {
  void (*run)(Comm *comm, void *context);
  void *context;
  bool awaited; /* comm_wait follows at once: the communication thread need not be woken */
  struct CommJob *next_; /* set by the queue */
  bool done_;
} CommJob;

#endif
