/* Opens and closes the board. Depends on board_reader, board_builder, base. */
#include "monitor/board.h"

#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "monitor/board_internal.h"

static void free_run(BoardRun *r) {
  series_free(&r->series);
  series_free_data(r->building);
  board_system_free(&r->system);
  mem_free(r->name);
  mem_free(r->path);
  mem_free(r);
}

static void free_board(Board *b) {
  for (size_t i = 0; i < b->runs; i++) free_run(b->run[i]);
  mem_free(b->run);
  pthread_cond_destroy(&b->wake);
  pthread_mutex_destroy(&b->lock);
  mem_free(b);
}

static void join_reader(Board *b) {
  pthread_mutex_lock(&b->lock);
  b->is_closing = true;
  pthread_cond_broadcast(&b->wake);
  pthread_mutex_unlock(&b->lock);
  pthread_join(b->reader, NULL);
}

static Err start_threads(Board *b) {
  bool is_reading = thread_start(&b->reader, board_read_runs, b);
  if (is_reading && thread_start(&b->builder, board_build_runs, b)) return ERR_OK;
  if (is_reading) join_reader(b);
  return err_set(ERR_WORK, "cannot start the threads that read the runs; see ulimit -u");
}

Err board_open(Board **board, const char *dir) {
  Board *b;
  if (!file_is_dir(dir))
    return err_set(ERR_USAGE,
                   "there is no directory %s; name the directory that has the runs, such as "
                   "the parent of --run of train",
                   dir);
  if (strlen(dir) >= sizeof b->dir)
    return err_set(ERR_USAGE, "the path of the directory is longer than %d bytes",
                   FILE_PATH_MAX - 1);
  TRY(mem_alloc(&b, 1, sizeof *b));
  memcpy(b->dir, dir, strlen(dir) + 1);
  pthread_mutex_init(&b->lock, NULL);
  thread_cond_init(&b->wake);
  Err err = start_threads(b);
  if (err)
    free_board(b);
  else
    *board = b;
  return err;
}

void board_close(Board *b) {
  if (!b) return;
  join_reader(b);
  pthread_join(b->builder, NULL);
  free_board(b);
}
