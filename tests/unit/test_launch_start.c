/* The supervisor, with the test as the agents: machines that fail, are lost or hang before
 * their ranks begin. The test controls the clock. */
#include <fcntl.h>
#include <sys/stat.h>

#include "supervisor_support.h"

/* Asserts that both machines were asked to begin generation `number`; no rank begins. */
static void start_two(Fixture *f, int number) {
  for (int i = 0; i < 2; i++) {
    json_t *body = expect(f, i, MSG_BEGIN);
    assert_int_equal(protocol_int(body, "generation", 0), number);
    json_decref(body);
  }
  expect_only(f, 0, MSG_START);
}

static Fixture *open_start(LaunchSpec spec) {
  Fixture *f = open_fixture(spec);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  start_two(f, 1);
  return f;
}

static void send_failed(Fixture *f, int i, int number) {
  OK(protocol_send(
      f->agent[i], MSG_FAILED,
      json_pack("{s:i, s:s}", "generation", number, "text", "cannot enter /data/run")));
}

static void send_end(Fixture *f, int i, int number, int id, int status, int signal_number) {
  OK(protocol_send(f->agent[i], MSG_PROCESS_ENDED,
                   json_pack("{s:i, s:i, s:i, s:i}", "generation", number, "id", id, "status",
                             status, "signal", signal_number)));
}

static void confirm_both(Fixture *f, int number) {
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, number);
}

/* Asserts that the next generation runs on host0 only. */
static void expect_alone(Fixture *f, const char *reason) {
  json_t *body = expect(f, 0, MSG_BEGIN);
  assert_int_equal(protocol_int(body, "world_size", 0), 1);
  if (!strstr(protocol_text(body, "reason"), reason))
    fail_msg("the reason is \"%s\"", protocol_text(body, "reason"));
  json_decref(body);
}

static LaunchSpec with_restarts(int max_restarts) {
  LaunchSpec spec = two;
  spec.max_restarts = max_restarts;
  return spec;
}

static void test_start_machine_that_fails_twice_is_set_aside(void **state) {
  (void)state;
  Fixture *f = open_start(with_restarts(0));
  for (int g = 1; g <= 2; g++) {
    if (g > 1) start_two(f, g);
    send_failed(f, 1, g);
    confirm_both(f, g);
  }
  expect_alone(f, "host1: cannot enter /data/run");
  expect_nothing(f, 1);
  close_fixture(f);
}

static void test_start_machine_that_fails_and_is_needed_ends_the_launch(void **state) {
  (void)state;
  bool is_reported;
  LaunchSpec spec = two;
  spec.min = 2;
  Fixture *f = open_start(spec);
  send_failed(f, 1, 1);
  confirm_both(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_says("host1: cannot enter /data/run; not restarted");
  close_fixture(f);
}

static void test_start_failures_of_a_machine_set_aside_do_not_count(void **state) {
  (void)state;
  Fixture *f = open_start(with_restarts(1));
  for (int g = 1; g <= 2; g++) {
    if (g > 1) start_two(f, g);
    for (int i = 0; i < 2; i++) send_for(f, i, MSG_WORKER_BEGAN, g, i, 0, 0);
    expect_nothing(f, 0);
    send_failed(f, 1, g);
    confirm_both(f, g);
  }
  expect_alone(f, "host1: cannot enter /data/run");
  /* The first failure that counts for --max-restarts. */
  send_for(f, 0, MSG_WORKER_ENDED, 3, 0, -1, 9);
  confirm_kill(f, 3);
  begin(f, 4, 1);
  close_fixture(f);
}

static void test_start_daemon_that_fails_is_the_reason(void **state) {
  (void)state;
  Fixture *f = open_start(two);
  for (int g = 1; g <= 2; g++) {
    if (g > 1) start_two(f, g);
    send_end(f, 1, g, 1001, 127, 0);
    expect_only(f, 0, MSG_RSH_ENDED);
    send_end(f, 0, g, 1, 1, 0);
    expect_nothing(f, 0);
    f->now += 2;
    confirm_both(f, g);
  }
  expect_alone(f,
               "host1: the daemon of mpirun (orted) ended before its ranks began: exit "
               "status 127");
  close_fixture(f);
}

static void test_start_daemon_that_ends_after_mpirun_was_killed_is_not_blamed(void **state) {
  (void)state;
  Fixture *f = open_start(two);
  send_for(f, 0, MSG_WORKER_BEGAN, 1, 0, 0, 0);
  send_end(f, 1, 1, 1001, 1, 0);
  expect_only(f, 0, MSG_RSH_ENDED);
  send_end(f, 0, 1, 1, -1, 9);
  expect_nothing(f, 0);
  f->now += 2;
  confirm_both(f, 1);
  json_t *body = expect(f, 0, MSG_BEGIN);
  assert_string_equal(protocol_text(body, "reason"),
                      "mpirun ended before its ranks: killed by SIGKILL");
  json_decref(body);
  close_fixture(f);
}

static void test_start_machine_lost_before_ranks_leads_to_a_new_gathering(void **state) {
  (void)state;
  Fixture *f = open_start(with_restarts(0));
  lose_agent(f, 1);
  confirm_kill_on(f, 0, 1);
  expect_alone(f, "host1 is lost");
  close_fixture(f);
}

static void test_start_machine_lost_every_time_ends_the_launch(void **state) {
  (void)state;
  bool is_reported;
  LaunchSpec spec = with_restarts(0);
  spec.min = 2;
  Fixture *f = open_start(spec);
  for (int g = 1; g <= 4; g++) {
    if (g > 1) {
      connect_agent(f, 1, TRIREME_VERSION);
      start_two(f, g);
    }
    lose_agent(f, 1);
    confirm_kill_on(f, 0, g);
  }
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_says("host1 is lost");
  assert_says("tried 4 times, and no rank has begun");
  close_fixture(f);
}

static void test_start_error_after_an_early_loss_is_not_repeated(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_start(two);
  lose_agent(f, 1);
  confirm_kill_on(f, 0, 1);
  begin(f, 2, 1);
  send_for(f, 0, MSG_WORKER_ENDED, 2, 0, 1, 0);
  confirm_kill(f, 2);
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_says("rank 0 on host0: exit status 1; not restarted");
  close_fixture(f);
}

static void test_start_that_hangs_fails_after_the_limit(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_start(two);
  f->now += 119;
  expect_nothing(f, 0);
  f->now += 2;
  confirm_both(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_says("rank 0 on host0 has not begun within 120 s (--start-timeout)");
  close_fixture(f);
}

static void test_start_of_one_rank_that_hangs_does_not_name_mpirun(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3});
  connect_agent(f, 0, TRIREME_VERSION);
  expect_only(f, 0, MSG_BEGIN);
  f->now += 121;
  confirm_kill(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_WORK);
  assert_says("(--start-timeout); the agent there has not started it");
  close_fixture(f);
}

static void test_start_that_hangs_on_one_machine_blames_it(void **state) {
  (void)state;
  Fixture *f = open_start(two);
  for (int g = 1; g <= 2; g++) {
    if (g > 1) start_two(f, g);
    send_for(f, 0, MSG_WORKER_BEGAN, g, 0, 0, 0);
    expect_nothing(f, 0);
    f->now += 121;
    confirm_both(f, g);
  }
  expect_alone(f, "rank 1 on host1 has not begun within 120 s");
  close_fixture(f);
}

static void test_start_that_hangs_is_killed_after_the_limit_when_stopping(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_start(two);
  f->signals = 1;
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  f->now += 121;
  confirm_both(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_STOPPED);
  close_fixture(f);
}

static void test_start_whose_mpirun_ends_while_stopping_is_over(void **state) {
  (void)state;
  bool is_reported;
  Fixture *f = open_start(two);
  f->signals = 1;
  for (int i = 0; i < 2; i++) expect_only(f, i, MSG_STOP);
  send_end(f, 0, 1, 1, 1, 0);
  expect_nothing(f, 0);
  f->now += 2;
  confirm_both(f, 1);
  assert_int_equal(finish(f, &is_reported), ERR_STOPPED);
  close_fixture(f);
}

static void test_start_of_all_ranks_has_no_limit_afterwards(void **state) {
  (void)state;
  Fixture *f = open_two();
  expect_nothing(f, 0);
  f->now += 3600;
  expect_nothing(f, 0);
  close_fixture(f);
}

static void print_line(Fixture *f, int generation) {
  OutputHeader header = {.generation = (uint32_t)generation, .stream = OUTPUT_STDERR};
  OK(output_send(f->agent[0], &header, "step 1\n", 7));
}

static void test_stall_of_one_rank_restarts_after_the_limit(void **state) {
  (void)state;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .max_restarts = 3, .stall_timeout = 600});
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  expect_nothing(f, 0);
  for (int line = 0; line < 3; line++) {
    f->now += 599;
    print_line(f, 1);
    expect_nothing(f, 0);
  }
  f->now += 601;
  confirm_kill(f, 1);
  json_t *body = expect(f, 0, MSG_BEGIN);
  assert_string_equal(protocol_text(body, "reason"),
                      "no rank has printed or reported anything for 601 s (--stall-timeout)");
  json_decref(body);
  close_fixture(f);
}

static void report_joined(Fixture *f, int i, int rank) {
  OK(protocol_send(f->agent[i], MSG_EVENT,
                   json_pack("{s:i, s:i, s:{s:s}}", "generation", 1, "rank", rank, "event",
                             "event", "joined")));
}

static void test_start_of_mpi_that_hangs_in_a_rank_fails_after_the_limit(void **state) {
  (void)state;
  LaunchSpec spec = two;
  spec.mpi_timeout = 360;
  Fixture *f = open_fixture(spec);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  begin_two(f, 1);
  report_joined(f, 0, 0);
  report_joined(f, 0, 1); /* not a rank of this machine */
  expect_nothing(f, 0);
  f->now += 359;
  expect_nothing(f, 0);
  f->now += 2;
  for (int i = 0; i < 2; i++) confirm_kill_on(f, i, 1);
  assert_logged("MPI_Init has not returned in rank 1 on host1 within 360 s");
  close_fixture(f);
}

static void test_start_of_mpi_in_all_ranks_has_no_limit_afterwards(void **state) {
  (void)state;
  LaunchSpec spec = two;
  spec.mpi_timeout = 360;
  Fixture *f = open_fixture(spec);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  begin_two(f, 1);
  for (int i = 0; i < 2; i++) report_joined(f, i, i);
  expect_nothing(f, 0);
  f->now += 3600;
  expect_nothing(f, 0);
  close_fixture(f);
}

static void test_start_reports_before_a_generation_are_ignored(void **state) {
  (void)state;
  Fixture *f = open_fixture(two);
  connect_agent(f, 0, TRIREME_VERSION);
  connect_agent(f, 1, TRIREME_VERSION);
  advance_supervisor(f);
  /* Messages about generation 0, which never existed, during the network test. */
  send_end(f, 1, 0, 1001, 127, 0);
  send_for(f, 1, MSG_WORKER_ENDED, 0, 1, -1, 9);
  begin_two(f, 1);
  close_fixture(f);
}

static void test_start_source_learns_that_an_agent_is_ready(void **state) {
  (void)state;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .min = 2, .max = 2});
  connect_agent(f, 1, TRIREME_VERSION);
  while (!f->from.readies) advance_all(f);
  expect_nothing(f, 1);
  assert_int_equal(f->from.readies, 1);
  close_fixture(f);
}

static void test_start_warning_of_an_agent_is_printed_with_its_name(void **state) {
  (void)state;
  Fixture *f = open_fixture((LaunchSpec){.nproc = 1, .min = 2, .max = 2});
  connect_agent(f, 1, TRIREME_VERSION);
  OK(protocol_send(f->agent[1], MSG_WARNING, json_pack("{s:s}", "text", "a process hangs")));
  expect_nothing(f, 1);
  assert_logged("warning: host1: a process hangs\n");
  close_fixture(f);
}

/* Starts one rank, which reports that it has created the run; the directory does not exist. */
static Fixture *open_run(void) {
  Fixture *f = open_fixture_of((LaunchSpec){.nproc = 1, .max_restarts = 3}, at("run"));
  connect_agent(f, 0, TRIREME_VERSION);
  begin(f, 1, 1);
  OK(protocol_send(
      f->agent[0], MSG_EVENT,
      json_pack("{s:i, s:i, s:{s:s}}", "generation", 1, "rank", 0, "event", "event", "run")));
  expect_nothing(f, 0);
  return f;
}

static void make_run(void) {
  assert_int_equal(mkdir(at("run"), 0777), 0);
  OK(file_write(at("run/config"), "x", 1));
}

/* Returns the text of a file in the scratch directory. */
static const char *read_text(const char *name) {
  static char text[1 << 14];
  FILE *file = fopen(at(name), "r");
  assert_non_null(file);
  size_t n = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[n] = '\0';
  return text;
}

static void test_start_run_that_is_not_visible_here_is_a_warning_after_a_minute(void **state) {
  (void)state;
  unlink(at("launch.log"));
  Fixture *f = open_run();
  f->now += 59;
  expect_nothing(f, 0);
  f->now += 2;
  expect_nothing(f, 0);
  make_run(); /* the console then writes the lines that it has stored */
  close_fixture(f);
  assert_non_null(strstr(read_text("launch.log"),
                         "warning: there are no log files: the run that rank 0 has created is "
                         "not visible on this machine; pass --log-dir"));
  OK(file_remove_all(at("run")));
}

/* Another launch writes its log files to the directory. Its name is the reason, not the run. */
static void test_start_refused_log_directory_is_not_called_an_invisible_run(void **state) {
  (void)state;
  int lock;
  bool is_busy;
  int terminal = dup(STDERR_FILENO);
  int file = open(at("stderr"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
  close(file);
  Fixture *f = open_run();
  OK(file_lock(at("lock"), &lock, &is_busy));
  make_run();
  while (!console_has_lost_logs(f->console)) advance_all(f);
  f->now += 61;
  expect_nothing(f, 0);
  assert_int_equal(free_fixture(f), ERR_WORK);
  close(lock);
  dup2(terminal, STDERR_FILENO);
  close(terminal);
  const char *text = read_text("stderr");
  assert_non_null(strstr(text, "lines of log files are lost: another launch is writing"));
  assert_null(strstr(text, "not visible"));
  OK(file_remove_all(at("run")));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_start_source_learns_that_an_agent_is_ready),
      cmocka_unit_test(test_start_warning_of_an_agent_is_printed_with_its_name),
      cmocka_unit_test(test_start_run_that_is_not_visible_here_is_a_warning_after_a_minute),
      cmocka_unit_test(test_start_refused_log_directory_is_not_called_an_invisible_run),
      cmocka_unit_test(test_start_machine_that_fails_twice_is_set_aside),
      cmocka_unit_test(test_start_machine_that_fails_and_is_needed_ends_the_launch),
      cmocka_unit_test(test_start_failures_of_a_machine_set_aside_do_not_count),
      cmocka_unit_test(test_start_daemon_that_fails_is_the_reason),
      cmocka_unit_test(test_start_daemon_that_ends_after_mpirun_was_killed_is_not_blamed),
      cmocka_unit_test(test_start_machine_lost_before_ranks_leads_to_a_new_gathering),
      cmocka_unit_test(test_start_machine_lost_every_time_ends_the_launch),
      cmocka_unit_test(test_start_error_after_an_early_loss_is_not_repeated),
      cmocka_unit_test(test_start_that_hangs_fails_after_the_limit),
      cmocka_unit_test(test_start_of_one_rank_that_hangs_does_not_name_mpirun),
      cmocka_unit_test(test_start_that_hangs_on_one_machine_blames_it),
      cmocka_unit_test(test_start_that_hangs_is_killed_after_the_limit_when_stopping),
      cmocka_unit_test(test_start_whose_mpirun_ends_while_stopping_is_over),
      cmocka_unit_test(test_start_of_all_ranks_has_no_limit_afterwards),
      cmocka_unit_test(test_stall_of_one_rank_restarts_after_the_limit),
      cmocka_unit_test(test_start_of_mpi_that_hangs_in_a_rank_fails_after_the_limit),
      cmocka_unit_test(test_start_of_mpi_in_all_ranks_has_no_limit_afterwards),
      cmocka_unit_test(test_start_reports_before_a_generation_are_ignored),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
