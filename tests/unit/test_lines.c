/* Files to which lines are appended, also on a full disk, and the log file, which is such a
 * file. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lines.h"
#include "base/log.h"
#include "support.h"

static void set_limit(rlim_t bytes) {
  struct rlimit r;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
  r.rlim_cur = bytes < r.rlim_max ? bytes : r.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void assert_contents(const char *path, const char *want) {
  Str text = {0};
  OK(file_read(path, 1 << 20, &text));
  assert_string_equal(str_text(&text), want);
  str_free(&text);
}

static void test_lines_appends(void **state) {
  (void)state;
  LineFile f;
  OK(file_write(at("appended"), "one\n", 4));
  OK(lines_open(&f, at("appended")));
  OK(lines_add(&f, "two\n", 4));
  lines_close(&f);
  lines_close(&f);
  assert_contents(at("appended"), "one\ntwo\n");
}

static void test_lines_incomplete_last_line_is_ended(void **state) {
  (void)state;
  static const struct {
    const char *before, *after;
  } cases[] = {{"one\ntw", "one\ntw\nnext\n"}, {"one\n", "one\nnext\n"}, {"", "next\n"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    LineFile f;
    OK(file_write(at("cut"), cases[i].before, strlen(cases[i].before)));
    OK(lines_open(&f, at("cut")));
    OK(lines_complete(&f));
    OK(lines_add(&f, "next\n", 5));
    lines_close(&f);
    assert_contents(at("cut"), cases[i].after);
  }
}

static void test_lines_partial_line_is_removed(void **state) {
  (void)state;
  LineFile f;
  signal(SIGXFSZ, SIG_IGN);
  OK(lines_open(&f, at("limited")));
  OK(lines_add(&f, "12345\n", 6));
  set_limit(10);
  Err err = lines_add(&f, "abcdef\n", 7);
  set_limit(RLIM_INFINITY);
  assert_int_equal(err, ERR_WORK);
  assert_int_equal(f.lost, 1);
  OK(lines_add(&f, "67890\n", 6));
  lines_close(&f);
  assert_contents(at("limited"), "12345\n67890\n");
}

static void test_lines_partial_line_reports_the_file_size_limit(void **state) {
  (void)state;
  LineFile f;
  signal(SIGXFSZ, SIG_IGN);
  OK(lines_open(&f, at("too-large")));
  set_limit(4);
  Err err = lines_add(&f, "abcdef\n", 7);
  set_limit(RLIM_INFINITY);
  assert_int_equal(err, ERR_WORK);
  assert_says("File too large; the file size limit is reached: raise it with 'ulimit -f'");
  lines_close(&f);
  assert_contents(at("too-large"), "");
}

static void assert_fifo_refused(const char *path) {
  LineFile f;
  alarm(60); /* Waiting for a reader of the FIFO would never end. */
  assert_int_equal(lines_open(&f, path), ERR_WORK);
  alarm(0);
  assert_says("is a pipe, not a regular file");
}

static void test_lines_fifo_without_a_reader_is_refused(void **state) {
  (void)state;
  assert_int_equal(mkfifo(at("unread"), 0600), 0);
  assert_fifo_refused(at("unread"));
}

static void test_lines_fifo_with_a_reader_is_refused(void **state) {
  (void)state;
  assert_int_equal(mkfifo(at("read"), 0600), 0);
  int reader = open(at("read"), O_RDONLY | O_NONBLOCK);
  assert_true(reader >= 0);
  assert_fifo_refused(at("read"));
  close(reader);
}

static void test_lines_full_device_counts_what_is_lost(void **state) {
  (void)state;
  LineFile f;
  if (access("/dev/full", W_OK) != 0) skip();
  OK(lines_open(&f, "/dev/full"));
  for (int i = 0; i < 3; i++) {
    assert_int_equal(lines_add(&f, "x\n", 2), ERR_WORK);
    assert_says("cannot write /dev/full: No space left on device");
  }
  assert_int_equal(f.lost, 3);
  lines_close(&f);
}

/* Asserts that this line of the log is a time followed by the text. */
static void assert_timed(const char *line, const char *text) {
  static const char form[] = "0000-00-00T00:00:00Z  ";
  for (size_t i = 0; form[i]; i++) {
    bool fits = form[i] == '0' ? line[i] >= '0' && line[i] <= '9' : line[i] == form[i];
    if (!fits) fail_msg("\"%s\" does not begin with a time", line);
  }
  assert_string_equal(line + sizeof form - 1, text);
}

static void test_log_held_lines_come_first_with_their_times(void **state) {
  (void)state;
  Str text = {0};
  log_quiet(true);
  log_hold();
  log_info("before");
  OK(log_to(at("log.txt")));
  log_record("after");
  assert_int_equal(log_lost(), 0);
  log_to_end();
  log_info("too late");
  OK(file_read(at("log.txt"), 1 << 20, &text));
  char *second = strchr(text.s, '\n');
  assert_non_null(second);
  *second++ = '\0';
  assert_timed(text.s, "before");
  second[strcspn(second, "\n")] = '\0';
  assert_timed(second, "after");
  str_free(&text);
}

/* A status line on a terminal is written to the log file, with the time. */
static void test_log_live_line_has_a_time(void **state) {
  (void)state;
  Str text = {0};
  int real = dup(STDERR_FILENO), main_end = posix_openpt(O_RDWR | O_NOCTTY);
  if (main_end < 0 || grantpt(main_end) != 0 || unlockpt(main_end) != 0) skip();
  int terminal = open(ptsname(main_end), O_RDWR | O_NOCTTY);
  assert_true(real >= 0 && terminal >= 0);
  setenv("TERM", "xterm", 1);
  log_quiet(false);
  OK(log_to(at("live.txt")));
  dup2(terminal, STDERR_FILENO);
  bool live = log_is_live();
  log_live("step %d", 7);
  log_live_end();
  dup2(real, STDERR_FILENO);
  log_to_end();
  close(terminal), close(main_end), close(real);
  assert_true(live);
  OK(file_read(at("live.txt"), 1 << 20, &text));
  text.s[strcspn(text.s, "\n")] = '\0';
  assert_timed(text.s, "step 7");
  str_free(&text);
}

/* A warning may be logged between an error and err_context, which adds to the error's message. */
static void test_log_to_file_keeps_the_code_of_the_error(void **state) {
  (void)state;
  OK(log_to(at("log")));
  log_quiet(true);
  Err err = err_set(ERR_USAGE, "first");
  log_info("a line of the log");
  err = err_context("second");
  log_quiet(false);
  log_to_end();
  assert_int_equal(err, ERR_USAGE);
  assert_string_equal(err_message(), "second: first");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lines_appends),
      cmocka_unit_test(test_lines_incomplete_last_line_is_ended),
      cmocka_unit_test(test_lines_partial_line_is_removed),
      cmocka_unit_test(test_lines_partial_line_reports_the_file_size_limit),
      cmocka_unit_test(test_lines_fifo_without_a_reader_is_refused),
      cmocka_unit_test(test_lines_fifo_with_a_reader_is_refused),
      cmocka_unit_test(test_lines_full_device_counts_what_is_lost),
      cmocka_unit_test(test_log_held_lines_come_first_with_their_times),
      cmocka_unit_test(test_log_live_line_has_a_time),
      cmocka_unit_test(test_log_to_file_keeps_the_code_of_the_error),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
