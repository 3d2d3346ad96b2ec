/* Measurements as machines of `plan`: hostile JSON, and what is assumed of a measured machine. */
#include <stdio.h>
#include <string.h>

#include "monitor/plan_machine.h"
#include "support.h"

static Err parse(const char *text, PlanMeasurement *m) {
  return plan_measurement_parse(text, strlen(text), "file", m);
}

/* Every member of a document that is accepted. */
static const char *const good[][2] = {{"bench", "\"train\""},
                                      {"backend", "\"cuda:0: NVIDIA H200, 143 GB\""},
                                      {"preset", "\"base\""},
                                      {"precision", "\"bf16\""},
                                      {"parameters", "7"},
                                      {"batch_tokens", "1024"},
                                      {"tgt_tok_s", "1000"},
                                      {"step_ms", "1000"},
                                      {"parts",
                                       "{\"copy_gb_s\": 4000, \"step\": {\"ms\": 2000}, "
                                       "\"work\": [{\"name\": \"optimizer\", \"ms\": 1}]}"}};
#define MEMBERS (sizeof good / sizeof *good)

/* Parses the document with the value of one member replaced, or without the member if value is
 * NULL. */
static Err parse_with(const char *member, const char *value, PlanMeasurement *m) {
  char text[1024] = "{\"x\": 0";
  for (size_t i = 0; i < MEMBERS; i++) {
    bool is_replaced = strcmp(good[i][0], member) == 0;
    size_t n = strlen(text);
    if (is_replaced && !value) continue;
    snprintf(text + n, sizeof text - n, ", \"%s\": %s", good[i][0],
             is_replaced ? value : good[i][1]);
  }
  strcat(text, "}");
  return parse(text, m);
}

static void test_measurement_members_that_may_be_missing(void **state) {
  (void)state;
  PlanMeasurement m;
  assert_int_equal(parse_with("", NULL, &m), ERR_OK);
  assert_true(m.parameters == 7 && m.copy == 4e12 && !m.is_host && m.optimizer == 1e-3);
  assert_int_equal(parse_with("parameters", NULL, &m), ERR_OK);
  assert_true(m.parameters == 0);
  assert_int_equal(parse_with("parts", NULL, &m), ERR_OK);
  assert_false(m.has_parts);
  assert_int_equal(parse_with("parts", "{\"step\": {\"ms\": 1}, \"work\": []}", &m), ERR_OK);
  assert_true(m.has_parts && m.copy == 0);
}

/* The message names the member. */
static void test_measurement_wrong_members_are_errors(void **state) {
  (void)state;
#define PARTS(copy, step, work) \
  "{\"copy_gb_s\": " copy ", \"step\": {\"ms\": " step "}, \"work\": " work "}"
  static const char *const wrong[][3] = {
      {"bench", "\"reader\"", "\"bench\""},
      {"bench", NULL, "\"bench\""},
      {"backend", NULL, "backend is missing"},
      {"backend", "3", "backend is missing, empty or not a text"},
      {"backend", "\"tpu: x\"", "backend starts"},
      {"preset", NULL, "preset is missing"},
      {"preset", "\"\"", "preset is missing"},
      {"precision", NULL, "precision is missing"},
      {"precision", "[]", "precision is missing, empty or not a text"},
      {"precision", "\"int3\"", "precision is not fp32, tf32"},
      {"parameters", "\"7\"", "parameters is not a number"},
      {"parameters", "0.5", "parameters is 0.5, not a whole number"},
      {"batch_tokens", NULL, "batch_tokens is missing"},
      {"batch_tokens", "1.5", "batch_tokens is 1.5, not a whole number from 16 to 16777216"},
      {"batch_tokens", "16.5", "batch_tokens is 16.5, not a whole number"},
      {"batch_tokens", "15", "batch_tokens is 15, not"},
      {"batch_tokens", "1e12", "batch_tokens is"},
      {"tgt_tok_s", NULL, "tgt_tok_s is missing"},
      {"tgt_tok_s", "-1", "tgt_tok_s is -1"},
      {"step_ms", "0", "step_ms is 0"},
      {"step_ms", "\"1\"", "step_ms is not a number"},
      {"step_ms", "1e300", "step_ms is 1e+300"},
      {"parts", "3", "parts.step.ms is missing"},
      {"parts", "{\"step\": {\"ms\": 1}}", "parts.work is missing"},
      {"parts", PARTS("1", "1", "{}"), "parts.work is missing or not a list"},
      {"parts", PARTS("1", "1", "[{\"name\": \"x\"}]"), "parts.work[].ms is missing"},
      {"parts", PARTS("1", "1", "[{\"ms\": 1}]"), "parts.work has no name"},
      {"parts", PARTS("1", "1", "[{\"name\": \"optimizer\", \"ms\": 2}]"), "take longer"},
      {"parts", PARTS("1", "0", "[]"), "parts.step.ms is 0"},
      {"parts", PARTS("1e-300", "1", "[]"), "parts.copy_gb_s is 1e-300"},
      {"parts", PARTS("1e15", "1", "[]"), "parts.copy_gb_s is 1e+15"},
      {"parts", PARTS("null", "1", "[]"), "parts.copy_gb_s is not a number"}};
  PlanMeasurement m;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    if (parse_with(wrong[i][0], wrong[i][1], &m) != ERR_WORK)
      fail_msg("accepted: %s %s", wrong[i][0], wrong[i][1] ? wrong[i][1] : "missing");
    if (!strstr(err_message(), wrong[i][2])) fail_msg("%s: %s", wrong[i][2], err_message());
    assert_non_null(strstr(err_message(), "file is not the output of"));
  }
}

static void test_measurement_of_a_cpu_in_fp8_is_an_error(void **state) {
  (void)state;
  PlanMeasurement m;
  const char *start = "{\"bench\": \"train\", \"backend\": \"cpu: neon\", \"preset\": \"base\"";
  char text[256];
  snprintf(text, sizeof text, "%s, \"precision\": \"fp8\"}", start);
  assert_int_equal(parse(text, &m), ERR_WORK);
  assert_non_null(strstr(err_message(), "backend is a CPU"));
}

static void test_measurement_wrong_documents_are_errors(void **state) {
  (void)state;
  PlanMeasurement m;
  const char *wrong[] = {"", "[]", "{}", "3", "{\"bench\": \"train\""};
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
      cmocka_unit_test(test_measurement_members_that_may_be_missing),
      cmocka_unit_test(test_measurement_wrong_members_are_errors),
      cmocka_unit_test(test_measurement_of_a_cpu_in_fp8_is_an_error),
      cmocka_unit_test(test_measurement_wrong_documents_are_errors),
      cmocka_unit_test(test_machine_of_a_known_gpu_has_its_links),
      cmocka_unit_test(test_machine_of_another_gpu_is_assumed_to_have_pcie),
      cmocka_unit_test(test_machine_of_a_cpu_has_the_measured_copy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
