/* A pinned file (base/place.h) of two parts: payload, and a table with a CRC-32 for every 64 KiB of
 * it. A block is checked when it is first read, so opening a large file costs nothing and damaged
 * bytes are never used. Depends on base. */
#ifndef DATA_CHECKED_H
#define DATA_CHECKED_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "base/place.h"

#define CHECKED_BLOCK ((size_t)1 << 16)

typedef struct {
  PlacePin map;
  size_t payload;          /* bytes; the table follows */
  _Atomic uint8_t *tested; /* one per block */
} CheckedFile;

/* Bytes of the table for a payload of that size: a CRC per block and one over
 * the table itself. */
size_t checked_table_size(uint64_t payload);
/* Writer: collects the CRCs of the payload while it is written. */
typedef struct {
  uint32_t *crc;
  size_t blocks, cap, filled; /* bytes in the open block */
} CheckedTable;
NODISCARD Err checked_put(CheckedTable *table, FileWriter *w, const void *bytes, size_t len);
NODISCARD Err checked_write(CheckedTable *table, FileWriter *w);
void checked_table_free(CheckedTable *table);

/* Takes over the pin. `payload` comes from the file's own header: the file must
 * be exactly payload and table, and the table must be whole. */
NODISCARD Err checked_open(CheckedFile *f, PlacePin *map, uint64_t payload);
void checked_close(CheckedFile *f);
/* Checks the blocks that contain [offset, offset + len), each only the first time. The range must
 * lie within the payload. */
NODISCARD Err checked_touch(CheckedFile *f, size_t offset, size_t len);
NODISCARD Err checked_all(CheckedFile *f);

#endif
