/* The sorted list of pairs on disk, and which of them form a batch.
 * Relies on base, checked. The packing itself is in order_plan.c. */
#include "data/order.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/place.h"
#include "base/rng.h"
#include "data/shard.h"

#define MAGIC   "TRIORD\r\n"
#define VERSION 1u

typedef struct {
  char magic[8];
  uint32_t version, primary;
  uint64_t pairs, cells, payload;
  uint8_t reserved[24];
} Header;
_Static_assert(sizeof(Header) == 64, "the header is 64 bytes");
_Static_assert(sizeof(OrderCell) == 8, "a cell is 8 bytes");

/* The table of counts while sorting: one cell for each pair of lengths. */
typedef struct {
  size_t wide[2]; /* longest + 1 of each side */
  int primary;
  uint64_t *count; /* then: next free place */
} Counts;

static uint64_t *count_of(const Counts *c, const uint32_t len[2]) {
  return &c->count[(size_t)len[c->primary] * c->wide[!c->primary] + len[!c->primary]];
}

static Err count_lengths(Counts *c, uint64_t pairs, OrderLengths lengths, void *context) {
  uint64_t total[2] = {0};
  uint32_t len[2];
  c->wide[0] = c->wide[1] = 1;
  for (uint64_t i = 0; i < pairs; i++) {
    TRY(lengths(context, i, len));
    for (int side = 0; side < 2; side++) {
      if (len[side] > SHARD_LONGEST)
        return err_set(ERR_WORK, "pair %llu has %u tokens", (unsigned long long)i, len[side]);
      if (len[side] >= c->wide[side]) c->wide[side] = len[side] + 1;
      total[side] += len[side];
    }
  }
  c->primary = total[1] >= total[0];
  TRY(mem_alloc(&c->count, c->wide[0] * c->wide[1], sizeof *c->count));
  for (uint64_t i = 0; i < pairs; i++) {
    TRY(lengths(context, i, len));
    ++*count_of(c, len);
  }
  return ERR_OK;
}

/* Lists the cells in sorted order and turns counts into first places. */
static Err list_cells(const Counts *c, OrderCell **cells, size_t *n) {
  size_t cap = 0;
  uint64_t place = 0;
  for (size_t p = 0; p < c->wide[c->primary]; p++) {
    for (size_t s = 0; s < c->wide[!c->primary]; s++) {
      uint64_t *at = &c->count[p * c->wide[!c->primary] + s];
      if (*at == 0) continue;
      TRY(mem_grow(cells, &cap, *n + 1, sizeof **cells));
      OrderCell *cell = &(*cells)[(*n)++];
      cell->len[c->primary] = (uint16_t)p;
      cell->len[!c->primary] = (uint16_t)s;
      cell->count = (uint32_t)*at;
      uint64_t first = place;
      place += *at;
      *at = first;
    }
  }
  return ERR_OK;
}

/* The sorted list is scattered into the mapped file itself, so that memory does
 * not grow with the corpus; the space is reserved first, so that a full disk is
 * an error and not a signal. */
static Err scatter(const char *path, uint64_t pairs, Counts *c, OrderLengths lengths,
                   void *context) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return err_errno("cannot create", path);
  size_t bytes = (size_t)pairs * sizeof(uint32_t);
  errno = posix_fallocate(fd, 0, (off_t)bytes);
  void *at = errno ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  Err err = at == MAP_FAILED ? err_errno("cannot write", path) : ERR_OK;
  close(fd);
  if (err) return err;
  uint32_t *list = at;
  for (uint64_t i = 0; i < pairs && !err; i++) {
    uint32_t len[2];
    err = lengths(context, i, len);
    if (!err) list[(*count_of(c, len))++] = (uint32_t)i;
  }
  munmap(at, bytes);
  return err;
}

static Err assemble(const char *path, const char *list_path, const Header *header,
                    const OrderCell *cells, uint64_t *bytes, char sha256[65]) {
  PlacePin list = {0};
  FileWriter w;
  CheckedTable table = {0};
  TRY(file_create(&w, path));
  Err err;
  TRY_DONE(place_pin_file(&list, list_path));
  TRY_DONE(checked_put(&table, &w, header, sizeof *header));
  TRY_DONE(checked_put(&table, &w, cells, (size_t)header->cells * sizeof *cells));
  TRY_DONE(checked_put(&table, &w, list.bytes, list.size));
  TRY_DONE(checked_write(&table, &w));
  *bytes = w.bytes;
  err = file_finish(&w, sha256);
done:
  file_abandon(&w);
  place_unpin(&list);
  checked_table_free(&table);
  return err;
}

Err order_write(const char *path, uint64_t pairs, OrderLengths lengths, void *context,
                uint64_t *bytes, char sha256[65]) {
  if (pairs == 0 || pairs > ORDER_MOST_PAIRS) {
    return err_set(ERR_WORK, "a training set has 1 to 4,294,967,295 pairs, not %llu",
                   (unsigned long long)pairs);
  }
  char list_path[FILE_PATH_MAX];
  int n = snprintf(list_path, sizeof list_path, "%s.list", path);
  if (n < 0 || n >= FILE_PATH_MAX) return err_set(ERR_WORK, "the path %s is too long", path);
  Counts counts = {0};
  OrderCell *cells = NULL;
  Header header = {.magic = MAGIC, .version = VERSION, .pairs = pairs};
  size_t n_cells = 0;
  Err err;
  TRY_DONE(count_lengths(&counts, pairs, lengths, context));
  TRY_DONE(list_cells(&counts, &cells, &n_cells));
  TRY_DONE(scatter(list_path, pairs, &counts, lengths, context));
  header.primary = (uint32_t)counts.primary;
  header.cells = n_cells;
  header.payload = sizeof header + n_cells * sizeof *cells + pairs * sizeof(uint32_t);
  err = assemble(path, list_path, &header, cells, bytes, sha256);
done:
  unlink(list_path);
  mem_free(cells);
  mem_free(counts.count);
  return err;
}

static Err check_header(const Header *h, const PlacePin *map) {
  if (map->size < sizeof *h || memcmp(h->magic, MAGIC, 8) != 0)
    return err_set(ERR_WORK, "%s is not an order file: wrong first bytes", map->path);
  if (h->version != VERSION) {
    return err_set(ERR_WORK,
                   "%s has version %u, this trireme reads %u; prepare the data set again",
                   map->path, h->version, VERSION);
  }
  bool sane =
      h->primary < 2 && h->pairs > 0 && h->pairs <= UINT32_MAX && h->cells > 0 &&
      h->cells <= h->pairs &&
      h->payload == sizeof *h + h->cells * sizeof(OrderCell) + h->pairs * sizeof(uint32_t);
  return sane
             ? ERR_OK
             : err_set(ERR_WORK, "%s has a damaged header (byte 0); prepare the data set again",
                       map->path);
}

/* The cells must rise strictly and count every pair once: planning trusts them. */
static Err check_cells(const Order *o) {
  uint64_t total = 0;
  for (size_t i = 0; i < o->cells; i++) {
    const OrderCell *c = &o->cell[i];
    const OrderCell *before = i ? c - 1 : NULL;
    int p = o->primary;
    bool rises = !before || c->len[p] > before->len[p] ||
                 (c->len[p] == before->len[p] && c->len[!p] > before->len[!p]);
    if (!rises || c->count == 0 || c->len[0] > SHARD_LONGEST || c->len[1] > SHARD_LONGEST) {
      return err_set(
          ERR_WORK,
          "%s is damaged at byte %zu: lengths out of order; prepare the data set again",
          o->file.map.path, sizeof(Header) + i * sizeof *c);
    }
    total += c->count;
  }
  if (total != o->pairs)
    return err_set(ERR_WORK, "%s is damaged: its lengths count %llu pairs of %llu",
                   o->file.map.path, (unsigned long long)total, (unsigned long long)o->pairs);
  return ERR_OK;
}

Err order_open(Order *o, const char *path) {
  *o = (Order){0};
  PlacePin map;
  Header h = {0};
  Err err;
  TRY(place_pin_file(&map, path));
  if (map.size >= sizeof h) memcpy(&h, map.bytes, sizeof h);
  TRY_DONE(check_header(&h, &map));
  TRY_DONE(checked_open(&o->file, &map, h.payload));
  TRY_DONE(checked_touch(&o->file, 0, sizeof h + (size_t)h.cells * sizeof(OrderCell)));
  o->pairs = h.pairs, o->cells = (size_t)h.cells, o->primary = (int)h.primary;
  o->cell = (const OrderCell *)(const void *)(o->file.map.bytes + sizeof h);
  o->pair = (const uint32_t *)(const void *)(o->cell + o->cells);
  err = check_cells(o);
done:
  place_unpin(&map);
  if (err) order_close(o);
  return err;
}

void order_close(Order *o) {
  checked_close(&o->file);
  *o = (Order){0};
}

/* Keys of the permutations: one family for each use, so that none repeats. */
enum { KEY_BATCH = 1, KEY_CLASS = 2, KEY_STRATUM = 3 };

Err order_batch(Order *o, const OrderPlan *plan, uint64_t seed, uint64_t epoch, uint64_t i,
                uint32_t *pairs, uint32_t *count) {
  uint64_t chunk = i / plan->per_chunk;
  uint64_t key = rng_mix(seed, epoch);
  uint64_t chunk_key = rng_mix(key, chunk);
  uint64_t class_key = rng_mix(chunk_key, KEY_CLASS), stratum_key = rng_mix(key, KEY_STRATUM);
  uint64_t b = rng_permute(rng_mix(chunk_key, KEY_BATCH), plan->per_chunk, i % plan->per_chunk);
  *count = 0;
  for (uint32_t slot = plan->slot_begin[b]; slot < plan->slot_begin[b + 1]; slot++) {
    uint32_t c = plan->slot_class[slot], first = plan->class_begin[c];
    uint64_t place = rng_permute(rng_mix(class_key, c), plan->class_begin[c + 1] - first,
                                 plan->slot_ordinal[slot]);
    uint64_t stratum = plan->class_stratum[first + place];
    uint64_t begin = stratum * o->pairs / plan->strata,
             end = (stratum + 1) * o->pairs / plan->strata;
    uint64_t chosen = begin + rng_permute(rng_mix(stratum_key, stratum), plan->chunks, chunk);
    if (chosen >= end)
      continue; /* this stratum has one pair fewer, and this chunk goes without */
    __builtin_prefetch(&o->pair[chosen]);
    pairs[(*count)++] = (uint32_t)chosen;
  }
  for (uint32_t k = 0; k < *count; k++) { /* the list is read once it has come from memory */
    const uint32_t *at = &o->pair[pairs[k]];
    TRY(checked_touch(&o->file, (size_t)((const uint8_t *)at - o->file.map.bytes), sizeof *at));
    pairs[k] = *at;
  }
  return ERR_OK;
}
