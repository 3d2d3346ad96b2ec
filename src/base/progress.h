/* Progress of a long job: on a terminal a bar with rate and remaining time, elsewhere a plain line
 * every few seconds. Threads: one at a time may update a Progress. Depends on log, str, utf8. */
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
/* Sets how much an earlier process of a resumed job had done; the rate does not include it. */
void progress_resume(Progress *p, uint64_t already);
void progress_set(Progress *p, uint64_t done);
/* Ends the line; prints the total, the time and the mean rate. */
void progress_end(Progress *p);

/* For work whose progress is unknown: a thread shows the elapsed time until progress_wait_end. */
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
