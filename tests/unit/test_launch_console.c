/* The console of launch: whole lines, log files, what a terminal overwrites. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "launch/console.h"
#include "launch/protocol.h"
#include "support.h"

typedef struct {
  char dir[64], log[80], run[80];
  int saved[2]; /* standard output and error of the test */
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

/* Sends standard output and error to DIR/out and DIR/err until release_console. */
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
  fflush(NULL);
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

static void test_console_logs_wait_until_the_run_exists(void **state) {
  Fixture *f = *state;
  char path[FILE_PATH_MAX];
  Console *c = open_in_run(f);
  add(c, 0, OUTPUT_STDERR, "before\n");
  assert_int_equal(file_mkdirs(f->run), ERR_OK);
  assert_int_equal(file_join(path, f->run, "config"), ERR_OK);
  assert_int_equal(file_write(path, "", 0), ERR_OK);
  add(c, 0, OUTPUT_STDERR, "after\n");
  close_console(f, c);
  assert_file(f, "run/launch/rank-0.log", "before\nafter\n");
}

static void test_console_makes_no_run(void **state) {
  Fixture *f = *state;
  Console *c = open_in_run(f);
  add(c, 0, OUTPUT_STDERR, "trireme: wrong option\n");
  close_console(f, c);
  assert_false(file_exists(f->run));
  assert_file(f, "err", "trireme: wrong option\n");
}

static void test_console_unwritable_log_is_an_error_at_the_end(void **state) {
  Fixture *f = *state;
  assert_int_equal(file_write(f->log, "a file", 6), ERR_OK); /* not a directory */
  Console *c = open_console(f, false);
  add(c, 0, OUTPUT_STDERR, "line\n");
  Err err = console_close(c);
  release_console(f);
  assert_int_equal(err, ERR_WORK);
  assert_file(f, "err", "line\n");
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
      CASE(test_console_makes_no_run),
      CASE(test_console_unwritable_log_is_an_error_at_the_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
