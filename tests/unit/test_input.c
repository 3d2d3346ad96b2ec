/* Text files: compressed, in several frames, through slow pipes, with very long lines; and paths
 * that are not files. Depends on data/input, base/file, cmocka. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/place.h"
#include "data/input.h"
#include "support.h"

/* "one
 * two
 * " as written by `zstd --no-check`, but as a raw block; a skippable frame of five bytes; and a
 * skippable frame of four bytes, which pzstd writes first. */
static const uint8_t FRAME[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 8,   0x41, 0,   0,
                                'o',  'n',  'e',  '\n', 't',  'w', 'o',  '\n'};
static const uint8_t SKIPPED[] = {0x5f, 0x2a, 0x4d, 0x18, 5, 0, 0, 0, 'n', 'o', 't', 'e', '\n'};
static const uint8_t PZSTD[] = {0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 17, 0, 0, 0};

typedef struct {
  uint8_t bytes[512];
  size_t len;
} Bytes;

static void add(Bytes *b, const uint8_t *bytes, size_t len) {
  assert_true(b->len + len <= sizeof b->bytes);
  memcpy(b->bytes + b->len, bytes, len);
  b->len += len;
}
#define ADD(b, part) add(b, part, sizeof part)

static const char *write_bytes(const Bytes *b, size_t len) {
  OK(file_write(at("text"), (const char *)b->bytes, len));
  return at("text");
}

/* Reads all lines and writes each followed by a '|'. */
static Err read_lines(const char *path, char *out, size_t room) {
  Input *in;
  const char *line = NULL;
  size_t len, used = 0;
  TRY(input_open(&in, path));
  Err err;
  while (!(err = input_line(in, &line, &len)) && line)
    used += (size_t)snprintf(out + used, room - used, "%.*s|", (int)len, line);
  out[used] = '\0';
  input_close(in);
  return err;
}

#ifdef HAVE_ZSTD

static void check_lines(const Bytes *b, const char *lines) {
  char got[256];
  OK(read_lines(write_bytes(b, b->len), got, sizeof got));
  assert_string_equal(got, lines);
}

static void test_input_pzstd_first_frame_is_skipped(void **state) {
  (void)state;
  Bytes b = {0};
  ADD(&b, PZSTD);
  ADD(&b, FRAME);
  check_lines(&b, "one|two|");
}

static void test_input_skippable_frames_anywhere_are_skipped(void **state) {
  (void)state;
  Bytes b = {0};
  ADD(&b, SKIPPED);
  ADD(&b, PZSTD);
  ADD(&b, FRAME);
  ADD(&b, SKIPPED);
  ADD(&b, FRAME);
  ADD(&b, FRAME);
  ADD(&b, SKIPPED);
  check_lines(&b, "one|two|one|two|one|two|");
}

static void test_input_every_skippable_magic_is_known(void **state) {
  (void)state;
  for (unsigned magic = 0x50; magic <= 0x5f; magic++) {
    Bytes b = {0};
    ADD(&b, SKIPPED);
    ADD(&b, FRAME);
    b.bytes[0] = (uint8_t)magic;
    check_lines(&b, "one|two|");
  }
}

static void test_input_only_skippable_frames_is_empty(void **state) {
  (void)state;
  Bytes b = {0};
  ADD(&b, SKIPPED);
  check_lines(&b, "");
}

/* A file truncated anywhere except between two frames must be an error that names the offset. */
static void test_input_truncated_frames_are_errors_with_offset(void **state) {
  (void)state;
  Bytes b = {0};
  size_t ends[4];
  ADD(&b, PZSTD);
  ends[0] = b.len;
  ADD(&b, FRAME);
  ends[1] = b.len;
  ADD(&b, SKIPPED);
  ends[2] = b.len;
  ADD(&b, FRAME);
  ends[3] = b.len;
  for (size_t len = 4; len <= b.len; len++) {
    char got[256], place[64];
    bool whole = false;
    for (int i = 0; i < 4; i++) whole = whole || len == ends[i];
    Err err = read_lines(write_bytes(&b, len), got, sizeof got);
    assert_int_equal(err, whole ? ERR_OK : ERR_WORK);
    if (whole) continue;
    snprintf(place, sizeof place, "near byte %zu: ", len);
    assert_says(place);
    assert_says("too early");
  }
}

static void test_input_zstd_window_of_2_gb_is_refused(void **state) {
  (void)state;
  /* A frame with a window of 2^31 bytes and one raw block. */
  static const uint8_t huge[] = {0x28, 0xb5, 0x2f, 0xfd, 0, 0xa8, 0x11, 0, 0, 'a', '\n'};
  static const uint8_t largest[] = {0x28, 0xb5, 0x2f, 0xfd, 0, 0x88, 0x11, 0, 0, 'a', '\n'};
  Bytes b = {0};
  char got[64];
  ADD(&b, huge);
  assert_int_equal(read_lines(write_bytes(&b, b.len), got, sizeof got), ERR_WORK);
  assert_says("more than 128 MB");
  assert_says("--long=31");
  b.len = 0;
  ADD(&b, largest);
  check_lines(&b, "a|");
}

#endif

/* A thread that writes the bytes of a Bytes one by one to a pipe. */
typedef struct {
  int fd;
  const Bytes *bytes;
} Writer;

static void *write_slowly(void *argument) {
  Writer *w = argument;
  for (size_t i = 0; i < w->bytes->len; i++) {
    if (write(w->fd, w->bytes->bytes + i, 1) != 1) break;
    usleep(2000);
  }
  close(w->fd);
  return NULL;
}

static void check_piped(const Bytes *b, const char *lines) {
  int end[2];
  char path[64], got[256];
  assert_int_equal(pipe(end), 0);
  Writer w = {end[1], b};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, write_slowly, &w), 0);
  snprintf(path, sizeof path, "/dev/fd/%d", end[0]);
  OK(read_lines(path, got, sizeof got));
  assert_string_equal(got, lines);
  pthread_join(thread, NULL);
  close(end[0]);
}

static void test_input_pipe_byte_by_byte_is_recognised(void **state) {
  (void)state;
  Bytes b = {0};
  add(&b, (const uint8_t *)"P*M\nb\n", 6); /* Text that begins like a skippable frame. */
  check_piped(&b, "P*M|b|");
#ifdef HAVE_ZSTD
  b.len = 0;
  ADD(&b, PZSTD);
  ADD(&b, FRAME);
  check_piped(&b, "one|two|");
#endif
}

static void write_long_line(size_t len) {
  char *text;
  OK(mem_alloc(&text, len + 4, 1));
  memcpy(text, "ok\n", 3);
  memset(text + 3, 'a', len);
  text[len + 3] = '\n';
  OK(file_write(at("long"), text, len + 4));
  mem_free(text);
}

static size_t longest_line(const char *path, Err *err) {
  Input *in;
  const char *line = NULL;
  size_t len, most = 0;
  OK(input_open(&in, path));
  while (!(*err = input_line(in, &line, &len)) && line) most = len > most ? len : most;
  input_close(in);
  return most;
}

static void test_input_line_of_1_mib_is_read(void **state) {
  (void)state;
  Err err;
  write_long_line(1 << 20);
  assert_int_equal(longest_line(at("long"), &err), 1 << 20);
  assert_int_equal(err, ERR_OK);
}

static void test_input_line_of_16_mib_is_an_error_with_its_number(void **state) {
  (void)state;
  Err err;
  write_long_line(1 << 24);
  longest_line(at("long"), &err);
  assert_int_equal(err, ERR_WORK);
  assert_says("long:2: the line is longer than 1048576 bytes");
}

static void test_file_fifo_is_an_error_at_once(void **state) {
  (void)state;
  Str text = {0};
  PlacePin map;
  char hex[65];
  assert_int_equal(mkfifo(at("fifo"), 0666), 0);
  /* Opening the FIFO would wait for a writer. */
  assert_int_equal(file_read(at("fifo"), 100, &text), ERR_WORK);
  assert_says("fifo is not a regular file");
  assert_says("save its contents");
  assert_int_equal(place_pin_file(&map, at("fifo")), ERR_WORK);
  assert_says("fifo is not a regular file");
  assert_int_equal(place_sha256(at("fifo"), hex), ERR_WORK);
  assert_int_equal(place_copy(at("fifo"), at("copy")), ERR_WORK);
  str_free(&text);
}

static void test_file_directory_is_an_error(void **state) {
  (void)state;
  Str text = {0};
  assert_int_equal(file_read(scratch, 100, &text), ERR_WORK);
  assert_says("is a directory");
  str_free(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#ifdef HAVE_ZSTD
      cmocka_unit_test(test_input_pzstd_first_frame_is_skipped),
      cmocka_unit_test(test_input_skippable_frames_anywhere_are_skipped),
      cmocka_unit_test(test_input_every_skippable_magic_is_known),
      cmocka_unit_test(test_input_only_skippable_frames_is_empty),
      cmocka_unit_test(test_input_truncated_frames_are_errors_with_offset),
      cmocka_unit_test(test_input_zstd_window_of_2_gb_is_refused),
#endif
      cmocka_unit_test(test_input_pipe_byte_by_byte_is_recognised),
      cmocka_unit_test(test_input_line_of_1_mib_is_read),
      cmocka_unit_test(test_input_line_of_16_mib_is_an_error_with_its_number),
      cmocka_unit_test(test_file_fifo_is_an_error_at_once),
      cmocka_unit_test(test_file_directory_is_an_error),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
