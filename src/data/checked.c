/* Block checksums: computed when a file is written, compared when a block is first read. Depends
 * on base. */
#include "data/checked.h"

#include <string.h>

#include "base/crc.h"
#include "base/mem.h"
#include "base/place.h"

static size_t count_blocks(uint64_t payload) {
  return (size_t)((payload + CHECKED_BLOCK - 1) / CHECKED_BLOCK);
}

size_t checked_table_size(uint64_t payload) {
  return (count_blocks(payload) + 1) * sizeof(uint32_t);
}

static Err add_bytes(CheckedTable *t, const void *bytes, size_t len) {
  const uint8_t *p = bytes;
  while (len) {
    if (t->blocks == 0 || t->filled == CHECKED_BLOCK) {
      TRY(mem_grow(&t->crc, &t->cap, t->blocks + 1, sizeof *t->crc));
      t->crc[t->blocks++] = 0;
      t->filled = 0;
    }
    size_t take = CHECKED_BLOCK - t->filled < len ? CHECKED_BLOCK - t->filled : len;
    t->crc[t->blocks - 1] = crc_add(t->crc[t->blocks - 1], p, take);
    t->filled += take;
    p += take;
    len -= take;
  }
  return ERR_OK;
}

Err checked_put(CheckedTable *t, FileWriter *w, const void *bytes, size_t len) {
  TRY(add_bytes(t, bytes, len));
  return file_put(w, bytes, len);
}

Err checked_write(CheckedTable *t, FileWriter *w) {
  size_t bytes = t->blocks * sizeof *t->crc;
  uint32_t own = crc_add(0, t->crc, bytes);
  TRY(file_put(w, t->crc, bytes));
  return file_put(w, &own, sizeof own);
}

void checked_table_free(CheckedTable *t) {
  mem_free(t->crc);
  *t = (CheckedTable){0};
}

static uint32_t get_crc(const CheckedFile *f, size_t i) {
  uint32_t crc;
  memcpy(&crc, f->map.bytes + f->payload + i * sizeof crc, sizeof crc);
  return crc;
}

Err checked_open(CheckedFile *f, PlacePin *map, uint64_t payload) {
  *f = (CheckedFile){.map = *map};
  *map = (PlacePin){0};
  Err err = ERR_OK;
  /* `payload` is untrusted and may be 2^64 - 1, so it is compared before any addition could
   * overflow. */
  if (payload > f->map.size) {
    err = err_set(ERR_WORK,
                  "%s is truncated: it has %zu bytes, but its header requires more than %llu; "
                  "prepare the data set again",
                  f->map.path, f->map.size, (unsigned long long)payload);
  } else if (f->map.size - payload != checked_table_size(payload)) {
    err = err_set(
        ERR_WORK,
        "%s is %s: it has %zu bytes, but its header requires %llu; prepare the data set again",
        f->map.path,
        f->map.size < payload + checked_table_size(payload) ? "truncated" : "damaged",
        f->map.size, (unsigned long long)(payload + checked_table_size(payload)));
  } else {
    f->payload = (size_t)payload;
    size_t blocks = count_blocks(payload);
    uint32_t own = crc_add(0, f->map.bytes + payload, blocks * sizeof own);
    if (own != get_crc(f, blocks)) {
      err = err_set(ERR_WORK,
                    "%s is damaged at byte %zu: its table of checksums does not match its own "
                    "checksum; prepare the data set again",
                    f->map.path, f->payload);
    } else {
      err = mem_alloc(&f->tested, blocks, sizeof *f->tested);
    }
  }
  if (err) checked_close(f);
  return err;
}

void checked_close(CheckedFile *f) {
  place_unpin(&f->map);
  mem_free(f->tested);
  *f = (CheckedFile){0};
}

static Err test_block(CheckedFile *f, size_t block) {
  size_t begin = block * CHECKED_BLOCK;
  size_t len = f->payload - begin < CHECKED_BLOCK ? f->payload - begin : CHECKED_BLOCK;
  uint32_t crc = crc_add(0, f->map.bytes + begin, len);
  if (crc != get_crc(f, block)) {
    return err_set(
        ERR_WORK,
        "%s is damaged between bytes %zu and %zu (wrong checksum); prepare the data set again",
        f->map.path, begin, begin + len);
  }
  atomic_store_explicit(&f->tested[block], 1, memory_order_relaxed);
  return ERR_OK;
}

Err checked_touch(CheckedFile *f, size_t offset, size_t len) {
  if (len == 0) return ERR_OK;
  for (size_t b = offset / CHECKED_BLOCK; b <= (offset + len - 1) / CHECKED_BLOCK; b++) {
    if (!atomic_load_explicit(&f->tested[b], memory_order_relaxed)) TRY(test_block(f, b));
  }
  return ERR_OK;
}

Err checked_all(CheckedFile *f) {
  for (size_t b = 0; b < count_blocks(f->payload); b++) TRY(test_block(f, b));
  return ERR_OK;
}
