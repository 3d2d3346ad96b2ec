/* The steps of prepare --task classify and mlm: checks the tokenizer, reads the labels, divides the rows, copies
 * or trains the vocabulary, encodes the texts, and writes the order and dataset.json. Depends on the
 * rest of data. */
#include "data/prepare_classify.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/stop.h"
#include "data/classify_work.h"
#include "data/meta_classify.h"
#include "data/prepare_finish.h"

/* Returns the id that masked tokens get. A SentencePiece model has no [MASK]; its <pad> can serve,
 * because no text has it and batches are not padded. */
static int find_mask(const TextEncoder *e) {
  return e->mask < 0 && e->kind == TEXT_SENTENCEPIECE ? e->pad : e->mask;
}

static Err check_mask(const TextEncoder *e, const char *path) {
  static const char *const piece[TEXT_TOKENIZERS] = {"[MASK]", "<pad>", "<mask>"};
  static const char *const advice[TEXT_TOKENIZERS] = {
      "use a vocabulary that has it, or --vocab-size N to train one",
      "use a model that was trained with it (--pad_id=0 of SentencePiece)",
      "use the tokenizer of a RoBERTa model"};
  if (find_mask(e) < 0)
    return err_set(ERR_WORK, "%s has no piece %s, which takes the place of masked tokens; %s",
                   path, piece[e->kind], advice[e->kind]);
  if (e->mask < 0) log_info("%s has no [MASK]: <pad> takes the place of masked tokens", path);
  return ERR_OK;
}

/* Checks the tokenizer before anything is read, so that a wrong file is reported at once and under its
 * own name. */
static Err check_tokenizer(const ClassifySpec *spec) {
  if (!spec->tokenizer) return bert_check_rules(spec->rules);
  TextEncoder e;
  TRY(text_encoder_import(&e, spec->tokenizer, spec->tokenizer_kind, spec->rules));
  Err err = spec->labels.kind == LABEL_NONE ? check_mask(&e, spec->tokenizer) : ERR_OK;
  text_encoder_close(&e);
  return err;
}

/* Lists the columns to read: texts, then labels. */
static Err list_columns(ClassifyWork *w) {
  const ClassifySpec *s = w->spec;
  w->columns = s->texts + s->labels.columns;
  TRY(mem_alloc(&w->column, w->columns, sizeof *w->column));
  for (size_t i = 0; i < s->texts; i++) w->column[i] = s->text_column ? s->text_column[i] : "";
  for (size_t i = 0; i < s->labels.columns; i++) w->column[s->texts + i] = s->labels.column[i];
  return ERR_OK;
}

/* Writes labels.txt and stores its description. */
static Err write_labels(ClassifyWork *w) {
  MetaClassify *c = w->meta->classify;
  MetaFile *file = &c->label_file;
  char path[FILE_PATH_MAX];
  Str text = {0};
  snprintf(file->name, sizeof file->name, "labels.txt");
  text_labels_print(&w->labels, &text);
  Err err = str_check(&text);
  if (!err) err = prepare_path(&w->state, file->name, path);
  if (!err) err = file_write(path, str_text(&text), text.len);
  if (!err) err = place_sha256(path, file->sha256);
  file->bytes = text.len;
  str_free(&text);
  return err;
}

static Err record_options(ClassifyWork *w) {
  const ClassifySpec *s = w->spec;
  Meta *m = w->meta;
  MetaClassify *c = m->classify;
  m->format = META_FORMAT;
  m->max_tokens = s->max_tokens;
  m->seed = s->seed;
  c->kind = s->labels.kind;
  c->has_threshold = s->labels.has_threshold;
  c->threshold = s->labels.threshold;
  c->texts = s->texts;
  for (size_t i = 0; i < s->texts && s->text_column; i++)
    snprintf(c->text_column[i], LABEL_NAME_SIZE, "%s", s->text_column[i]);
  TRY(meta_classify_alloc(c, w->labels.labels));
  for (size_t i = 0; i < c->labels; i++)
    snprintf(c->name[i], LABEL_NAME_SIZE, "%s", w->labels.name[i]);
  return c->kind == LABEL_NONE ? ERR_OK : write_labels(w);
}

/* Copies or trains the tokenizer, and opens it. */
static Err make_tokenizer(ClassifyWork *w) {
  const ClassifySpec *s = w->spec;
  Meta *m = w->meta;
  const char *name = text_tokenizer_file[s->tokenizer_kind];
  char path[FILE_PATH_MAX];
  TRY(prepare_path(&w->state, name, path));
  TRY(s->tokenizer ? text_encoder_copy(s->tokenizer, s->tokenizer_kind, path)
                   : classify_train_vocab(w, path));
  TRY(text_encoder_open(&w->encoder, path, s->tokenizer_kind, s->rules));
  snprintf(m->classify->tokenizer_file, sizeof m->classify->tokenizer_file, "%s", name);
  snprintf(m->tokenizer_type, sizeof m->tokenizer_type, "%s", w->encoder.type);
  memcpy(m->tokenizer_sha256, w->encoder.sha256, sizeof m->tokenizer_sha256);
  m->vocab = w->encoder.vocab;
  m->pad = w->encoder.pad;
  m->bos = w->encoder.cls;
  m->eos = w->encoder.sep;
  m->unk = w->encoder.unk;
  m->classify->mask = s->labels.kind == LABEL_NONE ? find_mask(&w->encoder) : w->encoder.mask;
  bool is_wordpiece = s->tokenizer_kind == TEXT_WORDPIECE;
  m->classify->is_lower = is_wordpiece && s->rules.is_lower;
  m->classify->strips_accents = is_wordpiece && s->rules.strips_accents;
  return ERR_OK;
}

/* Warns about labels that no training text has: a model cannot learn them. */
static void warn_unused_labels(const Meta *m) {
  const MetaClassify *c = m->classify;
  for (size_t i = 0; i < c->labels; i++)
    if (c->counts[SPLIT_TRAIN].labeled[i] == 0)
      log_warn("no training text has the label '%s'", c->name[i]);
}

static Err run_steps(ClassifyWork *w) {
  TRY(check_tokenizer(w->spec));
  TRY(list_columns(w));
  TRY(text_labels_begin(&w->labels, &w->spec->labels));
  TRY(mem_alloc(&w->meta->classify, 1, sizeof *w->meta->classify));
  TRY(prepare_enter_conversion(&w->state, w->spec->out));
  TRY(classify_survey(w));
  TRY(record_options(w));
  TRY(make_tokenizer(w));
  TRY(classify_encode(w));
  warn_unused_labels(w->meta);
  TRY(prepare_finish(w->state.dir, w->meta, 0));
  return prepare_complete(&w->state, w->spec->out);
}

/* Removes the files of a failed run; keeps the stored error. */
static void remove_partial(const ClassifyWork *w) {
  if (w->state.lock < 0) return;
  ErrRecord kept = err_take(ERR_WORK);
  (void)!file_remove_all(w->state.dir);
  err_give(&kept);
}

static void free_work(ClassifyWork *w) {
  for (int s = 0; s < SPLITS; s++) {
    shard_builder_free(&w->output[s].builder);
    file_abandon(&w->output[s].raw);
  }
  text_labels_free(&w->labels);
  text_encoder_close(&w->encoder);
  mem_free((void *)w->column);
  mem_free(w->stratum);
  mem_free(w->part);
}

Err prepare_classify(const ClassifySpec *spec, Meta *meta) {
  ClassifyWork w = {.spec = spec, .meta = meta, .state = {.lock = -1}};
  *meta = (Meta){0};
  for (int s = 0; s < SPLITS; s++) w.output[s].raw.fd = -1;
  TRY(place_check(spec->out));
  TRY(prepare_check_conversion(spec->out));
  stop_watch();
  Err err = run_steps(&w);
  stop_unwatch();
  if (err) remove_partial(&w);
  prepare_leave(&w.state);
  free_work(&w);
  if (err) meta_free(meta);
  return err;
}
