/* The runs of the board: by id, and which of them are in memory. Depends on board_series. */
#include <string.h>

#include "monitor/board_internal.h"

double board_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

BoardRun *board_find_run(Board *b, const char *id) {
  for (size_t i = 0; i < b->runs; i++)
    if (strcmp(b->run[i]->id, id) == 0) return b->run[i];
  return NULL;
}

void board_make_room(Board *b) {
  size_t loaded = 0;
  BoardRun *oldest = NULL;
  for (size_t i = 0; i < b->runs; i++) {
    BoardRun *r = b->run[i];
    if (!series_data(&r->series)) continue;
    loaded++;
    if (!oldest || r->wanted < oldest->wanted) oldest = r;
  }
  if (oldest && loaded >= BOARD_LOADED) series_free(&oldest->series);
}

void board_make_host_room(Board *b) {
  size_t loaded = 0;
  BoardRun *oldest = NULL;
  for (size_t i = 0; i < b->runs; i++) {
    BoardRun *r = b->run[i];
    if (!r->system.hosts) continue;
    loaded++;
    if (!oldest || r->system_wanted < oldest->system_wanted) oldest = r;
  }
  if (oldest && loaded >= BOARD_SYSTEMS) board_system_free(&oldest->system);
}
