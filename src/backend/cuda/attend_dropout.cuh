/* Computes which attention probabilities dropout keeps, in the layouts of the tensor-core
 * kernels:
 *   keep_tile   one bit per key, in the lane of its query    attend_fast.cu
 *   keep_fours  four neighbouring keys per lane              attend_group.cu
 *   keep_masks  the layout of an mma's left operand          attend_group_backward.cu
 * All give the bits of backend/dropout.h: probability (query, head, key) is element (query *
 * heads + head) * MOST_KEYS + key of the site. One Philox call decides eight neighbouring keys
 * of a query, so lanes exchange the results that they computed for each other. Lane (g, t)
 * means g = lane / 4, t = lane % 4. Depends on philox.cuh, mma.cuh, backend/dropout.h. */
#ifndef BACKEND_CUDA_ATTEND_DROPOUT_CUH
#define BACKEND_CUDA_ATTEND_DROPOUT_CUH

#include "backend/cuda/mma.cuh"
#include "backend/cuda/philox.cuh"
#include "backend/dropout.h"

#define ROUND_KEYS_BYTES ((1 + DROPOUT_ROUNDS) * 4) /* shared memory for put_round_keys */

#if HAS_MMA
/* Returns which of the 16 keys beginning at key0 are kept for query query0 + lane % 16: bit i
 * is key key0 + i. Each lane calls Philox for eight of them. */
static __device__ __forceinline__ uint32_t keep_tile(const Attend &a, size_t query0, int head,
                                                     int key0, int lane) {
  uint64_t probability = ((uint64_t)(query0 + lane % 16) * a.heads + head) * MOST_KEYS + key0;
  uint32_t keep = keep8(a.drop, probability / 8 + lane / 16) << (lane / 16 * 8);
  return keep | __shfl_xor_sync(0xffffffffu, keep, 16);
}

/* Compares both 16-bit halves of a word with the threshold at once, in two steps.
 * compare_low_bits compares the lower 15 bits: bit 15 of each half of the result is set if they
 * are at least those of the threshold. The subtraction cannot borrow across halves. Then the
 * majority of three bits decides whether the half is at least the threshold: that result, bit
 * 15 of the half itself, and whether bit 15 of the threshold is 0.
 * low_bits: the lower 15 bits of the threshold, in both halves. */
static __device__ __forceinline__ uint32_t compare_low_bits(uint32_t word, uint32_t low_bits) {
  return (word | 0x80008000u) - low_bits;
}
static __device__ __forceinline__ uint32_t majority(uint32_t a, uint32_t b, uint32_t c) {
  return (a & b) | (a & c) | (b & c);
}

/* ---- four neighbouring keys per lane ---- */

struct Keep {
  uint64_t key;        /* dropout key */
  uint32_t site;       /* dropout site */
  uint32_t low_bits;   /* lower 15 bits of the threshold, see compare_low_bits */
  uint32_t high_clear; /* all ones if bit 15 of the threshold is 0, otherwise 0 */
};

/* Initialize a Keep with the dropout key, which is at the address `key` of shared memory or,
 * without `key`, read from global memory. */
static __device__ __forceinline__ Keep keep_with(const Drop &drop, uint64_t key) {
  Keep keep;
  keep.key = key;
  keep.site = drop.site;
  keep.low_bits = pick_bytes(drop.threshold & 0x7fff, 0, 0x1010);
  keep.high_clear = drop.threshold & 0x8000 ? 0 : 0xffffffffu;
  return keep;
}

static __device__ __forceinline__ Keep keep_of(const Drop &drop, uint32_t key) {
  return keep_with(drop, get4(key) | (uint64_t)get4(key + 4) << 32);
}
static __device__ __forceinline__ Keep keep_of(const Drop &drop) {
  return keep_with(drop, __ldg(drop.key));
}

/* Decides TILES tiles of 16 keys for 16 queries. Lane (g, t) receives keys 4t … 4t + 3 of each
 * tile, bits[][0] for query g and bits[][1] for query g + 8: the highest bit of byte i is key
 * 4t + i. The lane calls Philox for keys 8 (t / 2) … of query g (t even) or g + 8 (t odd);
 * `group` is the counter of that call for the first tile. All tiles are processed round by
 * round together, which needs few registers. */
template <int TILES>
static __device__ __forceinline__ void keep_fours(uint32_t (&bits)[TILES][2], const Keep &keep,
                                                  uint64_t group, bool odd) {
  uint32_t c[TILES][4], round_key = (uint32_t)keep.key;
  /* Without this barrier the compiler keeps the keys of all rounds in registers for the whole
   * kernel. */
  asm volatile("" : "+r"(round_key));
#pragma unroll
  for (int j = 0; j < TILES; j++) {
    /* The counters of a query never carry into the upper half of the group. */
    c[j][0] = (uint32_t)group + 2 * (uint32_t)j;
    c[j][2] = dropout_counter(keep.key, keep.site, (uint32_t)(group >> 32));
  }
#pragma unroll
  for (int round = 0; round < DROPOUT_ROUNDS; round++) {
#pragma unroll
    for (int j = 0; j < TILES; j++) philox_round(c[j][0], c[j][2], round_key);
    round_key += PHILOX_KEY_STEP;
  }
#pragma unroll
  for (int j = 0; j < TILES; j++) {
    c[j][1] = rotate_word(c[j][0]);
    c[j][3] = rotate_word(c[j][2]);
#pragma unroll
    for (int i = 0; i < 4; i++)
      c[j][i] = majority(c[j][i], compare_low_bits(c[j][i], keep.low_bits), keep.high_clear);
    uint32_t first = pick_bytes(c[j][0], c[j][1], 0x7531);
    uint32_t second = pick_bytes(c[j][2], c[j][3], 0x7531);
    uint32_t mine = odd ? second : first;
    uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
    bits[j][0] = odd ? other : mine;
    bits[j][1] = odd ? mine : other;
  }
}

/* Zeroes the dropped elements of two packed probabilities, of keys 4t + 2N and 4t + 2N + 1. */
template <int N>
static __device__ __forceinline__ uint32_t kept(uint32_t pair, uint32_t bits) {
  return pair & pick_bytes(bits, bits, N ? 0xbbaa : 0x9988);
}

/* ---- the left operand of an mma ---- */

/* Writes what keep_masks reads to shared memory: the second word of the counter, without the
 * group, and the keys of Philox's rounds. The caller must synchronize the block before
 * keep_masks. */
static __device__ __forceinline__ void put_round_keys(uint32_t *to, const Drop &drop) {
  uint32_t i = threadIdx.x;
  if (drop.threshold && i <= DROPOUT_ROUNDS) {
    uint64_t key = __ldg(drop.key);
    to[i] =
        i == 0 ? dropout_counter(key, drop.site, 0) : (uint32_t)key + (i - 1) * PHILOX_KEY_STEP;
  }
}

/* Decides a tile of 16 queries and 16 keys. mask[2n + r] belongs to query g + 8r and keys 8n +
 * 2t, 8n + 2t + 1: one half word each, all ones or zero. Lane t of four calls Philox for r = t
 * % 2, n = t / 2; c0 and group_high are the halves of the group. Word t of a call contains the
 * bits that lane t needs, so the four lanes transpose their words. COMPUTES_KEYS: computes the
 * round keys instead of reading what put_round_keys has written. */
template <bool COMPUTES_KEYS>
static __device__ __forceinline__ void keep_masks(uint32_t (&mask)[4], const Drop &drop,
                                                  uint32_t low_bits, uint32_t high_clear,
                                                  const uint4 *round_keys, uint32_t c0,
                                                  uint32_t group_high, int t) {
  uint32_t c1;
  if (COMPUTES_KEYS) {
    uint64_t key = __ldg(drop.key);
    uint32_t round_key = (uint32_t)key;
    c1 = dropout_counter(key, drop.site, group_high);
    /* As in keep_fours, keeps the round keys out of registers. */
    asm volatile("" : "+r"(round_key));
#pragma unroll
    for (int round = 0; round < DROPOUT_ROUNDS; round++) {
      philox_round(c0, c1, round_key);
      round_key += PHILOX_KEY_STEP;
    }
  } else {
    static_assert(DROPOUT_ROUNDS == 7, "two loads read the counter and the keys of 7 rounds");
    uint4 x = round_keys[0], y = round_keys[1];
    c1 = x.x ^ dropout_counter(0, 0, group_high);
    philox_round(c0, c1, x.y);
    philox_round(c0, c1, x.z);
    philox_round(c0, c1, x.w);
    philox_round(c0, c1, y.x);
    philox_round(c0, c1, y.y);
    philox_round(c0, c1, y.z);
    philox_round(c0, c1, y.w);
  }
  uint32_t w[4] = {c0, rotate_word(c0), c1, rotate_word(c1)};
#pragma unroll
  for (int i = 0; i < 4; i++)
    w[i] = majority(compare_low_bits(w[i], low_bits), w[i], high_clear);
  /* Keeps the two bytes of each word with a result, then transposes in two exchanges. */
  uint32_t low = pick_bytes(w[0], w[1], 0x7531), high = pick_bytes(w[2], w[3], 0x7531);
  uint32_t mine = t & 2 ? high : low, across = t & 2 ? low : high;
  across = __shfl_xor_sync(0xffffffffu, across, 2);
  uint32_t turn = t & 1 ? 0x7632 : 0x5410;
  uint32_t kept = pick_bytes(mine, across, turn);
  uint32_t sent = pick_bytes(mine, across, turn ^ 0x2222u);
  sent = __shfl_xor_sync(0xffffffffu, sent, 1);
  /* `kept` contains the calls of lanes t and t ^ 2, `sent` those of lanes t ^ 1 and t ^ 3. */
  uint32_t which = 0x9988u ^ (t & 1 ? 0x4444u : 0) ^ (t & 2 ? 0x2222u : 0);
#pragma unroll
  for (uint32_t c = 0; c < 4; c++)
    mask[c] = pick_bytes(kept, sent, which ^ (c & 1 ? 0x4444u : 0) ^ (c & 2 ? 0x2222u : 0));
}
#endif

#endif
