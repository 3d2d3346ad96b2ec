/* Selection of the all-reduce transport for one rank, and the NCCL self-test, with a fake
 * device communicator that computes wrong sums, fails or cannot be opened.
 * tests/cli/collectives.bats tests several ranks. */
#include "base/mem.h"
#include "support.h"
#include "train/allreduce.h"

/* The fake communicator. */

struct DeviceComm {
  int pad;
};

typedef enum {
  WORKS,
  ADDS_WRONGLY,
  ADDS_NUMBERS_WRONGLY,
  SCATTERS_WRONGLY,
  GATHERS_WRONGLY,
  GATHERS_HALVES_WRONGLY,
  FAILS,
  DOES_NOT_OPEN,
  NOT_INSTALLED
} Behaviour;
static Behaviour behaviour;
static int opened, closed;
static int scatters, gathers, number_sums; /* collectives so far */
static int polls_left;       /* number of polls until the collective is complete */
static DeviceCommSpec given; /* argument of the last `open` */

static Err probe(char about[64], int *version) {
  *version = 0;
  if (behaviour == NOT_INSTALLED) return err_set(ERR_WORK, "fake transport: no library");
  *version = 1;
  snprintf(about, 64, "fake transport");
  return ERR_OK;
}

static Err create_id(char id[DEVICE_COMM_ID]) {
  memset(id, 7, DEVICE_COMM_ID);
  return ERR_OK;
}

static Err open_comm(DeviceComm **c, const Backend *b, const char id[DEVICE_COMM_ID],
                     const DeviceCommSpec *spec) {
  (void)b;
  if (behaviour == DOES_NOT_OPEN) return err_set(ERR_WORK, "fake transport: no peer");
  assert_int_equal(id[0], 7);
  assert_int_equal(spec->rank, 0);
  assert_int_equal(spec->size, 1);
  assert_true(spec->max_elements >= 5000);
  given = *spec;
  TRY(mem_alloc(c, 1, sizeof **c));
  opened++;
  return ERR_OK;
}

static void close_comm(DeviceComm *c) {
  closed++;
  mem_free(c);
}

static void abort_comm(DeviceComm *c) {
  (void)c;
}

static void all_reduce(DeviceComm *c, float *x, size_t n) {
  (void)c;
  polls_left = 3;
  if (behaviour == ADDS_WRONGLY) x[n - 1] += 1;
}

/* Rounds the last number to fp32. */
static void all_reduce_doubles(DeviceComm *c, double *numbers, size_t n) {
  (void)c;
  polls_left = 3;
  number_sums++;
  if (behaviour == ADDS_NUMBERS_WRONGLY) numbers[n - 1] = (double)(float)numbers[n - 1];
}

static void reduce_scatter(DeviceComm *c, float *x, const size_t *off) {
  (void)c;
  polls_left = 3;
  scatters++;
  if (behaviour == SCATTERS_WRONGLY) x[off[1] - 1] = 0;
}

static void all_gather(DeviceComm *c, void *x, const DeviceGather *g) {
  (void)c;
  polls_left = 3;
  gathers++;
  if (behaviour == GATHERS_WRONGLY || (behaviour == GATHERS_HALVES_WRONGLY && g->width == 2))
    memset((char *)x + g->off[0] * g->width, 5, g->width);
}

static void join(DeviceComm *c) {
  (void)c;
}

static Err poll_comm(DeviceComm *c, bool *inputs_ready, bool *done) {
  (void)c;
  if (behaviour == FAILS) return err_set(ERR_WORK, "fake transport: link down");
  *inputs_ready = polls_left < 2;
  *done = polls_left <= 0;
  polls_left--;
  return ERR_OK;
}

static const DeviceCommOps fake = {.probe = probe,
                                   .create_id = create_id,
                                   .open = open_comm,
                                   .close = close_comm,
                                   .abort = abort_comm,
                                   .all_reduce = all_reduce,
                                   .all_reduce_doubles = all_reduce_doubles,
                                   .reduce_scatter = reduce_scatter,
                                   .all_gather = all_gather,
                                   .join = join,
                                   .poll = poll_comm};

static Comm *comm;
static Backend b; /* a CPU backend, which become_gpu() turns into a fake GPU */
static Allreduce x;
static const AllreduceSpec asks_auto = {.transport = TRANSPORT_AUTO, .max_elements = 5000};
static const AllreduceSpec asks_nccl = {
    .transport = TRANSPORT_NCCL, .bf16 = true, .max_elements = 5000};
static const AllreduceSpec asks_host = {.transport = TRANSPORT_HOST, .max_elements = 5000};

static int set_up(void **state) {
  (void)state;
  unsetenv("OMPI_COMM_WORLD_SIZE");
  OK(comm_open(&comm, 5));
  OK(backend_cpu(&b, 1, false));
  behaviour = WORKS;
  opened = 0;
  closed = 0;
  scatters = 0;
  gathers = 0;
  number_sums = 0;
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  allreduce_close(&x);
  comm_close(comm, ERR_OK);
  return 0;
}

static void become_gpu(void) {
  b.device_id = 5;
  b.comm = &fake;
}

static void assert_no_choice_on_cpu(const AllreduceSpec *spec) {
  OK(allreduce_select(&x, comm, &b, spec));
  assert_null(x.ops);
  assert_string_equal(x.about, "");
  OK(allreduce_open(&x, spec));
  OK(allreduce_finish(&x));
}

static void test_allreduce_auto_on_cpu_is_host_and_says_nothing(void **state) {
  (void)state;
  assert_no_choice_on_cpu(&asks_auto);
}

static void test_allreduce_host_on_cpu_is_host_and_says_nothing(void **state) {
  (void)state;
  assert_no_choice_on_cpu(&asks_host);
}

static void test_allreduce_nccl_on_cpu_is_refused(void **state) {
  (void)state;
  assert_int_equal(allreduce_select(&x, comm, &b, &asks_nccl), ERR_USAGE);
  assert_says("nccl is not available: rank 0 has no GPU; pass --device cuda");
}

static void test_allreduce_auto_of_one_rank_does_not_use_nccl(void **state) {
  (void)state;
  become_gpu();
  OK(allreduce_select(&x, comm, &b, &asks_auto));
  assert_null(x.ops);
}

static void test_allreduce_nccl_on_gpu_is_selected(void **state) {
  (void)state;
  become_gpu();
  OK(allreduce_select(&x, comm, &b, &asks_nccl));
  assert_ptr_equal(x.ops, &fake);
  assert_non_null(strstr(x.about, "by fake transport"));
}

static void test_allreduce_nccl_with_ordered_sums_is_refused(void **state) {
  (void)state;
  become_gpu();
  AllreduceSpec spec = asks_nccl;
  spec.is_ordered = true;
  assert_int_equal(allreduce_select(&x, comm, &b, &spec), ERR_USAGE);
  assert_says("leave --reproducible out");
}

static void test_allreduce_nccl_not_installed_is_refused(void **state) {
  (void)state;
  become_gpu();
  behaviour = NOT_INSTALLED;
  assert_int_equal(allreduce_select(&x, comm, &b, &asks_nccl), ERR_USAGE);
  assert_says("fake transport: no library; install libnccl2");
}

static Err open_nccl(void) {
  become_gpu();
  TRY(allreduce_select(&x, comm, &b, &asks_nccl));
  return allreduce_open(&x, &asks_nccl);
}

static void test_allreduce_opens_and_closes_once(void **state) {
  (void)state;
  OK(open_nccl());
  OK(allreduce_finish(&x));
  allreduce_close(&x);
  allreduce_close(&x);
  assert_int_equal(opened, 1);
  assert_int_equal(closed, 1);
}

static void test_allreduce_selftest_rejects_wrong_sum(void **state) {
  (void)state;
  behaviour = ADDS_WRONGLY;
  assert_int_equal(open_nccl(), ERR_WORK);
  assert_says("self-test failed: got 3, expected 2 (from rank 0 of 1)");
  allreduce_close(&x);
  assert_int_equal(closed, 1);
}

/* Opens NCCL for a run with --shard-optimizer. */
static Err open_sharded(void) {
  AllreduceSpec spec = asks_nccl;
  spec.is_sharded = true;
  become_gpu();
  TRY(allreduce_select(&x, comm, &b, &spec));
  return allreduce_open(&x, &spec);
}

static void test_allreduce_selftest_tries_what_the_run_uses(void **state) {
  (void)state;
  OK(open_nccl());
  assert_int_equal(scatters + gathers, 0);
  allreduce_close(&x);
  OK(open_sharded());
  assert_int_equal(scatters, 2); /* pieces of equal and of unequal size */
  assert_int_equal(gathers, 4);
}

static void test_allreduce_selftest_rejects_wrong_pieces(void **state) {
  (void)state;
  behaviour = SCATTERS_WRONGLY;
  assert_int_equal(open_sharded(), ERR_WORK);
  assert_says("NCCL reduce-scatter self-test failed: got 0, expected 2 (from rank 0 of 1)");
  allreduce_close(&x);
  behaviour = GATHERS_WRONGLY;
  assert_int_equal(open_sharded(), ERR_WORK);
  assert_says("NCCL all-gather self-test failed: got 84215045, expected 1 (from rank 0 of 1)");
  allreduce_close(&x);
  behaviour = GATHERS_HALVES_WRONGLY;
  assert_int_equal(open_sharded(), ERR_WORK);
  assert_says(
      "NCCL 16-bit all-gather self-test failed: got 1285, expected 1 (from rank 0 of 1)");
}

/* Opens NCCL for a run that sums losses on the device. */
static Err open_with_numbers(void) {
  AllreduceSpec spec = asks_nccl;
  spec.sums_numbers = true;
  become_gpu();
  TRY(allreduce_select(&x, comm, &b, &spec));
  return allreduce_open(&x, &spec);
}

static void test_allreduce_selftest_tries_sums_of_numbers(void **state) {
  (void)state;
  OK(open_nccl());
  assert_int_equal(number_sums, 0);
  allreduce_close(&x);
  OK(open_with_numbers());
  assert_int_equal(number_sums, 1);
}

static void test_allreduce_reopened_runs_selftest_again(void **state) {
  (void)state;
  AllreduceSpec spec = asks_nccl;
  spec.sums_numbers = true;
  OK(open_with_numbers());
  OK(allreduce_reopen(&x, &spec));
  assert_int_equal(number_sums, 2);
  behaviour = ADDS_NUMBERS_WRONGLY;
  assert_int_equal(allreduce_reopen(&x, &spec), ERR_WORK);
}

static void test_allreduce_selftest_rejects_numbers_rounded_to_fp32(void **state) {
  (void)state;
  behaviour = ADDS_NUMBERS_WRONGLY;
  assert_int_equal(open_with_numbers(), ERR_WORK);
  assert_says("NCCL fp64 all-reduce self-test failed: got 2, expected 2.0000000000009095");
}

static void test_allreduce_selftest_reports_failed_collective(void **state) {
  (void)state;
  behaviour = FAILS;
  assert_int_equal(open_nccl(), ERR_WORK);
  assert_says("fake transport: link down");
  allreduce_close(&x);
  assert_int_equal(closed, 1);
}

static void test_allreduce_open_failure_is_reported(void **state) {
  (void)state;
  behaviour = DOES_NOT_OPEN;
  assert_int_equal(open_nccl(), ERR_WORK);
  assert_says("fake transport: no peer");
  allreduce_close(&x);
  assert_int_equal(closed, 0);
}

static void test_allreduce_without_memory_leaves_nothing_open(void **state) {
  (void)state;
  for (uint64_t n = 1; n < 7; n++) {
    opened = 0;
    closed = 0;
    mem_fail_after(n);
    Err err = open_nccl();
    mem_fail_after(0);
    assert_int_equal(err, ERR_WORK);
    allreduce_close(&x);
    assert_int_equal(closed, opened);
  }
}

/* The backend calls quiesce before it times GEMMs. */

static void test_allreduce_quiesce_waits_for_queued_collectives(void **state) {
  (void)state;
  OK(open_nccl());
  polls_left = 7;
  OK(given.quiesce(given.context));
  assert_true(polls_left < 0);
}

static void test_allreduce_quiesce_reports_failed_collective(void **state) {
  (void)state;
  OK(open_nccl());
  behaviour = FAILS;
  assert_int_equal(given.quiesce(given.context), ERR_WORK);
  assert_says("fake transport: link down");
}

enum { ELEMENTS = 1024 };
static const int rank_counts[] = {1, 2, 3, 255, 256, 257, 300, 1000, 1024};
#define RANK_COUNTS (sizeof rank_counts / sizeof *rank_counts)

static float round_to_bf16(float value) {
  uint32_t u;
  memcpy(&u, &value, sizeof u);
  u = (u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u;
  memcpy(&value, &u, sizeof value);
  return value;
}

/* Adds a rank's contribution as NCCL does in bf16: rounds after each addition. */
static void add_rank(float *sum, int rank, int ranks) {
  static float mine[ELEMENTS];
  allreduce_fill_selftest(mine, ELEMENTS, rank, ranks);
  for (size_t i = 0; i < ELEMENTS; i++) sum[i] = round_to_bf16(sum[i] + round_to_bf16(mine[i]));
}

/* Computes the sum with `times` contributions of one rank instead of one. */
static void sum_ranks(float *sum, int ranks, int rank, int times) {
  memset(sum, 0, ELEMENTS * sizeof *sum);
  for (int r = 0; r < ranks; r++)
    for (int i = 0; i < (r == rank ? times : 1); i++) add_rank(sum, r, ranks);
}

static void test_allreduce_selftest_accepts_sum_in_bf16_of_any_ranks(void **state) {
  (void)state;
  static float sum[ELEMENTS];
  for (size_t i = 0; i < RANK_COUNTS; i++) {
    sum_ranks(sum, rank_counts[i], 0, 1);
    OK(allreduce_check_selftest("all-reduce", sum, 0, ELEMENTS, rank_counts[i]));
  }
}

/* Tests the first, a middle and the last rank. */
static void assert_rejected(int times) {
  static float sum[ELEMENTS];
  for (size_t i = 0; i < RANK_COUNTS; i++) {
    int ranks = rank_counts[i], some[] = {0, ranks / 2, ranks - 1};
    for (int k = 0; k < 3; k++) {
      sum_ranks(sum, ranks, some[k], times);
      assert_int_equal(allreduce_check_selftest("all-reduce", sum, 0, ELEMENTS, ranks),
                       ERR_WORK);
      assert_says("self-test failed");
    }
  }
}

static void test_allreduce_selftest_rejects_missing_rank(void **state) {
  (void)state;
  assert_rejected(0);
}

static void test_allreduce_selftest_rejects_rank_counted_twice(void **state) {
  (void)state;
  assert_rejected(2);
}

static void test_allreduce_selftest_rejects_rank_in_place_of_another(void **state) {
  (void)state;
  static float sum[ELEMENTS];
  for (size_t i = 1; i < RANK_COUNTS; i++) {
    int ranks = rank_counts[i], some[] = {0, ranks / 2, ranks - 1};
    for (int k = 0; k < 3; k++) {
      sum_ranks(sum, ranks, some[k], 0);
      add_rank(sum, (some[k] + 1) % ranks, ranks);
      assert_int_equal(allreduce_check_selftest("all-reduce", sum, 0, ELEMENTS, ranks),
                       ERR_WORK);
    }
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_allreduce_auto_on_cpu_is_host_and_says_nothing),
      TEST(test_allreduce_host_on_cpu_is_host_and_says_nothing),
      TEST(test_allreduce_nccl_on_cpu_is_refused),
      TEST(test_allreduce_auto_of_one_rank_does_not_use_nccl),
      TEST(test_allreduce_nccl_on_gpu_is_selected),
      TEST(test_allreduce_nccl_with_ordered_sums_is_refused),
      TEST(test_allreduce_nccl_not_installed_is_refused),
      TEST(test_allreduce_opens_and_closes_once),
      TEST(test_allreduce_selftest_rejects_wrong_sum),
      TEST(test_allreduce_selftest_tries_what_the_run_uses),
      TEST(test_allreduce_selftest_rejects_wrong_pieces),
      TEST(test_allreduce_selftest_tries_sums_of_numbers),
      TEST(test_allreduce_reopened_runs_selftest_again),
      TEST(test_allreduce_selftest_rejects_numbers_rounded_to_fp32),
      TEST(test_allreduce_selftest_reports_failed_collective),
      TEST(test_allreduce_open_failure_is_reported),
      TEST(test_allreduce_without_memory_leaves_nothing_open),
      TEST(test_allreduce_quiesce_waits_for_queued_collectives),
      TEST(test_allreduce_quiesce_reports_failed_collective),
      cmocka_unit_test(test_allreduce_selftest_accepts_sum_in_bf16_of_any_ranks),
      cmocka_unit_test(test_allreduce_selftest_rejects_missing_rank),
      cmocka_unit_test(test_allreduce_selftest_rejects_rank_counted_twice),
      cmocka_unit_test(test_allreduce_selftest_rejects_rank_in_place_of_another),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
