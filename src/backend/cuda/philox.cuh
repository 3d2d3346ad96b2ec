/* Philox 4x32, the counter-based random numbers of dropout (base/rng.h has the same function for
 * the host). The kernels use different layouts of counters and keys, so this header has one round
 * and the key schedule, not the whole function. No dependencies. */
#ifndef BACKEND_CUDA_PHILOX_CUH
#define BACKEND_CUDA_PHILOX_CUH

#include <stdint.h>

/* Increments of the two words of the key from one round to the next. */
#define PHILOX_KEY_STEP_0 0x9E3779B9u
#define PHILOX_KEY_STEP_1 0xBB67AE85u

/* Applies one round to the counter c0 … c3 with the key of the round. */
static __device__ __forceinline__ void philox_round(uint32_t &c0, uint32_t &c1, uint32_t &c2,
                                                    uint32_t &c3, uint32_t key0,
                                                    uint32_t key1) {
  uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
  c0 = (uint32_t)(p1 >> 32) ^ c1 ^ key0;
  c2 = (uint32_t)(p0 >> 32) ^ c3 ^ key1;
  c1 = (uint32_t)p1;
  c3 = (uint32_t)p0;
}

/* Computes the key of the next round. */
static __device__ __forceinline__ void philox_next_key(uint32_t &key0, uint32_t &key1) {
  key0 += PHILOX_KEY_STEP_0;
  key1 += PHILOX_KEY_STEP_1;
}

#endif
