/* The trace: its buffer, the alignment of clocks. (trace.bats has traces of whole runs.) */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "monitor/trace.h"
#include "monitor/trace_clock.h"
#include "support.h"

static Trace *open_trace(size_t max_spans) {
  Trace *t;
  OK(trace_new(&t, max_spans));
  return t;
}

static void add(Trace *t, const char *name) {
  trace_span(t, TRACE_MAIN, name, 1, 2, (TraceArgs){{{TRACE_STEP, 7}}});
}

static void test_trace_null_takes_no_span(void **state) {
  (void)state;
  assert_false(trace_is_on(NULL));
  add(NULL, "step");
}

static void test_trace_off_takes_no_span(void **state) {
  (void)state;
  Trace *t = open_trace(4);
  add(t, "before");
  trace_begin(t);
  add(t, "step");
  trace_end(t);
  add(t, "after");
  assert_int_equal(t->spans, 1);
  assert_int_equal(t->dropped, 0);
  assert_string_equal(t->span[0].name, "step");
  assert_true(t->span[0].start == 1 && t->span[0].end == 2);
  assert_true(t->span[0].args.arg[0].value == 7);
  trace_free(t);
}

static void test_trace_full_counts_dropped_spans(void **state) {
  (void)state;
  Trace *t = open_trace(2);
  trace_begin(t);
  for (int i = 0; i < 5; i++) add(t, "step");
  assert_int_equal(t->spans, 2);
  assert_int_equal(t->dropped, 3);
  trace_begin(t); /* a second trace begins with an empty buffer */
  assert_int_equal(t->spans, 0);
  assert_int_equal(t->dropped, 0);
  trace_free(t);
}

static void test_trace_long_name_is_cut(void **state) {
  (void)state;
  char name[200];
  Trace *t = open_trace(1);
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  trace_begin(t);
  add(t, name);
  assert_int_equal(strlen(t->span[0].name), TRACE_NAME - 1);
  trace_free(t);
}

static void test_trace_new_without_memory_fails(void **state) {
  (void)state;
  Trace *t;
  for (uint64_t n = 1; n <= 2; n++) {
    mem_fail_after(n);
    Err err = trace_new(&t, 10);
    mem_fail_after(0);
    assert_int_equal(err, ERR_WORK);
    assert_null(t);
  }
}

static void test_clock_equal_rates_take_the_smaller_error(void **state) {
  (void)state;
  ClockPoint before = {.at = 10, .offset = -5, .error = 1e-3};
  ClockPoint after = {.at = 20, .offset = -5.0005, .error = 1e-5};
  trace_clock_settle(&before, &after);
  assert_true(before.offset == -5.0005 && before.error == 1e-5);
  assert_true(before.at == 10 && after.at == 20);
  assert_true(trace_clock_align(&before, &after, 12) == 12 - 5.0005);
}

static void test_clock_different_rates_are_interpolated(void **state) {
  (void)state;
  /* The clock gains 1 ms in 10 s, which is more than both errors. */
  ClockPoint before = {.at = 10, .offset = -5, .error = 1e-5};
  ClockPoint after = {.at = 20, .offset = -5.001, .error = 1e-5};
  trace_clock_settle(&before, &after);
  assert_true(before.offset == -5 && after.offset == -5.001);
  double middle = trace_clock_align(&before, &after, 15);
  assert_true(middle > 9.9994999 && middle < 9.9995001);
}

static void test_clock_measured_at_one_time_uses_the_first_offset(void **state) {
  (void)state;
  ClockPoint point = {.at = 10, .offset = 3};
  assert_true(trace_clock_align(&point, &point, 11) == 14);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_trace_null_takes_no_span),
      cmocka_unit_test(test_trace_off_takes_no_span),
      cmocka_unit_test(test_trace_full_counts_dropped_spans),
      cmocka_unit_test(test_trace_long_name_is_cut),
      cmocka_unit_test(test_trace_new_without_memory_fails),
      cmocka_unit_test(test_clock_equal_rates_take_the_smaller_error),
      cmocka_unit_test(test_clock_different_rates_are_interpolated),
      cmocka_unit_test(test_clock_measured_at_one_time_uses_the_first_offset),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
