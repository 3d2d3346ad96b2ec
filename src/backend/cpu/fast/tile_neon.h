/* Inner loops of fp32 GEMM on ARM, in assembler. A tile of 8 rows by 12 columns has 24
 * accumulators in registers, which leaves 8 registers for operands. Compilers do not achieve this
 * (gcc 12 spills four accumulators). Rows of A are lanes of two registers. Loads for the next
 * step of k are interleaved with the multiply-adds of the current step. No dependencies. */
#ifndef BACKEND_CPU_FAST_TILE_NEON_H
#define BACKEND_CPU_FAST_TILE_NEON_H

#include <stdbool.h>
#include <stddef.h>

/* clang-format off */
#define NEON_FMA(s, b, a, lane) \
  "fmla v" #s ".4s, v" #b ".4s, v" #a ".s[" #lane "]\n\t"
#define NEON_LOAD(q, from, at) "ldr q" #q ", [%[" #from "], #" at "]\n\t"
#define NEON_PREFETCH(from, at) "prfm pldl1keep, [%[" #from "], #" at "]\n\t"

/* Four columns of four rows: adds b times lane 0, 1, 2, 3 of a to the accumulators s, t, u, v,
 * with one load in between. */
#define NEON_BLOCK(s, t, u, v, b, a, load) \
  NEON_FMA(s, b, a, 0) NEON_FMA(t, b, a, 1) load NEON_FMA(u, b, a, 2) NEON_FMA(v, b, a, 3)

/* Step `k` of four: A in lo and hi, B in b0, b1, b2. The operands of the next step are loaded
 * into nl, nh and n0, then into b0 and b1 when those are no longer needed. */
#define NEON_STEP_8(k, lo, hi, b0, b1, b2, nl, nh, n0)                     \
  NEON_BLOCK( 8, 11, 14, 17, b0, lo, NEON_LOAD(n0, b, "48*" #k "+48"))      \
  NEON_BLOCK(20, 23, 26, 29, b0, hi, NEON_LOAD(nl, a, "32*" #k "+32"))      \
  NEON_BLOCK( 9, 12, 15, 18, b1, lo, NEON_LOAD(b0, b, "48*" #k "+64"))      \
  NEON_BLOCK(21, 24, 27, 30, b1, hi, NEON_LOAD(nh, a, "32*" #k "+48"))      \
  NEON_BLOCK(10, 13, 16, 19, b2, lo, NEON_LOAD(b1, b, "48*" #k "+80"))      \
  NEON_BLOCK(22, 25, 28, 31, b2, hi, "")
#define NEON_STEP_4(k, lo, b0, b1, b2, nl, n0)                             \
  NEON_BLOCK( 8, 11, 14, 17, b0, lo, NEON_LOAD(n0, b, "48*" #k "+48"))      \
  NEON_BLOCK( 9, 12, 15, 18, b1, lo, NEON_LOAD(b0, b, "48*" #k "+64")       \
                                    NEON_LOAD(nl, a, "32*" #k "+32"))      \
  NEON_BLOCK(10, 13, 16, 19, b2, lo, NEON_LOAD(b1, b, "48*" #k "+80"))
/* Loads the operands of a single step of k. */
#define NEON_LOAD_B NEON_LOAD(4, b, "0") NEON_LOAD(5, b, "16") NEON_LOAD(6, b, "32")
#define NEON_LAST_4                                                        \
  NEON_BLOCK( 8, 11, 14, 17, 4, 0, "") NEON_BLOCK( 9, 12, 15, 18, 5, 0, "") \
  NEON_BLOCK(10, 13, 16, 19, 6, 0, "")
#define NEON_LAST_8 NEON_LAST_4                                            \
  NEON_BLOCK(20, 23, 26, 29, 4, 1, "") NEON_BLOCK(21, 24, 27, 30, 5, 1, "") \
  NEON_BLOCK(22, 25, 28, 31, 6, 1, "")

#define NEON_UPPER(row) row(8, 9, 10) row(11, 12, 13) row(14, 15, 16) row(17, 18, 19)
#define NEON_LOWER(row) row(20, 21, 22) row(23, 24, 25) row(26, 27, 28) row(29, 30, 31)
#define NEON_ZERO(s, t, u) \
  "movi v" #s ".4s, #0\n\tmovi v" #t ".4s, #0\n\tmovi v" #u ".4s, #0\n\t"
#define NEON_PREFETCH_C(s, t, u) \
  "prfm pldl1keep, [%[ahead]]\n\tprfm pldl1keep, [%[ahead], #40]\n\tadd %[ahead], %[ahead], %[row]\n\t"
/* Stores a finished row to C, or adds it to C. */
#define NEON_PUT(s, t, u)                \
  "stp q" #s ", q" #t ", [%[c]]\n\t"     \
  "str q" #u ", [%[c], #32]\n\t"         \
  "add %[c], %[c], %[row]\n\t"
#define NEON_ADD(s, t, u)                  \
  "ldp q0, q1, [%[c]]\n\t"                 \
  "ldr q2, [%[c], #32]\n\t"                \
  "fadd v" #s ".4s, v" #s ".4s, v0.4s\n\t" \
  "fadd v" #t ".4s, v" #t ".4s, v1.4s\n\t" \
  "fadd v" #u ".4s, v" #u ".4s, v2.4s\n\t" NEON_PUT(s, t, u)

/* Zeroes the accumulators, loads the first operands, runs `four` while at least five steps remain
 * (it loads one step ahead), `one` for each remaining step, then writes C. */
#define NEON_TILE(zero, first, four, one, put, add_to)                     \
  zero "cbz %[fours], 2f\n\t" first ".p2align 5\n1:\n\t" four              \
  "add %[a], %[a], #128\n\tadd %[b], %[b], #192\n\t"                       \
  "subs %[fours], %[fours], #1\n\tb.ne 1b\n2:\n\t"                         \
  "cbz %[rest], 4f\n3:\n\t" one                                            \
  "add %[a], %[a], #32\n\tadd %[b], %[b], #48\n\t"                         \
  "subs %[rest], %[rest], #1\n\tb.ne 3b\n4:\n\t"                           \
  "cbnz %[add], 5f\n\t" put "b 6f\n5:\n\t" add_to "6:\n"

/* c (8, 12) = a · b over depth, + c if `add`; a has 8 floats per step, b has 12. Prefetches B 24
 * steps ahead: with few rows each slice of B is read only a few times and comes from L3 or
 * memory. */
static inline void neon_tile_8x12(size_t depth, const float *a, const float *b, float *c, size_t ldc,
                           bool add) {
  size_t fours = depth ? (depth - 1) / 4 : 0, rest = depth - 4 * fours, row = ldc * sizeof *c;
  const float *ahead = c; /* pointer for prefetching rows of C */
  __asm__ volatile(
      NEON_TILE(NEON_UPPER(NEON_ZERO) NEON_LOWER(NEON_ZERO)
                NEON_UPPER(NEON_PREFETCH_C) NEON_LOWER(NEON_PREFETCH_C),
                NEON_LOAD(0, a, "0") NEON_LOAD(1, a, "16") NEON_LOAD_B,
                NEON_PREFETCH(b, "1152") NEON_STEP_8(0, 0, 1, 4, 5, 6, 2, 3, 7)
                NEON_PREFETCH(b, "1216") NEON_STEP_8(1, 2, 3, 7, 4, 5, 0, 1, 6)
                NEON_PREFETCH(b, "1280") NEON_STEP_8(2, 0, 1, 6, 7, 4, 2, 3, 5)
                NEON_STEP_8(3, 2, 3, 5, 6, 7, 0, 1, 4),
                NEON_LOAD(0, a, "0") NEON_LOAD(1, a, "16") NEON_LOAD_B NEON_LAST_8,
                NEON_UPPER(NEON_PUT) NEON_LOWER(NEON_PUT),
                NEON_UPPER(NEON_ADD) NEON_LOWER(NEON_ADD))
      : [a] "+&r"(a), [b] "+&r"(b), [c] "+&r"(c), [fours] "+&r"(fours), [rest] "+&r"(rest),
        [ahead] "+&r"(ahead)
      : [row] "r"(row), [add] "r"((size_t)add)
      : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",
        "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",
        "v25", "v26", "v27", "v28", "v29", "v30", "v31", "cc", "memory");
}

/* c (4, 12): the first four rows of the 8 x 12 tile, from the same operands. */
static inline void neon_tile_4x12(size_t depth, const float *a, const float *b, float *c, size_t ldc,
                           bool add) {
  size_t fours = depth ? (depth - 1) / 4 : 0, rest = depth - 4 * fours, row = ldc * sizeof *c;
  const float *ahead = c; /* pointer for prefetching rows of C */
  __asm__ volatile(
      NEON_TILE(NEON_UPPER(NEON_ZERO) NEON_UPPER(NEON_PREFETCH_C),
                NEON_LOAD(0, a, "0") NEON_LOAD_B,
                NEON_PREFETCH(b, "1152") NEON_STEP_4(0, 0, 4, 5, 6, 1, 7)
                NEON_PREFETCH(b, "1216") NEON_STEP_4(1, 1, 7, 4, 5, 0, 6)
                NEON_PREFETCH(b, "1280") NEON_STEP_4(2, 0, 6, 7, 4, 1, 5)
                NEON_STEP_4(3, 1, 5, 6, 7, 0, 4),
                NEON_LOAD(0, a, "0") NEON_LOAD_B NEON_LAST_4,
                NEON_UPPER(NEON_PUT), NEON_UPPER(NEON_ADD))
      : [a] "+&r"(a), [b] "+&r"(b), [c] "+&r"(c), [fours] "+&r"(fours), [rest] "+&r"(rest),
        [ahead] "+&r"(ahead)
      : [row] "r"(row), [add] "r"((size_t)add)
      : "v0", "v1", "v2", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",
        "v14", "v15", "v16", "v17", "v18", "v19", "cc", "memory");
}

/* The matmuls of attention are too small to pack their operands. They multiply four rows of A by
 * 16 columns of B, four steps of k at a time. */
#define NEON_ROW_16(s, t, u, v, a, lane) \
  NEON_FMA(s, 4, a, lane) NEON_FMA(t, 5, a, lane) NEON_FMA(u, 6, a, lane) NEON_FMA(v, 7, a, lane)
#define NEON_STEP_16(lane)                                                           \
  "ldp q4, q5, [%[b]]\n\tldp q6, q7, [%[b], #32]\n\tadd %[b], %[b], %[ldb]\n\t"     \
  NEON_ROW_16(16, 17, 18, 19, 0, lane) NEON_ROW_16(20, 21, 22, 23, 1, lane)          \
  NEON_ROW_16(24, 25, 26, 27, 2, lane) NEON_ROW_16(28, 29, 30, 31, 3, lane)
#define NEON_NEXT_A(r, by)                                              \
  "ldr " #r "0, [%[a]], #" #by "\n\tldr " #r "1, [%[a1]], #" #by "\n\t" \
  "ldr " #r "2, [%[a2]], #" #by "\n\tldr " #r "3, [%[a3]], #" #by "\n\t"
#define NEON_ZERO_16(s, t, u, v) \
  NEON_ZERO(s, t, u) "movi v" #v ".4s, #0\n\t"
#define NEON_PUT_16(s, t, u, v) \
  "stp q" #s ", q" #t ", [%[c]]\n\tstp q" #u ", q" #v ", [%[c], #32]\n\tadd %[c], %[c], %[row]\n\t"
#define NEON_ROWS_16(row) row(16, 17, 18, 19) row(20, 21, 22, 23) row(24, 25, 26, 27) row(28, 29, 30, 31)

/* c (4, 16) = a (4, depth) · b (depth, 16), all row-major. */
static inline void neon_matmul_4x16(float *c, size_t ldc, const float *a, size_t lda,
                                     const float *b, size_t ldb, size_t depth) {
  const float *a1 = a + lda, *a2 = a1 + lda, *a3 = a2 + lda;
  size_t fours = depth / 4, rest = depth % 4;
  __asm__ volatile(
      NEON_ROWS_16(NEON_ZERO_16)
      "cbz %[fours], 2f\n1:\n\t" NEON_NEXT_A(q, 16)
      NEON_STEP_16(0) NEON_STEP_16(1) NEON_STEP_16(2) NEON_STEP_16(3)
      "subs %[fours], %[fours], #1\n\tb.ne 1b\n2:\n\t"
      "cbz %[rest], 4f\n3:\n\t" NEON_NEXT_A(s, 4) NEON_STEP_16(0)
      "subs %[rest], %[rest], #1\n\tb.ne 3b\n4:\n\t" NEON_ROWS_16(NEON_PUT_16)
      : [a] "+&r"(a), [a1] "+&r"(a1), [a2] "+&r"(a2), [a3] "+&r"(a3), [b] "+&r"(b), [c] "+&r"(c),
        [fours] "+&r"(fours), [rest] "+&r"(rest)
      : [row] "r"(ldc * sizeof *c), [ldb] "r"(ldb * sizeof *b)
      : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20",
        "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "cc",
        "memory");
}
/* clang-format on */

#endif
