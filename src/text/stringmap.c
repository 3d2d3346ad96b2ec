/* Open addressing, at most half full. Depends on base. */
#include "text/stringmap.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

static size_t find_slot(const StringMap *m, const char *text, size_t len) {
  size_t i = (size_t)rng_hash(text, len, 0) & (m->slots - 1);
  for (; m->slot[i]; i = (i + 1) & (m->slots - 1)) {
    const StringEntry *e = &m->entry[m->slot[i] - 1];
    if (e->len == len && memcmp(m->text + e->at, text, len) == 0) break;
  }
  return i;
}

/* Doubles the number of slots and enters all texts again. */
static Err grow_slots(StringMap *m) {
  uint32_t *old = m->slot, *slot;
  size_t slots = m->slots ? 2 * m->slots : 1024;
  TRY(mem_alloc(&slot, slots, sizeof *slot));
  m->slot = slot;
  m->slots = slots;
  for (size_t n = 0; n < m->count; n++)
    m->slot[find_slot(m, m->text + m->entry[n].at, m->entry[n].len)] = (uint32_t)n + 1;
  mem_free(old);
  return ERR_OK;
}

Err stringmap_add(StringMap *m, const char *text, size_t len, uint32_t *number) {
  if (2 * (m->count + 1) > m->slots) TRY(grow_slots(m));
  size_t i = find_slot(m, text, len);
  if (!m->slot[i]) {
    if (m->count == INT32_MAX)
      return err_set(ERR_WORK, "more than %d different texts", INT32_MAX);
    TRY(mem_grow(&m->entry, &m->capacity, m->count + 1, sizeof *m->entry));
    TRY(mem_grow(&m->text, &m->text_capacity, m->text_len + len + 1, 1));
    m->entry[m->count++] = (StringEntry){.at = m->text_len, .len = len};
    memcpy(m->text + m->text_len, text, len);
    m->text[m->text_len + len] = '\0';
    m->text_len += len + 1;
    m->slot[i] = (uint32_t)m->count;
  }
  *number = m->slot[i] - 1;
  return ERR_OK;
}

uint32_t stringmap_find(const StringMap *m, const char *text, size_t len) {
  if (!m->slots) return UINT32_MAX;
  uint32_t found = m->slot[find_slot(m, text, len)];
  return found ? found - 1 : UINT32_MAX;
}

const char *stringmap_text(const StringMap *m, uint32_t number) {
  return m->text + m->entry[number].at;
}

void stringmap_free(StringMap *m) {
  mem_free(m->text);
  mem_free(m->entry);
  mem_free(m->slot);
  *m = (StringMap){0};
}
