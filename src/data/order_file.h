/* The binary layout of train.order, used by order.c (reader) and order_write.c (writer);
 * described in docs/formats.md. Little-endian. Depends on order. */
#ifndef DATA_ORDER_FILE_H
#define DATA_ORDER_FILE_H

#include "data/order.h"

#define ORDER_MAGIC "TRIORD\r\n"

/* Header of format 1: one window, whose cells and list of pairs follow the header. */
typedef struct {
  char magic[8];
  uint32_t version; /* format version: 1 */
  uint32_t primary;
  uint64_t pairs;
  uint64_t cells;
  uint64_t payload; /* offset of the checksums */
  uint8_t reserved[24];
} OrderHeader1;
_Static_assert(sizeof(OrderHeader1) == 64, "a format 1 header has 64 bytes");

/* Header of format 2, followed by a table of windows. */
typedef struct {
  char magic[8];
  uint32_t version; /* format version: 2 */
  uint32_t windows;
  uint64_t pairs;
  /* required flags: a reader must refuse the file if it does not know one of them */
  uint32_t required_flags;
  uint32_t optional_flags; /* optional flags: a reader ignores unknown ones */
  uint64_t payload;        /* offset of the checksums */
  uint8_t reserved[24];
} OrderHeader2;
_Static_assert(sizeof(OrderHeader2) == 64, "a format 2 header has 64 bytes");

typedef struct {
  uint64_t pairs;
  uint64_t offset; /* offset of the window's cells; its list of pairs follows them */
  uint64_t cells;
  uint32_t primary;
  uint32_t reserved;
} OrderEntry;
_Static_assert(sizeof(OrderEntry) == 32, "a table entry has 32 bytes");
_Static_assert(sizeof(OrderCell) == 8, "a cell has 8 bytes");

#endif
