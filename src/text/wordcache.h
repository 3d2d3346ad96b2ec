/* A cache from words to their ids, because words repeat. Threads read entries without locks.
 * The size is bounded; lookups in a full cache still work, but nothing is added. Depends
 * on base. */
#ifndef TEXT_WORDCACHE_H
#define TEXT_WORDCACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct WordCache WordCache;

NODISCARD Err wordcache_new(WordCache **cache);
void wordcache_free(WordCache *cache);
/* Returns the ids of the word, or NULL if the word is not cached. The pointer stays valid until
 * the cache is freed. */
const int32_t *wordcache_find(const WordCache *cache, const char *word, size_t len,
                              uint64_t hash, size_t *n);
/* Prefetch the memory that wordcache_find will read: fetch_slot the slot and, a few words later
 * when the slot has arrived, fetch_entry the entry. */
void wordcache_fetch_slot(const WordCache *cache, uint64_t hash);
void wordcache_fetch_entry(const WordCache *cache, uint64_t hash);
/* Stores a word; does nothing if the word or its list of ids is too long, or the cache is
 * full. */
void wordcache_add(WordCache *cache, const char *word, size_t len, uint64_t hash,
                   const int32_t *ids, size_t n);

#endif
