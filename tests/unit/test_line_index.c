/* Finds lines of a plain file through the line index. */
#include "data/input.h"
#include "data/line_index.h"
#include "support.h"

static const char *host_of(void *context, int rank) {
  (void)context;
  (void)rank;
  return "here";
}

static void allgather_alone(void *context, const char *name, void *all, const size_t *off) {
  (void)context;
  (void)name;
  (void)all;
  (void)off;
}

static Ranks alone(void) {
  return (Ranks){.count = 1, .host = host_of, .allgather = allgather_alone};
}

/* Writes a text: line i, from 0, has i % 5 letters; some lines end with CR LF. */
static void write_text(const char *path, size_t lines, const char *last_end) {
  Str text = {0};
  for (size_t i = 0; i < lines; i++) {
    for (size_t k = 0; k < i % 5; k++) str_addc(&text, (char)('a' + i % 26));
    str_add(&text, i + 1 == lines ? last_end : i % 3 ? "\n" : "\r\n");
  }
  OK(file_write(path, str_text(&text), text.len));
  str_free(&text);
}

/* Moves to a line through the index, like the pipeline. */
static void move_to(Input *in, const LineIndex *x, uint64_t line) {
  uint64_t before;
  uint64_t offset = line_index_find(x, line, &before);
  if (offset > input_bytes(in)) OK(input_seek(in, offset, before));
  OK(input_skip(in, line - input_number(in)));
}

static void check_line(Input *in, size_t i, size_t lines) {
  const char *line;
  size_t len;
  OK(input_line(in, &line, &len));
  if (i >= lines) {
    assert_null(line);
    assert_int_equal(input_number(in), lines);
    return;
  }
  assert_non_null(line);
  assert_int_equal(len, i % 5);
  for (size_t k = 0; k < len; k++) assert_int_equal(line[k], 'a' + i % 26);
  assert_int_equal(input_number(in), i + 1);
}

static void check_every_line(size_t lines, const char *last_end, const char *chunk) {
  Ranks r = alone();
  LineIndex x;
  size_t last_ends = last_end[0] ? lines : lines - 1;
  setenv("TRIREME_FAULT", chunk, 1);
  write_text(at("text"), lines, last_end);
  OK(line_index_make(&x, at("text"), &r));
  unsetenv("TRIREME_FAULT");
  assert_int_equal(x.before[x.chunks], last_ends);
  for (size_t i = 0; i < lines + 3; i++) {
    Input *in;
    OK(input_open(&in, at("text")));
    move_to(in, &x, i);
    check_line(in, i, lines);
    input_close(in);
  }
  line_index_free(&x);
}

static void test_line_index_finds_every_line_for_any_chunk(void **state) {
  (void)state;
  static const char *const chunk[] = {"chunk:1", "chunk:2", "chunk:7", "chunk:64",
                                      "chunk:4096"};
  for (size_t i = 0; i < sizeof chunk / sizeof *chunk; i++)
    check_every_line(99, "\n", chunk[i]);
}

static void test_line_index_last_line_without_end_is_a_line(void **state) {
  (void)state;
  /* The last line has no line break; chunks of 7 bytes. */
  check_every_line(99, "", "chunk:7");
  check_every_line(2, "", "chunk:1");
}

static void test_line_index_lines_can_be_visited_in_steps(void **state) {
  (void)state;
  Ranks r = alone();
  LineIndex x;
  Input *in;
  size_t lines = 997;
  setenv("TRIREME_FAULT", "chunk:50", 1);
  write_text(at("text"), lines, "\n");
  OK(line_index_make(&x, at("text"), &r));
  unsetenv("TRIREME_FAULT");
  OK(input_open(&in, at("text")));
  for (size_t i = 0; i < lines; i += 41) {
    move_to(in, &x, i);
    check_line(in, i, lines);
  }
  input_close(in);
  line_index_free(&x);
}

static void test_line_index_compressed_file_has_none(void **state) {
  (void)state;
  Ranks r = alone();
  LineIndex x;
  static const char gzip[] = "\x1f\x8b\x08\0\0\0\0\0\0\3\x4b\xe4\x02\0\x07\xa1\xea\xdd\2\0\0\0";
  OK(file_write(at("text.gz"), gzip, sizeof gzip - 1));
  OK(line_index_make(&x, at("text.gz"), &r));
  assert_int_equal(x.chunks, 0);
  line_index_free(&x);
}

static void test_input_hash_is_empty_after_a_seek(void **state) {
  (void)state;
  Input *in;
  char hex[65];
  write_text(at("text"), 50, "\n");
  OK(input_open(&in, at("text")));
  input_sha256(in, hex);
  assert_int_equal(strlen(hex), 64);
  OK(input_seek(in, 10, 3));
  input_sha256(in, hex);
  assert_string_equal(hex, "");
  input_close(in);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_line_index_finds_every_line_for_any_chunk),
      cmocka_unit_test(test_line_index_last_line_without_end_is_a_line),
      cmocka_unit_test(test_line_index_lines_can_be_visited_in_steps),
      cmocka_unit_test(test_line_index_compressed_file_has_none),
      cmocka_unit_test(test_input_hash_is_empty_after_a_seek),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
