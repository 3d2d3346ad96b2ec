/* The report as JSON, with all digits; what is unknown is null. Depends on report, Jansson. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "monitor/report_internal.h"

static json_t *make_number(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

/* A text that is not UTF-8 (a path) becomes null. */
static json_t *make_text(const char *text) {
  json_t *value = *text ? json_string(text) : NULL;
  return value ? value : json_null();
}

static json_t *make_figures(const Figure *figures, size_t count) {
  json_t *object = json_object();
  for (size_t i = 0; i < count; i++)
    json_object_set_new(object, figures[i].key, make_number(figures[i].value));
  return object;
}

static json_t *make_answers(const RunReport *run) {
  static const char *const verdicts[] = {[VERDICT_UNKNOWN] = "unknown",
                                         [VERDICT_GOOD] = "good",
                                         [VERDICT_MIXED] = "mixed",
                                         [VERDICT_BAD] = "bad",
                                         [VERDICT_FACT] = "fact"};
  json_t *list = json_object();
  for (int i = 0; i < REPORT_ANSWERS; i++) {
    const Answer *a = &run->answers[i];
    json_t *answer = json_object();
    json_object_set_new(answer, "question", json_string(a->question));
    json_object_set_new(answer, "verdict", json_string(verdicts[a->verdict]));
    json_object_set_new(answer, "headline", make_text(a->headline));
    json_object_set_new(answer, "sentence", make_text(a->sentence));
    json_object_set_new(answer, "figures", make_figures(a->figures, a->figure_count));
    json_object_set_new(list, a->id, answer);
  }
  return list;
}

static json_t *make_changes(const RunReport *run) {
  json_t *list = json_array();
  for (size_t i = 0; i < run->change_count; i++) {
    const Change *c = &run->changes[i];
    json_t *change = json_object();
    json_object_set_new(change, "what", make_text(c->what));
    json_object_set_new(change, "how", make_text(c->how));
    json_object_set_new(change, "gain", make_text(c->gain));
    json_object_set_new(change, "saved_share", make_number(c->share));
    json_array_append_new(list, change);
  }
  return list;
}

static json_t *make_ranks(const RunFacts *f) {
  json_t *list = json_array();
  for (size_t i = 0; i < f->rank_count; i++) {
    const RankTimes *t = &f->rank[i];
    json_t *rank = json_object();
    json_object_set_new(rank, "host", make_text(t->host));
    json_object_set_new(rank, "step_ms", make_number(t->total));
    json_object_set_new(rank, "work_ms", make_number(t->work));
    json_object_set_new(rank, "data_wait_ms", make_number(t->data));
    json_object_set_new(rank, "wait_ms", make_number(t->wait));
    json_array_append_new(list, rank);
  }
  return list;
}

static json_t *make_run(const RunReport *run) {
  const RunFacts *f = &run->facts;
  char left_out[RUNLOG_LEFT_OUT];
  json_t *object = json_object();
  json_object_set_new(object, "run", make_text(f->dir));
  json_object_set_new(object, "version", make_text(f->version));
  json_object_set_new(object, "command", make_text(str_text(&f->command)));
  json_object_set_new(object, "directory", make_text(f->directory));
  json_object_set_new(object, "device", make_text(f->device));
  json_object_set_new(object, "transport", make_text(f->transport));
  json_object_set_new(object, "damaged_lines", json_integer((json_int_t)f->log.damaged_lines));
  bool has_left_out = runlog_left_out(&f->log, left_out, sizeof left_out);
  json_object_set_new(object, "left_out", has_left_out ? make_text(left_out) : json_null());
  json_object_set_new(object, "answers", make_answers(run));
  json_object_set_new(object, "changes", make_changes(run));
  json_object_set_new(object, "costs", make_figures(run->costs, run->cost_count));
  json_object_set_new(object, "ranks", make_ranks(f));
  json_object_set_new(
      object, "straggler",
      run->straggler == SIZE_MAX ? json_null() : json_integer((json_int_t)run->straggler));
  return object;
}

static json_t *make_comparison(const Report *r) {
  json_t *object = json_object(), *options = json_object();
  for (size_t k = 0; k < r->row_count; k++) {
    const CompareRow *row = &r->rows[k];
    json_t *values = json_array();
    for (size_t i = 0; i < r->run_count; i++)
      json_array_append_new(values,
                            row->key ? make_number(row->value[i]) : make_text(row->shown[i]));
    json_object_set_new(row->key ? object : options, row->key ? row->key : row->label, values);
  }
  json_object_set_new(object, "options", options);
  json_t *differences = json_array(), *p = json_array();
  for (size_t i = 0; i < r->run_count; i++) {
    json_array_append_new(differences, make_number(r->bleu_difference[i]));
    json_array_append_new(p, make_number(r->bleu_p[i]));
  }
  json_object_set_new(object, "bleu_difference", differences);
  json_object_set_new(object, "bleu_p_value", p);
  return object;
}

/* Returns true if a terminal would interpret the character, which Jansson writes as it is. */
static bool is_control(const char *at, size_t len, uint32_t code) {
  char text[8], shown[32];
  if (code < 0x7f || code > 0xffff) return false;
  snprintf(text, sizeof text, "%.*s", (int)len, at);
  utf8_visible(text, shown, sizeof shown);
  return strcmp(text, shown) != 0;
}

/* Appends JSON, with control characters as \uXXXX: they are within its strings. */
static void add_escaped(Str *out, const char *text) {
  const char *end = text + strlen(text);
  for (size_t len; text < end; text += len) {
    uint32_t code = 0;
    len = utf8_decode(text, end, &code);
    if (len == 0) len = 1;
    if (is_control(text, len, code))
      str_addf(out, "\\u%04x", (unsigned)code);
    else
      str_addn(out, text, len);
  }
}

Err report_json(const Report *r, Str *out) {
  json_t *root = json_object(), *runs = json_array();
  json_object_set_new(root, "trireme", json_string(TRIREME_VERSION));
  for (size_t i = 0; i < r->run_count; i++) json_array_append_new(runs, make_run(r->runs[i]));
  json_object_set_new(root, "runs", runs);
  if (r->run_count > 1) json_object_set_new(root, "comparison", make_comparison(r));
  char *text = json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(10));
  if (text) {
    add_escaped(out, text);
    str_addc(out, '\n');
  }
  Err err = text ? str_check(out) : err_set(ERR_WORK, "out of memory while writing JSON");
  free(text);
  json_decref(root);
  return err;
}
