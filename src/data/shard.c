/* Reads shards of format 1 and 2. The file is untrusted: every offset and length in the header
 * and the directory is compared with the size of the file before it is used, and every index
 * entry with its column. Depends on base, checked. */
#include "data/shard.h"

#include <string.h>

#include "base/mem.h"
#include "base/place.h"
#include "data/shard_file.h"

#define AGAIN "prepare the data set again"
#define NEWER "it was written by a newer version of trireme: use that version"

static void bytes_to_hex(const uint8_t *bytes, char hex[65]) {
  for (size_t i = 0; i < 64; i++)
    hex[i] = "0123456789abcdef"[bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
  hex[64] = '\0';
}

/* ---- format 1 ---- */

static Err check_header1(const ShardHeader1 *h, const char *path) {
  bool is_sound = (h->id_bytes == 2 || h->id_bytes == 4) && h->block == CHECKED_BLOCK &&
                  h->tokens <= UINT32_MAX && h->pairs <= UINT32_MAX && h->vocab > 0 &&
                  h->vocab <= INT32_MAX &&
                  h->index == ((sizeof *h + h->tokens * h->id_bytes + 7) & ~(uint64_t)7) &&
                  h->payload == h->index + h->pairs * shard_index_bytes(2);
  if (is_sound) return ERR_OK;
  return err_set(ERR_WORK, "%s has a damaged header (byte 0); " AGAIN, path);
}

/* Represents source and target of format 1 as two columns of one group. */
static Err make_columns1(Shard *s, const ShardHeader1 *h) {
  TRY(mem_alloc(&s->column, 2, sizeof *s->column));
  s->examples = h->pairs;
  for (uint32_t side = 0; side < 2; side++) {
    ShardColumn *c = &s->column[s->columns++];
    snprintf(c->name, sizeof c->name, "%s", side ? SHARD_TARGET : SHARD_SOURCE);
    c->kind = SHARD_IDS;
    c->is_required = true;
    c->element_bytes = h->id_bytes;
    c->vocab = h->vocab;
    c->offset = sizeof *h;
    c->elements = (size_t)h->tokens;
    c->index = (size_t)h->index;
    c->index_bytes = shard_index_bytes(2);
    c->place = side;
    c->members = 2;
    bytes_to_hex(h->tokenizer, c->tokenizer_sha256);
  }
  return ERR_OK;
}

static Err open_format1(Shard *s, PlacePin *map) {
  ShardHeader1 h;
  memcpy(&h, map->bytes, sizeof h);
  TRY(check_header1(&h, map->path));
  TRY(checked_open(&s->file, map, h.payload));
  TRY(checked_touch(&s->file, 0, sizeof h));
  return make_columns1(s, &h);
}

/* ---- format 2 ---- */

static Err check_header2(const ShardHeader2 *h, const char *path) {
  if (h->required_flags)
    return err_set(ERR_WORK, "%s cannot be read (byte 24: unknown required flags 0x%x); " NEWER,
                   path, h->required_flags);
  if (h->columns == 0 || h->columns > SHARD_COLUMNS_MAX)
    return err_set(ERR_WORK,
                   "%s is damaged at byte 12: %u columns, possible are 1 to %u; " AGAIN, path,
                   h->columns, SHARD_COLUMNS_MAX);
  bool is_sound = h->block == CHECKED_BLOCK && h->entry_bytes >= sizeof(ShardEntry) &&
                  h->entry_bytes <= CHECKED_BLOCK && h->entry_bytes % 8 == 0 &&
                  h->directory >= sizeof *h && h->directory % 8 == 0 &&
                  h->directory <= h->payload &&
                  h->payload - h->directory >= (uint64_t)h->columns * h->entry_bytes;
  if (is_sound) return ERR_OK;
  return err_set(ERR_WORK, "%s has a damaged header (byte 0); " AGAIN, path);
}

/* A byte range of the file that belongs to a column. */
typedef struct {
  uint64_t begin;
  uint64_t bytes;
} Part;

static bool is_inside(const Part *p, uint64_t begin, uint64_t end) {
  return p->begin >= begin && p->begin <= end && p->bytes <= end - p->begin;
}

static bool is_overlapping(const Part *a, const Part *b) {
  if (a->bytes == 0 || b->bytes == 0) return false;
  return a->begin < b->begin + b->bytes && b->begin < a->begin + a->bytes;
}

static bool has_good_element(const ShardEntry *e) {
  bool is_numbered = e->kind == SHARD_IDS || e->kind == SHARD_LABEL;
  if (is_numbered)
    return (e->element_bytes == 2 || e->element_bytes == 4) && e->vocabulary > 0 &&
           e->vocabulary <= INT32_MAX;
  return e->element_bytes == 4 && e->vocabulary == 0;
}

static bool has_good_name(const ShardEntry *e) {
  return e->name[0] && memchr(e->name, '\0', sizeof e->name);
}

/* Limits for the offsets in a column directory that is being checked. */
typedef struct {
  const Shard *s;
  uint64_t examples;
  uint64_t begin; /* lowest offset of values: the end of the directory */
  uint64_t end;   /* end of the payload */
} Bounds;

static Err refuse_entry(const Bounds *b, const ShardEntry *e, uint64_t at, const char *why) {
  char name[sizeof e->name + 1] = {0};
  memcpy(name, e->name, sizeof e->name);
  return err_set(ERR_WORK, "%s is damaged at byte %llu: column '%s' %s; " AGAIN,
                 b->s->file.map.path, (unsigned long long)at, name, why);
}

static bool is_ragged(uint32_t kind) {
  return kind == SHARD_IDS || kind == SHARD_PAIRS;
}

/* Checks one directory entry, at offset `at` of the file, independently of the others. No product
 * is computed before its factors are known to be small enough. */
static Err check_entry(const Bounds *b, const ShardEntry *e, uint64_t at) {
  Part values = {e->offset, e->length};
  if (!has_good_name(e)) return refuse_entry(b, e, at, "has no valid name");
  if (!has_good_element(e)) {
    char why[128];
    snprintf(why, sizeof why, "of kind %u has elements of %u bytes and a vocabulary of %u",
             e->kind, e->element_bytes, e->vocabulary);
    return refuse_entry(b, e, at + offsetof(ShardEntry, element_bytes), why);
  }
  if (e->offset % 8 || !is_inside(&values, b->begin, b->end) || e->length % e->element_bytes)
    return refuse_entry(b, e, at + offsetof(ShardEntry, offset),
                        "has values outside the file or an incomplete last value");
  if (!is_ragged(e->kind)) {
    bool is_dense = e->length / e->element_bytes == b->examples && e->index == 0 &&
                    e->place == 0 && e->members == 1;
    return is_dense ? ERR_OK
                    : refuse_entry(b, e, at + offsetof(ShardEntry, length),
                                   "does not have one value for each example");
  }
  if (e->members == 0 || e->members > SHARD_MEMBERS_MAX || e->place >= e->members)
    return refuse_entry(b, e, at + offsetof(ShardEntry, place),
                        "has an invalid position in its group");
  uint32_t index_bytes = shard_index_bytes(e->members);
  Part index = {e->index, 0};
  if (b->examples <= b->end / index_bytes) index.bytes = b->examples * index_bytes;
  bool is_whole = b->examples <= b->end / index_bytes && e->index % 8 == 0 &&
                  is_inside(&index, b->begin, b->end) && !is_overlapping(&values, &index) &&
                  e->length / e->element_bytes <= UINT32_MAX;
  return is_whole ? ERR_OK
                  : refuse_entry(b, e, at + offsetof(ShardEntry, index),
                                 "has an index outside the file or inside its values");
}

static Part get_values_part(const ShardColumn *c) {
  return (Part){c->offset, (uint64_t)c->elements * c->element_bytes};
}

static Part get_index_part(const Shard *s, const ShardColumn *c) {
  return (Part){c->index, s->examples * c->index_bytes};
}

/* Returns true if both columns belong to one group, that is, have the same values and index. */
static bool is_same_group(const ShardColumn *a, const ShardColumn *b) {
  return is_ragged(a->kind) && a->kind == b->kind && a->offset == b->offset &&
         a->elements == b->elements && a->element_bytes == b->element_bytes &&
         a->index == b->index && a->members == b->members && a->place != b->place;
}

/* Compares a column with those before it: the names must differ, and only columns of one group
 * may share bytes. Returns a description of the error, or NULL. */
static const char *compare_columns(const Shard *s, const ShardColumn *c) {
  for (const ShardColumn *other = s->column; other < c; other++) {
    if (strcmp(c->name, other->name) == 0) return "appears twice";
    if (is_same_group(c, other)) continue;
    Part part[2] = {get_values_part(c), get_index_part(s, c)};
    Part taken[2] = {get_values_part(other), get_index_part(s, other)};
    for (int i = 0; i < 2; i++) {
      if (is_overlapping(&part[i], &taken[0]) || is_overlapping(&part[i], &taken[1]))
        return "shares bytes with another column";
    }
  }
  return NULL;
}

static void fill_column(ShardColumn *c, const ShardEntry *e) {
  memcpy(c->name, e->name, sizeof c->name);
  c->kind = (ShardKind)e->kind;
  c->is_required = e->flags & SHARD_COLUMN_REQUIRED;
  c->element_bytes = e->element_bytes;
  c->vocab = e->vocabulary;
  c->offset = (size_t)e->offset;
  c->elements = (size_t)(e->length / e->element_bytes);
  c->index = (size_t)e->index;
  c->index_bytes = is_ragged(e->kind) ? shard_index_bytes(e->members) : 0;
  c->place = e->place;
  c->members = e->members;
  bytes_to_hex(e->tokenizer, c->tokenizer_sha256);
}

/* Adds the column of one directory entry; ignores an optional column of an unknown kind. */
static Err add_entry(Shard *s, const Bounds *b, const ShardEntry *e, uint64_t at) {
  bool is_known = e->kind >= SHARD_IDS && e->kind <= SHARD_PAIRS;
  uint32_t unknown_flags = e->flags & SHARD_FLAGS_REQUIRED & ~SHARD_COLUMN_REQUIRED;
  if (!is_known && !(e->flags & SHARD_FLAGS_REQUIRED)) return ERR_OK;
  if (!is_known || unknown_flags) {
    char name[sizeof e->name + 1] = {0};
    memcpy(name, e->name, sizeof e->name);
    return err_set(
        ERR_WORK,
        "%s cannot be read (byte %llu: column '%s' has kind %u and flags 0x%x); " NEWER,
        s->file.map.path, (unsigned long long)at, name, e->kind, e->flags);
  }
  TRY(check_entry(b, e, at));
  ShardColumn *c = &s->column[s->columns];
  fill_column(c, e);
  const char *why = compare_columns(s, c);
  if (why) return refuse_entry(b, e, at, why);
  s->columns++;
  return ERR_OK;
}

static Err read_directory(Shard *s, const ShardHeader2 *h) {
  size_t bytes = (size_t)h->columns * h->entry_bytes;
  TRY(checked_touch(&s->file, (size_t)h->directory, bytes));
  TRY(mem_alloc(&s->column, h->columns, sizeof *s->column));
  s->examples = h->examples;
  Bounds bounds = {s, h->examples, h->directory + bytes, h->payload};
  for (uint32_t i = 0; i < h->columns; i++) {
    ShardEntry e;
    uint64_t at = h->directory + (uint64_t)i * h->entry_bytes;
    memcpy(&e, s->file.map.bytes + at, sizeof e);
    TRY(add_entry(s, &bounds, &e, at));
  }
  return ERR_OK;
}

static Err open_format2(Shard *s, PlacePin *map) {
  ShardHeader2 h;
  memcpy(&h, map->bytes, sizeof h);
  TRY(check_header2(&h, map->path));
  TRY(checked_open(&s->file, map, h.payload));
  TRY(checked_touch(&s->file, 0, sizeof h));
  return read_directory(s, &h);
}

/* ---- both formats ---- */

static void find_sides(Shard *s) {
  s->side[0] = shard_column(s, SHARD_SOURCE);
  s->side[1] = shard_column(s, SHARD_TARGET);
  for (int side = 0; side < 2; side++) {
    if (s->side[side] && s->side[side]->kind != SHARD_IDS) s->side[side] = NULL;
  }
  const ShardColumn *source = s->side[0], *target = s->side[1];
  s->is_interleaved = source && target && source->members == 2 && source->place == 0 &&
                      is_same_group(source, target);
}

static Err open_map(Shard *s, PlacePin *map) {
  ShardHeader2 h;
  if (map->size < sizeof(ShardHeader1))
    return err_set(ERR_WORK, "%s is truncated: %zu bytes are no shard; " AGAIN, map->path,
                   map->size);
  memcpy(&h, map->bytes, sizeof h);
  if (memcmp(h.magic, SHARD_MAGIC, sizeof h.magic) != 0)
    return err_set(ERR_WORK, "%s is not a shard: wrong first bytes; prepare the data set again",
                   map->path);
  s->version = h.version;
  if (h.version == 1) return open_format1(s, map);
  if (h.version == 2) return open_format2(s, map);
  return err_set(ERR_WORK, "%s has shard format %u (byte 8), this trireme reads 1 and 2; %s",
                 map->path, h.version, h.version > 2 ? NEWER : AGAIN);
}

Err shard_open(Shard *s, const char *path) {
  *s = (Shard){0};
  PlacePin map;
  TRY(place_pin_file(&map, path));
  Err err = open_map(s, &map);
  place_unpin(&map);
  if (err)
    shard_close(s);
  else
    find_sides(s);
  return err;
}

void shard_close(Shard *s) {
  checked_close(&s->file);
  mem_free(s->column);
  *s = (Shard){0};
}

const ShardColumn *shard_column(const Shard *s, const char *name) {
  for (size_t i = 0; i < s->columns; i++) {
    if (strcmp(s->column[i].name, name) == 0) return &s->column[i];
  }
  return NULL;
}

/* ---- reading ---- */

static Err refuse_example(const Shard *s, uint64_t i) {
  return err_set(ERR_WORK,
                 "bug: example %llu was read, but %s has only %llu examples; please report it",
                 (unsigned long long)i, s->file.map.path, (unsigned long long)s->examples);
}

static Err refuse_index(const Shard *s, size_t at) {
  return err_set(ERR_WORK, "%s is damaged: the index entry at byte %zu points outside; " AGAIN,
                 s->file.map.path, at);
}

/* Finds the values of a ragged column. The index entry of an example contains its first element
 * and the number of elements of each column that shares the entry, in storage order. */
static Err get_ragged(Shard *s, const ShardColumn *c, uint64_t i, ShardValues *values) {
  size_t at = c->index + (size_t)i * c->index_bytes;
  TRY(checked_touch(&s->file, at, c->index_bytes));
  uint32_t first;
  uint16_t len[SHARD_MEMBERS_MAX];
  memcpy(&first, s->file.map.bytes + at, sizeof first);
  memcpy(len, s->file.map.bytes + at + sizeof first, c->members * sizeof *len);
  size_t begin = first;
  size_t end = first;
  for (uint32_t k = 0; k < c->members; k++) {
    if (k < c->place) begin += len[k];
    end += len[k];
  }
  if (end > c->elements) return refuse_index(s, at);
  size_t offset = c->offset + begin * c->element_bytes;
  values->at = s->file.map.bytes + offset;
  values->count = len[c->place];
  return checked_touch(&s->file, offset, values->count * c->element_bytes);
}

Err shard_get(Shard *s, const ShardColumn *c, uint64_t i, ShardValues *values) {
  if (i >= s->examples) return refuse_example(s, i);
  if (is_ragged(c->kind)) return get_ragged(s, c, i, values);
  size_t offset = c->offset + (size_t)i * c->element_bytes;
  values->at = s->file.map.bytes + offset;
  values->count = 1;
  return checked_touch(&s->file, offset, c->element_bytes);
}

static Err refuse_id(const Shard *s, const ShardColumn *c, const void *at, uint32_t highest) {
  return err_set(ERR_WORK, "%s is damaged near byte %zu: id %u in a vocabulary of %u; " AGAIN,
                 s->file.map.path, (size_t)((const uint8_t *)at - s->file.map.bytes), highest,
                 c->vocab);
}

Err shard_copy_ids(const Shard *s, const ShardColumn *c, const ShardValues *values,
                   int32_t *out) {
  uint32_t highest = 0;
  if (c->element_bytes == 2) {
    const uint16_t *from = values->at;
    for (size_t i = 0; i < values->count; i++) {
      out[i] = from[i];
      highest = from[i] > highest ? from[i] : highest;
    }
  } else {
    const uint32_t *from = values->at;
    for (size_t i = 0; i < values->count; i++) {
      out[i] = (int32_t)from[i];
      highest = from[i] > highest ? from[i] : highest;
    }
  }
  return highest < c->vocab ? ERR_OK : refuse_id(s, c, values->at, highest);
}

/* Fails unless the column has the wanted kind. A column of another kind may have no value or
 * several values per example. */
static Err check_kind(const Shard *s, const ShardColumn *c, ShardKind wanted) {
  static const char *const name[] = {
      [SHARD_IDS] = "token ids",
      [SHARD_LABEL] = "labels",
      [SHARD_FLOAT] = "floats",
      [SHARD_PAIRS] = "pairs of positions",
  };
  if (c->kind == wanted) return ERR_OK;
  return err_set(ERR_WORK, "column '%s' of %s holds %s, not %s; " AGAIN, c->name,
                 s->file.map.path, name[c->kind], name[wanted]);
}

Err shard_get_label(Shard *s, const ShardColumn *c, uint64_t i, int32_t *label) {
  ShardValues values;
  TRY(check_kind(s, c, SHARD_LABEL));
  TRY(shard_get(s, c, i, &values));
  return shard_copy_ids(s, c, &values, label);
}

Err shard_get_float(Shard *s, const ShardColumn *c, uint64_t i, float *value) {
  ShardValues values;
  TRY(check_kind(s, c, SHARD_FLOAT));
  TRY(shard_get(s, c, i, &values));
  memcpy(value, values.at, sizeof *value);
  return ERR_OK;
}

/* ---- sentence pairs ---- */

/* An index entry of a group with two columns. */
typedef struct {
  uint32_t first;
  uint16_t len[2];
} PairEntry;
_Static_assert(sizeof(PairEntry) == 8, "an index entry of two columns has 8 bytes");

static const PairEntry *get_pair_entry(const Shard *s, uint64_t i) {
  return (const PairEntry *)(const void *)(s->file.map.bytes + s->side[0]->index) + i;
}

/* Reads a pair whose source and target are in different groups. */
static Err get_separate_pair(Shard *s, uint64_t i, ShardView *view) {
  for (int side = 0; side < 2; side++) {
    ShardValues values;
    if (!s->side[side])
      return err_set(ERR_WORK, "%s has no column of ids '%s'; " AGAIN, s->file.map.path,
                     side ? SHARD_TARGET : SHARD_SOURCE);
    TRY(get_ragged(s, s->side[side], i, &values));
    view->ids[side] = values.at;
    view->len[side] = (uint32_t)values.count;
  }
  return ERR_OK;
}

Err shard_pair(Shard *s, uint64_t i, ShardView *view) {
  if (i >= s->examples) return refuse_example(s, i);
  if (!s->is_interleaved) return get_separate_pair(s, i, view);
  const ShardColumn *c = s->side[0];
  size_t at = c->index + (size_t)i * sizeof(PairEntry);
  TRY(checked_touch(&s->file, at, sizeof(PairEntry)));
  PairEntry p = *get_pair_entry(s, i);
  size_t tokens = (size_t)p.len[0] + p.len[1];
  if (p.first + tokens > c->elements) return refuse_index(s, at);
  size_t offset = c->offset + (size_t)p.first * c->element_bytes;
  TRY(checked_touch(&s->file, offset, tokens * c->element_bytes));
  view->len[0] = p.len[0];
  view->len[1] = p.len[1];
  view->ids[0] = s->file.map.bytes + offset;
  view->ids[1] = view->ids[0] + (size_t)p.len[0] * c->element_bytes;
  return ERR_OK;
}

Err shard_copy(const Shard *s, const ShardView *view, int side, int32_t *out) {
  return shard_copy_ids(s, s->side[side], &(ShardValues){view->ids[side], view->len[side]},
                        out);
}

void shard_prefetch_index(const Shard *s, uint64_t i) {
  if (s->is_interleaved) __builtin_prefetch(get_pair_entry(s, i));
}

void shard_prefetch_ids(const Shard *s, uint64_t i) {
  if (!s->is_interleaved) return;
  size_t first = get_pair_entry(s, i)->first;
  const uint8_t *at =
      s->file.map.bytes + s->side[0]->offset + first * s->side[0]->element_bytes;
  if (first >= s->side[0]->elements) return;
  __builtin_prefetch(at);
  __builtin_prefetch(at + 64);
}
