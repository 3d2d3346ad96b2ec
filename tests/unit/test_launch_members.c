/* The supervisor, with the test as the agents: machines that join, and that cannot be used. The
 * test controls the clock. */
#include <pthread.h>

#include "supervisor_support.h"

/* Asserts that both machines are asked to stop because one joins, and lets them stop. */
static void stop_two(Fixture *f, int number) {
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  for (int i = 0; i < 2; i++) send_for(f, i, MSG_WORKER_ENDED, number, i, 3, 0);
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, number);
}

static void test_newcomer_with_the_addresses_of_a_member_is_set_aside(void **state) {
  (void)state;
  Fixture *f = open_two_of(three, (Hello){0});
  connect_agent_as(f, 2, (Hello){.address = "127.0.0.1"});
  stop_two(f, 1);
  begin_two(f, 2);
  expect_nothing(f, 2);
  expect_aside(f, 2, "host2 has the addresses of host0");
  assert_logged(
      "host2 is set aside: host2 has the addresses of host0; does the command run "
      "twice on one machine?");
  close_fixture(f);
}

static void test_newcomer_without_a_common_network_is_set_aside(void **state) {
  (void)state;
  Fixture *f = open_two_of(three, (Hello){0});
  connect_agent_as(f, 2, (Hello){.address = "10.9.8.7"});
  stop_two(f, 1);
  begin_two(f, 2);
  expect_nothing(f, 2);
  assert_logged(
      "host2 is set aside: the machines have no network in common: host0 has "
      "127.0.0.1/8 (lo); host2 has 10.9.8.7/8 (lo)");
  close_fixture(f);
}

static void test_newcomer_that_cannot_be_reached_is_set_aside(void **state) {
  (void)state;
  Fixture *f = open_two_of(three, (Hello){0});
  f->is_mute[2] = true;
  connect_agent(f, 2, TRIREME_VERSION);
  stop_two(f, 1);
  expect_nothing(f, 0);
  f->now += 3600; /* the time limit of the network test has passed */
  begin_two(f, 2);
  expect_nothing(f, 2);
  assert_logged(
      "host2 is set aside: no network connects all machines: 127.0.0.0/8: host0 at "
      "127.0.0.1 cannot connect to host2 at 127.0.0.3 (its agent does not answer)");
  close_fixture(f);
}

static void test_newcomer_without_gpu_is_set_aside_with_nproc_gpu(void **state) {
  (void)state;
  LaunchSpec spec = three;
  spec.nproc = NPROC_GPU;
  Fixture *f = open_two_of(spec, (Hello){.gpus = 1});
  connect_agent_as(f, 2, (Hello){.gpus = 0});
  stop_two(f, 1);
  begin_two(f, 2);
  assert_logged("host2 is set aside: --nproc-per-node gpu: host2 has no GPU");
  close_fixture(f);
}

static void test_newcomer_without_gpu_is_set_aside_with_nproc_auto(void **state) {
  (void)state;
  LaunchSpec spec = three;
  spec.nproc = NPROC_AUTO;
  Fixture *f = open_two_of(spec, (Hello){.gpus = 1});
  connect_agent_as(f, 2, (Hello){.gpus = 0});
  stop_two(f, 1);
  begin_two(f, 2);
  assert_logged("host2 is set aside: host2 has no GPU that CUDA may use, but host0 has");
  close_fixture(f);
}

static void test_newcomer_with_gpu_does_not_displace_machines_without(void **state) {
  (void)state;
  LaunchSpec spec = three;
  spec.nproc = NPROC_AUTO;
  Fixture *f = open_two_of(spec, (Hello){.gpus = 0});
  connect_agent_as(f, 2, (Hello){.gpus = 1});
  stop_two(f, 1);
  for (int i = 0; i < 3; i++) begin_number(f, i, 2, 3);
  close_fixture(f);
}

static void test_refused_machine_is_tried_three_times_at_most(void **state) {
  (void)state;
  Fixture *f = open_two_of(three, (Hello){0});
  for (int g = 1; g <= 3; g++) {
    connect_agent_as(f, 2, (Hello){.address = "10.9.8.7"});
    stop_two(f, g);
    begin_two(f, g + 1);
    lose_agent(f, 2);
    expect_nothing(f, 0);
  }
  connect_agent_as(f, 2, (Hello){.address = "10.9.8.7"});
  expect_nothing(f, 0);
  close_fixture(f);
}

/* Lets the ranks of machines 0 to `count` - 1 end with status 2, as those of a wrong call do. */
static void refuse_call(Fixture *f, int number, int count) {
  for (int i = 0; i < count; i++) send_for(f, i, MSG_WORKER_ENDED, number, i, 2, 0);
  for (int i = 0; i < count; i++) confirm_kill_on(f, i, number);
}

static void test_newcomer_with_which_ranks_end_with_status_2_is_set_aside(void **state) {
  (void)state;
  Fixture *f = open_two_of(three, (Hello){0});
  send_event_step(f, 1, 5);
  expect_nothing(f, 0);
  connect_agent(f, 2, TRIREME_VERSION);
  stop_two(f, 1);
  for (int i = 0; i < 3; i++) begin_number(f, i, 2, 3);
  expect_only(f, 0, MSG_START);
  refuse_call(f, 2, 3);
  begin_two(f, 3);
  expect_nothing(f, 2);
  assert_logged("host2 is set aside: the ranks ended with status 2 when it joined");
  close_fixture(f);
}

/* A machine that took part before is new if the run has advanced without it meanwhile. */
static void test_returned_machine_with_which_ranks_end_with_status_2_is_set_aside(
    void **state) {
  (void)state;
  Fixture *f = open_two();
  send_event_step(f, 1, 5);
  expect_nothing(f, 0);
  lose_agent(f, 1);
  confirm_kill_on(f, 0, 1);
  begin(f, 2, 1);
  send_event_step(f, 2, 9);
  expect_nothing(f, 0);
  connect_agent(f, 1, TRIREME_VERSION);
  expect_only(f, 0, MSG_STOP);
  send_for(f, 0, MSG_WORKER_ENDED, 2, 0, 3, 0);
  confirm_kill_on(f, 0, 2);
  begin_two(f, 3);
  refuse_call(f, 3, 2);
  begin(f, 4, 1);
  close_fixture(f);
}

static void test_status_2_without_a_newcomer_ends_the_launch(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_two();
  send_event_step(f, 1, 5);
  expect_nothing(f, 0);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, -1, 9);
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, 1);
  begin_two(f, 2);
  refuse_call(f, 2, 2);
  assert_int_equal(finish(f, &is_reported), ERR_USAGE);
  assert_true(is_reported);
  close_fixture(f);
}

static void test_status_2_of_the_first_generation_ends_the_launch(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_two();
  refuse_call(f, 1, 2);
  assert_int_equal(finish(f, &is_reported), ERR_USAGE);
  close_fixture(f);
}

static void test_first_start_goes_on_without_a_machine_that_cannot_be_used(void **state) {
  (void)state;
  Fixture *f = open_fixture(three);
  connect_agent_as(f, 2, (Hello){.address = "10.9.8.7"});
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  begin_two(f, 1);
  expect_nothing(f, 2);
  close_fixture(f);
}

static void test_first_start_goes_on_without_a_machine_that_cannot_be_reached(void **state) {
  (void)state;
  Fixture *f = open_fixture(three);
  f->is_mute[1] = true;
  for (int i = 0; i < 3; i++) connect_agent(f, i, TRIREME_VERSION);
  expect_nothing(f, 0);
  f->now += 3600;
  begin_number(f, 0, 1, 2);
  begin_number(f, 2, 1, 2);
  expect_nothing(f, 1);
  close_fixture(f);
}

static void test_first_start_keeps_the_machines_that_are_connected_with_most(void **state) {
  (void)state;
  LaunchSpec spec = three;
  spec.min = 2;
  Fixture *f = open_fixture(spec);
  f->has_no_head = true;
  connect_agent(f, 1, TRIREME_VERSION);
  connect_agent(f, 2, TRIREME_VERSION);
  connect_agent_as(f, 0, (Hello){.address = "10.9.8.7"}); /* this agent arrives first */
  begin_number(f, 2, 1, 2);
  begin_number(f, 1, 1, 2);
  expect_nothing(f, 0);
  close_fixture(f);
}

static void test_first_start_with_too_few_usable_machines_is_an_error(void **state) {
  (void)state;
  bool is_reported;
  LaunchSpec spec = three;
  spec.min = 3;
  Fixture *f = open_fixture(spec);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  connect_agent_as(f, 2, (Hello){.address = "10.9.8.7"});
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_says("the machines have no network in common");
  close_fixture(f);
}

static void test_too_few_usable_machines_later_wait_for_another(void **state) {
  (void)state;
  bool is_reported;
  LaunchSpec spec = three;
  spec.min = 2;
  Fixture *f = open_two_of(spec, (Hello){0});
  expect_nothing(f, 0);
  lose_agent(f, 1);
  confirm_kill_on(f, 0, 1);
  connect_agent_as(f, 2, (Hello){.address = "10.9.8.7"});
  expect_nothing(f, 0);
  expect_nothing(f, 2);
  f->now += 61;
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_says("1 of the 2 machines that are needed arrived within 60 s");
  assert_says("host2 is set aside: the machines have no network in common");
  close_fixture(f);
}

static void test_members_that_are_separated_are_tried_again_for_a_minute(void **state) {
  (void)state;
  LaunchSpec spec = two;
  spec.join_timeout = 100000;
  Fixture *f = open_fixture(spec);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  begin_two(f, 1);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, -1, 9);
  expect_nothing(f, 2);
  f->is_mute[1] = true;
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, 1);
  expect_nothing(f, 0);
  f->now += 1000; /* the first network test has failed */
  expect_nothing(f, 0);
  f->now += 2; /* another has begun */
  expect_nothing(f, 0);
  f->now += 1000;
  begin(f, 2, 1);
  assert_logged("trying again");
  assert_logged("host1 is set aside: no network connects all machines");
  close_fixture(f);
}

/* Starts a generation on two machines that fails, after which the network test with the second
 * fails too. */
static Fixture *open_separated(void) {
  LaunchSpec spec = two;
  spec.join_timeout = 100000;
  Fixture *f = open_fixture(spec);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  begin_two(f, 1);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, -1, 9);
  expect_nothing(f, 2);
  f->is_mute[1] = true;
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, 1);
  expect_nothing(f, 0);
  assert_non_null(f->peer[0]); /* the test has begun */
  f->now += 1000;
  expect_nothing(f, 0);
  return f;
}

static void test_network_test_that_failed_is_repeated_after_a_pause(void **state) {
  (void)state;
  Fixture *f = open_separated();
  assert_null(f->peer[0]);
  f->now += 0.9;
  expect_nothing(f, 0);
  assert_null(f->peer[0]);
  f->now += 0.2;
  expect_nothing(f, 0);
  assert_non_null(f->peer[0]);
  close_fixture(f);
}

static void test_separation_before_a_generation_does_not_count_after_it(void **state) {
  (void)state;
  Fixture *f = open_separated();
  lose_agent(f, 1);
  expect_nothing(f, 0);
  f->now += 2;
  begin(f, 2, 1);
  f->now += 100;
  connect_agent(f, 1, TRIREME_VERSION);
  expect_only(f, 0, MSG_STOP);
  send_for(f, 0, MSG_WORKER_ENDED, 2, 0, 3, 0);
  confirm_kill_on(f, 0, 2);
  expect_nothing(f, 0);
  f->now += 1000; /* the first test with host1 has failed; it is tried again for a minute */
  expect_nothing(f, 0);
  close_fixture(f);
}

static void test_broken_source_ends_the_launch_while_a_machine_is_lost(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture(two);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  advance_supervisor(f); /* the network test has begun */
  f->from.is_broken = true;
  lose_agent(f, 1);
  assert_true(advance_all(f));
  assert_int_equal(supervisor_result(f->supervisor, &is_reported), ERR_WORK);
  assert_says("the source is broken");
  close_fixture(f);
}

/* Answers the test of the network that has begun, to its end. */
static void end_network_test(Fixture *f) {
  bool has_begun = false, has_ended = false;
  for (double start = progress_clock(); !has_ended && progress_clock() - start < 60;) {
    advance_all(f);
    has_begun = has_begun || f->peer[0];
    has_ended = has_begun && !f->peer[0];
  }
  assert_true(has_ended);
}

static void test_machine_that_comes_during_the_network_test_takes_part(void **state) {
  (void)state;
  Fixture *f = open_fixture(three);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  advance_supervisor(f);
  f->now += 11;
  advance_supervisor(f); /* the network test has begun */
  connect_agent(f, 2, TRIREME_VERSION);
  advance_supervisor(f);
  for (int i = 0; i < 3; i++) begin_number(f, i, 1, 3);
  close_fixture(f);
}

static void test_machine_that_comes_during_the_second_test_joins_the_run(void **state) {
  (void)state;
  LaunchSpec spec = three;
  spec.max = 4;
  Fixture *f = open_fixture(spec);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  advance_supervisor(f);
  f->now += 11;
  advance_supervisor(f);
  connect_agent(f, 2, TRIREME_VERSION);
  advance_supervisor(f);
  end_network_test(f);
  f->now += 11;
  advance_supervisor(f); /* the second network test has begun */
  connect_agent(f, 3, TRIREME_VERSION);
  advance_supervisor(f);
  for (int i = 0; i < 3; i++) begin_number(f, i, 1, 3);
  expect_only(f, 0, MSG_START);
  for (int i = 0; i < 3; i++) expect_only(f, i, MSG_STOP);
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
      cmocka_unit_test(test_network_test_that_failed_is_repeated_after_a_pause),
      cmocka_unit_test(test_separation_before_a_generation_does_not_count_after_it),
      cmocka_unit_test(test_broken_source_ends_the_launch_while_a_machine_is_lost),
      cmocka_unit_test(test_newcomer_with_the_addresses_of_a_member_is_set_aside),
      cmocka_unit_test(test_newcomer_without_a_common_network_is_set_aside),
      cmocka_unit_test(test_newcomer_that_cannot_be_reached_is_set_aside),
      cmocka_unit_test(test_newcomer_without_gpu_is_set_aside_with_nproc_gpu),
      cmocka_unit_test(test_newcomer_without_gpu_is_set_aside_with_nproc_auto),
      cmocka_unit_test(test_newcomer_with_gpu_does_not_displace_machines_without),
      cmocka_unit_test(test_refused_machine_is_tried_three_times_at_most),
      cmocka_unit_test(test_newcomer_with_which_ranks_end_with_status_2_is_set_aside),
      cmocka_unit_test(test_returned_machine_with_which_ranks_end_with_status_2_is_set_aside),
      cmocka_unit_test(test_status_2_without_a_newcomer_ends_the_launch),
      cmocka_unit_test(test_status_2_of_the_first_generation_ends_the_launch),
      cmocka_unit_test(test_first_start_goes_on_without_a_machine_that_cannot_be_used),
      cmocka_unit_test(test_first_start_goes_on_without_a_machine_that_cannot_be_reached),
      cmocka_unit_test(test_first_start_keeps_the_machines_that_are_connected_with_most),
      cmocka_unit_test(test_first_start_with_too_few_usable_machines_is_an_error),
      cmocka_unit_test(test_too_few_usable_machines_later_wait_for_another),
      cmocka_unit_test(test_members_that_are_separated_are_tried_again_for_a_minute),
      cmocka_unit_test(test_machine_that_comes_during_the_network_test_takes_part),
      cmocka_unit_test(test_machine_that_comes_during_the_second_test_joins_the_run),
      cmocka_unit_test(test_hello_with_impossible_cores_is_refused),
      cmocka_unit_test(test_end_of_another_machines_rank_is_ignored),
      cmocka_unit_test(test_end_of_mpirun_from_another_machine_is_ignored),
      cmocka_unit_test(test_process_ids_out_of_range_are_ignored),
      cmocka_unit_test(test_confirmation_that_was_not_asked_for_is_ignored),
      cmocka_unit_test(test_end_reaches_an_agent_that_reads_slowly),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
