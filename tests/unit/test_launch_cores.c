/* The cores that each local rank gets. */
#include <stdlib.h>

#include "launch/cores.h"
#include "support.h"

/* Two sockets of four cores each, in the order of cores_list. */
static const int cpus[] = {0, 2, 4, 6, 1, 3, 5, 7};

static void test_cores_each_rank_gets_a_block(void **state) {
  (void)state;
  cpu_set_t share;
  assert_true(cores_divide(cpus, 8, 1, 2, &share));
  assert_int_equal(CPU_COUNT(&share), 4);
  for (size_t i = 1; i < 8; i += 2) assert_true(CPU_ISSET(i, &share));
}

static void test_cores_uneven_division_uses_every_core_once(void **state) {
  (void)state;
  cpu_set_t share, all;
  int total = 0;
  CPU_ZERO(&all);
  for (int r = 0; r < 3; r++) {
    assert_true(cores_divide(cpus, 8, r, 3, &share));
    total += CPU_COUNT(&share);
    CPU_OR(&all, &all, &share);
  }
  assert_int_equal(total, 8);
  assert_int_equal(CPU_COUNT(&all), 8);
}

static void test_cores_more_ranks_than_cores_are_not_bound(void **state) {
  (void)state;
  cpu_set_t share;
  assert_false(cores_divide(cpus, 8, 0, 9, &share));
}

static void test_cores_list_has_the_cores_of_this_process(void **state) {
  (void)state;
  int list[CORES_MAX];
  cpu_set_t set;
  assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
  assert_int_equal(cores_list(list), CPU_COUNT(&set));
}

static void test_gpus_are_those_of_cuda_visible_devices(void **state) {
  (void)state;
  setenv("CUDA_VISIBLE_DEVICES", "0,2,GPU-5f", 1);
  assert_int_equal(cores_count_gpus(), 3);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  assert_int_equal(cores_count_gpus(), 0);
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  assert_int_equal(cores_count_gpus(), 0);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

static void test_cores_rank_outside_of_the_machine_has_no_share(void **state) {
  (void)state;
  static const int cpu[] = {0, 1};
  cpu_set_t share;
  assert_false(cores_divide(cpu, 2, -1, 2, &share));
  assert_false(cores_divide(cpu, 2, 2, 2, &share));
  assert_false(cores_divide(cpu, 2, 0, 0, &share));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cores_rank_outside_of_the_machine_has_no_share),
      cmocka_unit_test(test_cores_each_rank_gets_a_block),
      cmocka_unit_test(test_cores_uneven_division_uses_every_core_once),
      cmocka_unit_test(test_cores_more_ranks_than_cores_are_not_bound),
      cmocka_unit_test(test_cores_list_has_the_cores_of_this_process),
      cmocka_unit_test(test_gpus_are_those_of_cuda_visible_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
