/* trireme board: a web page over runs. Depends on monitor/board, base/plugin. */
#include "monitor/board.h"

#include "base/log.h"
#include "base/plugin.h"
#include "base/stop.h"
#include "cmd/cmd.h"

/* Loads the HTTP server. It is not part of the program, because it needs libmicrohttpd, which
 * machines that only train do not need. */
static Err load_server(Plugin *plugin, BoardServe *serve) {
  if (!plugin_exists(BOARD_PLUGIN))
    return err_set(ERR_WORK,
                   "the board was not built, as libmicrohttpd or dygraphs was missing: install "
                   "libmicrohttpd-dev and libjs-dygraphs (scripts/install-deps does), run make "
                   "again, and keep " BOARD_PLUGIN " beside the program");
  TRY(plugin_open(plugin, BOARD_PLUGIN));
  Err err = plugin_symbol(plugin, BOARD_SERVE, serve);
  if (err) plugin_close(plugin);
  return err;
}

Err cmd_board(OptSet *opts) {
  Plugin plugin;
  BoardServe serve;
  Board *board;
  const char *address = opt_text(opts, "bind");
  log_quiet(opt_flag(opts, "quiet"));
  TRY(cmd_refuse_ranks("board", "start it once"));
  TRY(load_server(&plugin, &serve));
  Err err = board_open(&board, opt_operand(opts, 0));
  if (!err) {
    BoardServer server = {.board = board,
                          .address = address ? address : "127.0.0.1",
                          .port = (int)opt_count(opts, "port"),
                          .with_token = address != NULL};
    stop_watch();
    err = serve(&server);
    stop_unwatch();
    board_close(board);
  }
  plugin_close(&plugin);
  return err;
}
