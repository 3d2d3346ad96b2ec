/* The steps of prepare --task classify and mlm: checks the tokenizer, reads the labels, divides the rows, copies
 * or trains the vocabulary, encodes the texts, and writes the order and dataset.json. Depends on the
 * rest of data. */
#include "data/prepare_classify.h"

#include <inttypes.h>
#include <string.h>

#include "base/fault.h"
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
  bool has_file = c->kind != LABEL_NONE && ranks_is_first(s->ranks);
  return has_file ? write_labels(w) : ERR_OK;
}

/* Copies or trains the tokenizer, unless an earlier, stopped run did. Rank 0 writes the file. */
static Err make_tokenizer(ClassifyWork *w, const char *path) {
  const ClassifySpec *s = w->spec;
  /* Only rank 0 looks: NFS would store on the other hosts that the file does not exist. */
  uint8_t is_there = ranks_is_first(s->ranks) && file_exists(path);
  Err err = ERR_OK;
  ranks_broadcast(s->ranks, "tokenizer exists", &is_there, sizeof is_there);
  ranks_report(s->ranks, "making the tokenizer");
  if (is_there) return ERR_OK;
  if (ranks_is_first(s->ranks))
    err = s->tokenizer ? text_encoder_copy(s->tokenizer, s->tokenizer_kind, path)
                       : classify_train_vocab(w, path);
  TRY(ranks_agree(s->ranks, err));
  fault_point("prepare-tokenizer");
  return ERR_OK;
}

/* Makes and opens the tokenizer. */
static Err open_tokenizer(ClassifyWork *w) {
  const ClassifySpec *s = w->spec;
  Meta *m = w->meta;
  const char *name = text_tokenizer_file[s->tokenizer_kind];
  char path[FILE_PATH_MAX];
  TRY(prepare_path(&w->state, name, path));
  TRY(make_tokenizer(w, path));
  TRY(ranks_agree(s->ranks, text_encoder_open(&w->encoder, path, s->tokenizer_kind, s->rules)));
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

/* ---- start and end ---- */

static Err add_inputs(Str *text, const ClassifySpec *s) {
  if (s->tokenizer) TRY(prepare_add_input(text, s->tokenizer));
  for (int split = 0; split < SPLITS; split++) {
    str_addf(text, "%s %.17g\n", split_name[split], s->share[split]);
    for (size_t i = 0; i < s->inputs[split]; i++)
      TRY(prepare_add_input(text, s->input[split][i]));
  }
  return str_check(text);
}

/* Computes the hash of the options and inputs on which the shards depend. */
static Err set_fingerprint(ClassifyWork *w) {
  const ClassifySpec *s = w->spec;
  const LabelSpec *l = &s->labels;
  Str text = {0};
  str_addf(&text, "texts %zu %d %d %.17g\n", s->texts, (int)l->kind, l->has_threshold,
           l->threshold);
  for (size_t i = 0; i < w->columns; i++) str_addf(&text, "%s\n", w->column[i]);
  str_addf(&text, "%u %" PRIu64 " %zu %d %d\n", s->max_tokens, s->seed, s->shard_bytes,
           s->rules.is_lower, s->rules.strips_accents);
  if (!s->tokenizer) str_addf(&text, "%zu %" PRIu64 "\n", s->vocab_size, s->sample);
  Err err = add_inputs(&text, s);
  if (!err) prepare_set_fingerprint(&w->state, &text);
  str_free(&text);
  return err;
}

static Err begin_work(ClassifyWork *w) {
  TRY(list_columns(w));
  TRY(text_labels_begin(&w->labels, &w->spec->labels));
  return mem_alloc(&w->meta->classify, 1, sizeof *w->meta->classify);
}

/* Creates or reopens OUT.partial, and loads the progress of an earlier, stopped run. Called on rank 0
 * only. */
static Err open_directory(ClassifyWork *w, bool *is_resumed) {
  TRY(check_tokenizer(w->spec));
  TRY(prepare_enter(&w->state, w->spec->out, w->spec->resume));
  TRY(set_fingerprint(w));
  TRY(prepare_load_texts(&w->state, w->meta, is_resumed));
  w->is_new = !*is_resumed;
  w->rows_done = w->meta->split[SPLIT_TRAIN].lines;
  return ERR_OK;
}

static Err enter_directory(ClassifyWork *w, bool *is_resumed) {
  Ranks *r = w->spec->ranks;
  char rows[32];
  *is_resumed = false;
  ranks_report(r, "opening the output directory");
  TRY(ranks_agree(r, ranks_is_first(r) ? open_directory(w, is_resumed)
                                       : prepare_follow(&w->state, w->spec->out)));
  TRY(prepare_check_shared(&w->state, r));
  ranks_broadcast(r, "finished work", &w->rows_done, sizeof w->rows_done);
  if (w->rows_done)
    log_info("resume: %s training rows are done", str_of_count(rows, w->rows_done));
  return ERR_OK;
}

/* Fails if this rank has read another table than rank 0. */
static Err compare_table(const ClassifyWork *w, Split split, size_t i) {
  const Ranks *r = w->spec->ranks;
  const MetaSource *here = &w->meta->split[split].source[i];
  char first[65];
  memcpy(first, here->sha256[0], sizeof first);
  ranks_broadcast(r, "hash of a table", first, sizeof first);
  if (strcmp(first, here->sha256[0]) == 0) return ERR_OK;
  return err_set(
      ERR_WORK,
      "%s differs from the file on rank 0 on %s: all ranks must read the same tables; "
      "put them on a file system that all hosts share",
      w->spec->input[split][i], r->host(r->context, 0));
}

static Err survey_tables(ClassifyWork *w) {
  Ranks *r = w->spec->ranks;
  Err err = ERR_OK;
  ranks_report(r, "reading the tables");
  TRY(ranks_agree(r, classify_survey(w)));
  for (int s = 0; s < SPLITS && r; s++)
    for (size_t i = 0; i < w->spec->inputs[s]; i++) {
      Err own = compare_table(w, (Split)s, i);
      if (own) err = own;
    }
  return ranks_agree(r, err);
}

/* Called on rank 0 only. */
static Err finish_dataset(ClassifyWork *w) {
  warn_unused_labels(w->meta);
  TRY(prepare_finish(w->state.dir, w->meta, 0));
  return prepare_complete(&w->state, w->spec->out);
}

static Err run_steps(ClassifyWork *w) {
  Ranks *r = w->spec->ranks;
  bool is_first = ranks_is_first(r), is_resumed;
  TRY(ranks_agree(r, begin_work(w)));
  TRY(enter_directory(w, &is_resumed));
  TRY(survey_tables(w));
  TRY(ranks_agree(r, record_options(w)));
  TRY(open_tokenizer(w));
  TRY(ranks_agree(r, is_first && !is_resumed ? prepare_save(&w->state, NULL) : ERR_OK));
  TRY(classify_encode(w));
  ranks_report(r, "writing the order of the texts");
  return ranks_agree(r, is_first ? finish_dataset(w) : ERR_OK);
}

/* Removes OUT.partial after an error unless a resumed run could use something of it: a finished shard, or
 * a vocabulary that was trained. Keeps the stored error. */
static void forget_work(const ClassifyWork *w) {
  bool has_work = !w->spec->tokenizer || w->meta->split[SPLIT_TRAIN].shards;
  if (w->is_new && !has_work)
    prepare_discard(&w->state);
  else
    prepare_forget(&w->state);
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
  stop_watch();
  Err err = run_steps(&w);
  stop_unwatch();
  if (err) forget_work(&w);
  prepare_leave(&w.state);
  free_work(&w);
  if (err) meta_free(meta);
  return err;
}
