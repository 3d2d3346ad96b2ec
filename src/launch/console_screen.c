/* The thread that prints to standard output and standard error. Depends on console_queue,
 * base/thread. */
#include "launch/console_screen.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/thread.h"
#include "launch/console_queue.h"

#define SCREEN_MAX ((size_t)4 << 20) /* largest number of queued bytes */
/* Largest number of queued bytes if standard output is the result of the command. */
#define RESULTS_MAX ((size_t)64 << 20)
/* Seconds without a successful write after which screen_close gives up. */
#define SCREEN_WAIT 10
/* Seconds without a successful write after which screen_close gives up if a signal is
 * pending. */
#define SIGNAL_WAIT 1.0

struct Screen {
  char log_dir[FILE_PATH_MAX];
  bool has_results;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;

  /* Guarded by the lock: */
  LineQueue queue;
  LineItem *current; /* item that the thread is writing */
  size_t results;    /* number of items for standard output that are not written yet */
  uint64_t written;  /* number of successful calls of write() */
  bool is_ending, has_ended;
  bool is_dropping;         /* lines are dropped until half of the queue is written */
  uint64_t dropped;         /* lines dropped since the last notice */
  uint64_t lost;            /* lines dropped in total */
  uint64_t dropped_results; /* lines of standard output dropped */
  ErrRecord wrong;          /* error of standard output */
};

static void note_failure(Screen *s, int error) {
  /* A closed pipe (a pager that was quit) is an error only if the output is a result. */
  if (error == EPIPE && !s->has_results) return;
  pthread_mutex_lock(&s->lock);
  if (!s->wrong.code) {
    err_set(ERR_WORK, "cannot write to standard output: %s", strerror(error));
    s->wrong = err_take(ERR_WORK);
  }
  pthread_mutex_unlock(&s->lock);
}

/* Calls write() once. It may block for ever, so this is the only place where screen_close can
 * cancel the thread. */
static ssize_t write_some(int fd, const char *bytes, size_t len, int *error) {
  int ignored;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &ignored);
  ssize_t n = write(fd, bytes, len);
  *error = errno;
  if (n < 0 && *error == EAGAIN) { /* another process has made the terminal non-blocking */
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    poll(&ready, 1, -1);
  }
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ignored);
  return n;
}

/* Prints an item. Errors of standard error are ignored, as in all commands. */
static void print_item(Screen *s, const LineItem *item) {
  int fd = item->stream == SCREEN_STDOUT ? STDOUT_FILENO : STDERR_FILENO;
  for (size_t at = 0; at < item->len;) {
    int error;
    ssize_t n = write_some(fd, item->bytes + at, item->len - at, &error);
    if (n > 0) {
      at += (size_t)n;
      pthread_mutex_lock(&s->lock);
      s->written++;
      pthread_mutex_unlock(&s->lock);
    } else if (n < 0 && error != EINTR && error != EAGAIN) {
      if (fd == STDOUT_FILENO) note_failure(s, error);
      return;
    }
  }
}

/* Waits for the next item and makes it the current one; returns false at the end. */
static bool take_item(Screen *s) {
  pthread_mutex_lock(&s->lock);
  while (!s->queue.first && !s->is_ending) pthread_cond_wait(&s->changed, &s->lock);
  s->current = line_queue_pop(&s->queue);
  bool has_item = s->current;
  s->has_ended = !has_item;
  if (!has_item) pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return has_item;
}

static void finish_item(Screen *s) {
  pthread_mutex_lock(&s->lock);
  s->results -= s->current->stream == SCREEN_STDOUT;
  mem_free(s->current);
  s->current = NULL;
  pthread_mutex_unlock(&s->lock);
}

static void *run_screen(void *argument) {
  Screen *s = argument;
  int ignored;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ignored);
  while (take_item(s)) {
    print_item(s, s->current);
    finish_item(s);
  }
  return NULL;
}

#define NOTICE "notice" /* name of items that are notices about dropped lines */

static bool push_bytes(Screen *s, ScreenStream stream, const char *name, const char *bytes,
                       size_t len) {
  LineItem *item = line_queue_make_item((int)stream, name, bytes, len);
  if (!item) return false;
  s->results += stream == SCREEN_STDOUT;
  line_queue_push(&s->queue, item);
  pthread_cond_broadcast(&s->changed);
  return true;
}

/* Queues a notice with the number of dropped lines, at their position. */
static void push_notice(Screen *s) {
  char text[FILE_PATH_MAX + 200];
  if (!s->dropped) return;
  int n = snprintf(text, sizeof text,
                   "warning: %" PRIu64
                   " line%s not shown, as the terminal took none for a "
                   "while; the log files in %s have them\n",
                   s->dropped, s->dropped == 1 ? " is" : "s are", s->log_dir);
  if (push_bytes(s, SCREEN_STDERR, NOTICE, text, (size_t)n)) s->dropped = 0;
}

static bool has_room(Screen *s, bool is_result, size_t len) {
  if (is_result) return s->queue.bytes + len <= RESULTS_MAX;
  /* Hysteresis: otherwise a slow terminal would show and drop single lines alternately. */
  if (s->is_dropping) s->is_dropping = s->queue.bytes > SCREEN_MAX / 2;
  if (s->queue.bytes + len > SCREEN_MAX) s->is_dropping = true;
  return !s->is_dropping;
}

void screen_print(Screen *s, ScreenStream stream, const char *bytes, size_t len) {
  bool is_result = s->has_results && stream == SCREEN_STDOUT;
  pthread_mutex_lock(&s->lock);
  bool is_queued = has_room(s, is_result, len);
  if (is_queued && !is_result) push_notice(s);
  if (is_queued) is_queued = push_bytes(s, stream, "", bytes, len);
  if (!is_queued) {
    uint64_t lines = line_queue_count_lines(bytes, len);
    s->dropped += lines;
    s->lost += lines;
    if (is_result) s->dropped_results += lines;
  }
  pthread_mutex_unlock(&s->lock);
}

Err screen_open(Screen **out, const ScreenSpec *spec) {
  Screen *s;
  *out = NULL;
  TRY(mem_alloc(&s, 1, sizeof *s));
  snprintf(s->log_dir, sizeof s->log_dir, "%s", spec->log_dir);
  s->has_results = spec->has_results;
  line_queue_init(&s->queue);
  pthread_mutex_init(&s->lock, NULL);
  thread_cond_init(&s->changed);
  if (thread_start(&s->thread, run_screen, s)) {
    *out = s;
    return ERR_OK;
  }
  mem_free(s);
  return err_set(ERR_WORK,
                 "cannot start a thread for the console; raise the limit of processes and "
                 "threads (ulimit -u)");
}

/* Returns true if a signal to end is pending: the user does not want to wait for a blocked
 * terminal. */
static bool has_signal(void) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM) ||
         sigismember(&pending, SIGHUP);
}

/* Waits for the thread as long as the terminal accepts output. The caller holds the lock. */
static void await_thread(Screen *s) {
  double limit = (double)fault_number("console-wait", SCREEN_WAIT);
  double last = progress_clock();
  uint64_t seen = s->written;
  while (!s->has_ended) {
    thread_cond_wait_for(&s->changed, &s->lock, 0.1);
    if (s->written != seen) last = progress_clock();
    seen = s->written;
    double most = s->has_results && s->results ? INFINITY : limit;
    if (has_signal() && most > SIGNAL_WAIT) most = SIGNAL_WAIT;
    if (progress_clock() - last > most) return;
  }
}

static void count_unwritten(Screen *s) {
  if (s->current) line_queue_push(&s->queue, s->current);
  s->current = NULL;
  for (LineItem *item; (item = line_queue_pop(&s->queue));) {
    bool is_notice = strcmp(item->name, NOTICE) == 0;
    uint64_t lines = is_notice ? 0 : line_queue_count_lines(item->bytes, item->len);
    s->lost += lines;
    if (s->has_results && item->stream == SCREEN_STDOUT) s->dropped_results += lines;
    mem_free(item);
  }
}

static Err report_results(const Screen *s) {
  if (s->wrong.code) return err_give(&s->wrong);
  if (!s->dropped_results) return ERR_OK;
  return err_set(ERR_WORK,
                 "%" PRIu64
                 " lines of standard output are lost, as its reader took none for too long; "
                 "write to a file instead (--output FILE)",
                 s->dropped_results);
}

Err screen_close(Screen *s, ScreenLoss *loss) {
  *loss = (ScreenLoss){0};
  if (!s) return ERR_OK;
  pthread_mutex_lock(&s->lock);
  push_notice(s);
  s->is_ending = true;
  pthread_cond_broadcast(&s->changed);
  await_thread(s);
  if (!s->has_ended) pthread_cancel(s->thread);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->thread, NULL);
  loss->is_blocked = !s->has_ended;
  count_unwritten(s);
  loss->lines = s->lost;
  Err err = report_results(s);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->changed);
  mem_free(s);
  return err;
}
