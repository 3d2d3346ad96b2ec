/* Prints and parses dataset.json. Depends on base, clean, Jansson. */
#include "data/meta.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/jsondoc.h"
#include "base/mem.h"
#include "data/shard.h"

const char *const split_name[SPLITS] = {"train", "valid", "test"};
static const char *const side_name[2] = {"source", "target"};

void meta_free(Meta *meta) {
  for (int s = 0; s < SPLITS; s++) {
    mem_free(meta->split[s].source);
    mem_free(meta->split[s].shard);
  }
  *meta = (Meta){0};
}

Err meta_add_shard(MetaSplit *split, const MetaFile *file) {
  TRY(mem_grow(&split->shard, &split->shard_cap, split->shards + 1, sizeof *split->shard));
  split->shard[split->shards++] = *file;
  return ERR_OK;
}

Err meta_add_source(MetaSplit *split, const MetaSource *source) {
  TRY(mem_grow(&split->source, &split->source_cap, split->sources + 1, sizeof *split->source));
  split->source[split->sources++] = *source;
  return ERR_OK;
}

static json_t *print_sides(const uint64_t value[2]) {
  return json_pack("{s:I, s:I}", side_name[0], (json_int_t)value[0], side_name[1],
                   (json_int_t)value[1]);
}

static json_t *print_file(const MetaFile *f) {
  json_t *j = json_pack("{s:s, s:I, s:s}", "file", f->name, "bytes", (json_int_t)f->bytes,
                        "sha256", f->sha256);
  if (f->pairs) json_object_set_new(j, "pairs", json_integer((json_int_t)f->pairs));
  return j;
}

static json_t *print_source(const MetaSource *s) {
  json_t *files = json_array();
  for (int side = 0; side < 2 && s->name[side][0]; side++) {
    json_array_append_new(files,
                          json_pack("{s:s, s:I, s:s}", "file", s->name[side], "bytes",
                                    (json_int_t)s->bytes[side], "sha256", s->sha256[side]));
  }
  return json_pack("{s:I, s:o}", "lines", (json_int_t)s->lines, "files", files);
}

/* Format 1 lists the shards. Format 2 stores their number, which is known even before the
 * manifest is loaded. */
static json_t *print_shards(const MetaSplit *s, int format) {
  if (format > 1) return json_integer((json_int_t)(s->shards ? s->shards : s->shards_listed));
  json_t *shards = json_array();
  for (size_t i = 0; i < s->shards; i++)
    json_array_append_new(shards, print_file(&s->shard[i]));
  return shards;
}

static json_t *print_split(const MetaSplit *s, int format) {
  json_t *dropped = json_object();
  json_t *sources = json_array();
  json_t *raw = json_array();
  for (int side = 0; side < 2; side++) {
    if (s->raw[side].name[0]) json_array_append_new(raw, print_file(&s->raw[side]));
  }
  for (int v = CLEAN_KEEP + 1; v < CLEAN_VERDICTS; v++) {
    /* Omits the key "nul" if it is 0: earlier versions do not know it. */
    if (v == CLEAN_NUL && !s->dropped[v]) continue;
    json_object_set_new(dropped, clean_key[v], json_integer((json_int_t)s->dropped[v]));
  }
  for (size_t i = 0; i < s->sources; i++)
    json_array_append_new(sources, print_source(&s->source[i]));
  return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "lines",
                   (json_int_t)s->lines, "pairs", (json_int_t)s->pairs, "tokens",
                   print_sides(s->tokens), "longest", print_sides(s->longest), "text_bytes",
                   print_sides(s->text_bytes), "dropped", dropped, "sources", sources, "shards",
                   print_shards(s, format), "raw", raw);
}

Err meta_print(const Meta *m, Str *out) {
  json_t *splits = json_object();
  for (int s = 0; s < SPLITS; s++) {
    if (m->split[s].lines)
      json_object_set_new(splits, split_name[s], print_split(&m->split[s], m->format));
  }
  json_t *tokenizer =
      json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i}", "file", "tokenizer.model", "type",
                m->tokenizer_type, "sha256", m->tokenizer_sha256, "vocab", m->vocab, "pad",
                m->pad, "bos", m->bos, "eos", m->eos, "unk", m->unk);
  json_t *cleaning =
      json_pack("{s:I, s:I, s:f, s:I, s:I, s:b}", "min_words", (json_int_t)m->rules.min_words,
                "max_words", (json_int_t)m->rules.max_words, "max_ratio", m->rules.max_ratio,
                "max_word_length", (json_int_t)m->rules.max_word_length, "max_tokens",
                (json_int_t)m->max_tokens, "dedup", m->dedup);
  json_t *root = json_pack("{s:s, s:i, s:{s:s, s:s}, s:I, s:o, s:o, s:o}", "format",
                           "trireme-dataset", "version", m->format, "languages", side_name[0],
                           m->lang[0], side_name[1], m->lang[1], "seed", (json_int_t)m->seed,
                           "tokenizer", tokenizer, "cleaning", cleaning, "splits", splits);
  if (m->format > 1) json_object_set_new(root, "requires", json_array());
  if (m->manifest.name[0]) json_object_set_new(root, "manifest", print_file(&m->manifest));
  if (m->order.name[0]) json_object_set_new(root, "order", print_file(&m->order));
  char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
  if (text) {
    str_add(out, text);
    str_addc(out, '\n');
  }
  bool ok = text != NULL;
  if (ok) free(text); /* Jansson allocated the text with malloc. */
  json_decref(root);
  return ok ? str_check(out)
            : err_set(ERR_WORK,
                      "a name or text that is not UTF-8 cannot be stored in dataset.json; "
                      "rename the file");
}

/* State of parsing: the first error is stored with its path in the document, and everything after
 * it is skipped. */
typedef struct {
  const char *where;
  int format;
  bool failed;
} Parse;

static void refuse_key(Parse *p, const char *key, const char *expected) {
  if (!p->failed)
    err_set(ERR_WORK, "%s is damaged: '%s' should be %s; prepare the data set again", p->where,
            key, expected);
  p->failed = true;
}

static const json_t *get_object(Parse *p, const json_t *from, const char *key) {
  const json_t *j = json_object_get(from, key);
  if (!json_is_object(j)) refuse_key(p, key, "an object");
  return j;
}

static int64_t get_int(Parse *p, const json_t *from, const char *key, int64_t min,
                       int64_t max) {
  const json_t *j = json_object_get(from, key);
  if (!json_is_integer(j) || json_integer_value(j) < min || json_integer_value(j) > max) {
    char expected[64];
    snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, min,
             max);
    refuse_key(p, key, expected);
    return min;
  }
  return json_integer_value(j);
}

static uint64_t get_count(Parse *p, const json_t *from, const char *key) {
  return (uint64_t)get_int(p, from, key, 0, INT64_MAX);
}

static void get_text(Parse *p, const json_t *from, const char *key, char *out, size_t room) {
  const json_t *j = json_object_get(from, key);
  if (!json_is_string(j) || json_string_length(j) >= room ||
      strlen(json_string_value(j)) != json_string_length(j)) {
    refuse_key(p, key, "a short text");
    return;
  }
  memcpy(out, json_string_value(j), json_string_length(j) + 1);
}

static void get_sides(Parse *p, const json_t *from, const char *key, uint64_t value[2]) {
  const json_t *j = get_object(p, from, key);
  for (int side = 0; side < 2; side++) value[side] = get_count(p, j, side_name[side]);
}

static void get_sha256(Parse *p, const json_t *from, char out[65]) {
  get_text(p, from, "sha256", out, 65);
  if (!p->failed && strspn(out, "0123456789abcdef") != 64)
    refuse_key(p, "sha256", "64 hexadecimal digits");
}

/* Reads the entry of a file of the data set. Its name must not lead out of the directory. */
static void get_file(Parse *p, const json_t *from, MetaFile *f) {
  get_text(p, from, "file", f->name, sizeof f->name);
  if (strchr(f->name, '/') || f->name[0] == '.' || f->name[0] == '\0')
    refuse_key(p, "file", "a plain file name");
  f->bytes = get_count(p, from, "bytes");
  f->pairs = json_object_get(from, "pairs") ? get_count(p, from, "pairs") : 0;
  get_sha256(p, from, f->sha256);
}

static void get_source(Parse *p, const json_t *from, MetaSource *s) {
  s->lines = get_count(p, from, "lines");
  const json_t *files = json_object_get(from, "files");
  size_t n = json_array_size(files);
  if (n < 1 || n > 2) refuse_key(p, "files", "one file or two");
  for (size_t i = 0; i < n && i < 2; i++) {
    const json_t *file = json_array_get(files, i);
    get_text(p, file, "file", s->name[i], sizeof s->name[i]);
    s->bytes[i] = get_count(p, file, "bytes");
    get_sha256(p, file, s->sha256[i]);
  }
}

static Err get_shards(Parse *p, const json_t *from, MetaSplit *s) {
  const json_t *list = json_object_get(from, "shards");
  if (!json_is_array(list)) refuse_key(p, "shards", "a list");
  for (size_t i = 0; i < json_array_size(list); i++) {
    MetaFile file = {0};
    get_file(p, json_array_get(list, i), &file);
    if (p->failed) return ERR_WORK;
    TRY(meta_add_shard(s, &file));
  }
  return ERR_OK;
}

static Err get_shard_count(Parse *p, const json_t *from, MetaSplit *s) {
  s->shards_listed = (size_t)get_count(p, from, "shards");
  return p->failed ? ERR_WORK : ERR_OK;
}

static Err get_split(Parse *p, const json_t *from, MetaSplit *s) {
  s->lines = get_count(p, from, "lines");
  s->pairs = get_count(p, from, "pairs");
  get_sides(p, from, "tokens", s->tokens);
  get_sides(p, from, "longest", s->longest);
  get_sides(p, from, "text_bytes", s->text_bytes);
  const json_t *dropped = get_object(p, from, "dropped");
  for (int v = CLEAN_KEEP + 1; v < CLEAN_VERDICTS; v++) {
    if (v == CLEAN_NUL && !json_object_get(dropped, clean_key[v])) continue;
    s->dropped[v] = get_count(p, dropped, clean_key[v]);
  }
  const json_t *list = json_object_get(from, "sources");
  for (size_t i = 0; i < json_array_size(list); i++) {
    MetaSource source = {0};
    get_source(p, json_array_get(list, i), &source);
    if (p->failed) return ERR_WORK;
    TRY(meta_add_source(s, &source));
  }
  list = json_object_get(from, "raw");
  if (!json_is_array(list) || json_array_size(list) > 2)
    refuse_key(p, "raw", "a list of two files at most");
  for (size_t i = 0; i < json_array_size(list) && i < 2; i++)
    get_file(p, json_array_get(list, i), &s->raw[i]);
  return p->format > 1 ? get_shard_count(p, from, s) : get_shards(p, from, s);
}

/* Reads format, version and `requires`; refuses a file that a newer version of the program
 * wrote. */
static void get_format(Parse *p, const json_t *root, Meta *m) {
  char format[32] = "";
  if (!json_is_object(root)) refuse_key(p, "the document", "an object");
  get_text(p, root, "format", format, sizeof format);
  if (strcmp(format, "trireme-dataset") != 0) refuse_key(p, "format", "trireme-dataset");
  int64_t version = get_int(p, root, "version", 1, INT64_MAX);
  if (p->failed) return;
  p->format = version > META_FORMAT ? META_FORMAT : (int)version;
  m->format = p->format;
  const json_t *requires = json_object_get(root, "requires");
  bool is_list = !requires || json_is_array(requires);
  if (version <= META_FORMAT && is_list && json_array_size(requires) == 0) return;
  const char *first = json_string_value(json_array_get(requires, 0));
  p->failed = true;
  bool is_required = !is_list || json_array_size(requires) > 0;
  err_set(ERR_WORK,
          "%s has format %lld%s%s%s, but this version of trireme reads only formats 1 and 2 "
          "without required features; use the newer version of trireme that wrote it",
          p->where, (long long)version, is_required ? " and requires '" : "",
          !is_required ? ""
          : first      ? first
                       : "?",
          is_required ? "'" : "");
}

static Err get_meta(Parse *p, const json_t *root, Meta *m) {
  get_format(p, root, m);
  if (p->failed) return ERR_WORK;
  const json_t *lang = get_object(p, root, "languages");
  for (int side = 0; side < 2; side++)
    get_text(p, lang, side_name[side], m->lang[side], sizeof m->lang[side]);
  m->seed = get_count(p, root, "seed");
  const json_t *t = get_object(p, root, "tokenizer");
  get_text(p, t, "type", m->tokenizer_type, sizeof m->tokenizer_type);
  get_sha256(p, t, m->tokenizer_sha256);
  m->vocab = (int)get_int(p, t, "vocab", 1, INT32_MAX);
  m->pad = (int)get_int(p, t, "pad", -1, m->vocab - 1);
  m->bos = (int)get_int(p, t, "bos", -1, m->vocab - 1);
  m->eos = (int)get_int(p, t, "eos", 0, m->vocab - 1);
  m->unk = (int)get_int(p, t, "unk", -1, m->vocab - 1);
  const json_t *c = get_object(p, root, "cleaning");
  m->rules.min_words = (uint32_t)get_int(p, c, "min_words", 0, UINT32_MAX);
  m->rules.max_words = (uint32_t)get_int(p, c, "max_words", 0, UINT32_MAX);
  m->rules.max_word_length = (uint32_t)get_int(p, c, "max_word_length", 0, UINT32_MAX);
  m->max_tokens = (uint32_t)get_int(p, c, "max_tokens", 1, SHARD_LONGEST);
  m->rules.max_ratio = json_number_value(json_object_get(c, "max_ratio"));
  m->dedup = json_is_true(json_object_get(c, "dedup"));
  const json_t *splits = get_object(p, root, "splits");
  for (int s = 0; s < SPLITS; s++) {
    const json_t *split = json_object_get(splits, split_name[s]);
    if (split) TRY(get_split(p, split, &m->split[s]));
  }
  const json_t *order = json_object_get(root, "order");
  if (order) get_file(p, order, &m->order);
  const json_t *manifest = json_object_get(root, "manifest");
  if (manifest) get_file(p, manifest, &m->manifest);
  return p->failed ? ERR_WORK : ERR_OK;
}

Err meta_parse(Meta *meta, const char *text, size_t len, const char *where) {
  *meta = (Meta){0};
  json_error_t error;
  TRY(jsondoc_check(text, len, where));
  json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
  if (!root)
    return err_set(ERR_WORK, "%s:%d: not JSON: %s; prepare the data set again", where,
                   error.line, error.text);
  Parse parse = {.where = where};
  Err err = get_meta(&parse, root, meta);
  json_decref(root);
  if (err) meta_free(meta);
  return err;
}
