/* Peak FLOP/s of devices (backend/peak.h). */
#include "backend/peak.h"

#include <stdio.h>

#include "support.h"

static void test_peak_of_known_gpus_is_that_of_the_data_sheet(void **state) {
  (void)state;
  assert_true(peak_of_gpu("NVIDIA H200", "bf16") == 989.4e12);
  assert_true(peak_of_gpu("NVIDIA H200", "fp8") == 1978.9e12);
  assert_true(peak_of_gpu("NVIDIA H100 80GB HBM3", "tf32") == 494.7e12);
  assert_true(peak_of_gpu("NVIDIA H100 PCIe", "bf16") == 756e12);
  assert_true(peak_of_gpu("NVIDIA A100-SXM4-80GB", "fp16") == 312e12);
  assert_true(peak_of_gpu("NVIDIA A10G", "bf16") == 70e12);
  assert_true(peak_of_gpu("Tesla T4", "fp16") == 65e12);
  assert_true(peak_of_gpu("Tesla V100-SXM2-16GB", "fp16") == 125e12);
  assert_true(peak_of_gpu("Tesla V100-PCIE-16GB", "fp16") == 112e12);
}

static void test_peak_of_missing_units_is_unknown(void **state) {
  (void)state;
  assert_true(peak_of_gpu("Tesla T4", "bf16") == 0);
  assert_true(peak_of_gpu("NVIDIA A100-SXM4-80GB", "fp8") == 0);
  assert_true(peak_of_gpu("NVIDIA H200", "int8") == 0);
}

static void test_peak_of_other_names_is_unknown(void **state) {
  (void)state;
  static const char *const names[] = {"",      "fake GPU",    "NVIDIA A1000", "NVIDIA T400",
                                      "H2000", "Quadro XA100"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    assert_true(peak_of_gpu(names[i], "fp16") == 0);
}

static void test_backend_peak_of_gpu_takes_name_from_description(void **state) {
  (void)state;
  Backend b = {.name = "cuda"};
  snprintf(b.about, sizeof b.about, "cuda:3: NVIDIA H200, 143 GB, bf16, cuBLASLt 120900");
  assert_true(backend_peak(&b, "bf16") == 989.4e12);
  snprintf(b.about, sizeof b.about, "cuda:0: fake GPU");
  assert_true(backend_peak(&b, "bf16") == 0);
  snprintf(b.about, sizeof b.about, "something else");
  assert_true(backend_peak(&b, "bf16") == 0);
}

/* The processor of the test is not known: between a slow one under emulation and 100 TFLOP/s. */
static void test_backend_peak_of_cpu_is_measured(void **state) {
  (void)state;
  Backend b;
  OK(backend_cpu(&b, 2, false));
  double peak = backend_peak(&b, "fp32");
  assert_true(peak > 1e6 && peak < 1e14);
  backend_close(&b);
}

static void test_backend_peak_without_measurement_is_unknown(void **state) {
  (void)state;
  Backend b;
  backend_reference(&b);
  assert_true(backend_peak(&b, "fp32") == 0);
  b = (Backend){.name = "cpu", .host = true, .bf16 = true, .threads = 1};
  assert_true(backend_peak(&b, "bf16") == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_peak_of_known_gpus_is_that_of_the_data_sheet),
      cmocka_unit_test(test_peak_of_missing_units_is_unknown),
      cmocka_unit_test(test_peak_of_other_names_is_unknown),
      cmocka_unit_test(test_backend_peak_of_gpu_takes_name_from_description),
      cmocka_unit_test(test_backend_peak_of_cpu_is_measured),
      cmocka_unit_test(test_backend_peak_without_measurement_is_unknown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
