/* The lock of a run (train/rundir.h) and of a log directory (launch/console_files.h), while another
 * process looks whether it is free. */
#include "train/rundir.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/console_files.h"
#include "support.h"

/* Calls `act` in a child while this process has the lock, releases it, and returns the child's
 * result. The child tries for at most `milliseconds`. */
static Err act_while_locked(const char *path, Err (*act)(void), const char *milliseconds) {
  int lock, status;
  bool is_busy;
  char fault[64];
  snprintf(fault, sizeof fault, "lock-wait:%s", milliseconds);
  OK(file_lock(path, &lock, &is_busy));
  assert_false(is_busy);
  pid_t pid = fork();
  if (pid == 0) {
    close(lock); /* otherwise the child would hold the lock too */
    setenv("TRIREME_FAULT", fault, 1);
    _exit((int)act());
  }
  bool is_released = atoi(milliseconds) > 0;
  poll(NULL, 0, is_released ? 50 : 0); /* the child should have met the lock by then */
  if (is_released) close(lock);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (!is_released) close(lock);
  assert_true(WIFEXITED(status));
  return (Err)WEXITSTATUS(status);
}

static Err commit_run(void) {
  int lock = -1;
  return rundir_commit(at("run"), "x", &lock);
}

static Err claim_logs(void) {
  LogFiles files = {0};
  TRY(log_files_init(&files, at("logs")));
  Err err = log_files_claim(&files);
  log_files_close(&files);
  return err;
}

static Err check_logs(void) {
  return log_files_check(at("logs"));
}

static int make_dirs(void **state) {
  if (make_scratch(state)) return -1;
  return mkdir(at("run"), 0777) || mkdir(at("logs"), 0777);
}

static void test_rundir_lock_that_is_held_for_an_instant_is_waited_for(void **state) {
  (void)state;
  assert_int_equal(act_while_locked(at("run/lock"), commit_run, "60000"), ERR_OK);
  OK(file_remove_all(at("run")));
  assert_int_equal(mkdir(at("run"), 0777), 0);
}

static void test_rundir_lock_that_is_kept_is_refused(void **state) {
  (void)state;
  assert_int_equal(act_while_locked(at("run/lock"), commit_run, "0"), ERR_WORK);
}

static void test_log_files_lock_that_is_held_for_an_instant_is_waited_for(void **state) {
  (void)state;
  assert_int_equal(act_while_locked(at("logs/lock"), claim_logs, "60000"), ERR_OK);
  assert_int_equal(act_while_locked(at("logs/lock"), check_logs, "60000"), ERR_OK);
}

static void test_log_files_lock_that_is_kept_is_refused(void **state) {
  (void)state;
  assert_int_equal(act_while_locked(at("logs/lock"), claim_logs, "0"), ERR_WORK);
  assert_int_equal(act_while_locked(at("logs/lock"), check_logs, "0"), ERR_WORK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rundir_lock_that_is_held_for_an_instant_is_waited_for),
      cmocka_unit_test(test_rundir_lock_that_is_kept_is_refused),
      cmocka_unit_test(test_log_files_lock_that_is_held_for_an_instant_is_waited_for),
      cmocka_unit_test(test_log_files_lock_that_is_kept_is_refused),
  };
  return cmocka_run_group_tests(tests, make_dirs, remove_scratch);
}
