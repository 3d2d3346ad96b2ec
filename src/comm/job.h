/* A job for the communication thread. Depends on nothing. */
#ifndef COMM_JOB_H
#define COMM_JOB_H

#include <stdbool.h>

typedef struct Comm Comm;

/* A function that the communication thread calls. The caller owns the struct, which must not
 * move between comm_submit and the return of comm_wait. */
typedef struct CommJob {
  void (*run)(Comm *comm, void *context);
  void *context;
  /* The submitting thread calls comm_wait next, so the communication thread is not woken. */
  bool awaited;
  struct CommJob *next_; /* next_ and done_ belong to the queue */
  bool done_;
} CommJob;

#endif
