/* trireme score --task classify: reads true labels and the probabilities of one or more classifiers,
 * computes all scores and prints them as text or JSON. Depends on metric, base/opt, Jansson. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/utf8.h"
#include "cmd/score.h"
#include "metric/labels.h"
#include "metric/metric.h"

#define CONFUSION_MAX 12 /* largest number of classes whose confusion matrix fits a terminal */

/* The probabilities of one classifier and its scores. */
typedef struct {
  const char *path;
  double *probability;
  ClassifyScore score;
  double *sample; /* (CLASSIFY_SCORES, resamples) scores of bootstrap samples, or NULL */
} System;

typedef struct {
  Labels labels;
  System *system; /* system 0 is the baseline of the paired test */
  int systems;
  double threshold; /* probability above which a label of several is predicted */
  bool json, confidence;
  int width; /* digits after the decimal point */
  size_t resamples;
  uint64_t seed;
} Score;

/* One score of one system. */
typedef struct {
  double value;
  MetricInterval interval;
  double p;
  bool has_interval, has_p;
} Figure;

/* --- options and input --- */

/* Options that only translations have. */
static Err refuse_options(const OptSet *opts) {
  static const char *const names[] = {"metrics", "tokenize", "lowercase", "sentence-level"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (opt_given(opts, names[i]))
      return err_set(ERR_USAGE, "--%s is for translations: leave it out with --task classify",
                     names[i]);
  return ERR_OK;
}

static Err read_options(Score *s, const OptSet *opts) {
  TRY(refuse_options(opts));
  s->json = opt_flag(opts, "json");
  s->confidence = opt_flag(opts, "confidence");
  s->width = (int)opt_count(opts, "width");
  s->resamples = (size_t)opt_count(opts, "resamples");
  s->seed = (uint64_t)opt_count(opts, "seed");
  s->threshold = opt_real(opts, "threshold");
  s->systems = 1 + opt_times(opts, "paired-bs");
  if (opt_times(opts, "ref") != 1)
    return err_set(ERR_USAGE, "%d tables of true labels given: pass --ref FILE once",
                   opt_times(opts, "ref"));
  if (opt_times(opts, "label-column") == 0)
    return err_set(ERR_USAGE,
                   "no column of labels given: pass --label-column NAME, the column of --ref "
                   "that has the labels");
  if (opt_times(opts, "label-column") > LABELS_MAX)
    return err_set(ERR_USAGE, "--label-column was given %d times; the maximum is %d",
                   opt_times(opts, "label-column"), LABELS_MAX);
  if (strcmp(opt_text(opts, "hyp"), "-") == 0)
    return err_set(ERR_USAGE,
                   "no predictions given: pass --hyp FILE.csv, .tsv or .jsonl; predictions are "
                   "not read from standard input");
  if (s->confidence && s->systems > 1)
    return err_set(ERR_USAGE,
                   "--paired-bs prints confidence intervals too: leave out --confidence");
  return ERR_OK;
}

static Err read_labels(Score *s, const OptSet *opts) {
  const char **column;
  int columns = opt_times(opts, "label-column");
  TRY(mem_alloc(&column, (size_t)columns, sizeof *column));
  for (int i = 0; i < columns; i++) column[i] = opt_word(opts, "label-column", i, 0);
  LabelsSpec spec = {.column = column,
                     .columns = (size_t)columns,
                     .threshold = opt_real(opts, "label-threshold"),
                     .has_threshold = opt_given(opts, "label-threshold"),
                     .predictions = opt_text(opts, "hyp")};
  Err err = labels_read(&s->labels, opt_word(opts, "ref", 0, 0), &spec);
  mem_free(column);
  return err;
}

static Err score_system(const Score *s, System *system) {
  TRY(labels_read_probabilities(&s->labels, system->path, &system->probability));
  ClassifyInput in = {.kind = s->labels.kind,
                      .texts = s->labels.texts,
                      .classes = s->labels.classes,
                      .label = s->labels.label,
                      .has = s->labels.has,
                      .probability = system->probability,
                      .threshold = s->threshold};
  TRY(classify_score(&in, &system->score));
  if (!s->confidence && s->systems == 1) return ERR_OK;
  return classify_resample(&in, s->resamples, s->seed, &system->sample);
}

static Err score_systems(Score *s, const OptSet *opts) {
  TRY(mem_alloc(&s->system, (size_t)s->systems, sizeof *s->system));
  for (int i = 0; i < s->systems; i++) {
    s->system[i].path = i == 0 ? opt_text(opts, "hyp") : opt_word(opts, "paired-bs", i - 1, 0);
    TRY(score_system(s, &s->system[i]));
  }
  return ERR_OK;
}

/* --- figures --- */

static Err compute_figure(const Score *s, int system, int score, Figure *f) {
  const System *base = &s->system[0], *this = &s->system[system];
  size_t at = (size_t)score * s->resamples;
  *f = (Figure){.value = classify_value(&this->score, score)};
  f->has_interval = this->sample && !isnan(f->value);
  f->has_p = system > 0 && f->has_interval;
  if (f->has_interval) TRY(metric_interval(this->sample + at, s->resamples, &f->interval));
  if (!f->has_p) return ERR_OK;
  double observed = fabs(f->value - classify_value(&base->score, score));
  return metric_p_value(base->sample + at, this->sample + at, s->resamples, observed, &f->p);
}

/* Scores are printed in per cent, except those that are not shares. */
static double get_unit(int score) {
  return score == CLASSIFY_LOG_LOSS || score == CLASSIFY_MCC ? 1 : 100;
}

static int get_digits(const Score *s, int score) {
  return get_unit(score) == 1 ? s->width + 2 : s->width;
}

static void add_value(Str *out, int width, int digits, double value) {
  if (isnan(value))
    str_addf(out, "%*s", width, "-");
  else
    str_addf(out, "%*.*f", width, digits, value);
}

static Err add_score(const Score *s, int system, int score, Str *out) {
  Figure f;
  double unit = get_unit(score);
  int digits = get_digits(s, score);
  TRY(compute_figure(s, system, score, &f));
  add_value(out, 8, digits, unit * f.value);
  if (f.has_interval)
    str_addf(out, " (μ = %.*f ± %.*f)", digits, unit * f.interval.mean, digits,
             unit * f.interval.ci);
  if (f.has_p) str_addf(out, "  p = %.4f%s", f.p, f.p < 0.05 ? " *" : "");
  str_addc(out, '\n');
  return ERR_OK;
}

/* Returns true if no system has this score: MCC and ECE need one class per text. */
static bool is_undefined(const Score *s, int score) {
  for (int i = 0; i < s->systems; i++)
    if (!isnan(classify_value(&s->system[i].score, score))) return false;
  return true;
}

/* --- text --- */

#define NAME_BYTES 64 /* longest part of a name that is printed */

/* Appends a name, cut to `most` bytes of whole characters and padded to `width`; a negative width aligns it
 * to the left. Control characters are made visible. */
static void add_name(Str *out, int width, const char *text, size_t most) {
  char cut[NAME_BYTES + 1], name[4 * NAME_BYTES + 1];
  size_t len = strlen(text);
  if (len > most) {
    len = most;
    while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80) len--;
  }
  snprintf(cut, sizeof cut, "%.*s", (int)len, text);
  utf8_visible(cut, name, sizeof name);
  str_addf(out, "%*s", width, name);
}

static int get_name_width(const Score *s) {
  size_t width = 5;
  for (size_t c = 0; c < s->labels.classes; c++) {
    size_t n = strlen(s->labels.name[c]);
    if (n > width) width = n;
  }
  return width > NAME_BYTES ? NAME_BYTES : (int)width;
}

static void add_classes(const Score *s, Str *out) {
  int width = get_name_width(s);
  str_addf(out, "\n%-*s %8s %9s %9s %7s %7s %7s %7s\n", width, "class", "texts", "predicted",
           "precision", "recall", "F1", "AUC", "AP");
  for (size_t c = 0; c < s->labels.classes; c++) {
    const ClassifyClass *class = &s->system[0].score.class[c];
    const double value[] = {class->precision, class->recall, class->f1, class->auc,
                            class->average_precision};
    add_name(out, -width, s->labels.name[c], NAME_BYTES);
    str_addf(out, " %8llu %9llu", (unsigned long long)class->support,
             (unsigned long long)class->predicted);
    for (size_t i = 0; i < sizeof value / sizeof *value; i++) {
      str_addc(out, ' ');
      add_value(out, i == 0 ? 9 : 7, s->width, 100 * value[i]);
    }
    str_addc(out, '\n');
  }
}

static void add_confusion(const Score *s, Str *out) {
  const uint64_t *count = s->system[0].score.confusion;
  size_t n = s->labels.classes;
  int width = get_name_width(s);
  if (!count || n > CONFUSION_MAX) return;
  str_addf(out, "\nconfusion matrix: rows are true classes, columns predicted ones\n%*s", width,
           "");
  for (size_t c = 0; c < n; c++) {
    str_addc(out, ' ');
    add_name(out, 8, s->labels.name[c], 8);
  }
  for (size_t r = 0; r < n; r++) {
    str_addc(out, '\n');
    add_name(out, -width, s->labels.name[r], NAME_BYTES);
    for (size_t c = 0; c < n; c++)
      str_addf(out, " %8llu", (unsigned long long)count[r * n + c]);
  }
  str_addc(out, '\n');
}

static Err print_one(const Score *s, Str *out) {
  bool is_one = s->labels.kind == CLASSIFY_ONE;
  str_addf(out, "%zu text%s, %zu %s%s\n\n", s->labels.texts, str_plural(s->labels.texts),
           s->labels.classes, is_one ? "classes" : "label",
           is_one ? "" : str_plural(s->labels.classes));
  for (int i = 0; i < CLASSIFY_SCORES; i++) {
    if (is_undefined(s, i)) continue;
    str_addf(out, "%-18s", classify_title(i));
    TRY(add_score(s, 0, i, out));
  }
  add_classes(s, out);
  add_confusion(s, out);
  return ERR_OK;
}

static Err print_paired(const Score *s, Str *out) {
  for (int i = 0; i < CLASSIFY_SCORES; i++) {
    if (is_undefined(s, i)) continue;
    str_addf(out, "%s%s\n", i ? "\n" : "", classify_title(i));
    for (int k = 0; k < s->systems; k++) {
      str_addf(out, "  %-8s  ", k ? "" : "baseline");
      add_name(out, -24, s->system[k].path, NAME_BYTES);
      TRY(add_score(s, k, i, out));
    }
  }
  str_add(out, "\n* differs from the baseline, p < 0.05\n");
  return ERR_OK;
}

/* --- JSON --- */

static json_t *make_number(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static json_t *make_text(const char *text) {
  size_t room = 4 * strlen(text) + 1;
  char *name;
  if (mem_alloc(&name, room, 1)) return NULL;
  json_t *j = utf8_escape(text, name, room) ? json_string(name) : NULL;
  mem_free(name);
  return j;
}

static json_t *make_class(const Score *s, const System *system, size_t c) {
  const ClassifyClass *class = &system->score.class[c];
  return json_pack("{s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "class",
                   make_text(s->labels.name[c]), "texts", (json_int_t) class->support,
                   "predicted", (json_int_t) class->predicted, "precision",
                   make_number(class->precision), "recall", make_number(class->recall), "f1",
                   make_number(class->f1), "auc", make_number(class->auc), "average_precision",
                   make_number(class->average_precision));
}

static json_t *make_confusion(const Score *s, const System *system) {
  size_t n = s->labels.classes;
  if (!system->score.confusion) return json_null();
  json_t *rows = json_array();
  for (size_t r = 0; r < n; r++) {
    json_t *row = json_array();
    for (size_t c = 0; c < n; c++)
      json_array_append_new(row, json_integer((json_int_t)system->score.confusion[r * n + c]));
    json_array_append_new(rows, row);
  }
  return rows;
}

static Err make_scores(const Score *s, int system, json_t *object) {
  for (int i = 0; i < CLASSIFY_SCORES; i++) {
    Figure f;
    TRY(compute_figure(s, system, i, &f));
    json_t *one = json_pack("{s:o}", "score", make_number(f.value));
    if (f.has_interval) {
      json_object_set_new(one, "mean", make_number(f.interval.mean));
      json_object_set_new(one, "ci", make_number(f.interval.ci));
    }
    if (f.has_p) json_object_set_new(one, "p_value", make_number(f.p));
    json_object_set_new(object, classify_key(i), one);
  }
  return ERR_OK;
}

static Err make_system(const Score *s, int i, json_t *systems) {
  const System *system = &s->system[i];
  json_t *scores = json_object(), *classes = json_array();
  Err err = make_scores(s, i, scores);
  for (size_t c = 0; c < s->labels.classes; c++)
    json_array_append_new(classes, make_class(s, system, c));
  json_t *object =
      json_pack("{s:o, s:o, s:o, s:o}", "file", make_text(system->path), "scores", scores,
                "classes", classes, "confusion", make_confusion(s, system));
  if (json_array_append_new(systems, object) && !err)
    err = err_set(ERR_WORK, "out of memory while writing JSON");
  return err;
}

static Err print_json(const Score *s, Str *out) {
  json_t *systems = json_array();
  Err err = ERR_OK;
  for (int i = 0; i < s->systems && !err; i++) err = make_system(s, i, systems);
  json_t *root = json_pack("{s:s, s:I, s:s, s:o}", "trireme", TRIREME_VERSION, "texts",
                           (json_int_t)s->labels.texts, "kind",
                           s->labels.kind == CLASSIFY_ONE ? "one class" : "several labels",
                           "systems", systems);
  char *text =
      root ? json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17))
           : NULL;
  if (!err && !text) err = err_set(ERR_WORK, "out of memory while writing JSON");
  if (!err) str_addf(out, "%s\n", text);
  free(text);
  json_decref(root);
  return err;
}

/* --- */

static void free_score(Score *s) {
  for (int i = 0; s->system && i < s->systems; i++) {
    mem_free(s->system[i].probability);
    mem_free(s->system[i].sample);
    classify_free(&s->system[i].score);
  }
  mem_free(s->system);
  labels_free(&s->labels);
}

Err score_classify(const OptSet *opts, Str *out) {
  Score s = {0};
  Err err;
  TRY_DONE(read_options(&s, opts));
  TRY_DONE(read_labels(&s, opts));
  TRY_DONE(score_systems(&s, opts));
  if (s.json)
    err = print_json(&s, out);
  else
    err = s.systems > 1 ? print_paired(&s, out) : print_one(&s, out);
done:
  free_score(&s);
  return err;
}
