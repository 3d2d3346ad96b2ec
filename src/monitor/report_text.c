/* Helpers to fill in answers. Depends on report, plot. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "monitor/report_internal.h"

#define SPARK_WIDTH 40

char *report_bytes(char *out, double bytes) {
  if (isnan(bytes)) return strcpy(out, "unknown");
  return str_of_bytes(out, (uint64_t)fmax(bytes, 0));
}

char *report_seconds(char *out, double seconds) {
  if (isnan(seconds)) return strcpy(out, "unknown");
  return str_of_seconds(out, seconds);
}

char *report_count(char *out, double count) {
  if (isnan(count)) return strcpy(out, "unknown");
  return str_of_count(out, (uint64_t)fmax(count, 0));
}

char *report_share(char *out, double share) {
  if (isnan(share)) return strcpy(out, "unknown");
  snprintf(out, 32, share < 0.0995 && share > 0 ? "%.1f %%" : "%.0f %%", 100 * share);
  return out;
}

char *report_ms(char *out, double ms) {
  if (isnan(ms)) return strcpy(out, "unknown");
  snprintf(out, 32, ms < 10 ? "%.2f ms" : ms < 100 ? "%.1f ms" : "%.0f ms", ms);
  return out;
}

void report_visible(const char *text, Str *out) {
  char line[1024], shown[1024];
  while (*text) {
    size_t len = strcspn(text, "\n");
    snprintf(line, sizeof line, "%.*s", len < sizeof line ? (int)len : (int)sizeof line - 1,
             text);
    for (size_t at = 0, used; line[at]; at += used) {
      used = utf8_visible(line + at, shown, sizeof shown);
      str_add(out, shown);
      if (used == 0) break;
    }
    text += len;
    if (!*text) return;
    str_addc(out, '\n');
    text++;
  }
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
           isnan(value) && !str_starts(shown, "unknown") ? "unknown" : shown);
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

Err report_curve(const RunLog *log, const char *name, Curve *curve) {
  const RunColumn *c = runlog_column(log, name);
  *curve = (Curve){0};
  if (!c) return ERR_OK;
  TRY(mem_alloc(&curve->x, c->points, sizeof *curve->x));
  TRY(mem_alloc(&curve->y, c->points, sizeof *curve->y));
  curve->points = c->points;
  for (size_t i = 0; i < c->points; i++) {
    RunPoint p = runlog_point(log, c, i);
    curve->x[i] = (double)p.step;
    curve->y[i] = p.value;
  }
  return ERR_OK;
}

void report_free_curve(Curve *curve) {
  mem_free(curve->x);
  mem_free(curve->y);
  *curve = (Curve){0};
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
