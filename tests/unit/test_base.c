/* The base module: errors, memory, strings, UTF-8, threads, messages. Its random numbers are
 * in test_rng.c, files and hashes in test_file.c. Depends on base, cmocka. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/stop.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "support.h"

/* ---- err ---- */

static void test_err_context_is_put_before_the_message(void **state) {
  (void)state;
  assert_int_equal(err_set(ERR_USAGE, "first %d", 1), ERR_USAGE);
  assert_string_equal(err_message(), "first 1");
  assert_int_equal(err_set(ERR_WORK, "after %s", err_message()), ERR_WORK);
  assert_string_equal(err_message(), "after first 1");
  assert_int_equal(err_context("file:%d", 7), ERR_WORK);
  assert_string_equal(err_message(), "file:7: after first 1");
  ErrRecord kept = err_take(ERR_USAGE);
  err_set(ERR_WORK, "another");
  assert_int_equal(err_give(&kept), ERR_USAGE);
  assert_string_equal(err_message(), "file:7: after first 1");
  char long_text[5000];
  memset(long_text, 'x', sizeof long_text);
  long_text[sizeof long_text - 1] = '\0';
  err_set(ERR_WORK, "%s", long_text);
  assert_int_equal(strlen(err_message()), sizeof kept.text - 1);
  err_context("%s", long_text);
  assert_int_equal(strlen(err_message()), sizeof kept.text - 1);
}

static void test_err_errno_adds_a_remedy(void **state) {
  (void)state;
  static const struct {
    int error;
    const char *remedy;
  } cases[] = {{ENOSPC, "free some space"}, {EACCES, "permissions"}, {EMFILE, "ulimit -n"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    errno = cases[i].error;
    assert_int_equal(err_errno("cannot write", "some/file"), ERR_WORK);
    assert_says("cannot write some/file: ");
    assert_says(strerror(cases[i].error));
    assert_says(cases[i].remedy);
  }
}

/* ---- mem ---- */

static void test_mem_overflow_and_zero_are_handled(void **state) {
  (void)state;
  uint64_t before = mem_count();
  int *zeros = NULL;
  OK(mem_alloc(&zeros, 100, sizeof *zeros));
  for (int i = 0; i < 100; i++) assert_int_equal(zeros[i], 0);
  assert_int_equal(mem_count(), before + 1);
  mem_free(zeros);
  /* The product of count and size overflows. */
  assert_int_equal(mem_alloc(&zeros, SIZE_MAX / 2, 4), ERR_WORK);
  assert_null(zeros);
  assert_says("out of memory");
  OK(mem_alloc(&zeros, 0, sizeof *zeros));
  assert_non_null(zeros);
  mem_free(zeros);
  char *copy;
  OK(mem_dup(&copy, "a\0b", 3));
  assert_memory_equal(copy, "a\0b", 4);
  mem_free(copy);
  OK(mem_dup(&copy, NULL, 0));
  assert_string_equal(copy, "");
  mem_free(copy);
  mem_free(NULL);
}

static void test_mem_grow_grows_by_half(void **state) {
  (void)state;
  uint64_t *list = NULL, before = mem_count();
  size_t cap = 0;
  for (size_t n = 0; n < 100000; n++) {
    OK(mem_grow(&list, &cap, n + 1, sizeof *list));
    assert_true(cap > n);
    list[n] = n;
  }
  assert_true(mem_count() - before < 30);
  for (size_t n = 0; n < 100000; n++) assert_int_equal(list[n], n);
  uint64_t *same = list;
  size_t cap_before = cap;
  assert_int_equal(mem_grow(&list, &cap, SIZE_MAX / 4, sizeof *list), ERR_WORK);
  assert_ptr_equal(list, same); /* The array has not moved, and its contents are kept. */
  assert_int_equal(cap, cap_before);
  mem_free(list);
}

static void test_mem_fail_after_fails_the_nth_allocation(void **state) {
  (void)state;
  char *a, *b = NULL;
  mem_fail_after(2);
  Err first = mem_dup(&a, "x", 1), second = mem_dup(&b, "y", 1);
  mem_fail_after(0);
  assert_int_equal(first, ERR_OK);
  assert_int_equal(second, ERR_WORK);
  assert_null(b);
  assert_says("out of memory");
  mem_free(a);
  Str text = {0};
  str_add(&text, "kept");
  mem_fail_after(1);
  for (int i = 0; i < 100; i++) str_addf(&text, "%0300d", i);
  mem_fail_after(0);
  str_add(&text, "not after a failure");
  assert_int_equal(str_check(&text), ERR_WORK);
  assert_string_equal(str_text(&text), "kept");
  str_clear(&text);
  str_add(&text, "again");
  OK(str_check(&text));
  assert_string_equal(str_text(&text), "again");
  str_free(&text);
}

/* ---- str ---- */

static void test_str_add_grows(void **state) {
  (void)state;
  Str text = {0};
  assert_string_equal(str_text(&text), "");
  str_addn(&text, NULL, 0);
  assert_string_equal(str_text(&text), "");
  for (int i = 0; i < 1000; i++) str_addf(&text, "%d,", i);
  str_addc(&text, '!');
  assert_int_equal(text.len, 10 * 2 + 90 * 3 + 900 * 4 + 1);
  assert_true(str_ends(text.s, "998,999,!") && str_starts(text.s, "0,1,2,"));
  str_clear(&text);
  str_addf(&text, "%0300d|", 7); /* longer than the small buffer of str_addf */
  assert_int_equal(text.len, 301);
  assert_true(str_ends(text.s, "07|"));
  str_free(&text);
  assert_false(str_ends("a", "ba"));
  assert_int_equal(str_distance("kitten", "sitting"), 3);
  assert_int_equal(str_distance("", "abc"), 3);
  assert_int_equal(str_distance("abc", ""), 3);
  assert_int_equal(str_distance("same", "same"), 0);
}

static void test_str_count_and_bytes_are_parsed(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t count, bytes; /* expected values; -1: the text is refused */
  } cases[] = {
      {"0", 0, 0},
      {"25k", 25000, 25600},
      {"25K", 25000, 25600},
      {"2M", 2000000, 2097152},
      {"1G", 1000000000, 1073741824},
      {"3T", 3000000000000, 3298534883328},
      {"1.5k", 1500, 1536},
      {"1.001k", 1001, -1},
      {"1e3", 1000, 1000},
      {"+5", 5, 5},
      {".5k", 500, 512},
      {"64MB", -1, 67108864},
      {"64B", -1, 64},
      {"9000000000000000", 9000000000000000, 9000000000000000},
      {"9007199254740993", -1, -1}, /* not representable as a double */
      {"10000T", -1, -1},
      {"", -1, -1},
      {"k", -1, -1},
      {" 5", -1, -1},
      {"5 ", -1, -1},
      {"5x", -1, -1},
      {"5kk", -1, -1},
      {"1.5", -1, -1},
      {"0.0001k", -1, -1},
      {"0x10", -1, -1},
      {"-0X1", -1, -1},
      {"nan", -1, -1},
      {"-nan", -1, -1},
      {"inf", -1, -1},
      {"+inf", -1, -1},
      {"1e309", -1, -1},
      {"1e-400", -1, -1},
      {"--5", -1, -1},
      {"+-5", -1, -1},
      {"-", -1, -1},
      {".", -1, -1},
      {"1,000", -1, -1},
      {"\xd9\xa3", -1, -1}, /* the Arabic digit 3 */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t count = -1, bytes = -1;
    Err c = str_count(cases[i].text, &count), b = str_bytes(cases[i].text, &bytes);
    if (count != cases[i].count || bytes != cases[i].bytes)
      fail_msg("'%s' is %lld and %lld", cases[i].text, (long long)count, (long long)bytes);
    assert_int_equal(c, cases[i].count < 0 ? ERR_USAGE : ERR_OK);
    assert_int_equal(b, cases[i].bytes < 0 ? ERR_USAGE : ERR_OK);
    if (c || b) assert_says(cases[i].text);
  }
  int64_t value;
  OK(str_count("-7", &value));
  assert_int_equal(value, -7);
  for (int i = 0; i < 20000; i++) { /* every number from 0.000k to 19.999k */
    char text[32];
    snprintf(text, sizeof text, "%d.%03dk", i / 1000, i % 1000);
    OK(str_count(text, &value));
    assert_int_equal(value, i);
    snprintf(text, sizeof text, "%d.%03d5k", i / 1000, i % 1000);
    assert_int_equal(str_count(text, &value), ERR_USAGE);
  }
}

static void test_str_seconds_and_real_are_parsed(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double seconds; /* expected value; -1: the text is refused */
  } cases[] = {
      {"90", 90},           {"90s", 90},    {"15m", 900},  {"2h", 7200},   {"1d", 86400},
      {"1h30m", 5400},      {"500ms", 0.5}, {"1.5m", 90},  {"10m5s", 605}, {"0", 0},
      {"1h30", -1},         {"-5", -1},     {"1h-5m", -1}, {"", -1},       {"s", -1},
      {"5x", -1},           {"1h 30m", -1}, {"1hm", -1},   {"nan", -1},    {"1e308d", -1},
      {"9e307h9e307h", -1}, {"5s ", -1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double seconds = -1;
    Err err = str_seconds(cases[i].text, &seconds);
    if (fabs(seconds - cases[i].seconds) > 1e-9)
      fail_msg("'%s' is %g s", cases[i].text, seconds);
    assert_int_equal(err, cases[i].seconds < 0 ? ERR_USAGE : ERR_OK);
  }
  double real;
  OK(str_real("-2.5e-3", &real));
  assert_true(fabs(real + 0.0025) < 1e-12);
  static const char *const wrong[] = {"", "1.5.2", "nan", "inf", "0x1p3", "1 ", "e5", "1k"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(str_real(wrong[i], &real), ERR_USAGE);
}

static void test_str_of_numbers_are_formatted(void **state) {
  (void)state;
  char out[32];
  assert_string_equal(str_of_count(out, 0), "0");
  assert_string_equal(str_of_count(out, 999), "999");
  assert_string_equal(str_of_count(out, 1000), "1,000");
  assert_string_equal(str_of_count(out, 12345678), "12,345,678");
  assert_string_equal(str_of_count(out, UINT64_MAX), "18,446,744,073,709,551,615");
  assert_string_equal(str_of_bytes(out, 999), "999 B");
  assert_string_equal(str_of_bytes(out, 1000), "1.0 kB");
  assert_string_equal(str_of_bytes(out, 99949), "99.9 kB");
  assert_string_equal(str_of_bytes(out, 99950), "100 kB");
  assert_string_equal(str_of_bytes(out, 999500), "1.0 MB");
  assert_string_equal(str_of_bytes(out, 11800000), "11.8 MB");
  assert_string_equal(str_of_bytes(out, UINT64_MAX), "18447 PB");
  assert_string_equal(str_of_seconds(out, 0.25), "0.2s");
  assert_string_equal(str_of_seconds(out, 59.4), "59s");
  assert_string_equal(str_of_seconds(out, 59.6), "1m 00s");
  assert_string_equal(str_of_seconds(out, 125), "2m 05s");
  assert_string_equal(str_of_seconds(out, 3599.7), "1h 00m");
  assert_string_equal(str_of_seconds(out, 90061), "25h 01m");
  assert_string_equal(str_of_seconds(out, 200000), "2d 07h");
  assert_string_equal(str_of_seconds(out, -3), "0.0s");
  assert_true(strlen(str_of_seconds(out, INFINITY)) < 8);
  assert_true(strlen(str_of_seconds(out, NAN)) < 8);
}

/* ---- utf8 ---- */

/* Returns the length of a well-formed sequence according to table 3-7 of the Unicode standard,
 * which has ranges of the first and second byte; all other bytes are 80 to bf. */
static size_t reference(const uint8_t *b, size_t n) {
  static const struct {
    uint8_t first, last, low, high;
    size_t len;
  } rows[] = {
      {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
      {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
      {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    if (b[0] < rows[r].first || b[0] > rows[r].last || rows[r].len > n) continue;
    if (rows[r].len > 1 && (b[1] < rows[r].low || b[1] > rows[r].high)) return 0;
    for (size_t i = 2; i < rows[r].len; i++) {
      if ((b[i] & 0xc0) != 0x80) return 0;
    }
    return rows[r].len;
  }
  return 0;
}

static void test_utf8_decode_rejects_invalid_bytes(void **state) {
  (void)state;
  static const uint8_t edges[] = {0x00, 0x41, 0x7f, 0x80, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
  for (unsigned first = 0; first < 256; first++) {
    for (unsigned second = 0; second < 256; second++) {
      for (size_t e = 0; e < sizeof edges * sizeof edges; e++) {
        uint8_t b[4] = {(uint8_t)first, (uint8_t)second, edges[e / sizeof edges],
                        edges[e % sizeof edges]};
        /* n: number of bytes that are passed; fewer than four truncate the sequence */
        for (size_t n = 1; n <= 4; n++) {
          uint32_t code = 0;
          const char *p = (const char *)b;
          if (utf8_decode(p, p + n, &code) != reference(b, n))
            fail_msg("%02x %02x %02x %02x, %zu bytes", b[0], b[1], b[2], b[3], n);
        }
      }
    }
  }
  uint32_t code;
  assert_int_equal(utf8_decode("a", "a", &code), 0); /* An empty text has no character. */
}

static void test_utf8_encode_and_decode_round_trip(void **state) {
  (void)state;
  for (uint32_t code = 0; code <= 0x10ffff; code++) {
    if (code == 0xd800) code = 0xe000;
    char bytes[4];
    uint32_t back = UINT32_MAX;
    size_t n = utf8_encode(code, bytes);
    if (utf8_decode(bytes, bytes + n, &back) != n || back != code) fail_msg("U+%04X", code);
  }
}

static void test_utf8_valid_returns_the_first_bad_byte(void **state) {
  (void)state;
  char text[64];
  for (size_t len = 0; len <= 40; len++) {
    for (size_t bad = 0; bad <= len; bad++) {
      memset(text, 'a', sizeof text);
      if (bad < len) text[bad] = (char)0xff;
      assert_int_equal(utf8_valid(text, len), bad);
    }
  }
  static const char mixed[] = "ab\xc3\xa4xyz\xe2\x82\xac....\xf0\x9f\x98\x80";
  size_t len = sizeof mixed - 1;
  assert_int_equal(utf8_valid(mixed, len), len);
  assert_int_equal(utf8_valid(mixed, len - 1), len - 4); /* The last character is truncated. */
  assert_int_equal(utf8_valid(mixed, 3), 2);
  assert_int_equal(utf8_valid("a\0b", 3), 3); /* A NUL byte is a character. */
}

static void test_utf8_is_space_follows_unicode(void **state) {
  (void)state;
  static const uint32_t spaces[] = {0x09,   0x0a,   0x0b,   0x0c,   0x0d,   0x20,   0x85,
                                    0xa0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                    0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200a, 0x2028,
                                    0x2029, 0x202f, 0x205f, 0x3000};
  size_t next = 0, n = sizeof spaces / sizeof *spaces;
  for (uint32_t code = 0; code <= 0x10ffff; code++) {
    bool space = next < n && spaces[next] == code;
    next += space;
    if (utf8_is_space(code) != space) fail_msg("U+%04X", code);
  }
  assert_int_equal(next, n);
}

/* ---- escaping for messages ---- */

static void assert_shown(const char *text, const char *expected) {
  char out[64];
  utf8_visible(text, out, sizeof out);
  assert_string_equal(out, expected);
  char again[64];
  utf8_visible(out, again, sizeof again);
  assert_string_equal(again, expected);
}

static void test_visible_controls_are_escaped(void **state) {
  (void)state;
  assert_shown("a\x1b[2Jb\nc\td\re\x7f", "a\\x1b[2Jb\\nc\\td\\re\\x7f");
}

static void test_visible_c1_and_bidi_marks_are_escaped(void **state) {
  (void)state;
  assert_shown(
      "\xc2\x9b"
      "2J\xe2\x80\xae"
      "x\xe2\x81\xa6\xe2\x80\xa8",
      "\\u{9b}2J\\u{202e}x\\u{2066}\\u{2028}");
}

static void test_visible_bytes_that_are_not_utf8_are_escaped(void **state) {
  (void)state;
  assert_shown("caf\xe9 \xe2\x80", "caf\\xe9 \\xe2\\x80");
}

static void test_visible_printable_text_is_unchanged(void **state) {
  (void)state;
  assert_shown("Tür – 門 \\n 🚪", "Tür – 門 \\n 🚪");
}

static void test_visible_room_too_small_cuts_whole_characters(void **state) {
  (void)state;
  char out[5];
  assert_int_equal(utf8_visible("ab\x1b"
                                "c",
                                out, sizeof out),
                   2);
  assert_string_equal(out, "ab");
  assert_int_equal(utf8_visible("aüü", out, sizeof out), 3);
  assert_string_equal(out, "aü");
}

static void test_err_set_control_characters_are_visible(void **state) {
  (void)state;
  err_set(ERR_WORK, "cannot open %s", "\x1b]0;x\a\n");
  assert_string_equal(err_message(), "cannot open \\x1b]0;x\\x07\\n");
}

/* A datagram socket preserves the boundaries between writes. */
static void test_log_error_of_a_rank_is_one_write(void **state) {
  (void)state;
  int pair[2], kept = dup(STDERR_FILENO);
  char got[2][128];
  assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
  assert_true(kept >= 0 && dup2(pair[1], STDERR_FILENO) >= 0);
  log_speaker("rank 2 on a: ");
  log_error("wrong %d", 1);
  log_from_signal("ended");
  log_speaker("");
  dup2(kept, STDERR_FILENO);
  close(kept);
  for (int i = 0; i < 2; i++) {
    ssize_t n = recv(pair[0], got[i], sizeof got[i] - 1, MSG_DONTWAIT);
    assert_true(n > 0);
    got[i][n] = '\0';
  }
  assert_string_equal(got[0], "trireme: rank 2 on a: wrong 1\n");
  assert_string_equal(got[1], "trireme: rank 2 on a: ended\n");
  close(pair[0]);
  close(pair[1]);
}

static void test_thread_cores_is_at_least_one(void **state) {
  (void)state;
  assert_true(thread_cores() >= 1);
}

/* ---- log, progress, stop: standard error is a file ---- */

static void test_log_message_in_a_pipe_is_plain(void **state) {
  (void)state;
  fflush(stderr);
  int kept = dup(STDERR_FILENO);
  int fd = open(at("stderr"), O_RDWR | O_CREAT | O_TRUNC, 0600);
  assert_true(kept >= 0 && fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
  setenv("TERM", "xterm", 1);
  log_info("told");
  log_warn("careful %d", 1);
  log_error("wrong");
  log_info("%s", "a\x1b[1mb\nc");
  Progress p;
  progress_begin(&p, "count", "things", 10);
  progress_set(&p, 5);
  progress_set(&p, 10);
  progress_end(&p);
  log_quiet(true);
  bool quiet = log_is_quiet(), terminal = log_is_terminal(), color = log_has_color();
  log_info("not told");
  log_warn("still");
  progress_end(&p);
  log_quiet(false);
  fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  close(fd);
  assert_true(quiet && !terminal && !color);
  Str text = {0};
  OK(file_read(at("stderr"), 10000, &text));
  assert_null(strchr(text.s, '\033'));
  assert_null(strchr(text.s, '\r'));
  assert_true(str_starts(text.s,
                         "told\nwarning: careful 1\ntrireme: wrong\na\\x1b[1mb\\nc\n"
                         "count: 10 things in "));
  assert_true(str_ends(text.s, " things/s\nwarning: still\n"));
  assert_null(strstr(text.s, "not told"));
  str_free(&text);
}

/* Runs `child` in a separate process; returns its wait status. */
static int run_child(void (*child)(void)) {
  int status;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    child();
    _exit(0);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}

static void interrupt_once(void) {
  stop_watch();
  raise(SIGINT);
  _exit(stop_asked() ? 10 : 11);
}

static void interrupt_twice(void) {
  stop_watch();
  raise(SIGINT);
  raise(SIGINT);
}

static void announce_then_terminate(void) {
  stop_watch();
  raise(SIGUSR1);
  raise(SIGTERM);
  _exit(stop_asked() && !stop_hurried() ? 10 : 11);
}

/* A batch system sends both. */
static void test_stop_signal_after_sigusr1_asks_for_the_same(void **state) {
  (void)state;
  int status = run_child(announce_then_terminate);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 10);
}

static const char *const stop_answers[2] = {"first answer", "second answer"};

/* Raises SIGUSR1 and twice SIGINT, and prints the answers to standard error. */
static void announce_then_interrupt(void) {
  int file = open(at("answers"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  bool is_open = dup2(file, STDERR_FILENO) == STDERR_FILENO;
  stop_watch_twice(stop_answers);
  raise(SIGUSR1);
  raise(SIGINT);
  if (!is_open || stop_hurried()) _exit(11);
  raise(SIGINT);
  _exit(stop_hurried() ? 10 : 12);
}

static void test_stop_ctrl_c_after_sigusr1_is_answered(void **state) {
  (void)state;
  Str text = {0};
  int status = run_child(announce_then_interrupt);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 10);
  OK(file_read(at("answers"), 1000, &text));
  assert_string_equal(str_text(&text), "first answer\nfirst answer\nsecond answer\n");
  str_free(&text);
}

static void test_stop_first_signal_sets_the_flag(void **state) {
  (void)state;
  assert_false(stop_asked());
  int status = run_child(interrupt_once);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 10);
}

static void test_stop_second_signal_ends_the_program(void **state) {
  (void)state;
  int status = run_child(interrupt_twice);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGINT);
}

static void assert_shell_word(const char *word, const char *expected) {
  Str out = {0};
  str_add_shell(&out, word);
  assert_string_equal(str_text(&out), expected);
  str_free(&out);
}

static void test_str_add_shell_plain_path_is_not_quoted(void **state) {
  (void)state;
  assert_shell_word("runs/mine-2.0_a,b=c:d@e%+", "runs/mine-2.0_a,b=c:d@e%+");
  assert_shell_word("l\303\244ufe/1", "l\303\244ufe/1");
}

static void test_str_add_shell_blanks_and_signs_are_quoted(void **state) {
  (void)state;
  assert_shell_word("my runs/1", "'my runs/1'");
  assert_shell_word("a$b", "'a$b'");
  assert_shell_word("~", "'~'");
  assert_shell_word("", "''");
}

static void test_str_add_shell_quote_ends_and_begins_again(void **state) {
  (void)state;
  assert_shell_word("it's", "'it'\\''s'");
}

static void test_str_add_shell_control_characters_are_written_in_octal(void **state) {
  (void)state;
  assert_shell_word("a\nb\033'\\", "$'a\\012b\\033\\'\\\\'");
}

static void test_str_add_shell_bytes_that_messages_change_are_written_in_octal(void **state) {
  (void)state;
  assert_shell_word("a\xff", "$'a\\377'");
  /* U+202E, right-to-left override */
  assert_shell_word("\342\200\256x", "$'\\342\\200\\256x'");
}

static void check_escape(const char *text, const char *expected) {
  char out[64];
  assert_true(utf8_escape(text, out, sizeof out));
  assert_string_equal(out, expected);
}

static void test_utf8_escape_other_bytes_become_hexadecimal(void **state) {
  (void)state;
  check_escape("", "");
  check_escape("plain.en", "plain.en");
  check_escape("d\xc3\xa9j\xc3\xa0", "d\xc3\xa9j\xc3\xa0");
  check_escape("caf\xe9.en", "caf\\xe9.en");
  /* a byte that is never UTF-8, then a truncated character */
  check_escape("\xff\xc3", "\\xff\\xc3");
  /* A literal backslash must not look like an escape. */
  check_escape("a\\xe9", "a\\x5cxe9");
}

static void test_utf8_escape_without_room_fails(void **state) {
  (void)state;
  char out[5];
  assert_true(utf8_escape("\xff", out, 5));
  assert_false(utf8_escape("\xff", out, 4));
  assert_true(utf8_escape("abcd", out, 5));
  assert_false(utf8_escape("abcde", out, 5));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_err_context_is_put_before_the_message),
      cmocka_unit_test(test_str_add_shell_plain_path_is_not_quoted),
      cmocka_unit_test(test_str_add_shell_blanks_and_signs_are_quoted),
      cmocka_unit_test(test_str_add_shell_quote_ends_and_begins_again),
      cmocka_unit_test(test_str_add_shell_control_characters_are_written_in_octal),
      cmocka_unit_test(test_str_add_shell_bytes_that_messages_change_are_written_in_octal),
      cmocka_unit_test(test_err_errno_adds_a_remedy),
      cmocka_unit_test(test_mem_overflow_and_zero_are_handled),
      cmocka_unit_test(test_mem_grow_grows_by_half),
      cmocka_unit_test(test_mem_fail_after_fails_the_nth_allocation),
      cmocka_unit_test(test_str_add_grows),
      cmocka_unit_test(test_str_count_and_bytes_are_parsed),
      cmocka_unit_test(test_str_seconds_and_real_are_parsed),
      cmocka_unit_test(test_str_of_numbers_are_formatted),
      cmocka_unit_test(test_utf8_decode_rejects_invalid_bytes),
      cmocka_unit_test(test_utf8_encode_and_decode_round_trip),
      cmocka_unit_test(test_utf8_valid_returns_the_first_bad_byte),
      cmocka_unit_test(test_utf8_is_space_follows_unicode),
      cmocka_unit_test(test_visible_controls_are_escaped),
      cmocka_unit_test(test_visible_c1_and_bidi_marks_are_escaped),
      cmocka_unit_test(test_visible_bytes_that_are_not_utf8_are_escaped),
      cmocka_unit_test(test_visible_printable_text_is_unchanged),
      cmocka_unit_test(test_visible_room_too_small_cuts_whole_characters),
      cmocka_unit_test(test_err_set_control_characters_are_visible),
      cmocka_unit_test(test_thread_cores_is_at_least_one),
      cmocka_unit_test(test_log_message_in_a_pipe_is_plain),
      cmocka_unit_test(test_log_error_of_a_rank_is_one_write),
      cmocka_unit_test(test_stop_first_signal_sets_the_flag),
      cmocka_unit_test(test_stop_signal_after_sigusr1_asks_for_the_same),
      cmocka_unit_test(test_stop_ctrl_c_after_sigusr1_is_answered),
      cmocka_unit_test(test_stop_second_signal_ends_the_program),
      cmocka_unit_test(test_utf8_escape_other_bytes_become_hexadecimal),
      cmocka_unit_test(test_utf8_escape_without_room_fails),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
