/* Parts that the AMX micro-kernels share. "Line" means a row of A or a column of B. Only for
 * x86-64. Depends on base. */
#ifndef BACKEND_CPU_AMX_H
#define BACKEND_CPU_AMX_H

#include <immintrin.h>
#include <stddef.h>

#define TARGET __attribute__((target("prfchw,amx-tile,amx-bf16,avx512f,avx512bw,avx512bf16")))
#define SIDE   ((size_t)16)   /* rows and columns of an AMX tile */
#define DEPTH  ((size_t)32)   /* steps of k per instruction: 64 bytes of bf16 */
#define STEP   (SIDE * DEPTH) /* elements of one AMX tile of A or B */

/* Configures the eight tile registers of this thread once: 16 rows of 64 bytes. */
void amx_configure_tiles(void);

/* Returns a mask with the lowest n of 16 bits set. */
static inline __mmask16 amx_lane_mask(size_t n) {
  return (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1);
}

/* Transposes 16 x 16 32-bit words in four rounds of shuffles. */
TARGET static inline void amx_transpose_words(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int half = 0; half < 16; half += 8) {
    for (int i = 0; i < 4; i++) {
      t[half + i] = _mm512_shuffle_i32x4(r[half + i], r[half + 4 + i], 0x88);
      t[half + 4 + i] = _mm512_shuffle_i32x4(r[half + i], r[half + 4 + i], 0xdd);
    }
  }
  for (int i = 0; i < 8; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

#endif
