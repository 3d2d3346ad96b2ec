/* Prints and parses dataset.json. Depends on base, clean, Jansson. */
#include "data/meta.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/jsondoc.h"
#include "base/mem.h"
#include "data/meta_classify.h"
#include "data/meta_json.h"
#include "data/shard.h"

static const char *const side_name[2] = {"source", "target"};

void meta_free(Meta *meta) {
  for (int s = 0; s < SPLITS; s++) {
    mem_free(meta->split[s].source);
    mem_free(meta->split[s].shard);
  }
  meta_classify_free(meta->classify);
  *meta = (Meta){0};
}

const char *meta_task(const Meta *meta) {
  return meta->classify ? meta_classify_task(meta->classify) : "translate";
}

static json_t *print_sides(const uint64_t value[2]) {
  return json_pack("{s:I, s:I}", side_name[0], (json_int_t)value[0], side_name[1],
                   (json_int_t)value[1]);
}

/* Format 1 lists the shards. Format 2 stores their number, which is known even before the
 * manifest is loaded. */
static json_t *print_shards(const MetaSplit *s, int format) {
  if (format > 1) return json_integer((json_int_t)(s->shards ? s->shards : s->shards_listed));
  json_t *shards = json_array();
  for (size_t i = 0; i < s->shards; i++)
    json_array_append_new(shards, meta_print_file(&s->shard[i]));
  return shards;
}

static json_t *print_split(const MetaSplit *s, int format) {
  json_t *dropped = json_object();
  json_t *sources = json_array();
  json_t *raw = json_array();
  for (int side = 0; side < 2; side++) {
    if (s->raw[side].name[0]) json_array_append_new(raw, meta_print_file(&s->raw[side]));
  }
  for (int v = CLEAN_KEEP + 1; v < CLEAN_VERDICTS; v++) {
    /* Omits the key "nul" if it is 0: earlier versions do not know it. */
    if (v == CLEAN_NUL && !s->dropped[v]) continue;
    json_object_set_new(dropped, clean_key[v], json_integer((json_int_t)s->dropped[v]));
  }
  for (size_t i = 0; i < s->sources; i++)
    json_array_append_new(sources, meta_print_source(&s->source[i]));
  return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "lines",
                   (json_int_t)s->lines, "pairs", (json_int_t)s->pairs, "tokens",
                   print_sides(s->tokens), "longest", print_sides(s->longest), "text_bytes",
                   print_sides(s->text_bytes), "dropped", dropped, "sources", sources, "shards",
                   print_shards(s, format), "raw", raw);
}

static json_t *print_translate(const Meta *m) {
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
  return root;
}

Err meta_print(const Meta *m, Str *out) {
  json_t *root = m->classify ? meta_classify_print(m) : print_translate(m);
  if (m->manifest.name[0]) json_object_set_new(root, "manifest", meta_print_file(&m->manifest));
  if (m->order.name[0]) json_object_set_new(root, "order", meta_print_file(&m->order));
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

static void get_sides(MetaParse *p, const json_t *from, const char *key, uint64_t value[2]) {
  const json_t *j = meta_get_object(p, from, key);
  for (int side = 0; side < 2; side++) value[side] = meta_get_count(p, j, side_name[side]);
}

static Err get_shards(MetaParse *p, const json_t *from, MetaSplit *s) {
  const json_t *list = json_object_get(from, "shards");
  if (!json_is_array(list)) meta_refuse_key(p, "shards", "a list");
  for (size_t i = 0; i < json_array_size(list); i++) {
    MetaFile file = {0};
    meta_get_file(p, json_array_get(list, i), &file);
    if (p->failed) return ERR_WORK;
    TRY(meta_add_shard(s, &file));
  }
  return ERR_OK;
}

static Err get_shard_count(MetaParse *p, const json_t *from, MetaSplit *s) {
  s->shards_listed = (size_t)meta_get_count(p, from, "shards");
  return p->failed ? ERR_WORK : ERR_OK;
}

static Err get_split(MetaParse *p, const json_t *from, MetaSplit *s) {
  s->lines = meta_get_count(p, from, "lines");
  s->pairs = meta_get_count(p, from, "pairs");
  get_sides(p, from, "tokens", s->tokens);
  get_sides(p, from, "longest", s->longest);
  get_sides(p, from, "text_bytes", s->text_bytes);
  const json_t *dropped = meta_get_object(p, from, "dropped");
  for (int v = CLEAN_KEEP + 1; v < CLEAN_VERDICTS; v++) {
    if (v == CLEAN_NUL && !json_object_get(dropped, clean_key[v])) continue;
    s->dropped[v] = meta_get_count(p, dropped, clean_key[v]);
  }
  const json_t *list = json_object_get(from, "sources");
  for (size_t i = 0; i < json_array_size(list); i++) {
    MetaSource source = {0};
    meta_get_source(p, json_array_get(list, i), &source);
    if (p->failed) return ERR_WORK;
    TRY(meta_add_source(s, &source));
  }
  list = json_object_get(from, "raw");
  if (!json_is_array(list) || json_array_size(list) > 2)
    meta_refuse_key(p, "raw", "a list of two files at most");
  for (size_t i = 0; i < json_array_size(list) && i < 2; i++)
    meta_get_file(p, json_array_get(list, i), &s->raw[i]);
  return p->format > 1 ? get_shard_count(p, from, s) : get_shards(p, from, s);
}

/* Reads format, version and `requires`; refuses a file that a newer version of the program
 * wrote. */
static void get_format(MetaParse *p, const json_t *root, Meta *m) {
  char format[32] = "";
  if (!json_is_object(root)) meta_refuse_key(p, "the document", "an object");
  meta_get_text(p, root, "format", format, sizeof format);
  if (strcmp(format, "trireme-dataset") != 0) meta_refuse_key(p, "format", "trireme-dataset");
  int64_t version = meta_get_int(p, root, "version", 1, INT64_MAX);
  if (p->failed) return;
  p->format = version > META_FORMAT ? META_FORMAT : (int)version;
  m->format = p->format;
  const json_t *requires = json_object_get(root, "requires");
  bool is_list = !requires || json_is_array(requires);
  if (version <= META_FORMAT && is_list && json_array_size(requires) == 0) return;
  if (version == META_FORMAT && is_list && meta_classify_is_required(requires)) {
    if (mem_alloc(&m->classify, 1, sizeof *m->classify)) p->failed = true;
    return;
  }
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

static Err get_translate(MetaParse *p, const json_t *root, Meta *m) {
  const json_t *lang = meta_get_object(p, root, "languages");
  for (int side = 0; side < 2; side++)
    meta_get_text(p, lang, side_name[side], m->lang[side], sizeof m->lang[side]);
  const json_t *t = meta_get_object(p, root, "tokenizer");
  meta_get_text(p, t, "type", m->tokenizer_type, sizeof m->tokenizer_type);
  meta_get_sha256(p, t, m->tokenizer_sha256);
  m->vocab = (int)meta_get_int(p, t, "vocab", 1, INT32_MAX);
  m->pad = (int)meta_get_int(p, t, "pad", -1, m->vocab - 1);
  m->bos = (int)meta_get_int(p, t, "bos", -1, m->vocab - 1);
  m->eos = (int)meta_get_int(p, t, "eos", 0, m->vocab - 1);
  m->unk = (int)meta_get_int(p, t, "unk", -1, m->vocab - 1);
  const json_t *c = meta_get_object(p, root, "cleaning");
  m->rules.min_words = (uint32_t)meta_get_int(p, c, "min_words", 0, UINT32_MAX);
  m->rules.max_words = (uint32_t)meta_get_int(p, c, "max_words", 0, UINT32_MAX);
  m->rules.max_word_length = (uint32_t)meta_get_int(p, c, "max_word_length", 0, UINT32_MAX);
  m->max_tokens = (uint32_t)meta_get_int(p, c, "max_tokens", 1, SHARD_LONGEST);
  m->rules.max_ratio = meta_get_number(p, c, "max_ratio");
  m->dedup = meta_get_flag(p, c, "dedup");
  const json_t *splits = meta_get_object(p, root, "splits");
  for (int s = 0; s < SPLITS; s++) {
    const json_t *split = json_object_get(splits, split_name[s]);
    if (split) TRY(get_split(p, split, &m->split[s]));
  }
  return p->failed ? ERR_WORK : ERR_OK;
}

static Err get_meta(MetaParse *p, const json_t *root, Meta *m) {
  get_format(p, root, m);
  if (p->failed) return ERR_WORK;
  m->seed = meta_get_count(p, root, "seed");
  TRY(m->classify ? meta_classify_parse(p, root, m) : get_translate(p, root, m));
  const json_t *order = json_object_get(root, "order");
  if (order) meta_get_file(p, order, &m->order);
  const json_t *manifest = json_object_get(root, "manifest");
  if (manifest) meta_get_file(p, manifest, &m->manifest);
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
  MetaParse parse = {.where = where};
  Err err = get_meta(&parse, root, meta);
  json_decref(root);
  if (err) meta_free(meta);
  return err;
}
