/* The full-screen view of `trireme watch`, a plug-in (watch_screen.c, libtrireme-watch.so) that is
 * built where ncurses is. Depends on watch. */
#ifndef MONITOR_WATCH_SCREEN_H
#define MONITOR_WATCH_SCREEN_H

#include "monitor/watch.h"

typedef struct {
  /* Shows the run until the user quits or a signal arrives (base/stop.h). Reads the files once a
   * second. *is_shown is false if the terminal cannot be drawn on; nothing has happened then. */
  Err (*show)(Watch *w, bool has_utf8, bool has_color, bool *is_shown);
} WatchScreen;

#define WATCH_PLUGIN "libtrireme-watch.so"
#define WATCH_SYMBOL "trireme_watch_screen"

#endif
