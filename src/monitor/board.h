/* The live board: the runs below a directory, followed while they train, and JSON answers about
 * them. The HTTP server is a plug-in (board_http.c), because it needs libmicrohttpd; it calls
 * board_answer.
 *
 * Threads: board_open starts one that searches for runs and reads their files. board_answer may be
 * called by any thread; it takes the board's lock, and reads at most a few MB of files.
 * Memory is bounded: FIND_RUNS runs, curves of BOARD_LOADED runs (about 1 MB each), hosts of the few
 * runs that somebody looked at last. Depends on board_find, board_series, board_system, board_files. */
#ifndef MONITOR_BOARD_H
#define MONITOR_BOARD_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

#define BOARD_LOADED 200 /* runs whose curves are in memory */

typedef struct Board Board;

/* Begins to follow the runs below `dir`. */
NODISCARD Err board_open(Board **board, const char *dir);
void board_close(Board *b);

/* A request: the path without its query, and the query's arguments. */
typedef struct {
  const char *path; /* "/api/runs" */
  /* Returns an argument, decoded, or NULL. */
  const char *(*argument)(void *context, const char *name);
  void *context;
} BoardRequest;

/* Answers a request about runs with JSON. Returns the HTTP status: 200, 400 (an argument is wrong),
 * 404 (no such path or run), 500. `out` receives the answer, or a sentence. */
int board_answer(Board *b, const BoardRequest *request, Str *out);

/* The plug-in. */
#define BOARD_PLUGIN "libtrireme-board.so"
#define BOARD_SERVE  "trireme_board_serve" /* a BoardServe */
typedef struct {
  Board *board;
  const char *address; /* IPv4 or IPv6, to listen on */
  int port;            /* 0: any free one */
  bool with_token;     /* refuse requests without the token */
} BoardServer;
/* Serves until a stop signal (base/stop.h). Prints the URL when it listens. */
typedef Err (*BoardServe)(const BoardServer *server);

#endif
