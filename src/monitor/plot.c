/* SVG charts. Coordinates are in pixels of a view box; pages scale it. Depends on base/str. */
#include "monitor/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH      640.0
#define HEIGHT     240.0
#define LEFT       58.0 /* margins, for the labels of the axes and the legend */
#define RIGHT      14.0
#define TOP        26.0
#define BOTTOM     40.0
#define LEGEND_ROW 16.0
#define COLUMNS \
  600 /* of pixels: more points than that become two per column, lowest and highest */
#define LARGEST \
  1e300          /* larger values are gaps: differences and margins of them would overflow */
#define TICKS 64 /* most ticks of an axis */

/* Colours with enough contrast on white and on black. */
static const char *const colours[PLOT_SERIES] = {"#3b7dd8", "#e07b1a", "#3c9a4e", "#d1495b",
                                                 "#8a63c9", "#1f9e9e", "#b08a00", "#888888"};

typedef struct {
  double low, high; /* of the axis; for a logarithmic one, log10 of the values */
  double from, to;  /* pixels */
} Axis;

void plot_escape(const char *text, Str *out) {
  for (const char *at = text; *at; at++) {
    switch (*at) {
      case '&':
        str_add(out, "&amp;");
        break;
      case '<':
        str_add(out, "&lt;");
        break;
      case '>':
        str_add(out, "&gt;");
        break;
      case '"':
        str_add(out, "&quot;");
        break;
      default:
        str_addc(out, *at);
    }
  }
}

double plot_tick_step(double span, int most) {
  if (!(span > 1 / LARGEST) || !isfinite(span)) return 1;
  double power = pow(10, floor(log10(span / most)));
  static const double factors[] = {1, 2, 5, 10};
  for (size_t i = 0; i < 4; i++)
    if (span / (factors[i] * power) <= most * (1 + 1e-9)) return factors[i] * power;
  return 10 * power;
}

char *plot_tick_text(char *out, double value) {
  double size = fabs(value);
  if (size < 1e-12) return memcpy(out, "0", 2);
  if (size >= 1e9)
    snprintf(out, 32, "%.4gG", value / 1e9);
  else if (size >= 1e6)
    snprintf(out, 32, "%.4gM", value / 1e6);
  else if (size >= 1e4)
    snprintf(out, 32, "%.4gk", value / 1e3);
  else if (size < 1e-3)
    snprintf(out, 32, "%.2ge%d", value / pow(10, floor(log10(size) + 1e-9)),
             (int)floor(log10(size) + 1e-9));
  else
    snprintf(out, 32, "%.6g", value);
  return out;
}

/* Returns false for what is not finite, too. */
static bool is_in_range(double value) {
  return fabs(value) <= LARGEST;
}

/* Returns the place of a value on the y axis; NAN: it is not drawn. */
static double get_y(const PlotLines *p, double y) {
  if (!is_in_range(y)) return NAN;
  if (!p->is_log) return y;
  return y >= 1 / LARGEST ? log10(y) : NAN;
}

static bool is_drawn(const PlotLines *p, const PlotSeries *s, size_t i) {
  return is_in_range(s->x[i]) && !isnan(get_y(p, s->y[i]));
}

/* Finds the ranges of both axes. Returns false if there is nothing to draw. */
static bool find_ranges(const PlotLines *p, Axis *x, Axis *y) {
  bool has_values = false;
  *x = (Axis){INFINITY, -INFINITY, LEFT, WIDTH - RIGHT};
  *y = (Axis){INFINITY, -INFINITY, HEIGHT - BOTTOM, TOP};
  for (size_t k = 0; k < p->count; k++) {
    const PlotSeries *s = &p->series[k];
    for (size_t i = 0; i < s->points; i++) {
      if (!is_drawn(p, s, i)) continue;
      double value = get_y(p, s->y[i]);
      has_values = true;
      x->low = fmin(x->low, s->x[i]);
      x->high = fmax(x->high, s->x[i]);
      y->low = fmin(y->low, value);
      y->high = fmax(y->high, value);
    }
  }
  if (!has_values) return false;
  if (p->includes_zero && !p->is_log) {
    y->low = fmin(y->low, 0);
    y->high = fmax(y->high, 0);
  }
  return true;
}

/* Extends a range to whole ticks; a range of one value gets some space around it. */
static double round_range(Axis *a, int most) {
  if (a->high - a->low < 1e-9 * fmax(fabs(a->high), 1e-9)) {
    double space = fabs(a->high) > 1e6 / LARGEST ? fabs(a->high) / 2 : 1;
    a->low -= space;
    a->high += space;
  }
  double step = plot_tick_step(a->high - a->low, most);
  a->low = floor(a->low / step + 1e-9) * step;
  a->high = ceil(a->high / step - 1e-9) * step;
  return step;
}

static double place(const Axis *a, double value) {
  return a->from + (value - a->low) / (a->high - a->low) * (a->to - a->from);
}

static void add_text(Str *out, double x, double y, const char *anchor, const char *text) {
  str_addf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
  plot_escape(text, out);
  str_add(out, "</text>");
}

static void begin_svg(Str *out, const char *title, double height) {
  str_addf(out,
           "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" font-size=\"11\" "
           "font-family=\"system-ui,sans-serif\" fill=\"currentColor\" "
           "xmlns=\"http://www.w3.org/2000/svg\"><title>",
           WIDTH, height);
  plot_escape(title, out);
  str_add(out, "</title>");
}

static void add_y_tick(Str *out, const Axis *y, double at, double value) {
  char text[32];
  double pixel = place(y, at);
  str_addf(out, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"currentColor\" stroke-opacity=\".15\"/>",
           LEFT, pixel, WIDTH - RIGHT);
  add_text(out, LEFT - 6, pixel + 4, "end", plot_tick_text(text, value));
}

/* Ticks of a logarithmic axis: powers of ten, and 2 and 5 times them if there are few. Within one power
 * of ten the ticks have equal distances in value. */
static void add_log_ticks(Str *out, const Axis *y) {
  if (y->high - y->low < 1) {
    double low = pow(10, y->low), high = pow(10, y->high), step = plot_tick_step(high - low, 5);
    double first = ceil(low / step) * step;
    for (int i = 0; i < TICKS && first + i * step <= high; i++)
      add_y_tick(out, y, log10(first + i * step), first + i * step);
    return;
  }
  bool has_between = y->high - y->low < 2.5;
  static const double factors[] = {1, 2, 5};
  for (double power = floor(y->low); power <= y->high; power++) {
    for (int i = 0; i < (has_between ? 3 : 1); i++) {
      double at = power + log10(factors[i]);
      if (at >= y->low - 1e-9 && at <= y->high + 1e-9) add_y_tick(out, y, at, pow(10, at));
    }
  }
}

static void add_axes(const PlotLines *p, const Axis *x, double x_step, const Axis *y,
                     double y_step, Str *out) {
  char text[32];
  if (p->is_log)
    add_log_ticks(out, y);
  else
    for (int i = 0; y->low + i * y_step <= y->high + y_step / 2 && i < TICKS; i++)
      add_y_tick(out, y, y->low + i * y_step, y->low + i * y_step);
  for (int i = 0; x->low + i * x_step <= x->high + x_step / 2 && i < TICKS; i++) {
    double value = x->low + i * x_step, pixel = place(x, value);
    str_addf(out, "<path d=\"M%.1f %.1fv4\" stroke=\"currentColor\"/>", pixel, HEIGHT - BOTTOM);
    add_text(out, pixel, HEIGHT - BOTTOM + 16, "middle", plot_tick_text(text, value));
  }
  str_addf(out, "<path d=\"M%.1f %.1fV%.1fH%.1f\" fill=\"none\" stroke=\"currentColor\"/>",
           LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT);
  if (p->x_label) add_text(out, WIDTH - RIGHT, HEIGHT - 6, "end", p->x_label);
  if (p->y_label) add_text(out, LEFT - 50, 12, "start", p->y_label);
}

static size_t count_characters(const char *text) {
  size_t count = 0;
  for (; *text; text++) count += (*text & 0xc0) != 0x80;
  return count;
}

/* Adds the name of series k with its coloured square, which is part of the text, so that it stays beside
 * it. Names are cut after NAME_MOST characters. */
#define NAME_MOST 40
static void add_name(Str *out, double x, double y, const char *anchor, size_t k,
                     const char *name) {
  char text[4 * NAME_MOST + 1];
  size_t used = 0, count = 0;
  for (; name[used] && used + 1 < sizeof text; used++) {
    if ((name[used] & 0xc0) != 0x80 && ++count > NAME_MOST) break;
    text[used] = name[used];
  }
  text[used] = 0;
  str_addf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"><tspan fill=\"%s\">%s</tspan> ",
           x, y, anchor, colours[k % PLOT_SERIES], k < PLOT_SERIES ? "■" : "□");
  plot_escape(text, out);
  str_add(out, name[used] ? "…</text>" : "</text>");
}

/* Estimated pixels of a name in a legend. */
static double get_name_width(const char *name) {
  return 6.4 * (double)count_characters(name) + 28;
}

/* The legend stands right-aligned above the chart, from the last name to the first. */
static void add_legend(const char *const *names, size_t count, double right, Str *out) {
  for (size_t k = count; k-- > 0;) {
    add_name(out, right, 12, "end", k, names[k]);
    right -= get_name_width(names[k]);
  }
}

/* Rows of a legend below the chart; 0: it fits above. */
static size_t count_legend_rows(const PlotLines *p) {
  double width = 0;
  for (size_t k = 0; k < p->count; k++) width += get_name_width(p->series[k].name);
  return width > WIDTH - RIGHT - 2 * LEFT ? (p->count + 1) / 2 : 0;
}

static void add_series_legend(const PlotLines *p, size_t rows, Str *out) {
  double right = WIDTH - RIGHT;
  for (size_t k = p->count; k-- > 0;) {
    const char *name = p->series[k].name;
    if (rows > 0)
      add_name(out, k % 2 ? WIDTH / 2 : LEFT, HEIGHT + 12 + LEGEND_ROW * (double)(k / 2),
               "start", k, name);
    else
      add_name(out, right, 12, "end", k, name);
    right -= get_name_width(name);
  }
}

/* A column of pixels, in which the lowest and the highest value are drawn. */
typedef struct {
  long column;
  double x, low, high;
} Column;

static void add_column(Str *out, const Column *c, bool *is_begun) {
  if (c->column < 0) return;
  str_addf(out, "%c%.1f %.1f", *is_begun ? 'L' : 'M', c->x, c->low);
  if (c->high != c->low) str_addf(out, "L%.1f %.1f", c->x, c->high);
  *is_begun = true;
}

static void add_series(const PlotLines *p, size_t k, const Axis *x, const Axis *y, Str *out) {
  const PlotSeries *s = &p->series[k];
  const char *colour = colours[k % PLOT_SERIES];
  bool is_begun = false, is_dense = s->points > COLUMNS;
  Column c = {.column = -1};
  str_add(out, "<path d=\"");
  for (size_t i = 0; i < s->points; i++) {
    if (!is_drawn(p, s, i)) {
      add_column(out, &c, &is_begun);
      c.column = -1;
      is_begun = false;
      continue;
    }
    double px = place(x, s->x[i]), py = place(y, get_y(p, s->y[i]));
    if (is_dense && c.column == (long)px) {
      c.low = fmax(c.low, py);
      c.high = fmin(c.high, py);
      continue;
    }
    add_column(out, &c, &is_begun);
    c = (Column){.column = (long)px, .x = px, .low = py, .high = py};
  }
  add_column(out, &c, &is_begun);
  str_addf(out,
           "\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\" stroke-linejoin=\"round\"%s/>",
           colour, s->is_dashed || k >= PLOT_SERIES ? " stroke-dasharray=\"5 4\"" : "");
  if (!s->has_dots || is_dense) return;
  for (size_t i = 0; i < s->points; i++)
    if (is_drawn(p, s, i))
      str_addf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" fill=\"%s\"/>",
               place(x, s->x[i]), place(y, get_y(p, s->y[i])), colour);
}

static void add_mark(const PlotLines *p, const Axis *x, Str *out) {
  if (!isfinite(p->mark) || p->mark < x->low || p->mark > x->high) return;
  double pixel = place(x, p->mark);
  bool is_right = pixel > WIDTH * 0.7;
  str_addf(out,
           "<path d=\"M%.1f %.1fV%.1f\" stroke=\"currentColor\" stroke-dasharray=\"2 3\"/>",
           pixel, TOP, HEIGHT - BOTTOM);
  if (p->mark_label)
    add_text(out, pixel + (is_right ? -5 : 5), TOP + 10, is_right ? "end" : "start",
             p->mark_label);
}

void plot_lines(const PlotLines *p, Str *out) {
  Axis x, y;
  if (!find_ranges(p, &x, &y)) {
    str_add(out, "<p class=\"none\">No measurements to draw.</p>");
    return;
  }
  double x_step = round_range(&x, 8);
  double y_step = 1;
  if (p->is_log && y.high - y.low < 0.02) {
    y.low -= 0.01;
    y.high += 0.01;
  } else if (!p->is_log) {
    y_step = round_range(&y, 5);
  }
  size_t rows = count_legend_rows(p);
  begin_svg(out, p->title ? p->title : "chart", HEIGHT + LEGEND_ROW * (double)rows);
  add_axes(p, &x, x_step, &y, y_step, out);
  for (size_t k = 0; k < p->count; k++) add_series(p, k, &x, &y, out);
  add_mark(p, &x, out);
  add_series_legend(p, rows, out);
  str_add(out, "</svg>\n");
}

static double sum_row(const PlotBars *b, const PlotRow *row) {
  double sum = 0;
  for (size_t i = 0; i < b->part_count; i++)
    if (is_in_range(row->values[i]) && row->values[i] > 0) sum += row->values[i];
  return sum;
}

/* Rounds to three digits. */
static double round_digits(double value) {
  double unit = value > 0 ? pow(10, floor(log10(value)) - 2) : 1;
  return round(value / unit) * unit;
}

static void add_bar(const PlotBars *b, const PlotRow *row, double scale, double label, double y,
                    Str *out) {
  double x = label;
  char text[48], number[32];
  for (size_t i = 0; i < b->part_count; i++) {
    double value = row->values[i];
    if (!is_in_range(value) || value <= 0) continue;
    str_addf(out,
             "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"16\" fill=\"%s\"><title>", x,
             y, value * scale, colours[i % PLOT_SERIES]);
    plot_escape(b->parts[i], out);
    str_addf(out, ": %.3g %s</title></rect>", value, b->unit);
    x += value * scale;
  }
  add_text(out, label - 6, y + 12, "end", row->label);
  snprintf(text, sizeof text, "%s %s", plot_tick_text(number, round_digits(sum_row(b, row))),
           b->unit);
  add_text(out, x + 5, y + 12, "start", text);
}

void plot_bars(const PlotBars *b, Str *out) {
  double most = 0, label = 20;
  for (size_t r = 0; r < b->row_count; r++) {
    most = fmax(most, sum_row(b, &b->rows[r]));
    label = fmax(label, 12 + 6.4 * (double)strlen(b->rows[r].label));
  }
  if (most <= 0) {
    str_add(out, "<p class=\"none\">No measurements to draw.</p>");
    return;
  }
  label = fmin(label, WIDTH / 3);
  double top = b->part_count > 1 ? TOP : 4; /* one part needs no legend */
  begin_svg(out, b->title, top + 22 * (double)b->row_count);
  for (size_t r = 0; r < b->row_count; r++)
    add_bar(b, &b->rows[r], (WIDTH - label - 80) / most, label, top + 22 * (double)r, out);
  if (b->part_count > 1) add_legend(b->parts, b->part_count, WIDTH - RIGHT, out);
  str_add(out, "</svg>\n");
}

void plot_spark(const double *y, size_t points, size_t width, Str *out) {
  static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double low = INFINITY, high = -INFINITY;
  for (size_t i = 0; i < points; i++) {
    if (!is_in_range(y[i])) continue;
    low = fmin(low, y[i]);
    high = fmax(high, y[i]);
  }
  if (points < width) width = points;
  for (size_t c = 0; c < width && low <= high; c++) {
    double sum = 0;
    size_t begin = c * points / width, end = (c + 1) * points / width, count = 0;
    for (size_t i = begin; i < end; i++) {
      if (!is_in_range(y[i])) continue;
      sum += y[i];
      count++;
    }
    /* Rounding can place the mean of equal values a little below or above them. */
    double share = high > low && count ? (sum / (double)count - low) / (high - low) : 0;
    str_add(out, count ? blocks[(int)fmax(0, fmin(7, floor(share * 8)))] : " ");
  }
}
