/* Reads the directory of a classifier. Depends on data/text_encoder, bert, store, weights. */
#include "model/classifier.h"

#include <string.h>

#include "base/mem.h"
#include "base/place.h"
#include "base/utf8.h"
#include "data/meta.h"
#include "model/weights.h"
#include "text/stringmap.h"

/* ---- labels ---- */

static Err check_name(const char *name, size_t len, size_t number, const char *where) {
  const char *problem = NULL;
  if (len == 0) problem = "is empty";
  if (len >= LABEL_NAME_SIZE) problem = "is longer than 255 bytes";
  if (utf8_valid(name, len) != len) problem = "is not UTF-8";
  for (size_t i = 0; i < len; i++)
    if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
      problem = "contains a control character";
  if (!problem) return ERR_OK;
  return err_set(ERR_WORK,
                 "%s:%zu: the name of the label %s; write one name per line, or copy the "
                 "model again",
                 where, number, problem);
}

static Err refuse_count(size_t found, size_t labels, const char *where) {
  return err_set(
      ERR_WORK,
      "%s has %zu %s, but the model has %zu: it is the list of another model; copy the "
      "model again",
      where, found, found == 1 ? "label" : "labels", labels);
}

static size_t count_lines(const Str *text) {
  size_t lines = 0;
  for (size_t i = 0; i < text->len; i++) lines += text->s[i] == '\n';
  return lines + (text->len && text->s[text->len - 1] != '\n');
}

Err classifier_split_labels(Str *names, size_t labels, const char *where, const char ***label) {
  StringMap seen = {0};
  char *at = names->s, *end = names->s ? names->s + names->len : NULL;
  Err err;
  *label = NULL;
  if (count_lines(names) != labels) return refuse_count(count_lines(names), labels, where);
  TRY_DONE(mem_alloc(label, labels, sizeof **label));
  for (size_t i = 0; i < labels; i++) {
    char *stop = memchr(at, '\n', (size_t)(end - at));
    uint32_t number;
    if (!stop) stop = end;
    TRY_DONE(check_name(at, (size_t)(stop - at), i + 1, where));
    TRY_DONE(stringmap_add(&seen, at, (size_t)(stop - at), &number));
    if (number != i)
      TRY_DONE(err_set(ERR_WORK,
                       "%s:%zu: the label '%.60s' is also on line %u; names must differ", where,
                       i + 1, (*label)[number], number + 1));
    *stop = '\0';
    (*label)[i] = at;
    at = stop + 1;
  }
done:
  stringmap_free(&seen);
  if (err) {
    mem_free(*label);
    *label = NULL;
  }
  return err;
}

static Err read_labels(Classifier *c, const StoreSums *sums, const char *dir) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, dir, "labels.txt"));
  if (!place_exists(path))
    return err_set(
        ERR_WORK,
        "%s is missing: it has the names of the model's labels (%d), one per line; copy "
        "the model again",
        path, c->config->labels);
  TRY(store_check_file(sums, dir, "labels.txt"));
  TRY(place_read_all(path, STORE_FILE_LIMIT, &c->names));
  return classifier_split_labels(&c->names, (size_t)c->config->labels, path, &c->label);
}

/* ---- tokenizer ---- */

/* Returns the kind of tokenizer that model.json lists; TEXT_TOKENIZERS: none. */
static TextTokenizer find_tokenizer(const StoreSums *sums) {
  int kind = 0;
  while (kind < TEXT_TOKENIZERS && !store_has_file(sums, text_tokenizer_file[kind])) kind++;
  return (TextTokenizer)kind;
}

static Err open_encoder(Classifier *c, const StoreSums *sums, const char *dir) {
  char path[FILE_PATH_MAX];
  BertRules rules = {.is_lower = c->config->is_lower,
                     .strips_accents = c->config->strips_accents};
  TextTokenizer kind = find_tokenizer(sums);
  if (kind == TEXT_TOKENIZERS)
    return err_set(
        ERR_WORK,
        "%s has no tokenizer (vocab.txt, tokenizer.model or tokenizer.json), so it cannot read "
        "texts; import the model again from a directory that has the tokenizer's files",
        dir);
  TRY(store_check_file(sums, dir, text_tokenizer_file[kind]));
  TRY(file_join(path, dir, text_tokenizer_file[kind]));
  TRY(text_encoder_open(&c->encoder, path, kind, rules));
  if (c->encoder.vocab <= c->config->vocab) return ERR_OK; /* the last ids may have no piece */
  return err_set(
      ERR_WORK,
      "%s has %d pieces, but the model has %d: it is the tokenizer of another model; "
      "copy the model again",
      path, c->encoder.vocab, c->config->vocab);
}

/* ---- model ---- */

static Err refuse_head(const BertConfig *config, const char *dir) {
  return err_set(
      ERR_WORK,
      "%s is a BERT model with %s, which does not classify; give --model a classifier, "
      "trained with 'trireme train --task classify'",
      dir, config->head == BERT_HEAD_MLM ? "a masked-language-model head" : "no head");
}

static Err read_config(Classifier *c, StoreSums *sums, const char *dir) {
  TRY(store_load_config(&c->model, sums, dir));
  c->config = bert_config(&c->model);
  if (!c->config)
    return err_set(
        ERR_WORK,
        "%s is a model of family %s, which does not classify; use 'trireme translate' "
        "for it, or give --model a classifier",
        dir, c->model.family->name);
  if (!bert_is_classifier(c->config)) return refuse_head(c->config, dir);
  size_t least =
      c->config->has_pairs ? 4 : 2; /* [CLS] and [SEP]; RoBERTa: <s> </s> </s> </s> */
  if (bert_max_tokens(c->config) < least)
    return err_set(
        ERR_WORK,
        "%s/model.json: texts of at most %zu tokens leave no room for [CLS] and [SEP]; "
        "copy the model again",
        dir, bert_max_tokens(c->config));
  return ERR_OK;
}

static Err read_weights(Classifier *c, const StoreSums *sums, const char *dir) {
  char path[FILE_PATH_MAX];
  TRY(bert_family.lay_out_params(&c->params, &c->model));
  TRY(file_join(path, dir, "weights.safetensors"));
  TRY(store_load_weights(&c->params, sums, path, &c->w));
  TRY(weights_new(&c->weights, c->backend, c->w, c->params.padded));
  if (c->backend->host) return ERR_OK;
  mem_free(c->w);
  c->w = NULL;
  return ERR_OK;
}

Err classifier_open(Classifier *c, const Backend *backend, const char *dir) {
  StoreSums sums;
  Err err;
  *c = (Classifier){.backend = backend};
  TRY_DONE(read_config(c, &sums, dir));
  TRY_DONE(read_labels(c, &sums, dir));
  TRY_DONE(open_encoder(c, &sums, dir));
  TRY_DONE(read_weights(c, &sums, dir));
done:
  if (err) classifier_close(c);
  return err;
}

void classifier_close(Classifier *c) {
  if (!c->backend) return;
  text_encoder_close(&c->encoder);
  params_free(&c->params);
  weights_free(&c->weights, c->backend);
  mem_free(c->w);
  mem_free(c->label);
  str_free(&c->names);
  *c = (Classifier){0};
}
