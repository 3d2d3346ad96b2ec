/* Shards as hostile bytes. The first byte chooses how much of the file is made
 * right before it is opened, so that each check is reached: nothing, the
 * checksums, the header too, and a good file with one byte flipped.
 * Relies on data/shard. */
#include "data/shard.h"

#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 128 };
enum { AT_ID_BYTES = 12, AT_PAIRS = 16, AT_TOKENS = 24, AT_INDEX = 48, AT_PAYLOAD = 56 };
enum { AT_VOCAB = 64, AT_BLOCK = 68 };

/* Makes the header tell the truth about a payload of this size: as many pairs
 * as it asks for and have room, the rest tokens. Returns the payload's size. */
static size_t mend_header(uint8_t *file, size_t size) {
  uint32_t id_bytes = file[AT_ID_BYTES] & 4 ? 4 : 2;
  uint64_t room = (size - HEADER) / 8;
  uint64_t pairs = fuzz_get64(file, AT_PAIRS) % (room + 1);
  uint64_t tokens = (room - pairs) * 8 / id_bytes;
  uint64_t index = (HEADER + tokens * id_bytes + 7) & ~(uint64_t)7;
  memcpy(file, "TRITOK\r\n", 8);
  fuzz_put32(file, 8, 1);
  fuzz_put32(file, AT_ID_BYTES, id_bytes);
  fuzz_put64(file, AT_PAIRS, pairs);
  fuzz_put64(file, AT_TOKENS, tokens);
  fuzz_put64(file, AT_INDEX, index);
  fuzz_put64(file, AT_PAYLOAD, index + pairs * sizeof(ShardPair));
  fuzz_put32(file, AT_BLOCK, (uint32_t)CHECKED_BLOCK);
  return (size_t)(index + pairs * sizeof(ShardPair));
}

static Err read_pair(Shard *s, uint64_t i) {
  ShardView view;
  TRY(shard_pair(s, i, &view));
  for (int side = 0; side < 2; side++) {
    int32_t *ids = malloc(view.len[side] * sizeof *ids + 1); /* not a byte too many */
    REQUIRE(ids);
    Err err = shard_copy(s, &view, side, ids);
    for (uint32_t k = 0; k < view.len[side] && !err; k++)
      REQUIRE(ids[k] >= 0 && (uint32_t)ids[k] < s->vocab);
    free(ids);
    if (err) return err;
  }
  return ERR_OK;
}

/* Opens and reads everything; the first error, if any. */
static Err read_shard(const uint8_t *file, size_t size) {
  Shard s;
  TRY(shard_open(&s, fuzz_file(file, size)));
  Err err = ERR_OK;
  for (uint64_t i = 0; i < s.pairs && !err; i++) {
    shard_prefetch_index(&s, i);
    shard_prefetch_ids(&s, i);
    err = read_pair(&s, i);
  }
  ShardView view;
  REQUIRE(shard_pair(&s, s.pairs, &view) != ERR_OK);
  if (!err) err = checked_all(&s.file);
  shard_close(&s);
  return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 5) return 0;
  unsigned mode = data[0] & 3;
  uint32_t where;
  memcpy(&where, data + 1, sizeof where);
  data += 5, size -= 5;
  uint8_t *file = calloc(size + HEADER + checked_table_size(size + HEADER), 1);
  REQUIRE(file);
  if (size) memcpy(file, data, size);
  if (mode == 1 && size >= HEADER && fuzz_get64(file, AT_PAYLOAD) <= size)
    size = fuzz_seal(file, (size_t)fuzz_get64(file, AT_PAYLOAD));
  else if (mode >= 2)
    size = fuzz_seal(file, mend_header(file, size < HEADER ? HEADER : size));
  Err err = read_shard(file, size);
  if (mode == 3 && !err) {
    file[where % size] ^= (uint8_t)(1u << (where >> 29));
    REQUIRE(read_shard(file, size) != ERR_OK);
  }
  free(file);
  return 0;
}
