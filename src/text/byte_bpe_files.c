/* Reads and prints the files of a byte-level BPE. Depends on byte_bpe_parts.h, Jansson. */
#include <jansson.h>
#include <string.h>

#include "base/jsondoc.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/byte_bpe_parts.h"
#include "text/byte_bpe_vocab.h"

/* ---- reading ---- */

/* Maximum number of JSON values. A vocabulary needs up to four for each piece: one for its id and three
 * for its merge, so that 262,144 pieces are possible. */
#define MOST_VALUES ((size_t)1 << 20)

static Err load_json(const char *text, size_t len, const char *where, json_t **root) {
  json_error_t error;
  *root = NULL;
  size_t values = jsondoc_count(text, len);
  if (values > MOST_VALUES)
    return err_set(
        ERR_WORK,
        "%s has %zu JSON values, and at most %zu can be read: about %zu pieces; use a "
        "model with a smaller vocabulary",
        where, values, MOST_VALUES, MOST_VALUES / 4);
  json_t *found = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
  if (!found)
    return err_set(ERR_WORK, "%s:%d: not JSON: %s (byte %d); copy the model again", where,
                   error.line, error.text, error.position);
  if (json_is_object(found)) {
    *root = found;
    return ERR_OK;
  }
  json_decref(found);
  return err_set(ERR_WORK, "%s is not a JSON object; copy the model again", where);
}

static Err refuse_property(const char *where, const char *property, const char *only) {
  return err_set(ERR_WORK,
                 "%s: %s, while only %s can be used: the byte-level BPE of RoBERTa and GPT-2",
                 where, property, only);
}

static Err refuse_type(const char *where, const char *key, const char *type) {
  return err_set(ERR_WORK, "%s: \"%s\" must be %s; copy the model again", where, key, type);
}

Err byte_vocab_read_flag(const json_t *object, const char *key, bool fallback,
                         const char *where, bool *value) {
  const json_t *j = json_object_get(object, key);
  *value = json_is_boolean(j) ? json_is_true(j) : fallback;
  return !j || json_is_null(j) || json_is_boolean(j) ? ERR_OK
                                                     : refuse_type(where, key, "true or false");
}

/* Reads a text of a JSON object; NULL if it is missing or null. */
static Err read_text(const json_t *object, const char *key, const char *where,
                     const char **text) {
  const json_t *j = json_object_get(object, key);
  *text = json_string_value(j);
  return !j || json_is_null(j) || *text ? ERR_OK : refuse_type(where, key, "a string");
}

/* Refuses what would give other ids than those of RoBERTa. */
static Err check_model(const json_t *model, const char *where) {
  static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  static const char *const flags[] = {"byte_fallback", "ignore_merges", "fuse_unk"};
  const json_t *dropout = json_object_get(model, "dropout");
  const char *type, *affix;
  bool flag;
  TRY(read_text(model, "type", where, &type));
  if (type && strcmp(type, "BPE") != 0)
    return refuse_property(where, "its model has another type", "\"type\": \"BPE\"");
  for (size_t i = 0; i < 2; i++) {
    TRY(read_text(model, affixes[i], where, &affix));
    if (affix && *affix)
      return refuse_property(where, "pieces have a prefix or suffix", "none");
  }
  for (size_t i = 0; i < 3; i++) {
    TRY(byte_vocab_read_flag(model, flags[i], /*fallback=*/false, where, &flag));
    if (flag)
      return refuse_property(where, "byte_fallback, ignore_merges or fuse_unk is true",
                             "false");
  }
  if (dropout && !json_is_null(dropout) && !json_is_number(dropout))
    return refuse_type(where, "dropout", "a number");
  if (json_number_value(dropout) > 0)
    return refuse_property(where, "its model has dropout", "null");
  return ERR_OK;
}

static Err check_rules(const json_t *root, const char *where) {
  const json_t *normalizer = json_object_get(root, "normalizer");
  const json_t *split = json_object_get(root, "pre_tokenizer");
  const char *type;
  bool has_regex;
  TRY(read_text(split, "type", where, &type));
  if (normalizer && !json_is_null(normalizer))
    return refuse_property(where, "it has a normalizer", "null");
  if (!type || strcmp(type, "ByteLevel") != 0)
    return refuse_property(where, "its pre_tokenizer has another type", "ByteLevel");
  TRY(byte_vocab_read_flag(split, "use_regex", /*fallback=*/true, where, &has_regex));
  if (!has_regex) return refuse_property(where, "use_regex is false", "true");
  return check_model(json_object_get(root, "model"), where);
}

static Err add_token(ByteVocab *v, const json_t *token, const char *where) {
  enum { SINGLE_WORD, LSTRIP, RSTRIP, NORMALIZED, SPECIAL, FLAGS };
  static const char *const keys[FLAGS] = {"single_word", "lstrip", "rstrip", "normalized",
                                          "special"};
  bool flag[FLAGS];
  const char *text = json_string_value(json_object_get(token, "content"));
  const json_t *id = json_object_get(token, "id");
  json_int_t number = json_integer_value(id);
  if (!text || !*text || !json_is_integer(id) || number < 0 || number >= BYTE_BPE_IDS)
    return err_set(ERR_WORK,
                   "%s: an added token has no \"content\" or no \"id\" from 0 to %d; copy the "
                   "model again",
                   where, BYTE_BPE_IDS - 1);
  for (size_t i = 0; i < FLAGS; i++)
    TRY(byte_vocab_read_flag(token, keys[i], /*fallback=*/false, where, &flag[i]));
  if (flag[SINGLE_WORD])
    return refuse_property(where, "single_word of an added token is true", "false");
  return byte_vocab_add_token(v, text,
                              (ByteToken){.id = (int32_t)number,
                                          .strips_left = flag[LSTRIP],
                                          .strips_right = flag[RSTRIP],
                                          .is_normalized = flag[NORMALIZED],
                                          .is_special = flag[SPECIAL]},
                              where);
}

static ByteText get_text(const json_t *value) {
  return (ByteText){json_string_value(value), json_string_length(value)};
}

/* A merge is "a b" or, in newer files, ["a", "b"]. */
static Err add_json_merge(ByteVocab *v, const json_t *merge, const char *where, size_t number) {
  ByteText a = get_text(merge), b = {0};
  const char *space = a.text ? strchr(a.text, ' ') : NULL;
  if (space) {
    b = (ByteText){space + 1, a.len - (size_t)(space + 1 - a.text)};
    a.len = (size_t)(space - a.text);
  } else if (json_array_size(merge) == 2) {
    a = get_text(json_array_get(merge, 0));
    b = get_text(json_array_get(merge, 1));
  }
  if (!a.text || !b.text)
    return err_set(ERR_WORK, "%s, merge %zu is not a pair of pieces; copy the model again",
                   where, number);
  return byte_vocab_add_merge(v, a, b, where, "merge", number);
}

static Err read_unknown(ByteVocab *v, const json_t *model, const char *where) {
  const char *text;
  TRY(read_text(model, "unk_token", where, &text));
  v->unknown = text ? byte_vocab_find(v, text, strlen(text)) : -1;
  if (!text || v->unknown >= 0) return ERR_OK;
  return err_set(ERR_WORK, "%s: \"unk_token\" is '%.40s', which is not in the vocabulary",
                 where, text);
}

/* A list that is missing or damaged would give other ids without a message. */
static Err check_lists(const json_t *root, const json_t *model, const char *where) {
  const json_t *tokens = json_object_get(root, "added_tokens");
  if (!json_is_array(json_object_get(model, "merges")))
    return err_set(ERR_WORK, "%s: its model has no list \"merges\"; copy the model again",
                   where);
  if (!tokens || json_is_null(tokens) || json_is_array(tokens)) return ERR_OK;
  return err_set(ERR_WORK, "%s: \"added_tokens\" is not a list; copy the model again", where);
}

static Err read_root(ByteVocab *v, const json_t *root, const char *where) {
  json_t *model = json_object_get(root, "model"), *value;
  size_t i;
  TRY(check_rules(root, where));
  TRY(check_lists(root, model, where));
  TRY(byte_vocab_read_flag(json_object_get(root, "pre_tokenizer"), "add_prefix_space",
                           /*fallback=*/false, where, &v->adds_space));
  TRY(byte_vocab_add_pieces(v, json_object_get(model, "vocab"), where));
  json_array_foreach(json_object_get(root, "added_tokens"), i, value) {
    TRY(add_token(v, value, where));
  }
  TRY(byte_vocab_end_pieces(v, where));
  TRY(read_unknown(v, model, where));
  json_array_foreach(json_object_get(model, "merges"), i, value) {
    TRY(add_json_merge(v, value, where, i + 1));
  }
  return byte_vocab_end_merges(v);
}

Err byte_vocab_read(ByteVocab *v, const char *json, size_t len, const char *where) {
  json_t *root;
  *v = (ByteVocab){.unknown = -1};
  TRY(load_json(json, len, where, &root));
  Err err = read_root(v, root, where);
  json_decref(root);
  if (err) byte_vocab_free(v);
  return err;
}

/* The tokens that RoBERTa finds in texts. */
static Err add_specials(ByteVocab *v, const char *where) {
  static const char *const names[] = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    int32_t id = byte_vocab_find(v, names[i], strlen(names[i]));
    if (id < 0) continue;
    TRY(byte_vocab_add_token(v, names[i], (ByteToken){.id = id, .is_special = true}, where));
  }
  return ERR_OK;
}

static Err read_merges(ByteVocab *v, const Str *text, const char *where) {
  const char *at = str_text(text), *end = at + text->len;
  for (size_t line = 1; at < end; line++) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t len = (size_t)((stop ? stop : end) - at);
    if (len && at[len - 1] == '\r') len--;
    const char *space = len ? memchr(at, ' ', len) : NULL;
    bool is_merge = len && !(len >= 8 && memcmp(at, "#version", 8) == 0);
    if (utf8_valid(at, len) != len || (is_merge && !space))
      return err_set(
          ERR_WORK,
          "%s, line %zu (byte %zu): is not two pieces with a space between; copy the "
          "model again",
          where, line, (size_t)(at - str_text(text)));
    if (is_merge) {
      ByteText a = {at, (size_t)(space - at)}, b = {space + 1, len - a.len - 1};
      TRY(byte_vocab_add_merge(v, a, b, where, "line", line));
    }
    at += (size_t)((stop ? stop + 1 : end) - at);
  }
  return byte_vocab_end_merges(v);
}

static Err read_pair(ByteVocab *v, json_t *vocab, const char *json_path, const Str *merges,
                     const char *merges_path) {
  TRY(byte_vocab_add_pieces(v, vocab, json_path));
  TRY(add_specials(v, json_path));
  TRY(byte_vocab_end_pieces(v, json_path));
  return read_merges(v, merges, merges_path);
}

Err byte_vocab_read_pair(ByteVocab *v, const Str *json, const char *json_path,
                         const Str *merges, const char *merges_path) {
  json_t *vocab;
  *v = (ByteVocab){.unknown = -1};
  TRY(load_json(str_text(json), json->len, json_path, &vocab));
  Err err = read_pair(v, vocab, json_path, merges, merges_path);
  json_decref(vocab);
  if (err) byte_vocab_free(v);
  return err;
}

/* ---- printing ---- */

/* Appends the inside of a JSON string. Pieces are UTF-8, because they were read from JSON. */
static void add_escaped(Str *out, const char *text) {
  for (; *text; text++) {
    if ((unsigned char)*text < 0x20)
      str_addf(out, "\\u%04x", *text);
    else if (*text == '"' || *text == '\\')
      str_addf(out, "\\%c", *text);
    else
      str_addc(out, *text);
  }
}

static void add_quoted(Str *out, const char *text) {
  str_addc(out, '"');
  add_escaped(out, text);
  str_addc(out, '"');
}

static const char *get_piece(const ByteVocab *v, int32_t id) {
  return stringmap_text(&v->pieces, v->piece[id]);
}

/* Appends the pieces in the order of their ids. */
Err byte_vocab_print_pieces(const ByteVocab *v, Str *out) {
  size_t printed = 0;
  str_add(out, "{");
  for (size_t id = 0; id < v->ids; id++) {
    if (v->piece[id] == UINT32_MAX) continue;
    if (printed++) str_add(out, ",");
    add_quoted(out, get_piece(v, (int32_t)id));
    str_addf(out, ":%zu", id);
  }
  str_add(out, "}");
  return str_check(out);
}

Err byte_vocab_print_merges(const ByteVocab *v, Str *out) {
  str_add(out, "#version: 0.2\n");
  for (size_t i = 0; i < v->merges; i++)
    str_addf(out, "%s %s\n", get_piece(v, v->merge[i].left), get_piece(v, v->merge[i].right));
  return str_check(out);
}

static const char *print_flag(bool flag) {
  return flag ? "true" : "false";
}

static void print_tokens(const ByteVocab *v, Str *out) {
  str_add(out, "\"added_tokens\":[");
  for (size_t i = 0; i < v->tokens; i++) {
    const ByteToken *t = &v->token[i];
    str_addf(out, "%s{\"id\":%d,\"content\":", i ? ",\n" : "\n", t->id);
    add_quoted(out, t->text);
    str_addf(out,
             ",\"single_word\":false,\"lstrip\":%s,\"rstrip\":%s,\"normalized\":%s,"
             "\"special\":%s}",
             print_flag(t->strips_left), print_flag(t->strips_right),
             print_flag(t->is_normalized), print_flag(t->is_special));
  }
  str_add(out, "],\n");
}

/* Appends what follows the words: <s> … </s>. Both are in every vocabulary that byte_bpe.c opens. */
static void print_processor(const ByteVocab *v, Str *out) {
  str_addf(out,
           "\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",%d],"
           "\"cls\":[\"<s>\",%d],\"trim_offsets\":true,\"add_prefix_space\":%s},\n",
           byte_vocab_find(v, "</s>", 4), byte_vocab_find(v, "<s>", 3),
           print_flag(v->adds_space));
}

/* Appends a merge as one string, "a b": half of the JSON values of a pair. */
static void print_merge(const ByteVocab *v, const ByteMerge *m, const char *comma, Str *out) {
  str_add(out, comma);
  str_addc(out, '"');
  add_escaped(out, get_piece(v, m->left));
  str_addc(out, ' ');
  add_escaped(out, get_piece(v, m->right));
  str_addc(out, '"');
}

static Err print_model(const ByteVocab *v, Str *out) {
  str_add(out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
  if (v->unknown < 0)
    str_add(out, "null");
  else
    add_quoted(out, get_piece(v, v->unknown));
  str_add(out,
          ",\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\","
          "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\n\"vocab\":");
  TRY(byte_vocab_print_pieces(v, out));
  str_add(out, ",\n\"merges\":[");
  for (size_t i = 0; i < v->merges; i++) print_merge(v, &v->merge[i], i ? "," : "", out);
  str_add(out, "]}");
  return str_check(out);
}

Err byte_vocab_print(const ByteVocab *v, Str *out) {
  str_add(out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n");
  print_tokens(v, out);
  str_addf(out,
           "\"normalizer\":null,\n\"pre_tokenizer\":{\"type\":\"ByteLevel\","
           "\"add_prefix_space\":%s,\"trim_offsets\":true,\"use_regex\":true},\n",
           print_flag(v->adds_space));
  print_processor(v, out);
  str_add(out,
          "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
          "\"trim_offsets\":true,\"use_regex\":true},\n");
  TRY(print_model(v, out));
  str_add(out, "}\n");
  return str_check(out);
}
