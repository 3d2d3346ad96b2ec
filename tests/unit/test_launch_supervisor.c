/* The supervisor with the test as the agents: its messages to them, and its reaction to theirs.
 * The test controls the clock. */
#include "base/mem.h"
#include "supervisor_support.h"

static void test_supervisor_one_rank_starts_without_mpirun(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  json_t *body = expect(f, 0, MSG_BEGIN);
  assert_true(json_is_true(json_object_get(body, "alone")));
  assert_int_equal(protocol_int(body, "world_size", 0), 1);
  assert_string_equal(json_string_value(json_array_get(json_object_get(body, "argv"), 0)),
                      "train");
  json_decref(body);
  expect_nothing(f, 0);
  send_for(f, 0, MSG_WORKER_BEGAN, 1, 0, 0, 0);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, 0, 0);
  confirm_kill(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_OK);
  close_fixture(f);
}

static void test_supervisor_two_ranks_start_mpirun(void **state) {
  (void)state;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 2, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  expect_only(f, 0, MSG_BEGIN);
  json_t *body = expect(f, 0, MSG_START);
  const json_t *argv = json_object_get(body, "argv");
  assert_string_equal(json_string_value(json_array_get(argv, 0)), "mpirun");
  json_decref(body);
  close_fixture(f);
}

static void test_supervisor_killed_rank_restarts_all(void **state) {
  (void)state;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 2, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 2);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 1, -1, 9);
  confirm_kill(f, 1);
  json_t *body = expect(f, 0, MSG_BEGIN);
  assert_int_equal(protocol_int(body, "generation", 0), 2);
  assert_int_equal(protocol_int(body, "restart_count", 0), 1);
  assert_string_equal(protocol_text(body, "reason"), "rank 1 on host0: killed by SIGKILL");
  json_decref(body);
  close_fixture(f);
}

static void test_supervisor_ignores_messages_of_an_earlier_generation(void **state) {
  (void)state;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, -1, 9);
  confirm_kill(f, 1);
  begin(f, 2, 1);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, 0, 0);
  send_for(f, 0, MSG_WORKER_ENDED, 3, 0, 1, 0);
  expect_nothing(f, 0);
  close_fixture(f);
}

static void test_supervisor_gives_up_after_max_restarts(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 2});
  connect_agent(f, 0, TRIREME_VERSION);
  for (int g = 1; g <= 3; g++) {
    begin(f, g, 1);
    send_for(f, 0, MSG_WORKER_ENDED, g, 0, -1, 9);
    confirm_kill(f, g);
  }
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_false(is_reported);
  assert_says("rank 0 on host0: killed by SIGKILL; failed 3 times without progress");
  close_fixture(f);
}

static void test_supervisor_progress_allows_more_restarts(void **state) {
  (void)state;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 1});
  connect_agent(f, 0, TRIREME_VERSION);
  for (int g = 1; g <= 6; g++) {
    begin(f, g, 1);
    send_event_step(f, g, 20 * g);
    send_for(f, 0, MSG_WORKER_ENDED, g, 0, -1, 9);
    confirm_kill(f, g);
  }
  begin(f, 7, 1);
  close_fixture(f);
}

static void test_supervisor_status_2_passes_through(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, 2, 0);
  confirm_kill(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_USAGE);
  assert_true(is_reported);
  close_fixture(f);
}

static void test_supervisor_signal_stops_in_order(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  expect_nothing(f, 0);
  f->signals = 1;
  expect_only(f, 0, MSG_STOP);
  f->now += 3600; /* saving may take long, so there is no limit */
  expect_nothing(f, 0);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, 3, 0);
  confirm_kill(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_STOPPED);
  close_fixture(f);
}

/* status 3 means that the run is saved, which it is not */
static void test_supervisor_signal_and_failed_save_gives_status_1(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  expect_nothing(f, 0);
  f->signals = 1;
  expect_only(f, 0, MSG_STOP);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, 1, 0);
  confirm_kill(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_true(is_reported);
  close_fixture(f);
}

static void test_supervisor_signal_and_killed_rank_gives_status_1(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  expect_nothing(f, 0);
  f->signals = 1;
  expect_only(f, 0, MSG_STOP);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, -1, 9);
  confirm_kill(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_false(is_reported);
  assert_non_null(strstr(err_message(), "killed by SIGKILL, while the ranks were stopping"));
  close_fixture(f);
}

static void test_supervisor_signal_ends_a_command_that_saves_nothing_with_status_3(
    void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  expect_nothing(f, 0);
  f->signals = 1;
  expect_only(f, 0, MSG_STOP);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, -1, 15);
  confirm_kill(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_STOPPED);
  close_fixture(f);
}

static void test_supervisor_second_signal_kills(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  expect_nothing(f, 0);
  f->signals = 1;
  expect_only(f, 0, MSG_STOP);
  f->signals = 2;
  confirm_kill(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_STOPPED);
  close_fixture(f);
}

static void test_supervisor_signal_after_a_fault_does_not_restart(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, -1, 9);
  expect_only(f, 0, MSG_KILL);
  f->signals = 1;
  expect_nothing(f, 0);
  send_for(f, 0, MSG_CLEAR, 1, 0, 0, 0);
  assert_int_equal(finish(f, &is_reported), ERR_STOPPED);
  close_fixture(f);
}

static void test_supervisor_lost_agent_restarts_on_the_next(void **state) {
  (void)state;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  expect_nothing(f, 0);
  channel_close(f->agent[0]);
  f->agent[0] = NULL;
  for (int turn = 0; turn < 20; turn++) advance_all(f);
  assert_int_equal(f->from.losses, 1);
  assert_int_equal(f->from.last_loss, LOSS_FAILURE);
  connect_agent(f, 0, TRIREME_VERSION);
  json_t *body = expect(f, 0, MSG_BEGIN);
  assert_int_equal(protocol_int(body, "restart_count", 0), 1);
  assert_non_null(strstr(protocol_text(body, "reason"), "host0 is lost: "));
  json_decref(body);
  close_fixture(f);
}

static void test_supervisor_too_few_machines_end_after_the_timeout(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .min = 2, .max = 3, .join_timeout = 60});
  connect_agent(f, 0, TRIREME_VERSION);
  expect_nothing(f, 0);
  f->now += 59;
  expect_nothing(f, 0);
  f->now += 2;
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_says("1 of the 2 machines that are needed arrived within 60 s (--join-timeout)");
  close_fixture(f);
}

/* Asserts the status and the text of the MSG_END that agent 0 gets at the end of the launch. */
static void assert_end(Fixture *f, int status, const char *words) {
  supervisor_end_agents(f->supervisor, 0);
  OK(channel_advance(f->agent[0]));
  json_t *end = NULL;
  for (Frame frame; channel_next(f->agent[0], &frame);)
    if (frame.type == MSG_END) OK(protocol_parse(&frame, "head", &end));
  assert_int_equal(protocol_int(end, "status", -1), status);
  assert_non_null(strstr(protocol_text(end, "text"), words));
  json_decref(end);
}

static void test_supervisor_agents_are_told_that_and_why_the_launch_failed(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .min = 2, .max = 3, .join_timeout = 60});
  connect_agent(f, 0, TRIREME_VERSION);
  expect_nothing(f, 0);
  f->now += 61;
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_end(f, ERR_WORK, "1 of the 2 machines that are needed arrived");
  close_fixture(f);
}

static void test_supervisor_agents_are_told_that_the_launch_succeeded(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, 0, 0);
  confirm_kill(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_OK);
  assert_end(f, ERR_OK, "");
  close_fixture(f);
}

static void test_supervisor_other_version_is_not_used(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .join_timeout = 60});
  connect_agent(f, 0, "0.0.1");
  expect_only(f, 0, MSG_END);
  f->now += 61;
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  close_fixture(f);
}

static void test_supervisor_agent_that_does_not_confirm_is_left_out(void **state) {
  (void)state;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, -1, 9);
  expect_only(f, 0, MSG_KILL);
  f->now += 16;
  for (int turn = 0; turn < 20; turn++) advance_all(f);
  assert_int_equal(f->from.losses, 1);
  close_fixture(f);
}

static void test_supervisor_garbage_loses_the_machine(void **state) {
  (void)state;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  expect_nothing(f, 0);
  OK(channel_send(f->agent[0], MSG_WORKER_ENDED, "[1, 2", 5));
  for (int turn = 0; turn < 20; turn++) advance_all(f);
  assert_int_equal(f->from.losses, 1);
  close_fixture(f);
}

static void test_supervisor_failed_start_is_not_repeated(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 2, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  expect_only(f, 0, MSG_BEGIN);
  expect_only(f, 0, MSG_START);
  OK(protocol_send(f->agent[0], MSG_FAILED,
                   json_pack("{s:i, s:s}", "generation", 1, "text", "cannot start mpirun")));
  confirm_kill(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_says("host0: cannot start mpirun; not restarted");
  close_fixture(f);
}

static void test_supervisor_machine_without_memory_is_disconnected(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  mem_fail_after(1);
  bool is_over = supervisor_advance(f->supervisor, f->now, 0);
  mem_fail_after(0);
  assert_true(is_over);
  assert_int_equal(supervisor_result(f->supervisor, &is_reported), ERR_WORK);
  assert_int_equal(channel_advance(f->agent[0]), ERR_WORK); /* the channel is closed */
  close_fixture(f);
}

/* Tests with several machines. */

static void test_supervisor_starts_mpirun_on_the_head_for_all_machines(void **state) {
  (void)state;
  Fixture *f = open_fixture(two);
  connect_agent(f, 1, TRIREME_VERSION);
  connect_agent(f, 0, TRIREME_VERSION);
  expect_only(f, 0, MSG_BEGIN);
  json_t *body = expect(f, 0, MSG_START);
  char *argv = json_dumps(json_object_get(body, "argv"), JSON_COMPACT);
  assert_non_null(strstr(argv, "\"-n\",\"2\",\"--host\",\"127.0.0.1:1,127.0.0.2:1\""));
  assert_non_null(strstr(argv, "\"btl_tcp_if_include\",\"127.0.0.0/8\""));
  assert_non_null(strstr(argv, "\"oob_tcp_if_include\",\"127.0.0.0/8\""));
  free(argv);
  json_decref(body);
  close_fixture(f);
}

static void test_supervisor_passes_daemons_to_their_machine(void **state) {
  (void)state;
  Fixture *f = open_two();
  OK(protocol_send(f->agent[0], MSG_RSH,
                   json_pack("{s:i, s:i, s:s, s:s}", "generation", 1, "id", 7, "host",
                             "127.0.0.2", "command", "orted -x")));
  json_t *body = expect(f, 1, MSG_START);
  const json_t *argv = json_object_get(body, "argv");
  assert_string_equal(json_string_value(json_array_get(argv, 2)), "orted -x");
  int id = (int)protocol_int(body, "id", 0);
  json_decref(body);
  OK(protocol_send(
      f->agent[1], MSG_PROCESS_ENDED,
      json_pack("{s:i, s:i, s:i, s:i}", "generation", 1, "id", id, "status", 0, "signal", 0)));
  body = expect(f, 0, MSG_RSH_ENDED);
  assert_int_equal(protocol_int(body, "id", 0), 7);
  assert_int_equal(protocol_int(body, "status", 1), 0);
  json_decref(body);
  close_fixture(f);
}

static void test_supervisor_daemon_for_a_stranger_is_refused(void **state) {
  (void)state;
  Fixture *f = open_two();
  OK(protocol_send(f->agent[0], MSG_RSH,
                   json_pack("{s:i, s:i, s:s, s:s}", "generation", 1, "id", 7, "host",
                             "127.0.0.9", "command", "orted -x")));
  json_t *body = expect(f, 0, MSG_RSH_ENDED);
  assert_int_equal(protocol_int(body, "status", 0), 1);
  json_decref(body);
  expect_nothing(f, 1);
  close_fixture(f);
}

static void test_supervisor_lost_machine_continues_on_the_others(void **state) {
  (void)state;
  Fixture *f = open_two();
  expect_nothing(f, 0);
  lose_agent(f, 1);
  confirm_kill_on(f, 0, 1);
  json_t *body = expect(f, 0, MSG_BEGIN);
  assert_int_equal(protocol_int(body, "world_size", 0), 1);
  assert_non_null(strstr(protocol_text(body, "reason"), "host1 is lost"));
  json_decref(body);
  close_fixture(f);
}

static void test_supervisor_joining_machine_stops_in_order_and_takes_part(void **state) {
  (void)state;
  Fixture *f = open_fixture(two);
  connect_agent(f, 0, TRIREME_VERSION);
  expect_nothing(f, 0);
  f->now += 11; /* advances the clock by more than GATHER_LAST_CALL */
  begin(f, 1, 1);
  expect_nothing(f, 0);
  connect_agent(f, 1, TRIREME_VERSION);
  expect_only(f, 0, MSG_STOP);
  send_for(f, 0, MSG_WORKER_ENDED, 1, 0, 3, 0);
  confirm_kill_on(f, 0, 1);
  begin_two(f, 2);
  close_fixture(f);
}

/* A new run gets one micro-batch for each rank that may join. */
static void test_supervisor_reports_the_ranks_that_may_join(void **state) {
  (void)state;
  LaunchSpec spec = two;
  spec.nproc = 3;
  spec.max = 4;
  Fixture *f = open_fixture(spec);
  connect_agent(f, 0, TRIREME_VERSION);
  expect_nothing(f, 0);
  f->now += 11; /* longer than GATHER_LAST_CALL */
  json_t *body = expect(f, 0, MSG_BEGIN);
  assert_int_equal(protocol_int(body, "world_size", 0), 3);
  assert_int_equal(protocol_int(body, "max_ranks", 0), 12);
  json_decref(body);
  close_fixture(f);
}

static void test_machine_has_at_most_max_slots_ranks(void **state) {
  (void)state;
  Machine m = {.cores = 8, .max_slots = 3};
  int ranks;
  OK(machine_count_ranks(&m, NPROC_CPU, &ranks));
  assert_int_equal(ranks, 3);
}

static void test_supervisor_machine_beyond_max_waits(void **state) {
  (void)state;
  Fixture *f = open_two();
  connect_agent(f, 2, TRIREME_VERSION);
  expect_nothing(f, 0);
  expect_nothing(f, 2);
  lose_agent(f, 1);
  confirm_kill_on(f, 0, 1);
  json_t *body = expect(f, 2, MSG_BEGIN);
  assert_int_equal(protocol_int(body, "first_rank", 0), 1);
  json_decref(body);
  close_fixture(f);
}

static void test_supervisor_leaving_machine_is_released_after_the_save(void **state) {
  (void)state;
  Fixture *f = open_two();
  OK(protocol_send(f->agent[1], MSG_LEAVE, json_pack("{s:s}", "reason", "SIGTERM")));
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  for (int i = 0; i < 2; i++) send_for(f, i, MSG_WORKER_ENDED, 1, i, 3, 0);
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, 1);
  expect_only(f, 1, MSG_END);
  json_t *body = expect(f, 0, MSG_BEGIN);
  assert_int_equal(protocol_int(body, "world_size", 0), 1);
  assert_string_equal(protocol_text(body, "reason"), "host1 leaves (SIGTERM)");
  json_decref(body);
  lose_agent(f, 1);
  expect_nothing(f, 0);
  assert_int_equal(f->from.losses, 1);
  /* The source is told that the machine left, and does not try it again. */
  assert_int_equal(f->from.last_loss, LOSS_LEFT);
  close_fixture(f);
}

static void test_supervisor_machine_that_fails_twice_is_set_aside(void **state) {
  (void)state;
  Fixture *f = open_two();
  for (int g = 1; g <= 2; g++) {
    if (g > 1) begin_two(f, g);
    send_for(f, 1, MSG_WORKER_ENDED, g, 1, -1, 11);
    for (int i = 0; i < 2; i++) confirm_kill_on(f, i, g);
  }
  begin(f, 3, 1);
  expect_nothing(f, 1);
  expect_aside(f, 1, "it failed twice in a row");
  close_fixture(f);
}

static void test_supervisor_head_is_never_set_aside(void **state) {
  (void)state;
  Fixture *f = open_two();
  for (int g = 1; g <= 3; g++) {
    if (g > 1) begin_two(f, g);
    send_for(f, 0, MSG_WORKER_ENDED, g, 0, -1, 11);
    for (int i = 0; i < 2; i++) confirm_kill_on(f, i, g);
  }
  begin_two(f, 4);
  close_fixture(f);
}

static void test_supervisor_too_few_machines_left_wait_for_another(void **state) {
  (void)state;
  LaunchSpec spec = two;
  spec.min = 2;
  Fixture *f = open_fixture(spec);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  begin_two(f, 1);
  expect_nothing(f, 0);
  lose_agent(f, 1);
  confirm_kill_on(f, 0, 1);
  expect_nothing(f, 0);
  f->now += 30;
  connect_agent(f, 1, TRIREME_VERSION);
  begin_two(f, 2);
  close_fixture(f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_supervisor_one_rank_starts_without_mpirun),
      cmocka_unit_test(test_supervisor_two_ranks_start_mpirun),
      cmocka_unit_test(test_supervisor_killed_rank_restarts_all),
      cmocka_unit_test(test_supervisor_ignores_messages_of_an_earlier_generation),
      cmocka_unit_test(test_supervisor_gives_up_after_max_restarts),
      cmocka_unit_test(test_supervisor_progress_allows_more_restarts),
      cmocka_unit_test(test_supervisor_status_2_passes_through),
      cmocka_unit_test(test_supervisor_signal_stops_in_order),
      cmocka_unit_test(test_supervisor_signal_and_failed_save_gives_status_1),
      cmocka_unit_test(test_supervisor_signal_and_killed_rank_gives_status_1),
      cmocka_unit_test(test_supervisor_signal_ends_a_command_that_saves_nothing_with_status_3),
      cmocka_unit_test(test_supervisor_second_signal_kills),
      cmocka_unit_test(test_supervisor_signal_after_a_fault_does_not_restart),
      cmocka_unit_test(test_supervisor_lost_agent_restarts_on_the_next),
      cmocka_unit_test(test_supervisor_too_few_machines_end_after_the_timeout),
      cmocka_unit_test(test_supervisor_other_version_is_not_used),
      cmocka_unit_test(test_supervisor_agents_are_told_that_and_why_the_launch_failed),
      cmocka_unit_test(test_supervisor_agents_are_told_that_the_launch_succeeded),
      cmocka_unit_test(test_supervisor_agent_that_does_not_confirm_is_left_out),
      cmocka_unit_test(test_supervisor_garbage_loses_the_machine),
      cmocka_unit_test(test_supervisor_failed_start_is_not_repeated),
      cmocka_unit_test(test_supervisor_machine_without_memory_is_disconnected),
      cmocka_unit_test(test_supervisor_starts_mpirun_on_the_head_for_all_machines),
      cmocka_unit_test(test_supervisor_passes_daemons_to_their_machine),
      cmocka_unit_test(test_supervisor_daemon_for_a_stranger_is_refused),
      cmocka_unit_test(test_supervisor_lost_machine_continues_on_the_others),
      cmocka_unit_test(test_supervisor_joining_machine_stops_in_order_and_takes_part),
      cmocka_unit_test(test_supervisor_reports_the_ranks_that_may_join),
      cmocka_unit_test(test_machine_has_at_most_max_slots_ranks),
      cmocka_unit_test(test_supervisor_machine_beyond_max_waits),
      cmocka_unit_test(test_supervisor_leaving_machine_is_released_after_the_save),
      cmocka_unit_test(test_supervisor_machine_that_fails_twice_is_set_aside),
      cmocka_unit_test(test_supervisor_head_is_never_set_aside),
      cmocka_unit_test(test_supervisor_too_few_machines_left_wait_for_another),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
