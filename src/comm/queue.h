/* The queue of communication jobs and the threads that run it. Jobs run one at a time, in the order
 * in which they were submitted. The runner, the thread that at this moment runs a job or the
 * watchdog, is the communication thread or a thread that waits for a job in queue_wait: it runs the
 * queue itself, which saves two switches between threads. The runner alone uses the transport and
 * everything that is marked "Threads: the runner". Depends on message, watchdog. */
#ifndef COMM_QUEUE_H
#define COMM_QUEUE_H

#include <pthread.h>

#include "comm/job.h"
#include "comm/message.h"

typedef struct {
  Comm *comm; /* passed to the jobs */
  Messages *messages;
  pthread_t thread; /* the communication thread */
  bool any_thread;  /* the transport allows other threads to run jobs */
  pthread_mutex_t lock;
  pthread_cond_t job_queued; /* the communication thread waits for it */
  pthread_cond_t job_done;   /* threads in queue_wait wait for it */
  CommJob *first, *last;
  bool has_runner;
  bool is_closing; /* the communication thread ends when the queue is empty */
  int idle;        /* threads that wait for `job_queued`: 0 or 1 */
  int waiters;     /* threads that wait for `job_done` */
} Queue;

void queue_init(Queue *q, Comm *comm);
void queue_free(Queue *q);
/* The communication thread. Before any job is submitted: */
void queue_begin(Queue *q, Messages *messages, bool any_thread);
/* Runs jobs and the watchdog until queue_close, then the jobs that are left. */
void queue_serve(Queue *q);
/* Any thread. */
void queue_submit(Queue *q, CommJob *job);
void queue_wait(Queue *q, CommJob *job);
void queue_close(Queue *q);
/* Is the calling thread the runner? */
bool queue_is_runner(const Queue *q);

#endif
