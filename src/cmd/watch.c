/* `trireme watch`: shows a run while it goes on. Full screen on a terminal; a line per change where
 * the output is no terminal or cannot be drawn on; one frame with --once. Depends on monitor. */
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/plugin.h"
#include "base/stop.h"
#include "cmd/cmd.h"
#include "monitor/watch_screen.h"

/* Size of a frame if the output is not a terminal and COLUMNS and LINES are not set. */
#define ROWS 24
#define COLS 80
#define MOST 1000 /* largest number of rows and of columns */

static int read_size(const char *name, int otherwise) {
  const char *text = getenv(name);
  long n = text ? strtol(text, NULL, 10) : 0;
  if (n > 0) return n < MOST ? (int)n : MOST;
  return otherwise > 0 && otherwise < MOST ? otherwise : MOST;
}

static bool is_set(const char *name) {
  const char *value = getenv(name);
  return value && *value;
}

static Err print_once(Watch *w, bool has_utf8) {
  struct winsize size = {0};
  WatchView view = {0};
  Canvas c;
  Str out = {0};
  char *row;
  TRY(watch_read(w));
  if (w->state == WATCH_ABSENT)
    return err_set(ERR_WORK, "%s does not exist: give the directory of a run", w->dir);
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) size = (struct winsize){0};
  int rows = read_size("LINES", size.ws_row ? size.ws_row : ROWS);
  int cols = read_size("COLUMNS", size.ws_col ? size.ws_col : COLS);
  TRY(canvas_open(&c, rows, cols, has_utf8));
  Err err;
  TRY_DONE(mem_alloc(&row, 4 * (size_t)cols + 1, 1));
  watch_draw(w, &view, &c, false);
  int last = rows;
  for (bool is_empty = true; is_empty && last > 0;) { /* leave empty rows at the end out */
    canvas_row(&c, last - 1, row);
    is_empty = !*row;
    last -= is_empty;
  }
  for (int i = 0; i < last; i++) {
    canvas_row(&c, i, row);
    str_addf(&out, "%s\n", row);
  }
  mem_free(row);
  TRY_DONE(str_check(&out));
  err = out_print(str_text(&out));
done:
  str_free(&out);
  canvas_close(&c);
  return err;
}

/* Prints a line whenever the run has moved on, until it is complete or a signal arrives. */
static Err print_lines(Watch *w) {
  char line[FILE_PATH_MAX + 256], shown[sizeof line] = "";
  size_t records = 0;
  WatchState state = WATCH_ABSENT;
  stop_watch();
  while (!stop_asked()) {
    TRY(watch_read(w));
    bool has_changed = w->is_open && w->log.records != records;
    if (!*shown || has_changed || w->state != state) {
      watch_line(w, line, sizeof line);
      if (strcmp(line, shown) != 0) {
        out_visible(line);
        putchar('\n');
        TRY(out_flush());
      }
      memcpy(shown, line, sizeof shown);
    }
    records = w->is_open ? w->log.records : 0;
    state = w->state;
    if (state == WATCH_COMPLETE) break;
    sleep(1); /* a signal ends it early */
  }
  stop_unwatch();
  return ERR_OK;
}

static Err show_screen(Watch *w, bool has_utf8, bool *is_shown) {
  Plugin p;
  const WatchScreen *screen;
  if (plugin_open(&p, WATCH_PLUGIN))
    return err_context(
        "the screen of watch is not available (install libncurses-dev and run "
        "make again; --once prints one frame without it)");
  Err err = plugin_symbol(&p, WATCH_SYMBOL, &screen);
  if (!err) err = screen->show(w, has_utf8, !is_set("NO_COLOR"), is_shown);
  return err; /* the plug-in stays loaded: ncurses keeps memory until the process ends */
}

/* A terminal that is to be drawn on: both ways, and with a type that can move the cursor. */
static bool has_screen(void) {
  const char *term = getenv("TERM");
  return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term &&
         strcmp(term, "dumb") != 0;
}

Err cmd_watch(OptSet *opts) {
  Watch w;
  bool is_shown = false;
  TRY(cmd_refuse_ranks("watch", "call it without mpirun or srun"));
  setlocale(LC_CTYPE, "");
  bool has_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  watch_init(&w, opt_operand(opts, 0));
  Err err = ERR_OK;
  if (opt_flag(opts, "once")) {
    err = print_once(&w, has_utf8);
  } else {
    if (has_screen()) err = show_screen(&w, has_utf8, &is_shown);
    if (!err && !is_shown) err = print_lines(&w);
  }
  watch_close(&w);
  return err;
}
