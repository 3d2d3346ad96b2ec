/* Draws a frame: a title, the curve, figures, keys. Small terminals show fewer figures, which can be
 * scrolled. Depends on canvas, watch. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "monitor/watch.h"

#define MIN_ROWS 4
#define MIN_COLS 20

/* Describes the state in a few words; returns how it is to be shown. */
static Style describe_state(const Watch *w, char *out, size_t room) {
  char time[32];
  switch (w->state) {
    case WATCH_ABSENT:
      snprintf(out, room, "does not exist yet");
      return STYLE_WARN;
    case WATCH_EMPTY:
      snprintf(out, room, "no measurements yet");
      return STYLE_WARN;
    case WATCH_RUNNING:
      snprintf(out, room, "running");
      return STYLE_GOOD;
    case WATCH_COMPLETE:
      snprintf(out, room, "complete");
      return STYLE_GOOD;
    case WATCH_SILENT:
      break;
  }
  if (isfinite(w->silence))
    snprintf(out, room, "nothing written for %s", str_of_seconds(time, w->silence));
  else
    snprintf(out, room, "nothing written");
  return STYLE_WARN;
}

/* Writes "step 450 of 500 (90 %)". */
static void describe_step(const Watch *w, char *out, size_t room) {
  char step[32], steps[32];
  str_of_count(step, w->step);
  if (w->steps)
    snprintf(out, room, "step %s of %s (%.3g %%)", step, str_of_count(steps, w->steps),
             100 * (double)w->step / (double)w->steps);
  else
    snprintf(out, room, "step %s", step);
}

/* Writes "1h 02m, 3h 10m left". */
static void describe_time(const Watch *w, char *out, size_t room) {
  char elapsed[32], left[32];
  str_of_seconds(elapsed, w->elapsed);
  if (w->left >= 0)
    snprintf(out, room, "%s, %s left", elapsed, str_of_seconds(left, w->left));
  else
    snprintf(out, room, "%s", elapsed);
}

/* Draws one or two lines: name and state of the run, steps and times. Returns their number. */
static int draw_title(const Watch *w, Canvas *c) {
  char state[96], step[96], time[96], ranks[RUNLOG_NAME + 48] = "";
  Style style = describe_state(w, state, sizeof state);
  describe_step(w, step, sizeof step);
  describe_time(w, time, sizeof time);
  if (w->ranks)
    snprintf(ranks, sizeof ranks, "%" PRIu64 " rank%s%s%s", w->ranks, w->ranks == 1 ? "" : "s",
             *w->device ? ", " : "", w->device);
  /* The end of a long path says more than its beginning. */
  const char *name = w->dir;
  int room = c->cols - canvas_width(state) - 2;
  while (*name && canvas_width(name) > (room > 4 ? room : 4)) name++;
  int col = canvas_put(c, 0, 0, STYLE_TITLE, "%s", name);
  canvas_put(c, 0, col + 2, style, "%s", state);
  if (w->state == WATCH_ABSENT || w->state == WATCH_EMPTY) return 1;
  col = canvas_put(c, 1, 0, STYLE_PLAIN, "%s", step);
  /* If there is no room for both times, the time left is the one to keep. */
  const char *part = strstr(time, ", ") ? strstr(time, ", ") + 2 : time;
  const char *shown = col + 2 + canvas_width(time) <= c->cols ? time : part;
  if (col + 2 + canvas_width(shown) <= c->cols)
    col = canvas_put(c, 1, col + 2, STYLE_PLAIN, "%s", shown);
  if (col + 2 + canvas_width(ranks) <= c->cols)
    canvas_put(c, 1, col + 2, STYLE_DIM, "%s", ranks);
  return 2;
}

static void draw_help(Canvas *c, int row) {
  static const char *const lines[] = {
      "left, right   show another value",
      "+, -          show less, more of the past",
      "l             logarithmic axis, or linear",
      "up, down      scroll the lines below the curve",
      "h, ?          this help, and back",
      "q             quit; training is not affected",
      "",
      "o             points of the validation",
      "all-reduce    what backward did not hide, with waiting",
      "              for slower ranks",
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    canvas_put(c, row + (int)i, 1, STYLE_PLAIN, "%s", lines[i]);
}

/* Draws the curve of the selected column, with its name above. */
static void draw_chart(const Watch *w, const WatchView *view, Canvas *c, CanvasBox box) {
  const RunColumn *column = watch_column(w, view), *marks = NULL;
  char zoom[32] = "";
  if (!column || box.rows < 3) return;
  if (strcmp(column->name, "nll") == 0) marks = runlog_column(&w->log, "valid_nll");
  if (marks && !marks->points) marks = NULL;
  if (view->zoom) snprintf(zoom, sizeof zoom, "  last 1/%d", 1 << view->zoom);
  RunPoint last = runlog_point(&w->log, column, column->points - 1);
  canvas_put(c, box.row, box.col, STYLE_TITLE, "%s %.5g%s%s%s", column->name, last.value,
             view->is_log ? "  log axis" : "", zoom, marks ? "  o valid_nll" : "");
  CanvasBox below = {box.row + 1, box.col, box.rows - 1, box.cols};
  watch_draw_curve(w, view, c, below, column, marks);
}

/* Draws the lines below the curve, from the one to which the view is scrolled. */
static void draw_text(const WatchText *t, WatchView *view, Canvas *c, int row, int rows) {
  int hidden = t->lines - rows;
  if (hidden < 0) hidden = 0;
  if (view->scroll > hidden) view->scroll = hidden;
  for (int i = 0; i < rows && i + view->scroll < t->lines; i++) {
    const WatchLine *line = &t->line[i + view->scroll];
    canvas_put(c, row + i, 0, line->style, "%s", line->text);
  }
}

/* Rows of the curve: what the text leaves, but at least half of the screen, or a third of a small
 * one. */
static int share_rows(int rows, int lines) {
  int least = rows >= 20 ? rows / 2 : rows / 3 + 1;
  if (least < 4) least = 4;
  int curve = rows - lines > least ? rows - lines : least;
  return curve < rows ? curve : rows;
}

/* Draws the line of the keys, with the number of lines that are out of sight at its end. */
static void draw_keys(Canvas *c, int hidden) {
  static const char *const keys[] = {"left/right value", "+/- zoom", "l log axis"};
  char more[32] = "";
  if (hidden > 0) snprintf(more, sizeof more, "  down: %d more", hidden);
  int col = canvas_put(c, c->rows - 1, 0, STYLE_DIM, "q quit  h help");
  int room = c->cols - canvas_width(more);
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (col + 2 + canvas_width(keys[i]) <= room)
      col = canvas_put(c, c->rows - 1, col + 2, STYLE_DIM, "%s", keys[i]);
  canvas_put(c, c->rows - 1, room > col ? room : col, STYLE_WARN, "%s", more);
}

void watch_draw(const Watch *w, WatchView *view, Canvas *c, bool keys) {
  static WatchText text; /* large; one thread draws */
  if (c->rows < MIN_ROWS || c->cols < MIN_COLS) {
    canvas_put(c, 0, 0, STYLE_WARN, "too small");
    return;
  }
  text.lines = 0;
  text.is_full = false;
  text.cols = c->cols;
  watch_describe(w, &text);
  int top = draw_title(w, c), rows = c->rows - top - (keys ? 1 : 0);
  bool has_curve = watch_column(w, view) != NULL;
  int curve = has_curve ? share_rows(rows, text.lines) : 0;
  if (view->has_help) {
    draw_help(c, top);
  } else {
    draw_chart(w, view, c, (CanvasBox){top, 0, curve, c->cols});
    draw_text(&text, view, c, top + curve, rows - curve);
  }
  if (keys) draw_keys(c, text.lines - (rows - curve) - view->scroll);
}

void watch_line(const Watch *w, char *out, size_t room) {
  char state[96], step[96], time[96], loss[64] = "", speed[64] = "", count[32];
  RunPoint p;
  describe_state(w, state, sizeof state);
  describe_step(w, step, sizeof step);
  describe_time(w, time, sizeof time);
  if (w->state == WATCH_ABSENT || w->state == WATCH_EMPTY) {
    snprintf(out, room, "%s: %s", w->dir, state);
    return;
  }
  if (runlog_last(&w->log, "nll", &p)) snprintf(loss, sizeof loss, "  loss %.4f", p.value);
  bool has_speed = runlog_last(&w->log, "target_tokens_per_s", &p) ||
                   runlog_last(&w->log, "tokens_per_s", &p);
  if (has_speed && p.value >= 0 && p.value < 1e15)
    snprintf(speed, sizeof speed, "  %s tokens/s", str_of_count(count, (uint64_t)p.value));
  snprintf(out, room, "%s%s%s  %s  %s", step, loss, speed, time, state);
}
