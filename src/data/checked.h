/* A pinned file (base/place.h) that consists of a payload and a table with a CRC-32 of each 64
 * KiB block of the payload. A block is checked when it is first read, so opening a large file
 * costs nothing and damaged bytes are never used. Depends on base. */
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
  size_t payload; /* bytes of the payload; the checksum table follows it */
  /* one flag per block: the checksum of the block has been verified */
  _Atomic uint8_t *tested;
} CheckedFile;

/* Returns the bytes of the checksum table for a payload of that size: a CRC per block and one of
 * the table itself. */
size_t checked_table_size(uint64_t payload);
/* The writer's state: collects the CRCs of the payload while it is written. */
typedef struct {
  uint32_t *crc;
  size_t blocks, cap, filled; /* `filled`: bytes in the block that is not complete yet */
} CheckedTable;
NODISCARD Err checked_put(CheckedTable *table, FileWriter *w, const void *bytes, size_t len);
NODISCARD Err checked_write(CheckedTable *table, FileWriter *w);
void checked_table_free(CheckedTable *table);

/* Opens the file and takes over the pin. `payload` comes from the header of the file. Fails
 * unless the file consists of exactly the payload and its table, and the table matches its own
 * CRC. */
NODISCARD Err checked_open(CheckedFile *f, PlacePin *map, uint64_t payload);
void checked_close(CheckedFile *f);
/* Checks the blocks that contain the bytes [offset, offset + len), each block only once. The
 * range must be within the payload. */
NODISCARD Err checked_touch(CheckedFile *f, size_t offset, size_t len);
NODISCARD Err checked_all(CheckedFile *f);

#endif
