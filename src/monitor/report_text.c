/* Helpers to fill in answers. Depends on report, plot. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "monitor/report_internal.h"

#define SPARK_WIDTH 40

/* Converts a number of a file, which may be anything. */
static uint64_t limit_count(double value) {
  return (uint64_t)fmin(fmax(value, 0), 1e18);
}

char *report_bytes(char *out, double bytes) {
  if (!isfinite(bytes)) return strcpy(out, "unknown");
  return str_of_bytes(out, limit_count(bytes));
}

char *report_seconds(char *out, double seconds) {
  if (!isfinite(seconds)) return strcpy(out, "unknown");
  return str_of_seconds(out, seconds);
}

char *report_count(char *out, double count) {
  if (!isfinite(count)) return strcpy(out, "unknown");
  return str_of_count(out, limit_count(count));
}

char *report_share(char *out, double share) {
  if (!isfinite(share)) return strcpy(out, "unknown");
  snprintf(out, 32, share < 0.0995 && share > 0 ? "%.1f %%" : "%.0f %%", 100 * share);
  return out;
}

char *report_ms(char *out, double ms) {
  if (!isfinite(ms)) return strcpy(out, "unknown");
  snprintf(out, 32, ms < 10 ? "%.2f ms" : ms < 100 ? "%.1f ms" : "%.0f ms", ms);
  return out;
}

/* Appends one line of any length. */
static void add_visible_line(const char *text, size_t len, Str *out) {
  Str line = {0};
  char shown[1024];
  str_addn(&line, text, len);
  for (size_t at = 0, used; str_text(&line)[at]; at += used) {
    used = utf8_visible(str_text(&line) + at, shown, sizeof shown);
    str_add(out, shown);
    if (used == 0) break;
  }
  if (line.failed) out->failed = true;
  str_free(&line);
}

void report_visible(const char *text, Str *out) {
  while (*text) {
    size_t len = strcspn(text, "\n");
    add_visible_line(text, len, out);
    text += len;
    if (!*text) return;
    str_addc(out, '\n');
    text++;
  }
}

const char *report_allreduce(const RunFacts *f) {
  if (isnan(f->ranks)) return "";
  if (f->ranks == 1) return "none: one rank";
  return f->allreduce[0] ? f->allreduce : "through host memory";
}

void report_verdict(Answer *a, Verdict verdict, const char *fmt, ...) {
  va_list args;
  a->verdict = verdict;
  va_start(args, fmt);
  vsnprintf(a->headline, sizeof a->headline, fmt, args);
  va_end(args);
}

void report_say(Answer *a, const char *fmt, ...) {
  size_t used = strlen(a->sentence);
  va_list args;
  va_start(args, fmt);
  vsnprintf(a->sentence + used, sizeof a->sentence - used, fmt, args);
  va_end(args);
}

void report_set_figure(Figure *figure, const char *key, const char *label, double value,
                       const char *shown) {
  *figure = (Figure){.key = key, .value = value};
  snprintf(figure->label, sizeof figure->label, "%s", label);
  snprintf(figure->shown, sizeof figure->shown, "%s",
           !isfinite(value) && !str_starts(shown, "unknown:") ? "unknown" : shown);
}

void report_figure(Answer *a, const char *key, const char *label, double value, const char *fmt,
                   ...) {
  char shown[96];
  va_list args;
  if (a->figure_count == REPORT_FIGURES) return;
  va_start(args, fmt);
  vsnprintf(shown, sizeof shown, fmt, args);
  va_end(args);
  report_set_figure(&a->figures[a->figure_count++], key, label, value, shown);
}

void report_free_curve(Curve *curve) {
  mem_free(curve->x);
  mem_free(curve->y);
  *curve = (Curve){0};
}

Err report_curve(const RunLog *log, const char *name, Curve *curve) {
  const RunColumn *c = runlog_column(log, name);
  *curve = (Curve){0};
  if (!c) return ERR_OK;
  Err err = mem_alloc(&curve->x, c->points, sizeof *curve->x);
  if (!err) err = mem_alloc(&curve->y, c->points, sizeof *curve->y);
  if (err) {
    report_free_curve(curve);
    return err;
  }
  curve->points = c->points;
  for (size_t i = 0; i < c->points; i++) {
    RunPoint p = runlog_point(log, c, i);
    curve->x[i] = (double)p.step;
    curve->y[i] = p.value;
  }
  return ERR_OK;
}

void report_chart(Answer *a, const PlotLines *plot) {
  plot_lines(plot, &a->chart);
  for (size_t k = 0; k < plot->count && k < 3; k++) {
    const PlotSeries *s = &plot->series[k];
    if (s->points == 0) continue;
    char first[32], last[32];
    str_addf(&a->caption, "%s%s `", a->caption.len ? "; " : "", s->name);
    plot_spark(s->y, s->points, SPARK_WIDTH, &a->caption);
    str_addf(&a->caption, "` from %s to %s", plot_tick_text(first, s->y[0]),
             plot_tick_text(last, s->y[s->points - 1]));
  }
}
