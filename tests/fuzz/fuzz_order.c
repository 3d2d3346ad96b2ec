/* Order files of both formats as hostile bytes. The first byte selects how much of the file is
 * corrected before it is opened. An epoch must have as many pairs, and as many distinct ones, as
 * the lists in the file, or return an error for a pair that does not exist.
 * Depends on data/order. */
#include "data/order.h"

#include "data/order_file.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 64, AT_PAYLOAD = 32 };

/* Makes the lengths of a window's cells increase and their counts add up to its pairs, as
 * close to the given bytes as possible; the last lengths may still be too large. */
static void mend_cells(uint8_t *file, const OrderEntry *e) {
  uint64_t left = e->pairs;
  int primary = e->primary & 1;
  uint32_t len[2] = {0, 0}; /* of the primary side, of the other side */
  for (uint64_t i = 0; i < e->cells; i++) {
    OrderCell cell;
    uint8_t *at = file + e->offset + i * sizeof cell;
    memcpy(&cell, at, sizeof cell);
    uint32_t rise = cell.len[primary] % 8;
    if (rise && i) {
      len[0] += rise;
      len[1] = cell.len[!primary] % 64;
    } else {
      len[1] += 1u + cell.len[!primary] % 8;
    }
    uint64_t most = left - (e->cells - 1 - i);
    uint64_t count = i + 1 == e->cells ? left : 1 + cell.count % most;
    left -= count;
    cell.len[primary] = (uint16_t)len[0];
    cell.len[!primary] = (uint16_t)len[1];
    cell.count = (uint32_t)count;
    memcpy(at, &cell, sizeof cell);
  }
}

/* Replaces the pairs in the list by existing ones, so that an epoch can be read. */
static void mend_list(uint8_t *file, const OrderEntry *e) {
  for (uint64_t i = 0; i < e->pairs; i++) {
    uint32_t pair = (uint32_t)i;
    memcpy(file + e->offset + e->cells * sizeof(OrderCell) + i * sizeof pair, &pair,
           sizeof pair);
  }
}

/* Makes a window fill `room` bytes at `offset`: first cells, as many as it has if they fit,
 * then pairs. Returns the end of the window, a multiple of 8. */
static uint64_t mend_entry(OrderEntry *e, uint64_t offset, uint64_t room) {
  uint64_t words = room / 8 * 2;
  e->primary &= 1;
  e->offset = offset;
  e->cells = words >= 3 ? 1 + e->cells % (words / 3) : 0;
  e->pairs = words - 2 * e->cells;
  return offset + words * 4;
}

/* Corrects header and table; with `depth` 5 also the cells, with 6 or more also the list of
 * pairs. Returns the size of the payload. */
static size_t mend_format2(uint8_t *file, size_t size, unsigned depth) {
  OrderHeader2 h;
  memcpy(&h, file, sizeof h);
  memcpy(h.magic, ORDER_MAGIC, sizeof h.magic);
  h.version = 2;
  h.windows = 1 + h.windows % 4;
  h.required_flags = 0;
  h.pairs = 0;
  uint64_t end = sizeof h + h.windows * sizeof(OrderEntry);
  if (size < end) return 0;
  uint64_t room = (size - end) / h.windows;
  for (uint32_t i = 0; i < h.windows; i++) {
    OrderEntry e;
    uint8_t *at = file + sizeof h + i * sizeof e;
    memcpy(&e, at, sizeof e);
    end = mend_entry(&e, end, room);
    memcpy(at, &e, sizeof e);
    h.pairs += e.pairs;
    if (depth >= 5) mend_cells(file, &e);
    if (depth >= 6) mend_list(file, &e);
  }
  h.payload = end;
  memcpy(file, &h, sizeof h);
  return (size_t)end;
}

static size_t mend_format1(uint8_t *file, size_t size, unsigned depth) {
  OrderHeader1 h;
  memcpy(&h, file, sizeof h);
  OrderEntry e = {.cells = h.cells, .primary = h.primary};
  memcpy(h.magic, ORDER_MAGIC, sizeof h.magic);
  h.version = 1;
  h.payload = mend_entry(&e, sizeof h, size - sizeof h);
  h.primary = e.primary;
  h.cells = e.cells;
  h.pairs = e.pairs;
  memcpy(file, &h, sizeof h);
  if (depth >= 5) mend_cells(file, &e);
  if (depth >= 6) mend_list(file, &e);
  return (size_t)h.payload;
}

static Err walk_epoch(Order *o, const OrderPlan *plan, uint64_t seed) {
  uint64_t *pairs = malloc(plan->most_sentences * sizeof *pairs + 1);
  uint8_t *seen = calloc((size_t)o->pairs, 1);
  uint64_t total = 0, distinct = 0, listed = 0;
  uint32_t n;
  REQUIRE(pairs && seen);
  Err err = ERR_OK;
  for (uint64_t i = 0; i < plan->batches && !err; i++) {
    err = order_batch(o, plan, seed, 1, i, pairs, &n);
    REQUIRE(n <= plan->most_sentences);
    for (uint32_t k = 0; k < n && !err; k++) {
      REQUIRE(pairs[k] < o->pairs);
      distinct += !seen[pairs[k]];
      seen[pairs[k]] = 1;
      total++;
    }
  }
  REQUIRE(err || total == o->pairs);
  for (size_t w = 0; w < o->windows && !err; w++) {
    memset(seen, 0, (size_t)o->pairs);
    for (uint64_t i = 0; i < o->window[w].pairs; i++) {
      listed += !seen[o->window[w].pair[i]];
      seen[o->window[w].pair[i]] = 1;
    }
  }
  REQUIRE(err || distinct == listed);
  free(pairs);
  free(seen);
  return err;
}

static Err read_order(const uint8_t *file, size_t size, uint32_t capacity, uint64_t seed) {
  Order o;
  OrderPlan plan;
  TRY(order_open(&o, fuzz_file(file, size)));
  Err err = checked_all(&o.file);
  if (!err && order_plan(&plan, &o, capacity) == ERR_OK) {
    REQUIRE(plan.fill > 0 && plan.fill <= 1);
    err = walk_epoch(&o, &plan, seed);
    order_plan_free(&plan);
  }
  order_close(&o);
  return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 5) return 0;
  unsigned mode = data[0] & 7; /* 0, 1: unchanged; 2, 3: valid checksums; 4 to 7: corrected */
  bool is_format1 = data[0] & 8;
  uint32_t capacity = 1 + data[1] + (data[2] & 15) * 256u, where;
  memcpy(&where, data + 1, sizeof where);
  data += 5;
  size -= 5;
  size_t room = size < HEADER ? HEADER : size;
  uint8_t *file = calloc(room + checked_table_size(room), 1);
  REQUIRE(file);
  if (size) memcpy(file, data, size);
  if ((mode == 2 || mode == 3) && size >= HEADER && fuzz_get64(file, AT_PAYLOAD) <= size) {
    size = fuzz_seal(file, (size_t)fuzz_get64(file, AT_PAYLOAD));
  } else if (mode >= 4) {
    size_t payload =
        is_format1 ? mend_format1(file, room, mode) : mend_format2(file, room, mode);
    REQUIRE(payload <= room);
    if (payload) size = fuzz_seal(file, payload);
  }
  Err err = read_order(file, size, capacity, where);
  if (mode == 7 && !err) {
    file[where % size] ^= (uint8_t)(1u << (where >> 29));
    REQUIRE(read_order(file, size, capacity, where) != ERR_OK);
  }
  free(file);
  return 0;
}
