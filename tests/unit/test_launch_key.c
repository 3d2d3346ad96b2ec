/* Key files: created with mode 0600, never overwritten, refused if other users can read them.
 * Depends on launch/key. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"

#include "launch/key.h"

static void write_file(const char *path, const char *text, mode_t mode) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
  assert_int_equal(fchmod(fd, mode), 0);
  close(fd);
}

#define DIGITS "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void test_key_create_writes_a_random_key_with_mode_0600(void **state) {
  (void)state;
  Key a, b;
  mode_t before = umask(0777); /* removes all permissions, even those of the owner */
  OK(key_create(at("a")));
  umask(0);
  OK(key_create(at("b")));
  umask(before);
  struct stat info;
  assert_int_equal(stat(at("a"), &info), 0);
  assert_int_equal(info.st_mode & 07777, 0600);
  assert_int_equal(stat(at("b"), &info), 0);
  assert_int_equal(info.st_mode & 07777, 0600);
  OK(key_read(at("a"), &a));
  OK(key_read(at("b"), &b));
  assert_memory_not_equal(&a, &b, sizeof a);
}

static void test_key_create_does_not_overwrite(void **state) {
  (void)state;
  write_file(at("there"), "precious", 0600);
  assert_int_equal(key_create(at("there")), ERR_WORK);
  assert_says("there exists: a key is not overwritten");
  Str text = {0};
  OK(file_read(at("there"), 100, &text));
  assert_string_equal(text.s, "precious");
  str_free(&text);
  /* A dangling link is not followed either. */
  assert_int_equal(symlink("nowhere", at("link")), 0);
  assert_int_equal(key_create(at("link")), ERR_WORK);
  assert_false(file_exists(at("nowhere")));
}

static void test_key_create_in_a_missing_directory_is_an_error(void **state) {
  (void)state;
  assert_int_equal(key_create(at("missing/key")), ERR_WORK);
  assert_says("cannot create");
}

static void test_key_read_gives_the_digits(void **state) {
  (void)state;
  Key key;
  write_file(at("good"), "trireme-key-1 " DIGITS "\n", 0400);
  OK(key_read(at("good"), &key));
  assert_int_equal(key.bytes[1], 0x11);
  assert_int_equal(key.bytes[31], 0xff);
  char text[KEY_TEXT];
  key_to_text(&key, text);
  assert_string_equal(text, DIGITS);
  key_wipe(&key);
  assert_int_equal(key.bytes[1], 0);
}

static void test_key_read_refuses_a_file_that_others_can_use(void **state) {
  (void)state;
  const mode_t modes[] = {0644, 0640, 0604, 0620, 0602, 0610};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    Key key;
    write_file(at("open"), "trireme-key-1 " DIGITS "\n", modes[i]);
    assert_int_equal(key_read(at("open"), &key), ERR_WORK);
    assert_says("can be read or written by other users (mode 06");
    assert_says("chmod 600");
  }
}

static void test_key_read_refuses_what_is_not_a_key(void **state) {
  (void)state;
  const char *const texts[] = {
      "",
      "trireme-key-1",
      "trireme-key-1 " DIGITS,
      "trireme-key-1 " DIGITS "\n\n",
      "trireme-key-2 " DIGITS "\n",
      "trireme-key-1 " DIGITS "0",
      "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAA\n",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    Key key;
    write_file(at("bad"), texts[i], 0600);
    assert_int_equal(key_read(at("bad"), &key), ERR_WORK);
    assert_says("bad is not a key file");
  }
}

static void test_key_read_refuses_a_wrong_digit_without_printing_the_key(void **state) {
  (void)state;
  Key key;
  write_file(at("bad"),
             "trireme-key-1 0011223344556677889"
             "gaabbccddeeff00112233445566778899aabbccddeeff\n",
             0600);
  assert_int_equal(key_read(at("bad"), &key), ERR_WORK);
  assert_says("not all of its 64 digits are hexadecimal");
  assert_null(strstr(err_message(), "112233"));
}

static void test_key_read_without_file_is_an_error(void **state) {
  (void)state;
  Key key;
  assert_int_equal(key_read(at("absent"), &key), ERR_WORK);
  assert_says("absent: No such file or directory");
}

static void test_key_from_text_needs_exactly_64_digits(void **state) {
  (void)state;
  Key key;
  assert_true(key_from_text(DIGITS, &key));
  assert_false(key_from_text("", &key));
  assert_false(key_from_text("00", &key));
  assert_false(key_from_text(DIGITS "0", &key));
  assert_false(key_from_text("x" DIGITS, &key));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_key_create_writes_a_random_key_with_mode_0600),
      cmocka_unit_test(test_key_create_does_not_overwrite),
      cmocka_unit_test(test_key_create_in_a_missing_directory_is_an_error),
      cmocka_unit_test(test_key_read_gives_the_digits),
      cmocka_unit_test(test_key_read_refuses_a_file_that_others_can_use),
      cmocka_unit_test(test_key_read_refuses_what_is_not_a_key),
      cmocka_unit_test(test_key_read_refuses_a_wrong_digit_without_printing_the_key),
      cmocka_unit_test(test_key_read_without_file_is_an_error),
      cmocka_unit_test(test_key_from_text_needs_exactly_64_digits),
  };
  return cmocka_run_group_tests_name("launch key", tests, make_scratch, remove_scratch);
}
