/* The supervisor, with the test as the agents: machines that join and leave, and that cannot be
 * used. The test controls the clock. */
#include <pthread.h>

#include "supervisor_support.h"

static void leave(Fixture *f, int i) {
  OK(protocol_send(f->agent[i], MSG_LEAVE, json_pack("{s:s}", "reason", "SIGTERM")));
}

/* Runs iterations of the supervisor in which no agent reads or answers. */
static void advance_supervisor(Fixture *f) {
  for (int turn = 0; turn < 20; turn++) supervisor_advance(f->supervisor, f->now, f->signals);
}

static void test_leave_while_gathering_is_released_at_once(void **state) {
  (void)state;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .min = 2, .max = 2});
  connect_agent(f, 1, TRIREME_VERSION);
  expect_nothing(f, 1);
  leave(f, 1);
  expect_only(f, 1, MSG_END);
  close_fixture(f);
}

static void test_leave_while_the_network_is_tested_is_released_at_once(void **state) {
  (void)state;
  Fixture *f = open_fixture(two);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  advance_supervisor(f);
  leave(f, 1);
  expect_only(f, 1, MSG_END);
  f->now += 11; /* advances the clock by more than GATHER_LAST_CALL */
  begin(f, 1, 1);
  close_fixture(f);
}

static void test_leave_of_a_spare_machine_is_released_at_once(void **state) {
  (void)state;
  Fixture *f = open_two();
  connect_agent(f, 2, TRIREME_VERSION);
  expect_nothing(f, 2);
  leave(f, 2);
  expect_only(f, 2, MSG_END);
  expect_nothing(f, 0);
  close_fixture(f);
}

static void test_leave_late_in_a_stop_gets_its_own_time_to_save(void **state) {
  (void)state;
  LaunchSpec spec = two;
  spec.max = 3;
  Fixture *f = open_fixture(spec);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  expect_nothing(f, 0);
  f->now += 11;
  begin_two(f, 1);
  connect_agent(f, 2, TRIREME_VERSION);
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  f->now += 60;
  leave(f, 1);
  expect_nothing(f, 1);
  f->now += 19;
  expect_nothing(f, 1);
  f->now += 2;
  expect_only(f, 1, MSG_KILL);
  close_fixture(f);
}

static void test_hello_with_impossible_cores_is_refused(void **state) {
  (void)state;
  static const int64_t cores[] = {-1, 1 << 20, INT64_MIN};
  for (int k = 0; k < 3; k++) {
    Fixture *f = open_fixture((LaunchSpec){.nproc = NPROC_CPU, .min = 1, .max = 1});
    connect_agent_as(f, 0, (Hello){.cores = cores[k]});
    expect_only(f, 0, MSG_END);
    close_fixture(f);
  }
}

static void test_end_of_another_machines_rank_is_ignored(void **state) {
  (void)state;
  Fixture *f = open_two();
  send_for(f, 1, MSG_WORKER_ENDED, 1, 0, -1, 9);
  expect_nothing(f, 0);
  expect_nothing(f, 1);
  close_fixture(f);
}

static void test_end_of_mpirun_from_another_machine_is_ignored(void **state) {
  (void)state;
  Fixture *f = open_two();
  OK(protocol_send(
      f->agent[1], MSG_PROCESS_ENDED,
      json_pack("{s:i, s:i, s:i, s:i}", "generation", 1, "id", 1, "status", 1, "signal", 0)));
  expect_nothing(f, 0);
  f->now += 5; /* after MPIRUN_GRACE the end of mpirun would be a fault */
  expect_nothing(f, 0);
  close_fixture(f);
}

static void test_process_ids_out_of_range_are_ignored(void **state) {
  (void)state;
  static const int64_t ids[] = {INT64_MIN, -1, 0, 2, INT64_MAX};
  Fixture *f = open_two();
  for (int k = 0; k < 5; k++)
    OK(protocol_send(f->agent[1], MSG_PROCESS_ENDED,
                     json_pack("{s:i, s:I, s:i, s:i}", "generation", 1, "id",
                               (json_int_t)ids[k], "status", 1, "signal", 0)));
  expect_nothing(f, 0);
  close_fixture(f);
}

static void test_confirmation_that_was_not_asked_for_is_ignored(void **state) {
  (void)state;
  Fixture *f = open_two();
  send_for(f, 1, MSG_CLEAR, 1, 0, 0, 0);
  expect_nothing(f, 1);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, -1, 9);
  confirm_kill_on(f, 0, 1);
  expect_only(f, 1, MSG_KILL);
  expect_nothing(f, 0); /* processes may be left on host1 */
  send_for(f, 1, MSG_CLEAR, 1, 0, 0, 0);
  begin_two(f, 2);
  close_fixture(f);
}

/* Thread of an agent that reads until MSG_END and closes its channel. Returns a pointer other
 * than NULL if MSG_END arrived. */
static void *read_to_the_end(void *channel) {
  bool is_told = false;
  for (bool is_open = true; is_open && !is_told;) {
    is_open = channel_advance(channel) == ERR_OK;
    for (Frame frame; channel_next(channel, &frame);) is_told |= frame.type == MSG_END;
  }
  channel_close(channel);
  return is_told ? channel : NULL;
}

static void test_end_reaches_an_agent_that_reads_slowly(void **state) {
  (void)state;
  pthread_t reader;
  void *is_told;
  enum { LEN = 60000, COUNT = 100 }; /* messages of more bytes than a socket buffer holds */
  Fixture *f = open_two();
  char *text = malloc(LEN);
  assert_non_null(text);
  memset(text, 'x', LEN - 1);
  text[LEN - 1] = '\0';
  for (int k = 0; k < COUNT; k++) {
    OK(protocol_send(f->agent[0], MSG_RSH,
                     json_pack("{s:i, s:i, s:s, s:s}", "generation", 1, "id", k, "host",
                               "127.0.0.2", "command", text)));
    while (channel_unsent(f->agent[0])) {
      OK(channel_advance(f->agent[0]));
      advance_supervisor(f);
    }
  }
  free(text);
  lose_agent(f, 0);
  Channel *slow = f->agent[1];
  f->agent[1] = NULL;
  assert_int_equal(pthread_create(&reader, NULL, read_to_the_end, slow), 0);
  supervisor_end_agents(f->supervisor, 600);
  assert_int_equal(pthread_join(reader, &is_told), 0);
  assert_non_null(is_told);
  network_peer_close(&f->peer[1]);
  close_fixture(f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_leave_while_gathering_is_released_at_once),
      cmocka_unit_test(test_leave_while_the_network_is_tested_is_released_at_once),
      cmocka_unit_test(test_leave_of_a_spare_machine_is_released_at_once),
      cmocka_unit_test(test_leave_late_in_a_stop_gets_its_own_time_to_save),
      cmocka_unit_test(test_hello_with_impossible_cores_is_refused),
      cmocka_unit_test(test_end_of_another_machines_rank_is_ignored),
      cmocka_unit_test(test_end_of_mpirun_from_another_machine_is_ignored),
      cmocka_unit_test(test_process_ids_out_of_range_are_ignored),
      cmocka_unit_test(test_confirmation_that_was_not_asked_for_is_ignored),
      cmocka_unit_test(test_end_reaches_an_agent_that_reads_slowly),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
