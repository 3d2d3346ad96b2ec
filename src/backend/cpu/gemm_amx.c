/* bf16 GEMM micro-kernel for x86 AMX. Operands are rounded to bf16 while they are packed; sums
 * are fp32. A tile of C is 32 x 32: two by two AMX tiles of 16 x 16. "Line" below means a row of
 * A or a column of B. Depends on gemm_internal.h, amx.h. */
#include "backend/cpu/gemm_internal.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cpu/amx.h"

#define MR (2 * SIDE)
#define NR (2 * SIDE)

/* Reads CPUID leaf 7 (subleaf 0, edx: bit 22 amx-bf16, bit 24 amx-tile; subleaf 1, eax: bit 5
 * avx512-bf16), then requests the tile registers from Linux, which grants their save area only
 * on request. */
bool gemm_amx_usable(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  unsigned a = 0, b = 0, c = 0, d = 0, e = 0;
  if (!__builtin_cpu_supports("avx512bw") || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
    return false;
  if (!(d >> 22 & 1) || !(d >> 24 & 1) || !__get_cpuid_count(7, 1, &e, &b, &c, &d))
    return false;
  return (e >> 5 & 1) && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

TARGET void amx_configure_tiles(void) {
  static _Thread_local bool done;
  if (done) return;
  /* Static: gcc 12 believes that _tile_loadconfig reads only 8 bytes, and would not store the rest
   * of a variable on the stack. */
  static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } shape = {.palette = 1,
             .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
             .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
  _tile_loadconfig(&shape);
  done = true;
}

/* Implements GemmKernel.tile. Tile registers 0 to 3 hold the sums, 4 and 5 A, 6 and 7 B. */
TARGET static void multiply_tile(size_t depth, const void *pa, const void *pb, float *c,
                                 size_t ldc, bool add) {
  const uint16_t *a = pa, *b = pb;
  const int row = (int)(ldc * sizeof *c);
  float *low = c + SIDE * ldc;
  amx_configure_tiles();
  if (add) {
    _tile_loadd(0, c, row);
    _tile_loadd(1, c + SIDE, row);
    _tile_loadd(2, low, row);
    _tile_loadd(3, low + SIDE, row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (size_t p = 0; p < depth; p += DEPTH, a += 2 * STEP, b += 2 * STEP) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_loadd(5, a + STEP, 64);
    _tile_loadd(7, b + STEP, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, row);
  _tile_stored(1, c + SIDE, row);
  _tile_stored(2, low, row);
  _tile_stored(3, low + SIDE, row);
}

/* Rounds n <= 32 consecutive floats of one line to bf16: 32-bit lane k is the pair (2k, 2k +
 * 1). */
TARGET static __m512i round_line(const float *from, size_t n) {
  __m512 low = _mm512_maskz_loadu_ps(amx_lane_mask(n), from);
  __m512 high = _mm512_maskz_loadu_ps(amx_lane_mask(n > 16 ? n - 16 : 0), from + 16);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* Rounds n <= 16 floats of two consecutive steps of k to bf16 (`lower` NULL: zeros): 32-bit lane
 * i is the pair of line i. */
TARGET static __m512i round_pair(const float *upper, const float *lower, size_t n) {
  static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                     21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                     11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  __m512 first = _mm512_maskz_loadu_ps(amx_lane_mask(n), upper);
  __m512 second = lower ? _mm512_maskz_loadu_ps(amx_lane_mask(n), lower) : _mm512_setzero_ps();
  return _mm512_permutexvar_epi16(_mm512_loadu_si512(order),
                                  (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

/* Packs one AMX tile: 16 lines by 32 steps of k. A has one tile row per line, B one per pair of
 * k. */
TARGET static void pack_tile(uint16_t *out, const float *from, size_t step,
                             bool line_is_contiguous, size_t lines, size_t depth,
                             bool rows_are_lines) {
  __m512i word[16];
  if (line_is_contiguous) {
    for (size_t i = 0; i < SIDE; i++)
      word[i] = i < lines ? round_line(from + i * step, depth) : _mm512_setzero_si512();
  } else {
    for (size_t i = 0; i < SIDE; i++) {
      const float *upper = from + 2 * i * step;
      if (2 * i >= depth)
        word[i] = _mm512_setzero_si512();
      else
        word[i] = round_pair(upper, 2 * i + 1 < depth ? upper + step : NULL, lines);
    }
  }
  if (line_is_contiguous != rows_are_lines) amx_transpose_words(word);
  for (size_t i = 0; i < SIDE; i++) _mm512_storeu_si512(out + i * DEPTH, word[i]);
}

/* Packs slices of 32 lines: two adjacent AMX tiles for each 32 steps of k. */
TARGET static void pack_slices(uint16_t *out, const float *in, size_t step, bool contiguous,
                               size_t lines, size_t depth, bool is_a) {
  for (size_t l = 0; l < lines; l += 2 * SIDE) {
    for (size_t p = 0; p < depth; p += DEPTH) {
      for (size_t half = 0; half < 2; half++, out += STEP) {
        size_t first = l + half * SIDE;
        size_t real = lines > first ? lines - first : 0;
        const float *from = contiguous ? in + first * step + p : in + p * step + first;
        if (real == 0)
          memset(out, 0, STEP * sizeof *out);
        else
          pack_tile(out, from, step, contiguous, real < SIDE ? real : SIDE, depth - p, is_a);
      }
    }
  }
}

static void pack_a(void *out, const Gemm *g, size_t i0, size_t rows, size_t p0, size_t depth) {
  pack_slices(out, gemm_a_at(g, i0, p0), g->lda, !g->ta, rows, depth, /*is_a=*/true);
}

static void pack_b(void *out, const Gemm *g, size_t j0, size_t cols, size_t p0, size_t depth) {
  pack_slices(out, gemm_b_at(g, p0, j0), g->ldb, g->tb, cols, depth, /*is_a=*/false);
}

const GemmKernel gemm_amx = {.mr = MR,
                             .nr = NR,
                             .mc = 32 * 16,
                             .kc = 1024,
                             .nc = 4096,
                             .k_unit = DEPTH,
                             .element = 2,
                             .pack_a = pack_a,
                             .pack_b = pack_b,
                             .tile = multiply_tile};
#else
bool gemm_amx_usable(void) {
  return false;
}
const GemmKernel gemm_amx = {0};
#endif
