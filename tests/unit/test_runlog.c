/* The reader of a run's measurements: columns, undone steps, events, samples of hosts, files that
 * grow, shrink and are replaced, and lines that are not records. */
#include "monitor/runlog.h"

#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "support.h"

static RunLog runlog;

static void write_file(const char *name, const char *mode, const char *text) {
  FILE *f = fopen(at(name), mode);
  assert_non_null(f);
  assert_true(fputs(text, f) >= 0);
  assert_int_equal(fclose(f), 0);
}

static void add_metrics(const char *text) {
  write_file("metrics.jsonl", "a", text);
}

static void add_system(const char *text) {
  write_file("system.jsonl", "a", text);
}

static int open_log(void **state) {
  (void)state;
  unlink(at("metrics.jsonl"));
  unlink(at("system.jsonl"));
  return (int)runlog_open(&runlog, scratch);
}

static int close_log(void **state) {
  (void)state;
  runlog_close(&runlog);
  return 0;
}

static RunPoint get_point(const char *name, size_t i) {
  const RunColumn *c = runlog_column(&runlog, name);
  assert_non_null(c);
  assert_true(i < c->points);
  return runlog_point(&runlog, c, i);
}

static size_t count_points(const char *name) {
  const RunColumn *c = runlog_column(&runlog, name);
  return c ? c->points : 0;
}

static void test_runlog_without_files_is_empty(void **state) {
  (void)state;
  OK(runlog_read(&runlog));
  assert_false(runlog.has_metrics);
  assert_false(runlog.has_system);
  assert_null(runlog_column(&runlog, "nll"));
}

static void test_runlog_open_of_no_directory_fails(void **state) {
  (void)state;
  RunLog other;
  assert_int_equal(runlog_open(&other, at("none")), ERR_WORK);
  assert_says("is not a directory");
}

static void test_runlog_columns_have_step_seconds_and_value(void **state) {
  (void)state;
  add_metrics(
      "{\"nll\":5.5,\"lr\":1e-3,\"step\":50,\"seconds\":1.25}\n"
      "{\"valid_nll\":5,\"step\":50,\"seconds\":2}\n"
      "{\"nll\":4.5,\"lr\":2e-3,\"step\":100,\"seconds\":3}\n");
  OK(runlog_read(&runlog));
  assert_true(runlog.has_metrics);
  assert_int_equal(count_points("nll"), 2);
  assert_int_equal(count_points("valid_nll"), 1);
  RunPoint p = get_point("nll", 0);
  assert_int_equal(p.step, 50);
  assert_true(p.seconds == 1.25);
  assert_true(p.value == 5.5);
  assert_true(runlog_last(&runlog, "lr", &p));
  assert_int_equal(p.step, 100);
  assert_true(p.value == 2e-3);
}

static void test_runlog_numbers_equal_strtod(void **state) {
  (void)state;
  const char *numbers[] = {"0",
                           "-0.0",
                           "1604.692366",
                           "9.99999997e-7",
                           "1e22",
                           "1E+300",
                           "-12345678901.5",
                           "0.1",
                           "4.9e-324",
                           "123456789012345678901234",
                           "2.2250738585072011e-308",
                           "7.2057594037927933e16",
                           "0.000001",
                           "1763300000.123456"};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    char line[128];
    snprintf(line, sizeof line, "{\"v\":%s,\"step\":%zu,\"seconds\":0}\n", numbers[i], i + 1);
    add_metrics(line);
    OK(runlog_read(&runlog));
    assert_int_equal(count_points("v"), i + 1);
    assert_true(get_point("v", i).value == strtod(numbers[i], NULL));
  }
}

static void test_runlog_undone_steps_are_dropped(void **state) {
  (void)state;
  add_metrics(
      "{\"nll\":5,\"step\":10,\"seconds\":1}\n{\"nll\":4,\"step\":20,\"seconds\":2}\n"
      "{\"nll\":3,\"step\":30,\"seconds\":3}\n");
  OK(runlog_read(&runlog));
  uint64_t revision = runlog.revision;
  add_metrics(
      "{\"undone_after\":15,\"step\":15,\"seconds\":1.5}\n"
      "{\"nll\":3.5,\"step\":20,\"seconds\":4}\n");
  OK(runlog_read(&runlog));
  assert_int_equal(count_points("nll"), 2);
  assert_int_equal(get_point("nll", 1).step, 20);
  assert_true(get_point("nll", 1).value == 3.5);
  assert_true(runlog.revision > revision);
}

static void test_runlog_repeated_validation_later_one_counts(void **state) {
  (void)state;
  add_metrics(
      "{\"valid_nll\":5,\"step\":10,\"seconds\":1}\n{\"valid_nll\":4,\"step\":10,\"seconds\":2}"
      "\n");
  OK(runlog_read(&runlog));
  assert_int_equal(count_points("valid_nll"), 1);
  assert_true(get_point("valid_nll", 0).value == 4);
}

static void test_runlog_partial_line_waits(void **state) {
  (void)state;
  add_metrics("{\"nll\":5,\"step\":10,\"seconds\":1}\n{\"nll\":4,\"st");
  OK(runlog_read(&runlog));
  assert_int_equal(count_points("nll"), 1);
  uint64_t revision = runlog.revision;
  add_metrics("ep\":20,\"seconds\":2}\n");
  OK(runlog_read(&runlog));
  assert_int_equal(count_points("nll"), 2);
  assert_int_equal(runlog.damaged_lines, 0);
  assert_int_equal(runlog.revision, revision);
}

static void test_runlog_second_read_counts_nothing_twice(void **state) {
  (void)state;
  add_metrics("{\"event\":\"restart\",\"step\":10,\"seconds\":1}\n");
  add_system("{\"time\":1,\"host\":\"a\",\"cpu\":[1]}\n");
  OK(runlog_read(&runlog));
  OK(runlog_read(&runlog));
  assert_int_equal(runlog.event_count, 1);
  assert_int_equal(runlog.hosts[0].samples, 1);
}

static void test_runlog_shorter_file_is_read_again(void **state) {
  (void)state;
  add_metrics("{\"nll\":5,\"step\":10,\"seconds\":1}\n{\"nll\":4,\"step\":20,\"seconds\":2}\n");
  OK(runlog_read(&runlog));
  uint64_t revision = runlog.revision;
  write_file("metrics.jsonl", "w", "{\"nll\":9,\"step\":1,\"seconds\":1}\n");
  OK(runlog_read(&runlog));
  assert_int_equal(count_points("nll"), 1);
  assert_true(get_point("nll", 0).value == 9);
  assert_true(runlog.revision > revision);
}

static void test_runlog_replaced_file_of_same_inode_is_read_again(void **state) {
  (void)state;
  add_metrics("{\"nll\":5,\"step\":10,\"seconds\":1}\n");
  OK(runlog_read(&runlog));
  write_file("metrics.jsonl", "w",
             "{\"nll\":7,\"step\":10,\"seconds\":1}\n{\"nll\":6,\"step\":20,\"seconds\":1}\n");
  OK(runlog_read(&runlog));
  assert_int_equal(count_points("nll"), 2);
  assert_true(get_point("nll", 0).value == 7);
}

static void test_runlog_removed_file_is_forgotten(void **state) {
  (void)state;
  add_metrics("{\"nll\":5,\"step\":10,\"seconds\":1}\n");
  OK(runlog_read(&runlog));
  unlink(at("metrics.jsonl"));
  OK(runlog_read(&runlog));
  assert_false(runlog.has_metrics);
  assert_int_equal(count_points("nll"), 0);
}

static void test_runlog_damaged_line_is_skipped_and_named(void **state) {
  (void)state;
  add_metrics(
      "{\"nll\":5,\"step\":10,\"seconds\":1}\n{\"nll\":4,\"ste\n{\"nll\":3,\"step\":30,"
      "\"seconds\":1}\n");
  OK(runlog_read(&runlog));
  assert_int_equal(count_points("nll"), 2);
  assert_int_equal(runlog.damaged_lines, 1);
  assert_non_null(strstr(runlog.damage, "metrics.jsonl: line 2, byte "));
}

static void test_runlog_line_without_step_is_damaged(void **state) {
  (void)state;
  add_metrics("{\"nll\":5}\n");
  OK(runlog_read(&runlog));
  assert_int_equal(runlog.damaged_lines, 1);
  assert_non_null(strstr(runlog.damage, "no step"));
}

/* A line that is longer than any buffer is skipped in pieces; the next one is read. */
static void test_runlog_line_of_3_mb_is_skipped(void **state) {
  (void)state;
  size_t len = (size_t)3 << 20;
  char *line;
  OK(mem_alloc(&line, len + 1, 1));
  memset(line, 'x', len);
  add_metrics(line);
  OK(runlog_read(&runlog));
  add_metrics("\n{\"nll\":3,\"step\":30,\"seconds\":1}\n");
  OK(runlog_read(&runlog));
  mem_free(line);
  assert_int_equal(runlog.damaged_lines, 1);
  assert_non_null(strstr(runlog.damage, "too long"));
  assert_int_equal(count_points("nll"), 1);
}

static void test_runlog_names_after_the_first_256_are_left_out(void **state) {
  (void)state;
  for (int i = 0; i <= RUNLOG_COLUMNS; i++) {
    char line[64];
    snprintf(line, sizeof line, "{\"v%d\":1,\"step\":%d,\"seconds\":0}\n", i, i);
    add_metrics(line);
  }
  char text[RUNLOG_LEFT_OUT];
  OK(runlog_read(&runlog));
  assert_int_equal(count_points("v0"), 1);
  assert_int_equal(count_points("v255"), 1);
  assert_int_equal(count_points("v256"), 0);
  assert_true(runlog_left_out(&runlog, text, sizeof text));
  assert_string_equal(
      text,
      "metrics.jsonl has values of more than 256 names; those after the first 256 are "
      "left out, such as v256.");
}

static void test_runlog_hosts_after_the_first_4096_are_left_out(void **state) {
  (void)state;
  char text[RUNLOG_LEFT_OUT];
  FILE *f = fopen(at("system.jsonl"), "w");
  assert_non_null(f);
  for (int round = 0; round < 2; round++)
    for (int i = 0; i <= RUNLOG_HOSTS; i++)
      fprintf(f, "{\"host\":\"h%d\",\"time\":%d,\"memory_used\":1}\n", i, round + 1);
  assert_int_equal(fclose(f), 0);
  OK(runlog_read(&runlog));
  assert_int_equal(runlog.host_count, RUNLOG_HOSTS);
  assert_int_equal(runlog.hosts[RUNLOG_HOSTS - 1].samples, 2);
  assert_true(runlog_left_out(&runlog, text, sizeof text));
  assert_string_equal(text,
                      "system.jsonl has samples of more than 4,096 hosts; those after them are "
                      "left out, such as h4096.");
}

static void test_runlog_values_of_a_host_after_the_first_256_are_left_out(void **state) {
  (void)state;
  char text[RUNLOG_LEFT_OUT];
  FILE *f = fopen(at("system.jsonl"), "w");
  assert_non_null(f);
  for (int round = 0; round < 2; round++) {
    fprintf(f, "{\"host\":\"h1\",\"time\":%d", round + 1);
    for (int i = 0; i <= RUNLOG_COLUMNS; i++) fprintf(f, ",\"v%d\":%d", i, i);
    fprintf(f, "}\n{\"host\":\"h2\",\"time\":%d,\"v300\":1}\n", round + 1);
  }
  assert_int_equal(fclose(f), 0);
  OK(runlog_read(&runlog));
  for (int i = 0; i < RUNLOG_COLUMNS; i++) {
    char name[16];
    snprintf(name, sizeof name, "v%d", i);
    const RunSeries *series = runlog_series(&runlog.hosts[0], name);
    assert_non_null(series);
    assert_int_equal(series->points, 2);
    assert_true(series->value[1] == i);
  }
  assert_null(runlog_series(&runlog.hosts[0], "v256"));
  assert_non_null(runlog_series(&runlog.hosts[1], "v300"));
  assert_true(runlog_left_out(&runlog, text, sizeof text));
  assert_string_equal(
      text,
      "system.jsonl has more than 256 values of a host; those after the first 256 "
      "are left out, such as v256 of h1.");
}

static void test_nameindex_finds_each_of_1000_names_and_no_part_of_one(void **state) {
  (void)state;
  static struct {
    char name[16];
    int value;
  } item[1000];
  size_t size = sizeof *item;
  NameIndex index = {0};
  assert_true(nameindex_find(&index, item, size, "n", 1) == NAMEINDEX_NONE);
  for (size_t i = 0; i < 1000; i++) {
    snprintf(item[i].name, sizeof item[i].name, "name%zu", i);
    OK(nameindex_add(&index, item, size, i));
  }
  for (size_t i = 0; i < 1000; i++) {
    size_t len = strlen(item[i].name);
    assert_true(nameindex_find(&index, item, size, item[i].name, len) == i);
  }
  assert_true(nameindex_find(&index, item, size, "name999", 6) == 99);
  assert_true(nameindex_find(&index, item, size, "name999", 4) == NAMEINDEX_NONE);
  assert_true(nameindex_find(&index, item, size, "name1000", 8) == NAMEINDEX_NONE);
  assert_true(nameindex_find(&index, item, size, "", 0) == NAMEINDEX_NONE);
  nameindex_free(&index);
}

static void test_runlog_unprintable_name_is_ignored(void **state) {
  (void)state;
  add_metrics("{\"<b>\":1,\"a b\":2,\"ok\":3,\"step\":1,\"seconds\":0}\n");
  OK(runlog_read(&runlog));
  assert_int_equal(runlog.column_count, 1);
  assert_int_equal(count_points("ok"), 1);
}

static void test_runlog_event_fields(void **state) {
  (void)state;
  char text[64];
  double ms[4], count;
  add_metrics(
      "{\"event\":\"restart\",\"restart_count\":2,\"restart_reason\":\"rank 1 \\u00e4 \\n "
      "died\",\"step\":7,\"seconds\":3}\n"
      "{\"event\":\"ranks\",\"rank_ms\":[1.5,2.5],\"hosts\":[\"a\",\"b\"],\"step\":9,"
      "\"seconds\":4}\n");
  OK(runlog_read(&runlog));
  assert_int_equal(runlog.event_count, 2);
  const RunEvent *restart = &runlog.events[0], *ranks = &runlog.events[1];
  assert_string_equal(restart->kind, "restart");
  assert_int_equal(restart->step, 7);
  assert_true(runlog_event_number(restart, "restart_count", &count));
  assert_true(count == 2);
  assert_true(runlog_event_text(restart, "restart_reason", text, sizeof text));
  assert_string_equal(text, "rank 1 \xc3\xa4   died");
  assert_false(runlog_event_number(restart, "none", &count));
  assert_int_equal(runlog_event_numbers(ranks, "rank_ms", ms, 4), 2);
  assert_true(ms[1] == 2.5);
  assert_int_equal(runlog_event_numbers(ranks, "rank_ms", ms, 1), 1);
  assert_true(runlog_event_item(ranks, "hosts", 1, text, sizeof text));
  assert_string_equal(text, "b");
  assert_false(runlog_event_item(ranks, "hosts", 2, text, sizeof text));
}

static void test_runlog_repeated_undoing_marks_each_event_once(void **state) {
  (void)state;
  add_metrics(
      "{\"event\":\"a\",\"step\":10,\"seconds\":1}\n"
      "{\"event\":\"b\",\"step\":3,\"seconds\":2}\n"
      "{\"undone_after\":9,\"step\":9,\"seconds\":3}\n"
      "{\"undone_after\":4,\"step\":4,\"seconds\":4}\n"
      "{\"event\":\"c\",\"step\":5,\"seconds\":5}\n");
  OK(runlog_read(&runlog));
  uint64_t revision = runlog.revision;
  assert_int_equal(runlog.last_event_step, 5);
  add_metrics(
      "{\"undone_after\":7,\"step\":7,\"seconds\":6}\n"
      "{\"undone_after\":2,\"step\":2,\"seconds\":7}\n");
  OK(runlog_read(&runlog));
  assert_int_equal(runlog.last_event_step, 0);
  assert_int_equal(runlog.revision, revision + 1);
  for (size_t i = 0; i < 3; i++) assert_true(runlog.events[i].is_undone);
}

/* The deepest value that the scanner accepts. */
static void test_runlog_value_of_a_sample_at_the_deepest_level(void **state) {
  (void)state;
  add_system(
      "{\"time\":1,\"host\":\"h\",\"a\":{\"b\":{\"c\":{\"d\":{\"e\":{\"f\":{\"g\":[7,8]}}}}}}}"
      "\n");
  OK(runlog_read(&runlog));
  const RunSeries *s = runlog_series(&runlog.hosts[0], "a/b/c/d/e/f/g/1");
  assert_non_null(s);
  assert_float_equal(s->value[0], 8, 0);
}

static void test_runlog_events_of_undone_steps_are_marked(void **state) {
  (void)state;
  add_metrics(
      "{\"event\":\"ranks\",\"step\":9,\"seconds\":4}\n"
      "{\"event\":\"rollback\",\"undone_after\":5,\"step\":5,\"seconds\":5}\n");
  OK(runlog_read(&runlog));
  assert_true(runlog.events[0].is_undone);
  assert_false(runlog.events[1].is_undone);
  assert_true(runlog.events[1].undoes_later);
}

static void test_runlog_many_ranks_events_are_thinned(void **state) {
  (void)state;
  FILE *f = fopen(at("metrics.jsonl"), "w");
  assert_non_null(f);
  for (int i = 0; i < 3 * RUNLOG_RANKS; i++)
    fprintf(f, "{\"event\":\"ranks\",\"step\":%d,\"seconds\":0}\n", i);
  fclose(f);
  OK(runlog_read(&runlog));
  assert_true(runlog.event_count <= RUNLOG_RANKS);
  assert_int_equal(runlog.events[runlog.event_count - 1].step, 3 * RUNLOG_RANKS - 1);
}

static double get_sample(const RunHost *host, const char *name, size_t i) {
  const RunSeries *s = runlog_series(host, name);
  if (!s) fail_msg("no series %s", name);
  assert_true(i < s->points);
  return s->value[i];
}

static void test_runlog_samples_of_two_hosts(void **state) {
  (void)state;
  add_system(
      "{\"time\":100.5,\"host\":\"h1\",\"cpu\":[10,30],\"memory_used\":1000,"
      "\"net\":{\"eth0\":{\"received\":7,\"sent\":8,\"speed\":1000}},"
      "\"gpu\":[{\"index\":0,\"name\":\"NVIDIA H200\",\"busy\":97,\"watts\":612,"
      "\"throttle\":[\"power_cap\"]},{\"index\":1,\"busy\":3,\"throttle\":[]}],\"step\":12}\n"
      "{\"time\":101.5,\"host\":\"h2\",\"cpu\":[50]}\n"
      "{\"time\":102,\"host\":\"h1\",\"cpu\":[20,40],\"gpu\":[{\"watts\":600}]}\n");
  OK(runlog_read(&runlog));
  assert_int_equal(runlog.damaged_lines, 0);
  assert_int_equal(runlog.host_count, 2);
  const RunHost *h1 = &runlog.hosts[0];
  assert_string_equal(h1->name, "h1");
  assert_int_equal(h1->samples, 2);
  assert_int_equal(h1->cores, 2);
  assert_true(h1->first_time == 100.5 && h1->last_time == 102);
  assert_true(get_sample(h1, "cpu", 0) == 20);
  assert_true(get_sample(h1, "cpu_max", 1) == 40);
  assert_true(get_sample(h1, "net/eth0/speed", 0) == 1000);
  assert_true(get_sample(h1, "gpu/0/watts", 1) == 600);
  assert_true(get_sample(h1, "gpu/1/busy", 0) == 3);
  assert_true(get_sample(h1, "gpu/0/throttle/power_cap", 0) == 1);
  assert_true(get_sample(h1, "step", 0) == 12);
  assert_string_equal(runlog_text(h1, "gpu/0/name"), "NVIDIA H200");
  assert_null(runlog_series(h1, "gpu/2/busy"));
  assert_null(runlog_series(&runlog.hosts[1], "memory_used"));
}

static void test_runlog_long_series_keeps_its_mean(void **state) {
  (void)state;
  FILE *f = fopen(at("system.jsonl"), "w");
  assert_non_null(f);
  for (int i = 0; i < 2 * RUNLOG_SAMPLES; i++)
    fprintf(f, "{\"time\":%d,\"host\":\"a\",\"watts_cpu\":%d}\n", i, i % 2 ? 150 : 50);
  fclose(f);
  OK(runlog_read(&runlog));
  const RunSeries *s = runlog_series(&runlog.hosts[0], "watts_cpu");
  assert_non_null(s);
  assert_true(s->points < RUNLOG_SAMPLES);
  assert_true(s->points >= RUNLOG_SAMPLES / 2);
  for (size_t i = 0; i < s->points; i++) assert_true(s->value[i] == 100);
}

static void test_runlog_out_of_memory_is_an_error(void **state) {
  (void)state;
  add_metrics(
      "{\"nll\":5,\"step\":10,\"seconds\":1}\n{\"event\":\"ranks\",\"step\":9,\"seconds\":4}"
      "\n");
  add_system("{\"time\":1,\"host\":\"a\",\"cpu\":[1],\"gpu\":[{\"name\":\"b\"}]}\n");
  for (uint64_t n = 1;; n++) {
    mem_fail_after(n);
    RunLog other;
    Err err = runlog_open(&other, scratch);
    if (!err) {
      err = runlog_read(&other);
      runlog_close(&other);
    }
    mem_fail_after(0);
    if (!err) return;
    assert_says("out of memory");
  }
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, open_log, close_log)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(test_runlog_without_files_is_empty),
      CASE(test_runlog_open_of_no_directory_fails),
      CASE(test_runlog_columns_have_step_seconds_and_value),
      CASE(test_runlog_numbers_equal_strtod),
      CASE(test_runlog_undone_steps_are_dropped),
      CASE(test_runlog_repeated_validation_later_one_counts),
      CASE(test_runlog_partial_line_waits),
      CASE(test_runlog_second_read_counts_nothing_twice),
      CASE(test_runlog_shorter_file_is_read_again),
      CASE(test_runlog_replaced_file_of_same_inode_is_read_again),
      CASE(test_runlog_removed_file_is_forgotten),
      CASE(test_runlog_damaged_line_is_skipped_and_named),
      CASE(test_runlog_line_without_step_is_damaged),
      CASE(test_runlog_line_of_3_mb_is_skipped),
      CASE(test_runlog_names_after_the_first_256_are_left_out),
      CASE(test_runlog_hosts_after_the_first_4096_are_left_out),
      CASE(test_runlog_values_of_a_host_after_the_first_256_are_left_out),
      cmocka_unit_test(test_nameindex_finds_each_of_1000_names_and_no_part_of_one),
      CASE(test_runlog_unprintable_name_is_ignored),
      CASE(test_runlog_event_fields),
      CASE(test_runlog_events_of_undone_steps_are_marked),
      CASE(test_runlog_repeated_undoing_marks_each_event_once),
      CASE(test_runlog_value_of_a_sample_at_the_deepest_level),
      CASE(test_runlog_many_ranks_events_are_thinned),
      CASE(test_runlog_samples_of_two_hosts),
      CASE(test_runlog_long_series_keeps_its_mean),
      CASE(test_runlog_out_of_memory_is_an_error),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
