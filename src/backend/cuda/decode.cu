/* For decoding: rows of the caches, and the best words of each row of logits.
 * Relies on device.cuh. */
#include <math.h>

#include "backend/cuda/device.cuh"

/* ---- caches, in units of 16 bytes where all sizes allow it ---- */

template <typename U>
static __global__ void __launch_bounds__(128)
    cache_put(U *cache, const U *src, const int32_t *slot, size_t row, size_t src_ld,
              size_t slot_ld, size_t at) {
  U *to = cache + (size_t)slot[blockIdx.x] * slot_ld + at;
  const U *from = src + blockIdx.x * src_ld;
  for (size_t i = blockIdx.y * (size_t)128 + threadIdx.x; i < row; i += gridDim.y * 128)
    to[i] = from[i];
}

template <typename U>
static __global__ void __launch_bounds__(128)
    cache_copy(U *cache, const int32_t *to_, const int32_t *from_, size_t count, size_t slot_ld,
               size_t cache_ld) {
  U *to = cache + blockIdx.z * cache_ld + (size_t)to_[blockIdx.x] * slot_ld;
  const U *from = cache + blockIdx.z * cache_ld + (size_t)from_[blockIdx.x] * slot_ld;
  for (size_t i = blockIdx.y * (size_t)128 + threadIdx.x; i < count; i += gridDim.y * 128)
    to[i] = from[i];
}

static unsigned columns_of(size_t n) {
  unsigned blocks = blocks_for(n, 128 * 4);
  return blocks < 1024 ? blocks : 1024;
}

cudaError_t kernel_cache_put(Type type, void *cache, const void *src, const int32_t *slot,
                             size_t n, size_t row, size_t src_ld, size_t slot_ld, size_t at,
                             cudaStream_t stream) {
  if (n == 0 || row == 0) return cudaSuccess;
  size_t size = type_size(type), wide = 16 / size;
  if ((row | src_ld | slot_ld | at) % wide == 0 && is_aligned(cache) && is_aligned(src)) {
    row /= wide, src_ld /= wide, slot_ld /= wide, at /= wide;
    cache_put<<<dim3((unsigned)n, columns_of(row)), 128, 0, stream>>>(
        (uint4 *)cache, (const uint4 *)src, slot, row, src_ld, slot_ld, at);
  } else if (size == 4) {
    cache_put<<<dim3((unsigned)n, columns_of(row)), 128, 0, stream>>>(
        (uint32_t *)cache, (const uint32_t *)src, slot, row, src_ld, slot_ld, at);
  } else {
    cache_put<<<dim3((unsigned)n, columns_of(row)), 128, 0, stream>>>(
        (uint16_t *)cache, (const uint16_t *)src, slot, row, src_ld, slot_ld, at);
  }
  return cudaGetLastError();
}

cudaError_t kernel_cache_copy(Type type, void *cache, const int32_t *to, const int32_t *from,
                              size_t n, size_t count, size_t slot_ld, size_t caches,
                              size_t cache_ld, cudaStream_t stream) {
  if (n == 0 || count == 0 || caches == 0) return cudaSuccess;
  size_t size = type_size(type), wide = 16 / size;
  if ((count | slot_ld | cache_ld) % wide == 0 && is_aligned(cache)) {
    count /= wide, slot_ld /= wide, cache_ld /= wide;
    cache_copy<<<dim3((unsigned)n, columns_of(count), (unsigned)caches), 128, 0, stream>>>(
        (uint4 *)cache, to, from, count, slot_ld, cache_ld);
  } else if (size == 4) {
    cache_copy<<<dim3((unsigned)n, columns_of(count), (unsigned)caches), 128, 0, stream>>>(
        (uint32_t *)cache, to, from, count, slot_ld, cache_ld);
  } else {
    cache_copy<<<dim3((unsigned)n, columns_of(count), (unsigned)caches), 128, 0, stream>>>(
        (uint16_t *)cache, to, from, count, slot_ld, cache_ld);
  }
  return cudaGetLastError();
}

/* ---- the k best ---- */

#define TOP_THREADS 1024
#define TOP_ROOM    2048

/* A number that grows with the value and, among equals, falls with the id. */
static __device__ __forceinline__ uint64_t rank_of(float x, size_t id) {
  uint32_t bits = __float_as_uint(x + 0.0f); /* -0 is 0 */
  bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (uint64_t)bits << 32 | (uint32_t) ~(uint32_t)id;
}

static __device__ __forceinline__ float value_of(uint64_t rank) {
  uint32_t bits = (uint32_t)(rank >> 32);
  return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

/* Greatest first; n is a power of two. */
static __device__ void sort_ranks(uint64_t *rank, unsigned n) {
  for (unsigned size = 2; size <= n; size *= 2) {
    for (unsigned step = size / 2; step; step /= 2) {
      __syncthreads();
      for (unsigned i = threadIdx.x; i < n / 2; i += TOP_THREADS) {
        unsigned a = i / step * 2 * step + i % step, b = a + step;
        bool down = (a & size) == 0;
        uint64_t x = rank[a], y = rank[b];
        if ((x < y) == down) rank[a] = y, rank[b] = x;
      }
    }
  }
  __syncthreads();
}

/* The k-th best of the threads' bests is no better than the k-th of all: what is
 * not below it is sorted. There are k of those and few more, unless someone laid
 * out the words to spite us: then the best is looked for k times. */
template <typename T>
static __global__ void __launch_bounds__(TOP_THREADS)
    top(float *score, int32_t *id, const T *logits, const float *base, size_t vocab,
        unsigned k) {
  __shared__ uint64_t rank[TOP_ROOM];
  __shared__ unsigned found;
  const T *row = logits + blockIdx.x * vocab;
  uint64_t best = 0;
  float most = -INFINITY, total = 0;
  for (size_t c = threadIdx.x; c < vocab; c += TOP_THREADS) {
    float x = to_float(row[c]);
    uint64_t r = rank_of(x, c);
    most = fmaxf(most, x);
    best = r > best ? r : best;
  }
  rank[threadIdx.x] = best;
  if (threadIdx.x == 0) found = 0;
  most = block_max<TOP_THREADS>(most);
  for (size_t c = threadIdx.x; c < vocab; c += TOP_THREADS)
    total += exp2_fast((to_float(row[c]) - most) * LOG2_E);
  total = block_sum<TOP_THREADS>(total);
  float shift = (base ? base[blockIdx.x] : 0) - logf(total);

  sort_ranks(rank, TOP_THREADS);
  uint64_t bound = rank[k - 1];
  __syncthreads();
  for (size_t c = threadIdx.x; c < vocab; c += TOP_THREADS) {
    uint64_t r = rank_of(to_float(row[c]), c);
    if (r < bound) continue;
    unsigned at = atomicAdd(&found, 1u); /* any place will do: they are sorted */
    if (at < TOP_ROOM) rank[at] = r;
  }
  __syncthreads();
  if (found <= TOP_ROOM) {
    unsigned n = 1;
    while (n < found) n *= 2;
    for (unsigned i = found + threadIdx.x; i < n; i += TOP_THREADS) rank[i] = 0;
    sort_ranks(rank, n);
  } else {
    __shared__ uint64_t best_of[TOP_THREADS / 32];
    uint64_t last = ~(uint64_t)0;
    for (unsigned i = 0; i < k; i++) {
      uint64_t next = 0;
      for (size_t c = threadIdx.x; c < vocab; c += TOP_THREADS) {
        uint64_t r = rank_of(to_float(row[c]), c);
        if (r < last && r > next) next = r;
      }
      for (int step = 16; step; step /= 2) {
        uint64_t other = __shfl_xor_sync(0xffffffffu, next, step);
        next = other > next ? other : next;
      }
      if (threadIdx.x % 32 == 0) best_of[threadIdx.x / 32] = next;
      __syncthreads();
      last = best_of[0];
      for (int w = 1; w < TOP_THREADS / 32; w++) last = best_of[w] > last ? best_of[w] : last;
      __syncthreads();
      if (threadIdx.x == 0) rank[i] = last;
    }
    __syncthreads();
  }
  if (threadIdx.x < k) {
    uint64_t r = rank[threadIdx.x];
    score[blockIdx.x * (size_t)k + threadIdx.x] = (value_of(r) - most) + shift;
    id[blockIdx.x * (size_t)k + threadIdx.x] = (int32_t) ~(uint32_t)r;
  }
}

cudaError_t kernel_top(Type type, float *score, int32_t *id, const void *logits,
                       const float *base, size_t n, size_t vocab, size_t k,
                       cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  if (k == 0 || k > KERNEL_TOP_MOST || k > vocab) return cudaErrorInvalidValue;
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    top<T><<<(unsigned)n, TOP_THREADS, 0, stream>>>(score, id, (const T *)logits, base, vocab,
                                                    (unsigned)k);
  });
}
