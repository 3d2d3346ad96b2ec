/* Finds the items of an array by their names, in a time that does not depend on how many there are. An
 * item begins with its name, which ends with NUL. Depends on base.
 *
 *   size_t i = nameindex_find(&index, columns, sizeof *columns, name, len);
 *   if (i == NAMEINDEX_NONE) { append a column; TRY(nameindex_add(&index, columns, sizeof *columns, count++)); } */
#ifndef MONITOR_NAMEINDEX_H
#define MONITOR_NAMEINDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define NAMEINDEX_NONE SIZE_MAX

/* All zero: empty. */
typedef struct {
  uint32_t *place; /* (places) number of an item + 1; 0: free. Open addressing */
  size_t places;   /* a power of two, at least twice the number of items; 0 before the first */
} NameIndex;

/* Returns the number of the item with the name of `len` bytes, which has no NUL, or NAMEINDEX_NONE.
 * `items`: the array, of items of `size` bytes. */
size_t nameindex_find(const NameIndex *x, const void *items, size_t size, const char *name,
                      size_t len);
/* Adds the item with this number. Items are added in their order, each name once. */
NODISCARD Err nameindex_add(NameIndex *x, const void *items, size_t size, size_t number);
/* Frees the memory; the index is empty. */
void nameindex_free(NameIndex *x);

#endif
