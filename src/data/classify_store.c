/* The output of prepare --task classify and mlm: appends encoded rows to the shards of their splits, and
 * the rows of validation and test to CSV files. With several ranks only rank 0 does. Depends on the
 * rest of data. */
#include <math.h>
#include <string.h>

#include "base/fault.h"
#include "data/classify_work.h"
#include "data/text_mask.h"
#include "data/text_shard.h"

/* ---- rows as CSV ---- */

static Err put_field(FileWriter *w, const char *text, size_t len) {
  TRY(file_put(w, "\"", 1));
  for (size_t at = 0; at < len;) {
    const char *quote = memchr(text + at, '"', len - at);
    size_t n = quote ? (size_t)(quote - text) - at + 1 : len - at;
    TRY(file_put(w, text + at, n));
    if (quote) TRY(file_put(w, "\"", 1));
    at += n;
  }
  return file_put(w, "\"", 1);
}

/* Appends a row to valid.csv or test.csv. */
static Err put_row(FileWriter *w, const TableField *field, size_t fields) {
  for (size_t i = 0; i < fields; i++) {
    if (i) TRY(file_put(w, ",", 1));
    TRY(put_field(w, field[i].text, field[i].len));
  }
  return file_put(w, "\r\n", 2);
}

static Err begin_raw(ClassifyWork *w, Split split) {
  MetaFile *raw = &w->meta->split[split].raw[0];
  char path[FILE_PATH_MAX];
  snprintf(raw->name, sizeof raw->name, "%s.csv", split_name[split]);
  TRY(prepare_path(&w->state, raw->name, path));
  TRY(file_create(&w->output[split].raw, path));
  for (size_t i = 0; i < w->columns; i++) {
    if (i) TRY(file_put(&w->output[split].raw, ",", 1));
    TRY(put_field(&w->output[split].raw, w->column[i], strlen(w->column[i])));
  }
  return file_put(&w->output[split].raw, "\r\n", 2);
}

bool classify_keeps_row(const ClassifyWork *w, Split split) {
  return split != SPLIT_TRAIN && w->spec->labels.kind != LABEL_NONE;
}

/* ---- shards ---- */

Err classify_begin_store(ClassifyWork *w) {
  for (int s = 0; s < SPLITS; s++) {
    bool is_made = w->spec->inputs[s] || w->spec->share[s] > 0;
    if (is_made) TRY(text_shard_begin(&w->output[s].builder, w->meta));
    if (is_made && classify_keeps_row(w, (Split)s)) TRY(begin_raw(w, (Split)s));
  }
  return ERR_OK;
}

static Err write_shard(ClassifyWork *w, Split split) {
  SplitOutput *out = &w->output[split];
  MetaSplit *m = &w->meta->split[split];
  ManifestEntry *e = &out->entry;
  char path[FILE_PATH_MAX];
  e->split = split;
  e->has_texts = true;
  if (split == SPLIT_TRAIN)
    snprintf(e->file.name, sizeof e->file.name, "train-%05zu.tok", m->shards);
  else
    snprintf(e->file.name, sizeof e->file.name, "%s.tok", split_name[split]);
  TRY(prepare_path(&w->state, e->file.name, path));
  TRY(shard_write(&out->builder, path, &e->file.bytes, e->file.sha256));
  TRY(prepare_path(&w->state, MANIFEST_NAME, path));
  TRY(manifest_append(path, e));
  TRY(meta_add_shard(m, &e->file));
  manifest_add_texts(w->meta, e);
  *e = (ManifestEntry){0};
  fault_point("classify-shard");
  return prepare_check_stop(&w->state);
}

void classify_count_labels(ClassifyWork *w, const EncodedRow *row) {
  const MetaClassify *c = w->meta->classify;
  uint64_t *labeled = c->counts[row->split].labeled;
  if (c->kind == LABEL_CLASS) {
    labeled[row->label]++;
    return;
  }
  for (size_t i = 0; i < c->labels; i++) {
    bool is_counted = c->kind == LABEL_NUMBER ? !isnan(row->value[i]) : row->value[i] == 1;
    labeled[i] += is_counted;
  }
}

static Err store_example(ClassifyWork *w, Split split, const TextExample *example) {
  ManifestEntry *e = &w->output[split].entry;
  TRY(text_shard_add(&w->output[split].builder, w->meta, example));
  e->file.pairs++;
  e->tokens[0] += example->tokens;
  if (example->tokens > e->longest[0]) e->longest[0] = example->tokens;
  return ERR_OK;
}

/* Stores a text without labels. One that is too long becomes several examples; one without a token
 * that can be masked is left out. */
static Err store_unlabeled(ClassifyWork *w, const EncodedRow *row) {
  EncodedText *t = row->encoded;
  int32_t part[SHARD_LONGEST];
  size_t body = t->ids.len - 2, most = w->spec->max_tokens - 2; /* without [CLS] and [SEP] */
  TextMask mask;
  text_mask_begin(&mask, w->meta, 0);
  t->is_cut = body > most;
  t->is_empty = true;
  part[0] = w->encoder.cls;
  for (size_t at = 0; at < body; at += most) {
    size_t n = body - at < most ? body - at : most, i = 1;
    memcpy(part + 1, t->ids.id + 1 + at, n * sizeof *part);
    while (i <= n && text_mask_is_special(&mask, part[i])) i++;
    if (i > n) continue;
    t->is_empty = false;
    part[n + 1] = w->encoder.sep;
    TRY(store_example(w, row->split, &(TextExample){.ids = part, .tokens = n + 2}));
  }
  return ERR_OK;
}

static Err store_labeled(ClassifyWork *w, const EncodedRow *row) {
  TextExample example = {.ids = row->encoded->ids.id,
                         .tokens = row->encoded->ids.len,
                         .first = row->encoded->first,
                         .label = row->label,
                         .value = row->value};
  TRY(store_example(w, row->split, &example));
  classify_count_labels(w, row);
  return ERR_OK;
}

Err classify_store_row(ClassifyWork *w, const EncodedRow *row) {
  SplitOutput *out = &w->output[row->split];
  bool is_labeled = w->spec->labels.kind != LABEL_NONE;
  TRY(is_labeled ? store_labeled(w, row) : store_unlabeled(w, row));
  out->entry.lines++;
  out->entry.text_bytes[0] += row->bytes;
  out->entry.cut += row->encoded->is_cut;
  out->entry.empty += row->encoded->is_empty;
  if (classify_keeps_row(w, row->split)) return put_row(&out->raw, row->field, w->columns);
  if (row->split != SPLIT_TRAIN) return ERR_OK;
  bool is_full = shard_bytes(&out->builder) >= w->spec->shard_bytes;
  return is_full ? write_shard(w, SPLIT_TRAIN) : ERR_OK;
}

/* Writes the last shard of a split. Lines without a word may follow the last example. */
static Err finish_shards(ClassifyWork *w, Split split) {
  SplitOutput *out = &w->output[split];
  if (out->builder.examples) return write_shard(w, split);
  out->entry.split = split;
  manifest_add_texts(w->meta, &out->entry);
  if (w->meta->split[split].lines == 0 || w->meta->split[split].pairs) return ERR_OK;
  return err_set(ERR_WORK, "no line of the %s text has a word that the tokenizer knows",
                 split_name[split]);
}

Err classify_finish_store(ClassifyWork *w) {
  for (int s = 0; s < SPLITS; s++) {
    SplitOutput *out = &w->output[s];
    MetaFile *raw = &w->meta->split[s].raw[0];
    TRY(finish_shards(w, (Split)s));
    if (!raw->name[0]) continue;
    raw->bytes = out->raw.bytes;
    TRY(file_finish(&out->raw, raw->sha256));
  }
  return ERR_OK;
}
