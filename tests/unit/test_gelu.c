/* GELU of the CPU backend against double precision, for every instruction set of this machine. */
#include <math.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "support.h"

#define COUNT 2403

static float x[COUNT], y[COUNT], slope[COUNT], one[COUNT];

/* Asserts a small relative error for each x from -12 to 12, also where 1 + erf(x) has lost its digits.
 * The exponent -x² / 2 is rounded, so the error grows with it. */
static void check_gelu(const Backend *b) {
  b->activate(b, y, NULL, x, NULL, 1, COUNT, ACT_GELU, (Dropout){0});
  b->activate_backward(b, slope, NULL, one, x, 1, COUNT, ACT_GELU, (Dropout){0}, false);
  for (int i = 0; i < COUNT; i++) {
    double v = x[i], phi = 0.5 * erfc(-v * sqrt(0.5));
    double bell = exp(-0.5 * v * v) * 0.3989422804014327;
    double tolerance = 1e-6 + 0.6e-7 * v * v;
    if (!(fabs(y[i] - v * phi) <= tolerance * fabs(v * phi)))
      fail_msg("gelu(%g) is %.9g instead of %.9g", v, (double)y[i], v * phi);
    double terms = phi + fabs(v) * bell; /* they cancel near x = -0.75 */
    if (!(fabs(slope[i] - (phi + v * bell)) <= tolerance * terms))
      fail_msg("the derivative at %g is %.9g instead of %.9g", v, (double)slope[i],
               phi + v * bell);
  }
}

static void test_gelu_relative_error_is_small_for_every_x(void **state) {
  (void)state;
  static const char *const names[] = {"avx512", "avx2", "sse2", "neon"};
  int checked = 0;
  for (int i = 0; i < COUNT; i++) {
    x[i] = (float)i / 100 - 12;
    one[i] = 1;
  }
  for (int i = 0; i < 4; i++) {
    Backend b;
    setenv("TRIREME_ISA", names[i], 1);
    if (backend_cpu(&b, 1, false)) continue; /* not an instruction set of this machine */
    check_gelu(&b);
    checked++;
  }
  unsetenv("TRIREME_ISA");
  assert_true(checked > 0);
}

/* An element has the same bits in the vectors and in the remainder of an array. */
static void test_gelu_bits_do_not_depend_on_position(void **state) {
  (void)state;
  Backend b;
  float values[37], all[37], alone[1];
  OK(backend_cpu(&b, 1, false));
  for (int i = 0; i < 37; i++) values[i] = (float)(i - 18) * 0.37f;
  b.activate(&b, all, NULL, values, NULL, 1, 37, ACT_GELU, (Dropout){0});
  for (int i = 0; i < 37; i++) {
    b.activate(&b, alone, NULL, values + i, NULL, 1, 1, ACT_GELU, (Dropout){0});
    assert_memory_equal(alone, all + i, sizeof *alone);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gelu_relative_error_is_small_for_every_x),
      cmocka_unit_test(test_gelu_bits_do_not_depend_on_position),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
