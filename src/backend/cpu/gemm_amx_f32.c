/* fp32 GEMM micro-kernel for x86 AMX, whose units multiply bf16. A float is the sum of three bf16:
 * x = x0 + x1 + x2, exactly. Of the nine products of parts, six are computed,
 *   x0 y0 + x0 y1 + x1 y0 + x1 y1 + x0 y2 + x2 y0,
 * and added in fp32. The others are together at most about 2^-24 of x y, like the rounding of x y to
 * a float.
 * The units add 32 steps of k before they round to the sum, so the result is usually nearer to the
 * exact one than that of fp32 multiply-adds; the six products take about half their time.
 * Differences from fp32 multiply-adds: bf16 units take denormal numbers as 0 and round denormal
 * results to 0, so parts, products and sums below 2^-126 are lost; an operand that is infinite, or
 * above 3.39e38, the largest bf16, gives NaN.
 * "Line" below means a row of A or a column of B. Depends on gemm_internal.h, amx.h. */
#include "backend/cpu/gemm_internal.h"

#if defined(__x86_64__) && defined(__linux__)

#include "backend/cpu/amx.h"

#define MR            (2 * SIDE)
#define NR            (2 * SIDE)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define PARTS         3
#define PAIR          (2 * STEP)     /* elements of a part: two AMX tiles of 16 lines */
#define BLOCK         (PARTS * PAIR) /* elements of 32 lines and 32 steps of k */

/* Tile registers 0 to 3 hold the sums, 4 and 5 a part of A, 6 and 7 a part of B. LOAD_A and LOAD_B
 * multiply these parts and then load another part; they load a register after the last
 * instruction that reads it, while others still run. */
#define LOAD_A(part)                                    \
  do {                                                  \
    _tile_dpbf16ps(0, 4, 6);                            \
    _tile_dpbf16ps(1, 4, 7);                            \
    _tile_loadd(4, a + (size_t)(part)*PAIR, 64);        \
    _tile_dpbf16ps(2, 5, 6);                            \
    _tile_dpbf16ps(3, 5, 7);                            \
    _tile_loadd(5, a + (size_t)(part)*PAIR + STEP, 64); \
  } while (0)
#define LOAD_B(part)                                    \
  do {                                                  \
    _tile_dpbf16ps(0, 4, 6);                            \
    _tile_dpbf16ps(2, 5, 6);                            \
    _tile_loadd(6, b + (size_t)(part)*PAIR, 64);        \
    _tile_dpbf16ps(1, 4, 7);                            \
    _tile_dpbf16ps(3, 5, 7);                            \
    _tile_loadd(7, b + (size_t)(part)*PAIR + STEP, 64); \
  } while (0)

/* Prefetches 4 of the 32 rows of a tile of C, beginning at row i; C is in L3 or in memory. */
TARGET ALWAYS_INLINE void prefetch_rows(const float *c, size_t ldc, size_t i) {
  if (i >= MR) return;
  for (size_t end = i + 4; i < end; i++) {
    __builtin_prefetch(c + i * ldc, 1);
    __builtin_prefetch(c + i * ldc + SIDE, 1);
  }
}

/* Computes sum (32, 32; rows of ld_sum) = slice of A · slice of B, and prefetches the tile of C. From
 * one product of parts to the next only A or only B changes. */
TARGET ALWAYS_INLINE void multiply_slices(size_t depth, const uint16_t *a, const uint16_t *b,
                                          float *sum, size_t ld_sum, const float *c,
                                          size_t ldc) {
  const int row = (int)(ld_sum * sizeof *sum);
  float *low = sum + SIDE * ld_sum;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (size_t p = 0; p < depth; p += DEPTH, a += BLOCK, b += BLOCK) {
    prefetch_rows(c, ldc, p / DEPTH * 4);
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b + 2 * PAIR, 64);
    _tile_loadd(7, b + 2 * PAIR + STEP, 64);
    _tile_loadd(5, a + STEP, 64);
    LOAD_B(1); /* after x0 y2 */
    LOAD_A(1); /* after x0 y1 */
    LOAD_B(0); /* after x1 y1 */
    LOAD_A(2); /* after x1 y0 */
    LOAD_A(0); /* after x2 y0 */
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sum, row);
  _tile_stored(1, sum + SIDE, row);
  _tile_stored(2, low, row);
  _tile_stored(3, low + SIDE, row);
}

/* Implements GemmKernel.tile. The sum of a block of k begins with 0 and is added to C at the end: with
 * six additions for each 32 steps of k, additions to the sum over all of k would round more coarsely. */
TARGET static void multiply_tile(size_t depth, const void *a, const void *b, float *c,
                                 size_t ldc, bool add) {
  float sum[MR * NR] __attribute__((aligned(64)));
  amx_configure_tiles();
  multiply_slices(depth, a, b, add ? sum : c, add ? NR : ldc, c, ldc);
  if (!add) return;
  for (size_t i = 0; i < MR; i++, c += ldc) {
    for (size_t j = 0; j < NR; j += SIDE) {
      __m512 old = _mm512_loadu_ps(c + j);
      _mm512_storeu_ps(c + j, _mm512_add_ps(old, _mm512_load_ps(sum + i * NR + j)));
    }
  }
}

/* Implements GemmKernel.add_bias. */
TARGET static void add_bias(float *c, size_t ldc, const float *bias, size_t rows, size_t cols) {
  for (size_t j = 0; j < cols; j += SIDE) {
    __mmask16 mask = amx_lane_mask(cols - j);
    __m512 add = _mm512_maskz_loadu_ps(mask, bias + j);
    for (float *row = c + j; row < c + rows * ldc; row += ldc)
      _mm512_mask_storeu_ps(row, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, row), add));
  }
}

/* Rounds to bf16, to nearest; halves away from 0. The result is a float. */
TARGET ALWAYS_INLINE __m512 round_to_bf16(__m512 x) {
  __m512i bits = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)));
}

/* Splits 16 floats into three bf16, as floats. */
TARGET ALWAYS_INLINE void split(__m512 part[PARTS], __m512 x) {
  part[0] = round_to_bf16(x);
  __m512 rest = _mm512_sub_ps(x, part[0]);
  part[1] = round_to_bf16(rest);
  part[2] = _mm512_sub_ps(rest, part[1]); /* has 8 significant bits: is a bf16 */
}

/* Splits two vectors; 32-bit lane i of row[part * 16] is the pair of their elements i. */
TARGET ALWAYS_INLINE void split_pair(__m512i *row, __m512 first, __m512 second) {
  enum {
    SELECT = 0xd8
  }; /* bits of the first operand where the third is 0, else of the second */
  const __m512i high = _mm512_set1_epi32((int)0xffff0000);
  __m512 x[PARTS], y[PARTS];
  split(x, first);
  split(y, second);
  for (size_t i = 0; i < PARTS; i++) {
    __m512i low = _mm512_srli_epi32(_mm512_castps_si512(x[i]), 16);
    row[i * SIDE] = _mm512_ternarylogic_epi32(low, _mm512_castps_si512(y[i]), high, SELECT);
  }
}

/* Loads n of 16 floats; the others are 0. */
TARGET ALWAYS_INLINE __m512 load_floats(const float *from, size_t n) {
  return _mm512_maskz_loadu_ps(amx_lane_mask(n), from);
}

/* How to read one operand. */
typedef struct {
  const float *from;
  size_t step;     /* elements between two lines; if not contiguous, between two steps of k */
  bool contiguous; /* the steps of k of a line are adjacent */
  bool transposes; /* the rows of a tile are lines and not pairs of k, or the reverse */
} Source;

/* Packs an AMX tile of each part: `lines` of 16 lines, `depth` of 32 steps of k. Pairs are steps i and
 * i + 16, in A and in B. */
TARGET ALWAYS_INLINE void pack_tiles(uint16_t *out, Source s, size_t lines, size_t depth) {
  __m512i row[PARTS][SIDE];
  size_t more = depth > SIDE ? depth - SIDE : 0;
  for (size_t i = 0; i < SIDE; i++) {
    const float *first = s.from + i * s.step;
    if (s.contiguous)
      split_pair(&row[0][i], load_floats(first, i < lines ? depth : 0),
                 load_floats(first + SIDE, i < lines ? more : 0));
    else
      split_pair(&row[0][i], load_floats(first, i < depth ? lines : 0),
                 load_floats(first + SIDE * s.step, i < more ? lines : 0));
  }
  for (size_t part = 0; part < PARTS; part++) {
    if (s.transposes) amx_transpose_words(row[part]);
    for (size_t i = 0; i < SIDE; i++)
      _mm512_storeu_si512(out + part * PAIR + i * DEPTH, row[part][i]);
  }
}

/* Packs 32 lines by 32 steps of k. Complete blocks have code of their own without masks. */
TARGET ALWAYS_INLINE void pack_block(uint16_t *out, Source s, size_t lines, size_t depth) {
  Source below = s;
  below.from += SIDE * (s.contiguous ? s.step : 1);
  if (lines >= 2 * SIDE && depth >= DEPTH) {
    pack_tiles(out, s, SIDE, DEPTH);
    pack_tiles(out + STEP, below, SIDE, DEPTH);
  } else {
    pack_tiles(out, s, lines, depth);
    pack_tiles(out + STEP, below, lines > SIDE ? lines - SIDE : 0, depth);
  }
}

/* Packs slices of 32 lines: for each 32 steps of k, two adjacent AMX tiles of each part. The inner loop
 * reads adjacent memory. */
TARGET ALWAYS_INLINE void pack_slices(uint16_t *out, Source s, size_t lines, size_t depth) {
  size_t blocks = (depth + DEPTH - 1) / DEPTH, slices = (lines + 2 * SIDE - 1) / (2 * SIDE);
  size_t line_step = s.contiguous ? s.step : 1, k_step = s.contiguous ? 1 : s.step;
  for (size_t i = 0; i < blocks * slices; i++) {
    size_t block = s.contiguous ? i % blocks : i / slices;
    size_t slice = s.contiguous ? i / blocks : i % slices;
    size_t line = slice * 2 * SIDE, p = block * DEPTH;
    Source at = s;
    at.from += line * line_step + p * k_step;
    pack_block(out + (slice * blocks + block) * BLOCK, at, lines - line, depth - p);
  }
}

TARGET static void pack_a(void *out, const Gemm *g, size_t i0, size_t rows, size_t p0,
                          size_t depth) {
  const float *from = gemm_a_at(g, i0, p0);
  if (g->ta)
    pack_slices(out, (Source){from, g->lda, .contiguous = false, .transposes = true}, rows,
                depth);
  else
    pack_slices(out, (Source){from, g->lda, .contiguous = true, .transposes = false}, rows,
                depth);
}

TARGET static void pack_b(void *out, const Gemm *g, size_t j0, size_t cols, size_t p0,
                          size_t depth) {
  const float *from = gemm_b_at(g, p0, j0);
  if (g->tb)
    pack_slices(out, (Source){from, g->ldb, .contiguous = true, .transposes = true}, cols,
                depth);
  else
    pack_slices(out, (Source){from, g->ldb, .contiguous = false, .transposes = false}, cols,
                depth);
}

const GemmKernel gemm_amx_f32 = {.mr = MR,
                                 .nr = NR,
                                 .mc = 256,
                                 .kc = 512,
                                 .nc = 2048,
                                 .k_unit = DEPTH,
                                 .element = PARTS * sizeof(uint16_t),
                                 .pack_a = pack_a,
                                 .pack_b = pack_b,
                                 .tile = multiply_tile,
                                 .add_bias = add_bias};

TARGET double gemm_amx_f32_peak(size_t rounds) {
  enum { TILES = 4, PRODUCTS = 6 };
  amx_configure_tiles();
  _tile_zero(4);
  _tile_zero(6);
  for (size_t i = 0; i < rounds; i++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 6);
    _tile_dpbf16ps(2, 4, 6);
    _tile_dpbf16ps(3, 4, 6);
  }
  return 2.0 * (double)(rounds * TILES * SIDE * SIDE * DEPTH) / PRODUCTS;
}
#else
const GemmKernel gemm_amx_f32 = {0};
double gemm_amx_f32_peak(size_t rounds) {
  (void)rounds;
  return 0;
}
#endif
