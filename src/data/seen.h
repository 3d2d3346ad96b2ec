/* A set of 128-bit hashes, for exact-duplicate removal: 16 bytes an item, and
 * two different pairs of a billion clash with a chance below 1e-20.
 * Depends on base, xxHash. */
#ifndef DATA_SEEN_H
#define DATA_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  uint64_t (*slot)[2]; /* {0, 0} is free */
  size_t size, used;
} Seen;

/* Was the program built with xxHash? Without it seen_add is an error. */
bool seen_is_built(void);
/* Adds the pair of texts; *before tells whether it was there already. */
NODISCARD Err seen_add(Seen *s, const char *const text[2], const size_t len[2], bool *before);
void seen_free(Seen *s);

#endif
