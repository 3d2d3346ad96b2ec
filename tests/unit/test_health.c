/* When a loss counts as divergence, and when as a single bad batch. */
#include <math.h>

#include "support.h"
#include "train/health.h"

/* Returns a noisy loss that falls from 7 towards 2. */
static double usual(int i) {
  return 2 + 5 * exp(-i / 50.0) + 0.1 * sin(i * 1.7);
}

static void learn(Health *h, int steps) {
  for (int i = 0; i < steps; i++) {
    assert_true(health_take(h, usual(i)));
    assert_true(health_good(h));
  }
}

static void test_health_falling_loss_is_good(void **state) {
  (void)state;
  Health h = {0};
  learn(&h, 2000);
}

static void test_health_nan_or_inf_loss_diverges(void **state) {
  (void)state;
  for (int steps = 0; steps < 60; steps += 30) {
    Health h = {0};
    learn(&h, steps);
    assert_false(health_take(&h, NAN));
    assert_false(health_good(&h));
    h = (Health){0};
    assert_false(health_take(&h, INFINITY));
  }
}

/* HEALTH_STEPS outliers in a row mean divergence; one less does not. */
static void runs_away(int learnt, double loss) {
  Health h = {0};
  learn(&h, learnt);
  for (int i = 0; i < HEALTH_STEPS - 1; i++) {
    assert_true(health_take(&h, loss));
    assert_false(health_good(&h));
  }
  Health again = h;
  assert_false(health_take(&h, loss));
  assert_true(health_take(&again, usual(learnt)));
  assert_true(health_good(&again));
  assert_true(health_take(&again, loss));
}

static void test_health_outliers_in_a_row_diverge(void **state) {
  (void)state;
  runs_away(100, 12);
  runs_away(1000, 3.5);
  runs_away(HEALTH_WARM, 20);
  /* The accepted range is wide at first, but bounded: a run that begins or resumes with a much
   * too high learning rate must not accept its own losses as normal. */
  runs_away(1, 100);
  runs_away(5, 1e7);
}

static void test_health_small_rise_is_good(void **state) {
  (void)state;
  Health h = {0};
  learn(&h, 500);
  for (int i = 0; i < 100; i++) assert_true(health_take(&h, 2.3));
  assert_true(health_good(&h));
  h = (Health){0};
  assert_true(health_take(&h, 7)); /* first steps with a high learning rate */
  for (int i = 0; i < 10; i++) assert_true(health_take(&h, 9 + i));
  assert_true(health_good(&h));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_health_falling_loss_is_good),
      cmocka_unit_test(test_health_nan_or_inf_loss_diverges),
      cmocka_unit_test(test_health_outliers_in_a_row_diverge),
      cmocka_unit_test(test_health_small_rise_is_good),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
