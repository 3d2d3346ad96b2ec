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

/* The range ends at the mean plus 8 deviations, at 1.2 times the mean if that is more, and at 3 times
 * the mean during the first HEALTH_WARM steps. */
static void test_health_range_ends_exactly_at_its_bound(void **state) {
  (void)state;
  static const struct {
    Health before;
    double highest;
  } rows[] = {
      {{.mean = 10, .spread = 1, .seen = HEALTH_WARM}, 18},
      {{.mean = 10, .spread = 0.5, .seen = HEALTH_WARM}, 14},
      {{.mean = 10, .spread = 0.125, .seen = HEALTH_WARM}, 12},
      {{.mean = 10, .spread = 0, .seen = HEALTH_WARM}, 12},
      {{.mean = 0.5, .spread = 0.0625, .seen = HEALTH_WARM}, 1},
      {{.mean = 10, .spread = 1, .seen = HEALTH_WARM - 1}, 30},
      {{.mean = 10, .spread = 0, .seen = 1}, 30},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Health within = rows[i].before, above = rows[i].before;
    health_take(&within, rows[i].highest);
    health_take(&above, nextafter(rows[i].highest, 100));
    if (!health_good(&within) || health_good(&above)) fail_msg("row %zu", i);
  }
}

static void test_health_means_follow_the_losses_in_range(void **state) {
  (void)state;
  Health h = {0};
  assert_true(health_take(&h, 10));
  assert_true(h.mean == 10 && h.spread == 0);
  assert_true(health_take(&h, 14));
  assert_float_equal(h.mean, 10.2, 1e-12);
  assert_float_equal(h.spread, 0.2, 1e-12);
  assert_true(health_take(&h, 9.2)); /* 1 below the mean */
  assert_float_equal(h.mean, 10.15, 1e-12);
  assert_float_equal(h.spread, 0.24, 1e-12);
  assert_true(health_take(&h, 100)); /* out of range */
  assert_float_equal(h.mean, 10.15, 1e-12);
  assert_int_equal(h.seen, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_health_falling_loss_is_good),
      cmocka_unit_test(test_health_nan_or_inf_loss_diverges),
      cmocka_unit_test(test_health_outliers_in_a_row_diverge),
      cmocka_unit_test(test_health_small_rise_is_good),
      cmocka_unit_test(test_health_range_ends_exactly_at_its_bound),
      cmocka_unit_test(test_health_means_follow_the_losses_in_range),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
