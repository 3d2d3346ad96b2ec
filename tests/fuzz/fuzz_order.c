/* Order files as hostile bytes, with as much made right before as the first byte
 * says. What can be opened and planned must give every place of the list once
 * an epoch. Relies on data/order. */
#include "data/order.h"

#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 64, AT_PRIMARY = 12, AT_PAIRS = 16, AT_CELLS = 24, AT_PAYLOAD = 32 };

/* Makes the header fit the payload: as many cells as it asks for and have room,
 * the rest pairs. Returns the payload's size. */
static size_t mend_header(uint8_t *file, size_t size) {
  uint64_t room = (size - HEADER) / 4;
  uint64_t cells = room >= 3 ? 1 + fuzz_get64(file, AT_CELLS) % (room / 3) : 0;
  uint64_t pairs = room - 2 * cells;
  memcpy(file, "TRIORD\r\n", 8);
  fuzz_put32(file, 8, 1);
  fuzz_put32(file, AT_PRIMARY, file[AT_PRIMARY] & 1);
  fuzz_put64(file, AT_PAIRS, pairs);
  fuzz_put64(file, AT_CELLS, cells);
  size_t payload = HEADER + (size_t)(2 * cells + pairs) * 4;
  fuzz_put64(file, AT_PAYLOAD, payload);
  return payload;
}

/* Makes the cells rise and count the pairs, from what their bytes ask for; the
 * last ones may still be too long. */
static void mend_cells(uint8_t *file) {
  uint64_t cells = fuzz_get64(file, AT_CELLS), left = fuzz_get64(file, AT_PAIRS);
  int primary = file[AT_PRIMARY] & 1;
  uint32_t len[2] = {0, 0}; /* primary, other */
  for (uint64_t i = 0; i < cells; i++) {
    OrderCell cell;
    uint8_t *at = file + HEADER + i * sizeof cell;
    memcpy(&cell, at, sizeof cell);
    uint32_t rise = cell.len[primary] % 8;
    if (rise && i)
      len[0] += rise, len[1] = cell.len[!primary] % 64;
    else
      len[1] += 1u + cell.len[!primary] % 8;
    uint64_t most = left - (cells - 1 - i);
    uint64_t count = i + 1 == cells ? left : 1 + cell.count % most;
    left -= count;
    cell.len[primary] = (uint16_t)len[0];
    cell.len[!primary] = (uint16_t)len[1];
    cell.count = (uint32_t)count;
    memcpy(at, &cell, sizeof cell);
  }
}

static void walk_epoch(Order *o, const OrderPlan *plan, uint64_t seed) {
  uint32_t *pairs = malloc(plan->most_sentences * sizeof *pairs + 1);
  uint8_t *seen = calloc((size_t)o->pairs, 1);
  uint64_t total = 0;
  uint32_t n;
  REQUIRE(pairs && seen);
  for (uint64_t i = 0; i < plan->batches; i++) {
    REQUIRE(order_batch(o, plan, seed, 1, i, pairs, &n) == ERR_OK);
    REQUIRE(n <= plan->most_sentences);
    total += n;
    for (uint32_t k = 0; k < n; k++) {
      if (pairs[k] < o->pairs) seen[pairs[k]] = 1;
    }
  }
  REQUIRE(total == o->pairs);
  for (uint64_t i = 0; i < o->pairs; i++) REQUIRE(o->pair[i] >= o->pairs || seen[o->pair[i]]);
  free(pairs);
  free(seen);
}

static Err read_order(const uint8_t *file, size_t size, uint32_t capacity, uint64_t seed) {
  Order o;
  OrderPlan plan;
  TRY(order_open(&o, fuzz_file(file, size)));
  Err err = checked_all(&o.file);
  if (!err && order_plan(&plan, &o, capacity) == ERR_OK) {
    REQUIRE(plan.fill > 0 && plan.fill <= 1);
    walk_epoch(&o, &plan, seed);
    order_plan_free(&plan);
  }
  order_close(&o);
  return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 5) return 0;
  unsigned mode = data[0] & 7; /* 0 and 1 as it is, 2 and 3 sealed, 4 to 7 mended */
  uint32_t capacity = 1 + data[1] + (data[2] & 15) * 256u, where;
  memcpy(&where, data + 1, sizeof where);
  data += 5, size -= 5;
  uint8_t *file = calloc(size + HEADER + checked_table_size(size + HEADER), 1);
  REQUIRE(file);
  if (size) memcpy(file, data, size);
  if ((mode == 2 || mode == 3) && size >= HEADER && fuzz_get64(file, AT_PAYLOAD) <= size) {
    size = fuzz_seal(file, (size_t)fuzz_get64(file, AT_PAYLOAD));
  } else if (mode >= 4) {
    size_t payload = mend_header(file, size < HEADER ? HEADER : size);
    if (mode >= 5) mend_cells(file);
    size = fuzz_seal(file, payload);
  }
  Err err = read_order(file, size, capacity, where);
  if (mode == 7 && !err) {
    file[where % size] ^= (uint8_t)(1u << (where >> 29));
    REQUIRE(read_order(file, size, capacity, where) != ERR_OK);
  }
  free(file);
  return 0;
}
