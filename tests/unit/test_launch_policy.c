/* When launch restarts, gives up, excludes a machine, and begins. */
#include "launch/policy.h"
#include "launch/standing.h"
#include "support.h"

static void test_policy_done_ends(void **state) {
  (void)state;
  Policy p = {.max_restarts = 3};
  assert_int_equal(policy_judge(&p, OUTCOME_DONE), POLICY_END);
}

static void test_policy_status_is_not_repeated(void **state) {
  (void)state;
  Policy p = {.max_restarts = 3};
  assert_int_equal(policy_judge(&p, OUTCOME_STATUS), POLICY_END);
}

static void test_policy_user_stop_ends(void **state) {
  (void)state;
  Policy p = {.max_restarts = 3};
  assert_int_equal(policy_judge(&p, OUTCOME_USER), POLICY_END);
}

static void test_policy_error_before_first_step_fails(void **state) {
  (void)state;
  Policy p = {.max_restarts = 3};
  assert_int_equal(policy_judge(&p, OUTCOME_NOT_BEGUN), POLICY_FAIL);
}

static void test_policy_failures_without_progress_restart_max_times(void **state) {
  (void)state;
  Policy p = {.max_restarts = 2};
  policy_note_step(&p, 1);
  assert_int_equal(policy_judge(&p, OUTCOME_FAILED), POLICY_RESTART);
  assert_int_equal(policy_judge(&p, OUTCOME_FAILED), POLICY_RESTART);
  assert_int_equal(policy_judge(&p, OUTCOME_FAILED), POLICY_FAIL);
}

static void test_policy_same_first_step_is_no_progress(void **state) {
  (void)state;
  Policy p = {.max_restarts = 1};
  policy_note_step(&p, 21);
  assert_int_equal(policy_judge(&p, OUTCOME_FAILED), POLICY_RESTART);
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

static void test_policy_change_of_members_counts_as_no_failure(void **state) {
  (void)state;
  Policy p = {.max_restarts = 0};
  for (int i = 0; i < 10; i++)
    assert_int_equal(policy_judge(&p, OUTCOME_MEMBERS), POLICY_RESTART);
}

static void test_policy_zero_restarts_fails_at_once(void **state) {
  (void)state;
  Policy p = {.max_restarts = 0};
  assert_int_equal(policy_judge(&p, OUTCOME_FAILED), POLICY_FAIL);
}

static void test_policy_machine_is_set_aside_after_two_failures(void **state) {
  (void)state;
  assert_false(policy_sets_aside(1, 3, 1));
  assert_true(policy_sets_aside(2, 3, 1));
}

static void test_policy_machine_is_kept_if_the_others_are_too_few(void **state) {
  (void)state;
  assert_false(policy_sets_aside(2, 1, 2));
  assert_false(policy_sets_aside(5, 0, 0));
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

static Gathering make_gathering(int ready) {
  return (Gathering){.min = 2, .max = 4, .ready = ready, .is_first = true, .join_timeout = 600};
}

static void test_gather_all_machines_begin_at_once(void **state) {
  (void)state;
  Gathering g = make_gathering(4);
  assert_int_equal(policy_gather(&g), GATHER_BEGIN);
}

static void test_gather_enough_machines_wait_for_a_last_call(void **state) {
  (void)state;
  Gathering g = make_gathering(2);
  g.since_change = GATHER_LAST_CALL - 1;
  assert_int_equal(policy_gather(&g), GATHER_WAIT);
  g.since_change = GATHER_LAST_CALL;
  assert_int_equal(policy_gather(&g), GATHER_BEGIN);
}

static void test_gather_after_a_loss_begins_with_enough_machines(void **state) {
  (void)state;
  Gathering g = make_gathering(2);
  g.is_first = false;
  assert_int_equal(policy_gather(&g), GATHER_BEGIN);
}

static void test_gather_too_few_machines_wait_until_the_timeout(void **state) {
  (void)state;
  Gathering g = make_gathering(1);
  g.is_first = false;
  g.since_change = 500;
  g.waited = 599;
  assert_int_equal(policy_gather(&g), GATHER_WAIT);
  g.waited = 600;
  assert_int_equal(policy_gather(&g), GATHER_GIVE_UP);
}

static void test_gather_no_machine_never_begins(void **state) {
  (void)state;
  Gathering g = {.min = 0, .max = 1, .ready = 0, .join_timeout = 5, .since_change = 100};
  assert_int_equal(policy_gather(&g), GATHER_WAIT);
  g.waited = 6;
  assert_int_equal(policy_gather(&g), GATHER_GIVE_UP);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_policy_done_ends),
      cmocka_unit_test(test_policy_status_is_not_repeated),
      cmocka_unit_test(test_policy_user_stop_ends),
      cmocka_unit_test(test_policy_error_before_first_step_fails),
      cmocka_unit_test(test_policy_failures_without_progress_restart_max_times),
      cmocka_unit_test(test_policy_same_first_step_is_no_progress),
      cmocka_unit_test(test_policy_later_first_step_forgets_failures),
      cmocka_unit_test(test_policy_change_of_members_counts_as_no_failure),
      cmocka_unit_test(test_policy_zero_restarts_fails_at_once),
      cmocka_unit_test(test_policy_machine_is_set_aside_after_two_failures),
      cmocka_unit_test(test_policy_machine_is_kept_if_the_others_are_too_few),
      cmocka_unit_test(test_standing_failures_count_by_name),
      cmocka_unit_test(test_standing_progress_forgives_failures),
      cmocka_unit_test(test_standing_set_aside_stays_so),
      cmocka_unit_test(test_gather_all_machines_begin_at_once),
      cmocka_unit_test(test_gather_enough_machines_wait_for_a_last_call),
      cmocka_unit_test(test_gather_after_a_loss_begins_with_enough_machines),
      cmocka_unit_test(test_gather_too_few_machines_wait_until_the_timeout),
      cmocka_unit_test(test_gather_no_machine_never_begins),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
