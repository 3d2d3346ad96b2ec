/* The assembler tiles of the CPU's products, called as the ABI allows and C alone does not.
 * Relies on backend/cpu. */
#include "backend/cpu/fast/fast.h"
#include "support.h"

/* A bool has eight bits; on ARM the rest of its register may hold anything. */
typedef void (*WideTile)(size_t depth, const void *a, const void *b, float *c, size_t ldc,
                         uint64_t add);

static float tile_with(void (*tile)(size_t, const void *, const void *, float *, size_t, bool),
                       uint64_t add) {
  enum { MOST = 32 }; /* rows, columns and numbers of a step, at most */
  float a[MOST], b[MOST], c[MOST * MOST];
  WideTile wide;
  for (size_t i = 0; i < MOST; i++) a[i] = b[i] = 2;
  for (size_t i = 0; i < MOST * MOST; i++) c[i] = 100;
  memcpy(&wide, &tile, sizeof wide);
  wide(1, a, b, c, MOST, add);
  return c[0];
}

static void test_tile_register_above_false_is_ignored(void **state) {
  (void)state;
#ifndef __aarch64__
  skip(); /* elsewhere the caller extends a bool */
#endif
  assert_true(tile_with(gemm_f32_base.tile, (uint64_t)1 << 8) == 4);
  assert_true(tile_with(gemm_f32_base.few, (uint64_t)1 << 8) == 4);
}

static void test_tile_true_adds(void **state) {
  (void)state;
  assert_true(tile_with(gemm_f32_base.tile, 1) == 104);
  assert_true(tile_with(gemm_f32_base.few, 1) == 104);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tile_register_above_false_is_ignored),
      cmocka_unit_test(test_tile_true_adds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
