/* The bytes of train.order, for order.c (reader) and order_write.c (writer); described in
 * docs/formats.md. Little-endian. Depends on order. */
#ifndef DATA_ORDER_FILE_H
#define DATA_ORDER_FILE_H

#include "data/order.h"

#define ORDER_MAGIC "TRIORD\r\n"

/* Format 1: one window; cells and list follow the header. */
typedef struct {
  char magic[8];
  uint32_t version; /* 1 */
  uint32_t primary;
  uint64_t pairs;
  uint64_t cells;
  uint64_t payload; /* offset of the checksums */
  uint8_t reserved[24];
} OrderHeader1;
_Static_assert(sizeof(OrderHeader1) == 64, "a format 1 header has 64 bytes");

/* Format 2: a table of windows follows the header. */
typedef struct {
  char magic[8];
  uint32_t version; /* 2 */
  uint32_t windows;
  uint64_t pairs;
  uint32_t
      required_flags; /* a reader that does not know one of these bits must refuse the file */
  uint32_t optional_flags; /* a reader ignores the bits that it does not know */
  uint64_t payload;        /* offset of the checksums */
  uint8_t reserved[24];
} OrderHeader2;
_Static_assert(sizeof(OrderHeader2) == 64, "a format 2 header has 64 bytes");

typedef struct {
  uint64_t pairs;
  uint64_t offset; /* of the cells; the list of pairs follows them */
  uint64_t cells;
  uint32_t primary;
  uint32_t reserved;
} OrderEntry;
_Static_assert(sizeof(OrderEntry) == 32, "a table entry has 32 bytes");
_Static_assert(sizeof(OrderCell) == 8, "a cell has 8 bytes");

#endif
