/* Reads train.order, and computes the pairs of a batch. order_plan.c packs the batches. Depends
 * on base, checked, order_turns. */
#include "data/order.h"

#include <string.h>

#include "base/mem.h"
#include "base/place.h"
#include "base/rng.h"
#include "data/order_file.h"
#include "data/order_turns.h"
#include "data/shard.h"

#define AGAIN "prepare the data set again"

static Err refuse_header(const char *path) {
  return err_set(ERR_WORK, "%s has a damaged header (byte 0); " AGAIN, path);
}

static Err refuse_window(const Order *o, size_t offset, const char *why) {
  return err_set(ERR_WORK, "%s is damaged at byte %zu: %s; " AGAIN, o->file.map.path, offset,
                 why);
}

/* Checks that the cells (runs of pairs with equal lengths) are strictly increasing and contain
 * every pair once, which the planning relies on. */
static Err check_cells(const Order *o, const OrderWindow *w) {
  uint64_t total = 0;
  int p = w->primary;
  for (size_t i = 0; i < w->cells; i++) {
    const OrderCell *c = &w->cell[i];
    const OrderCell *before = i ? c - 1 : NULL;
    bool is_rising = !before || c->len[p] > before->len[p] ||
                     (c->len[p] == before->len[p] && c->len[!p] > before->len[!p]);
    if (!is_rising || c->count == 0 || c->len[0] > SHARD_LONGEST || c->len[1] > SHARD_LONGEST)
      return refuse_window(o, (size_t)((const uint8_t *)c - o->file.map.bytes),
                           "lengths out of order");
    total += c->count;
  }
  if (total == w->pairs) return ERR_OK;
  return err_set(
      ERR_WORK,
      "%s is damaged at byte %zu: the lengths of this window count %llu pairs, it has "
      "%llu; " AGAIN,
      o->file.map.path, (size_t)((const uint8_t *)w->cell - o->file.map.bytes),
      (unsigned long long)total, (unsigned long long)w->pairs);
}

/* Adds a window to `o`; `at` is the offset of the window's description in the file. */
static Err add_window(Order *o, const OrderEntry *e, size_t at) {
  uint64_t end = o->file.payload;
  bool is_sound = e->primary < 2 && e->pairs > 0 && e->pairs <= ORDER_WINDOW_PAIRS &&
                  e->cells > 0 && e->cells <= e->pairs && e->offset % 8 == 0 &&
                  e->offset <= end &&
                  e->cells * sizeof(OrderCell) + e->pairs * sizeof(uint32_t) <= end - e->offset;
  if (!is_sound) return refuse_window(o, at, "a window outside the file");
  OrderWindow *w = &o->window[o->windows++];
  w->first = o->pairs;
  w->pairs = e->pairs;
  w->cells = (size_t)e->cells;
  w->primary = (int)e->primary;
  w->cell = (const OrderCell *)(const void *)(o->file.map.bytes + e->offset);
  w->pair = (const uint32_t *)(const void *)(w->cell + w->cells);
  o->pairs += w->pairs;
  TRY(checked_touch(&o->file, (size_t)e->offset, w->cells * sizeof *w->cell));
  return check_cells(o, w);
}

static Err open_format1(Order *o, PlacePin *map) {
  OrderHeader1 h;
  memcpy(&h, map->bytes, sizeof h);
  bool is_sound =
      h.pairs > 0 && h.pairs <= ORDER_WINDOW_PAIRS && h.cells <= h.pairs &&
      h.payload == sizeof h + h.cells * sizeof(OrderCell) + h.pairs * sizeof(uint32_t);
  if (!is_sound) return refuse_header(map->path);
  TRY(checked_open(&o->file, map, h.payload));
  TRY(checked_touch(&o->file, 0, sizeof h));
  TRY(mem_alloc(&o->window, 1, sizeof *o->window));
  OrderEntry entry = {.pairs = h.pairs, .offset = sizeof h, .cells = h.cells};
  entry.primary = h.primary;
  return add_window(o, &entry, 0);
}

/* Reads the table of windows. Windows must be in file order and must not overlap. */
static Err read_table(Order *o, const OrderHeader2 *h) {
  uint64_t end = sizeof *h + (uint64_t)h->windows * sizeof(OrderEntry);
  TRY(checked_touch(&o->file, 0, (size_t)end));
  TRY(mem_alloc(&o->window, h->windows, sizeof *o->window));
  for (uint32_t i = 0; i < h->windows; i++) {
    OrderEntry e;
    size_t at = sizeof *h + i * sizeof e;
    memcpy(&e, o->file.map.bytes + at, sizeof e);
    if (e.offset < end) return refuse_window(o, at, "a window that overlaps another");
    TRY(add_window(o, &e, at));
    end = e.offset + e.cells * sizeof(OrderCell) + e.pairs * sizeof(uint32_t);
  }
  return o->pairs == h->pairs ? ERR_OK : refuse_header(o->file.map.path);
}

static Err open_format2(Order *o, PlacePin *map) {
  OrderHeader2 h;
  memcpy(&h, map->bytes, sizeof h);
  if (h.required_flags)
    return err_set(ERR_WORK,
                   "%s cannot be read (byte 24: unknown required flags 0x%x); it was written "
                   "by a newer version of trireme: use that version",
                   map->path, h.required_flags);
  bool is_sound = h.windows > 0 && h.windows <= ORDER_WINDOWS_MAX &&
                  h.payload >= sizeof h + (uint64_t)h.windows * sizeof(OrderEntry);
  if (!is_sound) return refuse_header(map->path);
  TRY(checked_open(&o->file, map, h.payload));
  return read_table(o, &h);
}

static Err open_map(Order *o, PlacePin *map) {
  OrderHeader2 h;
  if (map->size < sizeof h || memcmp(map->bytes, ORDER_MAGIC, sizeof h.magic) != 0)
    return err_set(ERR_WORK,
                   "%s is not an order file: wrong first bytes; prepare the data set again",
                   map->path);
  memcpy(&h, map->bytes, sizeof h);
  if (h.version == 1) return open_format1(o, map);
  if (h.version == 2) return open_format2(o, map);
  return err_set(
      ERR_WORK, "%s has order format %u (byte 8), this trireme reads 1 and 2; %s", map->path,
      h.version,
      h.version > 2 ? "it was written by a newer version of trireme: use that version" : AGAIN);
}

Err order_open(Order *o, const char *path) {
  *o = (Order){0};
  PlacePin map;
  TRY(place_pin_file(&map, path));
  Err err = open_map(o, &map);
  place_unpin(&map);
  if (err) order_close(o);
  return err;
}

void order_close(Order *o) {
  checked_close(&o->file);
  mem_free(o->window);
  *o = (Order){0};
}

/* Constants mixed into the keys, so that each kind of permutation has its own keys: of batches, of
 * the strata of a size class, of the pairs of a stratum, of windows. */
enum { KEY_BATCH = 1, KEY_CLASS = 2, KEY_STRATUM = 3, KEY_WINDOW = 4 };

/* Computes the positions in the sorted list of pairs that form batch i of the window. `key` is
 * the key of the epoch. */
static uint32_t choose_places(const OrderWindow *w, const WindowPlan *plan, uint64_t key,
                              uint64_t i, uint64_t *places) {
  uint64_t chunk = i / plan->per_chunk;
  uint64_t chunk_key = rng_mix(key, chunk);
  uint64_t class_key = rng_mix(chunk_key, KEY_CLASS);
  uint64_t stratum_key = rng_mix(key, KEY_STRATUM);
  uint64_t b = rng_permute(rng_mix(chunk_key, KEY_BATCH), plan->per_chunk, i % plan->per_chunk);
  uint32_t count = 0;
  for (uint32_t slot = plan->slot_begin[b]; slot < plan->slot_begin[b + 1]; slot++) {
    uint32_t c = plan->slot_class[slot];
    uint32_t first = plan->class_begin[c];
    uint64_t place = rng_permute(rng_mix(class_key, c), plan->class_begin[c + 1] - first,
                                 plan->slot_ordinal[slot]);
    uint64_t stratum = plan->class_stratum[first + place];
    uint64_t begin = stratum * w->pairs / plan->strata;
    uint64_t end = (stratum + 1) * w->pairs / plan->strata;
    uint64_t chosen = begin + rng_permute(rng_mix(stratum_key, stratum), plan->chunks, chunk);
    /* A stratum may have one pair less than `chunks`; one chunk then has no pair of this
     * stratum. */
    if (chosen >= end) continue;
    __builtin_prefetch(&w->pair[chosen]);
    places[count++] = chosen;
  }
  return count;
}

Err order_batch(Order *o, const OrderPlan *plan, uint64_t seed, uint64_t epoch, uint64_t i,
                uint64_t *pairs, uint32_t *count) {
  uint64_t key = rng_mix(seed, epoch);
  size_t window = 0;
  if (plan->windows > 1) {
    window = turns_find(plan, rng_mix(key, KEY_WINDOW), &i);
    key = rng_mix(rng_mix(key, KEY_WINDOW), window);
  }
  const OrderWindow *w = &o->window[window];
  *count = choose_places(w, &plan->window[window], key, i, pairs);
  /* The prefetched list entries are in the cache by now. */
  for (uint32_t k = 0; k < *count; k++) {
    const uint32_t *at = &w->pair[pairs[k]];
    size_t offset = (size_t)((const uint8_t *)at - o->file.map.bytes);
    TRY(checked_touch(&o->file, offset, sizeof *at));
    if (*at >= w->pairs) return refuse_window(o, offset, "a pair that does not exist");
    pairs[k] = w->first + *at;
  }
  return ERR_OK;
}
