/* What the board reads: buckets of records, curves of files that grow, shrink and are rewritten, and
 * the search for runs. The HTTP interface is tested by tests/cli/board.bats. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "monitor/board_find.h"
#include "monitor/board_series.h"
#include "monitor/scan.h"
#include "support.h"

static Series series;

static void write_steps(const char *mode, int first, int last, double nll) {
  FILE *f = fopen(at("metrics.jsonl"), mode);
  assert_non_null(f);
  for (int i = first; i <= last; i++)
    fprintf(f, "{\"nll\":%g,\"steps_per_s\":2,\"target_tokens_per_s\":10,\"step\":%d}\n", nll,
            i);
  assert_int_equal(fclose(f), 0);
}

static void write_line(const char *line) {
  FILE *f = fopen(at("metrics.jsonl"), "a");
  assert_non_null(f);
  fprintf(f, "%s\n", line);
  assert_int_equal(fclose(f), 0);
}

static int open_series(void **state) {
  (void)state;
  unlink(at("metrics.jsonl"));
  series = (Series){0};
  return (int)file_join(series.path, scratch, "metrics.jsonl");
}

static int close_series(void **state) {
  (void)state;
  series_free(&series);
  return 0;
}

static const Buckets *read_all(void) {
  assert_true(series_refresh(&series));
  while (!series.is_exact) OK(series_read(&series, SIZE_MAX));
  return &series.exact->kind[LINE_TRAIN].buckets;
}

static double get_mean(const Buckets *b, size_t i) {
  int column = buckets_find_column(b, "nll", 3);
  assert_true(column >= 0);
  return buckets_cell(b, i, column)->mean;
}

static size_t count_records(const Buckets *b) {
  size_t records = 0;
  for (size_t i = 0; i < b->count; i++) records += b->bucket[i].records;
  return records;
}

static void test_buckets_merge_keeps_extremes_mean_and_count(void **state) {
  (void)state;
  Buckets b = {0};
  int column = buckets_column(&b, "x", 1);
  enum { RECORDS = 5000, OUTLIER = 3210 };
  for (int i = 0; i < RECORDS; i++) {
    OK(buckets_begin(&b, (BucketPlace){.step = i}));
    buckets_add(&b, column, i == OUTLIER ? 99 : 1);
  }
  assert_true(b.count <= BUCKETS_MOST);
  assert_int_equal(b.each, 8);
  assert_int_equal(count_records(&b), RECORDS);
  const BucketCell *c = buckets_cell(&b, OUTLIER / 8, column);
  assert_true(c->max == 99 && c->min == 1);
  assert_true(c->mean > 13.24f && c->mean < 13.26f); /* (7 + 99) / 8 */
  buckets_free(&b);
}

static void test_buckets_refuse_names_that_are_not_plain(void **state) {
  (void)state;
  Buckets b = {0};
  assert_int_equal(buckets_column(&b, "a\"b", 3), -1);
  assert_int_equal(buckets_column(&b, "", 0), -1);
  assert_int_equal(buckets_column(&b, "\xff", 1), -1);
  assert_int_equal(buckets_column(&b, "gpu0_busy", 9), 0);
}

static void test_series_partial_last_line_waits(void **state) {
  (void)state;
  write_steps("w", 1, 3, 5);
  FILE *f = fopen(at("metrics.jsonl"), "a");
  fprintf(f, "{\"nll\":7,\"st");
  fclose(f);
  assert_int_equal(read_all()->count, 3);
  write_line("ep\":4}");
  const Buckets *b = read_all();
  assert_int_equal(b->count, 4);
  assert_true(get_mean(b, 3) == 7);
}

static void test_series_undone_steps_count_once(void **state) {
  (void)state;
  write_steps("w", 1, 100, 5);
  write_line("{\"undone_after\":40,\"step\":40}");
  write_steps("a", 41, 60, 6);
  const Buckets *b = read_all();
  assert_int_equal(b->count, 60);
  assert_true(get_mean(b, 39) == 5 && get_mean(b, 40) == 6);
  assert_true(b->bucket[59].last.tokens == 60 * 5);
}

static void test_series_undo_within_a_merged_bucket_reads_it_again(void **state) {
  (void)state;
  write_steps("w", 1, 5000, 5);
  read_all();
  write_line("{\"undone_after\":2501,\"step\":2501}");
  const Buckets *b = read_all();
  assert_int_equal(count_records(b), 2501);
  assert_true(b->bucket[b->count - 1].last.step == 2501);
  assert_true(b->bucket[b->count - 1].last.tokens == 2501 * 5);
}

/* Returns the bytes that this process has read so far. */
static unsigned long long count_read_bytes(void) {
  unsigned long long bytes = 0;
  FILE *f = fopen("/proc/self/io", "r");
  if (!f || fscanf(f, "rchar: %llu", &bytes) != 1) bytes = 0;
  if (f) fclose(f);
  return bytes;
}

static void test_series_many_undone_lines_are_read_in_linear_time(void **state) {
  (void)state;
  enum { LINES = 20000 };
  struct stat st;
  write_steps("w", 1, 3000, 5);
  FILE *f = fopen(at("metrics.jsonl"), "a");
  assert_non_null(f);
  for (int i = 0; i < LINES; i++) fprintf(f, "{\"nll\":7,\"step\":3000}\n");
  assert_int_equal(fclose(f), 0);
  assert_int_equal(stat(at("metrics.jsonl"), &st), 0);
  unsigned long long before = count_read_bytes();
  const Buckets *b = read_all();
  assert_true(count_read_bytes() - before < (64u << 20) + 16 * (unsigned long long)st.st_size);
  assert_true(b->bucket[b->count - 1].last.step == 3000);
}

static void test_series_zoom_has_a_long_line_at_the_end_of_its_range(void **state) {
  (void)state;
  Buckets zoomed = {0};
  bool is_read;
  write_steps("w", 1, 2001, 5);
  FILE *f = fopen(at("metrics.jsonl"), "a");
  assert_non_null(f);
  fprintf(f, "{\"nll\":7,\"note\":\"%0*d\",\"step\":2002}\n", 30000, 0);
  assert_int_equal(fclose(f), 0);
  write_steps("a", 2003, 2004, 5);
  read_all();
  OK(series_zoom(&series, LINE_TRAIN, 2001, 2002, SIZE_MAX, &zoomed, &is_read));
  assert_int_equal(zoomed.count, 2);
  assert_true(get_mean(&zoomed, 1) == 7);
  buckets_free(&zoomed);
}

static void test_series_replaced_by_a_device_is_empty(void **state) {
  (void)state;
  SeriesData *d = calloc(1, sizeof *d);
  bool is_end = false;
  assert_non_null(d);
  OK(series_read_data("/dev/zero", d, 1 << 20, &is_end));
  assert_true(is_end);
  assert_true(d->offset == 0);
  free(d);
}

static void test_series_later_validation_of_a_step_replaces_the_earlier(void **state) {
  (void)state;
  write_line("{\"valid_nll\":3,\"step\":10}");
  write_line("{\"nll\":1,\"step\":10}");
  write_line("{\"valid_nll\":2,\"step\":10}");
  write_line("{\"average_nll\":1,\"step\":10}");
  assert_int_equal(read_all()->count, 1);
  const Buckets *valid = &series.exact->kind[LINE_VALID].buckets;
  assert_int_equal(valid->count, 1);
  assert_true(valid->cell[0].mean == 2);
  assert_int_equal(series.exact->kind[LINE_AVERAGE].buckets.count, 1);
}

/* Sets the time of the file's last change to another one than `before`: a kernel counts it in
 * milliseconds, so that two changes in a row may have the same. */
static void change_later(struct timespec before) {
  struct stat st;
  do {
    assert_int_equal(chmod(at("metrics.jsonl"), 0600), 0);
    assert_int_equal(stat(at("metrics.jsonl"), &st), 0);
  } while (st.st_ctim.tv_sec == before.tv_sec && st.st_ctim.tv_nsec == before.tv_nsec);
}

static void test_series_file_written_anew_with_the_same_size_is_read_again(void **state) {
  (void)state;
  write_steps("w", 1, 10, 5);
  read_all();
  uint64_t generation = series.generation;
  write_steps("w", 1, 10, 8); /* the same inode */
  change_later(series.changed);
  assert_true(get_mean(read_all(), 0) == 8);
  assert_true(series.generation > generation);
}

/* While a record is appended, the file has a new time and its old size for a moment. */
static void test_series_file_changed_without_other_bytes_is_not_read_again(void **state) {
  (void)state;
  write_steps("w", 1, 10, 5);
  read_all();
  uint64_t generation = series.generation;
  change_later(series.changed);
  assert_true(series_refresh(&series));
  assert_true(series.is_exact);
  assert_int_equal(series.generation, generation);
  write_steps("a", 11, 11, 5);
  assert_int_equal(read_all()->count, 11);
  assert_int_equal(series.generation, generation);
}

static void test_series_file_written_anew_and_longer_is_read_again(void **state) {
  (void)state;
  write_steps("w", 1, 10, 5);
  read_all();
  write_steps("w", 1, 30, 8); /* the same inode */
  assert_true(series_refresh(&series));
  OK(series_read(&series, SIZE_MAX));
  const Buckets *b = read_all();
  assert_int_equal(b->count, 30);
  assert_true(get_mean(b, 0) == 8);
}

static void test_series_sample_has_beginning_end_and_increasing_steps(void **state) {
  (void)state;
  enum { STEPS = 50000 };
  write_steps("w", 1, STEPS, 5);
  assert_true(series_refresh(&series));
  OK(series_sample(&series));
  const Buckets *b = &series.sample->kind[LINE_TRAIN].buckets;
  assert_true(b->count > 100);
  assert_true(b->bucket[0].first.step == 1);
  assert_true(b->bucket[b->count - 1].last.step == STEPS);
  for (size_t i = 1; i < b->count; i++)
    assert_true(b->bucket[i].first.step > b->bucket[i - 1].last.step);
}

static void test_series_zoom_has_every_record_of_the_range(void **state) {
  (void)state;
  Buckets zoomed = {0};
  bool is_read;
  write_steps("w", 1, 20000, 5);
  read_all();
  OK(series_zoom(&series, LINE_TRAIN, 7000, 7009, SIZE_MAX, &zoomed, &is_read));
  assert_true(is_read);
  assert_int_equal(zoomed.count, 10);
  assert_true(zoomed.bucket[0].first.step == 7000);
  assert_true(zoomed.bucket[0].first.tokens == 7000 * 5);
  buckets_free(&zoomed);
  OK(series_zoom(&series, LINE_TRAIN, 1, 20000, 1000, &zoomed, &is_read));
  assert_false(is_read); /* larger than the limit */
}

static void test_scan_unescape_damaged_escapes_become_question_marks(void **state) {
  (void)state;
  char out[64];
  static const char text[] = "a\\u12 b\\u c\\q d\\u0041";
  scan_unescape(text, strlen(text), out, sizeof out);
  assert_string_equal(out, "a?12 b? c? dA");
}

static void make_run(const char *name) {
  char path[FILE_PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", scratch, name);
  OK(file_mkdirs(path));
  snprintf(path, sizeof path, "%s/%s/config", scratch, name);
  OK(file_write(path, "a = b\n", 6));
}

static void test_find_visits_links_once_and_stops_at_its_depth(void **state) {
  (void)state;
  FoundRuns found;
  make_run("tree/one");
  make_run("tree/a/b/c/d/e/f/g/deepest"); /* level 8 */
  make_run("tree/a/b/c/d/e/f/g/h/deeper");
  make_run("tree/one/checkpoints/step-1");
  make_run("tree/.hidden/run");
  assert_int_equal(symlink("..", at("tree/one/loop")), 0);
  assert_int_equal(symlink("one", at("tree/again")), 0);
  OK(find_runs(at("tree"), &found));
  assert_int_equal(found.count, 2);
  assert_string_equal(found.name[0], "a/b/c/d/e/f/g/deepest");
  assert_true(found.is_cut);
  find_free(&found);
}

static void test_find_directory_itself_may_be_a_run(void **state) {
  (void)state;
  FoundRuns found;
  make_run("single");
  OK(find_runs(at("single"), &found));
  assert_int_equal(found.count, 1);
  assert_string_equal(found.name[0], ".");
  find_free(&found);
}

#define SERIES_TEST(name) cmocka_unit_test_setup_teardown(name, open_series, close_series)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_buckets_merge_keeps_extremes_mean_and_count),
      cmocka_unit_test(test_buckets_refuse_names_that_are_not_plain),
      SERIES_TEST(test_series_partial_last_line_waits),
      SERIES_TEST(test_series_undone_steps_count_once),
      SERIES_TEST(test_series_undo_within_a_merged_bucket_reads_it_again),
      SERIES_TEST(test_series_many_undone_lines_are_read_in_linear_time),
      SERIES_TEST(test_series_zoom_has_a_long_line_at_the_end_of_its_range),
      SERIES_TEST(test_series_replaced_by_a_device_is_empty),
      SERIES_TEST(test_series_later_validation_of_a_step_replaces_the_earlier),
      SERIES_TEST(test_series_file_written_anew_with_the_same_size_is_read_again),
      SERIES_TEST(test_series_file_changed_without_other_bytes_is_not_read_again),
      SERIES_TEST(test_series_file_written_anew_and_longer_is_read_again),
      SERIES_TEST(test_series_sample_has_beginning_end_and_increasing_steps),
      SERIES_TEST(test_series_zoom_has_every_record_of_the_range),
      cmocka_unit_test(test_scan_unescape_damaged_escapes_become_question_marks),
      cmocka_unit_test(test_find_visits_links_once_and_stops_at_its_depth),
      cmocka_unit_test(test_find_directory_itself_may_be_a_run),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
