/* The last pass over the tables: encodes blocks of rows on all cores and appends them, in order, to the
 * shards of their splits. Depends on the rest of data. */
#include <math.h>
#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/thread.h"
#include "data/classify_work.h"
#include "data/text_mask.h"
#include "data/text_shard.h"

#define BLOCK_ROWS  1024
#define BLOCK_BYTES ((size_t)1 << 22) /* a block with more text ends early */

/* A row of a block. */
typedef struct {
  Split split;
  int32_t label;
  EncodedText encoded;
} BlockRow;

typedef struct {
  ClassifyWork *w;
  Str text;     /* fields of all rows, each followed by NUL */
  size_t *at;   /* (BLOCK_ROWS, columns + 1) positions of the fields */
  float *value; /* (BLOCK_ROWS, label columns) */
  BlockRow *row;
  size_t rows;
} Block;

/* ---- output ---- */

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

static Err write_shard(ClassifyWork *w, Split split) {
  SplitOutput *out = &w->output[split];
  MetaSplit *m = &w->meta->split[split];
  ManifestEntry *e = &out->entry;
  char path[FILE_PATH_MAX];
  e->split = split;
  if (split == SPLIT_TRAIN)
    snprintf(e->file.name, sizeof e->file.name, "train-%05zu.tok", m->shards);
  else
    snprintf(e->file.name, sizeof e->file.name, "%s.tok", split_name[split]);
  TRY(prepare_path(&w->state, e->file.name, path));
  TRY(shard_write(&out->builder, path, &e->file.bytes, e->file.sha256));
  TRY(prepare_path(&w->state, MANIFEST_NAME, path));
  TRY(manifest_append(path, e));
  TRY(meta_add_shard(m, &e->file));
  manifest_add_counts(m, e);
  *e = (ManifestEntry){0};
  fault_point("classify-shard");
  return classify_check_stop();
}

/* ---- rows ---- */

static void count_labels(ClassifyWork *w, Split split, const TextExample *example) {
  const MetaClassify *c = w->meta->classify;
  uint64_t *labeled = c->counts[split].labeled;
  if (c->kind == LABEL_CLASS) {
    labeled[example->label]++;
    return;
  }
  for (size_t i = 0; i < c->labels; i++) {
    bool is_counted =
        c->kind == LABEL_NUMBER ? !isnan(example->value[i]) : example->value[i] == 1;
    labeled[i] += is_counted;
  }
}

static void count_row(ClassifyWork *w, const BlockRow *row, uint64_t bytes) {
  ManifestEntry *e = &w->output[row->split].entry;
  MetaTextCounts *counts = &w->meta->classify->counts[row->split];
  e->lines++;
  e->text_bytes[0] += bytes;
  counts->cut += row->encoded.is_cut;
  counts->empty += row->encoded.is_empty;
}

static Err store_example(ClassifyWork *w, Split split, const TextExample *example) {
  ManifestEntry *e = &w->output[split].entry;
  TRY(text_shard_add(&w->output[split].builder, w->meta, example));
  count_labels(w, split, example);
  e->file.pairs++;
  e->tokens[0] += example->tokens;
  if (example->tokens > e->longest[0]) e->longest[0] = example->tokens;
  return ERR_OK;
}

/* Stores a text without labels. One that is too long becomes several examples; one without a token
 * that can be masked is left out. */
static Err store_unlabeled(ClassifyWork *w, BlockRow *row) {
  EncodedText *t = &row->encoded;
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

/* Sets `field` to the fields of row k. */
static void get_fields(const Block *b, size_t k, TableField *field) {
  const size_t *at = b->at + k * (b->w->columns + 1);
  for (size_t i = 0; i < b->w->columns; i++)
    field[i] = (TableField){b->text.s + at[i], at[i + 1] - at[i] - 1};
}

static Err store_row(Block *b, size_t k, TableField *field) {
  ClassifyWork *w = b->w;
  BlockRow *row = &b->row[k];
  SplitOutput *out = &w->output[row->split];
  uint64_t bytes = 0;
  TextExample example = {.ids = row->encoded.ids.id,
                         .tokens = row->encoded.ids.len,
                         .first = row->encoded.first,
                         .label = row->label,
                         .value = b->value + k * w->spec->labels.columns};
  get_fields(b, k, field);
  for (size_t i = 0; i < w->spec->texts; i++) bytes += field[i].len;
  bool is_labeled = w->spec->labels.kind != LABEL_NONE;
  TRY(is_labeled ? store_example(w, row->split, &example) : store_unlabeled(w, row));
  count_row(w, row, bytes);
  if (row->split != SPLIT_TRAIN)
    return is_labeled ? put_row(&out->raw, field, w->columns) : ERR_OK;
  bool is_full = shard_bytes(&out->builder) >= w->spec->shard_bytes;
  return is_full ? write_shard(w, SPLIT_TRAIN) : ERR_OK;
}

static Err encode_row(Block *b, size_t k) {
  const ClassifyWork *w = b->w;
  const size_t *at = b->at + k * (w->columns + 1);
  TableField text[2] = {{0}};
  for (size_t i = 0; i < w->spec->texts; i++)
    text[i] = (TableField){b->text.s + at[i], at[i + 1] - at[i] - 1};
  uint32_t most = w->spec->labels.kind == LABEL_NONE ? UINT32_MAX : w->spec->max_tokens;
  return text_encode(&w->encoder, text, w->spec->texts, most, &b->row[k].encoded);
}

/* Encodes the rows of the block on all cores and stores them in order. */
static Err finish_block(Block *b) {
  ErrRecord failed = {.code = ERR_OK};
  int threads = b->w->spec->threads > 0 ? b->w->spec->threads : thread_cores();
#pragma omp parallel for schedule(dynamic, 16) num_threads(threads)
  for (size_t k = 0; k < b->rows; k++) {
    Err err = encode_row(b, k);
    if (err) {
#pragma omp critical(classify_encode_error)
      failed = err_take(err);
    }
  }
  if (failed.code) return err_give(&failed);
  TableField *field;
  TRY(mem_alloc(&field, b->w->columns, sizeof *field));
  Err err = ERR_OK;
  for (size_t k = 0; k < b->rows && !err; k++) err = store_row(b, k, field);
  mem_free(field);
  b->rows = 0;
  str_clear(&b->text);
  return err;
}

static void copy_fields(Block *b, const TableField *field) {
  size_t *at = b->at + b->rows * (b->w->columns + 1);
  for (size_t i = 0; i < b->w->columns; i++) {
    at[i] = b->text.len;
    str_addn(&b->text, field[i].text, field[i].len);
    str_addc(&b->text, '\0');
  }
  at[b->w->columns] = b->text.len;
}

static Err take_row(void *context, const ClassifyRow *from) {
  Block *b = context;
  ClassifyWork *w = b->w;
  BlockRow *row = &b->row[b->rows];
  if (from->split == SPLIT_TRAIN && from->index >= w->rows)
    return err_set(ERR_WORK, "the file has changed while it was read; start again");
  TRY(text_labels_read(&w->labels, from->field + w->spec->texts));
  row->split = from->split == SPLIT_TRAIN ? (Split)w->part[from->index] : from->split;
  row->label = w->labels.label;
  memcpy(b->value + b->rows * w->spec->labels.columns, w->labels.value,
         w->spec->labels.columns * sizeof *b->value);
  copy_fields(b, from->field);
  TRY(str_check(&b->text));
  b->rows++;
  return b->rows == BLOCK_ROWS || b->text.len >= BLOCK_BYTES ? finish_block(b) : ERR_OK;
}

static Err begin_block(Block *b, ClassifyWork *w) {
  *b = (Block){.w = w};
  TRY(mem_alloc(&b->row, BLOCK_ROWS, sizeof *b->row));
  TRY(mem_alloc(&b->at, BLOCK_ROWS * (w->columns + 1), sizeof *b->at));
  return mem_alloc(&b->value, BLOCK_ROWS * w->spec->labels.columns, sizeof *b->value);
}

static void free_block(Block *b) {
  for (size_t k = 0; b->row && k < BLOCK_ROWS; k++) encoded_text_free(&b->row[k].encoded);
  mem_free(b->row);
  mem_free(b->at);
  mem_free(b->value);
  str_free(&b->text);
}

/* Writes the last shard of a split. Lines without a word may follow the last example. */
static Err finish_shards(ClassifyWork *w, Split split) {
  SplitOutput *out = &w->output[split];
  if (out->builder.examples) return write_shard(w, split);
  manifest_add_counts(&w->meta->split[split], &out->entry);
  if (w->meta->split[split].lines == 0 || w->meta->split[split].pairs) return ERR_OK;
  return err_set(ERR_WORK, "no line of the %s text has a word that the tokenizer knows",
                 split_name[split]);
}

/* Writes the last shards, and ends the CSV files. */
static Err finish_splits(ClassifyWork *w) {
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

static Err encode_tables(ClassifyWork *w, Block *b) {
  uint64_t bytes;
  TRY(classify_input_bytes(w, &bytes));
  TRY(begin_block(b, w));
  for (int s = 0; s < SPLITS; s++) {
    bool is_made = w->spec->inputs[s] || w->spec->share[s] > 0;
    if (is_made) TRY(text_shard_begin(&w->output[s].builder, w->meta));
    bool has_raw = is_made && s != SPLIT_TRAIN && w->spec->labels.kind != LABEL_NONE;
    if (has_raw) TRY(begin_raw(w, (Split)s));
  }
  progress_begin(&w->progress, "encode", "bytes", bytes);
  for (int s = 0; s < SPLITS; s++) TRY(classify_read(w, (Split)s, take_row, b));
  TRY(finish_block(b));
  progress_end(&w->progress);
  return finish_splits(w);
}

Err classify_encode(ClassifyWork *w) {
  Block b = {0};
  Err err = encode_tables(w, &b);
  free_block(&b);
  return err;
}
