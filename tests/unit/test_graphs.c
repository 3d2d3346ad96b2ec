/* When work is queued directly, captured, and launched as a graph; with a backend that only
 * counts calls. */
#include <stdint.h>
#include <string.h>

#include "backend/graphs.h"
#include "base/mem.h"
#include "support.h"

struct Graph {
  int work; /* which work was captured: an index of seen.done */
};

/* Calls that the backend has received. */
static struct {
  bool is_capturing, refuses;
  int noted;     /* index of the work queued since begin_capture; -1: none */
  int live;      /* number of existing graphs */
  int done[100]; /* how often each work was executed */
} seen;

static Err begin_capture(const Backend *b) {
  (void)b;
  assert_false(seen.is_capturing);
  seen.is_capturing = true, seen.noted = -1;
  return ERR_OK;
}

static Err end_capture(const Backend *b, Graph **out) {
  (void)b;
  assert_true(seen.is_capturing);
  seen.is_capturing = false;
  *out = NULL;
  if (seen.refuses) return err_set(ERR_WORK, "it refuses");
  TRY(mem_alloc(out, 1, sizeof **out));
  (*out)->work = seen.noted;
  seen.live++;
  return ERR_OK;
}

static void launch(const Backend *b, Graph *r) {
  (void)b;
  seen.done[r->work]++;
}

static void drop(const Backend *b, Graph *r) {
  (void)b;
  seen.live--;
  mem_free(r);
}

static void work(void *number) {
  if (seen.is_capturing)
    seen.noted = *(int *)number;
  else
    seen.done[*(int *)number]++;
}

static Err ask(GraphCache *r, const Backend *b, int number, GraphKey key) {
  return graphs_run(r, b, key, work, &number);
}

static const Backend capturing = {.graph_begin = begin_capture,
                                  .graph_end = end_capture,
                                  .graph_launch = launch,
                                  .graph_free = drop};

/* The first use queues the work, the second captures it, later ones only launch; each executes
 * the work once. */
static void test_graphs_second_use_captures(void **state) {
  (void)state;
  GraphCache r = {0};
  memset(&seen, 0, sizeof seen);
  for (int i = 1; i <= 5; i++) {
    OK(ask(&r, &capturing, 7, (GraphKey){.kind = 1, .shape = {256, 512}}));
    assert_int_equal(seen.done[7], i);
    assert_int_equal(r.captured, i > 1);
    assert_int_equal(r.launched, i - 1);
  }
  graphs_free(&r, &capturing);
  assert_int_equal(seen.live, 0);
}

/* A difference in any member of the key needs another graph. */
static void test_graphs_every_part_of_the_key_counts(void **state) {
  (void)state;
  const GraphKey keys[] = {{.kind = 0},
                           {.kind = 1},
                           {.kind = 1, .shape = {8}},
                           {.kind = 1, .shape = {0, 8}},
                           {.kind = 1, .shape = {0, 0, 8}},
                           {.kind = 1, .shape = {0, 0, 0, 8}},
                           {.kind = 1, .dropout = true},
                           {.kind = 1, .first = true},
                           {.kind = 1, .scale = 2}};
  GraphCache r = {0};
  memset(&seen, 0, sizeof seen);
  _Static_assert(sizeof keys / sizeof *keys <= GRAPHS_DEFAULT, "all fit");
  for (int round = 1; round <= 3; round++) {
    for (int i = 0; i < 9; i++) {
      OK(ask(&r, &capturing, i, keys[i]));
      assert_int_equal(seen.done[i], round);
    }
  }
  assert_int_equal(r.captured, 9);
  assert_int_equal(seen.live, 9);
  graphs_free(&r, &capturing);
  assert_int_equal(seen.live, 0);
}

/* Fills a cache of `most` graphs and uses one key more. */
static void check_full_cache(GraphCache r, int most) {
  memset(&seen, 0, sizeof seen);
  for (int i = 0; i < most; i++)
    for (int k = 0; k < 2; k++) OK(ask(&r, &capturing, i, (GraphKey){.scale = (float)i}));
  OK(ask(&r, &capturing, 0, (GraphKey){.scale = 0})); /* now key 1 is the least recently used */
  OK(ask(&r, &capturing, 50, (GraphKey){.scale = 50}));
  assert_int_equal(seen.live, most - 1);
  uint64_t made = r.captured;
  OK(ask(&r, &capturing, 0, (GraphKey){.scale = 0}));
  assert_int_equal(r.captured, made);
  /* Key 1 is queued again, in the slot of key 2. */
  OK(ask(&r, &capturing, 1, (GraphKey){.scale = 1}));
  assert_int_equal(r.captured, made);
  OK(ask(&r, &capturing, 1, (GraphKey){.scale = 1}));
  assert_int_equal(r.captured, made + 1);
  assert_int_equal(seen.done[0], 4);
  assert_int_equal(seen.done[1], 4);
  assert_int_equal(seen.done[50], 1);
  graphs_free(&r, &capturing);
  assert_int_equal(seen.live, 0);
}

static void test_graphs_full_cache_drops_least_recently_used(void **state) {
  (void)state;
  check_full_cache((GraphCache){0}, GRAPHS_DEFAULT);
  check_full_cache((GraphCache){.limit = 5}, 5);
  check_full_cache((GraphCache){.limit = GRAPHS_MAX}, GRAPHS_MAX);
}

/* After graphs_free the keys are unknown, so that work which refers to freed memory is never
 * launched. */
static void test_graphs_free_forgets_keys_and_keeps_counts(void **state) {
  (void)state;
  GraphCache r = {.limit = 3};
  memset(&seen, 0, sizeof seen);
  for (int i = 0; i < 3; i++) OK(ask(&r, &capturing, 7, (GraphKey){.kind = 1}));
  graphs_free(&r, &capturing);
  assert_int_equal(seen.live, 0);
  assert_true(r.captured == 1 && r.launched == 2 && r.limit == 3);
  OK(ask(&r, &capturing, 8, (GraphKey){.kind = 1}));
  assert_int_equal(seen.done[8], 1);
  assert_int_equal(r.launched, 2);
  graphs_free(&r, &capturing);
}

static void test_graphs_backend_without_graphs_queues_each_time(void **state) {
  (void)state;
  Backend plain = {0};
  GraphCache r = {0};
  memset(&seen, 0, sizeof seen);
  for (int i = 0; i < 4; i++) OK(ask(&r, &plain, 3, (GraphKey){0}));
  assert_int_equal(seen.done[3], 4);
  assert_true(r.captured == 0 && r.launched == 0);
  graphs_free(&r, &plain);
}

/* Work with actions: 1, act 61, 2, act 62, act 63, 3. Operations and actions append to `order`. */
static int order[20], ordered;

static void act(void *context, size_t number) {
  assert_false(seen.is_capturing);
  assert_ptr_equal(context, order);
  order[ordered++] = (int)number;
}

static void do_operation(int number) {
  if (!seen.is_capturing)
    order[ordered++] = number;
  else
    seen.noted = number;
}

static Err end_ordered(const Backend *b, Graph **out) {
  if (seen.noted >= 0) return end_capture(b, out);
  seen.is_capturing = false;
  *out = NULL; /* no operation was captured */
  return ERR_OK;
}

static void launch_ordered(const Backend *b, Graph *r) {
  (void)b;
  order[ordered++] = r->work;
}

static const Backend ordering = {.graph_begin = begin_capture,
                                 .graph_end = end_ordered,
                                 .graph_launch = launch_ordered,
                                 .graph_free = drop};

static void work_with_actions(void *cache) {
  do_operation(1);
  graphs_act(cache, &ordering, act, order, 61);
  do_operation(2);
  graphs_act(cache, &ordering, act, order, 62);
  graphs_act(cache, &ordering, act, order, 63);
  do_operation(3);
}

static void test_graphs_actions_run_between_parts(void **state) {
  (void)state;
  static const int expected[] = {1, 61, 2, 62, 63, 3};
  GraphCache r = {.max_actions = 3};
  memset(&seen, 0, sizeof seen);
  for (int i = 0; i < 4; i++) {
    ordered = 0;
    OK(graphs_run(&r, &ordering, (GraphKey){0}, work_with_actions, &r));
    assert_int_equal(ordered, 6);
    assert_memory_equal(order, expected, sizeof expected);
    assert_int_equal(r.captured, i > 0 ? 3 : 0);
  }
  assert_int_equal(seen.live, 3);
  ordered = 0;
  graphs_act(&r, &ordering, act, order, 64); /* outside of graphs_run */
  assert_int_equal(order[0], 64);
  graphs_free(&r, &ordering);
  assert_int_equal(seen.live, 0);
}

/* The capture fails in the first part, or in more parts than there is room for. */
static void test_graphs_failed_part_is_an_error(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    GraphCache r = {.max_actions = i ? 2 : 3};
    memset(&seen, 0, sizeof seen);
    ordered = 0;
    OK(graphs_run(&r, &ordering, (GraphKey){0}, work_with_actions, &r));
    seen.refuses = i == 0;
    assert_int_equal(graphs_run(&r, &ordering, (GraphKey){0}, work_with_actions, &r), ERR_WORK);
    graphs_free(&r, &ordering);
    assert_int_equal(seen.live, 0);
  }
}

static void test_graphs_failed_capture_is_an_error(void **state) {
  (void)state;
  GraphCache r = {0};
  memset(&seen, 0, sizeof seen);
  seen.refuses = true;
  OK(ask(&r, &capturing, 4, (GraphKey){0}));
  assert_int_equal(ask(&r, &capturing, 4, (GraphKey){0}), ERR_WORK);
  assert_int_equal(seen.done[4], 1);
  graphs_free(&r, &capturing);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_graphs_second_use_captures),
      cmocka_unit_test(test_graphs_every_part_of_the_key_counts),
      cmocka_unit_test(test_graphs_full_cache_drops_least_recently_used),
      cmocka_unit_test(test_graphs_free_forgets_keys_and_keeps_counts),
      cmocka_unit_test(test_graphs_backend_without_graphs_queues_each_time),
      cmocka_unit_test(test_graphs_actions_run_between_parts),
      cmocka_unit_test(test_graphs_failed_part_is_an_error),
      cmocka_unit_test(test_graphs_failed_capture_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
