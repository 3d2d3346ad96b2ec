/* Imports BERT, RoBERTa and DistilBERT models: configuration, weights, vocabulary and names of the
 * labels. Depends on hf_import_internal.h, hf_bert, format/hf_wordpiece, text/byte_bpe. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/place.h"
#include "format/hf_wordpiece.h"
#include "model/bert.h"
#include "model/hf_bert.h"
#include "model/hf_import_internal.h"
#include "text/byte_bpe.h"
#include "text/wordpiece.h"

#define NAMES_SHOWN 4 /* largest number of names in a message */

typedef struct {
  HfImport *in;
  HfBertForm form;
  char prefix[16]; /* of the names of the encoder */
  BertConfig config;
  BertParams at;
} BertImport;

/* Tensors that files of older versions have under other names: the ends of both names. */
static const char *const renamed[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                         {"LayerNorm.bias", "LayerNorm.beta"},
                                         {"predictions.bias", "predictions.decoder.bias"},
                                         {"lm_head.bias", "lm_head.decoder.bias"}};

/* Writes the name under which the file has a tensor. */
static void find_name(const BertImport *m, const char *name, char out[160]) {
  size_t len = strlen(name);
  snprintf(out, 160, "%s", name);
  for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
    if (tensors_find(&m->in->source, out) || !str_ends(name, renamed[i][0])) continue;
    snprintf(out, 160, "%.*s%s", (int)(len - strlen(renamed[i][0])), name, renamed[i][1]);
  }
  if (!tensors_find(&m->in->source, out)) snprintf(out, 160, "%s", name); /* for the error */
}

static Err read_tensor(void *context, const char *name, size_t offset, size_t rows,
                       size_t cols) {
  BertImport *m = context;
  char stored[160];
  find_name(m, name, stored);
  return hf_read_tensor(m->in, stored, offset, rows, cols);
}

/* Sets the prefix of the encoder's names: the file of a base model has none. */
static void find_prefix(BertImport *m) {
  char name[64];
  snprintf(m->prefix, sizeof m->prefix, "%s.", hf_bert_type[m->form]);
  snprintf(name, sizeof name, "%sembeddings.word_embeddings.weight", m->prefix);
  if (!tensors_find(&m->in->source, name)) m->prefix[0] = '\0';
}

/* A base model may have been saved without its pooler, and a masked language model with one: that of
 * the pretraining, with which a classifier starts. */
static void find_pooler(BertImport *m) {
  char name[64];
  snprintf(name, sizeof name, "%spooler.dense.weight", m->prefix);
  if (m->form == HF_DISTILBERT || bert_is_classifier(&m->config)) return;
  m->config.pooler = tensors_find(&m->in->source, name) ? BERT_POOLER_TANH : BERT_POOLER_NONE;
}

/* Texts are cut to the length that the tokenizer was saved with, if the model reads longer ones. */
static Err read_max_tokens(BertImport *m) {
  int most = m->config.max_positions - m->config.position_offset, found;
  TRY(hf_read_max_length(m->in->from, &found));
  m->config.max_tokens = found < most ? found : 0;
  return ERR_OK;
}

static Err read_weights(BertImport *m) {
  TRY(bert_lay_out(&m->at, &m->in->params, &m->config));
  TRY(mem_alloc_aligned(&m->in->w, m->in->params.padded * sizeof *m->in->w));
  return hf_bert_visit(m->form, m->prefix, &m->config, &m->at, read_tensor, m);
}

/* Tensors that are copies of others or constants. */
static bool is_copy(const char *name) {
  static const char *const ends[] = {"embeddings.position_ids",    "embeddings.token_type_ids",
                                     "predictions.decoder.weight", "predictions.decoder.bias",
                                     "lm_head.decoder.weight",     "lm_head.decoder.bias",
                                     "vocab_projector.weight"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    if (str_ends(name, ends[i])) return true;
  }
  return false;
}

/* Returns true if a tensor is a part of the encoder, without its pooler. */
static bool is_encoder(const BertImport *m, const char *name) {
  const char *rest = name + strlen(m->prefix);
  return str_starts(name, m->prefix) &&
         (str_starts(rest, "embeddings.") || str_starts(rest, "encoder.") ||
          str_starts(rest, "transformer."));
}

/* Refuses a file whose encoder has tensors that were not read: it is of another form. Other tensors,
 * those of a head that the model does not have, are listed. */
static Err check_unused(const BertImport *m) {
  const TensorSource *s = &m->in->source;
  Str list = {0};
  size_t unused = 0;
  Err err = ERR_OK;
  for (size_t i = 0; i < s->entries && !err; i++) {
    const char *name = s->entry[i].name;
    if (m->in->is_used[i] || is_copy(name)) continue;
    if (is_encoder(m, name))
      err = err_set(
          ERR_WORK,
          "%s: a %s model with this config.json has no tensor '%s'; use the config.json "
          "of this model",
          s->entry[i].path, hf_bert_type[m->form], name);
    if (unused++ < NAMES_SHOWN) str_addf(&list, "%s%s", list.len ? ", " : "", name);
  }
  if (!err && unused)
    log_info("not used: %zu tensor%s: %s%s", unused, str_plural(unused), str_text(&list),
             unused > NAMES_SHOWN ? ", …" : "");
  str_free(&list);
  return err;
}

static Err check_vocab(const BertImport *m, int pieces) {
  if (pieces <= m->config.vocab) return ERR_OK; /* the last ids may have no piece */
  return err_set(ERR_WORK,
                 "%s: the vocabulary has %d pieces, while config.json has a vocabulary of %d; "
                 "use files of the same model",
                 m->in->from, pieces, m->config.vocab);
}

/* Adds vocab.txt. */
static Err read_vocab(BertImport *m) {
  HfFile *file = hf_add_file(m->in, "vocab.txt", /*is_copied=*/false);
  Wordpiece w;
  BertRules rules = {0};
  TRY(hf_read_wordpiece(m->in->from, &file->text, &rules));
  TRY(wordpiece_read(&w, str_text(&file->text), file->text.len, m->in->from, rules));
  int vocab = w.vocab;
  wordpiece_close(&w);
  m->config.is_lower = rules.is_lower;
  m->config.strips_accents = rules.strips_accents;
  return check_vocab(m, vocab);
}

static bool has_file(const BertImport *m, const char *name) {
  char path[FILE_PATH_MAX];
  return !file_join(path, m->in->from, name) && place_exists(path);
}

/* Adds tokenizer.json, which has the vocabulary and the merges of RoBERTa. */
static Err read_byte_bpe(BertImport *m) {
  ByteBpe b;
  TRY(byte_bpe_import(&b, m->in->from));
  HfFile *file = hf_add_file(m->in, "tokenizer.json", /*is_copied=*/false);
  Err err = byte_bpe_print(&b, &file->text);
  if (!err) err = check_vocab(m, b.vocab);
  byte_bpe_close(&b);
  return err;
}

static Err read_tokenizer(BertImport *m) {
  if (m->form != HF_ROBERTA) return read_vocab(m);
  if (has_file(m, "tokenizer.json") || has_file(m, "vocab.json")) return read_byte_bpe(m);
  if (has_file(m, "vocab.txt")) return read_vocab(m); /* as export writes it */
  log_warn(
      "%s has no tokenizer (tokenizer.json, or vocab.json and merges.txt, or vocab.txt); the "
      "imported model "
      "has weights, but cannot read texts",
      m->in->from);
  return ERR_OK;
}

static Err read_labels(BertImport *m, const HfConfig *hf) {
  if (!bert_is_classifier(&m->config)) return ERR_OK;
  HfFile *file = hf_add_file(m->in, "labels.txt", /*is_copied=*/false);
  return hf_print_labels(hf, m->config.labels, &file->text);
}

static Err read_model(BertImport *m, const HfConfig *hf) {
  TRY(hf_bert_read_config(&m->config, m->form, hf));
  TRY(read_tokenizer(m));
  TRY(read_max_tokens(m));
  TRY(read_labels(m, hf));
  TRY(hf_open_tensors(m->in));
  find_prefix(m);
  find_pooler(m);
  TRY(read_weights(m));
  return check_unused(m);
}

Err hf_import_bert(HfImport *in, const HfConfig *hf) {
  BertImport m = {.in = in};
  const char *type;
  TRY(hf_text(hf, "model_type", "", &type));
  while (m.form + 1 < HF_BERT_FORMS && strcmp(hf_bert_type[m.form], type) != 0) m.form++;
  Err err = read_model(&m, hf);
  in->config = bert_model_config(&m.config);
  bert_params_free(&m.at);
  return err;
}
