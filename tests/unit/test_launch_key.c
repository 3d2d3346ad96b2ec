/* Key files: created with mode 0600, never overwritten, refused if other users can read them.
 * Depends on launch/key.
 * run-tests: own program */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

/* A limit of the size of files stands for a full disk: the write is refused, or stops early. */
static void test_key_create_on_a_full_disk_is_an_error_and_leaves_no_file(void **state) {
  (void)state;
  struct rlimit before;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  for (rlim_t size = 0; size < 79; size += 13) {
    struct rlimit limit = {size, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    Err err = key_create(at("full"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(err, ERR_WORK);
    assert_says("cannot write");
    assert_says("full: File too large");
    assert_false(file_exists(at("full")));
  }
  signal(SIGXFSZ, SIG_DFL);
}

/* Replaces getrandom(2) of the C library in this program. */
static struct {
  bool is_replaced;
  int error, times; /* the first calls fail with this error */
  uint8_t next;     /* the next byte; a call returns five at most */
} source;

ssize_t getrandom(void *bytes, size_t n, unsigned flags) {
  if (!source.is_replaced) return (ssize_t)syscall(SYS_getrandom, bytes, n, flags);
  errno = source.error;
  if (source.times-- > 0) return -1;
  size_t given = n < 5 ? n : 5;
  for (size_t i = 0; i < given; i++) ((uint8_t *)bytes)[i] = source.next++;
  return (ssize_t)given;
}

static void test_key_make_asks_until_all_bytes_are_random(void **state) {
  (void)state;
  Key key;
  source.is_replaced = true;
  source.error = EINTR;
  source.times = 3;
  source.next = 0;
  OK(key_make(&key));
  for (int i = 0; i < KEY_BYTES; i++) assert_int_equal(key.bytes[i], i);
  source.error = ENOSYS;
  source.times = 1;
  Err err = key_create(at("random"));
  source.is_replaced = false;
  assert_int_equal(err, ERR_WORK);
  assert_says("cannot make a key from getrandom(2): Function not implemented");
  assert_false(file_exists(at("random")));
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
  static const char good[] = "trireme-key-1 " DIGITS "\n";
  const char *const texts[] = {
      "trireme-key-1 " DIGITS "\n\n",
      "trireme-key-2 " DIGITS "\n",
      "trireme-key-1 " DIGITS "0",
      "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAA\n",
  };
  Key key;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    write_file(at("bad"), texts[i], 0600);
    assert_int_equal(key_read(at("bad"), &key), ERR_WORK);
    assert_says("bad is not a key file");
  }
  for (size_t cut = 0; cut < sizeof good - 1; cut++) {
    char text[sizeof good] = "";
    memcpy(text, good, cut);
    write_file(at("bad"), text, 0600);
    assert_int_equal(key_read(at("bad"), &key), ERR_WORK);
    assert_says("bad is not a key file");
  }
}

/* Characters beside those that are digits, as the first and as the second of a byte. */
static void test_key_read_refuses_a_wrong_digit_without_printing_the_key(void **state) {
  (void)state;
  for (const char *c = "/:@G`g -"; *c; c++)
    for (size_t place = 18; place < 20; place++) {
      Key key;
      char text[] = "trireme-key-1 " DIGITS "\n";
      text[place] = *c;
      write_file(at("bad"), text, 0600);
      assert_int_equal(key_read(at("bad"), &key), ERR_WORK);
      assert_says("not all of its 64 digits are hexadecimal");
      assert_null(strstr(err_message(), "112233"));
    }
}

static void test_key_from_text_takes_all_digits(void **state) {
  (void)state;
  static const uint8_t values[] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};
  static const char *const texts[] = {"0123456789abcdef", "0123456789ABCDEF"};
  for (size_t i = 0; i < 2; i++) {
    Key key;
    char text[KEY_TEXT];
    snprintf(text, sizeof text, "%s%s%s%s", texts[i], texts[i], texts[i], texts[i]);
    assert_true(key_from_text(text, &key));
    for (int k = 0; k < KEY_BYTES; k++) assert_int_equal(key.bytes[k], values[k % 8]);
  }
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
      cmocka_unit_test(test_key_create_on_a_full_disk_is_an_error_and_leaves_no_file),
      cmocka_unit_test(test_key_make_asks_until_all_bytes_are_random),
      cmocka_unit_test(test_key_read_gives_the_digits),
      cmocka_unit_test(test_key_read_refuses_a_file_that_others_can_use),
      cmocka_unit_test(test_key_read_refuses_what_is_not_a_key),
      cmocka_unit_test(test_key_read_refuses_a_wrong_digit_without_printing_the_key),
      cmocka_unit_test(test_key_read_without_file_is_an_error),
      cmocka_unit_test(test_key_from_text_takes_all_digits),
      cmocka_unit_test(test_key_from_text_needs_exactly_64_digits),
  };
  return cmocka_run_group_tests_name("launch key", tests, make_scratch, remove_scratch);
}
