/* Slurm's variables, the line that names the head, and the start of agents with a script
 * instead of srun. tests/cluster/slurm.bats uses a real Slurm. Depends on launch/slurm,
 * source_slurm. */
#include "support.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/progress.h"
#include "launch/source_slurm.h"

static void clear_variables(void) {
  static const char *const names[] = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_JOB_NUM_NODES",
                                      "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static int begin(void **state) {
  (void)state;
  clear_variables();
  return 0;
}

static void test_slurm_batch_script_has_an_allocation(void **state) {
  (void)state;
  assert_false(slurm_has_allocation());
  setenv("SLURM_JOB_ID", "7", 1);
  assert_true(slurm_has_allocation());
}

static void test_slurm_interactive_step_has_an_allocation(void **state) {
  (void)state;
  setenv("SLURM_JOB_ID", "7", 1);
  setenv("SLURM_STEP_ID", "4294967290", 1);
  assert_true(slurm_has_allocation());
}

static void test_slurm_task_of_srun_has_no_allocation(void **state) {
  (void)state;
  setenv("SLURM_JOB_ID", "7", 1);
  setenv("SLURM_STEP_ID", "0", 1);
  assert_false(slurm_has_allocation());
}

static void test_slurm_tasks_are_read_for_each_node(void **state) {
  (void)state;
  SlurmAllocation a;
  setenv("SLURM_JOB_NUM_NODES", "5", 1);
  setenv("SLURM_NTASKS", "12", 1);
  setenv("SLURM_TASKS_PER_NODE", "4,2(x3),16", 1);
  OK(slurm_read_allocation(&a));
  assert_int_equal(a.nodes, 5);
  static const int expected[] = {4, 2, 2, 2, 16};
  for (int i = 0; i < 5; i++) assert_int_equal(a.tasks[i], expected[i]);
}

static void test_slurm_tasks_nobody_asked_for_are_not_used(void **state) {
  (void)state;
  SlurmAllocation a;
  setenv("SLURM_JOB_NUM_NODES", "2", 1);
  setenv("SLURM_TASKS_PER_NODE", "64(x2)", 1);
  OK(slurm_read_allocation(&a));
  assert_int_equal(a.tasks[0], 0);
  assert_int_equal(a.tasks[1], 0);
}

static void test_slurm_wrong_variables_are_refused(void **state) {
  (void)state;
  static const char *const texts[] = {"",          "x",         "2",      "2(x3)",  "2(x",
                                      "2(x2",      "2(x0)",     "0(x2)",  "-1(x2)", "2,",
                                      "2,2,",      ",2,2",      "2(x2)2", "2 2",    " 2(x2)",
                                      "99999(x2)", "2(x99999)", "2(y2)",  "1,1,1"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    SlurmAllocation a = {.nodes = 2};
    if (slurm_parse_tasks(&a, texts[i]) == ERR_OK) fail_msg("accepted: '%s'", texts[i]);
    assert_says("SLURM_TASKS_PER_NODE");
  }
  SlurmAllocation a;
  assert_int_equal(slurm_read_allocation(&a), ERR_WORK);
  assert_says("SLURM_JOB_NUM_NODES");
  setenv("SLURM_JOB_NUM_NODES", "99999", 1);
  assert_int_equal(slurm_read_allocation(&a), ERR_WORK);
}

static void test_slurm_meeting_survives_its_line(void **state) {
  (void)state;
  SlurmMeeting m = {.port = 4711, .addresses = 2, .address = {"10.0.0.1", "2001:db8::1"}};
  SlurmMeeting copy;
  char line[SLURM_LINE_MAX];
  OK(key_make(&m.key));
  slurm_print_meeting(&m, line);
  OK(slurm_parse_meeting(&copy, line));
  assert_memory_equal(&copy.key, &m.key, sizeof m.key);
  assert_int_equal(copy.port, 4711);
  assert_int_equal(copy.addresses, 2);
  assert_string_equal(copy.address[1], "2001:db8::1");
}

static void test_slurm_meeting_longest_line_fits(void **state) {
  (void)state;
  SlurmMeeting m = {.port = 65535, .addresses = SLURM_ADDRESSES};
  SlurmMeeting copy;
  char line[SLURM_LINE_MAX];
  for (int i = 0; i < SLURM_ADDRESSES; i++)
    strcpy(m.address[i], "2001:db8:1111:2222:3333:4444:5555:6666");
  slurm_print_meeting(&m, line);
  assert_true(str_ends(line, "\n"));
  OK(slurm_parse_meeting(&copy, line));
  assert_int_equal(copy.addresses, SLURM_ADDRESSES);
}

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_slurm_wrong_line_is_refused(void **state) {
  (void)state;
  static const char *const lines[] = {"",
                                      "hello",
                                      "trireme-slurm-1 " HEX " 80",
                                      "trireme-slurm-2 " HEX " 80 10.0.0.1",
                                      "trireme-slurm-1 0123 80 10.0.0.1",
                                      "trireme-slurm-1 " HEX "00 80 10.0.0.1",
                                      "trireme-slurm-1 " HEX " 0 10.0.0.1",
                                      "trireme-slurm-1 " HEX " 99999 10.0.0.1",
                                      "trireme-slurm-1 " HEX " -1 10.0.0.1",
                                      "trireme-slurm-1 " HEX " 80 example.org"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    SlurmMeeting m;
    if (slurm_parse_meeting(&m, lines[i]) == ERR_OK) fail_msg("accepted: '%s'", lines[i]);
    assert_says("standard input does not name the head");
  }
}

/* Tests with a script named srun. */

static char old_path[4096];

static int keep_path(void **state) {
  snprintf(old_path, sizeof old_path, "%s", getenv("PATH"));
  return begin(state);
}

static int restore_path(void **state) {
  (void)state;
  return setenv("PATH", old_path, 1);
}

static void install_srun(const char *body) {
  char text[1024];
  int len = snprintf(text, sizeof text, "#!/bin/sh\n%s\n", body);
  OK(file_write(at("srun"), text, (size_t)len));
  assert_int_equal(chmod(at("srun"), 0755), 0);
  setenv("PATH", scratch, 1);
}

static void test_slurm_srun_that_fails_ends_the_launch(void **state) {
  (void)state;
  SlurmAllocation a = {.nodes = 2};
  Source source;
  Arrival arrival;
  install_srun("echo 'srun: error: Unable to create step' >&2; exit 3");
  OK(source_slurm_open(&source, &a, false));
  assert_int_equal(source.expected, 2);
  Err err = ERR_OK;
  log_mute();
  for (double limit = progress_clock() + 60; !err && progress_clock() < limit;) {
    struct pollfd fds[64];
    poll(fds, (nfds_t)source.poll_for(source.self, fds, 64), 20);
    err = source.advance(source.self, progress_clock());
    assert_false(source.next(source.self, &arrival));
  }
  assert_int_equal(err, ERR_WORK);
  assert_says(
      "srun ended (exit status 3) before all agents had connected: srun: error: Unable to "
      "create step");
  source.close(source.self);
}

static void test_slurm_missing_srun_is_an_error(void **state) {
  (void)state;
  SlurmAllocation a = {.nodes = 1};
  Source source;
  setenv("PATH", "/nonexistent", 1);
  assert_int_equal(source_slurm_open(&source, &a, false), ERR_WORK);
  assert_says("cannot start srun");
}

#define TEST(name)      cmocka_unit_test_setup(name, begin)
#define SRUN_TEST(name) cmocka_unit_test_setup_teardown(name, keep_path, restore_path)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_slurm_batch_script_has_an_allocation),
      TEST(test_slurm_interactive_step_has_an_allocation),
      TEST(test_slurm_task_of_srun_has_no_allocation),
      TEST(test_slurm_tasks_are_read_for_each_node),
      TEST(test_slurm_tasks_nobody_asked_for_are_not_used),
      TEST(test_slurm_wrong_variables_are_refused),
      TEST(test_slurm_meeting_survives_its_line),
      TEST(test_slurm_meeting_longest_line_fits),
      TEST(test_slurm_wrong_line_is_refused),
      SRUN_TEST(test_slurm_srun_that_fails_ends_the_launch),
      SRUN_TEST(test_slurm_missing_srun_is_an_error),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
