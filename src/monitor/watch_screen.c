/* Shows the canvas with ncurses and reads keys. The library handles changes of the terminal's size,
 * suspension (Ctrl-Z) and slow connections, to which it sends only what has changed. A
 * plug-in: the program is not linked with ncurses. Depends on ncurses, watch, base/stop. */
#include "monitor/watch_screen.h"

#include <curses.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/plugin.h"
#include "base/progress.h"
#include "base/stop.h"
#include "base/utf8.h"

#define PERIOD 1.0 /* seconds between two looks at the files */

/* Attributes of each style; colours only if the terminal and the user want them. */
typedef struct {
  attr_t attribute[STYLES];
  short pair[STYLES];
} Palette;

static Palette make_palette(bool has_color) {
  Palette p = {.attribute = {[STYLE_TITLE] = A_BOLD, [STYLE_WARN] = A_BOLD}};
  if (!has_color || !has_colors()) return p;
  static const short color[STYLES] = {[STYLE_CURVE] = COLOR_CYAN,
                                      [STYLE_MARK] = COLOR_MAGENTA,
                                      [STYLE_GOOD] = COLOR_GREEN,
                                      [STYLE_WARN] = COLOR_YELLOW,
                                      [STYLE_DIM] = COLOR_BLUE};
  start_color();
  use_default_colors();
  for (short s = 0; s < STYLES; s++)
    if (color[s] && init_pair((short)(s + 1), color[s], -1) == OK) p.pair[s] = (short)(s + 1);
  return p;
}

static void show_canvas(const Canvas *c, const Palette *p) {
  erase();
  for (int row = 0; row < c->rows; row++) {
    for (int col = 0; col < c->cols; col++) {
      size_t i = (size_t)row * (size_t)c->cols + (size_t)col;
      char bytes[4];
      if (c->code[i] == ' ') continue;
      attr_set(p->attribute[c->style[i]], p->pair[c->style[i]], NULL);
      mvaddnstr(row, col, bytes, (int)utf8_encode(c->code[i], bytes));
    }
  }
  refresh();
}

static Err draw_frame(const Watch *w, WatchView *view, bool has_utf8, const Palette *p) {
  Canvas c;
  TRY(canvas_open(&c, LINES, COLS, has_utf8));
  watch_draw(w, view, &c, true);
  show_canvas(&c, p);
  canvas_close(&c);
  return ERR_OK;
}

/* Acts on a key. Returns false if it is the one to quit. */
static bool take_key(const Watch *w, WatchView *view, int key) {
  switch (key) {
    case 'q':
    case 'Q':
      return false;
    case KEY_LEFT:
      watch_select(w, view, -1);
      break;
    case KEY_RIGHT:
      watch_select(w, view, 1);
      break;
    case KEY_UP:
      if (view->scroll > 0) view->scroll--;
      break;
    case KEY_DOWN:
      view->scroll++; /* watch_draw limits it */
      break;
    case '+':
    case '=':
      if (view->zoom < 12) view->zoom++;
      break;
    case '-':
      if (view->zoom > 0) view->zoom--;
      break;
    case 'l':
      view->is_log = !view->is_log;
      break;
    case 'h':
    case '?':
      view->has_help = !view->has_help;
      break;
    case 27: /* Escape leaves the help */
      view->has_help = false;
      break;
    default:
      break;
  }
  return true;
}

/* Waits for a key until `until`. Returns false if the terminal is gone. */
static bool wait_for_key(double until) {
  struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
  double left = until - progress_clock();
  int n = poll(&in, 1, left > 0 ? (int)(1000 * left) + 1 : 0);
  if (n < 0) return errno == EINTR; /* a signal: a new size, or a request to stop */
  return !(in.revents & (POLLHUP | POLLERR | POLLNVAL));
}

static Err run_screen(Watch *w, bool has_utf8, const Palette *p) {
  WatchView view = {0};
  double next = 0;
  for (;;) {
    if (progress_clock() >= next) {
      TRY(watch_read(w));
      next = progress_clock() + PERIOD;
    }
    TRY(draw_frame(w, &view, has_utf8, p));
    if (!wait_for_key(next) || stop_asked()) return ERR_OK;
    for (int key; (key = getch()) != ERR;)
      if (!take_key(w, &view, key)) return ERR_OK;
  }
}

static Err show_screen(Watch *w, bool has_utf8, bool has_color, bool *is_shown) {
  /* A shell may export these. ncurses would keep to them when the size of the terminal changes. */
  unsetenv("COLUMNS");
  unsetenv("LINES");
  SCREEN *screen = newterm(NULL, stdout, stdin);
  *is_shown = screen != NULL;
  if (!screen) return ERR_OK;
  stop_watch();
  cbreak();
  noecho();
  keypad(stdscr, true);
  set_escdelay(50);
  nodelay(stdscr, true);
  curs_set(0);
  Palette palette = make_palette(has_color);
  Err err = run_screen(w, has_utf8, &palette);
  endwin();
  delscreen(screen);
  stop_unwatch();
  return err;
}

__attribute__((visibility("default"))) const char trireme_plugin_version[] = PLUGIN_VERSION;
__attribute__((visibility("default")))
const WatchScreen trireme_watch_screen = {.show = show_screen};
