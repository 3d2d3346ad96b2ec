/* Philox 2x32, the counter-based random numbers of dropout (base/rng.h has the same function for
 * the host). The kernels use different layouts of counters and keys, so this header has one round,
 * the key schedule and the rotation, not the whole function. No dependencies. */
#ifndef BACKEND_CUDA_PHILOX_CUH
#define BACKEND_CUDA_PHILOX_CUH

#include <stdint.h>

/* Increment of the key from one round to the next. */
#define PHILOX_KEY_STEP 0x9E3779B9u

/* Applies one round to the counter c0, c1 with the key of the round. */
static __device__ __forceinline__ void philox_round(uint32_t &c0, uint32_t &c1, uint32_t key) {
  uint64_t p = (uint64_t)0xD256D193u * c0;
  c0 = (uint32_t)(p >> 32) ^ c1 ^ key;
  c1 = (uint32_t)p;
}

/* Rotates a word left by eight bits, for the words 1 and 3 of dropout_words(). */
static __device__ __forceinline__ uint32_t rotate_word(uint32_t word) {
  return __funnelshift_l(word, word, 8);
}

#endif
