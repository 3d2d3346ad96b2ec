/* fp32 GEMM micro-kernel: a tile of C in registers, in C with vector types, on ARM in assembler
 * (tile_neon.h). "Line" below means a row of A or a column of B.
 * Depends on fast.h, tile_neon.h. */
#include <string.h>

#include "backend/cpu/fast/fast.h"
#ifdef __aarch64__
#include "backend/cpu/fast/tile_neon.h"
#endif

/* A tile has ROWS x VECTORS accumulators: they use all vector registers except those for a row of
 * B and the broadcast element of A. */
#if LANES == 16
#define ROWS    14
#define VECTORS 2
#define MC      (14 * 20)
#define KC      512
#elif LANES == 8
#define ROWS    6
#define VECTORS 2
#define MC      (6 * 24)
#define KC      256
#elif defined(__aarch64__)
#define ROWS    8
#define VECTORS 3
#define MC      (8 * 12)
#define KC      512
#else
#define ROWS    4
#define VECTORS 2
#define MC      (4 * 32)
#define KC      256
#endif
#define FEW 4 /* rows of the small tile: one sentence at the usual beam size */
#define NR  ((size_t)(LANES * VECTORS))
#define MR  ((size_t)ROWS)

#ifdef __aarch64__
static void multiply_tile(size_t depth, const void *a, const void *b, float *c, size_t ldc,
                          bool add) {
  neon_tile_8x12(depth, a, b, c, ldc, add);
}

static void multiply_few_rows(size_t depth, const void *a, const void *b, float *c, size_t ldc,
                              bool add) {
  neon_tile_4x12(depth, a, b, c, ldc, add);
}
#else
#define AHEAD 24 /* prefetch distance in steps of k */

/* Adds a step of k to the sums of the first `rows` rows. */
static inline __attribute__((always_inline)) void multiply_step(const int rows, const float *a,
                                                                const float *b,
                                                                Lanes sum[ROWS][VECTORS],
                                                                Lanes right[VECTORS]) {
  /* Prefetch B: with few rows each slice of B is read only a few times and comes from L3 or
   * memory. */
  for (size_t j = 0; j < NR; j += 16) __builtin_prefetch(b + AHEAD * NR + j);
#pragma GCC unroll 4
  for (int j = 0; j < VECTORS; j++) right[j] = *(const Lanes *)(b + j * LANES);
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) sum[i][j] += right[j] * a[i];
  }
}

/* Computes the first `rows` rows of a tile; `rows` is a constant in each caller. */
static inline __attribute__((always_inline)) void multiply_rows(const int rows, size_t depth,
                                                                const float *a, const float *b,
                                                                float *c, size_t ldc,
                                                                bool add) {
  /* Declared outside the loops, because entering a scope is slow under the address sanitizer. */
  Lanes sum[ROWS][VECTORS] = {{{0}}}, right[VECTORS];
  /* Each of the first steps prefetches a row of C, which is in L3 or memory. All rows at once
   * would delay the loads of A. */
  const float *row = c;
  size_t first = depth < (size_t)rows ? depth : (size_t)rows, p = 0;
  for (; p < first; p++, a += MR, b += NR, row += ldc) {
    for (size_t j = 0; j < NR; j += 16) __builtin_prefetch(row + j, 1);
    multiply_step(rows, a, b, sum, right);
  }
  for (; p < depth; p++, a += MR, b += NR) multiply_step(rows, a, b, sum, right);
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) {
      Lanes *to = (Lanes *)(c + (size_t)i * ldc + j * LANES);
      if (add) sum[i][j] += *to;
      *to = sum[i][j];
    }
  }
}

static void multiply_tile(size_t depth, const void *a, const void *b, float *c, size_t ldc,
                          bool add) {
  multiply_rows(ROWS, depth, a, b, c, ldc, add);
}

static void multiply_few_rows(size_t depth, const void *a, const void *b, float *c, size_t ldc,
                              bool add) {
  multiply_rows(FEW, depth, a, b, c, ldc, add);
}
#endif

/* Transposes four lines by four steps of k into the packed slice. */
static inline void transpose_four(float *to, size_t wide, const float *from, size_t along) {
  Four a = *(const Four *)from, b = *(const Four *)(from + along);
  Four c = *(const Four *)(from + 2 * along), d = *(const Four *)(from + 3 * along);
  Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
       cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  *(Four *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
  *(Four *)(to + wide) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *(Four *)(to + 2 * wide) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
  *(Four *)(to + 3 * wide) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

#if LANES >= 8
typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));

/* Returns four steps of k of a line and of the line four lines below. */
static inline Eight load_two_lines(const float *from, size_t along) {
  Four upper = *(const Four *)from, lower = *(const Four *)(from + 4 * along);
  return __builtin_shufflevector(upper, lower, 0, 1, 2, 3, 4, 5, 6, 7);
}

/* Like transpose_four, for eight lines: the halves of the vectors are transposed alike. */
static inline void transpose_eight(float *to, size_t wide, const float *from, size_t along) {
  Eight a = load_two_lines(from, along), b = load_two_lines(from + along, along);
  Eight c = load_two_lines(from + 2 * along, along),
        d = load_two_lines(from + 3 * along, along);
  Eight ab = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13),
        cd = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
  *(Eight *)to = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13);
  *(Eight *)(to + wide) = __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
  ab = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  cd = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
  *(Eight *)(to + 2 * wide) = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13);
  *(Eight *)(to + 3 * wide) = __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
}
#define GROUP           8 /* lines that are transposed together */
#define transpose_group transpose_eight
#else
#define GROUP           4
#define transpose_group transpose_four
#endif

/* Transposes `lines` lines into a slice, GROUP or four lines at a time over all of k: lines that are
 * a multiple of 4096 bytes apart share a set of the L1 cache, which holds few of them. The last
 * group overlaps the one before, if their number is not a multiple of it. */
static inline __attribute__((always_inline)) void transpose_lines(float *out, const float *in,
                                                                  size_t along, size_t lines,
                                                                  const size_t wide,
                                                                  size_t depth) {
  size_t group = lines < GROUP ? 4 : GROUP, fours = lines < 4 ? 0 : depth / 4 * 4;
  for (size_t i = 0; i < lines && fours; i += group) {
    size_t at = i + group <= lines ? i : lines - group;
    for (size_t p = 0; p < fours; p += 4) {
      float *to = out + p * wide + at;
      const float *from = in + at * along + p;
      if (group == GROUP)
        transpose_group(to, wide, from, along);
      else
        transpose_four(to, wide, from, along);
    }
  }
  for (size_t i = 0; i < lines; i++) {
    for (size_t p = fours; p < depth; p++) out[p * wide + i] = in[i * along + p];
  }
}

#define STEPS \
  8 /* steps of k that are copied for all slices, while their lines are in the cache */

/* Copies complete slices whose lines are adjacent in memory; `deep`: elements between two steps
 * of k. */
static inline __attribute__((always_inline)) void copy_slices(float *out, const float *in,
                                                              size_t deep, size_t lines,
                                                              const size_t wide, size_t depth) {
  for (size_t p0 = 0; p0 < depth; p0 += STEPS) {
    size_t end = p0 + STEPS < depth ? p0 + STEPS : depth;
    for (size_t l = 0; l + wide <= lines; l += wide) {
      float *to = out + l * depth;
      for (size_t p = p0; p < end; p++)
        memcpy(to + p * wide, in + l + p * deep, wide * sizeof *out);
    }
  }
}

/* Packs slices of `wide` lines by `depth` steps of k, k-major. `along`: elements between two
 * lines in memory; `deep`: elements between two steps of k; one of them is 1. */
static inline __attribute__((always_inline)) void pack_slices(float *out, const float *in,
                                                              size_t along, size_t deep,
                                                              size_t lines, const size_t wide,
                                                              size_t depth) {
  if (along == 1) copy_slices(out, in, deep, lines, wide, depth);
  for (size_t l = 0; l < lines; l += wide) {
    size_t real = lines - l < wide ? lines - l : wide;
    const float *from = in + l * along;
    float *to = out + l * depth;
    if (along == 1 && real == wide) continue;
    if (along == 1) {
      for (size_t p = 0; p < depth; p++) {
        for (size_t i = 0; i < real; i++) to[p * wide + i] = from[p * deep + i];
      }
    } else {
      transpose_lines(to, from, along, real, wide, depth);
    }
    for (size_t i = real; i < wide; i++) {
      for (size_t p = 0; p < depth; p++) to[p * wide + i] = 0;
    }
  }
}

static void pack_a(void *out, const Gemm *g, size_t i0, size_t rows, size_t p0, size_t depth) {
  pack_slices(out, gemm_a_at(g, i0, p0), g->ta ? 1 : g->lda, g->ta ? g->lda : 1, rows, MR,
              depth);
}

static void pack_b(void *out, const Gemm *g, size_t j0, size_t cols, size_t p0, size_t depth) {
  pack_slices(out, gemm_b_at(g, p0, j0), g->tb ? g->ldb : 1, g->tb ? 1 : g->ldb, cols, NR,
              depth);
}

static void add_bias(float *c, size_t ldc, const float *bias, size_t rows, size_t cols) {
  for (size_t r = 0; r < rows; r++, c += ldc) {
    size_t x = 0;
    for (; x + LANES <= cols; x += LANES) *(Lanes *)(c + x) += *(const Lanes *)(bias + x);
    for (; x < cols; x++) c[x] += bias[x];
  }
}

const GemmKernel FAST(gemm_f32) = {.mr = MR,
                                   .nr = NR,
                                   .mc = MC,
                                   .kc = KC,
                                   .nc = 3072,
                                   .k_unit = 1,
                                   .element = 4,
                                   .pack_a = pack_a,
                                   .pack_b = pack_b,
                                   .tile = multiply_tile,
                                   .few_rows = FEW,
                                   .few = multiply_few_rows,
                                   .add_bias = add_bias};
