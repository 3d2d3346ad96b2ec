/* Writes and reads the columns of labeled texts. Depends on shard, meta. */
#include "data/text_shard.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define IDS     "ids"
#define SEGMENT "segment"
#define LABEL   "label"
#define LABELS  "labels"

static void name_value(char name[32], size_t i) {
  snprintf(name, 32, "value-%zu", i);
}

/* ---- writing ---- */

static size_t add_label_columns(ShardColumnSpec *column, char (*name)[32],
                                const MetaClassify *c) {
  if (c->kind == LABEL_CLASS) {
    *column =
        (ShardColumnSpec){.name = LABEL, .kind = SHARD_LABEL, .vocab = (uint32_t)c->labels};
    return 1;
  }
  if (c->kind == LABEL_MULTI) {
    *column = (ShardColumnSpec){.name = LABELS,
                                .kind = SHARD_IDS,
                                .vocab = 2 * (uint32_t)c->labels,
                                .tokenizer_sha256 = c->label_file.sha256};
    return 1;
  }
  for (size_t i = 0; i < c->labels; i++) {
    name_value(name[i], i);
    column[i] = (ShardColumnSpec){.name = name[i], .kind = SHARD_FLOAT};
  }
  return c->labels;
}

Err text_shard_begin(ShardBuilder *b, const Meta *m) {
  ShardColumnSpec column[2 + LABEL_NUMBERS];
  char name[LABEL_NUMBERS][32];
  size_t n = 0;
  column[n++] = (ShardColumnSpec){.name = IDS,
                                  .kind = SHARD_IDS,
                                  .vocab = (uint32_t)m->vocab,
                                  .tokenizer_sha256 = m->tokenizer_sha256};
  if (m->classify->texts == 2)
    column[n++] =
        (ShardColumnSpec){.name = SEGMENT, .kind = SHARD_LABEL, .vocab = SHARD_LONGEST + 1};
  n += add_label_columns(&column[n], name, m->classify);
  return shard_begin(b, column, n);
}

/* Lists the labels of an example. list: (labels); returns their number. */
static size_t list_labels(const MetaClassify *c, const float *value, int32_t *list) {
  size_t n = 0;
  for (size_t i = 0; i < c->labels; i++) {
    if (isnan(value[i]))
      list[n++] = (int32_t)(c->labels + i);
    else if (value[i] != 0)
      list[n++] = (int32_t)i;
  }
  return n;
}

Err text_shard_add(ShardBuilder *b, const Meta *m, const TextExample *e) {
  const MetaClassify *c = m->classify;
  ShardValues values[2 + LABEL_NUMBERS];
  int32_t first = (int32_t)e->first, *list = NULL;
  size_t n = 0;
  values[n++] = (ShardValues){e->ids, e->tokens};
  if (c->texts == 2) values[n++] = (ShardValues){&first, 1};
  if (c->kind == LABEL_CLASS) values[n++] = (ShardValues){&e->label, 1};
  if (c->kind == LABEL_MULTI) {
    TRY(mem_alloc(&list, c->labels, sizeof *list));
    size_t count = list_labels(c, e->value, list);
    values[n++] = (ShardValues){list, count};
  }
  for (size_t i = 0; c->kind == LABEL_NUMBER && i < c->labels; i++)
    values[n++] = (ShardValues){&e->value[i], 1};
  Err err = shard_add(b, values);
  mem_free(list);
  return err;
}

/* ---- reading ---- */

static Err refuse_shard(const Shard *s, const char *column) {
  return err_set(ERR_WORK,
                 "%s does not belong to this data set: column '%s' is missing or differs from "
                 "dataset.json; prepare the data set again",
                 s->file.map.path, column);
}

/* Fails unless the shard has such a column. sha256: NULL: is not compared. */
static Err check_column(const Shard *s, const char *name, ShardKind kind, uint32_t vocab,
                        const char *sha256) {
  const ShardColumn *c = shard_column(s, name);
  bool is_own = c && c->kind == kind && c->vocab == vocab &&
                (!sha256 || strcmp(c->tokenizer_sha256, sha256) == 0);
  return is_own ? ERR_OK : refuse_shard(s, name);
}

static bool is_used(const MetaClassify *c, const char *name) {
  static const char *const label[LABEL_KINDS] = {LABEL, LABELS, "value-", NULL};
  if (strcmp(name, IDS) == 0) return true;
  if (strcmp(name, SEGMENT) == 0) return c->texts == 2;
  return label[c->kind] && strncmp(name, label[c->kind], strlen(label[c->kind])) == 0;
}

static Err check_unknown(const Shard *s, const MetaClassify *c) {
  for (size_t i = 0; i < s->columns; i++) {
    if (!s->column[i].is_required || is_used(c, s->column[i].name)) continue;
    return err_set(ERR_WORK,
                   "%s has a required column '%s', which this trireme does not use; it was "
                   "written by a newer version of trireme: use that version",
                   s->file.map.path, s->column[i].name);
  }
  return ERR_OK;
}

Err text_shard_check(const Shard *s, const Meta *m) {
  const MetaClassify *c = m->classify;
  TRY(check_unknown(s, c));
  TRY(check_column(s, IDS, SHARD_IDS, (uint32_t)m->vocab, m->tokenizer_sha256));
  if (c->texts == 2) TRY(check_column(s, SEGMENT, SHARD_LABEL, SHARD_LONGEST + 1, NULL));
  if (c->kind == LABEL_CLASS)
    return check_column(s, LABEL, SHARD_LABEL, (uint32_t)c->labels, NULL);
  if (c->kind == LABEL_MULTI)
    return check_column(s, LABELS, SHARD_IDS, 2 * (uint32_t)c->labels, c->label_file.sha256);
  for (size_t i = 0; i < c->labels; i++) {
    char name[32];
    name_value(name, i);
    TRY(check_column(s, name, SHARD_FLOAT, 0, NULL));
  }
  return ERR_OK;
}

Err text_shard_length(Shard *s, uint64_t i, uint32_t *tokens) {
  ShardValues values;
  TRY(shard_get(s, shard_column(s, IDS), i, &values));
  *tokens = (uint32_t)values.count;
  return ERR_OK;
}

static Err refuse_example(const Shard *s, uint64_t i, const char *why) {
  return err_set(ERR_WORK, "%s is damaged: example %llu %s; prepare the data set again",
                 s->file.map.path, (unsigned long long)i, why);
}

Err text_shard_ids(Shard *s, const Meta *m, uint64_t i, int32_t *ids, size_t most,
                   uint32_t *tokens, uint32_t *first) {
  const ShardColumn *c = shard_column(s, IDS);
  ShardValues values;
  TRY(shard_get(s, c, i, &values));
  if (values.count == 0 || values.count > m->max_tokens || values.count > most)
    return refuse_example(s, i, "has no tokens, or more than expected");
  *tokens = (uint32_t)values.count;
  *first = *tokens;
  if (m->classify->texts == 2) {
    int32_t segment;
    TRY(shard_get_label(s, shard_column(s, SEGMENT), i, &segment));
    if (segment < 1 || (uint32_t)segment > *tokens)
      return refuse_example(s, i, "has a first text that is longer than both texts");
    *first = (uint32_t)segment;
  }
  return shard_copy_ids(s, c, &values, ids);
}

size_t text_targets(const MetaClassify *c) {
  return c->kind == LABEL_CLASS ? 1 : c->labels;
}

/* Reads the list of labels. A list never has more entries than there are labels. */
static Err read_labels(Shard *s, const MetaClassify *c, uint64_t i, float *target) {
  const ShardColumn *column = shard_column(s, LABELS);
  ShardValues values;
  TRY(shard_get(s, column, i, &values));
  if (values.count > c->labels) return refuse_example(s, i, "has more labels than there are");
  for (size_t k = 0; k < c->labels; k++) target[k] = 0;
  for (size_t k = 0; k < values.count; k++) {
    const uint8_t *at = (const uint8_t *)values.at + k * column->element_bytes;
    int32_t label;
    TRY(shard_copy_ids(s, column, &(ShardValues){at, 1}, &label));
    bool is_known = (size_t)label < c->labels;
    target[is_known ? (size_t)label : (size_t)label - c->labels] = is_known ? 1 : NAN;
  }
  return ERR_OK;
}

Err text_shard_target(Shard *s, const Meta *m, uint64_t i, float *target) {
  const MetaClassify *c = m->classify;
  if (c->kind == LABEL_CLASS) {
    int32_t label;
    TRY(shard_get_label(s, shard_column(s, LABEL), i, &label));
    *target = (float)label;
    return ERR_OK;
  }
  if (c->kind == LABEL_MULTI) return read_labels(s, c, i, target);
  for (size_t k = 0; k < c->labels; k++) {
    char name[32];
    name_value(name, k);
    TRY(shard_get_float(s, shard_column(s, name), i, &target[k]));
    if (isinf(target[k])) return refuse_example(s, i, "has a value that is not finite");
  }
  return ERR_OK;
}
