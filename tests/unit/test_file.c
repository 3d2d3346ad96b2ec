/* SHA-256 compared with published digests; and files: written completely or not at all, with
 * errors that name the path. Depends on base, cmocka. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/place.h"
#include "base/thread.h"
#include "support.h"

/* ---- sha256 ---- */

static void assert_sha(const char *bytes, size_t len, const char *expected) {
  Sha256 sha;
  char hex[65];
  sha256_begin(&sha);
  sha256_add(&sha, bytes, len);
  sha256_end(&sha, hex);
  assert_string_equal(hex, expected);
}

static void test_sha256_matches_published_digests(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopq"
       "r"
       "lmnopqrsmnopqrstnopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_sha(cases[i][0], strlen(cases[i][0]), cases[i][1]);
  char *million;
  OK(mem_alloc(&million, 1000000, 1));
  memset(million, 'a', 1000000);
  const char *digest = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
  assert_sha(million, 1000000, digest);
  Sha256 sha; /* Hashes the same message in pieces of odd sizes. */
  char hex[65];
  sha256_begin(&sha);
  for (size_t done = 0, step = 1; done < 1000000; step = step * 5 % 997) {
    size_t n = step < 1000000 - done ? step : 1000000 - done;
    sha256_add(&sha, million + done, n);
    sha256_add(&sha, NULL, 0);
    done += n;
  }
  sha256_end(&sha, hex);
  assert_string_equal(hex, digest);
  mem_free(million);
}

static void test_sha256_is_independent_of_piece_sizes(void **state) {
  (void)state;
  char text[200];
  for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 7);
  for (size_t len = 0; len <= sizeof text; len++) {
    Sha256 whole;
    char expected[65], hex[65];
    sha256_begin(&whole);
    sha256_add(&whole, text, len);
    sha256_end(&whole, expected);
    for (size_t cut = 0; cut <= len; cut += 13) {
      Sha256 sha;
      sha256_begin(&sha);
      sha256_add(&sha, text, cut);
      sha256_add(&sha, text + cut, len - cut);
      sha256_end(&sha, hex);
      assert_string_equal(hex, expected);
    }
  }
}

/* ---- file ---- */

static size_t entries(const char *path) {
  size_t n = 0;
  DIR *dir = opendir(path);
  assert_non_null(dir);
  while (readdir(dir)) n++;
  closedir(dir);
  return n - 2;
}

static void test_file_write_replaces_the_whole_file(void **state) {
  (void)state;
  OK(file_mkdirs(at("whole/a/b/c")));
  OK(file_mkdirs(at("whole/a/b/c"))); /* Creating an existing directory must succeed. */
  assert_true(file_is_dir(at("whole/a/b/c")));
  const char *path = at("whole/file");
  OK(file_write(path, "first", 5));
  OK(file_write(path, "second", 6));
  Str text = {0};
  OK(file_read(path, 100, &text));
  assert_string_equal(text.s, "second");
  /* The directory has only `a` and `file`: no temporary file remains. */
  assert_int_equal(entries(at("whole")), 2);
  str_clear(&text);
  assert_int_equal(file_read(path, 5, &text), ERR_WORK);
  assert_says("whole/file");
  str_free(&text);
  OK(place_copy(path, at("whole/copy")));
  char one[65], two[65];
  OK(place_sha256(path, one));
  OK(place_sha256(at("whole/copy"), two));
  assert_string_equal(one, two);
  uint64_t bytes;
  OK(file_size(at("whole/copy"), &bytes));
  assert_int_equal(bytes, 6);
  assert_int_equal(file_write(at("whole/a"), "x", 1),
                   ERR_WORK); /* A directory has that name. */
  assert_says("whole/a");
  assert_int_equal(entries(at("whole")), 3); /* No temporary file remains after the error. */
  assert_int_equal(symlink("/nowhere", at("whole/a/link")), 0);
  OK(file_remove_all(at("whole")));
  assert_false(file_exists(at("whole")));
  OK(file_remove_all(at("whole"))); /* Removing a missing file must succeed. */
}

static void test_file_write_output_keeps_links_and_devices(void **state) {
  (void)state;
  struct stat st;
  Str text = {0};
  OK(file_mkdirs(at("output")));
  OK(file_write(at("output/file"), "before", 6));
  assert_int_equal(symlink("file", at("output/link")), 0);
  assert_int_equal(symlink("/dev/null", at("output/null")), 0);
  OK(file_write_output(at("output/link"), "after", 5));
  OK(file_write_output(at("output/null"), "after", 5));
  assert_int_equal(lstat(at("output/link"), &st), 0);
  assert_true(S_ISLNK(st.st_mode));
  assert_int_equal(lstat(at("output/null"), &st), 0);
  assert_true(S_ISLNK(st.st_mode));
  OK(file_read(at("output/file"), 100, &text));
  assert_string_equal(str_text(&text), "after");
  assert_int_equal(entries(at("output")), 3); /* no temporary file remains */
  assert_int_equal(file_write_output(at("output"), "x", 1), ERR_WORK);
  assert_says("output");
  str_free(&text);
}

static void test_file_remove_all_does_not_follow_links(void **state) {
  (void)state;
  OK(file_mkdirs(at("kept")));
  OK(file_write(at("kept/file"), "x", 1));
  OK(file_mkdirs(at("gone")));
  assert_int_equal(symlink(at("kept"), at("gone/link")), 0);
  OK(file_remove_all(at("gone")));
  assert_true(file_exists(at("kept/file")));
}

/* Another name of the file keeps the contents before: a file is replaced, not overwritten. */
static void test_file_write_output_replaces_a_regular_file(void **state) {
  (void)state;
  Str text = {0};
  OK(file_write_output(at("fresh"), "before", 6));
  assert_int_equal(link(at("fresh"), at("other")), 0);
  OK(file_write_output(at("fresh"), "after", 5));
  OK(file_read(at("fresh"), 100, &text));
  OK(file_read(at("other"), 100, &text));
  assert_string_equal(str_text(&text), "afterbefore");
  str_free(&text);
}

/* Appends "/./././…" and 'x' to the scratch directory, `len` bytes in all. */
static void make_long_path(char *path, size_t len) {
  size_t n = (size_t)snprintf(path, FILE_PATH_MAX, "%s/", scratch);
  for (; n < len; n++) path[n] = n + 1 == len ? 'x' : (len - n) % 2 ? '.' : '/';
  path[len] = '\0';
}

static void test_file_path_of_4095_bytes_is_the_longest(void **state) {
  (void)state;
  char path[FILE_PATH_MAX + 16], joined[FILE_PATH_MAX], suffix[32];
  make_long_path(path, FILE_PATH_MAX - 3);
  OK(file_join(joined, path, "y"));
  assert_int_equal(strlen(joined), FILE_PATH_MAX - 1);
  assert_int_equal(file_join(joined, path, "yz"), ERR_WORK);
  assert_says("too long");
  size_t most = FILE_PATH_MAX - 1 - (size_t)snprintf(suffix, 32, ".tmp.%ld", (long)getpid());
  make_long_path(path, most);
  OK(file_write(path, "text", 4));
  assert_true(file_exists(at("x")));
  OK(file_remove_all(at("x")));
  make_long_path(path, most + 1);
  assert_int_equal(file_write(path, "text", 4), ERR_WORK);
  assert_says("too long");
  make_long_path(path, FILE_PATH_MAX - 1);
  assert_int_equal(file_mkdirs(path), ERR_WORK);
  assert_says("too long");
}

static void test_file_remove_inside_stops_at_a_path_that_is_too_long(void **state) {
  (void)state;
  char path[FILE_PATH_MAX], name[201], before[FILE_PATH_MAX];
  assert_non_null(getcwd(before, sizeof before));
  memset(name, 'n', 200);
  name[200] = '\0';
  make_long_path(path, 4000);
  OK(file_mkdirs(path));
  assert_int_equal(chdir(at("x")), 0);
  OK(file_write(name, "text", 4));
  assert_int_equal(chdir(before), 0);
  assert_int_equal(file_remove_inside(path), ERR_WORK);
  assert_says("too long");
  assert_int_equal(entries(at("x")), 1);
  OK(file_remove_all(at("x")));
}

static void test_file_mkdirs_relative_path_is_made_in_every_part(void **state) {
  (void)state;
  char before[FILE_PATH_MAX];
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(scratch), 0);
  OK(file_mkdirs("r/s"));
  assert_int_equal(chdir(before), 0);
  assert_true(file_is_dir(at("r/s")));
}

static void test_file_put_larger_than_the_buffer_is_written(void **state) {
  (void)state;
  static const size_t sizes[] = {0, 1, 262143, 262144, 262145, 1000000};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    char *bytes;
    OK(mem_alloc(&bytes, sizes[s], 1));
    for (size_t i = 0; i < sizes[s]; i++) bytes[i] = (char)(i * 31 + i / 251);
    FileWriter w;
    char hex[65], again[65];
    OK(file_create(&w, at("large")));
    for (size_t done = 0, step = 1; done < sizes[s]; step = step * 3 + 1) {
      size_t n = step < sizes[s] - done ? step : sizes[s] - done;
      OK(file_put(&w, bytes + done, n));
      done += n;
    }
    assert_int_equal(w.bytes, sizes[s]);
    OK(file_finish(&w, hex));
    file_abandon(&w); /* Abandoning a file that is not open must have no effect. */
    OK(place_sha256(at("large"), again));
    assert_string_equal(hex, again);
    PlacePin map;
    OK(place_pin_file(&map, at("large")));
    assert_int_equal(map.size, sizes[s]);
    assert_memory_equal(map.bytes, bytes, sizes[s]);
    place_unpin(&map);
    place_unpin(&map);
    mem_free(bytes);
  }
}

static void test_file_errors_name_the_path(void **state) {
  (void)state;
  Str text = {0};
  PlacePin map;
  FileWriter w;
  uint64_t bytes;
  char hex[65], joined[FILE_PATH_MAX];
  OK(file_write(at("plain"), "x", 1));
  const char *missing = at("no/such"), *under = at("plain/under");
#define FAILS(call, words)            \
  do {                                \
    assert_int_equal(call, ERR_WORK); \
    assert_says(words);               \
  } while (0)
  FAILS(file_read(missing, 10, &text), missing);
  FAILS(place_pin_file(&map, missing), missing);
  FAILS(place_pin_file(&map, scratch), "not a regular file");
  FAILS(file_size(missing, &bytes), missing);
  FAILS(place_sha256(missing, hex), missing);
  FAILS(file_write(missing, "", 0), missing);
  FAILS(file_create(&w, under), under);
  FAILS(place_copy(missing, at("copy")), missing);
  FAILS(file_mkdirs(under), "plain");
  FAILS(file_mkdirs(at("plain")), "plain");
  FAILS(file_mkdirs(""), "name");
  FAILS(file_rename(missing, at("renamed")), at("renamed"));
  FAILS(file_sync_dir(missing), missing);
  char *long_name;
  OK(mem_alloc(&long_name, FILE_PATH_MAX + 1, 1));
  memset(long_name, 'x', FILE_PATH_MAX);
  FAILS(file_join(joined, "dir", long_name), "too long");
  FAILS(file_write(long_name, "", 0), "too long");
  mem_free(long_name);
  str_free(&text);
  OK(file_join(joined, "dir/", "name"));
  assert_string_equal(joined, "dir/name");
  OK(file_join(joined, "", "name"));
  assert_string_equal(joined, "name");
  OK(file_join(joined, "", ""));
  assert_string_equal(joined, "");
  OK(file_program_dir(joined));
  assert_true(file_is_dir(joined));
}

static void test_file_create_without_memory_creates_nothing(void **state) {
  (void)state;
  for (uint64_t n = 1; n <= 2; n++) {
    FileWriter w;
    mem_fail_after(n);
    Err err = file_create(&w, at("nothing"));
    mem_fail_after(0);
    assert_int_equal(err, ERR_WORK);
    assert_says("out of memory");
    assert_true(w.fd == -1 && !w.path && !w.buffer);
    assert_false(file_exists(at("nothing")));
  }
}

static void test_file_finish_on_a_full_disk_is_error(void **state) {
  (void)state;
  FileWriter w;
  if (access("/dev/full", W_OK) != 0) {
    print_message("skip: no /dev/full\n");
    skip();
  }
  OK(file_create(&w, "/dev/full"));
  OK(file_put(&w, "x", 1)); /* The byte is still in the buffer of the FileWriter. */
  assert_int_equal(file_finish(&w, NULL), ERR_WORK);
  assert_says("/dev/full");
  assert_says("free some space");
  file_abandon(&w);
}

static void *read_byte(void *at) {
  _exit(*(const volatile uint8_t *)at ? 92 : 93);
}

/* Starts a child that maps a file, truncates the file, and reads at `offset`, in a separate
 * thread if `beside`; returns the exit status of the child. */
static int read_after_truncation(const char *path, size_t maps, size_t offset, bool beside) {
  if (getenv("TEST_EMULATED")) { /* scripts/cross sets TEST_EMULATED */
    print_message("skip: qemu does not pass SIGBUS on as the kernel does\n");
    skip();
  }
  OK(file_write(path, (char[3 * 65536]){0}, 3 * 65536));
  pid_t child = fork();
  if (child == 0) {
    PlacePin map, other[100];
    int fd = open(at("stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, STDERR_FILENO) < 0 || place_pin_file(&map, path)) _exit(90);
    for (size_t i = 0; i < maps; i++) /* more mappings than one block of mapguard's table */
      if (place_pin_file(&other[i], path)) _exit(90);
    if (truncate(path, 10) != 0) _exit(91);
    uint8_t *byte = (uint8_t *)(uintptr_t)(maps ? other[maps - 1].bytes : map.bytes) + offset;
    pthread_t thread;
    if (!beside) read_byte(byte);
    if (!thread_start(&thread, read_byte, byte)) _exit(94);
    pthread_join(thread, NULL);
    _exit(95);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void assert_told(const char *words) {
  Str text = {0};
  OK(file_read(at("stderr"), 10000, &text));
  if (!strstr(str_text(&text), words)) fail_msg("\"%s\" lacks \"%s\"", str_text(&text), words);
  str_free(&text);
}

static void test_map_truncated_file_is_named_with_the_byte(void **state) {
  (void)state;
  assert_int_equal(read_after_truncation(at("cut\033x"), 0, 131072, false), 1);
  assert_told(
      "cut\\x1bx was truncated while it was in use: byte 131072 is gone, as it has 10 "
      "bytes and had 196608");
}

static void test_map_truncated_file_of_many_is_named(void **state) {
  (void)state;
  assert_int_equal(read_after_truncation(at("many"), 100, 65536, false), 1);
  assert_told("many was truncated while it was in use: byte 65536 is gone");
}

static void test_map_truncated_file_on_a_thread_without_signals_is_named(void **state) {
  (void)state;
  assert_int_equal(read_after_truncation(at("beside"), 0, 65536, true), 1);
  assert_told("beside was truncated while it was in use: byte 65536 is gone");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sha256_matches_published_digests),
      cmocka_unit_test(test_sha256_is_independent_of_piece_sizes),
      cmocka_unit_test(test_file_write_replaces_the_whole_file),
      cmocka_unit_test(test_file_write_output_keeps_links_and_devices),
      cmocka_unit_test(test_file_write_output_replaces_a_regular_file),
      cmocka_unit_test(test_file_path_of_4095_bytes_is_the_longest),
      cmocka_unit_test(test_file_remove_inside_stops_at_a_path_that_is_too_long),
      cmocka_unit_test(test_file_mkdirs_relative_path_is_made_in_every_part),
      cmocka_unit_test(test_file_remove_all_does_not_follow_links),
      cmocka_unit_test(test_file_put_larger_than_the_buffer_is_written),
      cmocka_unit_test(test_file_errors_name_the_path),
      cmocka_unit_test(test_file_create_without_memory_creates_nothing),
      cmocka_unit_test(test_file_finish_on_a_full_disk_is_error),
      cmocka_unit_test(test_map_truncated_file_is_named_with_the_byte),
      cmocka_unit_test(test_map_truncated_file_of_many_is_named),
      cmocka_unit_test(test_map_truncated_file_on_a_thread_without_signals_is_named),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
