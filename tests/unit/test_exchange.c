/* The choice of a way for one rank, and a wire that is tried before it is used: it adds
 * wrongly, breaks, or does not open. Several ranks are in tests/cli/collectives.bats. */
#include "base/mem.h"
#include "support.h"
#include "train/exchange.h"

struct DeviceComm {
  int pad;
};

typedef enum { WELL, WRONG, BROKEN, CLOSED, MISSING } Mode;
static Mode mode;
static int opened, closed, later;
static DeviceCommSpec given; /* the last open's */

static Err look(char about[64], int *version) {
  *version = 0;
  if (mode == MISSING) return err_set(ERR_WORK, "no library");
  *version = 1;
  snprintf(about, 64, "tin cans");
  return ERR_OK;
}

static Err name(char id[DEVICE_COMM_ID]) {
  memset(id, 7, DEVICE_COMM_ID);
  return ERR_OK;
}

static Err open_wire(DeviceComm **w, const Backend *b, const char id[DEVICE_COMM_ID],
                     const DeviceCommSpec *spec) {
  (void)b;
  if (mode == CLOSED) return err_set(ERR_WORK, "nobody is there");
  assert_true(id[0] == 7 && spec->rank == 0 && spec->size == 1 && spec->max_elements >= 5000);
  given = *spec;
  TRY(mem_alloc(w, 1, sizeof **w));
  opened++;
  return ERR_OK;
}

static void close_wire(DeviceComm *w) {
  closed++;
  mem_free(w);
}

static void abort_wire(DeviceComm *w) {
  (void)w;
}

static void sum(DeviceComm *w, float *x, size_t n) {
  (void)w;
  later = 3;
  if (mode == WRONG) x[n - 1] += 1;
}

static void pieces(DeviceComm *w, float *x, const size_t *off) {
  (void)w, (void)x, (void)off;
}

static void join(DeviceComm *w) {
  (void)w;
}

static Err test(DeviceComm *w, bool *made, bool *done) {
  (void)w;
  if (mode == BROKEN) return err_set(ERR_WORK, "the string is cut");
  *made = later < 2, *done = later-- <= 0;
  return ERR_OK;
}

static const DeviceCommOps table = {look, name,   open_wire, close_wire, abort_wire,
                                    sum,  pieces, pieces,    join,       test};

static void test_choices(void **state) {
  (void)state;
  Comm *comm;
  Exchange x;
  Backend b;
  unsetenv("OMPI_COMM_WORLD_SIZE");
  OK(comm_open(&comm, 5));
  OK(backend_cpu(&b, 1, false));
  for (int asked = 0; asked < 3; asked++) { /* a CPU: there is no choice, and nothing to say */
    Err err = exchange_choose(&x, comm, &b, (Collectives)asked, false);
    assert_int_equal(err, asked == COLLECT_NCCL ? ERR_USAGE : ERR_OK);
    assert_null(x.table);
    assert_string_equal(x.about, "");
    OK(exchange_open(&x, &b, 10, false));
    OK(exchange_rest(&x));
    exchange_close(&x);
  }
  b.device_id = 5, b.comm = &table, mode = WELL;
  OK(exchange_choose(&x, comm, &b, COLLECT_AUTO, false)); /* alone: nothing travels */
  assert_null(x.table);
  OK(exchange_choose(&x, comm, &b, COLLECT_NCCL, false));
  assert_ptr_equal(x.table, &table);
  assert_non_null(strstr(x.about, "by tin cans"));
  assert_int_equal(exchange_choose(&x, comm, &b, COLLECT_NCCL, true), ERR_USAGE);
  assert_non_null(strstr(err_message(), "leave --reproducible out"));
  mode = MISSING;
  assert_int_equal(exchange_choose(&x, comm, &b, COLLECT_NCCL, false), ERR_USAGE);
  assert_non_null(strstr(err_message(), "no library; install libnccl2"));
  comm_close(comm, ERR_OK);
}

static void test_a_wire_is_tried(void **state) {
  (void)state;
  static const char *const said[] = {NULL, "add wrongly: 3 came of 2 from rank 0 of 1",
                                     "the string is cut", "nobody is there"};
  Comm *comm;
  Exchange x;
  Backend b;
  OK(comm_open(&comm, 5));
  OK(backend_cpu(&b, 1, false));
  b.device_id = 5, b.comm = &table;
  for (Mode m = WELL; m <= CLOSED; m++) {
    mode = m, opened = closed = 0;
    OK(exchange_choose(&x, comm, &b, COLLECT_NCCL, false));
    Err err = exchange_open(&x, &b, 5000, true);
    assert_int_equal(err, m == WELL ? ERR_OK : ERR_WORK);
    if (err) assert_non_null(strstr(err_message(), said[m]));
    if (!err) OK(exchange_rest(&x));
    exchange_close(&x);
    assert_int_equal(opened, m != CLOSED);
    assert_int_equal(closed, opened);
    exchange_close(&x); /* harmless */
  }
  for (uint64_t n = 1; n < 7; n++) { /* without memory: an error, and nothing is left */
    mode = WELL, opened = closed = 0;
    mem_fail_after(n);
    Err err = exchange_choose(&x, comm, &b, COLLECT_NCCL, false);
    if (!err) err = exchange_open(&x, &b, 5000, true);
    mem_fail_after(0);
    assert_int_equal(err, ERR_WORK);
    exchange_close(&x);
    assert_int_equal(closed, opened);
  }
  comm_close(comm, ERR_OK);
}

/* Before a backend times anything: until what was queued is done, and what fails is reported. */
static void test_exchange_quiesce_waits_for_what_is_queued(void **state) {
  (void)state;
  Comm *comm;
  Exchange x;
  Backend b;
  OK(comm_open(&comm, 5));
  OK(backend_cpu(&b, 1, false));
  b.device_id = 5, b.comm = &table, mode = WELL;
  OK(exchange_choose(&x, comm, &b, COLLECT_NCCL, false));
  OK(exchange_open(&x, &b, 5000, true));
  later = 7; /* tests until the operation is done */
  OK(given.quiesce(given.context));
  assert_true(later < 0);
  mode = BROKEN;
  assert_int_equal(given.quiesce(given.context), ERR_WORK);
  assert_says("the string is cut");
  exchange_close(&x);
  comm_close(comm, ERR_OK);
}

static float to_bf16(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  u = (u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u;
  memcpy(&x, &u, sizeof x);
  return x;
}

/* What NCCL makes of a trial in bf16: rounded after each addition. */
static void add_trial(float *acc, float *x, size_t n, int rank, int ranks) {
  exchange_trial(x, n, rank, ranks);
  for (size_t i = 0; i < n; i++) acc[i] = to_bf16(acc[i] + to_bf16(x[i]));
}

static void test_a_trial_of_many_ranks(void **state) {
  (void)state;
  static const int sizes[] = {1, 2, 3, 255, 256, 257, 300, 1000, 1024};
  enum { N = 1024 };
  static float whole[N], acc[N], x[N];
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    int ranks = sizes[s], some[] = {0, ranks / 2, ranks - 1};
    memset(whole, 0, sizeof whole);
    for (int r = 0; r < ranks; r++) add_trial(whole, x, N, r, ranks);
    OK(exchange_judge_trial(whole, N, ranks));
    for (int k = 0; k < 3; k++) { /* one of them twice, not at all, or instead of the next */
      memcpy(acc, whole, sizeof acc);
      add_trial(acc, x, N, some[k], ranks);
      assert_int_equal(exchange_judge_trial(acc, N, ranks), ERR_WORK);
      for (int instead = 0; instead < (ranks > 1 ? 2 : 1); instead++) {
        memset(acc, 0, sizeof acc);
        for (int r = 0; r < ranks; r++)
          if (r != some[k]) add_trial(acc, x, N, r, ranks);
        if (instead) add_trial(acc, x, N, (some[k] + 1) % ranks, ranks);
        assert_int_equal(exchange_judge_trial(acc, N, ranks), ERR_WORK);
        assert_says("add wrongly");
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_choices),
      cmocka_unit_test(test_a_wire_is_tried),
      cmocka_unit_test(test_exchange_quiesce_waits_for_what_is_queued),
      cmocka_unit_test(test_a_trial_of_many_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
