/* Environment variables of launchers, and the number of ranks derived from them. */
#include "comm/launcher.h"

#include "support.h"

static const char *const variables[] = {"OMPI_COMM_WORLD_RANK",
                                        "MV2_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE",
                                        "PMI_RANK",
                                        "MV2_COMM_WORLD_SIZE",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_NTASKS",
                                        "SLURM_PROCID",
                                        "PMIX_RANK"};

static int clear_variables(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
  return 0;
}

static void expect_ranks(bool has, long count) {
  long started;
  assert_int_equal(launcher_has_ranks(&started), has);
  assert_int_equal(started, count);
}

static void test_launcher_nothing_set_is_one_process(void **state) {
  (void)state;
  expect_ranks(false, 0);
}

static void test_launcher_rank_nothing_set_is_0(void **state) {
  (void)state;
  assert_int_equal(launcher_rank(), 0);
}

static void test_launcher_rank_is_that_of_the_inner_launcher(void **state) {
  (void)state;
  setenv("SLURM_PROCID", "7", 1);
  assert_int_equal(launcher_rank(), 7);
  setenv("OMPI_COMM_WORLD_RANK", "3", 1);
  assert_int_equal(launcher_rank(), 3);
}

static void test_launcher_slurm_batch_script_is_one_process(void **state) {
  (void)state;
  setenv("SLURM_NTASKS", "4", 1);
  setenv("SLURM_PROCID", "0", 1);
  expect_ranks(false, 0);
}

static void test_launcher_slurm_step_of_one_task_is_one_process(void **state) {
  (void)state;
  setenv("SLURM_NTASKS", "4", 1);
  setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  setenv("PMIX_RANK", "0", 1);
  expect_ranks(false, 1);
}

static void test_launcher_number_that_is_no_number_of_ranks_is_ignored(void **state) {
  (void)state;
  setenv("PMIX_RANK", "99999999999999999999", 1);
  assert_int_equal(launcher_count_ranks(), 1);
}

static void test_launcher_slurm_step_of_four_is_four_ranks(void **state) {
  (void)state;
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  expect_ranks(true, 4);
}

static void test_launcher_slurm_step_without_pmi_is_error(void **state) {
  (void)state;
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  assert_int_equal(launcher_check(), ERR_WORK);
  assert_says("srun started 4 processes");
  assert_says("srun --mpi=pmix");
}

static void test_launcher_slurm_step_with_pmix_can_meet(void **state) {
  (void)state;
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  setenv("PMIX_RANK", "2", 1);
  OK(launcher_check());
  OK(launcher_check_size(4, "Open MPI"));
}

/* `srun -n 4 : -n 2` starts one world of 6 ranks, but each part has its own
 * SLURM_STEP_NUM_TASKS. */
static void test_launcher_slurm_heterogeneous_step_may_be_larger(void **state) {
  (void)state;
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  setenv("PMIX_RANK", "2", 1);
  OK(launcher_check_size(6, "Open MPI"));
}

static void test_launcher_slurm_step_that_mpi_does_not_see_is_error(void **state) {
  (void)state;
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  setenv("PMIX_RANK", "0", 1);
  assert_int_equal(launcher_check_size(1, "Open MPI v4.1.4"), ERR_WORK);
  assert_says("4 ranks were started (SLURM_STEP_NUM_TASKS), but Open MPI v4.1.4 sees 1");
  assert_says("srun --mpi=pmix");
}

static void test_launcher_of_another_mpi_is_error(void **state) {
  (void)state;
  setenv("PMI_SIZE", "4", 1);
  setenv("PMI_RANK", "1", 1);
  expect_ranks(true, 4);
  OK(launcher_check());
  assert_int_equal(launcher_check_size(1, "Open MPI v4.1.4"), ERR_WORK);
  assert_says("4 ranks were started (PMI_SIZE), but Open MPI v4.1.4 sees 1");
  assert_says("mpirun of Open MPI v4.1.4");
}

static void test_launcher_size_of_mpi_is_accepted(void **state) {
  (void)state;
  setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
  OK(launcher_check_size(3, "Open MPI"));
}

/* mpirun starts a daemon on each node with srun, so ranks have the variables of the daemons'
 * job step. */
static void test_launcher_mpirun_in_slurm_counts_mpirun(void **state) {
  (void)state;
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
  expect_ranks(true, 8);
  OK(launcher_check_size(8, "Open MPI"));
}

static void test_launcher_nested_takes_the_one_mpi_sees(void **state) {
  (void)state;
  setenv("PMI_SIZE", "4", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  OK(launcher_check_size(2, "Open MPI"));
  assert_int_equal(launcher_check_size(1, "Open MPI"), ERR_WORK);
}

static void test_launcher_pmix_without_size_asks_mpi(void **state) {
  (void)state;
  setenv("PMIX_RANK", "3", 1);
  expect_ranks(true, 0);
  OK(launcher_check_size(4, "Open MPI"));
  assert_int_equal(launcher_check_size(1, "Open MPI"), ERR_WORK);
  assert_says("PMIX_RANK is 3, but Open MPI sees one rank");
}

static void test_launcher_variable_without_number_is_ignored(void **state) {
  (void)state;
  setenv("PMI_SIZE", "many", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "", 1);
  expect_ranks(false, 0);
}

static void test_launcher_count_pmix_alone_is_at_least_the_rank(void **state) {
  (void)state;
  assert_int_equal(launcher_count_ranks(), 1);
  setenv("PMIX_RANK", "0", 1);
  assert_int_equal(launcher_count_ranks(), 1);
  setenv("PMIX_RANK", "3", 1);
  assert_int_equal(launcher_count_ranks(), 4);
  setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
  assert_int_equal(launcher_count_ranks(), 8);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, clear_variables, clear_variables)

int main(void) {
  const struct CMUnitTest tests[] = {
      CASE(test_launcher_nothing_set_is_one_process),
      CASE(test_launcher_rank_nothing_set_is_0),
      CASE(test_launcher_rank_is_that_of_the_inner_launcher),
      CASE(test_launcher_slurm_batch_script_is_one_process),
      CASE(test_launcher_slurm_step_of_one_task_is_one_process),
      CASE(test_launcher_number_that_is_no_number_of_ranks_is_ignored),
      CASE(test_launcher_slurm_step_of_four_is_four_ranks),
      CASE(test_launcher_slurm_step_without_pmi_is_error),
      CASE(test_launcher_slurm_step_with_pmix_can_meet),
      CASE(test_launcher_slurm_heterogeneous_step_may_be_larger),
      CASE(test_launcher_slurm_step_that_mpi_does_not_see_is_error),
      CASE(test_launcher_of_another_mpi_is_error),
      CASE(test_launcher_size_of_mpi_is_accepted),
      CASE(test_launcher_mpirun_in_slurm_counts_mpirun),
      CASE(test_launcher_nested_takes_the_one_mpi_sees),
      CASE(test_launcher_pmix_without_size_asks_mpi),
      CASE(test_launcher_variable_without_number_is_ignored),
      CASE(test_launcher_count_pmix_alone_is_at_least_the_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
