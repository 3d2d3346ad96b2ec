/* Reports of run directories whose truth is planted: each answer must find it, and what was not
 * measured must be unknown. Statistics of curves. */
#include "monitor/report.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "monitor/trend.h"
#include "support.h"

static Report report;
static char run_dir[FILE_PATH_MAX];
static int runs_made;

static void add_line(const char *name, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void add_line(const char *name, const char *fmt, ...) {
  char path[FILE_PATH_MAX];
  OK(file_join(path, run_dir, name));
  FILE *f = fopen(path, "a");
  assert_non_null(f);
  va_list args;
  va_start(args, fmt);
  vfprintf(f, fmt, args);
  va_end(args);
  assert_int_equal(fclose(f), 0);
}

static int make_run_dir(void **state) {
  (void)state;
  char name[32];
  snprintf(name, sizeof name, "run-%d", runs_made++);
  OK(file_join(run_dir, scratch, name));
  OK(file_mkdirs(run_dir));
  return 0;
}

static int free_report(void **state) {
  (void)state;
  report_free(&report);
  return 0;
}

static const RunReport *make_report(double price) {
  const char *dirs[] = {run_dir};
  OK(report_make(&report, dirs, 1, price));
  return report.runs[0];
}

static const Answer *find_answer(const RunReport *run, const char *id) {
  for (int i = 0; i < REPORT_ANSWERS; i++)
    if (strcmp(run->answers[i].id, id) == 0) return &run->answers[i];
  fail_msg("no answer %s", id);
  return NULL;
}

static double get_figure(const Answer *a, const char *key) {
  for (size_t i = 0; i < a->figure_count; i++)
    if (strcmp(a->figures[i].key, key) == 0) return a->figures[i].value;
  fail_msg("no figure %s", key);
  return NAN;
}

static void assert_headline(const RunReport *run, const char *id, const char *words) {
  const Answer *a = find_answer(run, id);
  if (!strstr(a->headline, words)) fail_msg("%s: \"%s\" lacks \"%s\"", id, a->headline, words);
}

/* A record of 100 steps of 100 ms with the given parts. */
static void add_step(int step, double nll, double data, double comm) {
  add_line(
      "metrics.jsonl",
      "{\"loss\":%g,\"nll\":%g,\"lr\":0.001,\"steps_per_s\":10,\"target_tokens_per_s\":1000,"
      "\"epoch\":1,\"data_wait_ms\":%g,\"forward_ms\":%g,\"backward_ms\":%g,\"comm_wait_ms\":%"
      "g,"
      "\"update_ms\":0,\"checkpoint_ms\":0,\"sent_bytes\":1000000,\"step\":%d,\"seconds\":%g}"
      "\n",
      nll, nll, data, (100 - data - comm) / 3, 2 * (100 - data - comm) / 3, comm, step,
      step / 10.0);
}

static void add_validation(int step, double nll, double bleu) {
  add_line(
      "metrics.jsonl",
      "{\"valid_nll\":%g,\"valid_bleu\":%g,\"valid_seconds\":1,\"step\":%d,\"seconds\":%g}\n",
      nll, bleu, step, step / 10.0);
}

static void add_process(int ranks, const char *hosts) {
  add_line("processes.jsonl",
           "{\"time\":1,\"version\":\"0.1.0\",\"command\":\"trireme train --x\",\"ranks\":%d,"
           "\"hosts\":[%s],\"device\":\"cpu: "
           "test\",\"gradient_bytes\":4000000,\"parameters\":1000000}\n",
           ranks, hosts);
}

/* Pseudo-random noise between -1 and 1, the same in every run. */
static double get_noise(int i) {
  return sin(12.9898 * i) * cos(78.233 * i);
}

static void test_trend_of_a_line_is_exact(void **state) {
  (void)state;
  double x[] = {1, 2, 3, 4}, y[] = {10, 8, 6, 4};
  Trend t = trend_fit(x, y, 4);
  assert_float_equal(t.slope, -2, 1e-12);
  assert_float_equal(t.noise, 0, 1e-12);
  assert_true(trend_is_significant(&t));
}

static void test_trend_of_noise_is_not_significant(void **state) {
  (void)state;
  double x[12], y[12];
  for (int i = 0; i < 12; i++) {
    x[i] = i;
    y[i] = i % 2 ? 1 : -1;
  }
  Trend t = trend_fit(x, y, 12);
  assert_false(trend_is_significant(&t));
}

static void test_trend_of_two_points_is_not_significant(void **state) {
  (void)state;
  double x[] = {1, 2}, y[] = {2, 1};
  Trend t = trend_fit(x, y, 2);
  assert_false(trend_is_significant(&t));
}

static void test_trend_noise_ignores_a_slope(void **state) {
  (void)state;
  double y[40];
  for (int i = 0; i < 40; i++) y[i] = 5 * i;
  assert_float_equal(trend_noise(y, 40), 0, 1e-9);
  assert_true(isnan(trend_noise(y, 3)));
}

static void test_trend_quantile_interpolates(void **state) {
  (void)state;
  double y[] = {4, 1, 3, 2};
  assert_float_equal(trend_quantile(y, 4, 0.5), 2.5, 1e-12);
  assert_float_equal(trend_quantile(y, 4, 1), 4, 1e-12);
  assert_true(isnan(trend_quantile(y, 0, 0.5)));
}

static void test_report_falling_validation_is_not_fully_trained(void **state) {
  (void)state;
  for (int i = 1; i <= 12; i++) {
    add_step(100 * i, 5 - 0.2 * i, 1, 0);
    add_validation(100 * i, 5 - 0.2 * i + 0.01 * get_noise(i), i);
  }
  const RunReport *run = make_report(NAN);
  assert_headline(run, "trained", "No: the validation loss still falls");
  assert_headline(run, "overfitting", "No");
  assert_float_equal(get_figure(find_answer(run, "trained"), "slope_per_1000_steps"), -2, 0.2);
}

static void test_report_flat_validation_is_fully_trained(void **state) {
  (void)state;
  for (int i = 1; i <= 24; i++) {
    add_step(100 * i, 2, 1, 0);
    add_validation(100 * i, i < 8 ? 4 - 0.25 * i : 2 + 0.02 * get_noise(i), i);
  }
  const RunReport *run = make_report(NAN);
  assert_headline(run, "trained", "Yes: the validation loss no longer changes");
  assert_headline(run, "overfitting", "No");
}

static void test_report_two_validations_are_too_few(void **state) {
  (void)state;
  add_step(100, 3, 1, 0);
  add_validation(50, 4, 1);
  add_validation(100, 3, 1);
  const RunReport *run = make_report(NAN);
  assert_headline(run, "trained", "Unknown: too few validations");
  assert_headline(run, "overfitting", "Unknown");
}

static void test_report_rising_validation_is_overfitting(void **state) {
  (void)state;
  for (int i = 1; i <= 12; i++) {
    add_step(100 * i, 4 - 0.3 * i, 1, 0);
    add_validation(100 * i, i <= 4 ? 4 - 0.2 * i : 3.2 + 0.1 * (i - 4) + 0.005 * get_noise(i),
                   i);
  }
  const RunReport *run = make_report(NAN);
  assert_headline(run, "overfitting", "Yes, since step 400");
  assert_headline(run, "trained", "Past its best");
  assert_true(run->change_count > 0);
  assert_non_null(strstr(run->changes[0].what, "Stop when the model begins to overfit"));
  assert_float_equal(run->changes[0].share, 80.0 / 120, 0.01);
}

static void test_report_starved_run_names_data_wait(void **state) {
  (void)state;
  for (int i = 1; i <= 6; i++) add_step(100 * i, 3, 60, 0);
  const RunReport *run = make_report(NAN);
  assert_headline(run, "devices", "No: 60 % of a step is data wait");
  assert_non_null(strstr(run->changes[0].what, "Feed data faster"));
  assert_float_equal(run->changes[0].share, 0.6, 0.001);
}

static void add_ranks(int step, const char *ms, const char *wait, const char *data) {
  add_line("metrics.jsonl",
           "{\"event\":\"ranks\",\"rank_ms\":[%s],\"rank_wait_ms\":[%s],\"rank_data_ms\":[%s],"
           "\"hosts\":[\"h1\",\"h2\"],\"step\":%d,\"seconds\":1}\n",
           ms, wait, data, step);
}

static void test_report_slow_link_is_the_bottleneck(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 0, 70);
    add_ranks(100 * i, "100,100", "70,69", "0,0");
  }
  add_line("system.jsonl",
           "{\"time\":1,\"host\":\"h1\",\"net\":{\"eth0\":{\"sent\":10000000,"
           "\"received\":9000000,\"speed\":1000}}}\n");
  const RunReport *run = make_report(NAN);
  assert_headline(run, "network", "Yes: 69 % of a step waits for it");
  assert_headline(run, "devices", "all-reduce wait");
  assert_true(run->straggler == SIZE_MAX);
  const Answer *a = find_answer(run, "traffic");
  assert_float_equal(get_figure(a, "ring_bytes"), 4e6, 1);
  assert_float_equal(get_figure(a, "ratio_to_ring"), 0.25, 1e-6);
  assert_float_equal(get_figure(a, "ms_at_card_speed"), 32, 1e-6);
  assert_non_null(strstr(find_answer(run, "network")->sentence, "8.0 % of its"));
  assert_non_null(strstr(run->changes[0].what, "bf16"));
  assert_float_equal(run->changes[0].share, 0.345, 0.001);
}

static void test_report_slow_rank_is_named(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 0, 50);
    add_ranks(100 * i, "100,100", "51,1", "0,0");
  }
  const RunReport *run = make_report(NAN);
  assert_int_equal(run->straggler, 1);
  assert_headline(run, "network", "No: 1.0 % of a step");
  assert_headline(run, "devices", "waits for rank 1");
  assert_non_null(strstr(run->changes[0].what, "Make rank 1 on h2 as fast as the others"));
  assert_float_equal(run->changes[0].share, 0.5, 0.01);
}

static void test_report_slow_disk_of_one_rank_is_named(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 0, 50);
    add_ranks(100 * i, "100,100", "51,1", "0,50");
  }
  const RunReport *run = make_report(NAN);
  assert_int_equal(run->straggler, 1);
  assert_non_null(strstr(run->changes[0].how, "waits for data"));
}

static void test_report_without_times_of_ranks_does_not_guess(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) add_step(100 * i, 3, 0, 50);
  const RunReport *run = make_report(NAN);
  assert_headline(run, "network", "Possibly: 50 % of a step waits");
  assert_non_null(strstr(find_answer(run, "network")->sentence, "is unknown"));
  assert_true(run->straggler == SIZE_MAX);
}

static void test_report_of_an_empty_run_is_unknown(void **state) {
  (void)state;
  add_line("config", "preset = tiny\n");
  const RunReport *run = make_report(2.5);
  for (int i = 0; i < REPORT_ANSWERS; i++)
    assert_int_equal(run->answers[i].verdict, VERDICT_UNKNOWN);
  for (size_t i = 0; i < run->cost_count; i++) assert_true(isnan(run->costs[i].value));
}

static void test_report_of_no_run_is_an_error(void **state) {
  (void)state;
  const char *dirs[] = {run_dir};
  assert_int_equal(report_make(&report, dirs, 1, NAN), ERR_WORK);
  assert_says("is no run");
}

static double get_cost(const RunReport *run, const char *key) {
  for (size_t i = 0; i < run->cost_count; i++)
    if (strcmp(run->costs[i].key, key) == 0) return run->costs[i].value;
  fail_msg("no cost %s", key);
  return NAN;
}

/* 300 W and 100 W for an hour; a gap of 100 s between two samples is not counted. */
static void test_report_energy_is_power_times_time(void **state) {
  (void)state;
  add_process(1, "\"h1\"");
  for (int i = 1; i <= 36; i++) add_step(1000 * i, 3, 0, 0);
  for (int i = 0; i <= 3600; i++)
    add_line("system.jsonl",
             "{\"time\":%d,\"host\":\"h1\",\"watts_cpu\":100,\"gpu\":[{\"busy\":90,\"watts\":"
             "300}]}\n",
             i < 1800 ? i : i + 100);
  const RunReport *run = make_report(2);
  assert_float_equal(get_cost(run, "energy_kwh"), 0.4 * 3599 / 3600, 1e-6);
  assert_float_equal(get_cost(run, "cost"), 2, 1e-6);
}

/* A GPU that is busy while it computes, but idle half of the time. */
static void test_report_idle_gpu_is_not_fully_used(void **state) {
  (void)state;
  add_line("processes.jsonl",
           "{\"device\":\"cuda:0: NVIDIA H200\",\"ranks\":1,\"hosts\":[\"h1\"]}\n");
  for (int i = 1; i <= 6; i++) add_step(100 * i, 3, 0, 0);
  for (int i = 0; i < 60; i++)
    add_line("system.jsonl",
             "{\"time\":%d,\"host\":\"h1\",\"gpu\":[{\"name\":\"NVIDIA "
             "H200\",\"busy\":%d,\"watts\":%d,"
             "\"watts_limit\":700,\"memory_used\":8000000000,\"memory_total\":150000000000%s},"
             "{\"busy\":0,\"watts\":70}]}\n",
             i, i % 2 ? 100 : 0, i % 2 ? 600 : 200,
             i < 6 ? ",\"throttle\":[\"power_cap\"]" : "");
  const RunReport *run = make_report(NAN);
  const Answer *a = find_answer(run, "devices");
  assert_headline(run, "devices", "Not fully: utilisation 50 %");
  assert_float_equal(get_figure(a, "gpu_watts"), 400, 1e-9);
  assert_float_equal(get_figure(a, "gpu_throttled_share"), 0.1, 1e-9);
  assert_float_equal(get_figure(a, "gpu_memory_bytes"), 8e9, 1);
  assert_non_null(strstr(a->sentence, "MFU) is unknown"));
}

static void test_report_undone_steps_do_not_count(void **state) {
  (void)state;
  for (int i = 1; i <= 6; i++) add_step(100 * i, 3, 10, 0);
  add_line("metrics.jsonl",
           "{\"event\":\"rollback\",\"undone_after\":100,\"step\":100,\"seconds\":70}\n");
  for (int i = 2; i <= 6; i++) add_step(100 * i, 3, 30, 0);
  const RunReport *run = make_report(NAN);
  assert_float_equal(get_figure(find_answer(run, "step"), "data_wait_ms"), 30, 1e-9);
  assert_float_equal(get_figure(find_answer(run, "duration"), "rollbacks"), 1, 0);
}

static void test_report_hostile_texts_are_escaped(void **state) {
  (void)state;
  Str page = {0};
  add_line("config", "data = <script>alert(1)</script>\x1b[31m\nb = \x1b]0;x\n");
  add_line("processes.jsonl",
           "{\"command\":\"<script>\",\"device\":\"<img>\",\"version\":\"\\u001b[31m\","
           "\"ranks\":1}\n");
  add_line("metrics.jsonl",
           "{\"event\":\"ranks\",\"rank_ms\":[1,2],\"hosts\":[\"<b>\",\"x\"],\"step\":1,"
           "\"seconds\":1}\n");
  make_report(NAN);
  OK(report_html(&report, &page));
  assert_null(strstr(page.s, "<script"));
  assert_null(strstr(page.s, "<img"));
  assert_null(strstr(page.s, "<b>&lt;b"));
  assert_null(strstr(page.s, "<td><b>"));
  assert_null(strchr(page.s, '\x1b'));
  str_clear(&page);
  OK(report_markdown(&report, &page));
  assert_null(strchr(page.s, '\x1b'));
  str_free(&page);
}

static void test_report_page_loads_nothing(void **state) {
  (void)state;
  Str page = {0};
  add_process(1, "\"h1\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 10, 0);
    add_validation(100 * i, 3, i);
  }
  make_report(1);
  OK(report_html(&report, &page));
  assert_null(strstr(page.s, " src="));
  assert_null(strstr(page.s, "<link"));
  assert_null(strstr(page.s, "<script"));
  assert_null(strstr(page.s, "url("));
  static const char *const numbers[] = {">nan", " nan", "\"nan", "-nan",
                                        "(nan", "+nan", ">inf"};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    assert_null(strstr(page.s, numbers[i]));
  assert_non_null(strstr(page.s, "<svg"));
  str_free(&page);
}

static void test_report_out_of_memory_is_an_error(void **state) {
  (void)state;
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++) {
    add_step(100 * i, 3, 0, 70);
    add_validation(100 * i, 3, i);
    add_ranks(100 * i, "100,100", "70,69", "0,0");
  }
  const char *dirs[] = {run_dir};
  size_t failures = 0;
  for (uint64_t n = 1;; n += 1 + n / 16) {
    mem_fail_after(n);
    Err err = report_make(&report, dirs, 1, NAN);
    mem_fail_after(0);
    if (!err) break;
    failures++;
  }
  assert_true(failures > 10);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_run_dir, free_report)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(test_trend_of_a_line_is_exact),
      CASE(test_trend_of_noise_is_not_significant),
      CASE(test_trend_of_two_points_is_not_significant),
      CASE(test_trend_noise_ignores_a_slope),
      CASE(test_trend_quantile_interpolates),
      CASE(test_report_falling_validation_is_not_fully_trained),
      CASE(test_report_flat_validation_is_fully_trained),
      CASE(test_report_two_validations_are_too_few),
      CASE(test_report_rising_validation_is_overfitting),
      CASE(test_report_starved_run_names_data_wait),
      CASE(test_report_slow_link_is_the_bottleneck),
      CASE(test_report_slow_rank_is_named),
      CASE(test_report_slow_disk_of_one_rank_is_named),
      CASE(test_report_without_times_of_ranks_does_not_guess),
      CASE(test_report_of_an_empty_run_is_unknown),
      CASE(test_report_of_no_run_is_an_error),
      CASE(test_report_energy_is_power_times_time),
      CASE(test_report_idle_gpu_is_not_fully_used),
      CASE(test_report_undone_steps_do_not_count),
      CASE(test_report_hostile_texts_are_escaped),
      CASE(test_report_page_loads_nothing),
      CASE(test_report_out_of_memory_is_an_error),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
