/* Which work is done as it is asked, recorded and replayed, on a backend that only
 * counts. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "support.h"
#include "train/replay.h"

struct Graph {
  int work; /* what it holds */
};

/* What was asked of the backend, and what came of it. */
static struct {
  bool recording, refuses;
  int noted;     /* work seen since `record` */
  int live;      /* recordings */
  int done[100]; /* how often each work was done */
} seen;

static Err record(const Backend *b) {
  (void)b;
  assert_false(seen.recording);
  seen.recording = true, seen.noted = -1;
  return ERR_OK;
}

static Err recorded(const Backend *b, Graph **out) {
  (void)b;
  assert_true(seen.recording);
  seen.recording = false;
  *out = NULL;
  if (seen.refuses) return err_set(ERR_WORK, "it refuses");
  TRY(mem_alloc(out, 1, sizeof **out));
  (*out)->work = seen.noted;
  seen.live++;
  return ERR_OK;
}

static void replay(const Backend *b, Graph *r) {
  (void)b;
  seen.done[r->work]++;
}

static void forget(const Backend *b, Graph *r) {
  (void)b;
  seen.live--;
  mem_free(r);
}

static void work(void *number) {
  if (seen.recording)
    seen.noted = *(int *)number;
  else
    seen.done[*(int *)number]++;
}

static Err ask(Replays *r, const Backend *b, int number, ReplayKey key) {
  return replay_do(r, b, key, work, &number);
}

static const Backend recorder = {
    .graph_begin = record, .graph_end = recorded, .graph_launch = replay, .graph_free = forget};

/* Once as asked, then recorded, then only replayed; each time it is done once. */
static void test_the_second_time_is_recorded(void **state) {
  (void)state;
  Replays r = {0};
  memset(&seen, 0, sizeof seen);
  for (int i = 1; i <= 5; i++) {
    OK(ask(&r, &recorder, 7, (ReplayKey){.kind = 1, .shape = {256, 512}}));
    assert_int_equal(seen.done[7], i);
    assert_int_equal(r.recorded, i > 1);
    assert_int_equal(r.replayed, i - 1);
  }
  replay_free(&r, &recorder);
  assert_int_equal(seen.live, 0);
}

/* Every part of the key counts. */
static void test_keys(void **state) {
  (void)state;
  const ReplayKey keys[] = {{.kind = 0},
                            {.kind = 1},
                            {.kind = 1, .shape = {8}},
                            {.kind = 1, .shape = {0, 8}},
                            {.kind = 1, .shape = {0, 0, 8}},
                            {.kind = 1, .shape = {0, 0, 0, 8}},
                            {.kind = 1, .dropout = true},
                            {.kind = 1, .first = true},
                            {.kind = 1, .scale = 2}};
  Replays r = {0};
  memset(&seen, 0, sizeof seen);
  _Static_assert(sizeof keys / sizeof *keys <= REPLAY_MOST, "all have a place");
  for (int round = 1; round <= 3; round++) {
    for (int i = 0; i < 9; i++) {
      OK(ask(&r, &recorder, i, keys[i]));
      assert_int_equal(seen.done[i], round);
    }
  }
  assert_int_equal(r.recorded, 9);
  assert_int_equal(seen.live, 9);
  replay_free(&r, &recorder);
  assert_int_equal(seen.live, 0);
}

/* There are few places: what was not used for longest goes, and may come again. */
static void test_the_oldest_goes(void **state) {
  (void)state;
  Replays r = {0};
  memset(&seen, 0, sizeof seen);
  for (int i = 0; i < REPLAY_MOST; i++)
    for (int k = 0; k < 2; k++) OK(ask(&r, &recorder, i, (ReplayKey){.scale = (float)i}));
  OK(ask(&r, &recorder, 0, (ReplayKey){.scale = 0})); /* so that 1 is the oldest */
  OK(ask(&r, &recorder, 50, (ReplayKey){.scale = 50}));
  assert_int_equal(seen.live, REPLAY_MOST - 1);
  uint64_t made = r.recorded;
  OK(ask(&r, &recorder, 0, (ReplayKey){.scale = 0}));
  assert_int_equal(r.recorded, made);
  OK(ask(&r, &recorder, 1, (ReplayKey){.scale = 1})); /* as asked, in the place of 2 */
  assert_int_equal(r.recorded, made);
  OK(ask(&r, &recorder, 1, (ReplayKey){.scale = 1}));
  assert_int_equal(r.recorded, made + 1);
  assert_int_equal(seen.done[0], 4);
  assert_int_equal(seen.done[1], 4);
  assert_int_equal(seen.done[50], 1);
  replay_free(&r, &recorder);
  assert_int_equal(seen.live, 0);
}

static void test_without_recordings(void **state) {
  (void)state;
  Backend plain = {0};
  Replays r = {0};
  memset(&seen, 0, sizeof seen);
  for (int i = 0; i < 4; i++) OK(ask(&r, &plain, 3, (ReplayKey){0}));
  assert_int_equal(seen.done[3], 4);
  assert_true(r.recorded == 0 && r.replayed == 0);
  replay_free(&r, &plain);
  /* What cannot be recorded is an error, not something that was left out in silence. */
  seen.refuses = true;
  OK(ask(&r, &recorder, 4, (ReplayKey){0}));
  assert_int_equal(ask(&r, &recorder, 4, (ReplayKey){0}), ERR_WORK);
  assert_int_equal(seen.done[4], 1);
  replay_free(&r, &recorder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_second_time_is_recorded),
      cmocka_unit_test(test_keys),
      cmocka_unit_test(test_the_oldest_goes),
      cmocka_unit_test(test_without_recordings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
