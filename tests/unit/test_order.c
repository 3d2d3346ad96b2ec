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
#include "data/shard.h"
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

/* Returns a hash of the slots of a plan. */
static uint64_t hash_plan(const WindowPlan *w) {
  uint64_t hash = rng_hash(w->slot_begin, (w->per_chunk + 1) * sizeof *w->slot_begin, 1);
  hash = rng_mix(hash, rng_hash(w->slot_class, w->strata * sizeof *w->slot_class, 2));
  hash = rng_mix(hash, rng_hash(w->slot_ordinal, w->strata * sizeof *w->slot_ordinal, 3));
  hash = rng_mix(hash, rng_hash(w->class_begin, (w->classes + 1) * sizeof *w->class_begin, 4));
  return rng_mix(hash, rng_hash(w->class_stratum, w->strata * sizeof *w->class_stratum, 5));
}

/* A run that is resumed by a later version must have the same batches, so the plans of these lengths
 * never change. */
static void test_plan_of_given_lengths_never_changes(void **state) {
  (void)state;
  static const struct {
    uint64_t pairs;
    uint32_t longest, capacity;
    uint64_t chunks;
    uint32_t per_chunk, strata, most_sentences, classes;
    uint64_t hash, batch; /* of the plan; of a batch */
  } cases[] = {
      {7, 9, 10, 1, 4, 7, 2, 6, 0x4f63a0fc0ff1d33a, 0x3494b44cbd2bb7ee},
      {1000, 30, 31, 1, 350, 1000, 3, 179, 0xe4008e2772bddd1e, 0x75e1021e2052addb},
      {5000, 40, 512, 1, 132, 5000, 38, 468, 0xbbd453ebe0c101f0, 0x827f3fd7611e3596},
      {9000, 40, 300, 1, 413, 9000, 22, 560, 0xedcf5acf15e6e304, 0x6424fcac38176c7c},
      {20011, 60, 100000, 1, 4, 20011, 5007, 1141, 0x6ba3080fdd304e8d, 0x35faca263fdd6bc2},
      {30000, 20, 16384, 3, 5, 10000, 2001, 218, 0x3870002c9b0d5128, 0x49b5861a88d0f929},
      {50000, 100, 4096, 3, 125, 16667, 135, 2245, 0x657fe02222ef9627, 0xc8f9085788a4622d},
      {150000, 60, 2048, 11, 128, 13637, 108, 1141, 0xf82512ca733426fa, 0x526cd9cacf78d6f9},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Lengths l = make_lengths(cases[i].pairs, cases[i].longest, i);
    Order o;
    OrderPlan plan;
    uint64_t *pairs;
    uint32_t n;
    open_order(&o, &l);
    OK(order_plan(&plan, &o, cases[i].capacity));
    const WindowPlan *w = &plan.window[0];
    OK(mem_alloc(&pairs, plan.most_sentences, sizeof *pairs));
    OK(order_batch(&o, &plan, 42, 1, plan.batches / 2, pairs, &n));
    uint64_t batch = rng_hash(pairs, n * sizeof *pairs, 6);
    assert_int_equal(w->chunks, cases[i].chunks);
    assert_int_equal(w->per_chunk, cases[i].per_chunk);
    assert_int_equal(w->strata, cases[i].strata);
    assert_int_equal(w->most_sentences, cases[i].most_sentences);
    assert_int_equal(w->classes, cases[i].classes);
    assert_int_equal(hash_plan(w), cases[i].hash);
    assert_int_equal(batch, cases[i].batch);
    mem_free(pairs);
    order_plan_free(&plan);
    order_close(&o);
    mem_free(l.len);
  }
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
  OrderHeader1 h = {.version = 1, .primary = (uint32_t)w->primary};
  memcpy(h.magic, ORDER_MAGIC, sizeof h.magic);
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
  /* by the last bytes of the window before it */
  Lengths l = make_lengths(600, 20, 2);
  Order o;
  open_windows(&o, &l, (uint64_t[]){100, 200, 300}, 3);
  size_t second = (size_t)((const uint8_t *)o.window[1].cell - o.file.map.bytes);
  order_close(&o);
  mem_free(l.len);
  refuse_field(FIELD(1, offset), second - 8, "overlaps another");
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

/* ---- exact limits of the fields ---- */

typedef struct {
  size_t offset, bytes;
  uint64_t value;
} Patch;

enum { PATCHES = 3, SHORTEST = sizeof(OrderHeader2) };

/* Source and target tokens of the pairs of one window: three cells, from byte CELLS in format 2. */
static uint32_t few[][2] = {{3, 1}, {5, 1}, {3, 2}, {5, 1}, {3, 1}, {5, 1}};
enum { FEW = 6, CELLS = sizeof(OrderHeader2) + sizeof(OrderEntry) };
#define CELL(i, field) \
  CELLS + (i) * sizeof(OrderCell) + offsetof(OrderCell, field), sizeof(((OrderCell *)0)->field)
#define TARGET(i) CELLS + (i) * sizeof(OrderCell) + 2, 2 /* len[1] of a cell */
#define SOURCE(i) CELLS + (i) * sizeof(OrderCell), 2

/* Writes the file of `few` pairs with changed fields and valid checksums; its size is `cut` smaller,
 * then without checksums. */
static Err open_patched(uint32_t format, const Patch *patch, size_t cut) {
  static uint8_t file[1024];
  Lengths l = {.len = few, .pairs = FEW};
  Str whole = {0};
  Order o;
  open_order(&o, &l);
  size_t payload = o.file.payload;
  order_close(&o);
  OK(place_read_all(at("t.order"), sizeof file, &whole));
  memcpy(file, whole.s, whole.len);
  str_free(&whole);
  if (format == 1) {
    OrderHeader1 h = {.version = 1, .pairs = FEW, .cells = 3};
    memcpy(h.magic, ORDER_MAGIC, sizeof h.magic);
    h.payload = payload - sizeof(OrderEntry);
    memmove(file + sizeof h, file + CELLS, payload - CELLS);
    memcpy(file, &h, sizeof h);
    payload = h.payload;
  }
  for (size_t i = 0; i < PATCHES && patch[i].bytes; i++)
    memcpy(file + patch[i].offset, &patch[i].value, patch[i].bytes);
  size_t size = cut ? cut : fuzz_seal(file, payload);
  Err err = order_open(&o, fuzz_file(file, size));
  order_close(&o);
  return err;
}

#define HEADER1(field) offsetof(OrderHeader1, field), sizeof(((OrderHeader1 *)0)->field)
#define MOST           ((uint64_t)ORDER_WINDOW_PAIRS)
#define OUT_OF_ORDER   ": lengths out of order"
#define OUTSIDE        "at byte 64: a window outside the file"

static void test_order_fields_have_exact_limits(void **state) {
  (void)state;
  static const struct {
    uint32_t format;
    Patch patch[PATCHES];
    const char *words; /* NULL: is accepted */
    size_t size;       /* of the file; 0: whole */
  } cases[] = {
      {2, {{0}}, NULL, 0},
      {1, {{0}}, NULL, 0},
      /* cells, sorted by source, then by target */
      {2, {{TARGET(1), 1}}, "at byte 104" OUT_OF_ORDER, 0},
      {2, {{TARGET(1), 0}}, "at byte 104" OUT_OF_ORDER, 0},
      {2, {{SOURCE(2), 2}}, "at byte 112" OUT_OF_ORDER, 0},
      {2, {{SOURCE(2), 3}}, "at byte 112" OUT_OF_ORDER, 0},
      {2, {{SOURCE(2), 3}, {TARGET(2), 2}}, "at byte 112" OUT_OF_ORDER, 0},
      {2, {{SOURCE(2), 3}, {TARGET(2), 3}}, NULL, 0},
      {2, {{SOURCE(2), SHARD_LONGEST}}, NULL, 0},
      {2, {{SOURCE(2), SHARD_LONGEST + 1}}, "at byte 112" OUT_OF_ORDER, 0},
      {2, {{TARGET(1), SHARD_LONGEST}}, NULL, 0},
      {2, {{TARGET(1), SHARD_LONGEST + 1}}, "at byte 104" OUT_OF_ORDER, 0},
      {2, {{CELL(0, count), 0}, {CELL(1, count), 3}}, "at byte 96" OUT_OF_ORDER, 0},
      {2, {{CELL(2, count), 4}}, "at byte 96: the lengths of this window count 7 pairs", 0},
      {2, {{CELL(2, count), 2}}, "count 5 pairs, it has 6", 0},
      /* windows */
      {2, {{FIELD(0, pairs), 0}}, OUTSIDE, 0},
      {2, {{FIELD(0, pairs), 5}, {HEADER(pairs), 5}}, "count 6 pairs, it has 5", 0},
      {2, {{FIELD(0, pairs), 7}}, OUTSIDE, 0},
      {2, {{FIELD(0, cells), 0}}, OUTSIDE, 0},
      {2, {{FIELD(0, cells), 4}}, OUTSIDE, 0},
      {2, {{FIELD(0, cells), 2}, {FIELD(0, pairs), 1}}, OUTSIDE, 0},
      {2, {{FIELD(0, cells), 2}, {FIELD(0, pairs), 2}}, "count 3 pairs, it has 2", 0},
      {2, {{FIELD(0, primary), 1}}, "at byte 112" OUT_OF_ORDER, 0},
      {2, {{FIELD(0, primary), 2}}, OUTSIDE, 0},
      {2, {{FIELD(0, offset), CELLS - 8}}, "at byte 64: a window that overlaps another", 0},
      {2, {{FIELD(0, offset), CELLS + 4}, {FIELD(0, cells), 1}}, OUTSIDE, 0},
      {2, {{FIELD(0, offset), CELLS + 8}, {FIELD(0, cells), 2}}, "count 4 pairs, it has 6", 0},
      {2, {{FIELD(0, offset), CELLS + 8}}, OUTSIDE, 0},
      {2, {{FIELD(0, offset), (uint64_t)1 << 40}}, OUTSIDE, 0},
      {2, {{HEADER(pairs), 5}}, "damaged header", 0},
      {2, {{HEADER(pairs), 7}}, "damaged header", 0},
      {2, {{HEADER(windows), 0}}, "damaged header", 0},
      {2, {{HEADER(windows), 3}}, "damaged header", 0},
      {2, {{HEADER(windows), 0}, {HEADER(pairs), 0}}, "damaged header", 0},
      {2, {{HEADER(payload), CELLS - 1}}, "damaged header", 0},
      {2, {{HEADER(payload), CELLS}}, " bytes, but its header requires", 0},
      {2, {{HEADER(payload), 1 << 30}, {HEADER(windows), ORDER_WINDOWS_MAX}}, "requires", 0},
      {2, {{HEADER(payload), 1 << 30}, {HEADER(windows), ORDER_WINDOWS_MAX + 1}}, "header", 0},
      {2, {{HEADER(required_flags), 1}}, "unknown required flags 0x1", 0},
      /* format 1 */
      {1,
       {{HEADER1(pairs), 0}, {HEADER1(cells), 0}, {HEADER1(payload), 64}},
       "has a damaged header (byte 0)",
       0},
      {1, {{HEADER1(pairs), MOST}, {HEADER1(payload), 64 + 3 * 8 + 4 * MOST}}, "requires", 0},
      {1,
       {{HEADER1(pairs), MOST + 1}, {HEADER1(payload), 64 + 3 * 8 + 4 * (MOST + 1)}},
       "has a damaged header (byte 0)",
       0},
      {1, {{HEADER1(cells), 6}, {HEADER1(payload), 64 + 6 * 8 + 4 * 6}}, "requires", 0},
      {1,
       {{HEADER1(cells), 7}, {HEADER1(payload), 64 + 7 * 8 + 4 * 6}},
       "has a damaged header (byte 0)",
       0},
      {1, {{HEADER1(payload), 64 + 3 * 8 + 4 * 6 + 1}}, "has a damaged header (byte 0)", 0},
      {1, {{HEADER1(payload), 64 + 3 * 8 + 4 * 6 - 1}}, "has a damaged header (byte 0)", 0},
      {1, {{HEADER1(primary), 2}}, "at byte 0: a window outside the file", 0},
      /* the file */
      {2, {{0}}, "is not an order file: wrong first bytes", SHORTEST - 1},
      {2, {{0, 1, 'X'}}, "is not an order file: wrong first bytes", 0},
      {2,
       {{HEADER(version), 3}},
       "format 3 (byte 8), this trireme reads 1 and 2; it was",
       SHORTEST},
      {2, {{HEADER(version), 0}}, "reads 1 and 2; prepare the data set again", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Err err = open_patched(cases[i].format, cases[i].patch, cases[i].size);
    if (!cases[i].words && err) fail_msg("case %zu: %s", i, err_message());
    if (!cases[i].words) continue;
    if (!err) fail_msg("case %zu is accepted", i);
    assert_int_equal(err, ERR_WORK);
    if (!strstr(err_message(), cases[i].words)) fail_msg("case %zu: %s", i, err_message());
  }
}

/* A batch must hold the longest sentence with its end mark. The second side of texts is empty. */
static void test_plan_capacity_of_the_longest_sentence_is_enough(void **state) {
  (void)state;
  static uint32_t pairs[][2] = {{3, 1}, {2, 6}, {1, 1}}, texts[][2] = {{3, 0}, {6, 0}, {1, 0}};
  for (int i = 0; i < 2; i++) {
    Lengths l = {.len = i ? texts : pairs, .pairs = 3};
    Order o;
    OrderPlan plan;
    open_order(&o, &l);
    assert_int_equal(order_plan(&plan, &o, 6), ERR_USAGE);
    assert_says(i ? "cannot hold the longest text, 7 tokens; give --batch-tokens 7 or more"
                  : "the longest sentence, 7 tokens with its end mark; give --batch-tokens 7");
    OK(order_plan(&plan, &o, 7));
    check_epoch(&o, &l, &plan, 1, 0);
    order_plan_free(&plan);
    order_close(&o);
  }
}

/* All blocks with cells are checked when the file is opened, those with pairs before these are used. */
static void test_order_flipped_byte_is_refused_before_it_is_used(void **state) {
  (void)state;
  Lengths l = make_lengths(30000, 1000, 3);
  Order o;
  Str whole = {0};
  open_order(&o, &l);
  size_t bytes = o.window[0].cells * sizeof(OrderCell);
  assert_true(bytes > 2 * CHECKED_BLOCK);
  order_close(&o);
  mem_free(l.len);
  OK(place_read_all(at("t.order"), 1 << 22, &whole));
  for (size_t i = CELLS; i < CELLS + bytes; i += CHECKED_BLOCK / 2) {
    whole.s[i] = (char)(whole.s[i] ^ 1);
    assert_int_equal(order_open(&o, fuzz_file((const uint8_t *)whole.s, whole.len)), ERR_WORK);
    assert_says("checksum");
    whole.s[i] = (char)(whole.s[i] ^ 1);
  }
  OrderPlan plan;
  uint64_t pairs[4096];
  uint32_t n;
  Err err = ERR_OK;
  size_t last = CELLS + bytes + 4 * (30000 - 1);
  whole.s[last] = (char)(whole.s[last] ^ 1);
  OK(order_open(&o, fuzz_file((const uint8_t *)whole.s, whole.len)));
  OK(order_plan(&plan, &o, 4096));
  for (uint64_t i = 0; i < plan.batches && !err; i++)
    err = order_batch(&o, &plan, 1, 0, i, pairs, &n);
  assert_int_equal(err, ERR_WORK);
  assert_says("checksum");
  order_plan_free(&plan);
  order_close(&o);
  str_free(&whole);
}

static void test_order_out_of_memory_is_an_error(void **state) {
  (void)state;
  Lengths l = make_lengths(600, 20, 2);
  Order o;
  OrderPlan plan;
  open_windows(&o, &l, (uint64_t[]){100, 200, 300}, 3);
  order_close(&o);
  mem_free(l.len);
  for (uint64_t n = 1;; n++) {
    uint64_t before = mem_count();
    mem_fail_once(n);
    Err err = order_open(&o, at("t.order"));
    Err planned = err ? ERR_OK : order_plan(&plan, &o, 128);
    mem_fail_once(0);
    if (!err && !planned) {
      assert_true(mem_count() - before < n); /* no allocation failed */
      break;
    }
    assert_says("out of memory");
    order_close(&o);
    assert_true(n < 200);
  }
  order_plan_free(&plan);
  order_close(&o);
  assert_int_equal(order_open(&o, at("missing.order")), ERR_WORK);
  assert_says("missing.order");
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
      cmocka_unit_test(test_plan_of_given_lengths_never_changes),
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
      cmocka_unit_test(test_order_fields_have_exact_limits),
      cmocka_unit_test(test_plan_capacity_of_the_longest_sentence_is_enough),
      cmocka_unit_test(test_order_flipped_byte_is_refused_before_it_is_used),
      cmocka_unit_test(test_order_out_of_memory_is_an_error),
      cmocka_unit_test(test_order_write_refuses_an_empty_window),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
