/* Dropout factors: Philox 2x32-7 for many counters at once. A vector holds one 32-bit word of
 * WIDE groups. 32 x 32 -> 64 bit products are computed for the even and then for the odd lanes,
 * as SIMD instructions do; compilers do not generate this form. Depends on fast.h, dropout.h. */
#include <string.h>

#include "backend/cpu/fast/fast.h"
#include "backend/dropout.h"

#if defined __AVX512F__
#include <immintrin.h>
#define WIDE 16 /* counters per vector; each counter serves 8 elements */
typedef __m512i Words;
static inline void multiply_words(Words *high, Words *low, Words x, uint32_t by) {
  Words m = _mm512_set1_epi32((int)by), even = _mm512_mul_epu32(x, m);
  Words odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), m);
  *high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
  *low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}
#elif defined __AVX2__
#include <immintrin.h>
#define WIDE 8
typedef __m256i Words;
static inline void multiply_words(Words *high, Words *low, Words x, uint32_t by) {
  Words m = _mm256_set1_epi32((int)by), even = _mm256_mul_epu32(x, m);
  Words odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), m);
  *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
#elif defined __SSE2__
#include <immintrin.h>
#define WIDE 4
typedef __m128i Words;
static inline void multiply_words(Words *high, Words *low, Words x, uint32_t by) {
  Words m = _mm_set1_epi32((int)by), upper = _mm_set_epi32(-1, 0, -1, 0);
  Words even = _mm_mul_epu32(x, m), odd = _mm_mul_epu32(_mm_srli_epi64(x, 32), m);
  *high = _mm_or_si128(_mm_srli_epi64(even, 32), _mm_and_si128(odd, upper));
  *low = _mm_or_si128(_mm_andnot_si128(upper, even), _mm_slli_epi64(odd, 32));
}
#elif defined __aarch64__
#include <arm_neon.h>
#define WIDE 4
typedef uint32x4_t Words;
static inline void multiply_words(Words *high, Words *low, Words x, uint32_t by) {
  Words m = vdupq_n_u32(by);
  Words first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(x), vget_low_u32(m)));
  Words second = vreinterpretq_u32_u64(vmull_high_u32(x, m));
  *high = vuzp2q_u32(first, second);
  *low = vuzp1q_u32(first, second);
}
#else
#define WIDE 4
typedef uint32_t Words __attribute__((vector_size(16)));
static inline void multiply_words(Words *high, Words *low, Words x, uint32_t by) {
  for (int i = 0; i < WIDE; i++) {
    uint64_t p = (uint64_t)x[i] * by;
    (*high)[i] = (uint32_t)(p >> 32);
    (*low)[i] = (uint32_t)p;
  }
}
#endif

typedef uint32_t Row __attribute__((vector_size(4 * WIDE), may_alias));

/* Computes the four words of dropout_words() for sets * WIDE groups; `sets` is a constant in each
 * caller. Each Philox round depends on the previous one, so computing two sets at once hides part
 * of the latency. */
static inline __attribute__((always_inline)) void compute_philox(const int sets, Row c[][4],
                                                                 Dropout drop, uint64_t group) {
  uint32_t key = (uint32_t)*drop.key;
  for (int s = 0; s < sets; s++) {
    uint32_t low[WIDE], high[WIDE];
    for (uint32_t i = 0; i < WIDE; i++) {
      uint64_t at = group + (uint64_t)s * WIDE + i;
      low[i] = (uint32_t)at;
      high[i] = dropout_counter(*drop.key, drop.site, (uint32_t)(at >> 32));
    }
    memcpy(&c[s][0], low, sizeof low);
    memcpy(&c[s][2], high, sizeof high);
  }
  for (int round = 0; round < DROPOUT_ROUNDS; round++) {
    for (int s = 0; s < sets; s++) {
      Words high, low;
      multiply_words(&high, &low, (Words)c[s][0], 0xD256D193u);
      c[s][0] = (Row)high ^ c[s][2] ^ key;
      c[s][2] = (Row)low;
    }
    key += 0x9E3779B9u;
  }
  for (int s = 0; s < sets; s++) {
    c[s][1] = c[s][0] << 8 | c[s][0] >> 24;
    c[s][3] = c[s][2] << 8 | c[s][2] >> 24;
  }
}

/* Writes the dropout factors of 8 * WIDE elements: lane i of the four words contains 16 random
 * bits for each of the elements 8 i … 8 i + 7. */
static inline void write_factors(float *factor, const Row c[4], uint32_t threshold,
                                 float scale) {
#if defined __AVX512BW__ && defined __BMI2__
  uint64_t keep[2] = {0}; /* one bit for each element, in order */
  for (int j = 0; j < 4; j++) {
    uint32_t k = _mm512_cmpge_epu16_mask((Words)c[j], _mm512_set1_epi16((short)threshold));
    keep[0] |= _pdep_u64(k & 0xffff, (uint64_t)0x0303030303030303 << 2 * j);
    keep[1] |= _pdep_u64(k >> 16, (uint64_t)0x0303030303030303 << 2 * j);
  }
  for (int i = 0; i < 8; i++) {
    __mmask16 k = (__mmask16)(keep[i / 4] >> i % 4 * 16);
    _mm512_storeu_ps(factor + 16 * i, _mm512_maskz_mov_ps(k, _mm512_set1_ps(scale)));
  }
#elif defined __aarch64__
  uint16x8_t least = vdupq_n_u16((uint16_t)threshold);
  uint32x4_t kept = vreinterpretq_u32_f32(vdupq_n_f32(scale));
  Words a = vzip1q_u32((Words)c[0], (Words)c[2]), b = vzip1q_u32((Words)c[1], (Words)c[3]);
  Words e = vzip2q_u32((Words)c[0], (Words)c[2]), f = vzip2q_u32((Words)c[1], (Words)c[3]);
  Words of[4] = {vzip1q_u32(a, b), vzip2q_u32(a, b), vzip1q_u32(e, f), vzip2q_u32(e, f)};
  for (int i = 0; i < 4; i++) { /* i: the counter whose four words are converted */
    int16x8_t keep = vreinterpretq_s16_u16(vcgeq_u16(vreinterpretq_u16_u32(of[i]), least));
    Words low = vandq_u32(vreinterpretq_u32_s32(vmovl_s16(vget_low_s16(keep))), kept);
    Words high = vandq_u32(vreinterpretq_u32_s32(vmovl_high_s16(keep)), kept);
    vst1q_f32(factor + 8 * i, vreinterpretq_f32_u32(low));
    vst1q_f32(factor + 8 * i + 4, vreinterpretq_f32_u32(high));
  }
#else
  uint32_t word[WIDE][4];
  uint16_t half[8 * WIDE];
  for (int i = 0; i < WIDE; i++)
    for (int j = 0; j < 4; j++) word[i][j] = c[j][i];
  memcpy(half, word, sizeof half);
  for (int i = 0; i < 8 * WIDE; i++) factor[i] = half[i] < threshold ? 0 : scale;
#endif
}

static void fill_factors(float *factor, Dropout drop, uint64_t group, uint32_t threshold,
                         float scale) {
  Row c[1][4];
  compute_philox(1, c, drop, group);
  write_factors(factor, c[0], threshold, scale);
}

/* Writes the dropout factors of two sets of WIDE groups, which are 16 * WIDE elements. */
static void fill_factors_twice(float *factor, Dropout drop, uint64_t group, uint32_t threshold,
                               float scale) {
  Row c[2][4];
  compute_philox(2, c, drop, group);
  write_factors(factor, c[0], threshold, scale);
  write_factors(factor + 8 * WIDE, c[1], threshold, scale);
}

void FAST(fast_drop)(float *factor, Dropout drop, uint64_t first, size_t n) {
  if (drop.rate == 0) {
    for (size_t i = 0; i < n; i++) factor[i] = 1;
    return;
  }
  uint32_t threshold = dropout_threshold(drop.rate);
  float scale = dropout_scale(drop.rate), part[8 * WIDE];
  while (n) {
    size_t skip = (size_t)(first % 8), take = 8 * WIDE - skip < n ? 8 * WIDE - skip : n;
    if (skip == 0 && n >= 16 * WIDE) {
      take = 16 * WIDE;
      fill_factors_twice(factor, drop, first / 8, threshold, scale);
    } else if (take == 8 * WIDE) {
      fill_factors(factor, drop, first / 8, threshold, scale);
    } else {
      fill_factors(part, drop, first / 8, threshold, scale);
      memcpy(factor, part + skip, take * sizeof *factor);
    }
    factor += take;
    first += take;
    n -= take;
  }
}
