/* Files when calls of the kernel fail, are interrupted or do less than was asked, and the order in
 * which data that must survive a power failure is synced. The calls are replaced in this program.
 * run-tests: own program */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/place.h"
#include "support.h"

static int files_synced, folders_synced;
static ino_t synced_folder; /* the last one */

/* The calls named `name` fail with `error`, `times` of them, after `after` that succeed. */
static struct {
  const char *name;
  int error, after, times;
} failure;
static int calls;   /* calls of the function failure.name */
static size_t most; /* bytes that one call reads or writes at most; 0: all */
static int paused;  /* milliseconds that poll() has waited */
static const char *link_target;
static struct statvfs space;

static bool is_failing(const char *name) {
  if (!failure.name || strcmp(failure.name, name) != 0) return false;
  int call = calls++;
  if (call < failure.after || call >= failure.after + failure.times) return false;
  errno = failure.error;
  return true;
}

static void fail_calls(const char *name, int error, int times) {
  failure.name = name;
  failure.error = error;
  failure.after = 0;
  failure.times = times;
  calls = 0;
}

static size_t limit_bytes(size_t n) {
  return most && n > most ? most : n;
}

int fsync(int fd) {
  struct stat about;
  assert_int_equal(fstat(fd, &about), 0);
  files_synced += S_ISREG(about.st_mode);
  folders_synced += S_ISDIR(about.st_mode);
  if (S_ISDIR(about.st_mode)) synced_folder = about.st_ino;
  return is_failing("fsync") ? -1 : 0;
}

int fstat(int fd, struct stat *about) {
  return is_failing("fstat") ? -1 : fstatat(fd, "", about, AT_EMPTY_PATH);
}

ssize_t read(int fd, void *bytes, size_t n) {
  return is_failing("read") ? -1 : (ssize_t)syscall(SYS_read, fd, bytes, limit_bytes(n));
}

ssize_t pread(int fd, void *bytes, size_t n, off_t offset) {
  return is_failing("pread") ? -1
                             : (ssize_t)syscall(SYS_pread64, fd, bytes, limit_bytes(n), offset);
}

ssize_t write(int fd, const void *bytes, size_t n) {
  return is_failing("write") ? -1 : (ssize_t)syscall(SYS_write, fd, bytes, limit_bytes(n));
}

int close(int fd) {
  bool fails = is_failing("close");
  int code = (int)syscall(SYS_close, fd);
  if (fails) errno = failure.error;
  return fails ? -1 : code;
}

int flock(int fd, int operation) {
  return is_failing("flock") ? -1 : (int)syscall(SYS_flock, fd, operation);
}

int unlink(const char *path) {
  return is_failing("unlink") ? -1 : unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path) {
  return is_failing("rmdir") ? -1 : unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int poll(struct pollfd *fds, nfds_t n, int milliseconds) {
  (void)fds;
  assert_int_equal(n, 0);
  paused += milliseconds;
  return 0;
}

ssize_t readlink(const char *restrict path, char *restrict to, size_t room) {
  if (is_failing("readlink")) return -1;
  if (!link_target) return readlinkat(AT_FDCWD, path, to, room);
  size_t n = strlen(link_target) < room ? strlen(link_target) : room;
  memcpy(to, link_target, n);
  return (ssize_t)n;
}

int statvfs(const char *restrict path, struct statvfs *restrict about) {
  (void)path;
  *about = space;
  return is_failing("statvfs") ? -1 : 0;
}

static int reset_calls(void **state) {
  (void)state;
  files_synced = folders_synced = paused = calls = 0;
  failure.name = NULL;
  most = 0;
  link_target = NULL;
  unsetenv("TRIREME_FAULT");
  return 0;
}

static void assert_fails(Err err, const char *words) {
  reset_calls(NULL);
  assert_int_equal(err, ERR_WORK);
  assert_says(words);
}

static ino_t find_inode(const char *path) {
  struct stat about;
  assert_int_equal(stat(path, &about), 0);
  return about.st_ino;
}

static void assert_content(const char *path, const char *bytes, size_t n) {
  Str text = {0};
  OK(file_read(path, (size_t)1 << 20, &text));
  assert_int_equal(text.len, n);
  if (n) assert_memory_equal(text.s, bytes, n);
  str_free(&text);
}

/* Returns the number of open descriptors of this process. */
static int count_descriptors(void) {
  int n = 0;
  for (int fd = 0; fd < 200; fd++) n += fcntl(fd, F_GETFD) >= 0;
  return n;
}

/* ---- syncing ---- */

static void test_file_finish_syncs_the_file(void **state) {
  (void)state;
  FileWriter w;
  OK(file_create(&w, at("synced")));
  OK(file_put(&w, "text", 4));
  assert_int_equal(files_synced, 0);
  OK(file_finish(&w, NULL));
  assert_int_equal(files_synced, 1);
}

static void test_file_rename_syncs_the_folder_of_the_new_name(void **state) {
  (void)state;
  char before[FILE_PATH_MAX];
  assert_non_null(getcwd(before, sizeof before));
  OK(file_mkdirs(at("folder/inner")));
  OK(file_write(at("folder/a"), "x", 1));
  reset_calls(NULL);
  OK(file_rename(at("folder/a"), at("folder/inner/b")));
  assert_int_equal(folders_synced, 1);
  assert_int_equal(synced_folder, find_inode(at("folder/inner")));
  OK(file_rename(at("folder/inner"), at("folder/other//")));
  assert_int_equal(synced_folder, find_inode(at("folder")));
  assert_int_equal(chdir(at("folder/other")), 0);
  OK(file_rename("b", "c"));
  assert_int_equal(synced_folder, find_inode("."));
  OK(file_rename("c", "../d"));
  assert_int_equal(synced_folder, find_inode(".."));
  assert_int_equal(chdir(before), 0);
}

/* Some file systems cannot sync: EINVAL is no error. */
static void test_file_failed_sync_is_an_error_unless_it_is_impossible(void **state) {
  (void)state;
  static const int errors[] = {EIO, EINVAL};
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    FileWriter w;
    OK(file_create(&w, at("first")));
    OK(file_put(&w, "text", 4));
    fail_calls("fsync", errors[i], 1);
    Err finished = file_finish(&w, NULL);
    ErrRecord why = err_copy();
    file_abandon(&w);
    fail_calls("fsync", errors[i], 1);
    Err renamed = file_rename(at("first"), at("second"));
    if (errors[i] == EINVAL) {
      OK(finished);
      OK(renamed);
    } else {
      assert_fails(renamed, "cannot sync");
      assert_fails(err_give(&why), "cannot sync");
    }
  }
}

/* ---- reading and writing ---- */

static void test_file_read_or_write_error_is_reported(void **state) {
  (void)state;
  Str text = {0};
  FileWriter w;
  OK(file_write(at("read"), "0123456789", 10));
  int open_before = count_descriptors();
  fail_calls("read", EIO, 1);
  assert_fails(file_read(at("read"), 100, &text), "read: Input/output error");
  fail_calls("fstat", EIO, 1);
  assert_fails(file_read(at("read"), 100, &text), "cannot read");
  fail_calls("write", ENOSPC, 1);
  assert_fails(file_write(at("full"), "text", 4), "No space left on device");
  assert_false(file_exists(at("full")));
  fail_calls("close", EIO, 1);
  assert_fails(file_write(at("closed"), "text", 4), "cannot close");
  static char large[300000];
  fail_calls("write", ENOSPC, 1);
  assert_fails(file_write(at("full"), large, sizeof large), "No space left on device");
  assert_false(file_exists(at("full")));
  OK(file_create(&w, at("large")));
  fail_calls("write", ENOSPC, 1);
  assert_fails(file_put(&w, large, sizeof large), "No space left on device");
  file_abandon(&w);
  OK(file_create(&w, at("large")));
  OK(file_put(&w, large, 1000));
  fail_calls("write", ENOSPC, 1);
  assert_fails(file_put(&w, large, 262144), "No space left on device");
  file_abandon(&w);
  mem_fail_after(1);
  Err err = file_read(at("read"), 100, &text);
  mem_fail_after(0);
  assert_fails(err, "out of memory");
  assert_int_equal(count_descriptors(), open_before);
  str_free(&text);
}

static void test_file_interrupted_or_short_calls_lose_no_bytes(void **state) {
  (void)state;
  static char bytes[40000], copy[40000];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 31 + i / 251);
  PlaceFile f;
  most = 999;
  fail_calls("write", EINTR, 3);
  OK(file_write(at("short"), bytes, sizeof bytes));
  fail_calls("read", EINTR, 3);
  assert_content(at("short"), bytes, sizeof bytes);
  fail_calls("pread", EINTR, 3);
  OK(place_open(&f, at("short")));
  OK(place_read(&f, 0, copy, sizeof copy));
  assert_memory_equal(copy, bytes, sizeof copy);
  place_close(&f);
}

static void test_file_read_ends_at_any_byte(void **state) {
  (void)state;
  static const size_t sizes[] = {0, 1, 16383, 16384, 16385};
  static char bytes[16385];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 31 + 1);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    OK(file_write(at("size"), bytes, sizes[i]));
    assert_content(at("size"), bytes, sizes[i]);
  }
}

static void test_file_open_takes_regular_files_only(void **state) {
  (void)state;
  Str text = {0};
  assert_int_equal(mkfifo(at("fifo"), 0600), 0);
  const struct {
    const char *path, *why;
  } cases[] = {{at("missing"), "cannot open"},
               {scratch, "is a directory, not a regular file"},
               {at("fifo"), "is not a regular file but a pipe or a device"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int fd = 7;
    uint64_t bytes = 7;
    assert_fails(file_open(cases[i].path, &fd, &bytes), cases[i].why);
    assert_int_equal(fd, -1);
    assert_int_equal(bytes, 0);
    assert_fails(file_read(cases[i].path, 100, &text), cases[i].why);
  }
  assert_fails(file_sync_dir(at("missing")), "cannot open the directory");
  str_free(&text);
}

static void test_file_read_limit_counts_all_blocks(void **state) {
  (void)state;
  static char bytes[40000];
  Str text = {0};
  OK(file_write(at("limit"), bytes, sizeof bytes));
  OK(file_read(at("limit"), sizeof bytes, &text));
  assert_int_equal(text.len, sizeof bytes);
  str_clear(&text);
  assert_fails(file_read(at("limit"), sizeof bytes - 1, &text), "39999 bytes allowed");
  str_free(&text);
}

static void test_place_read_error_names_the_byte(void **state) {
  (void)state;
  PlaceFile f;
  char bytes[10];
  OK(file_write(at("disk"), "0123456789", 10));
  OK(place_open(&f, at("disk")));
  most = 2;
  fail_calls("pread", EIO, 1);
  failure.after = 1;
  assert_fails(place_read(&f, 3, bytes, 7),
               "disk at byte 5: Input/output error; check the disk");
  assert_int_equal(truncate(at("disk"), 4), 0);
  assert_fails(place_read(&f, 3, bytes, 7),
               "was truncated while it was in use: it ends at byte 4 and had 10 bytes");
  place_close(&f);
}

static void test_file_finish_with_crc_writes_8_digits(void **state) {
  (void)state;
  FileWriter w;
  char hex[65];
  OK(file_create(&w, at("crc")));
  w.crc_only = true;
  OK(file_put(&w, "123456789", 9));
  OK(file_finish(&w, hex));
  assert_string_equal(hex, "cbf43926");
}

/* ---- removing ---- */

static void test_file_remove_error_stops_and_is_reported(void **state) {
  (void)state;
  OK(file_mkdirs(at("removed")));
  OK(file_write(at("removed/a"), "x", 1));
  OK(file_write(at("removed/b"), "x", 1));
  fail_calls("unlink", EBUSY, 1);
  assert_fails(file_remove_all(at("removed")), "Device or resource busy");
  assert_true(file_exists(at("removed/a")) && file_exists(at("removed/b")));
  fail_calls("rmdir", EBUSY, 1);
  assert_fails(file_remove_all(at("removed")), "removed: Device or resource busy");
  assert_true(file_is_dir(at("removed")));
  assert_fails(file_remove_inside(at("absent")), "cannot read the directory");
  OK(file_write(at("plain"), "x", 1));
  assert_fails(file_remove_all(at("plain/under")), "under: Not a directory");
}

/* ---- locks ---- */

static void test_file_lock_is_told_from_an_error(void **state) {
  (void)state;
  int first, second;
  bool busy;
  OK(file_lock(at("lock"), &first, &busy));
  assert_true(first >= 0 && !busy);
  int open_before = count_descriptors();
  OK(file_lock(at("lock"), &second, &busy));
  assert_true(second == -1 && busy);
  fail_calls("flock", ENOLCK, 1);
  assert_fails(file_lock(at("lock"), &second, &busy), "cannot lock");
  assert_true(second == -1 && !busy);
  fail_calls("flock", ENOLCK, 1);
  assert_fails(file_lock_soon(at("lock"), &second, &busy), "cannot lock");
  assert_fails(file_lock(at("absent/lock"), &second, &busy), "cannot create");
  assert_int_equal(count_descriptors(), open_before);
  close(first);
}

static void test_file_is_locked_only_while_another_holds_the_lock(void **state) {
  (void)state;
  int fd;
  bool busy;
  assert_false(file_is_locked(at("absent")));
  OK(file_lock(at("held"), &fd, &busy));
  int open_before = count_descriptors();
  assert_true(file_is_locked(at("held")));
  fail_calls("flock", ENOLCK, 1);
  assert_false(file_is_locked(at("held")));
  assert_int_equal(count_descriptors(), open_before);
  close(fd);
  errno = EWOULDBLOCK; /* of an earlier call */
  assert_false(file_is_locked(at("held")));
}

static void test_file_lock_soon_tries_for_a_second(void **state) {
  (void)state;
  static const struct {
    const char *fault;
    int held, tries; /* attempts that find the lock held; all attempts */
    bool busy;
  } cases[] = {{NULL, 1000, 101, true},
               {NULL, 100, 101, false},
               {NULL, 0, 1, false},
               {"lock-wait:0", 1000, 1, true},
               {"lock-wait:1", 1000, 2, true},
               {"lock-wait:30", 1000, 4, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int fd;
    bool busy;
    reset_calls(NULL);
    if (cases[i].fault) setenv("TRIREME_FAULT", cases[i].fault, 1);
    fail_calls("flock", EWOULDBLOCK, cases[i].held);
    OK(file_lock_soon(at("soon"), &fd, &busy));
    assert_int_equal(busy, cases[i].busy);
    assert_int_equal(calls, cases[i].tries);
    assert_int_equal(paused, 10 * (cases[i].tries - 1));
    if (!busy) close(fd);
  }
}

/* ---- descriptor 0 ---- */

static void test_file_descriptor_0_is_no_error(void **state) {
  (void)state;
  int fd, holder, input = dup(STDIN_FILENO);
  uint64_t bytes;
  bool busy;
  FileWriter w;
  OK(file_lock(at("zero"), &holder, &busy));
  close(STDIN_FILENO);
  OK(file_open(at("zero"), &fd, &bytes));
  assert_int_equal(fd, 0);
  close(fd);
  OK(file_sync_dir(scratch));
  assert_true(file_is_locked(at("zero")));
  OK(file_lock(at("nought"), &fd, &busy));
  assert_int_equal(fd, 0);
  close(fd);
  OK(file_create(&w, at("zero")));
  assert_int_equal(w.fd, 0);
  file_abandon(&w);
  assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
  close(holder);
  if (input < 0) return;
  assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
  close(input);
}

/* ---- what the kernel reports ---- */

static void test_file_program_dir_is_that_of_the_link(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"/usr/bin/trireme", "/usr/bin"}, {"/a/trireme", "/a"}, {"/trireme", "/"}};
  char dir[FILE_PATH_MAX];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    link_target = cases[i][0];
    OK(file_program_dir(dir));
    assert_string_equal(dir, cases[i][1]);
  }
  char program[FILE_PATH_MAX + 8], target[FILE_PATH_MAX + 8] = "";
  memset(target, '/', FILE_PATH_MAX + 4);
  link_target = target;
  OK(file_program(program));
  assert_int_equal(strlen(program), FILE_PATH_MAX - 1);
  fail_calls("readlink", ENOENT, 1);
  assert_fails(file_program_dir(dir), "cannot read /proc/self/exe");
}

static void test_file_check_memory_leaves_a_sixteenth_or_64_mb(void **state) {
  (void)state;
  enum { MB = 1 << 20 };
  static const struct {
    uint64_t blocks, block, available, bytes;
    bool fits;
  } cases[] = {{1600, 1, 200, 100, true},       {1600, 1, 200, 101, false},
               {1600, 1, 100, 0, true},         {1600, 1, 99, 0, false},
               {1600, 4096, 200, 409600, true}, {1600, 4096, 200, 409601, false},
               {4096, MB, 65, MB, true},        {4096, MB, 65, MB + 1, false},
               {4096, MB, 64, 0, true},         {4096, MB, 63, 0, false},
               {1056, MB, 65, MB, true},        {0, 1, 0, 100, true} /* unknown */};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    space = (struct statvfs){.f_blocks = (fsblkcnt_t)cases[i].blocks,
                             .f_frsize = (unsigned long)cases[i].block,
                             .f_bavail = (fsblkcnt_t)cases[i].available};
    Err err = file_check_memory("/dev/shm", cases[i].bytes);
    if ((err == ERR_OK) != cases[i].fits) fail_msg("case %zu", i);
  }
  space = (struct statvfs){.f_blocks = 1, .f_frsize = 1};
  fail_calls("statvfs", ENOSYS, 1);
  OK(file_check_memory("/dev/shm", 100));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, reset_calls, reset_calls)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_file_finish_syncs_the_file),
      TEST(test_file_rename_syncs_the_folder_of_the_new_name),
      TEST(test_file_failed_sync_is_an_error_unless_it_is_impossible),
      TEST(test_file_read_or_write_error_is_reported),
      TEST(test_file_interrupted_or_short_calls_lose_no_bytes),
      TEST(test_file_read_ends_at_any_byte),
      TEST(test_file_open_takes_regular_files_only),
      TEST(test_file_read_limit_counts_all_blocks),
      TEST(test_place_read_error_names_the_byte),
      TEST(test_file_finish_with_crc_writes_8_digits),
      TEST(test_file_remove_error_stops_and_is_reported),
      TEST(test_file_lock_is_told_from_an_error),
      TEST(test_file_is_locked_only_while_another_holds_the_lock),
      TEST(test_file_lock_soon_tries_for_a_second),
      TEST(test_file_descriptor_0_is_no_error),
      TEST(test_file_program_dir_is_that_of_the_link),
      TEST(test_file_check_memory_leaves_a_sixteenth_or_64_mb),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
