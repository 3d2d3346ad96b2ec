/* The loss scale: halved at overflows, doubled after steps without overflow, bounded. */
#include "support.h"
#include "train/scaler.h"

static void take_clean(Scaler *s, int steps) {
  for (int i = 0; i < steps; i++) assert_true(scaler_take(s, true));
}

static void test_scaler_off_scales_nothing(void **state) {
  (void)state;
  Scaler s = {0};
  take_clean(&s, 3 * SCALER_WINDOW);
  assert_true(scaler_factor(&s) == 1 && s.scale == 0);
  assert_false(scaler_take(&s, false)); /* without loss scaling an overflow is a divergence */
  assert_true(scaler_factor(&s) == 1);
}

static void test_scaler_overflow_halves_scale(void **state) {
  (void)state;
  Scaler s = {0};
  scaler_switch(&s, true);
  assert_true(scaler_factor(&s) == 16384);
  assert_true(scaler_take(&s, false));
  assert_true(scaler_factor(&s) == 8192);
  assert_true(scaler_take(&s, false));
  assert_true(scaler_factor(&s) == 4096);
  take_clean(&s, 10);
  assert_true(scaler_factor(&s) == 4096);
}

static void test_scaler_2000_clean_steps_double_scale(void **state) {
  (void)state;
  Scaler s = {0};
  scaler_switch(&s, true);
  take_clean(&s, 1999);
  assert_true(scaler_factor(&s) == 16384);
  take_clean(&s, 1);
  assert_true(scaler_factor(&s) == 32768 && s.clean == 0);
  /* An overflow resets the count of steps without overflow. */
  take_clean(&s, 1999);
  assert_true(scaler_take(&s, false));
  assert_true(scaler_factor(&s) == 16384 && s.clean == 0);
  take_clean(&s, 1999);
  assert_true(scaler_factor(&s) == 16384);
  take_clean(&s, 1);
  assert_true(scaler_factor(&s) == 32768);
}

static void test_scaler_scale_stays_within_bounds(void **state) {
  (void)state;
  Scaler s = {0};
  scaler_switch(&s, true);
  int times = 0;
  while (scaler_take(&s, false)) times++;
  assert_int_equal(times, 24); /* halvings from 2^14 to 2^-10 */
  assert_true(s.scale == 0x1p-11);
  s = (Scaler){.scale = SCALER_MOST};
  take_clean(&s, 2 * SCALER_WINDOW);
  assert_true(s.scale == SCALER_MOST);
}

static void test_scaler_switch_keeps_or_resets_scale(void **state) {
  (void)state;
  Scaler s = {.scale = 64, .clean = 5}; /* state as read from a checkpoint */
  scaler_switch(&s, true);
  assert_true(s.scale == 64 && s.clean == 5);
  scaler_switch(&s, false);
  assert_true(s.scale == 0 && s.clean == 0);
  scaler_switch(&s, true);
  assert_true(s.scale == SCALER_START);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_scaler_off_scales_nothing),
      cmocka_unit_test(test_scaler_overflow_halves_scale),
      cmocka_unit_test(test_scaler_2000_clean_steps_double_scale),
      cmocka_unit_test(test_scaler_scale_stays_within_bounds),
      cmocka_unit_test(test_scaler_switch_keeps_or_resets_scale),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
