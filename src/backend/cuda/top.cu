/* Top-k and log-sum-exp of each row of logits. Depends on device.cuh. */
#include <math.h>

#include "backend/cuda/device.cuh"

#define TOP_THREADS 1024
#define TOP_WARPS   (TOP_THREADS / 32)
#define TOP_ROOM    2048 /* maximum number of candidates that can be sorted */

/* Returns the "rank" of a logit, a sort key that increases with the value and, among equal
 * values, decreases with the id. NaN counts as -inf. The key is never 0. */
static __device__ __forceinline__ uint64_t rank_of(float x, size_t id) {
  /* adding 0 turns -0 into 0; NaN becomes -inf */
  uint32_t bits = __float_as_uint(x == x ? x + 0.0f : -INFINITY);
  bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (uint64_t)bits << 32 | (uint32_t) ~(uint32_t)id;
}

static __device__ __forceinline__ float value_of(uint64_t rank) {
  uint32_t bits = (uint32_t)(rank >> 32);
  return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

/* Returns the largest rank of a warp. */
static __device__ __forceinline__ uint64_t warp_best(uint64_t rank) {
#pragma unroll
  for (int step = 16; step; step /= 2) {
    uint64_t other = __shfl_xor_sync(0xffffffffu, rank, step);
    rank = other > rank ? other : rank;
  }
  return rank;
}

/* Calls f(value, column) for each element of this thread's part of a row. */
template <typename T, bool VECTOR, typename F>
static __device__ __forceinline__ void for_each_logit(const T *row, size_t vocab, F f) {
  if (VECTOR) {
    for (size_t c = threadIdx.x * (size_t)8; c < vocab; c += TOP_THREADS * 8) {
      float x[8];
      load8(x, row + c);
#pragma unroll
      for (int i = 0; i < 8; i++) f(x[i], c + i);
    }
  } else {
    for (size_t c = threadIdx.x; c < vocab; c += TOP_THREADS) f(to_float(row[c]), c);
  }
}

/* Bitonic sort in decreasing order; n is a power of two. */
static __device__ void sort_ranks(uint64_t *rank, unsigned n) {
  for (unsigned size = 2; size <= n; size *= 2) {
    for (unsigned step = size / 2; step; step /= 2) {
      __syncthreads();
      for (unsigned i = threadIdx.x; i < n / 2; i += TOP_THREADS) {
        unsigned a = i / step * 2 * step + i % step, b = a + step;
        bool down = (a & size) == 0;
        uint64_t x = rank[a], y = rank[b];
        if ((x < y) == down) {
          rank[a] = y;
          rank[b] = x;
        }
      }
    }
  }
  __syncthreads();
}

/* Returns a lower bound of the k largest ranks: if a row is divided into at least k parts, the
 * k-th largest of the parts' maxima. For k <= TOP_WARPS a part is the part of a warp, otherwise
 * of a thread. Uses rank[0 … TOP_THREADS - 1]. */
static __device__ uint64_t find_bound(uint64_t *rank, uint64_t best, unsigned k) {
  if (k > TOP_WARPS) {
    rank[threadIdx.x] = best;
    sort_ranks(rank, TOP_THREADS);
    uint64_t bound = rank[k - 1];
    __syncthreads();
    return bound;
  }
  unsigned lane = threadIdx.x % 32, better = 0;
  best = warp_best(best);
  if (lane == 0) rank[threadIdx.x / 32] = best;
  __syncthreads();
  /* All warps compute the same. Warps without logits have rank 0; if the k-th largest is one of
   * these, the bound is 0 and excludes nothing. */
  uint64_t mine = rank[lane];
  for (int w = 0; w < TOP_WARPS; w++) {
    uint64_t other = __shfl_sync(0xffffffffu, mine, w);
    better += other > mine || (other == mine && w < (int)lane);
  }
  unsigned which = __ballot_sync(0xffffffffu, better == k - 1);
  uint64_t bound = __shfl_sync(0xffffffffu, mine, __ffs((int)which) - 1);
  __syncthreads();
  return bound;
}

/* One block per row. Phase 1: computes maximum, log-sum-exp and the largest rank of each thread.
 * Phase 2: collects the ranks not below the bound, normally k and a few more. Phase 3: sorts them
 * or, if there are more than TOP_ROOM (adversarial order of logits), searches the next largest k
 * times. Phase 4: writes the first k. */
template <typename T, bool VECTOR>
static __global__ void __launch_bounds__(TOP_THREADS)
    find_top_k(float *value, int32_t *id, float *lse, const T *__restrict__ logits,
               size_t vocab, unsigned k) {
  __shared__ uint64_t rank[TOP_ROOM];
  __shared__ unsigned found;
  const T *row = logits + blockIdx.x * vocab;
  uint64_t best = 0;
  float most = -INFINITY, total = 0;
  for_each_logit<T, VECTOR>(row, vocab, [&](float x, size_t c) {
    uint64_t r = rank_of(x, c);
    most = fmaxf(most, x);
    best = r > best ? r : best;
  });
  if (threadIdx.x == 0) found = 0;
  most = block_max<TOP_THREADS>(most);
  for_each_logit<T, VECTOR>(row, vocab,
                            [&](float x, size_t) { total += exp2_fast((x - most) * LOG2_E); });
  total = block_sum<TOP_THREADS>(total);
  if (threadIdx.x == 0) lse[blockIdx.x] = most + logf(total);

  uint64_t bound = find_bound(rank, best, k);
  for_each_logit<T, VECTOR>(row, vocab, [&](float x, size_t c) {
    uint64_t r = rank_of(x, c);
    if (r < bound) return;
    /* The order does not matter, because the ranks are sorted later. */
    unsigned at = atomicAdd(&found, 1u);
    if (at < TOP_ROOM) rank[at] = r;
  });
  __syncthreads();
  if (found <= TOP_ROOM) {
    unsigned n = 1;
    while (n < found) n *= 2;
    for (unsigned i = found + threadIdx.x; i < n; i += TOP_THREADS) rank[i] = 0;
    sort_ranks(rank, n);
  } else {
    __shared__ uint64_t best_of[TOP_WARPS];
    uint64_t last = ~(uint64_t)0;
    for (unsigned i = 0; i < k; i++) {
      uint64_t next = 0;
      for_each_logit<T, VECTOR>(row, vocab, [&](float x, size_t c) {
        uint64_t r = rank_of(x, c);
        if (r < last && r > next) next = r;
      });
      next = warp_best(next);
      if (threadIdx.x % 32 == 0) best_of[threadIdx.x / 32] = next;
      __syncthreads();
      last = best_of[0];
      for (int w = 1; w < TOP_WARPS; w++) last = best_of[w] > last ? best_of[w] : last;
      __syncthreads();
      if (threadIdx.x == 0) rank[i] = last;
    }
    __syncthreads();
  }
  if (threadIdx.x < k) {
    uint64_t r = rank[threadIdx.x];
    value[blockIdx.x * (size_t)k + threadIdx.x] = value_of(r);
    id[blockIdx.x * (size_t)k + threadIdx.x] = (int32_t) ~(uint32_t)r;
  }
}

cudaError_t kernel_top_k(Type type, float *value, int32_t *id, float *lse, const void *logits,
                         size_t rows, size_t vocab, size_t k, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  if (k == 0 || k > KERNEL_MAX_TOP_K || k > vocab) return cudaErrorInvalidValue;
  bool vector = vocab % 8 == 0 && is_aligned(logits);
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    const T *x = (const T *)logits;
    if (vector)
      find_top_k<T, true>
          <<<(unsigned)rows, TOP_THREADS, 0, stream>>>(value, id, lse, x, vocab, (unsigned)k);
    else
      find_top_k<T, false>
          <<<(unsigned)rows, TOP_THREADS, 0, stream>>>(value, id, lse, x, vocab, (unsigned)k);
  });
}
