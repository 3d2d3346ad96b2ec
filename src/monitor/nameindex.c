/* A hash table of the numbers of named items. Depends on nameindex.h. */
#include "monitor/nameindex.h"

#include <string.h>

#include "base/mem.h"

#define LEAST_PLACES 16

/* FNV-1a; its upper bits, which depend on all bytes, are folded into the lower ones. */
static size_t hash_name(const char *name, size_t len) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3;
  return (size_t)(hash ^ hash >> 32);
}

static const char *get_name(const void *items, size_t size, size_t number) {
  return (const char *)items + number * size;
}

size_t nameindex_find(const NameIndex *x, const void *items, size_t size, const char *name,
                      size_t len) {
  if (x->places == 0) return NAMEINDEX_NONE;
  for (size_t at = hash_name(name, len);; at++) {
    uint32_t entry = x->place[at & (x->places - 1)];
    if (entry == 0) return NAMEINDEX_NONE;
    const char *other = get_name(items, size, entry - 1);
    if (strncmp(other, name, len) == 0 && other[len] == 0) return entry - 1;
  }
}

static void put_item(NameIndex *x, const void *items, size_t size, size_t number) {
  const char *name = get_name(items, size, number);
  size_t at = hash_name(name, strlen(name));
  while (x->place[at & (x->places - 1)]) at++;
  x->place[at & (x->places - 1)] = (uint32_t)number + 1;
}

/* Doubles the places and enters the first `count` items again. */
static Err grow_index(NameIndex *x, const void *items, size_t size, size_t count) {
  NameIndex next = {.places = x->places ? 2 * x->places : LEAST_PLACES};
  TRY(mem_alloc(&next.place, next.places, sizeof *next.place));
  for (size_t i = 0; i < count; i++) put_item(&next, items, size, i);
  mem_free(x->place);
  *x = next;
  return ERR_OK;
}

Err nameindex_add(NameIndex *x, const void *items, size_t size, size_t number) {
  if (2 * (number + 1) > x->places) TRY(grow_index(x, items, size, number));
  put_item(x, items, size, number);
  return ERR_OK;
}

void nameindex_free(NameIndex *x) {
  mem_free(x->place);
  *x = (NameIndex){0};
}
