/* Records of metrics and metrics.jsonl: appending, continuing after a kill, and a full disk. */
#include <math.h>
#include <unistd.h>

#include "support.h"
#include "train/metrics.h"

static void assert_file(const char *want) {
  Str text = {0};
  OK(file_read(at("metrics.jsonl"), 1 << 20, &text));
  assert_string_equal(str_text(&text), want);
  str_free(&text);
}

static void write_file(const char *text) {
  OK(file_write(at("metrics.jsonl"), text, strlen(text)));
}

static int remove_file(void **state) {
  (void)state;
  unlink(at("metrics.jsonl"));
  unlink(at("samples.jsonl"));
  return 0;
}

static Err open_metrics(Metrics *m, uint64_t step, double seconds) {
  return metrics_open(m, &(MetricsSpec){.run_dir = scratch, .step = step, .seconds = seconds});
}

static void write_loss(Metrics *m, uint64_t step, double loss) {
  metrics_begin(m, step, 0.5);
  metrics_add(m, "loss", loss);
  metrics_end(m);
}

static void test_metrics_record_holds_values_then_step_and_seconds(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0, 0));
  metrics_begin(&m, 7, 1.5);
  metrics_add(&m, "loss", 0.1);
  metrics_add_count(&m, "skipped", 3);
  metrics_end(&m);
  metrics_close(&m);
  assert_int_equal(metrics_lost(&m, METRICS_JSONL), 0);
  assert_file("{\"loss\":0.1,\"skipped\":3,\"step\":7,\"seconds\":1.5}\n");
}

static void test_metrics_event_comes_first_in_its_line(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0, 0));
  metrics_begin(&m, 7, 1.5);
  metrics_add_text(&m, "restart_reason", "no heartbeat");
  metrics_set_event(&m, "restart");
  metrics_end(&m);
  metrics_close(&m);
  assert_file(
      "{\"event\":\"restart\",\"restart_reason\":\"no heartbeat\",\"step\":7,"
      "\"seconds\":1.5}\n");
}

static void test_metrics_lists_are_arrays(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0, 0));
  metrics_begin(&m, 7, 1.5);
  metrics_set_event(&m, "ranks");
  metrics_add_list(&m, "rank_ms", (const double[]){12.5, 0.001}, 2);
  metrics_add_texts(&m, "hosts", (const char *const[]){"a", "b"}, 2);
  metrics_end(&m);
  metrics_close(&m);
  assert_file(
      "{\"event\":\"ranks\",\"rank_ms\":[12.5,0.001],\"hosts\":[\"a\",\"b\"],\"step\":7,"
      "\"seconds\":1.5}\n");
}

static void test_metrics_list_with_nan_or_damaged_text_is_lost(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0, 0));
  metrics_begin(&m, 7, 1.5);
  metrics_add_list(&m, "rank_ms", (const double[]){1, NAN}, 2);
  metrics_end(&m);
  metrics_begin(&m, 8, 1.5);
  metrics_add_texts(&m, "hosts", (const char *const[]){"a", "\xff"}, 2);
  metrics_end(&m);
  write_loss(&m, 9, 0.5);
  metrics_close(&m);
  assert_int_equal(metrics_lost(&m, METRICS_JSONL), 2);
  assert_file("{\"loss\":0.5,\"step\":9,\"seconds\":0.5}\n");
}

/* Of 4,096 ranks; a later process finds its step. */
static void test_metrics_long_record_is_written_and_found(void **state) {
  (void)state;
  enum { RANKS = 4096 };
  static double times[RANKS];
  static const char *hosts[RANKS];
  Metrics m;
  for (int i = 0; i < RANKS; i++) {
    times[i] = 12345.678;
    hosts[i] = "a-host-with-a-long-name";
  }
  OK(open_metrics(&m, 0, 0));
  metrics_begin(&m, 7, 1.5);
  metrics_add_list(&m, "rank_ms", times, RANKS);
  metrics_add_list(&m, "rank_wait_ms", times, RANKS);
  metrics_add_list(&m, "rank_data_ms", times, RANKS);
  metrics_add_texts(&m, "hosts", hosts, RANKS);
  metrics_end(&m);
  metrics_close(&m);
  assert_int_equal(metrics_lost(&m, METRICS_JSONL), 0);
  OK(open_metrics(&m, 5, 0)); /* undoes step 7 */
  metrics_close(&m);
  Str text = {0};
  OK(file_read(at("metrics.jsonl"), 1 << 20, &text));
  assert_non_null(strstr(str_text(&text), "{\"undone_after\":5"));
  str_free(&text);
}

static void test_metrics_tables_and_histograms_are_not_in_the_line(void **state) {
  (void)state;
  static Histogram h;
  Metrics m;
  OK(open_metrics(&m, 0, 0));
  metrics_begin(&m, 7, 1.5);
  metrics_add(&m, "valid_bleu", 30);
  metrics_add_table(&m, "valid_samples", (MetricsTable){"a", 1, 1});
  metrics_end(&m);
  metrics_begin(&m, 8, 1.5); /* a record with only a histogram adds no line */
  metrics_add_histogram(&m, "weights/a", &h);
  metrics_end(&m);
  metrics_close(&m);
  assert_file("{\"valid_bleu\":30.0,\"step\":7,\"seconds\":1.5}\n");
}

static void test_metrics_not_open_does_nothing(void **state) {
  (void)state;
  Metrics m = {0};
  write_loss(&m, 1, 2);
  metrics_close(&m);
  assert_int_equal(metrics_lost(&m, METRICS_JSONL), 0);
}

static void test_metrics_resume_before_last_record_undoes_later_steps(void **state) {
  (void)state;
  Metrics m;
  write_file(
      "{\"loss\":2.0,\"step\":100,\"seconds\":1.0}\n"
      "{\"loss\":1.0,\"step\":130,\"seconds\":2.0}\n");
  OK(open_metrics(&m, 100, 1.25));
  metrics_close(&m);
  assert_file(
      "{\"loss\":2.0,\"step\":100,\"seconds\":1.0}\n"
      "{\"loss\":1.0,\"step\":130,\"seconds\":2.0}\n"
      "{\"undone_after\":100,\"step\":100,\"seconds\":1.25}\n");
}

static void test_metrics_resume_twice_undoes_once(void **state) {
  (void)state;
  Metrics m;
  write_file("{\"step\":130}\n");
  OK(open_metrics(&m, 100, 1));
  metrics_close(&m);
  OK(open_metrics(&m, 100, 1));
  metrics_close(&m);
  assert_file("{\"step\":130}\n{\"undone_after\":100,\"step\":100,\"seconds\":1.0}\n");
}

static void test_metrics_resume_at_last_record_undoes_nothing(void **state) {
  (void)state;
  Metrics m;
  write_file("{\"step\":130}\n");
  OK(open_metrics(&m, 130, 1));
  metrics_close(&m);
  assert_file("{\"step\":130}\n");
}

static void test_metrics_half_a_line_is_kept_apart_from_the_next_record(void **state) {
  (void)state;
  Metrics m;
  write_file("{\"step\":5}\n{\"loss\":1.2");
  OK(open_metrics(&m, 5, 1));
  write_loss(&m, 6, 2);
  write_loss(&m, 7, 2);
  metrics_close(&m);
  assert_file(
      "{\"step\":5}\n{\"loss\":1.2\n{\"loss\":2.0,\"step\":6,\"seconds\":0.5}\n"
      "{\"loss\":2.0,\"step\":7,\"seconds\":0.5}\n");
}

static void test_metrics_last_step_is_found_before_damaged_lines(void **state) {
  (void)state;
  Metrics m;
  write_file("{\"step\":9}\nnot JSON\n[1]\n{\"step\":\"10\"}\n{\"step\":-3}\n\n");
  OK(open_metrics(&m, 8, 1));
  metrics_close(&m);
  Str text = {0};
  OK(file_read(at("metrics.jsonl"), 1 << 20, &text));
  assert_non_null(
      strstr(str_text(&text), "\n{\"undone_after\":8,\"step\":8,\"seconds\":1.0}\n"));
  str_free(&text);
}

static void test_metrics_last_step_is_found_in_a_long_file(void **state) {
  (void)state;
  Str text = {0};
  Metrics m;
  for (int i = 1; i <= 9000; i++) str_addf(&text, "{\"step\":%d,\"seconds\":1.0}\n", i);
  OK(str_check(&text));
  write_file(text.s);
  OK(open_metrics(&m, 8999, 1));
  metrics_close(&m);
  str_addf(&text, "{\"undone_after\":8999,\"step\":8999,\"seconds\":1.0}\n");
  assert_file(text.s);
  str_free(&text);
}

static void test_metrics_value_that_is_not_finite_is_lost_and_reported(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0, 0));
  write_loss(&m, 3, NAN);
  assert_says("metrics.jsonl: loss of step 3 is not finite");
  write_loss(&m, 4, 1);
  metrics_close(&m);
  assert_int_equal(metrics_lost(&m, METRICS_JSONL), 1);
  assert_file("{\"loss\":1.0,\"step\":4,\"seconds\":0.5}\n");
}

static void test_metrics_full_disk_counts_lost_records(void **state) {
  (void)state;
  Metrics m;
  if (access("/dev/full", W_OK)) skip();
  assert_int_equal(symlink("/dev/full", at("metrics.jsonl")), 0);
  OK(open_metrics(&m, 0, 0));
  write_loss(&m, 1, 2);
  write_loss(&m, 2, 2);
  assert_says("No space left");
  metrics_close(&m);
  assert_int_equal(metrics_lost(&m, METRICS_JSONL), 2);
}

static void assert_samples(const char *want) {
  Str text = {0};
  OK(file_read(at("samples.jsonl"), 1 << 20, &text));
  assert_string_equal(str_text(&text), want);
  str_free(&text);
}

static void write_samples(Metrics *m, uint64_t step, const char *cells) {
  metrics_begin(m, step, 0.5);
  metrics_add(m, "valid_nll", 1);
  metrics_add_table(m, "valid_samples", (MetricsTable){cells, 2, 2});
  metrics_end(m);
}

static void test_metrics_without_samples_creates_no_samples_file(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0, 0));
  write_loss(&m, 1, 2);
  metrics_begin(&m, 0, 0);
  metrics_undo_later(&m);
  metrics_end(&m);
  metrics_close(&m);
  assert_false(file_exists(at("samples.jsonl")));
}

static void test_metrics_samples_are_objects_named_by_the_first_row(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0, 0));
  write_samples(&m, 7, "source\0reference\0a \"b\"\0c");
  metrics_close(&m);
  assert_samples(
      "{\"samples\":[{\"source\":\"a \\\"b\\\"\",\"reference\":\"c\"}],\"step\":7,"
      "\"seconds\":0.5}\n");
}

static void test_metrics_resume_undoes_later_samples(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0, 0));
  write_samples(&m, 7, "s\0r\0a\0b");
  metrics_close(&m);
  OK(open_metrics(&m, 5, 1));
  write_samples(&m, 6, "s\0r\0c\0d");
  metrics_close(&m);
  assert_samples(
      "{\"samples\":[{\"s\":\"a\",\"r\":\"b\"}],\"step\":7,\"seconds\":0.5}\n"
      "{\"undone_after\":5,\"step\":5,\"seconds\":1.0}\n"
      "{\"samples\":[{\"s\":\"c\",\"r\":\"d\"}],\"step\":6,\"seconds\":0.5}\n");
}

static void test_metrics_sample_that_is_not_utf8_is_lost_and_reported(void **state) {
  (void)state;
  Metrics m;
  OK(open_metrics(&m, 0, 0));
  write_samples(&m, 7, "s\0r\0\xff\0b");
  assert_says("samples.jsonl: a sample of step 7 is not UTF-8");
  metrics_close(&m);
  assert_int_equal(metrics_lost(&m, METRICS_SAMPLES), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_metrics_without_samples_creates_no_samples_file,
                                remove_file),
      cmocka_unit_test_teardown(test_metrics_samples_are_objects_named_by_the_first_row,
                                remove_file),
      cmocka_unit_test_teardown(test_metrics_resume_undoes_later_samples, remove_file),
      cmocka_unit_test_teardown(test_metrics_sample_that_is_not_utf8_is_lost_and_reported,
                                remove_file),
      cmocka_unit_test_teardown(test_metrics_record_holds_values_then_step_and_seconds,
                                remove_file),
      cmocka_unit_test_teardown(test_metrics_event_comes_first_in_its_line, remove_file),
      cmocka_unit_test_teardown(test_metrics_lists_are_arrays, remove_file),
      cmocka_unit_test_teardown(test_metrics_list_with_nan_or_damaged_text_is_lost,
                                remove_file),
      cmocka_unit_test_teardown(test_metrics_long_record_is_written_and_found, remove_file),
      cmocka_unit_test_teardown(test_metrics_tables_and_histograms_are_not_in_the_line,
                                remove_file),
      cmocka_unit_test(test_metrics_not_open_does_nothing),
      cmocka_unit_test_teardown(test_metrics_resume_before_last_record_undoes_later_steps,
                                remove_file),
      cmocka_unit_test_teardown(test_metrics_resume_twice_undoes_once, remove_file),
      cmocka_unit_test_teardown(test_metrics_resume_at_last_record_undoes_nothing, remove_file),
      cmocka_unit_test_teardown(test_metrics_half_a_line_is_kept_apart_from_the_next_record,
                                remove_file),
      cmocka_unit_test_teardown(test_metrics_last_step_is_found_before_damaged_lines,
                                remove_file),
      cmocka_unit_test_teardown(test_metrics_last_step_is_found_in_a_long_file, remove_file),
      cmocka_unit_test_teardown(test_metrics_value_that_is_not_finite_is_lost_and_reported,
                                remove_file),
      cmocka_unit_test_teardown(test_metrics_full_disk_counts_lost_records, remove_file),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
