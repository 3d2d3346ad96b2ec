/* The training order: every pair occurs once in an epoch, batches fit their capacity, the pairs
 * of a batch depend only on its number, with one window and with several; invalid files are
 * refused. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../fuzz/fuzz_file.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/rng.h"
#include "data/order.h"
#include "data/order_file.h"
#include "support.h"

/* Draws lengths like those of real sentences: roughly log-normal, with correlated sides. */
static void draw_lengths(Rng *rng, uint32_t longest, uint32_t len[2]) {
  uint64_t sum = 1;
  for (int i = 0; i < 4; i++) sum += rng_below(rng, 1 + longest / 4);
  uint32_t n = (uint32_t)(rng_below(rng, 8) ? sum / 2 + 1 : sum);
  for (int side = 0; side < 2; side++) {
    uint32_t swing = n / 4 + 1;
    uint32_t rows = n + (uint32_t)rng_below(rng, 2 * swing + 1);
    len[side] = rows > swing + 1 ? rows - swing : 1;
    if (len[side] > longest) len[side] = longest;
  }
}

/* The parts of a data set that the order needs. */
typedef struct {
  uint32_t (*len)[2];
  uint64_t pairs;
} Lengths;

static Err give_lengths(void *context, uint64_t i, uint32_t len[2]) {
  Lengths *l = context;
  len[0] = l->len[i][0], len[1] = l->len[i][1];
  return ERR_OK;
}

static Lengths make_lengths(uint64_t pairs, uint32_t longest, uint64_t seed) {
  Lengths l = {.pairs = pairs};
  OK(mem_alloc(&l.len, pairs, sizeof *l.len));
  Rng rng = {.key = seed};
  for (uint64_t i = 0; i < pairs; i++) draw_lengths(&rng, longest, l.len[i]);
  return l;
}

static void open_windows(Order *o, Lengths *l, const uint64_t *window_pairs, size_t windows) {
  uint64_t bytes;
  char hex[65];
  OK(order_write(at("t.order"), window_pairs, windows, give_lengths, l, &bytes, hex));
  OK(order_open(o, at("t.order")));
}

static void open_order(Order *o, Lengths *l) {
  open_windows(o, l, &l->pairs, 1);
}

/* Checks one epoch: every pair once, no batch above capacity, and the packing efficiency of the
 * plan. */
static void check_epoch(Order *o, const Lengths *l, const OrderPlan *plan, uint64_t seed,
                        uint64_t epoch) {
  uint8_t *seen;
  uint64_t *pairs;
  uint32_t n;
  uint64_t rows[2] = {0};
  OK(mem_alloc(&seen, l->pairs, 1));
  OK(mem_alloc(&pairs, plan->most_sentences, sizeof *pairs));
  for (uint64_t i = 0; i < plan->batches; i++) {
    uint64_t held[2] = {0};
    OK(order_batch(o, plan, seed, epoch, i, pairs, &n));
    assert_true(n <= plan->most_sentences);
    for (uint32_t k = 0; k < n; k++) {
      assert_true(pairs[k] < l->pairs);
      assert_int_equal(seen[pairs[k]], 0);
      seen[pairs[k]] = 1;
      for (int side = 0; side < 2; side++) held[side] += l->len[pairs[k]][side] + 1;
    }
    for (int side = 0; side < 2; side++) {
      assert_true(held[side] <= plan->capacity);
      rows[side] += held[side];
    }
  }
  for (uint64_t i = 0; i < l->pairs; i++) assert_int_equal(seen[i], 1);
  uint64_t fuller = rows[0] > rows[1] ? rows[0] : rows[1];
  double fill = (double)fuller / ((double)plan->capacity * (double)plan->batches);
  assert_true(fill > plan->fill - 1e-12 && fill < plan->fill + 1e-12);
  mem_free(seen);
  mem_free(pairs);
}

static void test_order_gives_every_pair_once(void **state) {
  (void)state;
  static const struct {
    uint64_t pairs;
    uint32_t longest, capacity;
  } cases[] = {{1, 5, 16},        {2, 5, 16},          {7, 9, 10},
               {100, 30, 64},     {1000, 30, 31},      {5000, 40, 512},
               {20011, 60, 1024}, {20011, 60, 100000}, {50000, 100, 4096}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    Lengths l = make_lengths(cases[c].pairs, cases[c].longest, c);
    Order o;
    OrderPlan plan;
    open_order(&o, &l);
    OK(order_plan(&plan, &o, cases[c].capacity));
    for (uint64_t epoch = 0; epoch < 2; epoch++) check_epoch(&o, &l, &plan, 42, epoch);
    order_plan_free(&plan);
    order_close(&o);
    mem_free(l.len);
  }
}

static void test_order_plan_of_several_windows_is_that_of_each_alone(void **state) {
  (void)state;
  Lengths l = make_lengths(40000, 60, 5);
  static const uint64_t pairs[] = {9000, 20000, 11000};
  Order o;
  OrderPlan plan;
  open_windows(&o, &l, pairs, 3);
  OK(order_plan(&plan, &o, 700));
  Lengths part = l;
  for (size_t i = 0; i < 3; part.len += pairs[i++]) {
    Order alone;
    OrderPlan one;
    part.pairs = pairs[i];
    open_order(&alone, &part);
    OK(order_plan(&one, &alone, 700));
    const WindowPlan *a = &one.window[0];
    const WindowPlan *b = &plan.window[i];
    assert_int_equal(a->strata, b->strata);
    assert_int_equal(a->batches, b->batches);
    assert_memory_equal(a->slot_class, b->slot_class, a->strata * sizeof *a->slot_class);
    assert_memory_equal(a->slot_ordinal, b->slot_ordinal, a->strata * sizeof *a->slot_ordinal);
    order_plan_free(&one);
    order_close(&alone);
  }
  order_plan_free(&plan);
  order_close(&o);
  mem_free(l.len);
}

static void test_order_batches_are_full(void **state) {
  (void)state;
  Lengths l = make_lengths(400000, 60, 3);
  Order o;
  OrderPlan plan;
  open_order(&o, &l);
  static const struct {
    uint32_t capacity;
    double fill;
  } cases[] = {{4096, 0.97}, {25600, 0.99}};
  for (int c = 0; c < 2; c++) {
    OK(order_plan(&plan, &o, cases[c].capacity));
    assert_true(plan.fill >= cases[c].fill);
    order_plan_free(&plan);
  }
  order_close(&o);
  mem_free(l.len);
}

/* The same number must give the same batch, from any plan of the same file. */
static void test_order_same_seed_and_epoch_give_the_same_batches(void **state) {
  (void)state;
  Lengths l = make_lengths(30000, 50, 4);
  Order o;
  OrderPlan one, two;
  open_order(&o, &l);
  OK(order_plan(&one, &o, 2048));
  OK(order_plan(&two, &o, 2048));
  uint64_t a[4096], b[4096];
  uint32_t n, m;
  assert_true(one.most_sentences <= 4096);
  for (uint64_t i = one.batches; i-- > 0;) {
    OK(order_batch(&o, &one, 7, 3, i, a, &n));
    OK(order_batch(&o, &two, 7, 3, i, b, &m));
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n * sizeof *a);
  }
  order_plan_free(&one);
  order_plan_free(&two);
  order_close(&o);
  mem_free(l.len);
}

/* Returns how many pairs batch i has in common for two seeds and epochs, summed over all i. */
static uint64_t count_common(Order *o, const OrderPlan *plan, uint64_t seed, uint64_t epoch) {
  uint64_t a[4096], b[4096];
  uint32_t n, m;
  uint64_t common = 0;
  assert_true(plan->most_sentences <= 4096);
  for (uint64_t i = 0; i < plan->batches; i++) {
    OK(order_batch(o, plan, 7, 3, i, a, &n));
    OK(order_batch(o, plan, seed, epoch, i, b, &m));
    for (uint32_t k = 0; k < n; k++) {
      for (uint32_t j = 0; j < m; j++) common += a[k] == b[j];
    }
  }
  return common;
}

static void check_other_batches(uint64_t seed, uint64_t epoch) {
  Lengths l = make_lengths(30000, 50, 4);
  Order o;
  OrderPlan plan;
  open_order(&o, &l);
  OK(order_plan(&plan, &o, 2048));
  /* Equal seeds and epochs share all pairs. */
  assert_int_equal(count_common(&o, &plan, 7, 3), l.pairs);
  /* Two random batches out of `batches` have about pairs / batches pairs in common, summed over
   * all batches. */
  double expected = (double)l.pairs / (double)plan.batches;
  assert_true((double)count_common(&o, &plan, seed, epoch) < 4 * expected + 50);
  order_plan_free(&plan);
  order_close(&o);
  mem_free(l.len);
}

static void test_order_other_seed_gives_other_batches(void **state) {
  (void)state;
  check_other_batches(8, 3);
}

static void test_order_other_epoch_gives_other_batches(void **state) {
  (void)state;
  check_other_batches(7, 4);
}

/* Batches are composed anew in each epoch: over many epochs a pair must share a batch with many
 * other pairs. */
static void test_order_other_epoch_mixes_other_pairs_into_a_batch(void **state) {
  (void)state;
  Lengths l = make_lengths(9000, 40, 5);
  Order o;
  OrderPlan plan;
  open_order(&o, &l);
  OK(order_plan(&plan, &o, 1024));
  uint8_t met[9000] = {0};
  uint64_t pairs[1024];
  uint32_t n;
  const uint64_t epochs = 30;
  uint64_t companions = 0;
  for (uint64_t epoch = 0; epoch < epochs; epoch++) {
    for (uint64_t i = 0; i < plan.batches; i++) {
      OK(order_batch(&o, &plan, 1, epoch, i, pairs, &n));
      bool here = false;
      for (uint32_t k = 0; k < n; k++) here |= pairs[k] == 4711;
      for (uint32_t k = 0; here && k < n; k++) met[pairs[k]] = 1, companions++;
    }
  }
  uint64_t distinct = 0;
  for (int i = 0; i < 9000; i++) distinct += met[i];
  /* Expected number of distinct companions if they were drawn at random. */
  double random = 9000 * (1 - exp(-(double)companions / 9000));
  assert_true((double)distinct >= 0.85 * random);
  order_plan_free(&plan);
  order_close(&o);
  mem_free(l.len);
}

static void test_plan_capacity_below_longest_sentence_is_refused(void **state) {
  (void)state;
  Lengths l = make_lengths(100, 30, 6);
  Order o;
  OrderPlan plan;
  open_order(&o, &l);
  assert_int_equal(order_plan(&plan, &o, 8), ERR_USAGE);
  assert_non_null(strstr(err_message(), "--batch-tokens"));
  order_close(&o);
  mem_free(l.len);
}

/* ---- windows ---- */

enum { WINDOWS = 5 };
static const uint64_t window_pairs[WINDOWS] = {5000, 1, 7011, 900, 5000};

static uint64_t count_pairs(void) {
  uint64_t pairs = 0;
  for (int w = 0; w < WINDOWS; w++) pairs += window_pairs[w];
  return pairs;
}

/* A data set of five windows with a plan. */
typedef struct {
  Lengths l;
  Order o;
  OrderPlan plan;
  uint64_t *pairs; /* pairs of a batch */
} Windows;

static void make_windows(Windows *w) {
  w->l = make_lengths(count_pairs(), 40, 8);
  open_windows(&w->o, &w->l, window_pairs, WINDOWS);
  OK(order_plan(&w->plan, &w->o, 512));
  OK(mem_alloc(&w->pairs, w->plan.most_sentences, sizeof *w->pairs));
}

static void free_windows(Windows *w) {
  mem_free(w->pairs);
  order_plan_free(&w->plan);
  order_close(&w->o);
  mem_free(w->l.len);
}

static size_t find_window(const Windows *w, uint64_t pair) {
  size_t i = 0;
  while (i + 1 < w->o.windows && w->o.window[i + 1].first <= pair) i++;
  return i;
}

static void test_windows_give_every_pair_once_and_fit(void **state) {
  (void)state;
  Windows w;
  make_windows(&w);
  assert_int_equal(w.o.pairs, count_pairs());
  for (uint64_t epoch = 0; epoch < 3; epoch++) {
    uint8_t *seen;
    uint32_t n;
    uint64_t total = 0;
    OK(mem_alloc(&seen, w.o.pairs, 1));
    for (uint64_t i = 0; i < w.plan.batches; i++) {
      uint64_t held[2] = {0};
      OK(order_batch(&w.o, &w.plan, 42, epoch, i, w.pairs, &n));
      assert_true(n <= w.plan.most_sentences);
      for (uint32_t k = 0; k < n; k++) {
        assert_int_equal(seen[w.pairs[k]]++, 0);
        for (int side = 0; side < 2; side++) held[side] += w.l.len[w.pairs[k]][side] + 1;
      }
      assert_true(held[0] <= 512 && held[1] <= 512);
      total += n;
    }
    assert_int_equal(total, w.o.pairs);
    mem_free(seen);
  }
  free_windows(&w);
}

static void test_windows_plan_has_sum_of_batches_and_maximum_of_sentences(void **state) {
  (void)state;
  Windows w;
  make_windows(&w);
  uint64_t batches = 0;
  uint32_t most = 0;
  double filled = 0;
  for (size_t i = 0; i < w.plan.windows; i++) {
    const WindowPlan *p = &w.plan.window[i];
    batches += p->batches;
    filled += p->fill * (double)p->batches;
    if (p->most_sentences > most) most = p->most_sentences;
  }
  assert_int_equal(w.plan.windows, WINDOWS);
  assert_int_equal(w.plan.batches, batches);
  assert_int_equal(w.plan.most_sentences, most);
  assert_true(fabs(w.plan.fill - filled / (double)batches) < 1e-12);
  free_windows(&w);
}

/* Lists the windows in the order in which the epoch reads them. */
static void list_turns(Windows *w, uint64_t epoch, size_t turn[WINDOWS]) {
  size_t n = 0;
  for (uint64_t i = 0; i < w->plan.batches; i++) {
    uint32_t count;
    OK(order_batch(&w->o, &w->plan, 42, epoch, i, w->pairs, &count));
    for (uint32_t k = 0; k < count; k++) {
      size_t window = find_window(w, w->pairs[k]);
      if (n && turn[n - 1] == window) continue;
      assert_int_equal(k, 0); /* A batch never has pairs of two windows. */
      assert_true(n < WINDOWS);
      turn[n++] = window;
    }
  }
  assert_int_equal(n, WINDOWS);
}

static void test_windows_are_read_one_at_a_time_in_random_order(void **state) {
  (void)state;
  Windows w;
  size_t first[WINDOWS], turn[WINDOWS];
  unsigned changed = 0;
  make_windows(&w);
  list_turns(&w, 0, first);
  for (uint64_t epoch = 1; epoch < 8; epoch++) {
    list_turns(&w, epoch, turn);
    changed += memcmp(first, turn, sizeof first) != 0;
  }
  /* Each epoch has one of 120 orders, so at most one of seven should equal epoch 0. */
  assert_true(changed >= 6);
  free_windows(&w);
}

/* Any batch of any epoch must be the same, for any order of requests and from another plan. */
static void test_windows_batch_depends_on_its_number_only(void **state) {
  (void)state;
  Windows w;
  OrderPlan fresh;
  Rng rng = {.key = 5};
  uint64_t *again;
  make_windows(&w);
  OK(mem_alloc(&again, w.plan.most_sentences, sizeof *again));
  for (int t = 0; t < 300; t++) {
    uint64_t epoch = rng_below(&rng, 1000000), i = rng_below(&rng, w.plan.batches);
    uint32_t n, m;
    OK(order_batch(&w.o, &w.plan, 42, epoch, i, w.pairs, &n));
    OK(order_batch(&w.o, &w.plan, 42, epoch + 1, 0, again, &m));
    if (t % 30 == 0) {
      OK(order_plan(&fresh, &w.o, 512));
      OK(order_batch(&w.o, &fresh, 42, epoch, i, again, &m));
      order_plan_free(&fresh);
    } else {
      OK(order_batch(&w.o, &w.plan, 42, epoch, i, again, &m));
    }
    assert_int_equal(n, m);
    assert_memory_equal(w.pairs, again, n * sizeof *again);
  }
  mem_free(again);
  free_windows(&w);
}

/* Windows with equal lengths must be shuffled differently. */
static void test_windows_are_shuffled_differently(void **state) {
  (void)state;
  Lengths l = make_lengths(4000, 40, 8);
  memcpy(l.len + 2000, l.len, 2000 * sizeof *l.len);
  Order o;
  OrderPlan plan;
  open_windows(&o, &l, (uint64_t[]){2000, 2000}, 2);
  OK(order_plan(&plan, &o, 512));
  uint64_t half = plan.batches / 2, same = 0, all = 0;
  assert_int_equal(plan.window[0].batches, half);
  for (uint64_t i = 0; i < half; i++) {
    uint64_t a[512], b[512];
    uint32_t n, m;
    OK(order_batch(&o, &plan, 1, 0, i, a, &n));
    OK(order_batch(&o, &plan, 1, 0, half + i, b, &m));
    for (uint32_t k = 0; k < n && k < m; k++) same += a[k] % 2000 == b[k] % 2000;
    all += n;
  }
  assert_true(same < all / 10);
  order_plan_free(&plan);
  order_close(&o);
  mem_free(l.len);
}

/* ---- files ---- */

/* Format 1 is format 2 with one window and without its table. */
static void test_order_format_1_gives_the_same_batches(void **state) {
  (void)state;
  Lengths l = make_lengths(3000, 40, 9);
  Order one, two;
  OrderPlan plan_one, plan_two;
  open_order(&two, &l);
  const OrderWindow *w = &two.window[0];
  OrderHeader1 h = {.magic = ORDER_MAGIC, .version = 1, .primary = (uint32_t)w->primary};
  h.pairs = w->pairs;
  h.cells = w->cells;
  h.payload = sizeof h + w->cells * sizeof *w->cell + w->pairs * sizeof *w->pair;
  uint8_t *file = calloc((size_t)h.payload + checked_table_size(h.payload), 1);
  assert_non_null(file);
  memcpy(file, &h, sizeof h);
  memcpy(file + sizeof h, w->cell, (size_t)h.payload - sizeof h);
  size_t size = fuzz_seal(file, (size_t)h.payload);
  OK(file_write(at("one.order"), (const char *)file, size));
  free(file);
  OK(order_open(&one, at("one.order")));
  OK(order_plan(&plan_one, &one, 256));
  OK(order_plan(&plan_two, &two, 256));
  assert_int_equal(plan_one.batches, plan_two.batches);
  for (uint64_t i = 0; i < plan_one.batches; i++) {
    uint64_t a[256], b[256];
    uint32_t n, m;
    OK(order_batch(&one, &plan_one, 3, 1, i, a, &n));
    OK(order_batch(&two, &plan_two, 3, 1, i, b, &m));
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n * sizeof *a);
  }
  order_plan_free(&plan_one);
  order_plan_free(&plan_two);
  order_close(&one);
  order_close(&two);
  mem_free(l.len);
}

/* Sets a field of an order file with three windows, updates the checksums, opens the file and
 * reads an epoch. */
static Err try_field(size_t offset, size_t bytes, uint64_t value) {
  Lengths l = make_lengths(600, 20, 2);
  Order o;
  OrderPlan plan;
  Str whole = {0};
  open_windows(&o, &l, (uint64_t[]){100, 200, 300}, 3);
  size_t payload = o.file.payload;
  order_close(&o);
  mem_free(l.len);
  OK(place_read_all(at("t.order"), 1 << 20, &whole));
  if (offset < whole.len) memcpy(whole.s + offset, &value, bytes);
  size_t size = fuzz_seal((uint8_t *)whole.s, payload);
  OK(file_write(at("field.order"), whole.s, size));
  str_free(&whole);
  TRY(order_open(&o, at("field.order")));
  Err err = order_plan(&plan, &o, 128);
  for (uint64_t i = 0; i < plan.batches && !err; i++) {
    uint64_t pairs[128];
    uint32_t n;
    err = order_batch(&o, &plan, 1, 0, i, pairs, &n);
  }
  order_plan_free(&plan);
  order_close(&o);
  return err;
}

static void refuse_field(size_t offset, size_t bytes, uint64_t value, const char *words) {
  if (try_field(offset, bytes, value) == ERR_OK)
    fail_msg("offset %zu = %llu was accepted", offset, (unsigned long long)value);
  assert_says("field.order");
  assert_says(words);
}

#define HEADER(field) offsetof(OrderHeader2, field), sizeof(((OrderHeader2 *)0)->field)
#define FIELD(w, field)                                                                  \
  sizeof(OrderHeader2) + (size_t)(w) * sizeof(OrderEntry) + offsetof(OrderEntry, field), \
      sizeof(((OrderEntry *)0)->field)

static void test_order_unknown_required_flag_is_refused_as_newer(void **state) {
  (void)state;
  refuse_field(HEADER(required_flags), 4, "newer version");
  refuse_field(HEADER(version), 3, "newer version");
}

static void test_order_unknown_optional_flag_is_ignored(void **state) {
  (void)state;
  OK(try_field(HEADER(optional_flags), 4));
}

static void test_order_wrong_number_of_windows_is_refused(void **state) {
  (void)state;
  refuse_field(HEADER(windows), 0, "header");
  refuse_field(HEADER(windows), UINT32_MAX, "header");
  /* With two windows the pairs of the third are missing. */
  refuse_field(HEADER(windows), 2, "header");
  refuse_field(HEADER(windows), 4, "byte");
  refuse_field(HEADER(pairs), 601, "header");
}

static void test_order_window_outside_the_file_is_refused(void **state) {
  (void)state;
  refuse_field(FIELD(1, offset), (uint64_t)1 << 50, "outside the file");
  refuse_field(FIELD(1, offset), UINT64_MAX - 7, "outside the file");
  refuse_field(FIELD(2, pairs), (uint64_t)1 << 32, "outside the file");
  refuse_field(FIELD(2, pairs), 4000000000u, "outside the file");
  refuse_field(FIELD(2, cells), UINT64_MAX / 8, "outside the file");
  refuse_field(FIELD(0, primary), 2, "outside the file");
}

static void test_order_wrong_sum_of_lengths_is_refused_with_offset(void **state) {
  (void)state;
  /* offset of the cells of the first window */
  size_t cells = sizeof(OrderHeader2) + 3 * sizeof(OrderEntry);
  refuse_field(cells + offsetof(OrderCell, count), 4, 99,
               "at byte 160: the lengths of this window count");
}

static void test_order_overlapping_windows_are_refused(void **state) {
  (void)state;
  refuse_field(FIELD(1, offset), sizeof(OrderHeader2) + 3 * sizeof(OrderEntry),
               "overlaps another");
  refuse_field(FIELD(0, offset), 64, "overlaps another");
}

static void test_order_nonexistent_pair_is_refused_with_offset(void **state) {
  (void)state;
  Lengths l = make_lengths(600, 20, 2);
  Order o;
  open_windows(&o, &l, (uint64_t[]){100, 200, 300}, 3);
  size_t offset = (size_t)((const uint8_t *)(o.window[1].pair + 7) - o.file.map.bytes);
  order_close(&o);
  mem_free(l.len);
  char byte[64];
  snprintf(byte, sizeof byte, "byte %zu: a pair that does not exist", offset);
  refuse_field(offset, 4, 200, byte);
}

static void test_order_write_refuses_an_empty_window(void **state) {
  (void)state;
  Lengths l = make_lengths(10, 20, 2);
  uint64_t bytes;
  char hex[65];
  assert_int_equal(
      order_write(at("w.order"), (uint64_t[]){10, 0}, 2, give_lengths, &l, &bytes, hex),
      ERR_WORK);
  assert_says("--window-pairs");
  mem_free(l.len);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order_gives_every_pair_once),
      cmocka_unit_test(test_order_plan_of_several_windows_is_that_of_each_alone),
      cmocka_unit_test(test_order_batches_are_full),
      cmocka_unit_test(test_order_same_seed_and_epoch_give_the_same_batches),
      cmocka_unit_test(test_order_other_seed_gives_other_batches),
      cmocka_unit_test(test_order_other_epoch_gives_other_batches),
      cmocka_unit_test(test_order_other_epoch_mixes_other_pairs_into_a_batch),
      cmocka_unit_test(test_plan_capacity_below_longest_sentence_is_refused),
      cmocka_unit_test(test_windows_give_every_pair_once_and_fit),
      cmocka_unit_test(test_windows_plan_has_sum_of_batches_and_maximum_of_sentences),
      cmocka_unit_test(test_windows_are_read_one_at_a_time_in_random_order),
      cmocka_unit_test(test_windows_batch_depends_on_its_number_only),
      cmocka_unit_test(test_windows_are_shuffled_differently),
      cmocka_unit_test(test_order_format_1_gives_the_same_batches),
      cmocka_unit_test(test_order_unknown_required_flag_is_refused_as_newer),
      cmocka_unit_test(test_order_unknown_optional_flag_is_ignored),
      cmocka_unit_test(test_order_wrong_number_of_windows_is_refused),
      cmocka_unit_test(test_order_window_outside_the_file_is_refused),
      cmocka_unit_test(test_order_wrong_sum_of_lengths_is_refused_with_offset),
      cmocka_unit_test(test_order_overlapping_windows_are_refused),
      cmocka_unit_test(test_order_nonexistent_pair_is_refused_with_offset),
      cmocka_unit_test(test_order_write_refuses_an_empty_window),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
