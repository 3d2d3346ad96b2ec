/* A hash set with open addressing and linear probing. The key of a pair is the XXH3-128 of the
 * XXH3-128 of its two sides. Depends on base, xxHash (compiled in, not linked). */
#include "data/seen.h"

#include "base/mem.h"

#ifdef HAVE_XXHASH
#define XXH_INLINE_ALL
/* Makes xxHash read with memcpy; its pointer casts violate the aliasing rules when inlined. */
#define XXH_FORCE_MEMORY_ACCESS 0
#include <xxhash.h>

bool seen_is_built(void) {
  return true;
}

static void hash_pair(const char *const text[2], const size_t len[2], uint64_t key[2]) {
  XXH128_canonical_t side[2];
  for (int i = 0; i < 2; i++) XXH128_canonicalFromHash(&side[i], XXH3_128bits(text[i], len[i]));
  XXH128_hash_t both = XXH3_128bits(side, sizeof side);
  key[0] = both.low64;
  key[1] = both.high64 | 1; /* A key is never zero, because a zero key marks a free slot. */
}

#else

bool seen_is_built(void) {
  return false;
}

static void hash_pair(const char *const text[2], const size_t len[2], uint64_t key[2]) {
  (void)text;
  (void)len; /* Never called: seen_hash fails in builds without xxHash. */
  key[0] = key[1] = 0;
}
#endif

static bool is_free(const uint64_t slot[2]) {
  return slot[0] == 0 && slot[1] == 0;
}

/* Returns the slot that contains the key, or the free slot in which to store it. */
static uint64_t *find_slot(Seen *s, const uint64_t key[2]) {
  for (size_t i = key[0] & (s->size - 1);; i = (i + 1) & (s->size - 1)) {
    uint64_t *slot = s->slot[i];
    if (is_free(slot) || (slot[0] == key[0] && slot[1] == key[1])) return slot;
  }
}

static Err double_table(Seen *s) {
  Seen larger = {.size = s->size ? 2 * s->size : 4096, .used = s->used};
  TRY(mem_alloc(&larger.slot, larger.size, sizeof *larger.slot));
  for (size_t i = 0; i < s->size; i++) {
    if (is_free(s->slot[i])) continue;
    uint64_t *to = find_slot(&larger, s->slot[i]);
    to[0] = s->slot[i][0];
    to[1] = s->slot[i][1];
  }
  mem_free(s->slot);
  *s = larger;
  return ERR_OK;
}

Err seen_hash(const char *const text[2], const size_t len[2], uint64_t key[2]) {
  if (!seen_is_built())
    return err_set(ERR_WORK,
                   "--dedup is not available: this program was built without xxHash; install "
                   "libxxhash-dev and build it again");
  hash_pair(text, len, key);
  return ERR_OK;
}

Err seen_add(Seen *s, const uint64_t key[2], bool *before) {
  if (2 * (s->used + 1) > s->size) TRY(double_table(s));
  uint64_t *slot = find_slot(s, key);
  *before = !is_free(slot);
  if (!*before) {
    slot[0] = key[0];
    slot[1] = key[1];
    s->used++;
  }
  return ERR_OK;
}

void seen_free(Seen *s) {
  mem_free(s->slot);
  *s = (Seen){0};
}
