/* A hash table (open addressing) of pointers to immutable entries. Readers load a slot and
 * compare. Writers fill in the entry first and publish it with one compare-and-swap. Entries
 * are allocated in large blocks that are freed only with the cache. Depends on base. */
#include "text/wordcache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"

/* number of slots: 32 MB of pointers, paged in on first use */
#define SLOTS ((size_t)1 << 22)
/* maximum number of entries; keeps probe sequences short */
#define MOST_WORDS  (SLOTS / 2)
#define BLOCK       ((size_t)1 << 20) /* bytes of one block of entries */
#define MOST_BLOCKS ((size_t)192)     /* maximum number of blocks: 192 MB of entries */
#define MOST_LEN    ((size_t)255)
/* Maximum number of ids of a cached word; a normalization rule may turn one letter into many
 * ids. */
#define MOST_IDS ((size_t)4096)

_Static_assert(MOST_IDS <= UINT16_MAX && MOST_LEN <= UINT16_MAX, "an entry's counts fit");

typedef struct {
  uint32_t hash; /* upper half of the hash; the lower half selects the slot */
  uint16_t len, n;
  int32_t ids[]; /* `n` ids, followed by the `len` bytes of the word */
} Entry;

struct WordCache {
  _Atomic(Entry *) *slot;
  pthread_mutex_t lock; /* protects the fields after it */
  char *block[MOST_BLOCKS];
  size_t blocks, used, words;
};

Err wordcache_new(WordCache **out) {
  WordCache *cache;
  *out = NULL;
  TRY(mem_alloc(&cache, 1, sizeof *cache));
  pthread_mutex_init(&cache->lock, NULL);
  cache->used = BLOCK;
  if (mem_alloc(&cache->slot, SLOTS, sizeof *cache->slot)) {
    wordcache_free(cache);
    return ERR_WORK;
  }
  *out = cache;
  return ERR_OK;
}

void wordcache_free(WordCache *cache) {
  if (!cache) return;
  for (size_t i = 0; i < cache->blocks; i++) mem_free(cache->block[i]);
  mem_free(cache->slot);
  pthread_mutex_destroy(&cache->lock);
  mem_free(cache);
}

static bool is_entry(const Entry *e, const char *word, size_t len, uint32_t hash) {
  return e->hash == hash && e->len == len && memcmp(e->ids + e->n, word, len) == 0;
}

const int32_t *wordcache_find(const WordCache *cache, const char *word, size_t len,
                              uint64_t hash, size_t *n) {
  for (size_t i = hash & (SLOTS - 1);; i = (i + 1) & (SLOTS - 1)) {
    const Entry *e = atomic_load_explicit(&cache->slot[i], memory_order_acquire);
    if (!e) return NULL;
    if (is_entry(e, word, len, (uint32_t)(hash >> 32))) {
      *n = e->n;
      return e->ids;
    }
  }
}

void wordcache_fetch_slot(const WordCache *cache, uint64_t hash) {
  __builtin_prefetch((const void *)&cache->slot[hash & (SLOTS - 1)]);
}

void wordcache_fetch_entry(const WordCache *cache, uint64_t hash) {
  __builtin_prefetch(
      atomic_load_explicit(&cache->slot[hash & (SLOTS - 1)], memory_order_relaxed));
}

static Entry *room_for(WordCache *cache, size_t bytes) {
  Entry *entry = NULL;
  pthread_mutex_lock(&cache->lock);
  bool fits = cache->words < MOST_WORDS;
  if (fits && cache->used + bytes > BLOCK) {
    /* A word that does not fit is not cached and will be encoded again; this is not an error. */
    fits = cache->blocks < MOST_BLOCKS &&
           mem_alloc(&cache->block[cache->blocks], BLOCK, 1) == ERR_OK;
    if (fits) {
      cache->blocks++;
      cache->used = 0;
    }
  }
  if (fits) {
    entry = (Entry *)(void *)(cache->block[cache->blocks - 1] + cache->used);
    cache->used += bytes;
    cache->words++;
  }
  pthread_mutex_unlock(&cache->lock);
  return entry;
}

void wordcache_add(WordCache *cache, const char *word, size_t len, uint64_t hash,
                   const int32_t *ids, size_t n) {
  if (len > MOST_LEN || n > MOST_IDS) return;
  size_t bytes = (sizeof(Entry) + n * sizeof *ids + len + 7) & ~(size_t)7;
  Entry *entry = room_for(cache, bytes);
  if (!entry) return;
  entry->hash = (uint32_t)(hash >> 32);
  entry->len = (uint16_t)len;
  entry->n = (uint16_t)n;
  if (n) memcpy(entry->ids, ids, n * sizeof *ids);
  memcpy(entry->ids + n, word, len);
  for (size_t i = hash & (SLOTS - 1);; i = (i + 1) & (SLOTS - 1)) {
    Entry *there = NULL;
    if (atomic_compare_exchange_strong_explicit(&cache->slot[i], &there, entry,
                                                memory_order_acq_rel, memory_order_acquire)) {
      return;
    }
    /* Another thread has stored the same word in the meantime. */
    if (is_entry(there, word, len, entry->hash)) return;
  }
}
