/* A set of 128-bit hashes that finds exact duplicates: 16 bytes per pair. Among a billion different
 * pairs the probability of any collision is below 1e-20.
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

/* Returns whether the program was built with xxHash. Without it seen_hash fails. */
bool seen_is_built(void);
/* The hash by which a pair of texts is known. */
NODISCARD Err seen_hash(const char *const text[2], const size_t len[2], uint64_t key[2]);
/* Adds a pair by its hash; *before is set if the set had it already. */
NODISCARD Err seen_add(Seen *s, const uint64_t key[2], bool *before);
void seen_free(Seen *s);

#endif
