/* CRC-32 in three implementations; the first call selects one. Depends on zlib. */
#include "base/crc.h"

#include <stdatomic.h>
#include <string.h>
#include <zlib.h>

typedef struct {
  const char *name;
  uint32_t (*add)(uint32_t crc, const uint8_t *p, size_t len);
} Method;

static uint32_t add_zlib(uint32_t crc, const uint8_t *p, size_t len) {
  return (uint32_t)crc32_z(crc, p, len);
}
static const Method zlib_method = {"zlib", add_zlib};

#if defined(__aarch64__)
#include <sys/auxv.h>

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

/* Updates the CRC with one CRC32X instruction: 8 bytes, in little-endian order. */
static inline uint32_t add_word(uint32_t crc, uint64_t word) {
  __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(crc) : "r"(word));
  return crc;
}

static uint32_t add_crc32x(uint32_t crc, const uint8_t *p, size_t len) {
  size_t words = len / 8;
  crc = ~crc;
  for (size_t i = 0; i < words; i++, p += 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    crc = add_word(crc, word);
  }
  return add_zlib(~crc, p, len % 8);
}
static const Method fast_method = {"crc32x", add_crc32x};

static int has_fast(void) {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

#elif defined(__x86_64__)
#include <immintrin.h>

#define FOLD __attribute__((target("pclmul,sse4.1")))

/* The CRC of a message is its remainder modulo the polynomial P. Folding replaces 128 bits by an
 * equivalent value further on: (high · x^64 + low) · x^n is congruent to
 * high · (x^(n+64) mod P) + low · (x^n mod P), two carry-less products of 64 bits. Four such
 * values are folded side by side over 64 bytes at a time, then into one. (V. Gopal et al., "Fast
 * CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009.)
 * Constants: x^(n ± 32) mod P, bit-reflected, for n of 512 and 128 bits. */
FOLD static inline __m128i fold(__m128i x, __m128i by, __m128i next) {
  __m128i low = _mm_clmulepi64_si128(x, by, 0x00);
  __m128i high = _mm_clmulepi64_si128(x, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

FOLD static inline __m128i load(const uint8_t *p) {
  return _mm_loadu_si128((const __m128i *)(const void *)p);
}

FOLD static uint32_t add_pclmulqdq(uint32_t crc, const uint8_t *p, size_t len) {
  if (len < 64) return add_zlib(crc, p, len);
  const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  __m128i x0 = _mm_xor_si128(load(p), _mm_cvtsi32_si128((int)~crc));
  __m128i x1 = load(p + 16);
  __m128i x2 = load(p + 32);
  __m128i x3 = load(p + 48);
  for (p += 64, len -= 64; len >= 64; p += 64, len -= 64) {
    x0 = fold(x0, by_512, load(p));
    x1 = fold(x1, by_512, load(p + 16));
    x2 = fold(x2, by_512, load(p + 32));
    x3 = fold(x3, by_512, load(p + 48));
  }
  x0 = fold(x0, by_128, x1);
  x0 = fold(x0, by_128, x2);
  x0 = fold(x0, by_128, x3);
  for (; len >= 16; p += 16, len -= 16) x0 = fold(x0, by_128, load(p));
  /* The 16-byte remainder has the same CRC as all bytes folded so far. zlib's crc32() inverts its
   * input and its result, hence the initial value 0xffffffff. */
  uint8_t rest[16];
  _mm_storeu_si128((__m128i *)(void *)rest, x0);
  return add_zlib(add_zlib(0xffffffffu, rest, sizeof rest), p, len);
}
static const Method fast_method = {"pclmulqdq", add_pclmulqdq};

static int has_fast(void) {
  return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

#else
#define fast_method zlib_method
static int has_fast(void) {
  return 0;
}
#endif

static const Method *get_method(void) {
  static _Atomic(const Method *) chosen;
  const Method *m = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (!m) {
    m = has_fast() ? &fast_method : &zlib_method;
    atomic_store_explicit(&chosen, m, memory_order_relaxed);
  }
  return m;
}

uint32_t crc_add(uint32_t crc, const void *bytes, size_t len) {
  return len ? get_method()->add(crc, bytes, len) : crc;
}

uint32_t crc_join(uint32_t first, uint32_t second, size_t len) {
  return (uint32_t)crc32_combine(first, second, (z_off_t)len);
}

const char *crc_method(void) {
  return get_method()->name;
}
