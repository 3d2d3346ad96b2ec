/* bf16 GEMM micro-kernel for ARM BFMMLA, which multiplies two rows of A by two columns of B over
 * four values of k. Operands are rounded to bf16 while they are packed; sums are fp32. A tile of
 * C has 8 rows and 12 columns, 4 x 6 results of the instruction, in assembler so that the 24
 * accumulators stay in registers. Compiled for CPUs with BFMMLA; cpu.c checks whether this CPU
 * has it. "Line" below means a row of A or a column of B. Depends on gemm_internal.h. */
#include "backend/cpu/gemm_internal.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define MR    ((size_t)8)
#define NR    ((size_t)12)
#define DEPTH ((size_t)4) /* values of k per instruction */

/* clang-format off */
#define MMLA(s, a, b) "bfmmla v" #s ".4s, v" #a ".8h, v" #b ".8h\n\t"
#define LOAD(q, from, at) "ldr q" #q ", [%[" #from "], #" at "]\n\t"
#define PREFETCH(from, at) "prfm pldl1keep, [%[" #from "], #" at "]\n\t"
/* Multiplies a pair of columns by two pairs of rows. */
#define UPPER(s, t, b) MMLA(s, 0, b) MMLA(t, 1, b)
#define LOWER(s, t, b) MMLA(s, 2, b) MMLA(t, 3, b)
/* STEP_8 and STEP_4 multiply DEPTH values of k for 8 and for 4 rows; `k` is 0 or 1, the number of
 * the step in an iteration. v0 to v3 contain pairs of rows, v4 to v7 pairs of columns; in STEP_4,
 * which has two pairs of rows, v2 and v3 contain columns too. */
#define LOAD_B(k)                                                     \
  LOAD(4, b, "96*" #k) LOAD(5, b, "96*" #k "+16")                     \
  LOAD(6, b, "96*" #k "+32") LOAD(7, b, "96*" #k "+48")
#define STEP_8(k)                                                     \
  LOAD(0, a, "64*" #k) LOAD(1, a, "64*" #k "+16") LOAD_B(k)           \
  LOAD(2, a, "64*" #k "+32") LOAD(3, a, "64*" #k "+48")               \
  UPPER( 8, 14, 4) LOWER(20, 26, 4) LOAD(4, b, "96*" #k "+64")        \
  UPPER( 9, 15, 5) LOWER(21, 27, 5) LOAD(5, b, "96*" #k "+80")        \
  UPPER(10, 16, 6) LOWER(22, 28, 6) UPPER(11, 17, 7) LOWER(23, 29, 7) \
  UPPER(12, 18, 4) LOWER(24, 30, 4) UPPER(13, 19, 5) LOWER(25, 31, 5)
#define STEP_4(k)                                                     \
  LOAD(0, a, "64*" #k) LOAD(1, a, "64*" #k "+16") LOAD_B(k)           \
  LOAD(2, b, "96*" #k "+64") LOAD(3, b, "96*" #k "+80")               \
  UPPER( 8, 14, 4) UPPER( 9, 15, 5) UPPER(10, 16, 6)                  \
  UPPER(11, 17, 7) UPPER(12, 18, 2) UPPER(13, 19, 3)

#define ZERO(s) "movi v" #s ".4s, #0\n\t"
#define ZERO_PAIR(s, t, u, v, w, x) ZERO(s) ZERO(t) ZERO(u) ZERO(v) ZERO(w) ZERO(x)
/* Six accumulators of 2 x 2 contain two rows of C; zip1 extracts the first row, zip2 the
 * second. */
#define ROW(zip, s, t, u, v, w, x)                                    \
  zip " v0.2d, v" #s ".2d, v" #t ".2d\n\t"                            \
  zip " v1.2d, v" #u ".2d, v" #v ".2d\n\t"                            \
  zip " v2.2d, v" #w ".2d, v" #x ".2d\n\t"
#define ADD_ROW                                                       \
  "ldp q3, q4, [%[c]]\n\tldr q5, [%[c], #32]\n\t"                     \
  "fadd v0.4s, v0.4s, v3.4s\n\tfadd v1.4s, v1.4s, v4.4s\n\tfadd v2.4s, v2.4s, v5.4s\n\t"
#define PUT_ROW "stp q0, q1, [%[c]]\n\tstr q2, [%[c], #32]\n\tadd %[c], %[c], %[row]\n\t"
#define PUT(s, t, u, v, w, x)                                         \
  ROW("zip1", s, t, u, v, w, x) PUT_ROW ROW("zip2", s, t, u, v, w, x) PUT_ROW
#define ADD(s, t, u, v, w, x)                                         \
  ROW("zip1", s, t, u, v, w, x) ADD_ROW PUT_ROW                       \
  ROW("zip2", s, t, u, v, w, x) ADD_ROW PUT_ROW
#define UPPER_ROWS(pair) pair(8, 9, 10, 11, 12, 13) pair(14, 15, 16, 17, 18, 19)
#define LOWER_ROWS(pair) pair(20, 21, 22, 23, 24, 25) pair(26, 27, 28, 29, 30, 31)

/* Zeroes the accumulators, runs two steps per iteration, one more if `odd`, then writes C or adds
 * to C. */
#define TILE(zero, two, one, put, add_to)                             \
  zero "cbz %[twos], 2f\n\t.p2align 5\n1:\n\t" two                    \
  "add %[a], %[a], #128\n\tadd %[b], %[b], #192\n\t"                  \
  "subs %[twos], %[twos], #1\n\tb.ne 1b\n2:\n\t"                      \
  "cbz %[odd], 3f\n\t" one "3:\n\t"                                   \
  "cbnz %[add], 4f\n\t" put "b 5f\n4:\n\t" add_to "5:\n"

/* Implements GemmKernel.tile. */
static void multiply_tile(size_t depth, const void *a, const void *b, float *c, size_t ldc, bool add) {
  size_t twos = depth / (2 * DEPTH), odd = depth / DEPTH % 2, row = ldc * sizeof *c;
  __asm__ volatile(
      TILE(UPPER_ROWS(ZERO_PAIR) LOWER_ROWS(ZERO_PAIR),
           PREFETCH(b, "1152") STEP_8(0) PREFETCH(b, "1216") STEP_8(1) PREFETCH(b, "1280"),
           STEP_8(0), UPPER_ROWS(PUT) LOWER_ROWS(PUT), UPPER_ROWS(ADD) LOWER_ROWS(ADD))
      : [a] "+&r"(a), [b] "+&r"(b), [c] "+&r"(c), [twos] "+&r"(twos)
      : [odd] "r"(odd), [row] "r"(row), [add] "r"((size_t)add)
      : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",
        "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",
        "v25", "v26", "v27", "v28", "v29", "v30", "v31", "cc", "memory");
}

/* Implements GemmKernel.few: computes the first four rows. */
static void multiply_four_rows(size_t depth, const void *a, const void *b, float *c, size_t ldc, bool add) {
  size_t twos = depth / (2 * DEPTH), odd = depth / DEPTH % 2, row = ldc * sizeof *c;
  __asm__ volatile(
      TILE(UPPER_ROWS(ZERO_PAIR),
           PREFETCH(b, "1152") STEP_4(0) PREFETCH(b, "1216") STEP_4(1) PREFETCH(b, "1280"),
           STEP_4(0), UPPER_ROWS(PUT), UPPER_ROWS(ADD))
      : [a] "+&r"(a), [b] "+&r"(b), [c] "+&r"(c), [twos] "+&r"(twos)
      : [odd] "r"(odd), [row] "r"(row), [add] "r"((size_t)add)
      : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",
        "v13", "v14", "v15", "v16", "v17", "v18", "v19", "cc", "memory");
}
/* clang-format on */

/* Loads min(n, 4) floats; the other lanes are 0. */
static inline float32x4_t load_part(const float *from, size_t n) {
  float part[4] = {0};
  if (n >= 4) return vld1q_f32(from);
  for (size_t i = 0; i < n; i++) part[i] = from[i];
  return vld1q_f32(part);
}

/* Stores four values of k of one line as bf16, rounded to nearest even. */
static inline void store_bf16(uint16_t *out, float32x4_t x) {
  vst1_u16(out, vreinterpret_u16_bf16(vcvt_bf16_f32(x)));
}

/* Packs four lines by four values of k from an operand whose lines are adjacent in memory and
 * whose k are `step` elements apart: transposes 4 x 4. */
static inline void transpose_lines(uint16_t *out, const float *from, size_t step, size_t lines,
                                   size_t depth) {
  float32x4_t zero = vdupq_n_f32(0), a = load_part(from, lines);
  float32x4_t b = depth > 1 ? load_part(from + step, lines) : zero;
  float32x4_t c = depth > 2 ? load_part(from + 2 * step, lines) : zero;
  float32x4_t d = depth > 3 ? load_part(from + 3 * step, lines) : zero;
  float32x4_t ac = vzip1q_f32(a, c), bd = vzip1q_f32(b, d);
  store_bf16(out, vzip1q_f32(ac, bd));
  store_bf16(out + 4, vzip2q_f32(ac, bd));
  ac = vzip2q_f32(a, c);
  bd = vzip2q_f32(b, d);
  store_bf16(out + 8, vzip1q_f32(ac, bd));
  store_bf16(out + 12, vzip2q_f32(ac, bd));
}

/* Packs slices of `wide` lines: for each four values of k, those of every line. `step`: elements
 * between two lines if line_is_contiguous, otherwise between two values of k. */
static inline void pack_lines(uint16_t *out, const float *in, size_t step,
                              bool line_is_contiguous, size_t lines, size_t wide,
                              size_t depth) {
  for (size_t l = 0; l < lines; l += wide) {
    size_t real = lines - l < wide ? lines - l : wide;
    for (size_t p = 0; p < depth; p += DEPTH, out += wide * DEPTH) {
      for (size_t i = 0; line_is_contiguous && i < wide; i++) {
        store_bf16(out + i * DEPTH,
                   i < real ? load_part(in + (l + i) * step + p, depth - p) : vdupq_n_f32(0));
      }
      for (size_t i = 0; !line_is_contiguous && i < wide; i += 4) {
        if (i < real)
          transpose_lines(out + i * DEPTH, in + p * step + l + i, step, real - i, depth - p);
        else
          for (size_t k = 0; k < 4; k++) store_bf16(out + (i + k) * DEPTH, vdupq_n_f32(0));
      }
    }
  }
}

static void pack_a(void *out, const Gemm *g, size_t i0, size_t rows, size_t p0, size_t depth) {
  pack_lines(out, gemm_a_at(g, i0, p0), g->lda, !g->ta, rows, MR, depth);
}

static void pack_b(void *out, const Gemm *g, size_t j0, size_t cols, size_t p0, size_t depth) {
  pack_lines(out, gemm_b_at(g, p0, j0), g->ldb, g->tb, cols, NR, depth);
}

const GemmKernel gemm_bfmmla = {.mr = MR,
                                .nr = NR,
                                .mc = 8 * 12,
                                .kc = 1024,
                                .nc = 3072,
                                .k_unit = DEPTH,
                                .element = 2,
                                .pack_a = pack_a,
                                .pack_b = pack_b,
                                .tile = multiply_tile,
                                .few_rows = 4,
                                .few = multiply_four_rows};
#else
const GemmKernel gemm_bfmmla = {0};
#endif
