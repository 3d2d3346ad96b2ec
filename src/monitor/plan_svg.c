/* The prediction as SVG: speed-up over the number of GPUs, and the parts of a step. Depends on
 * plan_report.h, plot.h. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "monitor/plan_report.h"
#include "monitor/plot.h"

enum {
  PART_FORWARD,
  PART_BACKWARD,
  PART_STRAGGLER,
  PART_EXPOSED,
  PART_UPDATE,
  PART_OTHER,
  PARTS
};
static const char *const part_names[PARTS] = {
    "forward", "backward", "straggler", "exposed all-reduce", "update", "other"};

typedef struct {
  double gpus, speedup, parts[PARTS];
  char label[32];
} Drawn;

static void fill_drawn(const PlanPoint *p, Drawn *d) {
  d->gpus = (double)p->net.nodes * p->net.gpus;
  d->speedup = p->speedup;
  d->parts[PART_FORWARD] = 1e3 * p->forward;
  d->parts[PART_BACKWARD] = 1e3 * p->backward;
  d->parts[PART_STRAGGLER] = 1e3 * p->straggler;
  d->parts[PART_EXPOSED] = 1e3 * p->exposed;
  d->parts[PART_UPDATE] = 1e3 * p->update;
  d->parts[PART_OTHER] = 1e3 * (p->copies + p->gather);
  snprintf(d->label, sizeof d->label, "%d x %d", p->net.nodes, p->net.gpus);
}

static void draw_scaling(const double *gpus, const double *speedup, size_t n, Str *out) {
  PlotSeries series[] = {
      {.name = "predicted", .x = gpus, .y = speedup, .points = n, .has_dots = true},
      {.name = "ideal", .x = gpus, .y = gpus, .points = n, .is_dashed = true}};
  plot_lines(&(PlotLines){.title = "Speed-up over one GPU",
                          .x_label = "GPUs",
                          .y_label = "speed-up",
                          .includes_zero = true,
                          .mark = NAN,
                          .series = series,
                          .count = sizeof series / sizeof *series},
             out);
}

static void draw_steps(const PlotRow *rows, size_t n, Str *out) {
  plot_bars(&(PlotBars){.title = "Parts of a step",
                        .unit = "ms",
                        .parts = part_names,
                        .part_count = PARTS,
                        .rows = rows,
                        .row_count = n},
            out);
}

/* Appends a chart below those of the document so far, and adds its height to *top. The charts of plot.h
 * have a viewBox and no size of their own. */
static void place_chart(const Str *chart, double *top, Str *out) {
  double width = 0, height = 0;
  if (sscanf(str_text(chart), "<svg viewBox=\"0 0 %lf %lf\"", &width, &height) != 2) return;
  str_addf(out, "<svg y=\"%.0f\" width=\"%.0f\" height=\"%.0f\">%s</svg>\n", *top, width,
           height, str_text(chart));
  *top += height;
}

static void compose_document(const Str *scaling, const Str *steps, Str *out) {
  Str charts = {0};
  double height = 0;
  place_chart(scaling, &height, &charts);
  place_chart(steps, &height, &charts);
  str_addf(out,
           "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 %.0f\" "
           "style=\"background:white\">\n%s</svg>\n",
           height, str_text(&charts));
  if (charts.failed) out->failed = true;
  str_free(&charts);
}

Err plan_print_svg(const PlanReport *r, Str *out) {
  Drawn *drawn = NULL;
  PlotRow *rows = NULL;
  double *gpus = NULL, *speedup = NULL;
  Str scaling = {0}, steps = {0};
  Err err;
  TRY_DONE(mem_alloc(&drawn, r->rows, sizeof *drawn));
  TRY_DONE(mem_alloc(&rows, r->rows, sizeof *rows));
  TRY_DONE(mem_alloc(&gpus, r->rows, sizeof *gpus));
  TRY_DONE(mem_alloc(&speedup, r->rows, sizeof *speedup));
  for (size_t i = 0; i < r->rows; i++) {
    fill_drawn(&r->row[i].at, &drawn[i]);
    gpus[i] = drawn[i].gpus;
    speedup[i] = drawn[i].speedup;
    rows[i] = (PlotRow){drawn[i].label, drawn[i].parts};
  }
  draw_scaling(gpus, speedup, r->rows, &scaling);
  draw_steps(rows, r->rows, &steps);
  TRY_DONE(str_check(&scaling));
  TRY_DONE(str_check(&steps));
  compose_document(&scaling, &steps, out);
  err = str_check(out);
done:
  str_free(&scaling);
  str_free(&steps);
  mem_free(drawn);
  mem_free(rows);
  mem_free(gpus);
  mem_free(speedup);
  return err;
}
