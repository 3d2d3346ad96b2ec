/* Charts: ticks, well-formed SVG, gaps, many points, escaped names. */
#include "monitor/plot.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "support.h"

static Str text;

static int free_text(void **state) {
  (void)state;
  str_free(&text);
  return 0;
}

static size_t count_of(const char *what) {
  size_t n = 0;
  for (const char *at = str_text(&text); (at = strstr(at, what)); at += strlen(what)) n++;
  return n;
}

static PlotLines make_plot(const PlotSeries *series, size_t count) {
  return (PlotLines){.title = "t", .mark = NAN, .series = series, .count = count};
}

static void test_plot_tick_step_is_1_2_or_5_times_a_power(void **state) {
  (void)state;
  assert_float_equal(plot_tick_step(10, 5), 2, 1e-9);
  assert_float_equal(plot_tick_step(1000, 8), 200, 1e-9);
  assert_float_equal(plot_tick_step(0.04, 5), 0.01, 1e-9);
  assert_float_equal(plot_tick_step(7, 1), 10, 1e-9);
  assert_float_equal(plot_tick_step(0, 5), 1, 1e-9);
}

static void test_plot_tick_text_has_units(void **state) {
  (void)state;
  char out[32];
  assert_string_equal(plot_tick_text(out, 0), "0");
  assert_string_equal(plot_tick_text(out, 2.5), "2.5");
  assert_string_equal(plot_tick_text(out, 5000), "5000");
  assert_string_equal(plot_tick_text(out, 20000), "20k");
  assert_string_equal(plot_tick_text(out, 1.5e6), "1.5M");
  assert_string_equal(plot_tick_text(out, 2.5e-4), "2.5e-4");
  assert_string_equal(plot_tick_text(out, -0.25), "-0.25");
}

static void test_plot_of_no_values_says_so(void **state) {
  (void)state;
  double x[] = {1, 2}, y[] = {NAN, NAN};
  PlotSeries s = {.name = "a", .x = x, .y = y, .points = 2};
  PlotLines p = make_plot(&s, 1);
  plot_lines(&p, &text);
  assert_int_equal(count_of("<svg"), 0);
  assert_int_equal(count_of("No measurements"), 1);
}

static void test_plot_gap_begins_a_new_line(void **state) {
  (void)state;
  double x[] = {1, 2, 3, 4, 5}, y[] = {1, 2, NAN, 4, 5};
  PlotSeries s = {.name = "a", .x = x, .y = y, .points = 5};
  PlotLines p = make_plot(&s, 1);
  plot_lines(&p, &text);
  const char *path = strstr(str_text(&text), "stroke-width=\"1.8\"");
  assert_non_null(path);
  const char *begin = path;
  while (strncmp(begin, "<path", 5) != 0) begin--;
  size_t moves = 0;
  for (const char *at = begin; at < path; at++) moves += *at == 'M';
  assert_int_equal(moves, 2);
}

static void test_plot_of_one_point_is_drawn(void **state) {
  (void)state;
  double x[] = {7}, y[] = {3};
  PlotSeries s = {.name = "a", .x = x, .y = y, .points = 1, .has_dots = true};
  PlotLines p = make_plot(&s, 1);
  plot_lines(&p, &text);
  assert_int_equal(count_of("<circle"), 1);
  assert_int_equal(count_of("nan"), 0);
  assert_int_equal(count_of("inf"), 0);
}

static void test_plot_log_scale_drops_zero(void **state) {
  (void)state;
  double x[] = {1, 2, 3}, y[] = {0, 10, 1000};
  PlotSeries s = {.name = "a", .x = x, .y = y, .points = 3, .has_dots = true};
  PlotLines p = make_plot(&s, 1);
  p.is_log = true;
  plot_lines(&p, &text);
  assert_int_equal(count_of("<circle"), 2);
  assert_int_equal(count_of(">100</text>"), 1);
}

static void test_plot_of_100000_points_stays_small(void **state) {
  (void)state;
  size_t n = 100000;
  double *x, *y;
  OK(mem_alloc(&x, n, sizeof *x));
  OK(mem_alloc(&y, n, sizeof *y));
  for (size_t i = 0; i < n; i++) {
    x[i] = (double)i;
    y[i] = sin((double)i);
  }
  PlotSeries s = {.name = "a", .x = x, .y = y, .points = n};
  PlotLines p = make_plot(&s, 1);
  plot_lines(&p, &text);
  mem_free(x);
  mem_free(y);
  assert_true(text.len > 1000);
  assert_true(text.len < 40000);
}

static void test_plot_names_are_escaped(void **state) {
  (void)state;
  double x[] = {1, 2}, y[] = {1, 2};
  PlotSeries s = {.name = "<script>\"&", .x = x, .y = y, .points = 2};
  PlotLines p = make_plot(&s, 1);
  plot_lines(&p, &text);
  assert_int_equal(count_of("<script>"), 0);
  assert_int_equal(count_of("&lt;script&gt;&quot;&amp;"), 1);
}

static void test_plot_axes_take_the_colour_of_the_page(void **state) {
  (void)state;
  double x[] = {1, 2}, y[] = {1, 2};
  PlotSeries s = {.name = "a", .x = x, .y = y, .points = 2};
  PlotLines p = make_plot(&s, 1);
  plot_lines(&p, &text);
  assert_true(count_of("currentColor") > 3);
  assert_int_equal(count_of("black"), 0);
}

static void test_plot_bars_have_a_rectangle_for_each_part(void **state) {
  (void)state;
  static const char *const parts[] = {"work", "wait"};
  double a[] = {10, 5}, b[] = {12, NAN};
  PlotRow rows[] = {{"rank 0", a}, {"rank 1", b}};
  PlotBars bars = {"t", "ms", parts, 2, rows, 2};
  plot_bars(&bars, &text);
  assert_int_equal(count_of("<rect"), 3);
  assert_int_equal(count_of(">15 ms</text>"), 1);
}

static void test_plot_spark_draws_low_and_high(void **state) {
  (void)state;
  double y[] = {0, 1, 2, 3};
  plot_spark(y, 4, 4, &text);
  assert_string_equal(str_text(&text), "▁▃▆█");
}

/* Three times 0.35 divided by 3 is less than 0.35. */
static void test_plot_spark_of_rounded_means_stays_within_the_blocks(void **state) {
  (void)state;
  double y[] = {0.35, 0.35, 0.35, 1, 1, 1};
  plot_spark(y, 6, 2, &text);
  assert_string_equal(str_text(&text), "▁█");
}

static void draw_extremes(double first, double second, bool is_log) {
  double x[] = {1, 2}, y[] = {first, second};
  PlotSeries s = {.name = "series", .x = x, .y = y, .points = 2, .has_dots = true};
  PlotLines p = make_plot(&s, 1);
  p.is_log = is_log;
  plot_lines(&p, &text);
  plot_spark(y, 2, 2, &text);
  assert_int_equal(count_of("nan"), 0);
  assert_int_equal(count_of("inf"), 0);
}

static void test_plot_of_extreme_values_ends(void **state) {
  (void)state;
  static const double extremes[] = {1.7e308, 1e308,   1e300,  1e-300,  1e-320,
                                    0,       -1e-320, -1e300, -1.7e308};
  size_t n = sizeof extremes / sizeof *extremes;
  for (size_t i = 0; i < n; i++) {
    for (size_t k = 0; k < n; k++) {
      draw_extremes(extremes[i], extremes[k], /*is_log=*/false);
      draw_extremes(extremes[i], extremes[k], /*is_log=*/true);
    }
  }
}

/* Sixteen runs in one chart: each is in the legend, within the picture. */
static void test_plot_legend_names_every_series(void **state) {
  (void)state;
  double x[] = {1, 2}, y[] = {1, 2};
  PlotSeries s[16];
  for (size_t i = 0; i < 16; i++)
    s[i] = (PlotSeries){.name = "a long name of a run, ärger als die anderen, and more",
                        .x = x,
                        .y = y,
                        .points = 2};
  PlotLines p = make_plot(s, 16);
  plot_lines(&p, &text);
  assert_int_equal(count_of("a long name of a run, ärger als die ande…</text>"), 16);
  assert_int_equal(count_of(">□<"), 8);
  assert_int_equal(count_of("stroke-dasharray"), 8);
  assert_int_equal(count_of("x=\"-"), 0);
  assert_int_equal(count_of("viewBox=\"0 0 640 368\""), 1);
}

#define CASE(test) cmocka_unit_test_teardown(test, free_text)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(test_plot_tick_step_is_1_2_or_5_times_a_power),
      CASE(test_plot_tick_text_has_units),
      CASE(test_plot_of_no_values_says_so),
      CASE(test_plot_gap_begins_a_new_line),
      CASE(test_plot_of_one_point_is_drawn),
      CASE(test_plot_log_scale_drops_zero),
      CASE(test_plot_of_100000_points_stays_small),
      CASE(test_plot_names_are_escaped),
      CASE(test_plot_axes_take_the_colour_of_the_page),
      CASE(test_plot_bars_have_a_rectangle_for_each_part),
      CASE(test_plot_spark_draws_low_and_high),
      CASE(test_plot_spark_of_rounded_means_stays_within_the_blocks),
      CASE(test_plot_of_extreme_values_ends),
      CASE(test_plot_legend_names_every_series),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
