/* The first exchange between the ranks, over a transport whose ranks may be silent. */
#include "comm/connect.h"

#include "support.h"

#define RANKS 12

static bool is_silent[RANKS];
static int tests_until_answer; /* calls of `test` before the other ranks answer */
static int peer[2 * RANKS];    /* of request i + 1 */
static int requests;

static const char *start_request(int rank, TransportRequest *request) {
  assert_true(requests < 2 * RANKS);
  peer[requests++] = rank;
  request->handle = &peer[requests - 1];
  return NULL;
}

static const char *send_nothing(int to, int tag, const void *bytes, size_t n,
                                TransportRequest *request) {
  (void)tag;
  (void)bytes;
  assert_int_equal(n, 0);
  return start_request(to, request);
}

static const char *receive_nothing(int from, int tag, void *bytes, size_t n,
                                   TransportRequest *request) {
  (void)tag;
  (void)bytes;
  assert_int_equal(n, 0);
  return start_request(from, request);
}

static const char *test_request(TransportRequest *request, bool *done) {
  if (tests_until_answer > 0) tests_until_answer--;
  *done = tests_until_answer == 0 && !is_silent[*(int *)request->handle];
  return NULL;
}

static const char *fail_test(TransportRequest *request, bool *done) {
  (void)request;
  *done = false;
  return "connection reset";
}

static const Transport transport = {
    .send = send_nothing, .recv = receive_nothing, .test = test_request};

static Group make_group(int rank) {
  requests = 0;
  tests_until_answer = 0;
  for (int r = 0; r < RANKS; r++) is_silent[r] = false;
  return (Group){.transport = &transport, .rank = rank, .size = RANKS};
}

static void test_connect_ranks_late_answers_connects(void **state) {
  (void)state;
  Group g = make_group(3);
  tests_until_answer = 100;
  OK(connect_ranks(&g, 1e9));
  assert_int_equal(requests, 2 * (RANKS - 1));
}

static void test_connect_ranks_silent_ranks_are_named_at_the_limit(void **state) {
  (void)state;
  Group g = make_group(0);
  is_silent[4] = true;
  is_silent[7] = true;
  assert_int_equal(connect_ranks(&g, 0), ERR_WORK);
  assert_says("MPI does not connect rank 0 on ");
  assert_says(" with rank 4, rank 7: no message within 0 s");
  assert_says("trireme doctor");
}

static void test_connect_ranks_all_silent_lists_some(void **state) {
  (void)state;
  Group g = make_group(0);
  for (int r = 0; r < RANKS; r++) is_silent[r] = true;
  assert_int_equal(connect_ranks(&g, 0), ERR_WORK);
  assert_says("rank 7, rank 8, and 3 more: no message");
}

static void test_connect_ranks_error_of_transport_names_rank(void **state) {
  (void)state;
  Transport broken = transport;
  broken.test = fail_test;
  Group g = make_group(0);
  g.transport = &broken;
  assert_int_equal(connect_ranks(&g, 1e9), ERR_WORK);
  assert_says("MPI cannot exchange messages with rank 1: connection reset");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_connect_ranks_late_answers_connects),
      cmocka_unit_test(test_connect_ranks_silent_ranks_are_named_at_the_limit),
      cmocka_unit_test(test_connect_ranks_all_silent_lists_some),
      cmocka_unit_test(test_connect_ranks_error_of_transport_names_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
