/* Appends lines to log files on a thread. Depends on console_queue, base/lines, base/thread. */
#include "launch/console_writer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "launch/console_queue.h"

#define QUEUE_MAX ((size_t)16 << 20) /* largest number of queued bytes */
/* Largest number of bytes stored until the run directory exists. */
#define PENDING_MAX ((size_t)4 << 20)

typedef struct {
  char name[64];
  LineFile file;
} LogFile;

struct Writer {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  LineQueue queue;  /* guarded by the lock */
  bool is_ending;   /* guarded by the lock */
  uint64_t dropped; /* guarded by the lock: lines for which the queue had no room */

  /* Used only by the thread until it has ended: */
  char dir[FILE_PATH_MAX], run[FILE_PATH_MAX];
  bool is_dir_made;
  LineQueue pending; /* lines of log files that wait until the run directory exists */
  LogFile *file;
  size_t files, capacity;
  ErrRecord wrong; /* error of the first file that could not be opened or written */
  uint64_t lost;   /* lines that could not be written */
};

void writer_log(Writer *w, const char *name, const char *line, size_t len) {
  LineItem *item = NULL;
  pthread_mutex_lock(&w->lock);
  if (w->queue.bytes + len <= QUEUE_MAX) item = line_queue_make_item(0, name, line, len);
  if (item) {
    line_queue_push(&w->queue, item);
    pthread_cond_signal(&w->changed);
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

static Err open_log(Writer *w, const char *name, LineFile **file) {
  char path[FILE_PATH_MAX];
  for (size_t i = 0; i < w->files; i++) {
    *file = &w->file[i].file;
    if (strcmp(w->file[i].name, name) == 0) return ERR_OK;
  }
  /* LineFile contains a lock and must not move, so the array never grows. */
  if (w->files == w->capacity) return err_set(ERR_WORK, "more than %zu log files", w->files);
  if (!w->is_dir_made) TRY(file_mkdirs(w->dir));
  w->is_dir_made = true;
  TRY(file_join(path, w->dir, name));
  LogFile *new = &w->file[w->files];
  TRY(lines_open(&new->file, path));
  snprintf(new->name, sizeof new->name, "%s", name);
  w->files++;
  *file = &new->file;
  return ERR_OK;
}

static void log_item(Writer *w, const LineItem *item) {
  LineFile *file;
  Err err = open_log(w, item->name, &file);
  if (!err) err = lines_add(file, item->bytes, item->len);
  if (!err) return;
  w->lost++;
  if (w->wrong.code) return;
  log_warn("lines of log files are lost: %s", err_message());
  w->wrong = err_take(err);
}

/* Returns true if train has created the run directory, so that the log directory can be created
 * in it. */
static bool is_run_made(const Writer *w) {
  char path[FILE_PATH_MAX];
  if (!w->run[0] || w->is_dir_made) return true;
  return file_join(path, w->run, "config") == ERR_OK && file_exists(path);
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

static void *run_writer(void *argument) {
  Writer *w = argument;
  for (;;) {
    pthread_mutex_lock(&w->lock);
    while (!w->queue.first && !w->is_ending) pthread_cond_wait(&w->changed, &w->lock);
    LineItem *item = line_queue_pop(&w->queue);
    pthread_mutex_unlock(&w->lock);
    if (!item) break;
    handle_item(w, item);
  }
  if (is_run_made(w)) flush_pending(w);
  return NULL;
}

#define FILES_MAX 4100 /* log files of all ranks, mpirun.log and launch.log */

static Err start_writer(Writer *w, const char *log_dir, const char *run) {
  LineFile *log;
  TRY(file_join(w->dir, log_dir, ""));
  if (run) TRY(file_join(w->run, run, ""));
  TRY(mem_alloc(&w->file, FILES_MAX, sizeof *w->file));
  w->capacity = FILES_MAX;
  line_queue_init(&w->queue);
  line_queue_init(&w->pending);
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->changed, NULL);
  /* Fails before anything is started if the directory cannot be written. */
  if (is_run_made(w)) TRY(open_log(w, "launch.log", &log));
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
    for (size_t i = 0; i < w->files; i++) lines_close(&w->file[i].file);
    mem_free(w->file);
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
        w->dropped + w->lost, w->dir);
  return ERR_OK;
}

Err writer_close(Writer *w) {
  if (!w) return ERR_OK;
  pthread_mutex_lock(&w->lock);
  w->is_ending = true;
  pthread_cond_signal(&w->changed);
  pthread_mutex_unlock(&w->lock);
  pthread_join(w->thread, NULL);
  Err err = report_losses(w);
  for (size_t i = 0; i < w->files; i++) lines_close(&w->file[i].file);
  line_queue_clear(&w->pending);
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->changed);
  mem_free(w->file);
  mem_free(w);
  return err;
}
