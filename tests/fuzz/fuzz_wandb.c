/* Logs of Weights & Biases runs as hostile bytes, as given and with corrected checksums, so that the
 * messages are reached. Records must follow each other without a gap, and every value must lie within
 * its record. Depends on format/wandb. */
#include "format/wandb.h"

#include "base/crc.h"
#include "format/wandb_file.h"
#include "fuzz_file.h"

#define LIMIT ((size_t)1 << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_within(const char *text, size_t len, const WandbRecord *r) {
  const uint8_t *at = (const uint8_t *)text;
  return len == 0 || (at >= r->body.at && at + len <= r->body.end);
}

static Err check_record(void *context, const WandbRecord *r) {
  uint64_t *end = context;
  ProtoBytes at = r->body;
  WandbItem item;
  REQUIRE(r->offset == *end && r->end >= r->offset + WANDB_FRAGMENT);
  *end = r->end;
  while (wandb_next_item(r, &at, &item)) {
    REQUIRE(is_within(item.key, item.key_len, r));
    REQUIRE(is_within(item.json, item.json_len, r));
  }
  return ERR_OK;
}

static void check_file(const uint8_t *file, size_t size) {
  uint64_t visited = WANDB_MAGIC_BYTES, end;
  (void)!wandb_read(fuzz_file(file, size), check_record, &visited, &end);
  REQUIRE(end <= size && (end == visited || end == 0));
}

/* Writes the file's header and corrects the checksums of all fragments, up to the first one that is
 * longer than its block or the file. */
static void seal_fragments(uint8_t *file, size_t size) {
  if (size < WANDB_MAGIC_BYTES) return;
  memcpy(file, WANDB_MAGIC, WANDB_MAGIC_BYTES);
  for (size_t at = WANDB_MAGIC_BYTES;;) {
    size_t room = WANDB_BLOCK - at % WANDB_BLOCK;
    if (room < WANDB_FRAGMENT) at += room;
    if (room < WANDB_FRAGMENT) room = WANDB_BLOCK;
    if (at > size || size - at < WANDB_FRAGMENT) return;
    size_t len = (size_t)file[at + 4] | (size_t)file[at + 5] << 8;
    if (len > room - WANDB_FRAGMENT || len > size - at - WANDB_FRAGMENT) return;
    fuzz_put32(file, at, crc_add(0, file + at + 6, 1 + len));
    at += WANDB_FRAGMENT + len;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t file[LIMIT];
  if (size > LIMIT) return 0;
  check_file(data, size);
  memcpy(file, data, size);
  seal_fragments(file, size);
  check_file(file, size);
  return 0;
}
