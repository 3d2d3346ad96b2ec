/* The console of launch: complete lines, log files, overwritten terminal lines, and terminals
 * that block.
 * run-tests: own process */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "launch/console.h"
#include "launch/protocol.h"
#include "launch/signals.h"
#include "support.h"

enum { LINES = 60000, LINE_BYTES = 100 }; /* 6 MB: more than the screen's queue holds */

typedef struct {
  char dir[64], log[80], run[80];
  int saved[2]; /* saved standard output and standard error of the test */
} Fixture;

static int set_up(void **state) {
  Fixture *f = calloc(1, sizeof *f);
  snprintf(f->dir, sizeof f->dir, "/tmp/test-launch-console-XXXXXX");
  if (!mkdtemp(f->dir)) return -1;
  snprintf(f->log, sizeof f->log, "%s/log", f->dir);
  snprintf(f->run, sizeof f->run, "%s/run", f->dir);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  Fixture *f = *state;
  Err err = file_remove_all(f->dir);
  free(f);
  return (int)err;
}

/* Redirects standard output and error to DIR/out and DIR/err until release_console. */
static void capture_console(Fixture *f) {
  static const char *const names[] = {"out", "err"};
  char path[FILE_PATH_MAX];
  fflush(NULL);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(file_join(path, f->dir, names[i]), ERR_OK);
    f->saved[i] = dup(i + 1);
    assert_non_null(freopen(path, "w", i ? stderr : stdout));
  }
}

static void release_console(Fixture *f) {
  /* Flush only these two: fflush(NULL) could block on a stream that another thread reads. */
  fflush(stdout);
  fflush(stderr);
  for (int i = 0; i < 2; i++) {
    dup2(f->saved[i], i + 1);
    close(f->saved[i]);
  }
}

static void assert_file(const Fixture *f, const char *name, const char *text) {
  char path[FILE_PATH_MAX];
  Str found = {0};
  assert_int_equal(file_join(path, f->dir, name), ERR_OK);
  assert_int_equal(file_read(path, 1 << 20, &found), ERR_OK);
  assert_string_equal(str_text(&found), text);
  str_free(&found);
}

static Console *open_console(Fixture *f, bool all_output) {
  Console *c;
  ConsoleSpec spec = {.log_dir = f->log, .all_output = all_output};
  capture_console(f);
  assert_int_equal(console_open(&c, &spec), ERR_OK);
  return c;
}

static void add(Console *c, uint32_t rank, uint8_t stream, const char *text) {
  console_add(c, rank, stream, (const uint8_t *)text, strlen(text));
}

static void close_console(Fixture *f, Console *c) {
  Err err = console_close(c);
  release_console(f);
  assert_int_equal(err, ERR_OK);
}

static void test_console_shows_rank_0_on_its_own_streams(void **state) {
  Console *c = open_console(*state, false);
  add(c, 0, OUTPUT_STDOUT, "result\n");
  add(c, 0, OUTPUT_STDERR, "progress\n");
  add(c, 1, OUTPUT_STDERR, "other rank\n");
  close_console(*state, c);
  assert_file(*state, "out", "result\n");
  assert_file(*state, "err", "progress\n");
  assert_file(*state, "log/rank-0.log", "result\nprogress\n");
  assert_file(*state, "log/rank-1.log", "other rank\n");
}

static void test_console_joins_pieces_of_a_line(void **state) {
  Console *c = open_console(*state, true);
  add(c, 0, OUTPUT_STDERR, "one ");
  add(c, 1, OUTPUT_STDERR, "two\n");
  add(c, 0, OUTPUT_STDERR, "line\nnext\n");
  close_console(*state, c);
  assert_file(*state, "err", "[1] two\n[0] one line\n[0] next\n");
}

static void test_console_ends_an_unfinished_line(void **state) {
  Console *c = open_console(*state, false);
  add(c, 0, OUTPUT_STDERR, "no line break");
  close_console(*state, c);
  assert_file(*state, "err", "no line break\n");
  assert_file(*state, "log/rank-0.log", "no line break\n");
}

static void test_console_passes_terminal_bytes_and_logs_visible_lines(void **state) {
  Console *c = open_console(*state, false);
  add(c, 0, OUTPUT_TERMINAL, "\r\033[Kstep 1");
  add(c, 0, OUTPUT_TERMINAL, "\r\033[Kstep 2\n");
  add(c, 0, OUTPUT_TERMINAL, "\r\033[Kstep 3");
  console_say(c, "a fault");
  close_console(*state, c);
  assert_file(*state, "err",
              "\r\033[Kstep 1\r\033[Kstep 2\n\r\033[Kstep 3\nlaunch   a fault\n");
  char path[FILE_PATH_MAX];
  Str log = {0};
  assert_int_equal(file_join(path, ((Fixture *)*state)->log, "rank-0.log"), ERR_OK);
  assert_int_equal(file_read(path, 1 << 20, &log), ERR_OK);
  assert_non_null(strstr(str_text(&log), "step 2\n"));
  assert_null(strstr(str_text(&log), "step 1"));
  assert_null(strchr(str_text(&log), '\r'));
  str_free(&log);
}

static void test_console_never_shows_mpirun(void **state) {
  Console *c = open_console(*state, true);
  add(c, OUTPUT_OF_MPIRUN, OUTPUT_STDERR, "Primary job terminated\n");
  close_console(*state, c);
  assert_file(*state, "err", "");
  assert_file(*state, "log/mpirun.log", "Primary job terminated\n");
}

static void test_console_tail_has_the_last_lines_of_standard_error(void **state) {
  Str tail = {0};
  Console *c = open_console(*state, false);
  for (int i = 0; i < 1000; i++) {
    char line[32];
    snprintf(line, sizeof line, "line %d\n", i);
    add(c, 3, OUTPUT_STDERR, line);
  }
  add(c, 3, OUTPUT_STDOUT, "no error\n");
  console_tail(c, 3, &tail);
  close_console(*state, c);
  assert_true(str_starts(str_text(&tail), "line 988\n"));
  assert_true(str_ends(str_text(&tail), "line 999\n"));
  str_free(&tail);
}

static void test_console_escapes_control_characters_of_its_own_lines(void **state) {
  Console *c = open_console(*state, false);
  console_say(c, "host %s", "a\033[2J");
  close_console(*state, c);
  char path[FILE_PATH_MAX];
  Str text = {0};
  assert_int_equal(file_join(path, ((Fixture *)*state)->dir, "err"), ERR_OK);
  assert_int_equal(file_read(path, 4096, &text), ERR_OK);
  assert_null(strchr(str_text(&text), '\033'));
  str_free(&text);
}

static Console *open_in_run(Fixture *f) {
  Console *c;
  snprintf(f->log, sizeof f->log, "%.60s/run/launch", f->dir);
  ConsoleSpec spec = {.log_dir = f->log, .run = f->run};
  capture_console(f);
  assert_int_equal(console_open(&c, &spec), ERR_OK);
  return c;
}

static void create_run(const Fixture *f) {
  char path[FILE_PATH_MAX];
  assert_int_equal(file_mkdirs(f->run), ERR_OK);
  assert_int_equal(file_join(path, f->run, "config"), ERR_OK);
  assert_int_equal(file_write(path, "", 0), ERR_OK);
}

static void test_console_logs_wait_until_the_run_exists(void **state) {
  Fixture *f = *state;
  Console *c = open_in_run(f);
  add(c, 0, OUTPUT_STDERR, "before\n");
  create_run(f);
  console_own_run(c);
  add(c, 0, OUTPUT_STDERR, "after\n");
  close_console(f, c);
  assert_file(f, "run/launch/rank-0.log", "before\nafter\n");
}

static void test_console_logs_appear_with_the_run_although_nothing_more_is_printed(
    void **state) {
  Fixture *f = *state;
  Console *c = open_in_run(f);
  add(c, 0, OUTPUT_STDERR, "before\n");
  create_run(f);
  console_own_run(c);
  while (!console_has_logs(c)) usleep(1000);
  close_console(f, c);
  assert_file(f, "run/launch/rank-0.log", "before\n");
}

static void test_console_makes_no_run(void **state) {
  Fixture *f = *state;
  Console *c = open_in_run(f);
  add(c, 0, OUTPUT_STDERR, "trireme: wrong option\n");
  close_console(f, c);
  assert_false(file_exists(f->run));
  assert_file(f, "err", "trireme: wrong option\n");
}

static void test_console_unwritable_log_is_an_error_at_once(void **state) {
  Fixture *f = *state;
  Console *c;
  ConsoleSpec spec = {.log_dir = f->log};
  /* A file where the log directory should be. */
  assert_int_equal(file_write(f->log, "a file", 6), ERR_OK);
  assert_int_equal(console_open(&c, &spec), ERR_WORK);
  assert_non_null(strstr(err_message(), "is not a directory"));
}

static void test_console_lost_log_is_a_warning_and_an_error_at_the_end(void **state) {
  Fixture *f = *state;
  Console *c = open_console(f, false);
  assert_int_equal(file_remove_all(f->log), ERR_OK);
  add(c, 0, OUTPUT_STDERR, "line\n");
  Err err = console_close(c);
  release_console(f);
  assert_int_equal(err, ERR_WORK);
  assert_non_null(strstr(err_message(), "1 line of log files lost"));
}

static void test_console_of_a_second_launch_is_refused(void **state) {
  Fixture *f = *state;
  Console *c = open_console(f, false), *second;
  assert_int_equal(console_open(&second, &(ConsoleSpec){.log_dir = f->log}), ERR_WORK);
  assert_non_null(strstr(err_message(), "another launch is writing its log files to"));
  close_console(f, c);
  /* The directory is free again after the end. */
  c = open_console(f, false);
  close_console(f, c);
}

/* Two launches of a run that does not exist yet: the one whose ranks created it claims its logs,
 * also if the other one finds the run first. */
static void test_console_of_a_second_launch_writes_nothing_to_a_new_run(void **state) {
  Fixture *f = *state;
  Console *first, *second;
  ConsoleSpec spec = {.log_dir = f->run, .run = f->run};
  capture_console(f);
  assert_int_equal(console_open(&second, &spec), ERR_OK);
  assert_int_equal(console_open(&first, &spec), ERR_OK);
  assert_false(console_has_logs(first));
  create_run(f);
  console_log_error(second, "second");
  assert_int_equal(console_close(second), ERR_OK);
  console_say(first, "first");
  console_own_run(first);
  while (!console_has_logs(first)) usleep(1000);
  assert_int_equal(console_close(first), ERR_OK);
  release_console(f);
  Str log = {0};
  char path[FILE_PATH_MAX];
  assert_int_equal(file_join(path, f->run, "launch.log"), ERR_OK);
  assert_int_equal(file_read(path, 1 << 20, &log), ERR_OK);
  assert_non_null(strstr(str_text(&log), "first"));
  assert_null(strstr(str_text(&log), "second"));
  str_free(&log);
}

static void test_console_logs_more_ranks_than_files_may_be_open(void **state) {
  Fixture *f = *state;
  enum { RANKS = 300 };
  struct rlimit before, few = {.rlim_cur = 64};
  char name[64], line[64], twice[128];
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  few.rlim_max = before.rlim_max;
  Console *c = open_console(f, false);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  for (int round = 0; round < 2; round++) {
    for (uint32_t r = 0; r < RANKS; r++) {
      snprintf(line, sizeof line, "rank %u\n", r);
      add(c, r, OUTPUT_STDERR, line);
    }
  }
  close_console(f, c);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (unsigned r = 0; r < RANKS; r++) {
    snprintf(name, sizeof name, "log/rank-%u.log", r);
    snprintf(twice, sizeof twice, "rank %u\nrank %u\n", r, r);
    assert_file(f, name, twice);
  }
}

/* A terminal without a reader stands for a file server that does not answer. */
static void test_console_log_file_that_blocks_ends_with_an_error_in_time(void **state) {
  Fixture *f = *state;
  char path[FILE_PATH_MAX];
  Console *c = open_console(f, false);
  int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  assert_int_equal(file_join(path, f->log, "rank-1.log"), ERR_OK);
  assert_int_equal(symlink(ptsname(terminal), path), 0);
  int slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC); /* the terminal stays alive */
  assert_true(slave >= 0);
  setenv("TRIREME_FAULT", "console-wait:1", 1);
  for (int i = 0; i < LINES; i++) add(c, 1, OUTPUT_STDERR, "a line that nobody reads\n");
  Err err = console_close(c);
  release_console(f);
  assert_int_equal(err, ERR_WORK);
  assert_non_null(strstr(err_message(), "are incomplete: the file system takes nothing"));
  unsetenv("TRIREME_FAULT");
  close(slave);
  close(terminal);
}

/* A terminal that accepts no output: */

/* Replaces standard error with a pipe that nobody reads; returns its reading end. */
static int block_terminal(Fixture *f) {
  int ends[2];
  capture_console(f);
  assert_int_equal(pipe(ends), 0);
  assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
  close(ends[1]);
  return ends[0];
}

static Console *open_blocked(Fixture *f, int *reader, bool has_results) {
  Console *c;
  ConsoleSpec spec = {.log_dir = f->log, .has_results = has_results};
  *reader = block_terminal(f);
  assert_int_equal(console_open(&c, &spec), ERR_OK);
  return c;
}

static void add_lines(Console *c, uint8_t stream) {
  char line[LINE_BYTES + 1];
  for (int i = 0; i < LINES; i++) {
    snprintf(line, sizeof line, "%-*d\n", LINE_BYTES - 1, i);
    add(c, 0, stream, line);
  }
}

/* Asserts that the log file contains every line, in order. */
static void assert_log_is_complete(const Fixture *f) {
  char path[FILE_PATH_MAX];
  Str log = {0};
  assert_int_equal(file_join(path, f->log, "rank-0.log"), ERR_OK);
  assert_int_equal(file_read(path, (size_t)LINES * LINE_BYTES + 1, &log), ERR_OK);
  assert_int_equal(log.len, (size_t)LINES * LINE_BYTES);
  for (int i = 0; i < LINES; i++) assert_int_equal(atoi(log.s + (size_t)i * LINE_BYTES), i);
  str_free(&log);
}

static void assert_launch_log_has(const Fixture *f, const char *words) {
  char path[FILE_PATH_MAX];
  Str log = {0};
  assert_int_equal(file_join(path, f->log, "launch.log"), ERR_OK);
  assert_int_equal(file_read(path, 1 << 20, &log), ERR_OK);
  assert_non_null(strstr(str_text(&log), words));
  str_free(&log);
}

/* The terminal must not affect the log: it once shared a queue with the terminal, so log lines
 * were dropped, and closing the console blocked for ever. */
static void test_console_blocked_terminal_keeps_logs_and_is_no_error(void **state) {
  skip_if_emulated(); /* qemu ends the process at pthread_cancel */
  int reader;
  setenv("TRIREME_FAULT", "console-wait:1", 1);
  Console *c = open_blocked(*state, &reader, false);
  add_lines(c, OUTPUT_STDERR);
  Err err = console_close(c);
  close(reader);
  release_console(*state);
  unsetenv("TRIREME_FAULT");
  assert_int_equal(err, ERR_OK);
  assert_log_is_complete(*state);
  assert_launch_log_has(*state, " lines were not shown, as the terminal took none for a while");
}

typedef struct {
  int fd;
  uint64_t lines, not_shown;
} Reader;

/* Reads a pipe to its end; counts lines, and adds up the numbers in notices about dropped
 * lines. */
static void *read_lines(void *argument) {
  Reader *r = argument;
  FILE *in = fdopen(r->fd, "r");
  char line[FILE_PATH_MAX + 200];
  while (fgets(line, sizeof line, in)) {
    unsigned long long n;
    if (sscanf(line, "warning: %llu lines are not shown", &n) == 1)
      r->not_shown += n;
    else
      r->lines++;
  }
  fclose(in);
  return NULL;
}

static void test_console_dropped_lines_are_counted_when_the_terminal_continues(void **state) {
  skip_if_emulated(); /* qemu ends the process at pthread_cancel */
  Reader r = {0};
  pthread_t thread;
  Console *c = open_blocked(*state, &r.fd, false);
  add_lines(c, OUTPUT_STDERR);
  assert_int_equal(pthread_create(&thread, NULL, read_lines, &r), 0);
  Err err = console_close(c);
  release_console(*state); /* closes the writing end of the pipe */
  pthread_join(thread, NULL);
  assert_int_equal(err, ERR_OK);
  assert_true(r.not_shown > 0);
  assert_int_equal(r.lines + r.not_shown, LINES);
  assert_log_is_complete(*state);
}

/* While nobody reads standard output, console_close waits. A signal ends the wait, and the lines
 * that were not written are reported as an error. */
static void test_console_lost_results_are_an_error(void **state) {
  skip_if_emulated(); /* qemu ends the process at pthread_cancel */
  Fixture *f = *state;
  sigset_t term, before;
  int reader;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, &before);
  Console *c = open_blocked(f, &reader, true);
  assert_true(dup2(STDERR_FILENO, STDOUT_FILENO) >= 0);
  add_lines(c, OUTPUT_STDOUT);
  kill(getpid(), SIGTERM);
  Err err = console_close(c);
  close(reader);
  release_console(f);
  signals_restore(&before);
  assert_int_equal(err, ERR_WORK);
  assert_non_null(strstr(err_message(), "lines of standard output are lost"));
}

static void test_console_takes_messages_of_the_log(void **state) {
  Console *c = open_console(*state, false);
  log_warn("a stranger at the door");
  close_console(*state, c);
  assert_file(*state, "err", "warning: a stranger at the door\n");
  assert_launch_log_has(*state, "warning: a stranger at the door\n");
}

static void test_signals_restore_discards_what_came_while_blocked(void **state) {
  sigset_t before, term, after;
  (void)state;
  signals_save(&before);
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, NULL);
  kill(getpid(), SIGTERM);
  signals_restore(&before);
  pthread_sigmask(SIG_BLOCK, NULL, &after);
  assert_false(sigismember(&after, SIGTERM));
}

static void test_signals_hangup_and_termination_together_are_one_stop(void **state) {
  int demands = 0;
  (void)state;
  assert_int_equal(signals_note(&demands, SIGHUP), 1);
  assert_int_equal(signals_note(&demands, SIGUSR1), 1);
  assert_int_equal(signals_note(&demands, SIGTERM), 1);
  assert_int_equal(signals_note(&demands, SIGHUP), 1);
  assert_int_equal(signals_note(&demands, SIGINT), 2);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(test_console_shows_rank_0_on_its_own_streams),
      CASE(test_console_joins_pieces_of_a_line),
      CASE(test_console_ends_an_unfinished_line),
      CASE(test_console_passes_terminal_bytes_and_logs_visible_lines),
      CASE(test_console_never_shows_mpirun),
      CASE(test_console_tail_has_the_last_lines_of_standard_error),
      CASE(test_console_escapes_control_characters_of_its_own_lines),
      CASE(test_console_logs_wait_until_the_run_exists),
      CASE(test_console_logs_appear_with_the_run_although_nothing_more_is_printed),
      CASE(test_console_makes_no_run),
      CASE(test_console_unwritable_log_is_an_error_at_once),
      CASE(test_console_lost_log_is_a_warning_and_an_error_at_the_end),
      CASE(test_console_of_a_second_launch_is_refused),
      CASE(test_console_of_a_second_launch_writes_nothing_to_a_new_run),
      CASE(test_console_logs_more_ranks_than_files_may_be_open),
      /* Must come before a test in which a blocked terminal mutes the log. */
      CASE(test_console_takes_messages_of_the_log),
      CASE(test_console_blocked_terminal_keeps_logs_and_is_no_error),
      CASE(test_console_dropped_lines_are_counted_when_the_terminal_continues),
      CASE(test_console_lost_results_are_an_error),
      /* The last one: its writer thread ends later, and its warning would be among the output of the
       * next test. */
      CASE(test_console_log_file_that_blocks_ends_with_an_error_in_time),
      cmocka_unit_test(test_signals_restore_discards_what_came_while_blocked),
      cmocka_unit_test(test_signals_hangup_and_termination_together_are_one_stop),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
