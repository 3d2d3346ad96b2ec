/* Shards as hostile bytes. The first byte selects the format and what is corrected before
 * the file is opened, so that every check is reached: nothing; the checksums; also the
 * header and directory; the same with one bit flipped afterwards. Depends on data/shard. */
#include "data/shard.h"

#include "data/shard_file.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Format 1: corrects the header for a payload of this size: as many pairs as it has,
 * if they fit, and tokens in the rest. Returns the size of the payload. */
static size_t mend_format1(uint8_t *file, size_t size) {
  ShardHeader1 h;
  memcpy(&h, file, sizeof h);
  uint64_t room = (size - sizeof h) / 8;
  memcpy(h.magic, SHARD_MAGIC, sizeof h.magic);
  h.version = 1;
  h.id_bytes = h.id_bytes & 4 ? 4 : 2;
  h.pairs %= room + 1;
  h.tokens = (room - h.pairs) * 8 / h.id_bytes;
  h.index = (sizeof h + h.tokens * h.id_bytes + 7) & ~(uint64_t)7;
  h.payload = h.index + h.pairs * shard_index_bytes(2);
  h.block = (uint32_t)CHECKED_BLOCK;
  memcpy(file, &h, sizeof h);
  return (size_t)h.payload;
}

/* Corrects a directory entry: its parts begin at *end, which is set to their end. */
static void mend_entry(ShardEntry *e, uint32_t number, uint64_t examples, uint64_t room,
                       uint64_t *end) {
  memset(e->name, 0, sizeof e->name);
  snprintf(e->name, sizeof e->name, "%s",
           number == 0   ? SHARD_SOURCE
           : number == 1 ? SHARD_TARGET
                         : "other");
  if (number > 1) e->name[5] = (char)('a' + number);
  e->kind = SHARD_IDS + e->kind % SHARD_PAIRS;
  bool is_numbered = e->kind == SHARD_IDS || e->kind == SHARD_LABEL;
  bool is_ragged = e->kind == SHARD_IDS || e->kind == SHARD_PAIRS;
  e->element_bytes = is_numbered && e->element_bytes & 1 ? 2 : 4;
  e->vocabulary = is_numbered ? 1 + e->vocabulary % INT32_MAX : 0;
  e->flags &= SHARD_COLUMN_REQUIRED | ~SHARD_FLAGS_REQUIRED;
  e->offset = *end;
  e->length = is_ragged ? e->length % (room + 1) / 4 * 4 : examples * e->element_bytes;
  *end = (*end + e->length + 7) & ~(uint64_t)7;
  e->place = 0;
  e->members = 1;
  e->index = 0;
  if (!is_ragged) return;
  e->index = *end;
  *end += examples * shard_index_bytes(1);
}

/* Format 2: corrects header and directory. Returns the size of the payload, or 0 if the
 * file is too small. */
static size_t mend_format2(uint8_t *file, size_t size) {
  ShardHeader2 h;
  memcpy(&h, file, sizeof h);
  memcpy(h.magic, SHARD_MAGIC, sizeof h.magic);
  h.version = 2;
  h.columns = 1 + h.columns % 5;
  h.required_flags = 0;
  h.directory = sizeof h;
  h.entry_bytes = sizeof(ShardEntry);
  h.block = (uint32_t)CHECKED_BLOCK;
  uint64_t end = sizeof h + h.columns * sizeof(ShardEntry);
  if (end > size) return 0;
  h.examples %= (size - end) / (16 * h.columns) + 1;
  uint64_t room = (size - end - 16 * h.examples * h.columns) / h.columns;
  room -= room < 8 ? room : 8; /* the end of a column is aligned to 8 bytes */
  for (uint32_t i = 0; i < h.columns; i++) {
    ShardEntry e;
    uint8_t *at = file + sizeof h + i * sizeof e;
    memcpy(&e, at, sizeof e);
    mend_entry(&e, i, h.examples, room, &end);
    memcpy(at, &e, sizeof e);
  }
  h.payload = end;
  memcpy(file, &h, sizeof h);
  return (size_t)end;
}

/* Puts the first two columns into one group, as in sentence pairs, if both contain ids. */
static void join_sides(uint8_t *file) {
  ShardEntry e[2];
  ShardHeader2 h;
  memcpy(&h, file, sizeof h);
  if (h.columns < 2) return;
  memcpy(e, file + sizeof h, sizeof e);
  if (e[0].kind != SHARD_IDS || e[1].kind != SHARD_IDS) return;
  if (h.examples * shard_index_bytes(2) > e[1].index - e[0].index) return;
  e[0].members = 2;
  e[1] = e[0];
  snprintf(e[1].name, sizeof e[1].name, SHARD_TARGET);
  e[1].place = 1;
  memcpy(file + sizeof h, e, sizeof e);
}

static Err read_ids(Shard *s, const ShardColumn *c, const ShardValues *v) {
  /* No spare elements, so that the sanitizer detects an overflow. */
  int32_t *ids = malloc(v->count * sizeof *ids + 1);
  REQUIRE(ids);
  Err err = shard_copy_ids(s, c, v, ids);
  for (size_t k = 0; k < v->count && !err; k++)
    REQUIRE(ids[k] >= 0 && (uint32_t)ids[k] < c->vocab);
  free(ids);
  return err;
}

/* Reads every byte of every value. */
static Err read_column(Shard *s, const ShardColumn *c) {
  ShardValues v;
  REQUIRE(shard_get(s, c, s->examples, &v) != ERR_OK);
  for (uint64_t i = 0; i < s->examples; i++) {
    volatile uint8_t sum = 0;
    TRY(shard_get(s, c, i, &v));
    for (size_t k = 0; k < v.count * c->element_bytes; k++)
      sum = (uint8_t)(sum + ((const uint8_t *)v.at)[k]);
    if (c->kind == SHARD_IDS || c->kind == SHARD_LABEL) TRY(read_ids(s, c, &v));
  }
  return ERR_OK;
}

static Err read_pairs(Shard *s) {
  for (uint64_t i = 0; i < s->examples && s->side[0] && s->side[1]; i++) {
    ShardView view;
    shard_prefetch_index(s, i);
    shard_prefetch_ids(s, i);
    TRY(shard_pair(s, i, &view));
    for (int side = 0; side < 2; side++)
      TRY(read_ids(s, s->side[side], &(ShardValues){view.ids[side], view.len[side]}));
  }
  return ERR_OK;
}

/* Opens the shard and reads everything; returns the first error. */
static Err read_shard(const uint8_t *file, size_t size) {
  Shard s;
  TRY(shard_open(&s, fuzz_file(file, size)));
  Err err = read_pairs(&s);
  for (size_t c = 0; c < s.columns && !err; c++) err = read_column(&s, &s.column[c]);
  if (!err) err = checked_all(&s.file);
  shard_close(&s);
  return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { HEADER = sizeof(ShardHeader1), AT_PAYLOAD = offsetof(ShardHeader2, payload) };
  if (size < 5) return 0;
  unsigned mode = data[0] & 3;
  bool is_format1 = data[0] & 4;
  bool is_joined = data[0] & 8;
  uint32_t where;
  memcpy(&where, data + 1, sizeof where);
  data += 5;
  size -= 5;
  size_t room = size < HEADER ? HEADER : size;
  uint8_t *file = calloc(room + checked_table_size(room), 1);
  REQUIRE(file);
  if (size) memcpy(file, data, size);
  if (mode == 1 && size >= HEADER && fuzz_get64(file, AT_PAYLOAD) <= size) {
    size = fuzz_seal(file, (size_t)fuzz_get64(file, AT_PAYLOAD));
  } else if (mode >= 2) {
    size_t payload = is_format1 ? mend_format1(file, room) : mend_format2(file, room);
    REQUIRE(payload <= room);
    if (payload && !is_format1 && is_joined) join_sides(file);
    if (payload) size = fuzz_seal(file, payload);
  }
  Err err = read_shard(file, size);
  if (mode == 3 && err == ERR_OK) {
    file[where % size] ^= (uint8_t)(1u << (where >> 29));
    REQUIRE(read_shard(file, size) != ERR_OK);
  }
  free(file);
  return 0;
}
