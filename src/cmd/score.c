/* trireme score: reads hypotheses and references, computes metrics and prints them as text or
 * JSON. Depends on metric, base/opt, Jansson. */
#include <limits.h>
#include <string.h>
#include <unistd.h>

#ifdef HAVE_JANSSON
#include <jansson.h>
#endif

#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "cmd/score.h"
#include "metric/lines.h"
#include "metric/metric.h"

/* Options, texts and results of one run. */
typedef struct {
  MetricConfig config; /* settings of every metric; `kind` is set for each one */
  MetricKind kind[METRIC_KINDS];
  int kinds;
  bool json, sentence, confidence;
  int width; /* digits after the decimal point */
  size_t resamples;
  uint64_t seed;
  MetricLines *ref, *system; /* system 0 is the baseline of the paired test */
  int refs, systems;
  Metric **metric; /* (systems, kinds) the metric of each system and kind */
} Score;

/* The results of one system with one metric. */
typedef struct {
  MetricScore score;
  MetricInterval interval;
  double p;
  bool has_interval, has_p;
} Figures;

static Metric *get_metric(const Score *s, int system, int kind) {
  return s->metric[system * s->kinds + kind];
}

/* Parses a list such as "bleu,chrf++". */
static Err read_kinds(Score *s, const char *list) {
  for (const char *at = list;;) {
    at += strspn(at, " ");
    size_t len = strcspn(at, ", ");
    MetricKind kind;
    TRY(metric_kind(at, len, &kind));
    for (int i = 0; i < s->kinds; i++) {
      if (s->kind[i] == kind) {
        return err_set(ERR_USAGE, "--metrics has %s twice; leave one out", metric_name(kind));
      }
    }
    s->kind[s->kinds++] = kind;
    at += len;
    at += strspn(at, " ");
    if (*at == '\0') return ERR_OK;
    if (*at == ',') at++;
  }
}

/* Options that only classifiers have. */
static Err refuse_options(const OptSet *opts) {
  static const char *const names[] = {"label-column", "label-threshold", "threshold"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (opt_given(opts, names[i]))
      return err_set(ERR_USAGE, "--%s is for classifiers: add --task classify or leave it out",
                     names[i]);
  return ERR_OK;
}

static Err read_options(Score *s, const OptSet *opts) {
  TRY(refuse_options(opts));
  TRY(read_kinds(s, opt_text(opts, "metrics")));
  TRY(metric_tokenizer(opt_text(opts, "tokenize"), &s->config.tokenizer));
  s->config.lowercase = opt_flag(opts, "lowercase");
  s->json = opt_flag(opts, "json");
  s->sentence = s->config.effective = opt_flag(opts, "sentence-level");
  s->confidence = opt_flag(opts, "confidence");
  s->width = (int)opt_count(opts, "width");
  s->resamples = (size_t)opt_count(opts, "resamples");
  s->seed = (uint64_t)opt_count(opts, "seed");
  s->refs = opt_times(opts, "ref");
  s->systems = 1 + opt_times(opts, "paired-bs");
  if (s->refs == 0) return err_set(ERR_USAGE, "no reference given: pass --ref FILE");
  if (s->sentence && (s->confidence || s->systems > 1)) {
    return err_set(ERR_USAGE,
                   "--sentence-level cannot be combined with --%s: leave out one of the two",
                   s->confidence ? "confidence" : "paired-bs");
  }
  if (s->confidence && s->systems > 1) {
    return err_set(ERR_USAGE,
                   "--paired-bs prints confidence intervals too: leave out --confidence");
  }
  return ERR_OK;
}

static Err read_file(MetricLines *lines, const char *path, bool *stdin_used) {
  if (strcmp(path, "-") == 0) {
    if (*stdin_used) {
      return err_set(
          ERR_USAGE,
          "standard input was given twice, as '-' (the default of --hyp), but can be read only "
          "once; name a file for the others");
    }
    *stdin_used = true;
    if (isatty(STDIN_FILENO)) log_info("reading sentences from the terminal; Ctrl-D ends them");
  }
  TRY(metric_lines_read(lines, path));
  if (lines->lines > 0) return ERR_OK;
  return err_set(ERR_WORK, "%s is empty: there is nothing to score", metric_lines_name(path));
}

static Err read_files(Score *s, const OptSet *opts) {
  bool stdin_used = false;
  TRY(mem_alloc(&s->ref, (size_t)s->refs, sizeof *s->ref));
  TRY(mem_alloc(&s->system, (size_t)s->systems, sizeof *s->system));
  for (int i = 0; i < s->refs; i++) {
    TRY(read_file(&s->ref[i], opt_word(opts, "ref", i, 0), &stdin_used));
  }
  for (int i = 0; i < s->systems; i++) {
    const char *path = i == 0 ? opt_text(opts, "hyp") : opt_word(opts, "paired-bs", i - 1, 0);
    TRY(read_file(&s->system[i], path, &stdin_used));
    for (int r = 0; r < s->refs; r++) {
      if (s->ref[r].lines == s->system[i].lines) continue;
      return err_set(ERR_WORK,
                     "%s has %zu lines, but the reference %s has %zu: each line needs its "
                     "reference; check "
                     "that both belong to the same text",
                     metric_lines_name(path), s->system[i].lines,
                     metric_lines_name(s->ref[r].path), s->ref[r].lines);
    }
  }
  return ERR_OK;
}

/* Looks for a space before a full stop, which shows that the text is still tokenized. */
static void warn_if_tokenized(const MetricLines *lines) {
  size_t count = 0;
  for (size_t i = 0; i < lines->lines; i++) {
    const MetricText *t = &lines->line[i];
    count += t->len >= 2 && memcmp(t->s + t->len - 2, " .", 2) == 0;
  }
  if (count < 100) return;
  log_warn(
      "%zu lines of %s end in ' .': BLEU expects detokenized text; score the text before "
      "tokenization",
      count, metric_lines_name(lines->path));
}

static Err compute_metrics(Score *s) {
  MetricText *refs = NULL; /* the references of one sentence */
  Err err;
  TRY_DONE(mem_alloc(&refs, (size_t)s->refs, sizeof *refs));
  TRY_DONE(mem_alloc(&s->metric, (size_t)(s->systems * s->kinds), sizeof *s->metric));
  for (int k = 0; k < s->systems * s->kinds; k++) {
    MetricConfig config = s->config;
    config.kind = s->kind[k % s->kinds];
    TRY_DONE(metric_open(&s->metric[k], &config));
    const MetricLines *lines = &s->system[k / s->kinds];
    if (config.kind == METRIC_BLEU) warn_if_tokenized(lines);
    for (size_t i = 0; i < lines->lines; i++) {
      for (int r = 0; r < s->refs; r++) refs[r] = s->ref[r].line[i];
      TRY_DONE(metric_add(s->metric[k], lines->line[i], refs, s->refs));
    }
  }
done:
  mem_free(refs);
  return err;
}

static Err compute_figures(const Score *s, int system, int kind, Figures *f) {
  const Metric *base = get_metric(s, 0, kind), *this = get_metric(s, system, kind);
  *f = (Figures){.has_interval = s->confidence || s->systems > 1, .has_p = system > 0};
  metric_score(this, &f->score);
  if (s->confidence) return metric_confidence(this, s->resamples, s->seed, &f->interval);
  if (s->systems == 1) return ERR_OK;
  MetricInterval of_base;
  return metric_paired(base, this, s->resamples, s->seed, &of_base, &f->interval, &f->p);
}

static void add_signature(const Score *s, int kind, Str *out) {
  size_t resamples = s->confidence || s->systems > 1 ? s->resamples : 0;
  metric_signature(get_metric(s, 0, kind), resamples, s->seed, out);
}

/* Adds the details that sacreBLEU prints after the BLEU score. */
static void add_details(const MetricScore *score, Str *out) {
  str_addf(out, "%.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %.0f ref_len = %.0f)",
           score->precision[0], score->precision[1], score->precision[2], score->precision[3],
           score->brevity, score->ratio, score->hyp_len, score->ref_len);
}

static void add_figure(const Score *s, const Figures *f, Str *out) {
  str_addf(out, "%.*f", s->width, f->score.score);
  if (f->has_interval) {
    str_addf(out, " (μ = %.*f ± %.*f)", s->width, f->interval.mean, s->width, f->interval.ci);
  }
}

/* Prints one line for each metric. */
static Err print_corpus(const Score *s, Str *out) {
  for (int k = 0; k < s->kinds; k++) {
    Figures f;
    TRY(compute_figures(s, 0, k, &f));
    str_addf(out, "%s|", metric_name(s->kind[k]));
    add_signature(s, k, out);
    str_add(out, " = ");
    add_figure(s, &f, out);
    if (s->kind[k] == METRIC_BLEU) {
      str_addc(out, ' ');
      add_details(&f.score, out);
    }
    str_addc(out, '\n');
  }
  return ERR_OK;
}

/* Prints a table for each metric, with the baseline in the first row. */
static Err print_paired(const Score *s, Str *out) {
  int longest = 0;
  bool any = false;
  for (int i = 0; i < s->systems; i++) {
    char name[4 * NAME_MAX];
    utf8_visible(metric_lines_name(s->system[i].path), name, sizeof name);
    if ((int)strlen(name) > longest) longest = (int)strlen(name);
  }
  for (int k = 0; k < s->kinds; k++) {
    if (k) str_addc(out, '\n');
    str_addf(out, "%s|", metric_name(s->kind[k]));
    add_signature(s, k, out);
    str_addc(out, '\n');
    for (int i = 0; i < s->systems; i++) {
      Figures f;
      TRY(compute_figures(s, i, k, &f));
      char name[4 * NAME_MAX];
      utf8_visible(metric_lines_name(s->system[i].path), name, sizeof name);
      str_addf(out, "  %-8s  %-*s  ", i ? "" : "baseline", longest, name);
      add_figure(s, &f, out);
      if (f.has_p) str_addf(out, "  p = %.4f%s", f.p, f.p < 0.05 ? " *" : "");
      any = any || (f.has_p && f.p < 0.05);
      str_addc(out, '\n');
    }
  }
  if (any) str_add(out, "\n* differs from the baseline, p < 0.05\n");
  return ERR_OK;
}

/* Prints one line for each sentence, with the metrics separated by tabs. */
static Err print_sentences(const Score *s, Str *out) {
  for (int k = 0; k < s->kinds; k++) {
    Str signature = {0};
    add_signature(s, k, &signature);
    log_info("%s|%s", metric_name(s->kind[k]), str_text(&signature));
    str_free(&signature);
  }
  for (size_t i = 0; i < s->system[0].lines; i++) {
    for (int k = 0; k < s->kinds; k++) {
      MetricScore score;
      metric_sentence(get_metric(s, 0, k), i, &score);
      str_addf(out, "%s%.*f", k ? "\t" : "", s->width, score.score);
    }
    str_addc(out, '\n');
  }
  return ERR_OK;
}

#ifdef HAVE_JANSSON
/* Sets a member of a JSON object. NULL, a value that could not be allocated, marks the object
 * as failed. */
static void set_member(json_t *object, const char *key, json_t *value, bool *failed) {
  if (json_object_set_new(object, key, value)) *failed = true;
}

static json_t *json_count(double number) {
  return json_integer((json_int_t)number);
}

static json_t *json_list(const double *number, size_t n, json_t *(*make)(double)) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++) {
    if (json_array_append_new(array, make(number[i]))) {
      json_decref(array);
      return NULL;
    }
  }
  return array;
}

/* Makes a JSON string of a file name. JSON requires UTF-8, and a file name may be any bytes. */
static json_t *json_name(const char *path) {
  size_t room = 4 * strlen(path) + 1;
  char *name;
  if (mem_alloc(&name, room, 1)) return NULL;
  json_t *j = utf8_escape(path, name, room) ? json_string(name) : NULL;
  mem_free(name);
  return j;
}

static json_t *json_sentences(const Score *s, int kind) {
  size_t lines = s->system[0].lines;
  double *score;
  if (mem_alloc(&score, lines, sizeof *score)) return NULL;
  for (size_t i = 0; i < lines; i++) {
    MetricScore one;
    metric_sentence(get_metric(s, 0, kind), i, &one);
    score[i] = one.score;
  }
  json_t *array = json_list(score, lines, json_real);
  mem_free(score);
  return array;
}

static json_t *json_score(const Score *s, int kind, const Figures *f, bool *failed) {
  json_t *object = json_object();
  const MetricScore *score = &f->score;
  Str signature = {0};
  add_signature(s, kind, &signature);
  set_member(object, "metric", json_string(metric_name(s->kind[kind])), failed);
  set_member(object, "score", json_real(score->score), failed);
  set_member(object, "signature", json_string(str_text(&signature)), failed);
  if (f->has_interval) {
    set_member(object, "mean", json_real(f->interval.mean), failed);
    set_member(object, "ci", json_real(f->interval.ci), failed);
  }
  if (f->has_p) set_member(object, "p_value", json_real(f->p), failed);
  if (s->kind[kind] == METRIC_BLEU) {
    set_member(object, "precisions", json_list(score->precision, 4, json_real), failed);
    set_member(object, "correct", json_list(score->correct, 4, json_count), failed);
    set_member(object, "total", json_list(score->total, 4, json_count), failed);
    set_member(object, "bp", json_real(score->brevity), failed);
    set_member(object, "ratio", json_real(score->ratio), failed);
    set_member(object, "hyp_len", json_count(score->hyp_len), failed);
    set_member(object, "ref_len", json_count(score->ref_len), failed);
  } else if (s->kind[kind] == METRIC_TER || s->kind[kind] == METRIC_WER ||
             s->kind[kind] == METRIC_CER) {
    set_member(object, "edits", json_count(score->edits), failed);
    set_member(object, "ref_len", json_real(score->mean_ref_len), failed);
  }
  if (s->sentence) set_member(object, "sentences", json_sentences(s, kind), failed);
  if (str_check(&signature)) *failed = true;
  str_free(&signature);
  return object;
}

static Err print_json(const Score *s, Str *out) {
  bool failed = false;
  json_t *root = json_object(), *refs = json_array(), *systems = json_array();
  Err err = ERR_OK;
  for (int i = 0; i < s->refs; i++) json_array_append_new(refs, json_name(s->ref[i].path));
  for (int i = 0; i < s->systems && !err; i++) {
    json_t *system = json_object(), *scores = json_array();
    set_member(system, "file", json_name(s->system[i].path), &failed);
    for (int k = 0; k < s->kinds && !err; k++) {
      Figures f;
      err = compute_figures(s, i, k, &f);
      if (!err) json_array_append_new(scores, json_score(s, k, &f, &failed));
    }
    set_member(system, "scores", scores, &failed);
    json_array_append_new(systems, system);
  }
  set_member(root, "trireme", json_string(TRIREME_VERSION), &failed);
  set_member(root, "lines", json_integer((json_int_t)s->system[0].lines), &failed);
  set_member(root, "references", refs, &failed);
  set_member(root, "systems", systems, &failed);
  char *text = json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17));
  if (!err && (failed || !text)) err = err_set(ERR_WORK, "out of memory while writing JSON");
  if (!err) str_addf(out, "%s\n", text);
  free(text);
  json_decref(root);
  return err;
}
#else
static Err print_json(const Score *s, Str *out) {
  (void)s, (void)out;
  return err_set(ERR_WORK,
                 "this trireme was built without Jansson, which --json needs: install "
                 "libjansson-dev and build it again");
}
#endif

static void free_score(Score *s) {
  for (int k = 0; s->metric && k < s->systems * s->kinds; k++) metric_close(s->metric[k]);
  for (int i = 0; s->ref && i < s->refs; i++) metric_lines_free(&s->ref[i]);
  for (int i = 0; s->system && i < s->systems; i++) metric_lines_free(&s->system[i]);
  mem_free(s->metric);
  mem_free(s->ref);
  mem_free(s->system);
}

static Err score_translations(const OptSet *opts, Str *out) {
  Score s = {0};
  Err err;
  TRY_DONE(read_options(&s, opts));
  TRY_DONE(read_files(&s, opts));
  TRY_DONE(compute_metrics(&s));
  if (s.json) {
    err = print_json(&s, out);
  } else if (s.sentence) {
    err = print_sentences(&s, out);
  } else if (s.systems > 1) {
    err = print_paired(&s, out);
  } else {
    err = print_corpus(&s, out);
  }
done:
  free_score(&s);
  return err;
}

Err cmd_score(OptSet *opts) {
  Str out = {0};
  bool classifies = strcmp(opt_text(opts, "task"), "classify") == 0;
  Err err;
  log_quiet(opt_flag(opts, "quiet"));
  TRY_DONE(cmd_refuse_ranks("score", "call it without mpirun or srun"));
  TRY_DONE(classifies ? score_classify(opts, &out) : score_translations(opts, &out));
  TRY_DONE(str_check(&out));
  err = out_print(str_text(&out));
done:
  str_free(&out);
  return err;
}
