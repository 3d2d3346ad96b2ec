/* Two or more runs side by side: figures, speed-up and efficiency, curves over each other, and a
 * paired bootstrap of BLEU on the outputs of their best validations. Depends on facts, metric,
 * plot. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "metric/lines.h"
#include "metric/metric.h"
#include "monitor/report_internal.h"

#define RESAMPLES    1000  /* sacreBLEU's default for --paired-bs */
#define SEED         12345 /* sacreBLEU's default */
#define MOST_OPTIONS 1024  /* lines of a config that are compared */
/* Largest file of outputs or references in bytes. */
#define TEXT_LIMIT ((size_t)64 << 20)

static CompareRow *add_row(Report *r, const char *key, const char *label) {
  if (r->row_count == COMPARE_ROWS) return NULL;
  CompareRow *row = &r->rows[r->row_count++];
  *row = (CompareRow){.key = key};
  snprintf(row->label, sizeof row->label, "%s", label);
  return row;
}

/* A row of numbers that are shown with a format. */
static void add_numbers(Report *r, const char *key, const char *label, size_t offset,
                        char *(*show)(char *, double)) {
  CompareRow *row = add_row(r, key, label);
  for (size_t i = 0; row && i < r->run_count; i++) {
    char text[32];
    memcpy(&row->value[i], (const char *)&r->runs[i]->facts + offset, sizeof row->value[i]);
    snprintf(row->shown[i], sizeof row->shown[i], "%s", show(text, row->value[i]));
  }
}

/* A row of a figure of an answer. */
static void add_figures(Report *r, int answer, const char *key, const char *label) {
  CompareRow *row = add_row(r, key, label);
  for (size_t i = 0; row && i < r->run_count; i++) {
    const Answer *a = &r->runs[i]->answers[answer];
    row->value[i] = NAN;
    snprintf(row->shown[i], sizeof row->shown[i], "unknown");
    for (size_t k = 0; k < a->figure_count; k++) {
      if (strcmp(a->figures[k].key, key) != 0) continue;
      row->value[i] = a->figures[k].value;
      snprintf(row->shown[i], sizeof row->shown[i], "%.63s", a->figures[k].shown);
    }
  }
}

/* Returns true if both runs count the same kind of tokens. */
static bool has_same_task(const RunFacts *a, const RunFacts *b) {
  return a->is_text_task == b->is_text_task && a->is_classifier == b->is_classifier;
}

/* Speed-up: tokens per second against the first run, unknown for a run of another task. Efficiency:
 * speed-up per rank. */
static void add_speed_up(Report *r) {
  CompareRow *speed = add_row(r, "speed_up", "speed-up (tokens/s)");
  CompareRow *efficiency = add_row(r, "efficiency", "efficiency (speed-up / ranks)");
  const RunFacts *first = &r->runs[0]->facts;
  for (size_t i = 0; speed && efficiency && i < r->run_count; i++) {
    const RunFacts *f = &r->runs[i]->facts;
    double ratio = has_same_task(f, first) ? f->tokens_per_s / first->tokens_per_s : NAN;
    speed->value[i] = ratio;
    efficiency->value[i] = ratio / (f->ranks / first->ranks);
    snprintf(speed->shown[i], sizeof speed->shown[i], isnan(ratio) ? "unknown" : "%.2f", ratio);
    snprintf(efficiency->shown[i], sizeof efficiency->shown[i],
             isnan(efficiency->value[i]) ? "unknown" : "%.0f %%", 100 * efficiency->value[i]);
  }
}

/* Returns true if no run is one of translations. */
static bool is_of_texts(const Report *r) {
  for (size_t i = 0; i < r->run_count; i++)
    if (!r->runs[i]->facts.is_text_task) return false;
  return true;
}

/* Returns what the rates of the runs are called. */
static const char *name_rate(const Report *r) {
  for (size_t i = 0; i < r->run_count; i++)
    if (r->runs[i]->facts.is_text_task) return "tokens/s";
  return "target tokens/s";
}

/* Returns true if a run has the column. */
static bool has_column(const Report *r, const char *column) {
  for (size_t i = 0; i < r->run_count; i++)
    if (runlog_column(&r->runs[i]->facts.log, column)) return true;
  return false;
}

/* BLEU is shown beside every translation, other metrics if a run has them. */
static bool is_score_shown(const Report *r, size_t score) {
  return score == REPORT_BLEU ? !is_of_texts(r) : has_column(r, report_scores[score].column);
}

static void add_rows(Report *r) {
  add_numbers(r, "seconds", "training time", offsetof(RunFacts, seconds), report_seconds);
  add_numbers(r, "steps", "steps", offsetof(RunFacts, last_step), report_count);
  add_numbers(r, "ranks", "ranks", offsetof(RunFacts, ranks), report_count);
  add_numbers(r, "hosts", "hosts", offsetof(RunFacts, hosts), report_count);
  add_numbers(r, "parameters", "parameters", offsetof(RunFacts, parameters), report_count);
  add_figures(r, ANSWER_STEP, "step_ms", "step");
  add_numbers(r, "tokens_per_s", name_rate(r), offsetof(RunFacts, tokens_per_s), report_count);
  add_speed_up(r);
  add_figures(r, ANSWER_DEVICES, "compute_share", "of a step computing");
  add_figures(r, ANSWER_NETWORK, "comm_wait_ms", "all-reduce not hidden");
  add_figures(r, ANSWER_TRAINED, "last_valid_nll", "last validation loss");
  for (size_t i = 0; i < REPORT_SCORES; i++)
    if (is_score_shown(r, i))
      add_figures(r, ANSWER_TRAINED, report_scores[i].best_key, report_scores[i].best_label);
}

/* Copies the value of an option, or "default". */
static void get_option(const RunFacts *f, const char *name, char *out, size_t room) {
  if (!facts_option(f, name, out, room)) snprintf(out, room, "default");
}

static bool has_row(const Report *r, const char *name) {
  char label[sizeof r->rows->label];
  utf8_visible(name, label, sizeof label);
  for (size_t i = 0; i < r->row_count; i++)
    if (!r->rows[i].key && strcmp(r->rows[i].label, label) == 0) return true;
  return false;
}

/* Adds a row for an option whose values differ, except --run, which always differs. */
static void add_option(Report *r, const char *name) {
  CompareRow row = {0};
  bool differs = false;
  if (strcmp(name, "run") == 0 || has_row(r, name) || r->row_count == COMPARE_ROWS) return;
  utf8_visible(name, row.label, sizeof row.label);
  for (size_t i = 0; i < r->run_count; i++) {
    row.value[i] = NAN;
    get_option(&r->runs[i]->facts, name, row.shown[i], sizeof row.shown[i]);
    if (strcmp(row.shown[i], row.shown[0]) != 0) differs = true;
  }
  if (differs) r->rows[r->row_count++] = row;
}

static void add_options(Report *r) {
  for (size_t i = 0; i < r->run_count; i++) {
    size_t lines = 0;
    for (const char *at = str_text(&r->runs[i]->facts.config); *at && lines < MOST_OPTIONS;
         lines++) {
      char name[64];
      size_t line = strcspn(at, "\n"), len = strcspn(at, " =\n");
      if (len > 0 && len < sizeof name) {
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        add_option(r, name);
      }
      at += line;
      if (*at) at++;
    }
  }
}

/* Adds the curves of one column of all runs as a chart. column NULL: tokens per second. */
static Err add_chart(Report *r, const char *column, const char *label, bool is_log) {
  Curve curves[REPORT_RUNS] = {0};
  PlotSeries series[REPORT_RUNS] = {0};
  Err err = ERR_OK;
  for (size_t i = 0; i < r->run_count && !err; i++) {
    const RunFacts *f = &r->runs[i]->facts;
    err = report_curve(&f->log, column ? column : facts_rate_column(f), &curves[i]);
    series[i] = (PlotSeries){.name = f->name, .x = curves[i].x, .y = curves[i].y};
    series[i].points = curves[i].points;
    series[i].has_dots = true;
  }
  PlotLines p = {
      .title = label, .x_label = "step", .y_label = label, .is_log = is_log, .mark = NAN};
  p.series = series;
  p.count = r->run_count;
  if (!err) plot_lines(&p, &r->charts);
  for (size_t i = 0; i < r->run_count; i++) report_free_curve(&curves[i]);
  return err;
}

typedef struct {
  MetricLines output, reference;
  Metric *metric;
} Scored;

static void free_scored(Scored *s) {
  metric_lines_free(&s->output);
  metric_lines_free(&s->reference);
  if (s->metric) metric_close(s->metric);
}

/* Reads the outputs of a run's best validation and their references, and scores them. */
static Err score_run(const RunFacts *f, Scored *s, char paths[2][FILE_PATH_MAX]) {
  *s = (Scored){0};
  TRY(file_join(paths[0], f->dir, "valid-best.txt"));
  TRY(file_join(paths[1], f->data_dir, "valid.ref"));
  TRY(metric_lines_read_regular(&s->output, paths[0], TEXT_LIMIT));
  TRY(metric_lines_read_regular(&s->reference, paths[1], TEXT_LIMIT));
  if (s->output.lines != s->reference.lines)
    return err_set(ERR_WORK, "%s has %zu lines, but %s has %zu", paths[0], s->output.lines,
                   paths[1], s->reference.lines);
  TRY(metric_open(&s->metric, &(MetricConfig){.kind = METRIC_BLEU}));
  for (size_t i = 0; i < s->output.lines; i++)
    TRY(metric_add(s->metric, s->output.line[i], &s->reference.line[i], 1));
  return ERR_OK;
}

static bool has_same_references(const Scored *a, const Scored *b) {
  if (a->reference.lines != b->reference.lines) return false;
  for (size_t i = 0; i < a->reference.lines; i++) {
    const MetricText *left = &a->reference.line[i], *right = &b->reference.line[i];
    if (left->len != right->len || memcmp(left->s, right->s, left->len) != 0) return false;
  }
  return true;
}

static Err compare_bleu(Report *r, size_t i, const Scored *first, const Scored *other) {
  MetricScore base, score;
  MetricInterval of_base, of_other;
  double p;
  if (!has_same_references(first, other))
    return err_set(ERR_WORK, "the validation sets of the two runs differ");
  TRY(metric_paired(first->metric, other->metric, RESAMPLES, SEED, &of_base, &of_other, &p));
  metric_score(first->metric, &base);
  metric_score(other->metric, &score);
  r->bleu_difference[i] = score.score - base.score;
  /* The test counts samples that differ by more than the two scores do. If those are equal, as with equal
   * outputs, it would find none, and p would be its least value: sacreBLEU prints 0.001. */
  if (!(fabs(r->bleu_difference[i]) > 1e-9)) p = 1;
  r->bleu_p[i] = p;
  snprintf(r->bleu[i], sizeof r->bleu[i],
           "BLEU %.2f ± %.2f against %.2f ± %.2f of %.64s: %+.2f, p = %.4f, %s (paired "
           "bootstrap, %d "
           "samples, %zu sentences).",
           score.score, of_other.ci, base.score, of_base.ci, r->runs[0]->facts.name,
           score.score - base.score, p,
           p < 0.05 ? "significant at 5 %" : "not distinguishable from chance", RESAMPLES,
           first->output.lines);
  return ERR_OK;
}

/* An error is the reason why the comparison is unknown; it does not end the report. */
static void compare_all_bleu(Report *r) {
  char paths[4][FILE_PATH_MAX];
  Scored first, other;
  Err err = score_run(&r->runs[0]->facts, &first, paths);
  ErrRecord why = err_copy();
  for (size_t i = 1; i < r->run_count; i++) {
    Err failed = err;
    if (!failed) {
      failed = score_run(&r->runs[i]->facts, &other, paths + 2);
      if (!failed) failed = compare_bleu(r, i, &first, &other);
      if (failed) why = err_copy();
      free_scored(&other);
    }
    if (failed)
      snprintf(r->bleu[i], sizeof r->bleu[i], "BLEU cannot be compared: %.250s.", why.text);
  }
  free_scored(&first);
}

Err report_compare(Report *r) {
  add_rows(r);
  add_options(r);
  TRY(add_chart(r, "valid_nll", "validation loss", /*is_log=*/true));
  for (size_t i = 0; i < REPORT_SCORES; i++)
    if (is_score_shown(r, i))
      TRY(add_chart(r, report_scores[i].column, report_scores[i].best_label + strlen("best "),
                    /*is_log=*/false));
  TRY(add_chart(r, NULL, name_rate(r), /*is_log=*/false));
  if (!is_of_texts(r)) compare_all_bleu(r);
  return ERR_OK;
}
