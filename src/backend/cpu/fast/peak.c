/* Executes multiply-adds in registers, to measure how many a core can do in a second. Depends on
 * fast.h. */
#include "backend/cpu/fast/fast.h"

/* There are several independent sums, so that no multiply-add waits for the result of another:
 * latency times units is at most 16 (ARM Neoverse V). */
#define UNROLLED 8

#if defined(__aarch64__)
#define SUMS 16

/* Four multiply-adds and a load, as in a GEMM: without any load Neoverse V1 uses two of its four
 * units. In assembly, because gcc would reorder the instructions to chains that wait for each
 * other. */
#define FOUR(a, b, c, d)  \
  "ldr q16, [%1]\n"       \
  "fmla v" #a             \
  ".4s, v16.4s, v17.4s\n" \
  "fmla v" #b             \
  ".4s, v16.4s, v17.4s\n" \
  "fmla v" #c             \
  ".4s, v16.4s, v17.4s\n" \
  "fmla v" #d ".4s, v16.4s, v17.4s\n"
#define SIXTEEN FOUR(0, 1, 2, 3) FOUR(4, 5, 6, 7) FOUR(8, 9, 10, 11) FOUR(12, 13, 14, 15)

static void run_rounds(size_t rounds) {
  static const float factor[LANES] = {0}; /* the sums may hold any value */
  __asm__ volatile(
      "movi v17.4s, #0\n"
      "1:\n" SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN
      "subs %0, %0, #1\n"
      "b.ne 1b\n"
      : "+r"(rounds)
      : "r"(factor), "m"(factor)
      : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",
        "v13", "v14", "v15", "v16", "v17");
}
#else
#if LANES == 16
#define SUMS 16
#else
#define SUMS 12 /* of 16 registers; the others hold the operands */
#endif

static void run_rounds(size_t rounds) {
  static volatile float operand[2] = {0.5f, 1}; /* values that the compiler does not know */
  static volatile float used; /* without a use of the sums the compiler would remove the loop */
  Lanes x = lanes_of(operand[0]), y = lanes_of(operand[1]), sum[SUMS];
  for (int i = 0; i < SUMS; i++) sum[i] = lanes_of((float)i);
  for (size_t r = 0; r < rounds; r++) {
#pragma GCC unroll 8
    for (int k = 0; k < UNROLLED; k++)
      for (int i = 0; i < SUMS; i++) sum[i] = lanes_madd(sum[i], x, y);
  }
  for (int i = 1; i < SUMS; i++) sum[0] += sum[i];
  if (lanes_sum(sum[0]) < 0) used = 1;
  (void)used;
}
#endif

double FAST(fast_peak)(size_t rounds) {
  if (rounds) run_rounds(rounds);
  return 2.0 * LANES * SUMS * UNROLLED * (double)rounds;
}
