/* The assembler GEMM tiles of the CPU backend, called with register contents that the ABI allows
 * but C cannot express. Depends on backend/cpu. */
#include "backend/cpu/fast/fast.h"
#include "support.h"

/* The tile function with `add` as 64 bits: a bool has eight bits, and on ARM the other bits of
 * its register are undefined. */
typedef void (*WideTile)(size_t depth, const void *a, const void *b, float *c, size_t ldc,
                         uint64_t add);

/* Runs a tile of depth 1 with all operands 2 on a matrix C of 100; returns c[0]. */
static float run_tile(void (*tile)(size_t, const void *, const void *, float *, size_t, bool),
                      uint64_t add) {
  enum { MAX = 32 }; /* rows and columns of the largest tile */
  float a[MAX], b[MAX], c[MAX * MAX];
  WideTile wide;
  for (size_t i = 0; i < MAX; i++) a[i] = b[i] = 2;
  for (size_t i = 0; i < MAX * MAX; i++) c[i] = 100;
  memcpy(&wide, &tile, sizeof wide);
  wide(1, a, b, c, MAX, add);
  return c[0];
}

static void test_tile_false_with_upper_register_bits_overwrites(void **state) {
  (void)state;
#ifndef __aarch64__
  skip(); /* Other ABIs require the caller to extend a bool. */
#endif
  assert_true(run_tile(gemm_f32_base.tile, (uint64_t)1 << 8) == 4);
  assert_true(run_tile(gemm_f32_base.few, (uint64_t)1 << 8) == 4);
}

static void test_tile_true_accumulates(void **state) {
  (void)state;
  assert_true(run_tile(gemm_f32_base.tile, 1) == 104);
  assert_true(run_tile(gemm_f32_base.few, 1) == 104);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tile_false_with_upper_register_bits_overwrites),
      cmocka_unit_test(test_tile_true_accumulates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
