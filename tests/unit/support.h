/* Helpers for all unit tests: calls that must succeed, errors that must contain a text, and a
 * scratch directory for the test program. Include after the headers that cmocka needs. */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

#define UNUSED __attribute__((unused))

#define OK(call) assert_ok((call), #call)
UNUSED static void assert_ok(Err err, const char *what) {
  if (err) fail_msg("%s: %s", what, err_message());
}

/* cmocka 1 and 2 have other names for this. */
#define assert_between(value, low, high) \
  check_between((uint64_t)(value), (uint64_t)(low), (uint64_t)(high), #value, __LINE__)
UNUSED static void check_between(uint64_t value, uint64_t low, uint64_t high, const char *what,
                                 int line) {
  if (value < low || value > high)
    fail_msg("line %d: %s is %llu, not from %llu to %llu", line, what,
             (unsigned long long)value, (unsigned long long)low, (unsigned long long)high);
}

UNUSED static void assert_says(const char *words) {
  if (!strstr(err_message(), words)) fail_msg("\"%s\" lacks \"%s\"", err_message(), words);
}

UNUSED static char scratch[] = "/tmp/trireme-test-XXXXXX";

/* Returns a path in the scratch directory; the last four paths stay valid. */
UNUSED static const char *at(const char *name) {
  static char path[4][FILE_PATH_MAX];
  static int turn;
  turn = (turn + 1) % 4;
  OK(file_join(path[turn], scratch, name));
  return path[turn];
}

UNUSED static int make_scratch(void **state) {
  (void)state;
  return mkdtemp(scratch) ? 0 : -1;
}

UNUSED static int remove_scratch(void **state) {
  (void)state;
  return (int)file_remove_all(scratch);
}

/* Skips the current test under qemu-user (scripts/cross), which lacks what the test needs. */
UNUSED static void skip_if_emulated(void) {
  if (getenv("TEST_EMULATED")) skip();
}

#endif
