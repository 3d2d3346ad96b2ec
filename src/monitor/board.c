/* Opens and closes the board. Depends on board_reader, base. */
#include "monitor/board.h"

#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "monitor/board_internal.h"

static void free_run(BoardRun *r) {
  series_free(&r->series);
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
  if (!thread_start(&b->reader, board_read_runs, b)) {
    free_board(b);
    return err_set(ERR_WORK, "cannot start a thread that reads the runs; see ulimit -u");
  }
  *board = b;
  return ERR_OK;
}

void board_close(Board *b) {
  if (!b) return;
  pthread_mutex_lock(&b->lock);
  b->is_closing = true;
  pthread_cond_signal(&b->wake);
  pthread_mutex_unlock(&b->lock);
  pthread_join(b->reader, NULL);
  free_board(b);
}
