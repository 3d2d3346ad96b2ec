/* The sequence of collectives (comm/sequence.h, comm/collective.h): which differences between
 * ranks are detected. */
#include "comm/sequence.h"

#include <string.h>

#include "base/mem.h"
#include "comm/collective.h"
#include "support.h"

enum { RANKS = 3, TAG_MAX = 32767 };

/* Makes a sequence whose collective 1 is running. */
static Sequence begin_sequence(OpKind kind, const char *name, uint64_t bytes, uint64_t layout) {
  Sequence s;
  OK(sequence_init(&s, RANKS, TAG_MAX));
  sequence_begin(&s, kind, name, bytes, layout);
  return s;
}

/* Returns true if a rank that runs a sum "losses" of 40 bytes detects that another rank runs
 * this collective. */
static bool differs_from_losses(OpKind kind, const char *name, uint64_t bytes,
                                uint64_t layout) {
  Sequence mine = begin_sequence(OP_SUM, "losses", 40, 7);
  Sequence theirs = begin_sequence(kind, name, bytes, layout);
  bool differs = sequence_differs(&mine, sequence_current(&theirs));
  sequence_free(&mine);
  sequence_free(&theirs);
  return differs;
}

static void test_sequence_same_collective_does_not_differ(void **state) {
  (void)state;
  assert_false(differs_from_losses(OP_SUM, "losses", 40, 7));
}

static void test_sequence_other_name_differs(void **state) {
  (void)state;
  assert_true(differs_from_losses(OP_SUM, "norms", 40, 7));
}

static void test_sequence_other_kind_differs(void **state) {
  (void)state;
  assert_true(differs_from_losses(OP_BROADCAST, "losses", 40, 7));
}

static void test_sequence_other_size_differs(void **state) {
  (void)state;
  assert_true(differs_from_losses(OP_SUM, "losses", 48, 7));
}

static void test_sequence_other_layout_differs(void **state) {
  (void)state;
  assert_true(differs_from_losses(OP_SUM, "losses", 40, 8));
}

static void test_sequence_collective_not_begun_does_not_differ(void **state) {
  (void)state;
  Sequence s = begin_sequence(OP_SUM, "losses", 40, 0);
  Op later = {.seq = 2, .hash = 1};
  assert_false(sequence_differs(&s, &later));
  assert_null(sequence_find(&s, 2));
  sequence_free(&s);
}

static void test_sequence_forgets_after_history(void **state) {
  (void)state;
  Sequence s = begin_sequence(OP_SUM, "losses", 40, 0);
  for (int i = 1; i < SEQUENCE_HISTORY; i++) sequence_begin(&s, OP_SUM, "losses", 40, 0);
  assert_non_null(sequence_find(&s, 1));
  sequence_begin(&s, OP_SUM, "losses", 40, 0);
  assert_null(sequence_find(&s, 1));
  sequence_free(&s);
}

static void test_sequence_tag_differs_between_names_and_stays_in_range(void **state) {
  (void)state;
  Sequence a = begin_sequence(OP_SUM, "losses", 40, 0);
  Sequence b = begin_sequence(OP_SUM, "norms", 40, 0);
  assert_int_not_equal(sequence_tag(&a, 40), sequence_tag(&b, 40));
  for (size_t bytes = 0; bytes < 10000; bytes++) {
    int tag = sequence_tag(&a, bytes);
    assert_true(tag >= TAG_FIRST && tag <= TAG_MAX);
  }
  sequence_free(&a);
  sequence_free(&b);
}

/* Rank 0 has sent 24 bytes to rank 1; returns true if that differs from `expected`. */
static bool sent_wrong_size(uint64_t expected, uint64_t *sent) {
  static const size_t send_n[RANKS] = {0, 24, 8}, recv_n[RANKS] = {0, 16, 16};
  Sequence s = begin_sequence(OP_EXCHANGE, "pieces", 0, 0);
  sequence_set_sizes(&s, send_n, recv_n);
  SequenceReport report = {.expect_seq = 1, .expect_bytes = expected};
  bool wrong = sequence_sent_wrong_size(&s, 1, &report, sent);
  sequence_free(&s);
  return wrong;
}

static void test_sequence_exchange_of_expected_size_is_right(void **state) {
  (void)state;
  uint64_t sent;
  assert_false(sent_wrong_size(24, &sent));
}

static void test_sequence_exchange_of_other_size_is_wrong(void **state) {
  (void)state;
  uint64_t sent;
  assert_true(sent_wrong_size(32, &sent));
  assert_int_equal(sent, 24);
}

static void test_sequence_report_has_expected_bytes_of_each_rank(void **state) {
  (void)state;
  static const size_t send_n[RANKS] = {0, 24, 8}, recv_n[RANKS] = {0, 16, 48};
  SequenceReport report;
  Sequence s = begin_sequence(OP_EXCHANGE, "pieces", 0, 0);
  sequence_set_sizes(&s, send_n, recv_n);
  sequence_report(&s, 2, &report);
  assert_int_equal(report.running, 1);
  assert_int_equal(report.expect_seq, 1);
  assert_int_equal(report.expect_bytes, 48);
  assert_string_equal(report.op[1].name, "pieces");
  sequence_end(&s);
  sequence_report(&s, 2, &report);
  assert_int_equal(report.running, 0);
  assert_int_equal(report.expect_seq, 0);
  sequence_free(&s);
}

static const char *accept_send(int to, int tag, const void *bytes, size_t n,
                               TransportRequest *q) {
  (void)to, (void)tag, (void)bytes, (void)n, (void)q;
  return NULL;
}

static const char *accept_receive(int from, int tag, void *bytes, size_t n,
                                  TransportRequest *q) {
  (void)from, (void)tag, (void)q;
  memset(bytes, 0, n);
  return NULL;
}

static const char *complete(TransportRequest *q, bool *done) {
  (void)q;
  *done = true;
  return NULL;
}

/* Runs a collective as rank 1 of 3, whose messages are all complete at once and are zeros. Returns
 * how it was recorded. */
static Op record_call(const Call *call) {
  static const Transport instant = {
      .send = accept_send, .recv = accept_receive, .test = complete};
  const Group group = {.rank = 1, .size = RANKS, .transport = &instant};
  Sequence s;
  Watchdog watchdog = {0};
  Collectives c;
  OK(sequence_init(&s, RANKS, TAG_MAX));
  OK(collective_init(&c, &group, &s, &watchdog));
  collective_run(&c, call);
  assert_int_equal(s.seq, 1);
  assert_false(s.is_running);
  Op op = *sequence_current(&s);
  collective_free(&c);
  sequence_free(&s);
  return op;
}

static void test_allgather_of_another_division_differs(void **state) {
  (void)state;
  static const struct {
    size_t off[RANKS + 2]; /* the last one is behind the array */
    bool differs;
    uint64_t bytes;
  } cases[] = {{{0, 8, 16, 24, 99}, false, 24},    {{40, 48, 56, 64, 0}, false, 24},
               {{0, 4, 16, 24, 99}, true, 24},     {{0, 8, 20, 24, 99}, true, 24},
               {{0, 8, 16, 25, 99}, true, 25},     {{0, 0, 16, 24, 99}, true, 24},
               {{0, 16, 8 + 16, 24, 99}, true, 24}};
  Op first = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char all[128] = "";
    Op op = record_call(
        &(Call){.kind = OP_ALLGATHER, .name = "weights", .bytes = all, .off = cases[i].off});
    if (i == 0) first = op;
    assert_int_equal(op.bytes, cases[i].bytes);
    assert_int_equal(op.hash != first.hash, cases[i].differs);
  }
}

static void test_gradient_sum_of_another_layout_differs(void **state) {
  (void)state;
  static float g[RANKS * 64], sum[64];
  static const size_t off[] = {0, 64, 128, 192}, other[] = {0, 64, 100, 192};
  static const CommReduce cases[] = {
      {.off = off, .active = 3, .first = true, .last = true},
      {.off = other, .active = 3, .first = true, .last = true},
      {.off = off, .active = 2, .first = true, .last = true},
      {.off = off, .active = 3, .first = false, .last = true},
      {.off = off, .active = 3, .first = true, .last = false},
      {.off = off, .active = 3, .first = true, .last = true, .bf16 = true},
      {.off = off, .active = 3, .first = true, .last = true, .shard = true},
      {.off = off, .active = 3, .first = true, .last = false, .shard = true},
      {.off = off, .active = 3, .first = true, .last = false, .bf16 = true},
      {.off = off, .active = 3, .first = true, .last = true, .bf16 = true, .shard = true},
  };
  enum { CASES = sizeof cases / sizeof *cases };
  Op op[CASES];
  for (size_t i = 0; i < CASES; i++) {
    CommReduce r = cases[i];
    r.g = g;
    r.sum = sum;
    OK(mem_alloc(&r.work, 1 << 20, 1));
    op[i] = record_call(&(Call){.kind = OP_REDUCE, .name = "gradients", .reduce = &r});
    mem_free(r.work);
    assert_int_equal(op[i].bytes, r.bf16 ? 192 * 2 : 192 * 4);
    for (size_t k = 0; k < i; k++) assert_int_not_equal(op[i].hash, op[k].hash);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sequence_same_collective_does_not_differ),
      cmocka_unit_test(test_sequence_other_name_differs),
      cmocka_unit_test(test_sequence_other_kind_differs),
      cmocka_unit_test(test_sequence_other_size_differs),
      cmocka_unit_test(test_sequence_other_layout_differs),
      cmocka_unit_test(test_sequence_collective_not_begun_does_not_differ),
      cmocka_unit_test(test_sequence_forgets_after_history),
      cmocka_unit_test(test_sequence_tag_differs_between_names_and_stays_in_range),
      cmocka_unit_test(test_sequence_exchange_of_expected_size_is_right),
      cmocka_unit_test(test_sequence_exchange_of_other_size_is_wrong),
      cmocka_unit_test(test_sequence_report_has_expected_bytes_of_each_rank),
      cmocka_unit_test(test_allgather_of_another_division_differs),
      cmocka_unit_test(test_gradient_sum_of_another_layout_differs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
