/* A run of one rank, launchers whose ranks cannot be joined, and fault injection.
 * tests/ranks/check_comm.c tests runs of several ranks. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"
#include "comm/reduce.h"
#include "support.h"

static const char *const launchers[] = {
    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "MV2_COMM_WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS", "PMIX_RANK"};

static int unset_launchers(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) unsetenv(launchers[i]);
  return 0;
}

static void test_comm_one_rank_collectives_keep_values(void **state) {
  (void)state;
  Comm *comm;
  OK(comm_open(&comm, 5));
  assert_int_equal(comm_rank(comm), 0);
  assert_int_equal(comm_size(comm), 1);
  assert_int_equal(comm_local_size(comm), 1);
  assert_int_equal(comm_local_rank(comm), 0);
  assert_true(comm_threads(comm) >= 1);
  double x[2] = {3, 4};
  char bytes[] = "abc", **list;
  comm_report(comm, 0, "somewhere");
  comm_sum(comm, "sum", x, 2);
  comm_broadcast(comm, "bytes", bytes, 3);
  comm_allgather(comm, "all", bytes, (size_t[]){0, 3});
  assert_true(x[0] == 3 && x[1] == 4);
  assert_string_equal(bytes, "abc");
  OK(comm_gather_text(comm, "text", "hello\nyou", 9, &list));
  assert_string_equal(list[0], "hello\nyou");
  mem_free(list);
  comm_close(comm, ERR_OK);
}

static void count_call(Comm *comm, void *context) {
  (void)comm;
  ++*(int *)context;
}

static void test_comm_one_rank_job_runs_at_submit(void **state) {
  (void)state;
  Comm *comm;
  int times = 0;
  OK(comm_open(&comm, 5));
  CommJob job = {.run = count_call, .context = &times};
  comm_submit(comm, &job);
  comm_wait(comm, &job);
  assert_int_equal(times, 1);
  comm_close(comm, ERR_OK);
}

static void test_reducer_one_rank_rounds_add_in_order(void **state) {
  (void)state;
  enum { N = 300 };
  Comm *comm;
  Reducer *q;
  float g[N];
  OK(comm_open(&comm, 5));
  OK(reducer_new(&q, comm, g, N, &(ReduceSpec){.unit = 64, .bucket = 128, .rounds = true}));
  static const float give[] = {1e8f, 1, -1e8f}; /* (1e8 + 1) - 1e8 is 0 in fp32 */
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < N; i++) g[i] = i % 2 ? give[round] : (float)i;
    reducer_begin_round(
        q, (ReduceRound){.active = 1, .is_first = round == 0, .is_last = round == 2});
    reducer_mark_ready(q, 100, N);
    reducer_mark_ready(q, 0, 100);
    reducer_finish(q);
  }
  for (int i = 0; i < N; i++) assert_true(g[i] == (i % 2 ? 0 : 3 * (float)i));
  assert_int_equal(reducer_owned(q), N);
  reducer_free(q);
  comm_close(comm, ERR_OK);
}

typedef struct {
  size_t list[8], sent;
} Sent;

static void record_bucket(void *context, size_t bucket) {
  Sent *s = context;
  s->list[s->sent++] = bucket;
}

/* Reports the gradients of a model of 300 elements in this order: the last bucket of 128 is
 * completed first, then the first, then the second. */
static void announce_from_both_ends(const void *model,
                                    void (*ready)(void *context, size_t begin, size_t end),
                                    void *context) {
  (void)model;
  ready(context, 200, 300);
  ready(context, 0, 128);
  ready(context, 128, 200);
}

/* Gradients of a GPU are all marked ready at the end, those of a CPU one after another. The
 * buckets are sent in the order of the model in both cases. */
static void test_reducer_announced_in_other_order_sends_in_set_order(void **state) {
  (void)state;
  enum { N = 300 };
  Comm *comm;
  Reducer *q;
  Sent s = {0};
  OK(comm_open(&comm, 5));
  ReduceSpec spec = {.unit = 64, .bucket = 128, .send = record_bucket, .context = &s};
  OK(reducer_new(&q, comm, NULL, N, &spec));
  reducer_set_order(q, announce_from_both_ends, NULL);
  reducer_begin_round(q, (ReduceRound){.active = 1, .is_first = true, .is_last = true});
  reducer_mark_ready(q, 0, 200);
  /* The first bucket is complete, but the last one must be sent before it. */
  assert_int_equal(s.sent, 0);
  reducer_mark_ready(q, 200, N);
  assert_int_equal(s.sent, 3);
  assert_true(s.list[0] == 2 && s.list[1] == 0 && s.list[2] == 1);
  reducer_finish(q);
  assert_int_equal(s.sent, 3);
  reducer_free(q);
  comm_close(comm, ERR_OK);
}

static void test_reducer_announced_nothing_sends_in_set_order(void **state) {
  (void)state;
  enum { N = 300 };
  Comm *comm;
  Reducer *q;
  Sent s = {0};
  OK(comm_open(&comm, 5));
  ReduceSpec spec = {.unit = 64, .bucket = 128, .send = record_bucket, .context = &s};
  OK(reducer_new(&q, comm, NULL, N, &spec));
  reducer_set_order(q, announce_from_both_ends, NULL);
  reducer_begin_round(q, (ReduceRound){.active = 1, .is_first = true, .is_last = true});
  reducer_finish(q);
  assert_true(s.sent == 3 && s.list[0] == 2 && s.list[1] == 0 && s.list[2] == 1);
  reducer_free(q);
  comm_close(comm, ERR_OK);
}

/* What a model announces: one range, or none. */
typedef struct {
  size_t begin, end;
} Range;

static void announce_range(const void *range,
                           void (*ready)(void *context, size_t begin, size_t end),
                           void *context) {
  const Range *r = range;
  if (r->end) ready(context, r->begin, r->end);
}

static void test_reducer_buckets_not_announced_follow_in_ascending_order(void **state) {
  (void)state;
  static const struct {
    Range announced;
    size_t order[3];
  } cases[] = {{{0, 0}, {0, 1, 2}},     {{0, 128}, {0, 1, 2}},   {{128, 256}, {1, 0, 2}},
               {{256, 300}, {2, 0, 1}}, {{128, 300}, {1, 2, 0}}, {{128, 255}, {0, 1, 2}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Comm *comm;
    Reducer *q;
    Sent s = {0};
    OK(comm_open(&comm, 5));
    ReduceSpec spec = {.unit = 64, .bucket = 128, .send = record_bucket, .context = &s};
    OK(reducer_new(&q, comm, NULL, 300, &spec));
    reducer_set_order(q, announce_range, &cases[i].announced);
    reducer_begin_round(q, (ReduceRound){.active = 1, .is_first = true, .is_last = true});
    reducer_finish(q);
    assert_int_equal(s.sent, 3);
    assert_memory_equal(s.list, cases[i].order, sizeof cases[i].order);
    reducer_free(q);
    comm_close(comm, ERR_OK);
  }
}

static void test_reducer_with_send_sends_complete_buckets_only(void **state) {
  (void)state;
  enum { N = 300 }; /* elements: buckets of 128, 128 and 44 */
  Comm *comm;
  Reducer *q;
  Sent s = {0};
  size_t off[2];
  OK(comm_open(&comm, 5));
  ReduceSpec spec = {.unit = 64, .bucket = 128, .send = record_bucket, .context = &s};
  /* G may be NULL, because it is not accessed if `send` is set. */
  OK(reducer_new(&q, comm, NULL, N, &spec));
  assert_int_equal(reducer_bytes(q), 0);
  reducer_set_order(q, announce_from_both_ends, NULL);
  for (int step = 0; step < 2; step++) {
    s.sent = 0;
    reducer_begin_round(q, (ReduceRound){.active = 1, .is_first = true, .is_last = true});
    reducer_mark_ready(q, 200, N); /* completes the last bucket and a part of the second */
    assert_int_equal(s.sent, 1);
    reducer_mark_ready(q, 0, 100);
    assert_int_equal(s.sent, 1);
    reducer_mark_ready(q, 100, 200);
    assert_int_equal(s.sent, 3);
    reducer_finish(q);
    assert_int_equal(s.sent, 3);
    assert_true(s.list[0] == 2 && s.list[1] == 0 && s.list[2] == 1);
  }
  assert_int_equal(reducer_pieces(q), 3);
  reducer_bucket(q, 2, off);
  assert_true(off[0] == 256 && off[1] == N);
  reducer_free(q);
  comm_begin_wait(comm);
  comm_end_wait(comm);
  comm_close(comm, ERR_OK);
}

static void test_reducer_new_without_memory_is_an_error(void **state) {
  (void)state;
  Comm *comm;
  Reducer *q;
  float g[64];
  OK(comm_open(&comm, 5));
  ReduceSpec spec = {.unit = 64, .bucket = 64, .rounds = true};
  uint64_t before = mem_count();
  OK(reducer_new(&q, comm, g, 64, &spec));
  uint64_t allocations = mem_count() - before;
  reducer_free(q);
  assert_between(allocations, 10, 50);
  for (uint64_t n = 1; n <= allocations; n++) {
    mem_fail_after(n);
    Err err = reducer_new(&q, comm, g, 64, &spec);
    mem_fail_after(0);
    assert_int_equal(err, ERR_WORK);
    assert_null(q);
  }
  reducer_free(NULL);
  comm_close(comm, ERR_OK);
}

/* If MPI cannot connect the ranks of a launcher, the program must fail instead of running as
 * several single ranks. */
static void test_comm_open_ranks_that_cannot_join_is_an_error(void **state) {
  (void)state;
  Comm *comm;
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  assert_int_equal(comm_open(&comm, 5), ERR_WORK);
  assert_says("--mpi=pmix");
  unsetenv("SLURM_STEP_NUM_TASKS");
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("TRIREME_PLUGIN_PATH", "/nowhere", 1);
  assert_int_equal(comm_open(&comm, 5), ERR_WORK);
  assert_says("2 ranks");
  assert_says("libopenmpi-dev");
  assert_null(comm);
  setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  OK(comm_open(&comm, 5));
  comm_close(comm, ERR_OK);
}

static void test_fault_now_is_true_at_its_step_and_rank_only(void **state) {
  (void)state;
  assert_false(fault_now("nan", 0, 0));
  setenv("TRIREME_FAULT", "nan:3:1,die:5,nan*:7:0", 1);
  assert_false(fault_now("nan", 3, 0));
  assert_false(fault_now("na", 3, 1));
  assert_true(fault_now("nan", 3, 1));
  assert_false(fault_now("nan", 3, 1)); /* the fault happens once */
  assert_true(fault_now("die", 5, 0));
  assert_true(fault_now("nan", 7, 0));
  assert_true(fault_now("nan", 7, 0)); /* the fault happens every time */
  assert_false(fault_now("hang", 7, 0));
  setenv("TRIREME_FAULT", "die:file:2", 1);
  assert_false(fault_now("die", 0, 0)); /* the fault is bound to a place, not to a step */
  assert_false(fault_now("die", 2, 0));
  unsetenv("TRIREME_FAULT");
}

/* Runs a child that passes the fault point `elsewhere` five times and `here` three times;
 * returns the signal that ended it, or 0. */
static int signal_after_visits(const char *fault) {
  pid_t child = fork();
  if (child == 0) {
    setenv("TRIREME_FAULT", fault, 1);
    for (int i = 0; i < 5; i++) fault_point("elsewhere");
    for (int i = 0; i < 3; i++) fault_point("here");
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_fault_point_kills_at_the_nth_visit_only(void **state) {
  (void)state;
  assert_int_equal(signal_after_visits("die:here"), SIGKILL);
  assert_int_equal(signal_after_visits("die:here:3"), SIGKILL);
  assert_int_equal(signal_after_visits("nan:1:0,die:here:3"), SIGKILL);
  assert_int_equal(signal_after_visits("die:here:4"), 0);
  assert_int_equal(signal_after_visits("die:her:1"), 0);
  assert_int_equal(signal_after_visits("die:heres:1"), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_comm_one_rank_collectives_keep_values, unset_launchers),
      cmocka_unit_test_setup(test_comm_one_rank_job_runs_at_submit, unset_launchers),
      cmocka_unit_test_setup(test_reducer_one_rank_rounds_add_in_order, unset_launchers),
      cmocka_unit_test_setup(test_reducer_announced_in_other_order_sends_in_set_order,
                             unset_launchers),
      cmocka_unit_test_setup(test_reducer_announced_nothing_sends_in_set_order,
                             unset_launchers),
      cmocka_unit_test_setup(test_reducer_buckets_not_announced_follow_in_ascending_order,
                             unset_launchers),
      cmocka_unit_test_setup(test_reducer_with_send_sends_complete_buckets_only,
                             unset_launchers),
      cmocka_unit_test_setup(test_reducer_new_without_memory_is_an_error, unset_launchers),
      cmocka_unit_test_setup(test_comm_open_ranks_that_cannot_join_is_an_error,
                             unset_launchers),
      cmocka_unit_test(test_fault_now_is_true_at_its_step_and_rank_only),
      cmocka_unit_test(test_fault_point_kills_at_the_nth_visit_only),
  };
  int bad = cmocka_run_group_tests(tests, NULL, NULL);
  unset_launchers(NULL);
  return bad;
}
