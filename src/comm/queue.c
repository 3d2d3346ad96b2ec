/* Runs communication jobs. Depends on message, watchdog. */
#include "comm/queue.h"

#include "base/thread.h"

static _Thread_local const Queue
    *running_here; /* the queue whose job the current thread is running, or NULL */

void queue_init(Queue *q, Comm *comm) {
  *q = (Queue){.comm = comm};
  pthread_mutex_init(&q->lock, NULL);
  thread_cond_init(&q->job_queued);
  thread_cond_init(&q->job_done);
}

void queue_free(Queue *q) {
  pthread_cond_destroy(&q->job_queued);
  pthread_cond_destroy(&q->job_done);
  pthread_mutex_destroy(&q->lock);
}

bool queue_is_runner(const Queue *q) {
  return running_here == q;
}

/* Runs the first job of the queue, or only the watchdog if the queue is empty. The caller
 * holds q->lock, which is released while the job runs. Does not wake the communication
 * thread if no job is left: waking it costs as much as a small all-reduce. */
static void run_next(Queue *q) {
  CommJob *job = q->first;
  const Queue *before = running_here;
  if (job) q->first = job->next_;
  if (!q->first) q->last = NULL;
  q->has_runner = true;
  q->messages->may_spin = !pthread_equal(pthread_self(), q->thread);
  pthread_mutex_unlock(&q->lock);
  running_here = q;
  if (job) job->run(q->comm, job->context);
  watchdog_look(q->messages->watchdog);
  running_here = before;
  pthread_mutex_lock(&q->lock);
  q->has_runner = false;
  if (job) job->done_ = true;
  if (q->waiters) pthread_cond_broadcast(&q->job_done);
  if (q->first && q->idle) pthread_cond_signal(&q->job_queued);
}

/* Waits on the condition variable `change` for at most 50 ms; *sleepers counts the waiting
 * threads. The caller holds q->lock. */
static void sleep_until(Queue *q, pthread_cond_t *change, int *sleepers) {
  ++*sleepers;
  thread_cond_wait_for(change, &q->lock, 0.05);
  --*sleepers;
}

void queue_begin(Queue *q, Messages *messages, bool any_thread) {
  q->messages = messages;
  q->any_thread = any_thread;
  q->thread = pthread_self();
}

void queue_serve(Queue *q) {
  pthread_mutex_lock(&q->lock);
  while (!(q->is_closing && !q->first)) {
    if (!q->first || q->has_runner) sleep_until(q, &q->job_queued, &q->idle);
    if (!q->has_runner) run_next(q);
  }
  pthread_mutex_unlock(&q->lock);
}

void queue_submit(Queue *q, CommJob *job) {
  job->next_ = NULL;
  job->done_ = false;
  pthread_mutex_lock(&q->lock);
  if (q->last)
    q->last->next_ = job;
  else
    q->first = job;
  q->last = job;
  bool runs_itself = job->awaited && q->any_thread;
  if (!runs_itself && q->idle) pthread_cond_signal(&q->job_queued);
  pthread_mutex_unlock(&q->lock);
}

void queue_wait(Queue *q, CommJob *job) {
  pthread_mutex_lock(&q->lock);
  while (!job->done_) {
    if (q->first && !q->has_runner && q->any_thread)
      run_next(q);
    else
      sleep_until(q, &q->job_done, &q->waiters);
  }
  pthread_mutex_unlock(&q->lock);
}

void queue_close(Queue *q) {
  pthread_mutex_lock(&q->lock);
  q->is_closing = true;
  pthread_cond_broadcast(&q->job_queued);
  pthread_mutex_unlock(&q->lock);
}
