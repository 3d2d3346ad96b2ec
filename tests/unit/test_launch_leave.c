/* The supervisor, with the test as the agents: machines that leave, and ranks that do not save when
 * machines join or leave. The test controls the clock. */
#include "supervisor_support.h"

static void leave(Fixture *f, int i) {
  OK(protocol_send(f->agent[i], MSG_LEAVE, json_pack("{s:s}", "reason", "SIGTERM")));
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

static void test_leave_after_status_2_does_not_restart_the_ranks(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_two();
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, 2, 0);
  expect_nothing(f, 0);
  leave(f, 1);
  expect_nothing(f, 1);
  send_for(f, 1, MSG_WORKER_ENDED, 1, 1, 2, 0);
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, 1);
  assert_int_equal(finish(f, &is_reported), ERR_USAGE);
  close_fixture(f);
}

static void test_leave_after_a_fault_does_not_wait_for_a_save(void **state) {
  (void)state;
  Fixture *f = open_two();
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, 1, 0);
  expect_nothing(f, 0);
  leave(f, 1);
  expect_nothing(f, 1); /* other ranks get a second to report their errors */
  close_fixture(f);
}

/* Batch systems send SIGTERM to the agent and its workers, whose end may be reported first. */
static void test_leave_after_status_3_continues_on_the_others(void **state) {
  (void)state;
  Fixture *f = open_two();
  send_for(f, 1, MSG_WORKER_ENDED, 1, 1, 3, 0);
  expect_nothing(f, 1);
  leave(f, 1);
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, 3, 0);
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, 1);
  begin(f, 2, 1);
  close_fixture(f);
}

/* Two machines without the head's, of which at least `min` are needed; no other can come. */
static Fixture *open_two_only(int min) {
  LaunchSpec spec = two;
  spec.min = min;
  unlink(at("launch.log"));
  Fixture *f = open_fixture(spec);
  f->has_no_head = true;
  limit_source(f, 2);
  connect_agent(f, 1, TRIREME_VERSION);
  connect_agent(f, 0, TRIREME_VERSION); /* the source returns it first */
  begin_two(f, 1);
  return f;
}

/* Both ranks have stopped with this status. Returns the result of the launch. */
static Err end_stopped(Fixture *f, int status) {
  bool is_reported;
  for (int i = 0; i < 2; i++) send_for(f, i, MSG_WORKER_ENDED, 1, i, status, 0);
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, 1);
  return finish(f, &is_reported);
}

static void test_leave_of_a_machine_that_nobody_can_replace_ends_the_launch(void **state) {
  (void)state;
  Fixture *f = open_two_only(2);
  leave(f, 1);
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  f->now += 3600; /* saving may take long: the launch ends in any case */
  expect_nothing(f, 0);
  assert_int_equal(end_stopped(f, 3), ERR_STOPPED);
  assert_logged(
      "host1 leaves (SIGTERM), and no other machine can take its place: stopping, workers "
      "save");
  close_fixture(f);
}

/* A machine that is set aside is connected, but cannot take its place. */
static void test_leave_of_a_machine_is_not_replaced_by_one_that_is_set_aside(void **state) {
  (void)state;
  LaunchSpec spec = three;
  spec.min = 2;
  Fixture *f = open_two_of(spec, (Hello){0});
  limit_source(f, 3);
  connect_agent_as(f, 2, (Hello){.address = "127.0.0.1"});
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  for (int i = 0; i < 2; i++) send_for(f, i, MSG_WORKER_ENDED, 1, i, 3, 0);
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, 1);
  expect_aside(f, 2, "host2 has the addresses of host0");
  begin_two(f, 2);
  leave(f, 1);
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  assert_logged("host1 leaves (SIGTERM), and no other machine can take its place: stopping");
  close_fixture(f);
}

/* A batch system sends SIGTERM to all agents, but not to the head. */
static void test_leave_of_all_machines_ends_the_launch(void **state) {
  (void)state;
  Fixture *f = open_two_only(1);
  leave(f, 1);
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  leave(f, 0);
  expect_nothing(f, 0);
  f->now += 21; /* the limit for machines that leave a run that goes on */
  expect_nothing(f, 0);
  assert_int_equal(end_stopped(f, 3), ERR_STOPPED);
  assert_logged("host0 leaves (SIGTERM), and no other machine can take its place: stopping");
  close_fixture(f);
}

static void test_leave_of_all_machines_and_a_failed_save_gives_status_1(void **state) {
  (void)state;
  Fixture *f = open_two_only(2);
  leave(f, 1);
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  assert_int_equal(end_stopped(f, 1), ERR_WORK);
  close_fixture(f);
}

static void test_leave_while_gathering_ends_the_launch_if_nobody_can_come(void **state) {
  (void)state;
  bool is_reported;
  LaunchSpec spec = {.nproc = 1, .min = 2, .max = 2, .join_timeout = 1e9};
  Fixture *f = open_fixture(spec);
  f->has_no_head = true;
  limit_source(f, 2);
  connect_agent(f, 1, TRIREME_VERSION);
  expect_nothing(f, 1);
  leave(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_STOPPED);
  assert_true(is_reported);
  close_fixture(f);
}

/* As when a Slurm allocation has ended. */
static void test_loss_of_machines_that_cannot_come_back_ends_the_launch(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_two_only(1);
  expect_nothing(f, 0);
  limit_source(f, 0);
  lose_agent(f, 0);
  lose_agent(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_says("0 of 1 required machines are connected, and no other can join");
  close_fixture(f);
}

/* The machine left in an earlier generation: the ranks of this one have not saved. */
static void test_loss_of_machines_after_an_earlier_leave_is_an_error(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_two_only(1);
  leave(f, 1);
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  for (int i = 0; i < 2; i++) send_for(f, i, MSG_WORKER_ENDED, 1, i, 3, 0);
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, 1);
  begin(f, 2, 1);
  expect_nothing(f, 0);
  limit_source(f, 0);
  lose_agent(f, 0);
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_false(is_reported);
  close_fixture(f);
}

/* The ranks of the machine that is lost have not saved either. */
static void test_loss_of_machines_after_a_leave_is_an_error(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_two_only(1);
  leave(f, 1);
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  limit_source(f, 0);
  lose_agent(f, 0);
  confirm_kill_on(f, 1, 1);
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_false(is_reported);
  close_fixture(f);
}

/* An agent that fails sends its reason and the end mark, and waits until the head closes. */
static void test_agent_that_ends_is_lost_at_once(void **state) {
  (void)state;
  Fixture *f = open_two();
  OK(protocol_send(f->agent[1], MSG_WARNING, json_pack("{s:s}", "text", "no space left")));
  OK(channel_end(f->agent[1]));
  confirm_kill_on(f, 0, 1);
  assert_logged("warning: host1: no space left");
  assert_logged("host1 is lost: its agent has ended");
  assert_int_equal(f->from.losses, 1);
  close_fixture(f);
}

static void test_leave_before_the_signal_of_the_head_is_followed_by_its_answer(void **state) {
  (void)state;
  Fixture *f = open_two_only(1);
  leave(f, 1);
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  f->signals = 1;
  expect_nothing(f, 0);
  assert_int_equal(end_stopped(f, 3), ERR_STOPPED);
  assert_logged("stopping: workers save and end; a second signal ends them at once");
  close_fixture(f);
}

static void test_leave_together_with_the_signal_of_the_head_is_not_continued(void **state) {
  (void)state;
  char text[1 << 14];
  Fixture *f = open_two_only(1);
  expect_nothing(f, 0);
  leave(f, 1);
  f->signals = 1;
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  assert_int_equal(end_stopped(f, 3), ERR_STOPPED);
  close_fixture(f); /* writes launch.log */
  FILE *log = fopen(at("launch.log"), "r");
  assert_non_null(log);
  size_t n = fread(text, 1, sizeof text - 1, log);
  fclose(log);
  text[n] = '\0';
  assert_non_null(strstr(text, "stopping: workers save and end"));
  assert_null(strstr(text, "continuing on the machines"));
}

static void test_join_whose_save_takes_too_long_is_reported(void **state) {
  (void)state;
  Fixture *f = open_two_of(three, (Hello){0});
  connect_agent(f, 2, TRIREME_VERSION);
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  send_for(f, 1, MSG_WORKER_ENDED, 1, 1, 3, 0);
  expect_nothing(f, 0);
  f->now += 121;
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, 1);
  for (int i = 0; i < 3; i++) begin_number(f, i, 2, 3);
  assert_logged("1 of 2 ranks have not saved and ended within 121 s");
  close_fixture(f);
}

static void test_join_whose_save_fails_is_reported(void **state) {
  (void)state;
  Fixture *f = open_two_of(three, (Hello){0});
  OutputHeader header = {.generation = 1, .rank = 1, .stream = OUTPUT_STDERR};
  OK(output_send(f->agent[1], &header, "no space left\n", 14));
  connect_agent(f, 2, TRIREME_VERSION);
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  for (int i = 1; i >= 0; i--) {
    send_for(f, i, MSG_WORKER_ENDED, 1, i, 1, 0);
    expect_nothing(f, 2);
  }
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, 1);
  for (int i = 0; i < 3; i++) begin_number(f, i, 2, 3);
  assert_logged(
      "rank 1 on host1: exit status 1, while the ranks were stopping; continuing from the last "
      "checkpoint");
  assert_logged("| no space left");
  close_fixture(f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_leave_while_gathering_is_released_at_once),
      cmocka_unit_test(test_leave_while_the_network_is_tested_is_released_at_once),
      cmocka_unit_test(test_leave_of_a_spare_machine_is_released_at_once),
      cmocka_unit_test(test_leave_late_in_a_stop_gets_its_own_time_to_save),
      cmocka_unit_test(test_leave_after_status_2_does_not_restart_the_ranks),
      cmocka_unit_test(test_leave_after_a_fault_does_not_wait_for_a_save),
      cmocka_unit_test(test_leave_after_status_3_continues_on_the_others),
      cmocka_unit_test(test_leave_of_a_machine_that_nobody_can_replace_ends_the_launch),
      cmocka_unit_test(test_leave_of_a_machine_is_not_replaced_by_one_that_is_set_aside),
      cmocka_unit_test(test_leave_of_all_machines_ends_the_launch),
      cmocka_unit_test(test_leave_of_all_machines_and_a_failed_save_gives_status_1),
      cmocka_unit_test(test_leave_while_gathering_ends_the_launch_if_nobody_can_come),
      cmocka_unit_test(test_loss_of_machines_that_cannot_come_back_ends_the_launch),
      cmocka_unit_test(test_loss_of_machines_after_an_earlier_leave_is_an_error),
      cmocka_unit_test(test_loss_of_machines_after_a_leave_is_an_error),
      cmocka_unit_test(test_agent_that_ends_is_lost_at_once),
      cmocka_unit_test(test_leave_before_the_signal_of_the_head_is_followed_by_its_answer),
      cmocka_unit_test(test_leave_together_with_the_signal_of_the_head_is_not_continued),
      cmocka_unit_test(test_join_whose_save_takes_too_long_is_reported),
      cmocka_unit_test(test_join_whose_save_fails_is_reported),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
