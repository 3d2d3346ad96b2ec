/* A set of 128-bit hashes that detects exact duplicates, 16 bytes per pair. Among a billion
 * different pairs the probability of any collision is below 1e-20. Depends on base, xxHash. */
#ifndef DATA_SEEN_H
#define DATA_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
  uint64_t (*slot)[2]; /* slots of the hash table; {0, 0} is a free slot */
  size_t size, used;
} Seen;

/* Returns true if the program was built with xxHash. Without it seen_hash fails. */
bool seen_is_built(void);
/* Computes the hash that identifies a pair of texts. */
NODISCARD Err seen_hash(const char *const text[2], const size_t len[2], uint64_t key[2]);
/* Adds a pair by its hash; sets *before if the set already contained it. */
NODISCARD Err seen_add(Seen *s, const uint64_t key[2], bool *before);
void seen_free(Seen *s);

#endif
