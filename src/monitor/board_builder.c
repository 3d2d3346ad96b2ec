/* The thread that reads large files whole, after a sample of their lines has been shown. It runs with
 * low priority, as ranks may train on the same cores, and therefore without the board's lock: a
 * thread that gets no core must not keep requests waiting. Depends on board_series, base. */
#include <sys/resource.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "monitor/board_internal.h"

#define BUILD_BYTES   ((size_t)4 << 20) /* read before another run has its turn */
#define IDLE_SECONDS  0.5
#define RETRY_SECONDS 10 /* after an error, which is lack of memory */

/* Forgets what was read of a file that was replaced, or of a run that is no longer in memory. */
static void drop_old_part(BoardRun *r) {
  if (r->building && r->series.sample && r->building_generation == r->series.generation) return;
  series_free_data(r->building);
  r->building = NULL;
  r->building_generation = r->series.generation;
}

/* Returns the next run after *turn that a client looks at and that is shown only as a sample, or
 * NULL. */
static BoardRun *choose_run(Board *b, size_t *turn) {
  double now = board_now();
  for (size_t i = 0; i < b->runs; i++) {
    *turn = (*turn + 1) % b->runs;
    BoardRun *r = b->run[*turn];
    drop_old_part(r);
    if (r->series.sample && now - r->wanted < BOARD_WANTED) return r;
  }
  return NULL;
}

/* Reads the next part of a run's file; *is_end: all of it was read. Returns false after an error. */
static bool read_part(BoardRun *r, bool *is_end) {
  Err err = ERR_OK;
  *is_end = false;
  if (!r->building) err = mem_alloc(&r->building, 1, sizeof *r->building);
  if (!err) err = series_read_data(r->series.path, r->building, BUILD_BYTES, is_end);
  if (err) log_warn("%s: %s", r->name, err_message());
  return !err;
}

void *board_build_runs(void *board) {
  Board *b = board;
  enum { LOW_PRIORITY = 10, THIS_THREAD = 0 };
  size_t turn = 0;
  setpriority(PRIO_PROCESS, THIS_THREAD, LOW_PRIORITY);
  pthread_mutex_lock(&b->lock);
  while (!b->is_closing) {
    bool is_end;
    BoardRun *r = choose_run(b, &turn);
    if (!r) {
      thread_cond_wait_for(&b->wake, &b->lock, IDLE_SECONDS);
      continue;
    }
    pthread_mutex_unlock(&b->lock);
    bool is_read = read_part(r, &is_end);
    pthread_mutex_lock(&b->lock);
    if (!is_read && !b->is_closing) thread_cond_wait_for(&b->wake, &b->lock, RETRY_SECONDS);
    bool is_same = r->series.sample && r->building_generation == r->series.generation;
    if (is_read && is_end && is_same) {
      series_publish(&r->series, r->building);
      r->building = NULL;
      r->changed = ++b->version;
    }
  }
  pthread_mutex_unlock(&b->lock);
  return NULL;
}
