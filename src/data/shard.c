/* Shards: header, ids, index, block checksums, in this order; little-endian.
 * Relies on base, checked. */
#include "data/shard.h"

#include <stddef.h>
#include <string.h>

#include "base/mem.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files are little-endian and used in place");

#define MAGIC   "TRITOK\r\n"
#define VERSION 1u

typedef struct {
  char magic[8];
  uint32_t version, id_bytes;
  uint64_t pairs, tokens, side_tokens[2];
  uint64_t index, payload; /* offsets: the index, and the end of all but checksums */
  uint32_t vocab, block;
  uint8_t tokenizer[32]; /* SHA-256 of the model that made the ids */
  uint8_t reserved[24];
} Header;
_Static_assert(sizeof(Header) == 128, "the header is 128 bytes");
_Static_assert(sizeof(ShardPair) == 8, "an index entry is 8 bytes");

void shard_begin(ShardBuilder *b, uint32_t vocab) {
  *b = (ShardBuilder){.vocab = vocab, .id_bytes = vocab <= 65536 ? 2 : 4};
}

static void put_ids(ShardBuilder *b, const int32_t *id, size_t n) {
  if (b->id_bytes == 2) {
    uint16_t *to = (uint16_t *)(void *)b->ids + b->tokens;
    for (size_t i = 0; i < n; i++) to[i] = (uint16_t)id[i];
  } else {
    memcpy(b->ids + 4 * b->tokens, id, 4 * n);
  }
  b->tokens += n;
}

Err shard_add(ShardBuilder *b, const int32_t *source, size_t source_len, const int32_t *target,
              size_t target_len) {
  if (source_len > SHARD_LONGEST || target_len > SHARD_LONGEST ||
      b->tokens + source_len + target_len > UINT32_MAX) {
    return err_set(ERR_WORK, "a sentence of %zu and %zu tokens does not fit a shard",
                   source_len, target_len);
  }
  TRY(mem_grow(&b->ids, &b->token_cap, b->tokens + source_len + target_len, b->id_bytes));
  TRY(mem_grow(&b->pair, &b->pair_cap, b->pairs + 1, sizeof *b->pair));
  b->pair[b->pairs++] =
      (ShardPair){(uint32_t)b->tokens, {(uint16_t)source_len, (uint16_t)target_len}};
  put_ids(b, source, source_len);
  put_ids(b, target, target_len);
  b->side_tokens[0] += source_len;
  b->side_tokens[1] += target_len;
  return ERR_OK;
}

size_t shard_bytes(const ShardBuilder *b) {
  return b->tokens * b->id_bytes;
}

static void hex_to_bytes(const char *hex, uint8_t out[32]) {
  for (size_t i = 0; i < 64; i++) {
    unsigned digit = (unsigned)(hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10);
    out[i / 2] = (uint8_t)((unsigned)out[i / 2] << 4 | digit);
  }
}

static void bytes_to_hex(const uint8_t *bytes, char hex[65]) {
  for (size_t i = 0; i < 64; i++)
    hex[i] = "0123456789abcdef"[bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
  hex[64] = '\0';
}

static Err write_parts(const ShardBuilder *b, FileWriter *w, CheckedTable *table,
                       const Header *header) {
  static const uint8_t zeros[8];
  TRY(checked_put(table, w, header, sizeof *header));
  TRY(checked_put(table, w, b->ids, shard_bytes(b)));
  TRY(checked_put(table, w, zeros, header->index - sizeof *header - shard_bytes(b)));
  TRY(checked_put(table, w, b->pair, b->pairs * sizeof *b->pair));
  return checked_write(table, w);
}

Err shard_write(ShardBuilder *b, const char *path, const char *tokenizer_sha256,
                uint64_t *bytes, char sha256[65]) {
  Header header = {.magic = MAGIC, .version = VERSION, .id_bytes = b->id_bytes};
  header.pairs = b->pairs;
  header.tokens = b->tokens;
  memcpy(header.side_tokens, b->side_tokens, sizeof header.side_tokens);
  header.index = (sizeof header + shard_bytes(b) + 7) & ~(uint64_t)7;
  header.payload = header.index + b->pairs * sizeof *b->pair;
  header.vocab = b->vocab;
  header.block = (uint32_t)CHECKED_BLOCK;
  hex_to_bytes(tokenizer_sha256, header.tokenizer);
  char beside[FILE_PATH_MAX];
  int n = snprintf(beside, sizeof beside, "%s.tmp", path);
  if (n < 0 || n >= FILE_PATH_MAX) return err_set(ERR_WORK, "the path %s is too long", path);
  FileWriter w;
  CheckedTable table = {0};
  TRY(file_create(&w, beside));
  Err err = write_parts(b, &w, &table, &header);
  *bytes = w.bytes;
  if (!err) err = file_finish(&w, sha256);
  if (!err) err = file_rename(beside, path);
  file_abandon(&w);
  checked_table_free(&table);
  b->tokens = b->pairs = 0;
  b->side_tokens[0] = b->side_tokens[1] = 0;
  return err;
}

void shard_builder_free(ShardBuilder *b) {
  mem_free(b->ids);
  mem_free(b->pair);
  *b = (ShardBuilder){0};
}

static Err check_header(const Header *h, const char *path) {
  if (memcmp(h->magic, MAGIC, 8) != 0)
    return err_set(ERR_WORK, "%s is not a shard: wrong first bytes", path);
  if (h->version != VERSION) {
    return err_set(ERR_WORK,
                   "%s has shard version %u, this trireme reads %u; prepare the data set again",
                   path, h->version, VERSION);
  }
  bool sane = (h->id_bytes == 2 || h->id_bytes == 4) && h->block == CHECKED_BLOCK &&
              h->tokens <= UINT32_MAX && h->pairs <= UINT32_MAX && h->vocab > 0 &&
              h->vocab <= INT32_MAX && h->index % 8 == 0 &&
              h->index == ((sizeof *h + h->tokens * h->id_bytes + 7) & ~(uint64_t)7) &&
              h->payload == h->index + h->pairs * sizeof(ShardPair);
  return sane ? ERR_OK
              : err_set(ERR_WORK,
                        "%s has a damaged header (byte 0); prepare the data set again", path);
}

Err shard_open(Shard *s, const char *path) {
  *s = (Shard){0};
  FileMap map;
  TRY(file_map(&map, path));
  Header h;
  Err err = ERR_OK;
  if (map.size < sizeof h) {
    err =
        err_set(ERR_WORK, "%s is truncated: %zu bytes are no shard; prepare the data set again",
                path, map.size);
  } else {
    memcpy(&h, map.bytes, sizeof h);
    err = check_header(&h, path);
  }
  if (!err) err = checked_open(&s->file, &map, h.payload);
  file_unmap(&map);
  if (!err) err = checked_touch(&s->file, 0, sizeof h);
  if (err) {
    shard_close(s);
    return err;
  }
  s->vocab = h.vocab, s->id_bytes = h.id_bytes;
  s->pairs = h.pairs, s->tokens = h.tokens, s->index = (size_t)h.index;
  memcpy(s->side_tokens, h.side_tokens, sizeof s->side_tokens);
  bytes_to_hex(h.tokenizer, s->tokenizer_sha256);
  return ERR_OK;
}

void shard_close(Shard *s) {
  checked_close(&s->file);
  *s = (Shard){0};
}

static const ShardPair *entry(const Shard *s, uint64_t i) {
  return (const ShardPair *)(const void *)(s->file.map.bytes + s->index) + i;
}

Err shard_pair(Shard *s, uint64_t i, ShardView *view) {
  if (i >= s->pairs)
    return err_set(ERR_WORK, "%s has no pair %llu", s->file.map.path, (unsigned long long)i);
  TRY(checked_touch(&s->file, s->index + (size_t)i * sizeof(ShardPair), sizeof(ShardPair)));
  ShardPair p = *entry(s, i);
  size_t tokens = (size_t)p.len[0] + p.len[1];
  if (p.first + tokens > s->tokens) {
    return err_set(
        ERR_WORK,
        "%s is damaged: the index entry at byte %zu points outside; prepare the data set again",
        s->file.map.path, s->index + (size_t)i * sizeof(ShardPair));
  }
  size_t offset = sizeof(Header) + (size_t)p.first * s->id_bytes;
  TRY(checked_touch(&s->file, offset, tokens * s->id_bytes));
  view->len[0] = p.len[0], view->len[1] = p.len[1];
  view->ids[0] = s->file.map.bytes + offset;
  view->ids[1] = view->ids[0] + (size_t)p.len[0] * s->id_bytes;
  return ERR_OK;
}

Err shard_copy(const Shard *s, const ShardView *view, int side, int32_t *out) {
  size_t n = view->len[side];
  uint32_t highest = 0;
  if (s->id_bytes == 2) {
    const uint16_t *from = (const uint16_t *)(const void *)view->ids[side];
    for (size_t i = 0; i < n; i++) {
      out[i] = from[i];
      highest = from[i] > highest ? from[i] : highest;
    }
  } else {
    const uint32_t *from = (const uint32_t *)(const void *)view->ids[side];
    for (size_t i = 0; i < n; i++) {
      out[i] = (int32_t)from[i];
      highest = from[i] > highest ? from[i] : highest;
    }
  }
  if (highest < s->vocab) return ERR_OK;
  return err_set(
      ERR_WORK,
      "%s is damaged near byte %zu: id %u in a vocabulary of %u; prepare the data set again",
      s->file.map.path, (size_t)(view->ids[side] - s->file.map.bytes), highest, s->vocab);
}

void shard_prefetch_index(const Shard *s, uint64_t i) {
  __builtin_prefetch(entry(s, i));
}

void shard_prefetch_ids(const Shard *s, uint64_t i) {
  size_t first = entry(s, i)->first;
  const uint8_t *at = s->file.map.bytes + sizeof(Header) + first * s->id_bytes;
  if (first < s->tokens) __builtin_prefetch(at), __builtin_prefetch(at + 64);
}
