/* Data that must survive a power failure is synced, in the right order. The test replaces fsync
 * by a version that counts calls and fails if a test requests it.
 * run-tests: own program */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"

static int files_synced, folders_synced;
static bool fails;

int fsync(int fd) {
  struct stat about;
  assert_int_equal(fstat(fd, &about), 0);
  files_synced += S_ISREG(about.st_mode);
  folders_synced += S_ISDIR(about.st_mode);
  errno = EIO;
  return fails ? -1 : 0;
}

static int reset_counts(void **state) {
  (void)state;
  files_synced = folders_synced = 0;
  fails = false;
  return 0;
}

static void test_file_finish_syncs_the_file(void **state) {
  (void)state;
  FileWriter w;
  OK(file_create(&w, at("synced")));
  OK(file_put(&w, "text", 4));
  assert_int_equal(files_synced, 0);
  OK(file_finish(&w, NULL));
  assert_int_equal(files_synced, 1);
}

static void test_file_finish_failed_sync_is_an_error(void **state) {
  (void)state;
  FileWriter w;
  OK(file_create(&w, at("lost")));
  OK(file_put(&w, "text", 4));
  fails = true;
  assert_int_equal(file_finish(&w, NULL), ERR_WORK);
  assert_says("cannot sync");
  file_abandon(&w);
}

static void test_file_rename_syncs_the_folder(void **state) {
  (void)state;
  FileWriter w;
  OK(file_create(&w, at("from")));
  OK(file_finish(&w, NULL));
  assert_int_equal(folders_synced, 0);
  OK(file_rename(at("from"), at("to")));
  assert_int_equal(folders_synced, 1);
}

static void test_file_rename_failed_sync_is_an_error(void **state) {
  (void)state;
  FileWriter w;
  OK(file_create(&w, at("first")));
  OK(file_finish(&w, NULL));
  fails = true;
  assert_int_equal(file_rename(at("first"), at("second")), ERR_WORK);
  assert_says("cannot sync");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_file_finish_syncs_the_file, reset_counts),
      cmocka_unit_test_setup(test_file_finish_failed_sync_is_an_error, reset_counts),
      cmocka_unit_test_setup(test_file_rename_syncs_the_folder, reset_counts),
      cmocka_unit_test_setup(test_file_rename_failed_sync_is_an_error, reset_counts),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
