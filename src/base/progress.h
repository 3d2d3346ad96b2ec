/* Progress of a long job: a bar with rate and time left on a terminal, a plain
 * line every few seconds in a pipe. One thread updates one Progress at a time.
 * Relies on log, str, utf8. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  char title[128];  /* "encode" */
  const char *unit; /* "lines", or "bytes" for sizes in kB and MB */
  uint64_t total;   /* 0 when unknown */
  uint64_t done, first;
  double start, shown; /* seconds of the monotonic clock */
  bool bytes, drawn;
} Progress;

void progress_begin(Progress *p, const char *title, const char *unit, uint64_t total);
/* `already` done before this process began (a resumed job): not in the rate. */
void progress_resume(Progress *p, uint64_t already);
void progress_set(Progress *p, uint64_t done);
/* Ends the line; prints the total, the time and the mean rate. */
void progress_end(Progress *p);

/* For work that cannot tell how far it is: shows the time it has taken so far,
 * from a thread of its own, until progress_wait_end. */
typedef struct {
  const char *title;
  double start;
  bool started, over;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t ended;
} ProgressWait;
void progress_wait_begin(ProgressWait *w, const char *title);
void progress_wait_end(ProgressWait *w);

double progress_clock(void); /* seconds, monotonic */

#endif
