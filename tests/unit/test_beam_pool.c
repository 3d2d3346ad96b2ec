/* Beams that search batches at the same time. A device with streams is simulated by the
 * reference backend, which has no state that threads could share; every "stream" is a copy of
 * it. Uses a tiny model with random weights. */
#include "decode/beam_pool.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "translator_support.h"

enum { SENTENCES = 24, EACH = 2, BATCHES = SENTENCES / EACH, MOST = 64, LONGEST = 24 };

static Backend device;
static int32_t src[SENTENCES * 12], off[SENTENCES + 1];
static atomic_int opened, closed, bound;
static int openings_that_work;
static uint64_t memory_left;

static const BeamSpec beam = {
    .beam_size = 3, .length_penalty = 0.6f, .extra_length = 6, .nbest = 1};

static void close_copy(Backend *b) {
  (void)b;
  closed++;
}

static Err open_copy(const Backend *b, Backend *other) {
  if (opened == openings_that_work) return err_set(ERR_WORK, "fake device: no more streams");
  opened++;
  *other = *b;
  other->close = close_copy;
  return ERR_OK;
}

static Err bind_copy(const Backend *b) {
  (void)b;
  bound++;
  return ERR_OK;
}

static Err tell_memory(const Backend *b, uint64_t *left, uint64_t *all) {
  (void)b;
  *left = *all = memory_left;
  return ERR_OK;
}

static int setup(void **state) {
  (void)state;
  backend_reference(&device);
  device.open_stream = open_copy;
  device.bind_thread = bind_copy;
  device.memory = tell_memory;
  open_translator(&(TransformerConfig){.vocab = 90,
                                       .d_model = 16,
                                       .ffn_dim = 24,
                                       .heads = 2,
                                       .layers = {1, 1},
                                       .max_positions = LONGEST});
  make_sentences(src, off, SENTENCES, 10, 29);
  return 0;
}

typedef struct {
  int32_t id[SENTENCES][LONGEST];
  size_t len[SENTENCES];
  float score[SENTENCES];
} Output;

/* What the threads of a run share. */
typedef struct {
  Output *out;
  atomic_int searched[BATCHES], on_stream[BEAM_POOL_MAX];
  int fails_at;          /* batch whose search fails; -1: none */
  atomic_int beginnings; /* searches that have begun */
  int meet;              /* searches that must have begun before the first goes on */
} Job;

static BeamPoolSpec make_spec(void) {
  return (BeamPoolSpec){.config = &config,
                        .backend = &device,
                        .weights = {w, w},
                        .spec = &beam,
                        .tokens = MOST,
                        .sentences = EACH};
}

static BeamPool *new_pool(size_t streams) {
  BeamPool *pool;
  opened = closed = bound = 0;
  openings_that_work = 100;
  memory_left = UINT64_MAX;
  BeamPoolSpec spec = make_spec();
  OK(beam_pool_new(&pool, &spec, streams));
  return pool;
}

static Err search_batch(void *context, Beam *b, size_t stream, size_t index) {
  Job *job = context;
  int32_t part[EACH + 1];
  Hypothesis best[EACH];
  size_t first = index * EACH;
  job->searched[index]++;
  job->on_stream[stream]++;
  job->beginnings++;
  /* Waits until other threads have begun too, so that the searches overlap for certain. */
  while (job->beginnings < job->meet) sched_yield();
  if ((int)index == job->fails_at)
    return err_set(ERR_WORK, "fake search: batch %zu failed", index);
  for (size_t i = 0; i <= EACH; i++) part[i] = off[first + i] - off[first];
  TRY(beam_search(b, src + off[first], part, EACH, best));
  for (size_t i = 0; i < EACH; i++) {
    job->out->len[first + i] = best[i].len;
    job->out->score[first + i] = best[i].score;
    memcpy(job->out->id[first + i], best[i].id, best[i].len * sizeof(int32_t));
  }
  return ERR_OK;
}

static Output alone, together;

static void search_all(BeamPool *pool, Output *out, int meet, Job *job) {
  memset(out, 0, sizeof *out);
  *job = (Job){.out = out, .fails_at = -1, .meet = meet};
  OK(beam_pool_run(pool, BATCHES, search_batch, job));
  for (int i = 0; i < BATCHES; i++) assert_int_equal(job->searched[i], 1);
}

static void test_beam_pool_same_bits_with_any_number_of_streams(void **state) {
  (void)state;
  Job job;
  BeamPool *pool = new_pool(1);
  search_all(pool, &alone, 1, &job);
  uint64_t steps = beam_pool_times(pool).steps;
  assert_int_equal(opened, 0);
  beam_pool_free(pool);
  for (int streams = 2; streams <= 4; streams++) {
    pool = new_pool((size_t)streams);
    assert_int_equal(beam_pool_opened(pool), 1);
    for (int pass = 0; pass < 2; pass++) {
      search_all(pool, &together, streams, &job);
      assert_memory_equal(&together, &alone, sizeof alone);
      /* The searches wait for one another, so each stream has had one. */
      for (int i = 0; i < streams; i++) assert_true(job.on_stream[i] > 0);
    }
    assert_int_equal(opened, streams - 1);
    assert_int_equal(bound, 2 * (streams - 1)); /* one thread for each stream and run */
    assert_int_equal(beam_pool_times(pool).steps, 2 * steps);
    beam_pool_free(pool);
    assert_int_equal(closed, streams - 1);
  }
}

static void test_beam_pool_few_batches_open_few_streams(void **state) {
  (void)state;
  Job job = {.out = &together, .fails_at = -1};
  BeamPool *pool = new_pool(4);
  OK(beam_pool_run(pool, 0, search_batch, &job));
  OK(beam_pool_run(pool, 1, search_batch, &job));
  assert_int_equal(opened, 0);
  OK(beam_pool_run(pool, 2, search_batch, &job));
  assert_int_equal(opened, 1);
  beam_pool_free(pool);
}

/* A device without streams has one beam, whatever is asked for. */
static void test_beam_pool_without_streams_uses_one_beam(void **state) {
  (void)state;
  Job job;
  device.open_stream = NULL;
  BeamPool *pool = new_pool(4);
  assert_int_equal(beam_pool_streams(pool), 1);
  assert_int_equal(beam_pool_default_streams(&device), 1);
  search_all(pool, &together, 1, &job);
  assert_int_equal(job.on_stream[0], BATCHES);
  beam_pool_free(pool);
  device.open_stream = open_copy;
}

/* A GPU with little memory is used with the streams that fit. */
static void test_beam_pool_without_memory_opens_no_stream(void **state) {
  (void)state;
  Job job;
  uint64_t bytes, fixed;
  size_t words = 2 * MOST * (size_t)beam.beam_size;
  OK(beam_bytes(&config, &device, &beam, MOST, EACH, words, &bytes));
  OK(beam_bytes(&config, &device, &beam, MOST, EACH, 0, &fixed));
  uint64_t cache = bytes - fixed, for_two = 2 * (bytes + cache) + BEAM_POOL_STREAM_BYTES,
           for_three = for_two + 2 * cache;
  BeamPool *pool = new_pool(3);
  memory_left = for_two - 1;
  search_all(pool, &together, 1, &job);
  assert_int_equal(beam_pool_opened(pool), 1);
  assert_memory_equal(&together, &alone, sizeof alone);
  beam_pool_free(pool);
  pool = new_pool(3);
  memory_left = for_three - 1;
  search_all(pool, &together, 2, &job);
  assert_int_equal(beam_pool_opened(pool), 2);
  assert_memory_equal(&together, &alone, sizeof alone);
  beam_pool_free(pool);
  pool = new_pool(3);
  openings_that_work = 1;
  memory_left = for_three;
  search_all(pool, &together, 2, &job);
  assert_int_equal(beam_pool_opened(pool), 2);
  assert_memory_equal(&together, &alone, sizeof alone);
  beam_pool_free(pool);
}

static void test_beam_pool_first_error_ends_run(void **state) {
  (void)state;
  for (int streams = 1; streams <= 3; streams++) {
    BeamPool *pool = new_pool((size_t)streams);
    Job job = {.out = &together, .fails_at = 4};
    assert_int_equal(beam_pool_run(pool, BATCHES, search_batch, &job), ERR_WORK);
    assert_says("fake search: batch 4 failed");
    int begun = 0;
    for (int i = 0; i < BATCHES; i++) begun += job.searched[i];
    assert_true(begun >= 5 && begun <= (streams == 1 ? 5 : BATCHES));
    search_all(pool, &together, streams, &job); /* The pool is usable after an error. */
    assert_memory_equal(&together, &alone, sizeof alone);
    beam_pool_free(pool);
  }
}

/* Not atomic: the pool calls it in one thread at a time. */
static int steps_seen;

static Err count_step(void *stop_at) {
  steps_seen++;
  return steps_seen == *(int *)stop_at ? err_set(ERR_STOPPED, "stopped here") : ERR_OK;
}

static void test_beam_pool_on_step_sees_each_step_and_can_stop(void **state) {
  (void)state;
  Job job;
  int never = 0, at = 7;
  BeamPool *pool = new_pool(3);
  steps_seen = 0;
  beam_pool_on_step(pool, count_step, &never);
  search_all(pool, &together, 3, &job);
  assert_int_equal(steps_seen, beam_pool_times(pool).steps);
  steps_seen = 0;
  beam_pool_on_step(pool, count_step, &at);
  job = (Job){.out = &together, .fails_at = -1};
  assert_int_equal(beam_pool_run(pool, BATCHES, search_batch, &job), ERR_STOPPED);
  assert_says("stopped here");
  assert_int_equal(steps_seen, at); /* The other searches end before their next step. */
  beam_pool_free(pool);
}

static void test_beam_pool_default_streams_from_environment(void **state) {
  (void)state;
  unsetenv("TRIREME_STREAMS");
  assert_int_equal(beam_pool_default_streams(&device), 3);
  setenv("TRIREME_STREAMS", "1", 1);
  assert_int_equal(beam_pool_default_streams(&device), 1);
  setenv("TRIREME_STREAMS", "8", 1);
  assert_int_equal(beam_pool_default_streams(&device), 8);
  const char *const wrong[] = {"", "0", "9", "22", "x"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    setenv("TRIREME_STREAMS", wrong[i], 1);
    assert_int_equal(beam_pool_default_streams(&device), 3);
  }
  unsetenv("TRIREME_STREAMS");
}

/* Each allocation of a pool of one beam fails once; every time beam_pool_new must return an
 * error and free what it has taken. */
static void test_beam_pool_out_of_memory_is_error(void **state) {
  (void)state;
  BeamPoolSpec spec = make_spec();
  for (uint64_t n = 1;; n++) {
    BeamPool *pool;
    mem_fail_after(n);
    Err err = beam_pool_new(&pool, &spec, 2);
    mem_fail_after(0);
    if (err) assert_says("out of memory");
    beam_pool_free(pool);
    if (!err) break;
    assert_true(n < 200);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_beam_pool_same_bits_with_any_number_of_streams),
      cmocka_unit_test(test_beam_pool_few_batches_open_few_streams),
      cmocka_unit_test(test_beam_pool_without_streams_uses_one_beam),
      cmocka_unit_test(test_beam_pool_without_memory_opens_no_stream),
      cmocka_unit_test(test_beam_pool_first_error_ends_run),
      cmocka_unit_test(test_beam_pool_on_step_sees_each_step_and_can_stop),
      cmocka_unit_test(test_beam_pool_default_streams_from_environment),
      cmocka_unit_test(test_beam_pool_out_of_memory_is_error),
  };
  return cmocka_run_group_tests(tests, setup, close_translator);
}
