/* Measurements as machines of `plan`: hostile JSON, and what is assumed of a measured machine. */
#include <string.h>

#include "monitor/plan_machine.h"
#include "support.h"

#define BENCH_START                                                           \
  "{\"bench\": \"train\", \"backend\": \"cpu: neon\", \"preset\": \"base\", " \
  "\"precision\": \"fp32\", \"batch_tokens\": 1024, \"tgt_tok_s\": 1000, \"step_ms\": 1000"

static Err parse(const char *text, PlanMeasurement *m) {
  return plan_measurement_parse(text, strlen(text), "file", m);
}

static void test_measurement_wrong_documents_are_errors(void **state) {
  (void)state;
  PlanMeasurement m;
  const char *wrong[] = {
      "",
      "[]",
      "{}",
      "{\"bench\": \"reader\"}",
      "{\"bench\": \"train\", \"step_ms\": 0, \"tgt_tok_s\": 1, \"batch_tokens\": 1}",
      "{\"bench\": \"train\", \"step_ms\": \"1\", \"tgt_tok_s\": 1, \"batch_tokens\": 1}",
      "{\"bench\": \"train\", \"step_ms\": -1, \"tgt_tok_s\": 1, \"batch_tokens\": 1}",
      "{\"bench\": \"train\", \"step_ms\": 1, \"tgt_tok_s\": 1, \"batch_tokens\": 1e12}",
      BENCH_START ", \"parts\": 3}",
      BENCH_START ", \"parts\": {\"step\": {\"ms\": 1}, \"work\": [{\"name\": \"x\"}]}}",
      BENCH_START
      ", \"parts\": {\"step\": {\"ms\": 1}, \"work\": [{\"name\": \"optimizer\", "
      "\"ms\": 2}]}}"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    if (parse(wrong[i], &m) != ERR_WORK) fail_msg("accepted: %s", wrong[i]);
    assert_non_null(strstr(err_message(), "file"));
  }
}

/* A measured GPU that plan knows has the links of its data sheet, whatever its memory copies. */
static void test_machine_of_a_known_gpu_has_its_links(void **state) {
  (void)state;
  PlanMeasurement m = {.device = "cuda:0: NVIDIA H200, 143 GB, sm_90", .copy = 4000e9};
  PlanMachine machine = plan_measurement_machine(&m);
  const PlanMachine *h200 = plan_machine_find("h200");
  assert_true(machine.local.bandwidth == h200->local.bandwidth);
  assert_true(machine.local.latency == h200->local.latency);
  assert_true(machine.snapshot_bandwidth == h200->snapshot_bandwidth);
  assert_true(machine.host_memory == PLAN_SERVER_MEMORY && !machine.is_host_memory_measured);
  assert_string_equal(machine.about, m.device);
}

static void test_machine_of_another_gpu_is_assumed_to_have_pcie(void **state) {
  (void)state;
  PlanMeasurement m = {.device = "cuda:0: NVIDIA GH200 480GB, 97 GB, sm_90", .copy = 4000e9};
  PlanMachine machine = plan_measurement_machine(&m);
  assert_true(machine.local.bandwidth == 24e9);
  assert_non_null(strstr(machine.local_about, "not known"));
  assert_null(plan_machine_of_device("cuda:0: NVIDIA A100-PCIE-40GB, 42 GB"));
  assert_ptr_equal(plan_machine_of_device("cuda:1: NVIDIA A100-SXM4-80GB, 85 GB"),
                   plan_machine_find("a100"));
  assert_ptr_equal(plan_machine_of_device("cuda:0: Tesla V100-SXM2-16GB, 17 GB"),
                   plan_machine_find("v100"));
  assert_ptr_equal(plan_machine_of_device("cuda:0: Tesla T4, 16 GB"), plan_machine_find("t4"));
}

static void test_machine_of_a_cpu_has_the_measured_copy(void **state) {
  (void)state;
  PlanMeasurement m = {.device = "cpu: neon", .is_host = true, .copy = 40e9};
  PlanMachine machine = plan_measurement_machine(&m);
  assert_true(machine.host_memory == 40e9 && machine.is_host_memory_measured);
  m.copy = 0;
  machine = plan_measurement_machine(&m);
  assert_true(machine.host_memory == 10e9 && !machine.is_host_memory_measured);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_measurement_wrong_documents_are_errors),
      cmocka_unit_test(test_machine_of_a_known_gpu_has_its_links),
      cmocka_unit_test(test_machine_of_another_gpu_is_assumed_to_have_pcie),
      cmocka_unit_test(test_machine_of_a_cpu_has_the_measured_copy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
