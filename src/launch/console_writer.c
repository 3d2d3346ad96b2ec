/* Appends lines to log files on a thread. Depends on console_queue, console_files, base/thread. */
#include "launch/console_writer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/str.h"
#include "base/thread.h"
#include "launch/console_files.h"
#include "launch/console_queue.h"

#define QUEUE_MAX ((size_t)16 << 20) /* largest number of queued bytes */
/* Largest number of bytes stored until the run directory exists. */
#define PENDING_MAX ((size_t)4 << 20)

/* Seconds without a written line after which writer_close gives up: the file server does not
 * answer. */
#define WRITER_WAIT  10
#define PENDING_TICK 0.5 /* seconds between two looks for the run directory */

struct Writer {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  LineQueue queue;   /* guarded by the lock */
  bool is_ending;    /* guarded by the lock */
  bool has_ended;    /* guarded by the lock: the thread has written all it can */
  bool is_abandoned; /* guarded by the lock: writer_close no longer waits for the thread */
  uint64_t dropped;  /* guarded by the lock: lines for which the queue had no room */
  _Atomic uint64_t handled; /* number of lines that were written or lost */
  atomic_bool has_dir;      /* the directory is claimed, so that lines are written */
  atomic_bool owns_run;     /* the run is that of this launch (writer_own_run) */
  atomic_bool has_failed;   /* a line could not be written; `wrong` does not change any more */
  ErrRecord wrong;          /* error of the first file that could not be opened or written */

  /* Used only by the thread until it has ended: */
  char run[FILE_PATH_MAX];
  LineQueue pending; /* lines of log files that wait until the run directory exists */
  LogFiles files;
  uint64_t lost; /* lines that could not be written */
};

bool writer_has_dir(const Writer *w) {
  return atomic_load(&w->has_dir);
}

const char *writer_error(const Writer *w) {
  return atomic_load(&w->has_failed) ? w->wrong.text : NULL;
}

void writer_own_run(Writer *w) {
  atomic_store(&w->owns_run, true);
}

void writer_log(Writer *w, const char *name, const char *line, size_t len) {
  LineItem *item = NULL;
  pthread_mutex_lock(&w->lock);
  if (w->queue.bytes + len <= QUEUE_MAX) item = line_queue_make_item(0, name, line, len);
  if (item) {
    line_queue_push(&w->queue, item);
    pthread_cond_broadcast(&w->changed);
  } else {
    w->dropped++;
  }
  pthread_mutex_unlock(&w->lock);
}

void writer_log_with_time(Writer *w, const char *name, const char *line, size_t len) {
  char when[32];
  struct tm now;
  time_t seconds = time(NULL);
  Str text = {0};
  if (!gmtime_r(&seconds, &now)) return;
  strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &now);
  str_addf(&text, "%s  ", when);
  str_addn(&text, line, len);
  writer_log(w, name, str_text(&text), text.len);
  str_free(&text);
}

static Err claim_dir(Writer *w) {
  if (atomic_load(&w->has_dir)) return ERR_OK;
  TRY(log_files_claim(&w->files));
  atomic_store(&w->has_dir, true);
  return ERR_OK;
}

static void log_item(Writer *w, const LineItem *item) {
  Err err = claim_dir(w);
  if (!err) err = log_files_add(&w->files, item->name, item->bytes, item->len);
  w->handled++;
  if (!err) return;
  w->lost++;
  if (w->wrong.code) return;
  w->wrong = err_take(err);
  atomic_store(&w->has_failed, true);
}

/* Returns true if the run directory exists, so that the log directory can be created in it. */
static bool has_run(const Writer *w) {
  char path[FILE_PATH_MAX];
  if (!w->run[0] || atomic_load(&w->has_dir)) return true;
  return file_join(path, w->run, "config") == ERR_OK && file_exists(path);
}

/* Returns true if train has created the run directory for this launch. Of several launches of one
 * new run only the one that trains may claim the log directory. */
static bool is_run_made(const Writer *w) {
  bool is_own = !w->run[0] || atomic_load(&w->has_dir) || atomic_load(&w->owns_run);
  return is_own && has_run(w);
}

static void flush_pending(Writer *w) {
  for (LineItem *item; (item = line_queue_pop(&w->pending));) {
    log_item(w, item);
    mem_free(item);
  }
}

static void handle_item(Writer *w, LineItem *item) {
  bool is_kept = false;
  if (is_run_made(w)) {
    flush_pending(w);
    log_item(w, item);
  } else if (w->pending.bytes + item->len < PENDING_MAX) {
    line_queue_push(&w->pending, item);
    is_kept = true;
  } else {
    w->lost++;
  }
  if (!is_kept) mem_free(item);
}

/* Waits for the next item. While lines wait for the run directory, *item may be NULL after
 * PENDING_TICK seconds. Returns false at the end. */
static bool take_item(Writer *w, LineItem **item) {
  pthread_mutex_lock(&w->lock);
  bool is_idle = !w->queue.first && !w->is_ending;
  if (is_idle && w->pending.first)
    thread_cond_wait_for(&w->changed, &w->lock, PENDING_TICK);
  else if (is_idle)
    pthread_cond_wait(&w->changed, &w->lock);
  *item = line_queue_pop(&w->queue);
  bool is_over = !*item && w->is_ending;
  pthread_mutex_unlock(&w->lock);
  return !is_over;
}

static void free_writer(Writer *w) {
  line_queue_clear(&w->pending);
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->changed);
  mem_free(w);
}

static void *run_writer(void *argument) {
  Writer *w = argument;
  for (LineItem *item; take_item(w, &item);) {
    if (item)
      handle_item(w, item);
    else if (is_run_made(w))
      flush_pending(w);
  }
  if (is_run_made(w)) flush_pending(w);
  log_files_close(&w->files);
  pthread_mutex_lock(&w->lock);
  w->has_ended = true;
  bool is_abandoned = w->is_abandoned;
  pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
  if (is_abandoned) free_writer(w);
  return NULL;
}

static Err start_writer(Writer *w, const char *log_dir, const char *run) {
  TRY(log_files_init(&w->files, log_dir));
  if (run) TRY(file_join(w->run, run, ""));
  line_queue_init(&w->queue);
  line_queue_init(&w->pending);
  pthread_mutex_init(&w->lock, NULL);
  thread_cond_init(&w->changed);
  /* Fails before anything is started if the directory cannot be written or is in use. */
  if (has_run(w)) {
    TRY(claim_dir(w));
    TRY(log_files_add(&w->files, "launch.log", "", 0));
  }
  if (thread_start(&w->thread, run_writer, w)) return ERR_OK;
  return err_set(ERR_WORK,
                 "cannot start a thread for log files; raise the limit of processes and "
                 "threads (ulimit -u)");
}

Err writer_open(Writer **out, const char *log_dir, const char *run) {
  Writer *w;
  *out = NULL;
  TRY(mem_alloc(&w, 1, sizeof *w));
  Err err = start_writer(w, log_dir, run);
  if (err) {
    log_files_close(&w->files);
    mem_free(w);
  } else {
    *out = w;
  }
  return err;
}

static Err report_losses(const Writer *w) {
  if (w->wrong.code) {
    Err err = err_give(&w->wrong);
    return w->lost ? err_context("%" PRIu64 " line%s of log files lost", w->lost,
                                 w->lost == 1 ? "" : "s")
                   : err;
  }
  if (w->dropped + w->lost)
    return err_set(
        ERR_WORK,
        "%" PRIu64
        " lines of log files are lost: %s takes them too slowly; pass --log-dir with "
        "a directory on a local disk",
        w->dropped + w->lost, w->files.dir);
  return ERR_OK;
}

/* Waits for the thread as long as it writes. The caller holds the lock. */
static void await_thread(Writer *w) {
  double limit = (double)fault_number("console-wait", WRITER_WAIT);
  double last = progress_clock();
  uint64_t seen = w->handled;
  while (!w->has_ended && progress_clock() - last <= limit) {
    thread_cond_wait_for(&w->changed, &w->lock, 0.1);
    if (w->handled != seen) last = progress_clock();
    seen = w->handled;
  }
}

/* Leaves the thread, which is blocked in a call of the file system, alone: it frees the writer if the call
 * returns. The caller holds the lock. */
static Err abandon_thread(Writer *w) {
  w->is_abandoned = true;
  pthread_detach(w->thread);
  return err_set(ERR_WORK,
                 "the log files in %s are incomplete: the file system takes nothing and does "
                 "not report an error; check it, or pass --log-dir with a directory on a local "
                 "disk",
                 w->files.dir);
}

Err writer_close(Writer *w) {
  if (!w) return ERR_OK;
  pthread_mutex_lock(&w->lock);
  w->is_ending = true;
  pthread_cond_broadcast(&w->changed);
  await_thread(w);
  bool has_ended = w->has_ended;
  Err err = has_ended ? ERR_OK : abandon_thread(w);
  pthread_mutex_unlock(&w->lock);
  if (!has_ended) return err;
  pthread_join(w->thread, NULL);
  err = report_losses(w);
  free_writer(w);
  return err;
}
