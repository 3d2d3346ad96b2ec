/* Reads vocab.txt, tokenizer.json and tokenizer_config.json. Depends on hf_config, data/text_encoder,
 * Jansson. */
#include "format/hf_wordpiece.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "base/place.h"
#include "data/text_encoder.h"
#include "format/hf_config.h"

#define FILE_LIMIT WORDPIECE_LIMIT /* maximum bytes of each file */

static bool has_file(const char *dir, const char *name) {
  char path[FILE_PATH_MAX];
  return !file_join(path, dir, name) && place_exists(path);
}

/* Opens a file that may be missing; hf->root is then NULL. */
static Err open_optional(HfConfig *hf, const char *dir, const char *name, bool reals) {
  *hf = (HfConfig){0};
  return has_file(dir, name) ? hf_open_file(hf, dir, name, FILE_LIMIT, reals) : ERR_OK;
}

/* Stores the piece of each id in `piece`, (n). */
static Err sort_pieces(json_t *vocab, const char *path, const char **piece, size_t n) {
  const char *text;
  json_t *value;
  json_object_foreach(vocab, text, value) {
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || (size_t)id >= n || piece[id])
      return err_set(
          ERR_WORK,
          "%s: the id of '%s' is not an integer from 0 to %zu, or is that of another "
          "piece; copy the model again",
          path, text, n - 1);
    if (strpbrk(text, "\r\n"))
      return err_set(ERR_WORK, "%s: the piece with id %d has a line break; it cannot be used",
                     path, (int)id);
    piece[id] = text;
  }
  return ERR_OK;
}

/* Reads a flag of the member `part` of the document; `fallback` if it is missing or null. */
static Err read_flag(const HfConfig *hf, const char *part, const char *key, bool fallback,
                     bool *value) {
  const json_t *j = json_object_get(json_object_get(hf->root, part), key);
  *value = json_is_boolean(j) ? json_is_true(j) : fallback;
  if (!j || json_is_null(j) || json_is_boolean(j)) return ERR_OK;
  return err_set(ERR_WORK, "%s: \"%s\" of \"%s\" must be true or false", hf->path, key, part);
}

/* Appends the vocabulary of tokenizer.json as lines. */
static Err print_pieces(const HfConfig *hf, Str *out) {
  json_t *model = json_object_get(hf->root, "model");
  json_t *vocab = json_object_get(model, "vocab");
  const char *type = json_string_value(json_object_get(model, "type")), **piece;
  const json_t *continues = json_object_get(model, "continuing_subword_prefix");
  const char *prefix = json_string_value(continues);
  size_t n = json_object_size(vocab);
  if (type && strcmp(type, "WordPiece") == 0 && n == 0)
    return err_set(ERR_WORK, "%s: its vocabulary has no pieces; copy the model again",
                   hf->path);
  if (!type || strcmp(type, "WordPiece") != 0)
    return err_set(ERR_WORK,
                   "%s has no vocabulary of WordPiece, but one of type %s; it cannot be used",
                   hf->path, type ? type : "(none)");
  if (continues && !json_is_null(continues) && !prefix)
    return err_set(ERR_WORK, "%s: \"continuing_subword_prefix\" of \"model\" must be a string",
                   hf->path);
  if (prefix && strcmp(prefix, "##") != 0)
    return err_set(ERR_WORK, "%s: pieces that continue a word begin with '%s', not with '##'",
                   hf->path, prefix);
  TRY(mem_alloc(&piece, n, sizeof *piece));
  Err err = sort_pieces(vocab, hf->path, piece, n);
  for (size_t i = 0; i < n && !err; i++) str_addf(out, "%s\n", piece[i]);
  mem_free(piece);
  return err ? err : str_check(out);
}

/* A vocabulary of more tokens than WordPiece knows would give other ids. */
static Err check_added(const HfConfig *hf) {
  json_t *added = json_object_get(hf->root, "added_tokens"), *token;
  json_t *vocab = json_object_get(json_object_get(hf->root, "model"), "vocab");
  size_t i;
  if (added && !json_is_null(added) && !json_is_array(added))
    return err_set(ERR_WORK, "%s: \"added_tokens\" must be an array", hf->path);
  json_array_foreach(added, i, token) {
    const char *text = json_string_value(json_object_get(token, "content"));
    if (text && json_object_get(vocab, text)) continue;
    return err_set(ERR_WORK,
                   "%s: the added token '%s' is not in the vocabulary; models with tokens of "
                   "their own cannot be imported",
                   hf->path, text ? text : "(none)");
  }
  return ERR_OK;
}

/* Reads the normalizer of tokenizer.json, if it is that of BERT: it has "lowercase". */
static Err read_normalizer(const HfConfig *hf, BertRules *rules, bool *is_known) {
  static const char part[] = "normalizer";
  const json_t *normalizer = json_object_get(hf->root, part);
  bool lower, strip;
  if (!normalizer || json_is_null(normalizer)) return ERR_OK;
  if (!json_is_object(normalizer))
    return err_set(ERR_WORK, "%s: \"%s\" must be an object", hf->path, part);
  TRY(read_flag(hf, part, "lowercase", /*fallback=*/false, &lower));
  TRY(read_flag(hf, part, "strip_accents", lower, &strip));
  if (!json_is_boolean(json_object_get(normalizer, "lowercase"))) return ERR_OK;
  *rules = (BertRules){.is_lower = lower, .strips_accents = strip};
  *is_known = true;
  return ERR_OK;
}

/* tokenizer_config.json takes precedence, as in transformers. */
static Err read_settings(const HfConfig *hf, BertRules *rules, bool *is_known) {
  bool chinese, lower, strip;
  if (!hf->root) return ERR_OK;
  TRY(hf_flag(hf, "tokenize_chinese_chars", true, &chinese));
  if (!chinese)
    return err_set(ERR_WORK,
                   "%s: \"tokenize_chinese_chars\" is false; only true can be imported",
                   hf->path);
  TRY(hf_flag(hf, "do_lower_case", true, &lower));
  TRY(hf_flag(hf, "strip_accents", lower, &strip));
  if (!json_is_boolean(json_object_get(hf->root, "do_lower_case"))) return ERR_OK;
  *rules = (BertRules){.is_lower = lower, .strips_accents = strip};
  *is_known = true;
  return ERR_OK;
}

static Err read_vocab(const char *dir, const HfConfig *tokenizer, Str *vocab) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, dir, "vocab.txt"));
  if (place_exists(path)) return place_read_all(path, FILE_LIMIT, vocab);
  if (!tokenizer->root)
    return err_set(ERR_WORK,
                   "%s has neither vocab.txt nor tokenizer.json; copy the tokenizer's files to "
                   "the model's directory",
                   dir);
  TRY(check_added(tokenizer));
  return print_pieces(tokenizer, vocab);
}

/* Without settings the vocabulary tells the rules. */
static Err find_rules(const char *dir, BertRules *rules) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, dir, "vocab.txt"));
  if (place_exists(path)) return text_encoder_find_rules(path, rules);
  *rules = (BertRules){.is_lower = true, .strips_accents = true};
  return ERR_OK;
}

Err hf_read_wordpiece(const char *dir, Str *vocab, BertRules *rules) {
  HfConfig tokenizer, settings = {0};
  bool is_known = false;
  Err err;
  TRY(open_optional(&tokenizer, dir, "tokenizer.json", /*reals=*/false));
  TRY_DONE(open_optional(&settings, dir, "tokenizer_config.json", /*reals=*/true));
  TRY_DONE(read_vocab(dir, &tokenizer, vocab));
  TRY_DONE(read_normalizer(&tokenizer, rules, &is_known));
  TRY_DONE(read_settings(&settings, rules, &is_known));
  if (!is_known) err = find_rules(dir, rules);
done:
  hf_close(&settings);
  hf_close(&tokenizer);
  return err;
}
