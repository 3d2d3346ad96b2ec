/* `trireme watch`: what is known of a run from its files, and how it is drawn. Reads RUN/metrics.jsonl
 * and system.jsonl (runlog.h), the last line of processes.jsonl and the times of the files; writes
 * nothing. The directory may appear, be replaced or be removed at any time. Depends on runlog,
 * canvas. */
#ifndef MONITOR_WATCH_H
#define MONITOR_WATCH_H

#include "monitor/canvas.h"
#include "monitor/runlog.h"

typedef enum {
  WATCH_ABSENT,   /* the directory does not exist */
  WATCH_EMPTY,    /* it has no measurements yet */
  WATCH_RUNNING,  /* a file was written within the last WATCH_NEWS seconds */
  WATCH_SILENT,   /* no file was written for longer: stopped, killed, or very slow */
  WATCH_COMPLETE, /* the last step was trained */
} WatchState;

#define WATCH_NEWS 30

/* What the keys change. */
typedef struct {
  char metric[RUNLOG_NAME]; /* the column that is drawn; "": the first that exists */
  int zoom;                 /* the curve shows the last 1 / 2^zoom of the steps */
  bool is_log;              /* logarithmic axis */
  bool has_help;
  int scroll; /* lines below the curve that are scrolled away */
} WatchView;

typedef struct {
  const char *dir; /* not copied */
  RunLog log;
  bool is_open;
  WatchState state;
  uint64_t step, steps; /* steps trained; length of the run, 0: unknown */
  uint64_t ranks;       /* 0: unknown */
  char device[RUNLOG_NAME];
  double silence;       /* seconds since a file was written */
  double elapsed, left; /* training time in seconds; time left, negative: unknown */
} Watch;

void watch_init(Watch *w, const char *dir);
void watch_close(Watch *w);
/* Reads what is new. Fails only if files exist and cannot be read. */
NODISCARD Err watch_read(Watch *w);

/* Returns the column that is drawn; NULL if nothing was measured. */
const RunColumn *watch_column(const Watch *w, const WatchView *view);
/* Selects the next (1) or previous (-1) column. */
void watch_select(const Watch *w, WatchView *view, int direction);

/* Draws a frame that fills the canvas; keys: with the line that names the keys. */
void watch_draw(const Watch *w, WatchView *view, Canvas *c, bool keys);
/* Writes one line about the state of the run, for terminals that cannot be drawn on. */
void watch_line(const Watch *w, char *out, size_t room);

/* Draws the curve of a column, with its axes, into `box`. `marks`: a second column that is drawn
 * as single points, or NULL. */
void watch_draw_curve(const Watch *w, const WatchView *view, Canvas *c, CanvasBox box,
                      const RunColumn *column, const RunColumn *marks);

/* Lines below the curve, filled from left to right with fields. */
typedef struct {
  char text[512];
  Style style;
} WatchLine;
#define WATCH_LINES 256
typedef struct {
  WatchLine line[WATCH_LINES];
  int lines;
  bool is_full; /* there is no room for the group that was begun last */
  int cols;     /* width of a line */
  int indent;   /* of the lines that continue a group */
} WatchText;
/* Begins a group of fields on a new line; `name` is its first field. */
void watch_begin(WatchText *t, Style style, const char *name);
/* Adds a field, two blanks after the one before, or on the next line if it does not fit. */
void watch_field(WatchText *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Adds the figures of the run, its hosts and ranks, and its last event. */
void watch_describe(const Watch *w, WatchText *t);

#endif
