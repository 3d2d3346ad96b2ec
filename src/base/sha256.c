/* SHA-256 (FIPS 180-4). Uses libcrypto, which uses the SHA instructions of the processor. If the
 * program is built without libcrypto, the C code below computes the same result at a tenth of the
 * speed. Uses the older interface of libcrypto (SHA256_CTX), because its state is a plain struct
 * that can be copied, needs no allocation and cannot fail. Depends on libcrypto or the C
 * library. */
#include "base/sha256.h"

#include <string.h>

static void print_digits(const uint8_t sum[32], char hex[65]) {
  for (size_t i = 0; i < 64; i++)
    hex[i] = "0123456789abcdef"[sum[i / 2] >> (i % 2 ? 0 : 4) & 15];
  hex[64] = '\0';
}

#ifdef HAVE_CRYPTO

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

_Static_assert(sizeof(SHA256_CTX) <= sizeof(Sha256), "Sha256 has room for libcrypto's state");

static SHA256_CTX *get_context(Sha256 *sha) {
  return (SHA256_CTX *)(void *)sha->libcrypto;
}

void sha256_begin(Sha256 *sha) {
  SHA256_Init(get_context(sha));
}

void sha256_add(Sha256 *sha, const void *bytes, size_t len) {
  if (len) SHA256_Update(get_context(sha), bytes, len);
}

void sha256_end(Sha256 *sha, char hex[65]) {
  uint8_t sum[32];
  SHA256_Final(sum, get_context(sha));
  print_digits(sum, hex);
}

#else

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

static uint32_t rotate_right(uint32_t x, int n) {
  return x >> n | x << (32 - n);
}

static void hash_block(uint32_t state[8], const uint8_t *block) {
  uint32_t w[64];
  for (int i = 0; i < 16; i++) {
    const uint8_t *b = block + 4 * i;
    w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
  }
  for (int i = 16; i < 64; i++) {
    uint32_t x = w[i - 15], y = w[i - 2];
    w[i] = w[i - 16] + (rotate_right(x, 7) ^ rotate_right(x, 18) ^ x >> 3) + w[i - 7] +
           (rotate_right(y, 17) ^ rotate_right(y, 19) ^ y >> 10);
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (int i = 0; i < 64; i++) {
    uint32_t t1 = h + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) +
                  ((e & f) ^ (~e & g)) + K[i] + w[i];
    uint32_t t2 = (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) +
                  ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const uint32_t sum[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; i++) state[i] += sum[i];
}

void sha256_begin(Sha256 *sha) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(sha->state, first, sizeof first);
  sha->bytes = 0;
}

void sha256_add(Sha256 *sha, const void *bytes, size_t len) {
  const uint8_t *p = bytes;
  size_t held = sha->bytes % 64;
  if (len == 0) return;
  sha->bytes += len;
  if (held) {
    size_t take = len < 64 - held ? len : 64 - held;
    memcpy(sha->block + held, p, take);
    p += take;
    len -= take;
    if (held + take < 64) return;
    hash_block(sha->state, sha->block);
  }
  for (; len >= 64; p += 64, len -= 64) hash_block(sha->state, p);
  if (len) memcpy(sha->block, p, len);
}

void sha256_end(Sha256 *sha, char hex[65]) {
  uint64_t bits = sha->bytes * 8;
  uint8_t tail[72] = {0x80};
  size_t pad = (sha->bytes % 64 < 56 ? 56 : 120) - sha->bytes % 64;
  for (size_t i = 0; i < 8; i++) tail[pad + i] = (uint8_t)(bits >> (56 - 8 * i));
  sha256_add(sha, tail, pad + 8);
  uint8_t sum[32];
  for (size_t i = 0; i < 32; i++) sum[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
  print_digits(sum, hex);
}

#endif
