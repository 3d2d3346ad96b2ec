/* Draws a curve with its axes. A column of dots shows the range of all points in it, so that no
 * spike is lost however many points there are. Depends on canvas, runlog. */
#include "monitor/watch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/str.h"

#define LABELS 9 /* columns for the labels of the vertical axis */

typedef struct {
  const Watch *watch;
  Canvas *canvas;
  CanvasBox box;      /* without the labels */
  double first, last; /* steps at the left and right edge */
  double least, most; /* values at the bottom and the top; logarithms if is_log */
  bool is_log;
} Curve;

static bool get_value(const Curve *v, double value, double *y) {
  if (!isfinite(value) || (v->is_log && value <= 0)) return false;
  *y = v->is_log ? log10(value) : value;
  return true;
}

/* Extends the range of values by the points of a column that are not left of the box. */
static void add_range(Curve *v, const RunColumn *c) {
  for (size_t i = c ? c->points : 0; i-- > 0;) {
    RunPoint p = runlog_point(&v->watch->log, c, i);
    double y;
    if ((double)p.step < v->first) break;
    if (!get_value(v, p.value, &y)) continue;
    v->least = fmin(v->least, y);
    v->most = fmax(v->most, y);
  }
}

/* Returns the column of dots of a step, and the row of dots of a value. */
static int get_x(const Curve *v, double step) {
  int dots = v->box.cols * canvas_dots_x(v->canvas);
  double width = v->last - v->first;
  return width > 0 ? (int)((step - v->first) / width * (dots - 1) + 0.5) : 0;
}

static int get_y(const Curve *v, double y) {
  int dots = v->box.rows * canvas_dots_y(v->canvas);
  double height = v->most - v->least;
  double share = (y - v->least) / height;
  if (!(share >= 0 && share <= 1))
    share = 0.5; /* one value, or values near the largest double */
  return dots - 1 - (int)(share * (dots - 1) + 0.5);
}

/* Draws the line between two points: in each column of dots the part of the line in it. */
static void draw_line(Curve *v, int x0, int y0, int x1, int y1) {
  int from = y0;
  for (int x = x0 + 1; x <= x1; x++) {
    int to = y0 + (int)lround((double)(y1 - y0) * (x - x0) / (x1 - x0));
    canvas_bar(v->canvas, &v->box, x, from, to, STYLE_CURVE);
    from = to;
  }
  if (x0 == x1) canvas_bar(v->canvas, &v->box, x0, y0, y1, STYLE_CURVE);
}

static void draw_points(Curve *v, const RunColumn *c) {
  int x = -1, y = -1;
  for (size_t i = 0; i < c->points; i++) {
    RunPoint p = runlog_point(&v->watch->log, c, i);
    double value;
    if ((double)p.step < v->first || !get_value(v, p.value, &value)) continue;
    int px = get_x(v, (double)p.step), py = get_y(v, value);
    if (x < 0)
      canvas_dot(v->canvas, &v->box, px, py, STYLE_CURVE);
    else
      draw_line(v, x, y, px, py);
    x = px;
    y = py;
  }
}

static void draw_marks(Curve *v, const RunColumn *c) {
  for (size_t i = 0; c && i < c->points; i++) {
    RunPoint p = runlog_point(&v->watch->log, c, i);
    double value;
    if ((double)p.step < v->first || !get_value(v, p.value, &value)) continue;
    canvas_put(v->canvas, v->box.row + get_y(v, value) / canvas_dots_y(v->canvas),
               v->box.col + get_x(v, (double)p.step) / canvas_dots_x(v->canvas), STYLE_MARK,
               "o");
  }
}

/* Writes a value in at most LABELS - 1 columns, such as 4.893, 14.1k or 3.7e-06. */
static void format_label(char *out, size_t room, double value) {
  static const struct {
    double size;
    const char *unit;
  } units[] = {{1e9, "G"}, {1e6, "M"}, {1e4, "k"}};
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    double unit = units[i].size == 1e4 ? 1e3 : units[i].size;
    if (fabs(value) >= units[i].size && fabs(value) < 1e12) {
      snprintf(out, room, "%.4g%s", value / unit, units[i].unit);
      return;
    }
  }
  bool is_plain = value == 0 || (fabs(value) >= 1e-3 && fabs(value) < 1e4);
  snprintf(out, room, is_plain ? "%.4g" : "%.1e", value);
}

static void put_label(Curve *v, int row, double y) {
  char text[32];
  format_label(text, sizeof text, v->is_log ? pow(10, y) : y);
  canvas_put(v->canvas, row, v->box.col - 1 - canvas_width(text), STYLE_DIM, "%s", text);
}

static void draw_axes(Curve *v) {
  char left[32], right[32];
  int bottom = v->box.row + v->box.rows - 1;
  put_label(v, v->box.row, v->most);
  if (v->box.rows > 1) put_label(v, bottom, v->least);
  if (v->box.rows > 6) put_label(v, v->box.row + v->box.rows / 2, (v->least + v->most) / 2);
  str_of_count(left, (uint64_t)v->first);
  str_of_count(right, (uint64_t)v->last);
  canvas_put(v->canvas, bottom + 1, v->box.col, STYLE_DIM, "step %s", left);
  canvas_put(v->canvas, bottom + 1, v->box.col + v->box.cols - canvas_width(right), STYLE_DIM,
             "%s", right);
}

void watch_draw_curve(const Watch *w, const WatchView *view, Canvas *canvas, CanvasBox box,
                      const RunColumn *column, const RunColumn *marks) {
  RunPoint first = runlog_point(&w->log, column, 0);
  RunPoint last = runlog_point(&w->log, column, column->points - 1);
  if (marks && runlog_point(&w->log, marks, marks->points - 1).step > last.step)
    last = runlog_point(&w->log, marks, marks->points - 1);
  double width = (double)(last.step - first.step);
  Curve v = {.watch = w,
             .canvas = canvas,
             .box = {box.row, box.col + LABELS, box.rows - 1, box.cols - LABELS},
             .first = (double)last.step - ldexp(width, -view->zoom),
             .last = (double)last.step,
             .least = INFINITY,
             .most = -INFINITY,
             .is_log = view->is_log};
  if (v.box.rows < 1 || v.box.cols < 4) return;
  add_range(&v, column);
  add_range(&v, marks);
  if (v.least >
      v.most) { /* no value can be drawn: all are 0 or negative on a logarithmic axis */
    canvas_put(canvas, v.box.row, v.box.col, STYLE_WARN, "no value above 0: press l");
    return;
  }
  draw_points(&v, column);
  draw_marks(&v, marks);
  draw_axes(&v);
}
