/* When launch restarts, gives up, excludes a machine, and begins. */
#include "launch/policy.h"
#include "launch/standing.h"
#include "support.h"

static void test_policy_outcome_other_than_a_failure_decides_at_once(void **state) {
  (void)state;
  static const struct {
    Outcome outcome;
    Decision decision;
  } cases[] = {{OUTCOME_DONE, POLICY_END},   {OUTCOME_STATUS, POLICY_END},
               {OUTCOME_USER, POLICY_END},   {OUTCOME_NOT_BEGUN, POLICY_FAIL},
               {OUTCOME_FINAL, POLICY_FAIL}, {OUTCOME_MEMBERS, POLICY_RESTART}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Policy p = {0};
    assert_int_equal(policy_judge(&p, cases[i].outcome), cases[i].decision);
    assert_int_equal(p.failures, 0);
  }
}

/* Returns how often the policy restarts after this outcome before it fails. */
static int count_restarts(int max_restarts, Outcome outcome) {
  Policy p = {.max_restarts = max_restarts};
  int restarts = 0;
  while (policy_judge(&p, outcome) == POLICY_RESTART) assert_between(++restarts, 1, 9);
  return restarts;
}

static void test_policy_failures_restart_max_times(void **state) {
  (void)state;
  for (int max = 0; max <= 5; max++) {
    assert_int_equal(count_restarts(max, OUTCOME_FAILED), max);
    assert_int_equal(count_restarts(max, OUTCOME_NO_RANK), max < 3 ? 3 : max);
  }
}

static void test_policy_same_first_step_is_no_progress(void **state) {
  (void)state;
  Policy p = {.max_restarts = 1};
  policy_note_step(&p, 21);
  assert_int_equal(policy_judge(&p, OUTCOME_FAILED), POLICY_RESTART);
  policy_note_step(&p, 21);
  assert_int_equal(policy_judge(&p, OUTCOME_FAILED), POLICY_FAIL);
}

static void test_policy_earlier_first_step_is_no_progress_afterwards(void **state) {
  (void)state;
  Policy p = {.max_restarts = 1};
  policy_note_step(&p, 21);
  assert_int_equal(policy_judge(&p, OUTCOME_FAILED), POLICY_RESTART);
  policy_note_step(&p, 1); /* the run continues from an earlier checkpoint */
  policy_note_step(&p, 21);
  assert_int_equal(policy_judge(&p, OUTCOME_FAILED), POLICY_FAIL);
}

static void test_policy_later_first_step_forgets_failures(void **state) {
  (void)state;
  Policy p = {.max_restarts = 1};
  policy_note_step(&p, 1);
  for (uint64_t step = 21; step < 400; step += 20) {
    assert_int_equal(policy_judge(&p, OUTCOME_FAILED), POLICY_RESTART);
    policy_note_step(&p, step);
  }
}

static void test_policy_machine_is_set_aside_after_two_failures_if_enough_remain(void **state) {
  (void)state;
  static const struct {
    int failures, others, min;
    bool is_aside;
  } cases[] = {{1, 3, 1, false}, {2, 3, 1, true},  {3, 3, 1, true}, {2, 2, 2, true},
               {2, 1, 2, false}, {5, 0, 0, false}, {2, 1, 0, true}, {2, 1, 1, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(policy_sets_aside(cases[i].failures, cases[i].others, cases[i].min),
                     cases[i].is_aside);
}

static void test_standing_failures_count_by_name(void **state) {
  (void)state;
  StandingList l = {0};
  bool is_aside;
  OK(standing_note_failure(&l, "a", 2, 1, &is_aside));
  OK(standing_note_failure(&l, "b", 2, 1, &is_aside));
  assert_false(is_aside);
  OK(standing_note_failure(&l, "a", 2, 1, &is_aside));
  assert_true(is_aside);
  assert_true(standing_is_aside(&l, "a"));
  assert_false(standing_is_aside(&l, "b"));
  assert_false(standing_is_aside(&l, "c"));
  standing_free(&l);
}

static void test_standing_progress_forgives_failures(void **state) {
  (void)state;
  StandingList l = {0};
  bool is_aside;
  for (int i = 0; i < 5; i++) {
    OK(standing_note_failure(&l, "a", 2, 1, &is_aside));
    assert_false(is_aside);
    standing_forgive(&l);
  }
  standing_free(&l);
}

static void test_standing_set_aside_stays_so(void **state) {
  (void)state;
  StandingList l = {0};
  bool is_aside;
  OK(standing_note_failure(&l, "a", 2, 1, &is_aside));
  OK(standing_note_failure(&l, "a", 2, 1, &is_aside));
  standing_forgive(&l);
  assert_true(standing_is_aside(&l, "a"));
  standing_free(&l);
}

static void test_gather_decision_at_every_limit(void **state) {
  (void)state;
  static const double LAST = GATHER_LAST_CALL;
  const struct {
    Gathering g;
    GatherDecision decision;
  } cases[] = {
      /* min, max, ready, is_first, waited, since_change, join_timeout */
      {{2, 4, 4, true, 0, 0, 600}, GATHER_BEGIN}, /* all machines: at once */
      {{2, 4, 5, true, 0, 0, 600}, GATHER_BEGIN},
      {{2, 4, 3, true, 0, LAST - 1, 600}, GATHER_WAIT}, /* enough: a last call */
      {{2, 4, 2, true, 0, LAST - 1, 600}, GATHER_WAIT},
      {{2, 4, 2, true, 0, LAST, 600}, GATHER_BEGIN},
      {{1, 4, 1, true, 0, LAST, 600}, GATHER_BEGIN},
      {{2, 4, 2, true, 599, 0, 600}, GATHER_WAIT},
      {{2, 4, 2, true, 600, 0, 600}, GATHER_BEGIN},
      {{2, 4, 2, false, 0, 0, 600}, GATHER_BEGIN},    /* after a loss: no last call */
      {{2, 4, 1, false, 599, 500, 600}, GATHER_WAIT}, /* too few: until the timeout */
      {{2, 4, 1, false, 600, 500, 600}, GATHER_GIVE_UP},
      {{0, 1, 0, false, 4, 100, 5}, GATHER_WAIT}, /* none never begins */
      {{0, 1, 0, false, 6, 100, 5}, GATHER_GIVE_UP},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (policy_gather(&cases[i].g) != cases[i].decision) fail_msg("case %zu", i);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_policy_outcome_other_than_a_failure_decides_at_once),
      cmocka_unit_test(test_policy_failures_restart_max_times),
      cmocka_unit_test(test_policy_same_first_step_is_no_progress),
      cmocka_unit_test(test_policy_earlier_first_step_is_no_progress_afterwards),
      cmocka_unit_test(test_policy_later_first_step_forgets_failures),
      cmocka_unit_test(test_policy_machine_is_set_aside_after_two_failures_if_enough_remain),
      cmocka_unit_test(test_standing_failures_count_by_name),
      cmocka_unit_test(test_standing_progress_forgives_failures),
      cmocka_unit_test(test_standing_set_aside_stays_so),
      cmocka_unit_test(test_gather_decision_at_every_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
