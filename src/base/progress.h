/* Progress of a long job: on a terminal a bar with rate and remaining time, otherwise a plain
 * line every few seconds. Threads: callers must not update one Progress at the same time. Depends
 * on log, str, utf8. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  char title[128]; /* name of the job, for example "encode" */
  /* unit of the counts, for example "lines"; "bytes" is printed as kB and MB */
  const char *unit;
  uint64_t total; /* total amount of work; 0: unknown */
  uint64_t done, first;
  /* times of the start and of the last redraw, seconds of CLOCK_MONOTONIC */
  double start, shown;
  bool bytes, drawn;
} Progress;

void progress_begin(Progress *p, const char *title, const char *unit, uint64_t total);
/* Sets the amount of work done by an earlier process of a resumed job. It counts as done, but not
 * towards the rate. */
void progress_resume(Progress *p, uint64_t already);
void progress_set(Progress *p, uint64_t done);
/* Ends the progress line; prints the total, the time and the mean rate. */
void progress_end(Progress *p);

/* For work whose progress is unknown: a thread prints the elapsed time until
 * progress_wait_end. */
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

double progress_clock(void); /* Returns seconds of CLOCK_MONOTONIC. */
/* Returns the CPU seconds of this process, all threads together. On a machine with other work they vary
 * less than the wall-clock time, if waiting threads sleep (OMP_WAIT_POLICY=passive). */
double progress_cpu_clock(void);

#endif
