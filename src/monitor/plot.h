/* Charts as SVG, for pages that load nothing: line charts and stacked bars. Axes and text have the
 * colour of the surrounding text (currentColor), so that a chart suits light and dark pages. Values
 * that are not finite, or beyond 1e300, are gaps. Names may be any UTF-8: they are escaped. Depends on
 * base/str. */
#ifndef MONITOR_PLOT_H
#define MONITOR_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

#define PLOT_SERIES 8 /* most series that have a colour of their own; further ones are dashed */

typedef struct {
  const char *name;
  const double *x, *y;
  size_t points;
  bool is_dashed;
  bool has_dots; /* marks each point, for series of few points */
} PlotSeries;

typedef struct {
  const char *title; /* read aloud by screen readers */
  const char *x_label, *y_label;
  bool is_log;        /* logarithmic y axis; values <= 0 are gaps */
  bool includes_zero; /* the y axis begins at 0 */
  double mark;        /* x of a vertical line; NAN: none */
  const char *mark_label;
  const PlotSeries *series;
  size_t count;
} PlotLines;

/* One row of stacked bars: values[i] belongs to parts[i] of PlotBars. */
typedef struct {
  const char *label;
  const double *values;
} PlotRow;

typedef struct {
  const char *title;
  const char *unit;
  const char *const *parts;
  size_t part_count;
  const PlotRow *rows;
  size_t row_count;
} PlotBars;

/* Append an <svg> element. A chart without any finite value is a line of text that says so. */
void plot_lines(const PlotLines *plot, Str *out);
void plot_bars(const PlotBars *bars, Str *out);

/* Returns the distance of ticks: 1, 2 or 5 times a power of ten, with at most `most` ticks in the
 * span. */
double plot_tick_step(double span, int most);
/* Writes a number for a tick: 1500000 as "1.5M", 0.00025 as "2.5e-4". Returns `out`, of 32 bytes. */
char *plot_tick_text(char *out, double value);
/* Appends at most `width` characters ▁▂▃▄▅▆▇█ that draw the values, for pages without pictures. */
void plot_spark(const double *y, size_t points, size_t width, Str *out);
/* Appends text with the characters that HTML reserves escaped. */
void plot_escape(const char *text, Str *out);

#endif
