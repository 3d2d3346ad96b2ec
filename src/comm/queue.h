/* The queue of communication jobs. Jobs run one at a time, in the order of their submission.
 * The "runner" is the thread that is running a job or the watchdog: the communication
 * thread, or a thread in queue_wait, which runs the queue itself to save two context
 * switches. Only the runner may use the transport and the functions marked "Threads: only
 * the queue's current runner". Depends on message, watchdog. */
#ifndef COMM_QUEUE_H
#define COMM_QUEUE_H

#include <pthread.h>

#include "comm/job.h"
#include "comm/message.h"

typedef struct {
  Comm *comm; /* passed to each job as its first argument */
  Messages *messages;
  pthread_t thread; /* the communication thread */
  bool any_thread;  /* threads other than the communication thread may use the transport */
  pthread_mutex_t lock;
  pthread_cond_t job_queued; /* the communication thread waits on it for jobs */
  pthread_cond_t job_done;   /* threads in queue_wait wait on it */
  CommJob *first, *last;
  bool has_runner;
  /* queue_close was called: the communication thread ends when the queue is empty. */
  bool is_closing;
  int idle;    /* number of threads that wait on `job_queued`: 0 or 1 */
  int waiters; /* number of threads that wait on `job_done` */
} Queue;

void queue_init(Queue *q, Comm *comm);
void queue_free(Queue *q);
/* The communication thread calls it before the first job is submitted. */
void queue_begin(Queue *q, Messages *messages, bool any_thread);
/* The loop of the communication thread: runs jobs and the watchdog until queue_close is
 * called and the queue is empty. */
void queue_serve(Queue *q);
/* Any thread may call these. queue_wait blocks until the job has run, and may run it itself. */
void queue_submit(Queue *q, CommJob *job);
void queue_wait(Queue *q, CommJob *job);
void queue_close(Queue *q);
/* Returns true if the calling thread is the runner. */
bool queue_is_runner(const Queue *q);

#endif
