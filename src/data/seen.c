/* Open addressing with linear probing. Relies on base. */
#include "data/seen.h"

#include "base/mem.h"
#include "base/rng.h"

static bool is_free(const uint64_t slot[2]) {
  return slot[0] == 0 && slot[1] == 0;
}

/* The slot that holds the key, or the free one where it belongs. */
static uint64_t *find(Seen *s, const uint64_t key[2]) {
  for (size_t i = key[0] & (s->size - 1);; i = (i + 1) & (s->size - 1)) {
    uint64_t *slot = s->slot[i];
    if (is_free(slot) || (slot[0] == key[0] && slot[1] == key[1])) return slot;
  }
}

static Err enlarge(Seen *s) {
  Seen larger = {.size = s->size ? 2 * s->size : 4096, .used = s->used};
  TRY(mem_alloc(&larger.slot, larger.size, sizeof *larger.slot));
  for (size_t i = 0; i < s->size; i++) {
    if (is_free(s->slot[i])) continue;
    uint64_t *to = find(&larger, s->slot[i]);
    to[0] = s->slot[i][0];
    to[1] = s->slot[i][1];
  }
  mem_free(s->slot);
  *s = larger;
  return ERR_OK;
}

Err seen_add(Seen *s, const char *const text[2], const size_t len[2], bool *before) {
  if (2 * (s->used + 1) > s->size) TRY(enlarge(s));
  uint64_t key[2];
  for (unsigned i = 0; i < 2; i++) {
    key[i] = rng_hash(text[0], len[0], 0x5eed + i);
    key[i] = rng_hash(text[1], len[1], key[i]);
  }
  key[1] |= 1; /* never the free slot */
  uint64_t *slot = find(s, key);
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
