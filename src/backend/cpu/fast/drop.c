/* Philox for sixteen counters at once. Relies on fast.h, dropout.h. */
#include <string.h>

#include "backend/cpu/fast/fast.h"
#include "backend/dropout.h"

#define WIDE 16 /* counters; each serves 8 elements */

/* word[lane][4]: as halves of 16 bits, the elements in order. */
static void philox(uint32_t word[WIDE][4], Dropout drop, uint64_t counter) {
  uint32_t c0[WIDE], c1[WIDE], c2[WIDE], c3[WIDE];
  uint32_t k0 = (uint32_t)drop.key, k1 = (uint32_t)(drop.key >> 32);
  for (uint32_t i = 0; i < WIDE; i++) {
    uint64_t c = counter + i;
    c0[i] = (uint32_t)c, c1[i] = (uint32_t)(c >> 32), c2[i] = drop.site, c3[i] = 0;
  }
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < WIDE; i++) {
      uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
      c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
      c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
      c1[i] = (uint32_t)p1;
      c3[i] = (uint32_t)p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int i = 0; i < WIDE; i++)
    word[i][0] = c0[i], word[i][1] = c1[i], word[i][2] = c2[i], word[i][3] = c3[i];
}

void FAST(fast_drop)(float *factor, Dropout drop, uint64_t first, size_t n) {
  if (drop.rate == 0) {
    for (size_t i = 0; i < n; i++) factor[i] = 1;
    return;
  }
  uint32_t threshold = dropout_threshold(drop.rate);
  float scale = dropout_scale(drop.rate);
  union {
    uint32_t word[WIDE][4];
    uint16_t half[8 * WIDE];
  } bits;
  while (n) {
    philox(bits.word, drop, first / 8);
    size_t skip = (size_t)(first % 8), take = 8 * WIDE - skip < n ? 8 * WIDE - skip : n;
    for (size_t i = 0; i < take; i++) factor[i] = bits.half[skip + i] < threshold ? 0 : scale;
    factor += take;
    first += take;
    n -= take;
  }
}
