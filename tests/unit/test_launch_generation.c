/* The outcome that launch derives from the exits of its workers. */
#include "launch/generation.h"
#include "support.h"

static Generation make_generation(int world) {
  Generation g = {0};
  assert_int_equal(generation_begin(&g, 1, world), ERR_OK);
  for (int r = 0; r < world; r++) generation_note_begin(&g, r);
  return g;
}

static void test_generation_all_status_0_is_done(void **state) {
  (void)state;
  Generation g = make_generation(2);
  generation_note_end(&g, 0, 0, 0, "a", 1);
  assert_false(generation_must_kill(&g, 100));
  generation_note_end(&g, 1, 0, 0, "b", 1);
  assert_true(generation_must_kill(&g, 1));
  assert_int_equal(generation_outcome(&g, true), OUTCOME_DONE);
  generation_free(&g);
}

static void test_generation_signal_kills_the_others_at_once(void **state) {
  (void)state;
  Generation g = make_generation(3);
  generation_note_end(&g, 1, -1, 9, "b", 5);
  assert_true(generation_must_kill(&g, 5));
  assert_int_equal(generation_outcome(&g, true), OUTCOME_FAILED);
  assert_string_equal(g.fault, "rank 1 on b: killed by SIGKILL");
  assert_int_equal(g.fault_rank, 1);
  generation_free(&g);
}

static void test_generation_exit_status_gives_the_others_a_moment(void **state) {
  (void)state;
  Generation g = make_generation(2);
  g.has_step = true;
  generation_note_end(&g, 1, 1, 0, "b", 5);
  assert_false(generation_must_kill(&g, 5.5));
  assert_true(generation_must_kill(&g, 6.5));
  assert_int_equal(generation_outcome(&g, true), OUTCOME_FAILED);
  assert_string_equal(g.fault, "rank 1 on b: exit status 1");
  assert_int_equal(g.reporter, 1);
  generation_free(&g);
}

static void test_generation_first_fault_is_kept(void **state) {
  (void)state;
  Generation g = make_generation(2);
  generation_note_end(&g, 1, -1, 11, "b", 5);
  generation_note_end(&g, 0, 1, 0, "a", 5.1);
  assert_string_equal(g.fault, "rank 1 on b: killed by SIGSEGV");
  generation_free(&g);
}

static void test_generation_error_before_a_step_is_not_repeated(void **state) {
  (void)state;
  Generation g = make_generation(1);
  generation_note_end(&g, 0, 1, 0, "a", 5);
  assert_int_equal(generation_outcome(&g, true), OUTCOME_NOT_BEGUN);
  assert_int_equal(generation_outcome(&g, false), OUTCOME_FAILED);
  generation_free(&g);
}

static void test_generation_without_any_worker_is_not_repeated(void **state) {
  (void)state;
  Generation g = {0};
  assert_int_equal(generation_begin(&g, 1, 2), ERR_OK);
  generation_note_fault(&g, 1, "%s", "a: cannot start mpirun");
  assert_int_equal(generation_outcome(&g, true), OUTCOME_NOT_BEGUN);
  generation_free(&g);
}

static void test_generation_stall_blames_the_named_rank(void **state) {
  (void)state;
  Generation g = make_generation(3);
  generation_note_loss(&g, 0, 2, "rank 2 on c: no heartbeat for 6 s", 5);
  generation_note_end(&g, 0, 1, 0, "a", 5.1);
  assert_int_equal(g.fault_rank, 2);
  assert_int_equal(g.reporter, 0);
  assert_string_equal(g.fault, "rank 2 on c: no heartbeat for 6 s");
  /* The loss of another rank is a failure that may be restarted, even before the first step. */
  assert_int_equal(generation_outcome(&g, true), OUTCOME_FAILED);
  generation_free(&g);
}

static void test_generation_status_2_of_one_passes(void **state) {
  (void)state;
  Generation g = make_generation(2);
  generation_note_end(&g, 0, 2, 0, "a", 5);
  generation_note_end(&g, 1, 2, 0, "a", 5);
  assert_int_equal(generation_outcome(&g, true), OUTCOME_STATUS);
  assert_int_equal(g.passed_status, 2);
  generation_free(&g);
}

static void test_generation_failures_after_status_2_are_not_the_cause(void **state) {
  (void)state;
  Generation g = make_generation(4);
  generation_note_end(&g, 0, 2, 0, "a", 5);
  generation_note_end(&g, 1, 1, 0, "b", 5.1);
  generation_note_mpirun(&g, 2, 0, 5.2);
  generation_note_end(&g, 2, -1, 9, "b", 5.3);
  assert_false(generation_must_kill(&g, 5.4));
  assert_true(generation_must_kill(&g, 7));
  assert_int_equal(generation_outcome(&g, true), OUTCOME_STATUS);
  generation_free(&g);
}

static void test_generation_status_3_waits_for_the_others(void **state) {
  (void)state;
  Generation g = make_generation(2);
  generation_note_end(&g, 0, 3, 0, "a", 5);
  assert_false(generation_must_kill(&g, 14));
  assert_true(generation_must_kill(&g, 16));
  generation_note_end(&g, 1, 3, 0, "a", 6);
  assert_int_equal(generation_outcome(&g, true), OUTCOME_STATUS);
  assert_int_equal(g.passed_status, 3);
  generation_free(&g);
}

static void test_generation_mpirun_end_waits_for_the_workers_ends(void **state) {
  (void)state;
  Generation g = make_generation(1);
  generation_note_mpirun(&g, 0, 0, 5);
  assert_false(generation_must_kill(&g, 5.5));
  generation_note_end(&g, 0, 0, 0, "a", 5.6);
  assert_int_equal(generation_outcome(&g, true), OUTCOME_DONE);
  generation_free(&g);
}

static void test_generation_mpirun_status_0_allows_late_reports(void **state) {
  (void)state;
  Generation g = make_generation(1);
  generation_note_mpirun(&g, 0, 0, 5);
  assert_false(generation_must_kill(&g, 34));
  assert_true(generation_must_kill(&g, 36));
  generation_free(&g);
}

static void test_generation_mpirun_error_allows_one_second(void **state) {
  (void)state;
  Generation g = make_generation(1);
  generation_note_mpirun(&g, 1, 0, 5);
  assert_false(generation_must_kill(&g, 5.5));
  assert_true(generation_must_kill(&g, 6.5));
  generation_free(&g);
}

static void test_generation_mpirun_killed_is_the_reason(void **state) {
  (void)state;
  Generation g = make_generation(2);
  generation_note_mpirun(&g, -1, 9, 5);
  generation_note_end(&g, 0, -1, 9, "a", 5.5);
  assert_string_equal(g.fault, "mpirun ended before its ranks: killed by SIGKILL");
  assert_int_equal(g.fault_rank, -1);
  generation_free(&g);
}

static void test_generation_end_after_stop_is_no_fault(void **state) {
  (void)state;
  Generation g = make_generation(2);
  g.is_stopping = true;
  generation_note_end(&g, 0, -1, 15, "a", 5);
  generation_note_end(&g, 1, 3, 0, "a", 5);
  assert_false(g.has_fault);
  assert_true(generation_is_over(&g));
  generation_free(&g);
}

static void test_generation_ranks_out_of_range_are_ignored(void **state) {
  (void)state;
  Generation g = make_generation(2);
  generation_note_end(&g, 2, 0, 0, "a", 5);
  generation_note_end(&g, -1, 1, 0, "a", 5);
  generation_note_begin(&g, INT64_MAX);
  generation_note_loss(&g, 0, 99, "x", 5);
  assert_int_equal(g.ended, 0);
  assert_int_equal(g.begun, 2);
  assert_false(g.has_fault);
  generation_free(&g);
}

static void test_generation_repeated_end_counts_once(void **state) {
  (void)state;
  Generation g = make_generation(2);
  generation_note_end(&g, 0, 0, 0, "a", 5);
  generation_note_end(&g, 0, 0, 0, "a", 5);
  assert_int_equal(g.ended, 1);
  generation_free(&g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_generation_all_status_0_is_done),
      cmocka_unit_test(test_generation_signal_kills_the_others_at_once),
      cmocka_unit_test(test_generation_exit_status_gives_the_others_a_moment),
      cmocka_unit_test(test_generation_first_fault_is_kept),
      cmocka_unit_test(test_generation_error_before_a_step_is_not_repeated),
      cmocka_unit_test(test_generation_without_any_worker_is_not_repeated),
      cmocka_unit_test(test_generation_stall_blames_the_named_rank),
      cmocka_unit_test(test_generation_status_2_of_one_passes),
      cmocka_unit_test(test_generation_failures_after_status_2_are_not_the_cause),
      cmocka_unit_test(test_generation_status_3_waits_for_the_others),
      cmocka_unit_test(test_generation_mpirun_end_waits_for_the_workers_ends),
      cmocka_unit_test(test_generation_mpirun_status_0_allows_late_reports),
      cmocka_unit_test(test_generation_mpirun_error_allows_one_second),
      cmocka_unit_test(test_generation_mpirun_killed_is_the_reason),
      cmocka_unit_test(test_generation_end_after_stop_is_no_fault),
      cmocka_unit_test(test_generation_ranks_out_of_range_are_ignored),
      cmocka_unit_test(test_generation_repeated_end_counts_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
