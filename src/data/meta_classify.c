/* Prints and parses dataset.json of texts with or without labels. Depends on base, meta.h, meta_json, Jansson. */
#include "data/meta_classify.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "data/shard.h"
#include "data/text_encoder.h"

/* The feature in the list `requires` is the name of the task: a version that does not know it refuses
 * the data set. */
#define WITH_LABELS    "classify"
#define WITHOUT_LABELS "mlm"

const char *const label_kind_name[LABEL_KINDS] = {"class", "multi", "number", "none"};

void meta_classify_free(MetaClassify *c) {
  if (!c) return;
  for (int s = 0; s < SPLITS; s++) mem_free(c->counts[s].labeled);
  mem_free(c->name);
  mem_free(c);
}

Err meta_classify_alloc(MetaClassify *c, size_t labels) {
  c->labels = labels;
  for (int s = 0; s < SPLITS; s++)
    TRY(mem_alloc(&c->counts[s].labeled, labels, sizeof *c->counts[s].labeled));
  return mem_alloc(&c->name, labels, sizeof *c->name);
}

const char *meta_classify_task(const MetaClassify *c) {
  return c->kind == LABEL_NONE ? WITHOUT_LABELS : WITH_LABELS;
}

/* ---- printing ---- */

static json_t *print_labeled(const MetaClassify *c, const MetaTextCounts *counts) {
  json_t *labeled = json_array();
  for (size_t i = 0; i < c->labels; i++)
    json_array_append_new(labeled, json_integer((json_int_t)counts->labeled[i]));
  return labeled;
}

static json_t *print_split(const Meta *m, Split split) {
  const MetaSplit *s = &m->split[split];
  const MetaTextCounts *counts = &m->classify->counts[split];
  json_t *sources = json_array(), *raw = json_array();
  for (size_t i = 0; i < s->sources; i++)
    json_array_append_new(sources, meta_print_source(&s->source[i]));
  if (s->raw[0].name[0]) json_array_append_new(raw, meta_print_file(&s->raw[0]));
  json_t *root =
      json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "rows", (json_int_t)s->lines, "examples",
                (json_int_t)s->pairs, "tokens", (json_int_t)s->tokens[0], "longest",
                (json_int_t)s->longest[0], "text_bytes", (json_int_t)s->text_bytes[0], "cut",
                (json_int_t)counts->cut, "empty", (json_int_t)counts->empty);
  if (m->classify->kind != LABEL_NONE)
    json_object_set_new(root, "labeled", print_labeled(m->classify, counts));
  json_object_set_new(root, "sources", sources);
  json_object_set_new(root, "shards",
                      json_integer((json_int_t)(s->shards ? s->shards : s->shards_listed)));
  json_object_set_new(root, "raw", raw);
  return root;
}

static json_t *print_tokenizer(const Meta *m) {
  const MetaClassify *c = m->classify;
  return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b}", "file",
                   c->tokenizer_file, "type", m->tokenizer_type, "sha256", m->tokenizer_sha256,
                   "vocab", m->vocab, "pad", m->pad, "cls", m->bos, "sep", m->eos, "unk",
                   m->unk, "mask", c->mask, "lower_case", c->is_lower, "strip_accents",
                   c->strips_accents);
}

static json_t *print_labels(const MetaClassify *c) {
  json_t *names = json_array();
  for (size_t i = 0; i < c->labels; i++) json_array_append_new(names, json_string(c->name[i]));
  json_t *labels = json_pack("{s:s, s:o, s:o}", "kind", label_kind_name[c->kind], "names",
                             names, "list", meta_print_file(&c->label_file));
  if (c->has_threshold) json_object_set_new(labels, "threshold", json_real(c->threshold));
  return labels;
}

json_t *meta_classify_print(const Meta *m) {
  const MetaClassify *c = m->classify;
  json_t *splits = json_object(), *columns = json_array();
  for (int s = 0; s < SPLITS; s++)
    if (m->split[s].lines) json_object_set_new(splits, split_name[s], print_split(m, (Split)s));
  for (size_t i = 0; i < c->texts && c->text_column[i][0]; i++)
    json_array_append_new(columns, json_string(c->text_column[i]));
  json_t *root = json_pack(
      "{s:s, s:i, s:s, s:I, s:o, s:{s:o, s:I}}", "format", "trireme-dataset", "version",
      m->format, "task", meta_classify_task(c), "seed", (json_int_t)m->seed, "tokenizer",
      print_tokenizer(m), "texts", "columns", columns, "max_tokens", (json_int_t)m->max_tokens);
  if (c->kind != LABEL_NONE) json_object_set_new(root, "labels", print_labels(c));
  json_object_set_new(root, "splits", splits);
  json_object_set_new(root, "requires", json_pack("[s]", meta_classify_task(c)));
  return root;
}

/* ---- parsing ---- */

bool meta_classify_is_required(const json_t *requires) {
  const char *first = json_string_value(json_array_get(requires, 0));
  return json_array_size(requires) == 1 && first &&
         (strcmp(first, WITH_LABELS) == 0 || strcmp(first, WITHOUT_LABELS) == 0);
}

/* Copies a name of a label or column. It is printed and written to labels.txt, so it has no control
 * characters. */
static void get_name(MetaParse *p, const json_t *from, const char *key,
                     char out[LABEL_NAME_SIZE]) {
  const char *text = json_string_value(from);
  size_t len = json_string_length(from);
  bool is_good = text && len > 0 && len < LABEL_NAME_SIZE && strlen(text) == len;
  for (size_t i = 0; is_good && i < len; i++) is_good = (unsigned char)text[i] >= 0x20;
  if (is_good)
    memcpy(out, text, len + 1);
  else
    meta_refuse_key(p, key, "a list of short names");
}

static LabelKind get_kind(MetaParse *p, const json_t *from) {
  char name[16] = "";
  meta_get_text(p, from, "kind", name, sizeof name);
  for (int k = 0; k < LABEL_NONE; k++)
    if (strcmp(name, label_kind_name[k]) == 0) return (LabelKind)k;
  meta_refuse_key(p, "kind", "class, multi or number");
  return LABEL_CLASS;
}

static Err get_labels(MetaParse *p, const json_t *root, MetaClassify *c) {
  const json_t *from = meta_get_object(p, root, "labels");
  const json_t *names = json_object_get(from, "names");
  c->kind = get_kind(p, from);
  size_t least = c->kind == LABEL_CLASS ? 2 : 1;
  size_t most = c->kind == LABEL_NUMBER ? LABEL_NUMBERS : LABELS_MAX;
  if (json_array_size(names) < least || json_array_size(names) > most)
    meta_refuse_key(p, "names", "a list of names");
  if (p->failed) return ERR_WORK;
  TRY(meta_classify_alloc(c, json_array_size(names)));
  for (size_t i = 0; i < c->labels; i++)
    get_name(p, json_array_get(names, i), "names", c->name[i]);
  c->has_threshold = json_object_get(from, "threshold") != NULL;
  if (c->has_threshold) c->threshold = meta_get_number(p, from, "threshold");
  meta_get_file(p, meta_get_object(p, from, "list"), &c->label_file);
  return p->failed ? ERR_WORK : ERR_OK;
}

static void get_tokenizer(MetaParse *p, const json_t *root, Meta *m) {
  const json_t *t = meta_get_object(p, root, "tokenizer");
  MetaClassify *c = m->classify;
  meta_get_text(p, t, "file", c->tokenizer_file, sizeof c->tokenizer_file);
  if (text_tokenizer_kind(c->tokenizer_file) == TEXT_TOKENIZERS)
    meta_refuse_key(p, "file", "vocab.txt, tokenizer.model or tokenizer.json");
  meta_get_text(p, t, "type", m->tokenizer_type, sizeof m->tokenizer_type);
  meta_get_sha256(p, t, m->tokenizer_sha256);
  m->vocab = (int)meta_get_int(p, t, "vocab", 1, INT32_MAX);
  m->pad = (int)meta_get_int(p, t, "pad", -1, m->vocab - 1);
  m->bos = (int)meta_get_int(p, t, "cls", 0, m->vocab - 1);
  m->eos = (int)meta_get_int(p, t, "sep", 0, m->vocab - 1);
  m->unk = (int)meta_get_int(p, t, "unk", -1, m->vocab - 1);
  c->mask = (int)meta_get_int(p, t, "mask", -1, m->vocab - 1);
  c->is_lower = meta_get_flag(p, t, "lower_case");
  c->strips_accents = meta_get_flag(p, t, "strip_accents");
}

static void get_texts(MetaParse *p, const json_t *root, Meta *m) {
  const json_t *texts = meta_get_object(p, root, "texts");
  const json_t *columns = json_object_get(texts, "columns");
  m->max_tokens = (uint32_t)meta_get_int(p, texts, "max_tokens", 1, SHARD_LONGEST);
  bool has_labels = m->classify->kind != LABEL_NONE;
  size_t names = json_array_size(columns);
  m->classify->texts = names ? names : 1; /* plain lines have no name */
  if (!json_is_array(columns) || names < has_labels || names > 1 + (size_t)has_labels) {
    meta_refuse_key(p, "columns",
                    has_labels ? "a list of one or two names" : "a list of one name at most");
    return;
  }
  for (size_t i = 0; i < names; i++)
    get_name(p, json_array_get(columns, i), "columns", m->classify->text_column[i]);
}

static void get_labeled(MetaParse *p, const json_t *from, size_t labels,
                        MetaTextCounts *counts) {
  const json_t *list = json_object_get(from, "labeled");
  if (json_array_size(list) != labels)
    meta_refuse_key(p, "labeled", "a list with a number for each label");
  for (size_t i = 0; i < labels && !p->failed; i++) {
    const json_t *texts = json_array_get(list, i);
    if (!json_is_integer(texts) || json_integer_value(texts) < 0)
      meta_refuse_key(p, "labeled", "a list of whole numbers that are not negative");
    counts->labeled[i] = (uint64_t)json_integer_value(texts);
  }
}

static Err get_split(MetaParse *p, const json_t *from, Meta *m, Split split) {
  MetaSplit *s = &m->split[split];
  MetaTextCounts *counts = &m->classify->counts[split];
  s->lines = meta_get_count(p, from, "rows");
  s->pairs = meta_get_count(p, from, "examples");
  s->tokens[0] = meta_get_count(p, from, "tokens");
  s->longest[0] = meta_get_count(p, from, "longest");
  s->text_bytes[0] = meta_get_count(p, from, "text_bytes");
  counts->cut = meta_get_count(p, from, "cut");
  counts->empty = meta_get_count(p, from, "empty");
  if (m->classify->kind != LABEL_NONE) get_labeled(p, from, m->classify->labels, counts);
  const json_t *list = json_object_get(from, "sources");
  for (size_t i = 0; i < json_array_size(list); i++) {
    MetaSource source = {0};
    meta_get_source(p, json_array_get(list, i), &source);
    if (p->failed) return ERR_WORK;
    TRY(meta_add_source(s, &source));
  }
  list = json_object_get(from, "raw");
  if (json_array_size(list)) meta_get_file(p, json_array_get(list, 0), &s->raw[0]);
  s->shards_listed = (size_t)meta_get_count(p, from, "shards");
  return p->failed ? ERR_WORK : ERR_OK;
}

/* Reads the task, which must be the required feature. */
static void get_task(MetaParse *p, const json_t *root, Meta *m) {
  const char *feature = json_string_value(json_array_get(json_object_get(root, "requires"), 0));
  char task[16] = "";
  meta_get_text(p, root, "task", task, sizeof task);
  if (!feature || strcmp(task, feature) != 0) meta_refuse_key(p, "task", WITH_LABELS);
  m->classify->kind = strcmp(task, WITHOUT_LABELS) == 0 ? LABEL_NONE : LABEL_CLASS;
}

Err meta_classify_parse(MetaParse *p, const json_t *root, Meta *m) {
  get_task(p, root, m);
  get_tokenizer(p, root, m);
  get_texts(p, root, m);
  if (m->classify->kind == LABEL_NONE && m->classify->mask < 0)
    meta_refuse_key(p, "mask", "the id of a piece");
  if (m->classify->kind == LABEL_NONE)
    TRY(meta_classify_alloc(m->classify, 0));
  else
    TRY(get_labels(p, root, m->classify));
  const json_t *splits = meta_get_object(p, root, "splits");
  for (int s = 0; s < SPLITS; s++) {
    const json_t *split = json_object_get(splits, split_name[s]);
    if (split) TRY(get_split(p, split, m, (Split)s));
  }
  return p->failed ? ERR_WORK : ERR_OK;
}
