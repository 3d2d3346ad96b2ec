/* Device timestamps measure the execution of the work between them, not its queuing;
 * TimedBackend counts attention by offsets on the GPU. Returns 77 if there is no GPU. Needs the
 * plug-in in TRIREME_PLUGIN_PATH. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "backend/timed.h"
#include "base/progress.h"
#include "gpu.h"

enum { N = 4096 };

static Backend b;
static char *x, *w, *y; /* (N, N) matrices in bf16 */

static void test_stamps_are_in_order(void **state) {
  (void)state;
  enum { POINTS = 5000 };
  static double at[POINTS];
  for (int again = 0; again < 2; again++) {
    for (size_t i = 0; i < POINTS; i++) b.stamp(&b, i);
    ok(b.stamps(&b, at, POINTS));
    assert_true(at[0] == 0);
    for (size_t i = 1; i < POINTS; i++) assert_true(at[i] >= at[i - 1]);
    assert_true(at[POINTS - 1] > 0 && at[POINTS - 1] < 10);
  }
}

static void test_stamps_measure_work_not_enqueuing(void **state) {
  (void)state;
  enum { TIMES = 20 };
  TimedBackend c;
  ok(timed_open(&c, &b));
  b.linear(&b, y, x, w, NULL, N, N, N); /* the first run also times GEMM algorithms */
  ok(b.sync(&b));
  double start = progress_clock();
  timed_begin(&c);
  for (int i = 0; i < TIMES; i++) c.backend.linear(&c.backend, y, x, w, NULL, N, N, N);
  c.backend.zero(&c.backend, y, 4);
  ok(timed_end(&c));
  double wall = progress_clock() - start, took = c.work[WORK_LINEAR].seconds;
  double operations = 2.0 * TIMES * N * N * N;
  assert_true(c.work[WORK_LINEAR].operations == operations);
  assert_true(took > operations / 1e16); /* longer than queuing takes */
  assert_true(took + c.work[WORK_MOVE].seconds <= c.seconds * (1 + 1e-4) && c.seconds < wall);
  assert_true(c.work[WORK_MOVE].seconds < took);
  timed_close(&c);
}

static void test_timed_attention_reads_offsets_on_gpu(void **state) {
  (void)state;
  static const int32_t off[] = {0, 3, 10, 12};
  enum { HEADS = 2, D = 64, WIDTH = HEADS * D };
  int32_t *there;
  float *lse;
  TimedBackend c;
  ok(b.alloc(&b, &there, sizeof off));
  ok(b.alloc(&b, &lse, 12 * HEADS * sizeof *lse));
  b.put(&b, there, off, sizeof off);
  ok(timed_open(&c, &b));
  Attention a = {.sentences = 3, .heads = HEADS, .d = D, .q_off = there, .k_off = there};
  a.q_ld = a.kv_ld = a.o_ld = WIDTH;
  a.causal = true;
  timed_begin(&c);
  c.backend.attend(&c.backend, y, lse, x, w, x, &a);
  ok(timed_end(&c));
  assert_true(c.work[WORK_ATTEND].operations == 4.0 * (6 + 28 + 3) * WIDTH);
  assert_true(c.work[WORK_ATTEND].bytes == 2.0 * 4 * 12 * WIDTH + 4.0 * 12 * HEADS);
  assert_true(c.work[WORK_ATTEND].seconds > 0);
  timed_close(&c);
  b.release(&b, there);
  b.release(&b, lse);
}

int main(void) {
  char **array[] = {&x, &w, &y};
  int why = find_gpu(&b, "bf16");
  if (why) return why;
  for (int i = 0; i < 3; i++) {
    if (b.alloc(&b, array[i], 2 * (size_t)N * N)) {
      printf("%s\n", err_message());
      return 1;
    }
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_stamps_are_in_order),
      cmocka_unit_test(test_stamps_measure_work_not_enqueuing),
      cmocka_unit_test(test_timed_attention_reads_offsets_on_gpu),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (int i = 0; i < 3; i++) b.release(&b, *array[i]);
  backend_close(&b);
  return failed;
}
