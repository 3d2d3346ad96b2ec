/* Which directories can be begun or resumed as a run, its id and its place (train/rundir.h). The lock of a
 * run and of a log directory (launch/console_files.h), while another process looks whether it is free. */
#include "train/rundir.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
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

static void write_text(const char *path, const char *text) {
  OK(file_write(at(path), text, strlen(text)));
}

static void test_rundir_check_decides_by_start_and_contents(void **state) {
  (void)state;
  static const struct {
    const char *run;
    RunStart start;
    bool is_resumed;
    Err err;
    const char *words;
  } rows[] = {
      {"new", RUN_NEW, false, ERR_OK, ""},
      {"new", RUN_AUTO, false, ERR_OK, ""},
      {"new", RUN_RESUME, false, ERR_USAGE, "there is no run"},
      {"with-config", RUN_NEW, false, ERR_WORK, "exists already"},
      {"with-config", RUN_AUTO, true, ERR_OK, ""},
      {"with-config", RUN_RESUME, true, ERR_OK, ""},
      {"with-checkpoints", RUN_AUTO, true, ERR_OK, ""},
      {"with-checkpoints", RUN_RESUME, true, ERR_OK, ""},
      {"begun", RUN_NEW, false, ERR_WORK, "exists already"},
      {"begun", RUN_AUTO, true, ERR_OK, ""},
      {"begun", RUN_RESUME, false, ERR_USAGE, "there is no run"},
      {"other", RUN_AUTO, false, ERR_USAGE, "holds other files (notes.txt)"},
      {"file", RUN_AUTO, false, ERR_USAGE, "file is no directory"},
      {"file", RUN_NEW, false, ERR_WORK, "exists already"},
  };
  OK(file_mkdirs(at("with-config")));
  write_text("with-config/config", "");
  OK(file_mkdirs(at("with-checkpoints/checkpoints")));
  OK(file_mkdirs(at("begun/launch")));
  write_text("begun/lock", "");
  write_text("begun/launch.log", "");
  OK(file_mkdirs(at("other/launch")));
  write_text("other/notes.txt", "");
  write_text("file", "");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bool is_resumed = !rows[i].is_resumed;
    err_set(ERR_OK, " ");
    Err err = rundir_check(at(rows[i].run), rows[i].start, &is_resumed);
    if (err != rows[i].err || is_resumed != rows[i].is_resumed ||
        !strstr(err_message(), rows[i].words))
      fail_msg("row %zu: %s", i, err_message());
  }
}

static void test_rundir_missing_run_suggests_the_most_similar_one(void **state) {
  (void)state;
  static const struct {
    const char *typed, *words; /* NULL: no suggestion */
  } rows[] = {
      {"model-bass", "did you mean --run %s/model-base?"},
      {"model-bas/", "did you mean --run %s/model-base?"},
      {"model-bxxx", "did you mean --run %s/model-base?"},
      {"model-xxxx", "did you mean --run %s/model-base?"}, /* a third of the letters and one */
      {"modelxxxxx", NULL},                                /* too many letters differ */
      {"run-3", "--run %s/run-1?"}, /* the first of those that are equally similar */
      {"job-3", "--run %s/job-1?"},
      {"my-3", "--run %s/my-1?"},
      {"model-bask", "--run %s/model-base?"}, /* model-bast is no run */
      {"hidden", NULL},
  };
  static const char *const runs[] = {
      "near/model-base", "near/run-2",   "near/run-4", "near/run-5",
      "near/run-1",      "near/run-6",   "near/run-7", "near/run-8",
      "near/run-11",     "near/.hidden", "near/job-2", "near/job-1",
      "near/job-4",      "near/my-4",    "near/my-1",  "near/my-2"};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
    char path[64];
    snprintf(path, sizeof path, "%s/checkpoints", runs[i]);
    OK(file_mkdirs(at(path)));
  }
  OK(file_mkdirs(at("near/model-bast")));
  char parent[FILE_PATH_MAX], run[FILE_PATH_MAX], words[FILE_PATH_MAX + 64];
  snprintf(parent, sizeof parent, "%s", at("near"));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bool is_resumed;
    OK(file_join(run, parent, rows[i].typed));
    assert_int_equal(rundir_check(run, RUN_RESUME, &is_resumed), ERR_USAGE);
    snprintf(words, sizeof words, rows[i].words ? rows[i].words : "check --run, or leave",
             parent);
    if (!strstr(err_message(), words)) fail_msg("%s: %s", rows[i].typed, err_message());
  }
}

static void test_rundir_enter_of_new_and_resumed_run(void **state) {
  (void)state;
  static const char *const none[] = {NULL};
  OK(file_mkdirs(at("entered")));
  OK(rundir_enter(at("absent"), false, "seed = 1\n", none));
  assert_int_equal(rundir_enter(at("entered"), false, "seed = 1\n", none), ERR_WORK);
  assert_says("exists already");
  OK(rundir_enter(at("entered"), true, "seed = 1\n", none)); /* it has no config */
  write_text("entered/config", "seed = 2\n");
  assert_int_equal(rundir_enter(at("entered"), true, "seed = 1\n", none), ERR_USAGE);
  assert_says("--seed is 1 and was 2");
}

static void test_rundir_id_that_is_damaged_is_none(void **state) {
  (void)state;
  static const char digits[] = "0123456789abcdef0123456789abcdef";
  static const struct {
    const char *text;
    bool is_id;
  } rows[] = {
      {"0123456789abcdef0123456789abcdef\n", true},
      {"0123456789abcdef0123456789abcde\n", false},
      {"0123456789abcdef0123456789abcdef", false},
      {"0123456789abcdef0123456789abcdef0\n", false},
      {"0123456789ABCDEF0123456789abcdef\n", false},
      {"../3456789abcdef0123456789abcdef\n", false},
      {"0123456789abcdef0123456789abcdef0", false},
      {"", false},
  };
  char id[RUN_ID_SIZE];
  OK(file_mkdirs(at("id")));
  OK(rundir_read_id(at("id"), id));
  assert_string_equal(id, "");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    write_text("id/id", rows[i].text);
    OK(rundir_read_id(at("id"), id));
    if (strcmp(id, rows[i].is_id ? digits : "") != 0) fail_msg("row %zu: %s", i, id);
  }
}

static void commit_and_read_id(const char *run, int *lock, char id[RUN_ID_SIZE]) {
  OK(rundir_commit(run, "seed = 1\n", lock));
  assert_true(*lock >= 0);
  OK(rundir_read_id(run, id));
  assert_int_equal(strlen(id), RUN_ID_SIZE - 1);
}

static void test_rundir_commit_keeps_the_id_of_the_run(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], first[RUN_ID_SIZE], second[RUN_ID_SIZE];
  int lock = -1, other = -1;
  Str config = {0};
  OK(file_join(run, scratch, "kept"));
  commit_and_read_id(run, &lock, first);
  commit_and_read_id(run, &lock, second);
  assert_string_equal(first, second);
  OK(file_read(at("kept/config"), 100, &config));
  assert_string_equal(str_text(&config), "seed = 1\n");
  str_free(&config);
  commit_and_read_id(at("kept-2"), &other, second);
  assert_string_not_equal(first, second);
  close(other);
  close(lock);
  /* Another process has begun the run. */
  lock = -1;
  assert_int_equal(rundir_commit(run, "seed = 2\n", &lock), ERR_WORK);
  assert_says("kept exists already");
  close(lock);
}

static void test_rundir_commit_without_space_is_error(void **state) {
  (void)state;
  struct rlimit before, limit;
  int lock = -1;
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  for (rlim_t bytes = 0; bytes < 40; bytes += 20) { /* none, then enough for the config alone */
    limit = before;
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    Err err = rundir_commit(at("full"), "seed = 1\n", &lock);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(err, ERR_WORK);
    assert_says("File too large");
    assert_int_equal(file_exists(at("full/config")), bytes > 0);
    assert_false(file_exists(at("full/id")));
  }
  close(lock);
}

static void test_rundir_commit_out_of_memory_is_error(void **state) {
  (void)state;
  int lock = -1;
  uint64_t n = 0;
  Err err;
  OK(file_mkdirs(at("memory")));
  OK(rundir_lock(at("memory"), &lock));
  do {
    mem_fail_after(++n);
    err = rundir_commit(at("memory"), "seed = 1\n", &lock);
    mem_fail_after(0);
    if (err) assert_says("out of memory");
  } while (err);
  assert_true(n > 4);
  close(lock);
}

static void test_rundir_place_that_is_moved_removed_or_replaced_is_error(void **state) {
  (void)state;
  char run[FILE_PATH_MAX], away[FILE_PATH_MAX], lock_file[FILE_PATH_MAX];
  int lock;
  OK(file_join(run, scratch, "place"));
  OK(file_join(away, scratch, "place-moved"));
  OK(file_mkdirs(run));
  OK(file_join(lock_file, run, "lock"));
  OK(rundir_lock(run, &lock));
  OK(rundir_check_place(run, lock));
  OK(file_rename(run, away));
  assert_int_equal(rundir_check_place(run, lock), ERR_WORK);
  assert_says("place was moved or removed during training");
  write_text("place", "");
  assert_int_equal(rundir_check_place(run, lock), ERR_WORK); /* its parent is a file */
  assert_int_equal(unlink(run), 0);
  OK(file_mkdirs(run));
  write_text("place/lock", "");
  assert_int_equal(rundir_check_place(run, lock), ERR_WORK); /* another file */
  OK(file_remove_all(run));
  OK(file_rename(away, run));
  OK(rundir_check_place(run, lock));
  assert_int_equal(unlink(lock_file), 0);
  assert_int_equal(rundir_check_place(run, lock), ERR_WORK);
  close(lock);
  OK(rundir_check_place(run, lock)); /* what cannot be read is no error */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rundir_check_decides_by_start_and_contents),
      cmocka_unit_test(test_rundir_missing_run_suggests_the_most_similar_one),
      cmocka_unit_test(test_rundir_enter_of_new_and_resumed_run),
      cmocka_unit_test(test_rundir_id_that_is_damaged_is_none),
      cmocka_unit_test(test_rundir_commit_keeps_the_id_of_the_run),
      cmocka_unit_test(test_rundir_commit_without_space_is_error),
      cmocka_unit_test(test_rundir_commit_out_of_memory_is_error),
      cmocka_unit_test(test_rundir_place_that_is_moved_removed_or_replaced_is_error),
      cmocka_unit_test(test_rundir_lock_that_is_held_for_an_instant_is_waited_for),
      cmocka_unit_test(test_rundir_lock_that_is_kept_is_refused),
      cmocka_unit_test(test_log_files_lock_that_is_held_for_an_instant_is_waited_for),
      cmocka_unit_test(test_log_files_lock_that_is_kept_is_refused),
  };
  return cmocka_run_group_tests(tests, make_dirs, remove_scratch);
}
