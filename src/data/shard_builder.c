/* Writes shards of format 2: header, directory, then the values and the index of each group of
 * columns, then the block checksums. Depends on base, checked. */
#include <string.h>

#include "base/mem.h"
#include "data/shard.h"
#include "data/shard_file.h"

#define ALIGNMENT 8u /* alignment of every section of the file, in bytes */

static uint32_t choose_element_bytes(const ShardColumnSpec *c) {
  bool is_numbered = c->kind == SHARD_IDS || c->kind == SHARD_LABEL;
  return is_numbered && c->vocab <= 65536 ? 2 : 4;
}

static bool is_ragged(ShardKind kind) {
  return kind == SHARD_IDS || kind == SHARD_PAIRS;
}

static Err check_spec(const ShardColumnSpec *c) {
  size_t len = strlen(c->name);
  bool has_vocab = c->kind == SHARD_IDS || c->kind == SHARD_LABEL;
  if (len == 0 || len >= sizeof((ShardEntry *)0)->name)
    return err_set(ERR_WORK, "a shard column needs a name of 1 to 31 characters, not '%s'",
                   c->name);
  if (has_vocab ? c->vocab == 0 || c->vocab > INT32_MAX : c->vocab != 0)
    return err_set(ERR_WORK,
                   "shard column '%s': a vocabulary of %u is invalid: ids and labels need 1 to "
                   "2147483647, other columns 0",
                   c->name, c->vocab);
  if ((c->kind == SHARD_IDS) != (c->tokenizer_sha256 != NULL))
    return err_set(ERR_WORK, "shard column '%s': ids have a tokenizer, other columns have none",
                   c->name);
  return ERR_OK;
}

/* Returns the group for a new column: an existing one if both contain ids of the same size,
 * otherwise a new one. */
static ShardGroup *choose_group(ShardBuilder *b, ShardKind kind, uint32_t element_bytes) {
  for (size_t i = 0; kind == SHARD_IDS && i < b->columns; i++) {
    ShardGroup *g = &b->group[b->column[i].group];
    if (b->column[i].kind == SHARD_IDS && g->element_bytes == element_bytes &&
        g->members < SHARD_MEMBERS_MAX)
      return g;
  }
  ShardGroup *g = &b->group[b->groups++];
  g->element_bytes = element_bytes;
  g->is_ragged = is_ragged(kind);
  return g;
}

static Err add_column(ShardBuilder *b, const ShardColumnSpec *spec) {
  TRY(check_spec(spec));
  for (size_t i = 0; i < b->columns; i++) {
    if (strcmp(b->column[i].name, spec->name) == 0)
      return err_set(ERR_WORK, "a shard cannot have two columns '%s'", spec->name);
  }
  ShardGroup *g = choose_group(b, spec->kind, choose_element_bytes(spec));
  ShardBuilderColumn *c = &b->column[b->columns++];
  memcpy(c->name, spec->name, strlen(spec->name) + 1);
  c->kind = spec->kind;
  c->vocab = spec->vocab;
  c->is_optional = spec->is_optional;
  if (spec->tokenizer_sha256) memcpy(c->tokenizer_sha256, spec->tokenizer_sha256, 65);
  c->group = (uint32_t)(g - b->group);
  c->place = g->members++;
  return ERR_OK;
}

Err shard_begin(ShardBuilder *b, const ShardColumnSpec *column, size_t columns) {
  *b = (ShardBuilder){0};
  if (columns == 0 || columns > SHARD_COLUMNS_MAX)
    return err_set(ERR_WORK, "a shard has 1 to %u columns, not %zu", SHARD_COLUMNS_MAX,
                   columns);
  Err err = mem_alloc(&b->column, columns, sizeof *b->column);
  if (!err) err = mem_alloc(&b->group, columns, sizeof *b->group);
  for (size_t i = 0; i < columns && !err; i++) err = add_column(b, &column[i]);
  if (err) shard_builder_free(b);
  return err;
}

Err shard_begin_pairs(ShardBuilder *b, uint32_t vocab, const char *tokenizer_sha256) {
  ShardColumnSpec column[2] = {{.name = SHARD_SOURCE,
                                .kind = SHARD_IDS,
                                .vocab = vocab,
                                .tokenizer_sha256 = tokenizer_sha256},
                               {.name = SHARD_TARGET,
                                .kind = SHARD_IDS,
                                .vocab = vocab,
                                .tokenizer_sha256 = tokenizer_sha256}};
  return shard_begin(b, column, 2);
}

/* Ensures that the buffer has room for `bytes` more bytes. */
static Err reserve_bytes(ShardBuffer *buffer, size_t bytes) {
  return mem_grow(&buffer->bytes, &buffer->cap, buffer->len + bytes, 1);
}

static Err check_values(const ShardBuilderColumn *c, const ShardValues *v) {
  size_t longest = c->kind == SHARD_IDS     ? SHARD_LONGEST
                   : c->kind == SHARD_PAIRS ? UINT16_MAX
                                            : 1;
  if (v->count > longest || (!is_ragged(c->kind) && v->count != 1))
    return err_set(ERR_WORK, "%zu values do not fit column '%s', which has %s %zu per example",
                   v->count, c->name, is_ragged(c->kind) ? "at most" : "exactly", longest);
  if (c->kind != SHARD_LABEL) return ERR_OK;
  int32_t label = *(const int32_t *)v->at;
  if (label >= 0 && (uint32_t)label < c->vocab) return ERR_OK;
  return err_set(ERR_WORK, "label %d is not one of the %u classes of column '%s'", label,
                 c->vocab, c->name);
}

/* Appends values; the memory must be reserved. Narrows ids and labels to 2 bytes if the group has
 * such elements. */
static void append_values(ShardGroup *g, ShardKind kind, const ShardValues *v) {
  uint8_t *to = g->values.bytes + g->values.len;
  g->values.len += v->count * g->element_bytes;
  if ((kind == SHARD_IDS || kind == SHARD_LABEL) && g->element_bytes == 2) {
    const int32_t *from = v->at;
    uint16_t *narrow = (uint16_t *)(void *)to;
    for (size_t i = 0; i < v->count; i++) narrow[i] = (uint16_t)from[i];
  } else if (v->count) {
    memcpy(to, v->at, v->count * g->element_bytes);
  }
}

/* Reserves memory for the example in every group, so that appending it cannot fail. */
static Err reserve_example(ShardBuilder *b, const ShardValues *values) {
  size_t elements[SHARD_COLUMNS_MAX] = {0};
  for (size_t i = 0; i < b->columns; i++) {
    TRY(check_values(&b->column[i], &values[i]));
    elements[b->column[i].group] += values[i].count;
  }
  for (size_t i = 0; i < b->groups; i++) {
    ShardGroup *g = &b->group[i];
    if (g->values.len / g->element_bytes + elements[i] > UINT32_MAX)
      return err_set(
          ERR_WORK,
          "a shard cannot have more than 4,294,967,295 values; use a smaller --shard-size");
    TRY(reserve_bytes(&g->values, elements[i] * g->element_bytes));
    if (g->is_ragged) TRY(reserve_bytes(&g->index, shard_index_bytes(g->members)));
  }
  return ERR_OK;
}

Err shard_add(ShardBuilder *b, const ShardValues *values) {
  TRY(reserve_example(b, values));
  for (size_t i = 0; i < b->groups; i++) {
    ShardGroup *g = &b->group[i];
    if (!g->is_ragged) continue;
    uint32_t first = (uint32_t)(g->values.len / g->element_bytes);
    memset(g->index.bytes + g->index.len, 0, shard_index_bytes(g->members));
    memcpy(g->index.bytes + g->index.len, &first, sizeof first);
  }
  for (size_t i = 0; i < b->columns; i++) {
    ShardGroup *g = &b->group[b->column[i].group];
    uint16_t count = (uint16_t)values[i].count;
    if (g->is_ragged)
      memcpy(g->index.bytes + g->index.len + 4 + 2 * b->column[i].place, &count, sizeof count);
    append_values(g, b->column[i].kind, &values[i]);
  }
  for (size_t i = 0; i < b->groups; i++) {
    ShardGroup *g = &b->group[i];
    if (g->is_ragged) g->index.len += shard_index_bytes(g->members);
  }
  b->examples++;
  return ERR_OK;
}

Err shard_add_pair(ShardBuilder *b, const int32_t *source, size_t source_len,
                   const int32_t *target, size_t target_len) {
  return shard_add(b, (ShardValues[]){{source, source_len}, {target, target_len}});
}

size_t shard_bytes(const ShardBuilder *b) {
  size_t bytes = 0;
  for (size_t i = 0; i < b->groups; i++) bytes += b->group[i].values.len;
  return bytes;
}

static uint64_t align_up(uint64_t offset) {
  return (offset + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

static void hex_to_bytes(const char *hex, uint8_t out[32]) {
  for (size_t i = 0; i < 64; i++) {
    unsigned digit = (unsigned)(hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10);
    out[i / 2] = (uint8_t)((unsigned)out[i / 2] << 4 | digit);
  }
}

/* Assigns file offsets: fills the entries of the column directory (`entry`, one per column) and
 * returns the offset at which the values and indexes end and the checksums begin. */
static uint64_t lay_out_file(const ShardBuilder *b, ShardEntry *entry) {
  uint64_t end = sizeof(ShardHeader2) + b->columns * sizeof *entry;
  for (size_t i = 0; i < b->groups; i++) {
    const ShardGroup *g = &b->group[i];
    uint64_t values = end;
    uint64_t index = g->is_ragged ? align_up(values + g->values.len) : 0;
    end = align_up(g->is_ragged ? index + g->index.len : values + g->values.len);
    for (size_t k = 0; k < b->columns; k++) {
      const ShardBuilderColumn *c = &b->column[k];
      if (c->group != i) continue;
      memcpy(entry[k].name, c->name, sizeof c->name);
      entry[k].kind = (uint32_t)c->kind;
      entry[k].element_bytes = g->element_bytes;
      entry[k].flags = c->is_optional ? 0 : SHARD_COLUMN_REQUIRED;
      entry[k].vocabulary = c->vocab;
      entry[k].offset = values;
      entry[k].length = g->values.len;
      entry[k].index = index;
      entry[k].place = c->place;
      entry[k].members = g->members;
      if (c->kind == SHARD_IDS) hex_to_bytes(c->tokenizer_sha256, entry[k].tokenizer);
    }
  }
  return end;
}

/* Writes the bytes and zeros up to the next multiple of ALIGNMENT. */
static Err put_aligned(CheckedTable *table, FileWriter *w, const void *bytes, size_t len) {
  static const uint8_t zeros[ALIGNMENT];
  TRY(checked_put(table, w, bytes, len));
  return checked_put(table, w, zeros, (size_t)(align_up(len) - len));
}

static Err write_parts(const ShardBuilder *b, FileWriter *w, CheckedTable *table) {
  ShardEntry entry[SHARD_COLUMNS_MAX] = {0};
  ShardHeader2 header = {.version = 2};
  memcpy(header.magic, SHARD_MAGIC, sizeof header.magic);
  header.columns = (uint32_t)b->columns;
  header.examples = b->examples;
  header.directory = sizeof header;
  header.entry_bytes = sizeof *entry;
  header.block = (uint32_t)CHECKED_BLOCK;
  header.payload = lay_out_file(b, entry);
  TRY(checked_put(table, w, &header, sizeof header));
  TRY(checked_put(table, w, entry, b->columns * sizeof *entry));
  for (size_t i = 0; i < b->groups; i++) {
    TRY(put_aligned(table, w, b->group[i].values.bytes, b->group[i].values.len));
    TRY(put_aligned(table, w, b->group[i].index.bytes, b->group[i].index.len));
  }
  return checked_write(table, w);
}

static void remove_examples(ShardBuilder *b) {
  b->examples = 0;
  for (size_t i = 0; i < b->groups; i++) {
    b->group[i].values.len = 0;
    b->group[i].index.len = 0;
  }
}

Err shard_write(ShardBuilder *b, const char *path, uint64_t *bytes, char sha256[65]) {
  char beside[FILE_PATH_MAX];
  int n = snprintf(beside, sizeof beside, "%s.tmp", path);
  if (n < 0 || n >= FILE_PATH_MAX)
    return err_set(ERR_WORK, "the path %s is too long; choose a directory with a shorter path",
                   path);
  FileWriter w;
  CheckedTable table = {0};
  TRY(file_create(&w, beside));
  Err err = write_parts(b, &w, &table);
  *bytes = w.bytes;
  if (!err) err = file_finish(&w, sha256);
  if (!err) err = file_rename(beside, path);
  file_abandon(&w);
  checked_table_free(&table);
  remove_examples(b);
  return err;
}

void shard_builder_free(ShardBuilder *b) {
  for (size_t i = 0; i < b->groups; i++) {
    mem_free(b->group[i].values.bytes);
    mem_free(b->group[i].index.bytes);
  }
  mem_free(b->column);
  mem_free(b->group);
  *b = (ShardBuilder){0};
}
