/* Depends on classify_samples.h. */
#include "train/classify_samples.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/table.h"

#define SHOWN_BYTES 160 /* of a text in the log; samples.jsonl has all of it */

/* ---- texts ---- */

static Err add_text(ClassifySamples *s, const TableField *field, size_t fields) {
  Str text = {0};
  for (size_t i = 0; i < fields; i++) {
    if (i) str_add(&text, " | ");
    str_addn(&text, field[i].text, strnlen(field[i].text, field[i].len));
  }
  Err err = str_check(&text);
  if (!err) err = mem_dup(&s->text[s->texts], str_text(&text), text.len);
  if (!err) s->texts++;
  str_free(&text);
  return err;
}

static Err read_texts(ClassifySamples *s, const MetaClassify *c, const char *path,
                      size_t most) {
  const char *column[2] = {c->text_column[0], c->text_column[1]};
  const TableField *row;
  Table *t;
  TRY(table_open(&t, path, TABLE_CSV, column, c->texts));
  Err err = ERR_OK;
  while (!err && s->texts < most) {
    err = table_row(t, &row);
    if (err || !row) break;
    err = add_text(s, row, c->texts);
  }
  table_close(t);
  return err;
}

Err classify_samples_open(ClassifySamples *s, const DataSet *d, size_t most) {
  const MetaFile *file = &d->meta.split[SPLIT_VALID].raw[0];
  char path[FILE_PATH_MAX];
  *s = (ClassifySamples){0};
  if (most > d->meta.split[SPLIT_VALID].pairs) most = d->meta.split[SPLIT_VALID].pairs;
  if (most == 0 || !file->name[0]) return ERR_OK;
  TRY(mem_alloc(&s->text, most, sizeof *s->text));
  Err err = mem_alloc(&s->probability, d->meta.classify->labels, sizeof *s->probability);
  /* Rows and examples are joined by their position: other rows would be shown with the labels of these. */
  if (!err) err = dataset_verify_file(d, file);
  if (!err) err = dataset_path(d, file->name, path);
  if (!err) err = read_texts(s, d->meta.classify, path, most);
  if (!err && s->texts < most)
    err = err_set(ERR_WORK, "%s has %zu rows, and the data set has %" PRIu64 " examples of it",
                  path, s->texts, d->meta.split[SPLIT_VALID].pairs);
  if (!err) return ERR_OK;
  log_warn("%s; validations show no samples", err_message());
  classify_samples_free(s);
  return ERR_OK;
}

void classify_samples_free(ClassifySamples *s) {
  for (size_t i = 0; s->text && i < s->texts; i++) mem_free(s->text[i]);
  mem_free(s->text);
  mem_free(s->probability);
  *s = (ClassifySamples){0};
}

/* ---- labels ---- */

static void add_class(Str *out, const MetaClassify *c, const double *probability) {
  size_t best = 0;
  for (size_t i = 1; i < c->labels; i++)
    if (probability[i] > probability[best]) best = i;
  str_addf(out, "%s (%.2f)", c->name[best], probability[best]);
}

static void add_labels(Str *out, const MetaClassify *c, const double *probability) {
  size_t n = 0;
  for (size_t i = 0; i < c->labels; i++)
    if (probability[i] > CLASSIFY_THRESHOLD)
      str_addf(out, "%s%s (%.2f)", n++ ? ", " : "", c->name[i], probability[i]);
  if (n == 0) str_add(out, "none");
}

static void add_numbers(Str *out, const MetaClassify *c, const float *value) {
  for (size_t i = 0; i < c->labels; i++) {
    str_addf(out, "%s%s ", i ? ", " : "", c->name[i]);
    if (isnan(value[i]))
      str_add(out, "unknown");
    else
      str_addf(out, "%.4g", (double)value[i]);
  }
}

static void add_prediction(Str *out, const ClassifySamples *s, const ClassifyValid *v,
                           const MetaClassify *c, size_t text) {
  if (v->kind == LABEL_NUMBER) {
    add_numbers(out, c, v->output + text * v->labels);
    return;
  }
  classify_valid_probabilities(v, text, s->probability);
  if (v->kind == LABEL_CLASS)
    add_class(out, c, s->probability);
  else
    add_labels(out, c, s->probability);
}

/* Adds the true labels. */
static void add_truth(Str *out, const ClassifyValid *v, const MetaClassify *c, size_t text) {
  const float *target = v->target + text * v->targets;
  size_t n = 0;
  if (v->kind == LABEL_CLASS) str_add(out, c->name[(size_t)target[0]]);
  if (v->kind == LABEL_NUMBER) add_numbers(out, c, target);
  if (v->kind != LABEL_MULTI) return;
  for (size_t i = 0; i < v->labels; i++)
    if (target[i] >= (float)CLASSIFY_THRESHOLD || isnan(target[i]))
      str_addf(out, "%s%s%s", n++ ? ", " : "", c->name[i], isnan(target[i]) ? " unknown" : "");
  if (n == 0) str_add(out, "none");
}

/* Logs a sample; of a long text the beginning, with line breaks and other control characters escaped. */
static void log_sample(const char *text, const Str *predicted, const Str *truth) {
  char shown[SHOWN_BYTES];
  utf8_visible(text, shown, sizeof shown);
  log_info("  %s", shown);
  log_info("    -> %s", str_text(predicted));
  log_info("    == %s", str_text(truth));
}

static Err show_text(const ClassifySamples *s, const ClassifyValid *v, const MetaClassify *c,
                     size_t i, TaskSamples *out) {
  Str predicted = {0}, truth = {0};
  add_prediction(&predicted, s, v, c, i);
  add_truth(&truth, v, c, i);
  Err err = str_check(&predicted);
  if (!err) err = str_check(&truth);
  if (!err) {
    samples_add_cell(out, s->text[i], strlen(s->text[i]));
    samples_add_cell(out, str_text(&predicted), predicted.len);
    samples_add_cell(out, str_text(&truth), truth.len);
    out->rows++;
    log_sample(s->text[i], &predicted, &truth);
  }
  str_free(&predicted);
  str_free(&truth);
  return err;
}

Err classify_samples_show(const ClassifySamples *s, const ClassifyValid *v,
                          const MetaClassify *labels, TaskSamples *out) {
  static const char *const names[] = {"text", "predicted", "label"};
  if (s->texts) samples_begin(out, names, sizeof names / sizeof *names);
  for (size_t i = 0; i < s->texts; i++) TRY(show_text(s, v, labels, i, out));
  return str_check(&out->cells);
}
