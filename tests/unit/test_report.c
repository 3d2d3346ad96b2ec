/* Reports of run directories whose truth is planted: each answer must find it, and what was not
 * measured must be unknown. Statistics of curves. */
#include "base/mem.h"
#include "monitor/trend.h"
#include "report_run.h"

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
    add_validation(100 * i, i < 8 ? 4 - 0.25 * i : 2 + 0.005 * get_noise(i), i);
  }
  const RunReport *run = make_report(NAN);
  assert_headline(run, "trained", "Yes: the validation loss no longer changes");
  assert_headline(run, "overfitting", "No");
}

/* Four validations whose noise is 5 %: neither "yes" nor "no" can be said. */
static void test_report_noisy_validation_is_unclear(void **state) {
  (void)state;
  for (int i = 1; i <= 8; i++) {
    add_step(100 * i, 2, 1, 0);
    add_validation(100 * i, i % 2 ? 2.1 : 2.0, i);
  }
  const RunReport *run = make_report(NAN);
  assert_headline(run, "trained", "Unclear: the noise hides");
  assert_int_equal(find_answer(run, "trained")->verdict, VERDICT_UNKNOWN);
}

/* A curve that flattens is not noise. */
static void test_report_bent_curve_still_falls(void **state) {
  (void)state;
  static const double losses[] = {7.08, 5.9, 5.6, 5.44};
  add_line("processes.jsonl", "{\"steps\":160}\n");
  for (int i = 1; i <= 4; i++) {
    add_step(20 * i, 5, 1, 0);
    add_validation(20 * i, losses[i - 1], i);
  }
  const RunReport *run = make_report(NAN);
  const char *sentence = find_answer(run, "trained")->sentence;
  assert_headline(run, "trained", "No: the validation loss still falls");
  assert_non_null(
      strstr(sentence, "fell at each of the last 3 validations, by 8.0000 per 1,000"));
  assert_non_null(strstr(find_answer(run, "duration")->sentence, "step 80 of at most 160"));
}

/* A rise that is certain but far below 1 % is no overfitting, and the two answers agree. */
static void test_report_tiny_rise_is_not_past_its_best(void **state) {
  (void)state;
  for (int i = 1; i <= 12; i++) {
    add_step(100 * i, 2, 1, 0);
    add_validation(100 * i, i < 6 ? 3 - 0.2 * i : 2 + 0.0001 * i, i);
  }
  const RunReport *run = make_report(NAN);
  assert_headline(run, "trained", "Yes: the validation loss no longer falls");
  assert_headline(run, "overfitting", "No");
}

/* Both losses rise; one batch at the end happens to have a low training loss. */
static void test_report_diverging_run_is_not_overfitting(void **state) {
  (void)state;
  for (int i = 1; i <= 60; i++) add_step(20 * i, i == 60 ? 1.5 : 2 + 0.02 * i, 1, 0);
  for (int i = 1; i <= 12; i++) add_validation(100 * i, 2 + 0.1 * i, i);
  const RunReport *run = make_report(NAN);
  assert_headline(run, "overfitting", "Not clearly: the training loss did not fall");
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

/* 100 steps at 1 step/s and 100 at 100 steps/s, of 1000 tokens each: 200,000 tokens in 101 s. */
static void test_report_rates_are_means_over_time(void **state) {
  (void)state;
  for (int i = 1; i <= 2; i++)
    add_line("metrics.jsonl",
             "{\"steps_per_s\":%d,\"target_tokens_per_s\":%d,\"forward_ms\":1,\"step\":%d,"
             "\"seconds\":1}\n",
             i == 1 ? 1 : 100, i == 1 ? 1000 : 100000, 100 * i);
  const RunReport *run = make_report(NAN);
  assert_true(fabs(run->facts.tokens_per_s - 200000.0 / 101) < 1e-6);
  assert_float_equal(run->facts.target_tokens, 200000, 1e-6);
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

static void test_report_huge_numbers_are_shown(void **state) {
  (void)state;
  Str page = {0};
  add_process(2, "\"h1\",\"h2\"");
  for (int i = 1; i <= 6; i++)
    add_line("metrics.jsonl",
             "{\"nll\":1e308,\"valid_nll\":1.7e308,\"steps_per_s\":1e-308,\"sent_bytes\":1e300,"
             "\"target_tokens_per_s\":1e308,\"comm_wait_ms\":1e308,\"forward_ms\":-1e308,"
             "\"step\":%d,\"seconds\":1e300}\n",
             i);
  make_report(1e6);
  OK(report_html(&report, &page));
  OK(report_markdown(&report, &page));
  OK(report_json(&report, &page));
  str_free(&page);
}

static void test_report_has_the_whole_of_a_long_command(void **state) {
  (void)state;
  Str page = {0};
  add_line("config", "preset = tiny\n");
  add_line("processes.jsonl", "{\"command\":\"%05000d end-of-command\"}\n", 0);
  make_report(NAN);
  OK(report_markdown(&report, &page));
  assert_non_null(strstr(page.s, "00 end-of-command\n"));
  str_free(&page);
}

/* A GPU that always runs some kernel, at 5 % of its peak. */
static void test_report_low_mfu_is_not_fully_used(void **state) {
  (void)state;
  add_line("processes.jsonl",
           "{\"device\":\"cuda:0: NVIDIA H200\",\"ranks\":1,\"hosts\":[\"h1\"]}\n");
  for (int i = 1; i <= 3; i++)
    add_line(
        "metrics.jsonl",
        "{\"steps_per_s\":10,\"forward_ms\":30,\"backward_ms\":69,\"mfu\":0.05,\"step\":%d,"
        "\"seconds\":1}\n",
        i);
  add_line("system.jsonl",
           "{\"time\":1,\"host\":\"h1\",\"gpu\":[{\"busy\":99,\"watts\":300}]}\n");
  const RunReport *run = make_report(NAN);
  assert_headline(run, "devices", "Busy, but at 5.0 % of the peak FLOP/s");
  const Answer *a = find_answer(run, "devices");
  for (size_t i = 0; i < a->figure_count; i++) assert_null(strstr(a->figures[i].shown, "nan"));
}

static void test_report_gpus_of_a_cpu_run_are_not_its_own(void **state) {
  (void)state;
  add_process(1, "\"h1\"");
  for (int i = 1; i <= 6; i++) add_step(100 * i, 3, 0, 0);
  add_line("system.jsonl",
           "{\"time\":1,\"host\":\"h1\",\"cpu\":[90],\"gpu\":[{\"busy\":99}]}\n");
  const Answer *a = find_answer(make_report(NAN), "devices");
  for (size_t i = 0; i < a->figure_count; i++)
    assert_string_not_equal(a->figures[i].key, "gpu_busy_percent");
}

static void test_report_rate_without_a_config_is_not_explained(void **state) {
  (void)state;
  for (int i = 1; i <= 6; i++) add_step(100 * i, 3, 0, 0);
  const Answer *a = find_answer(make_report(NAN), "learning_rate");
  assert_non_null(strstr(a->sentence, "are unknown, because there is no config"));
}

/* Rates of earlier versions could be too high; a step is at least as long as its parts. */
static void test_report_step_is_as_long_as_its_parts(void **state) {
  (void)state;
  add_line("metrics.jsonl",
           "{\"steps_per_s\":100,\"forward_ms\":30,\"backward_ms\":60,\"data_wait_ms\":10,"
           "\"step\":5,\"seconds\":1}\n");
  const RunReport *run = make_report(NAN);
  assert_float_equal(run->facts.parts.total, 100, 1e-6);
  assert_headline(run, "devices", "Yes: 90 % of a step computes");
}

/* A run that rolled back twice, and then ended. */
static void test_report_of_a_diverged_run_says_so_first(void **state) {
  (void)state;
  add_line("config", "lr-scheduler = piecewise\nlr-milestones = 200:1e6\nbeam-size = 1\n");
  add_line("processes.jsonl",
           "{\"steps\":800,\"warmup_steps\":100,\"device\":\"cpu: test\"}\n");
  for (int i = 1; i <= 3; i++) add_step(100 * i, 5, 40, 0);
  add_line("metrics.jsonl", "{\"lr\":1000,\"step\":350,\"seconds\":35}\n");
  add_validation(300, 5, 1);
  for (int i = 1; i <= 2; i++)
    add_line("metrics.jsonl",
             "{\"event\":\"rollback\",\"rollbacks\":%d,\"undone_after\":350,\"step\":350,"
             "\"seconds\":35}\n",
             i);
  add_line("log.txt",
           "2026-01-01T00:00:00Z  step 350\n"
           "2026-01-01T00:00:01Z  trireme: step 350: the loss diverged (loss 9) after 2 "
           "roll-backs, the limit of --max-rollbacks\n");
  const RunReport *run = make_report(NAN);
  assert_headline(run, "duration", "It diverged after");
  assert_headline(run, "trained", "No: the run diverged");
  assert_memory_equal(find_answer(run, "duration")->sentence,
                      "The run ended with an error: step 350: the loss diverged", 56);
  assert_string_equal(run->changes[0].what, "Keep the loss from diverging");
  assert_int_equal(run->change_count, 3);
  assert_non_null(strstr(find_answer(run, "overfitting")->sentence, "There is 1 validation;"));
  const char *rate = find_answer(run, "learning_rate")->sentence;
  assert_non_null(strstr(rate, "to 0.001 near step 100, then it changes in steps"));
  assert_null(strstr(rate, "falls"));
}

/* An error that a later process has left behind, and a log that is none. */
static void test_report_error_is_the_last_line_of_the_log(void **state) {
  (void)state;
  add_step(100, 5, 0, 0);
  add_line("log.txt",
           "2026-01-01T00:00:01Z  trireme: no memory\n2026-01-01T00:00:02Z  step 100\n");
  assert_string_equal(make_report(NAN)->facts.error, "");
  report_free(&report);
  add_line("log.txt", "2026-01-01T00:00:03Z  trireme: no \033[1mmemory\n");
  const RunReport *run = make_report(NAN);
  assert_string_equal(run->facts.error, "no \\x1b[1mmemory");
  assert_headline(run, "duration", "It ended with an error after");
}

static const char *get_devices(double mfu, int threads, const char *cores) {
  report_free(&report);
  make_run_dir(NULL);
  add_line("processes.jsonl", "{\"ranks\":1,\"threads\":%d,\"device\":\"cpu: test\"}\n",
           threads);
  for (int i = 1; i <= 3; i++) {
    add_step(100 * i, 5, 0, 0);
    if (!isnan(mfu))
      add_line("metrics.jsonl", "{\"mfu\":%g,\"steps_per_s\":10,\"step\":%d,\"seconds\":%d}\n",
               mfu, 100 * i + 1, 10 * i);
  }
  add_line("system.jsonl", "{\"time\":1,\"host\":\"h1\",\"cpu\":[%s]}\n", cores);
  return find_answer(make_report(NAN), "devices")->headline;
}

/* Times of steps and the utilisation of the host contain what other processes did. */
static void test_report_cpu_is_fully_used_only_if_its_mfu_says_so(void **state) {
  (void)state;
  assert_string_equal(get_devices(0.001, 2, "100,100"),
                      "Busy, but at 0.1 % of the peak FLOP/s");
  assert_non_null(strstr(find_answer(report.runs[0], "devices")->sentence,
                         "how much of it others took is unknown"));
  assert_string_equal(get_devices(0.5, 1, "100,100"), "Not fully: 1 thread on 2 cores");
  assert_string_equal(get_devices(NAN, 2, "100,100"),
                      "Unknown: 100 % of a step computes, at an unknown share of the peak");
  assert_string_equal(get_devices(0.15, 2, "100,100"), "Yes: 100 % of a step computes");
}

static void test_report_advice_can_be_followed(void **state) {
  (void)state;
  add_line("config", "beam-size = 1\n");
  add_line("processes.jsonl", "{\"ranks\":1,\"threads\":1,\"device\":\"cpu: test\"}\n");
  for (int i = 1; i <= 3; i++) {
    add_step(100 * i, 5, 40, 0);
    add_validation(100 * i, 5, 1);
  }
  const RunReport *run = make_report(NAN);
  assert_int_equal(run->change_count, 2);
  for (size_t i = 0; i < run->change_count; i++) {
    assert_null(strstr(run->changes[i].how, "--threads"));
    assert_null(strstr(run->changes[i].how, "--beam-size"));
  }
}

static void test_report_has_the_reasons_of_restarts(void **state) {
  (void)state;
  add_step(100, 5, 0, 0);
  add_line("metrics.jsonl",
           "{\"event\":\"restart\",\"restart_reason\":\"rank 1 on h1: killed by "
           "SIGKILL\",\"step\":90,\"seconds\":1}\n");
  assert_non_null(strstr(find_answer(make_report(NAN), "duration")->sentence,
                         "Restarted after: rank 1 on h1: killed by SIGKILL (step 90)."));
}

static void test_report_times_without_a_finite_sum_are_unknown(void **state) {
  (void)state;
  Str page = {0};
  for (int i = 1; i <= 3; i++)
    add_line("metrics.jsonl",
             "{\"steps_per_s\":1e-307,\"forward_ms\":1e308,\"backward_ms\":1e308,\"step\":%d,"
             "\"seconds\":1e308}\n",
             i);
  const RunReport *run = make_report(NAN);
  assert_headline(run, "step", "Unknown");
  OK(report_markdown(&report, &page));
  assert_null(strstr(str_text(&page), "inf ms"));
  str_free(&page);
}

static void test_report_json_escapes_controls_of_8_bits(void **state) {
  (void)state;
  Str page = {0};
  add_step(100, 5, 0, 0);
  add_line("processes.jsonl", "{\"command\":\"a\\u009bb ä\"}\n");
  make_report(NAN);
  OK(report_json(&report, &page));
  assert_non_null(strstr(str_text(&page), "\"a\\u009bb ä\""));
  assert_null(strstr(str_text(&page), "\xc2\x9b"));
  str_free(&page);
}

static void test_report_markdown_keeps_hostile_texts_in_their_place(void **state) {
  (void)state;
  Str page = {0};
  add_line("config", "a = ```\nb = ````\n# not a heading\n");
  add_line("metrics.jsonl", "{\n");
  make_report(NAN);
  OK(report_markdown(&report, &page));
  assert_non_null(strstr(page.s, "`````\na = ```\nb = ````\n# not a heading\n"));
  assert_non_null(strstr(page.s, "could not be read, the first: "));
  str_free(&page);
}

/* Names of options and directories reach the terminal in a comparison. */
static void test_report_names_cannot_command_a_terminal(void **state) {
  (void)state;
  Str page = {0};
  char other[FILE_PATH_MAX];
  add_line("config", "\x1b[2J = 1\n");
  OK(file_join(other, scratch, "run\x1b[31m"));
  OK(file_mkdirs(other));
  OK(file_join(other, scratch, "run\x1b[31m/config"));
  OK(file_write(other, "a = 1\n", 6));
  OK(file_join(other, scratch, "run\x1b[31m"));
  const char *dirs[] = {run_dir, other};
  OK(report_make(&report, dirs, 2, NAN));
  OK(report_markdown(&report, &page));
  OK(report_html(&report, &page));
  assert_null(strchr(page.s, '\x1b'));
  str_free(&page);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(test_trend_of_a_line_is_exact),
      CASE(test_trend_of_noise_is_not_significant),
      CASE(test_trend_of_two_points_is_not_significant),
      CASE(test_trend_noise_ignores_a_slope),
      CASE(test_trend_quantile_interpolates),
      CASE(test_report_falling_validation_is_not_fully_trained),
      CASE(test_report_flat_validation_is_fully_trained),
      CASE(test_report_noisy_validation_is_unclear),
      CASE(test_report_bent_curve_still_falls),
      CASE(test_report_tiny_rise_is_not_past_its_best),
      CASE(test_report_diverging_run_is_not_overfitting),
      CASE(test_report_two_validations_are_too_few),
      CASE(test_report_rising_validation_is_overfitting),
      CASE(test_report_starved_run_names_data_wait),
      CASE(test_report_rates_are_means_over_time),
      CASE(test_report_of_an_empty_run_is_unknown),
      CASE(test_report_of_no_run_is_an_error),
      CASE(test_report_energy_is_power_times_time),
      CASE(test_report_idle_gpu_is_not_fully_used),
      CASE(test_report_huge_numbers_are_shown),
      CASE(test_report_has_the_whole_of_a_long_command),
      CASE(test_report_low_mfu_is_not_fully_used),
      CASE(test_report_gpus_of_a_cpu_run_are_not_its_own),
      CASE(test_report_rate_without_a_config_is_not_explained),
      CASE(test_report_step_is_as_long_as_its_parts),
      CASE(test_report_of_a_diverged_run_says_so_first),
      CASE(test_report_error_is_the_last_line_of_the_log),
      CASE(test_report_cpu_is_fully_used_only_if_its_mfu_says_so),
      CASE(test_report_advice_can_be_followed),
      CASE(test_report_has_the_reasons_of_restarts),
      CASE(test_report_times_without_a_finite_sum_are_unknown),
      CASE(test_report_json_escapes_controls_of_8_bits),
      CASE(test_report_markdown_keeps_hostile_texts_in_their_place),
      CASE(test_report_names_cannot_command_a_terminal),
      CASE(test_report_undone_steps_do_not_count),
      CASE(test_report_hostile_texts_are_escaped),
      CASE(test_report_page_loads_nothing),
      CASE(test_report_out_of_memory_is_an_error),
  };
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
