/* Words repeat: a table from a word to its ids that many threads read and fill
 * without waiting for one another. Bounded; when full it only answers.
 * Depends on base. */
#ifndef TEXT_WORDCACHE_H
#define TEXT_WORDCACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct WordCache WordCache;

NODISCARD Err wordcache_new(WordCache **cache);
void wordcache_free(WordCache *cache);
/* The ids of the word, or NULL. They stay where they are until the cache goes. */
const int32_t *wordcache_find(const WordCache *cache, const char *word, size_t len,
                              uint64_t hash, size_t *n);
/* Asks the processor to fetch what wordcache_find will read: first the slot, and
 * some words later, when that has come, the entry. */
void wordcache_fetch_slot(const WordCache *cache, uint64_t hash);
void wordcache_fetch_entry(const WordCache *cache, uint64_t hash);
/* Remembers a word; does nothing when it or its list of ids is too long, or the cache full. */
void wordcache_add(WordCache *cache, const char *word, size_t len, uint64_t hash,
                   const int32_t *ids, size_t n);

#endif
