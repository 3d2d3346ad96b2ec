/* Top-k and log-sum-exp of each row of logits. Depends on device.cuh. */
#include <math.h>

#include "backend/cuda/device.cuh"

#define TOP_ROOM 2048 /* maximum number of candidates that can be sorted */

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

/* How a block reads a row. HELD: vectors of eight logits that a thread loads once and keeps in
 * registers; 0: it loads them again in each pass. VECTOR: rows are aligned to eight logits. */
template <int THREADS_, int HELD_, bool VECTOR_>
struct Reading {
  static const int THREADS = THREADS_, WARPS = THREADS_ / 32, HELD = HELD_;
  static const bool VECTOR = VECTOR_;
};

/* Makes the compiler convert the elements again in each pass: as floats they take twice the
 * registers, and spill. */
template <typename T>
static __device__ __forceinline__ void forget_floats(Eight<T> &x) {
  asm volatile("" : "+r"(x.raw.x), "+r"(x.raw.y), "+r"(x.raw.z), "+r"(x.raw.w));
}
static __device__ __forceinline__ void forget_floats(Eight<float> &) {
}

/* This thread's part of a row of logits. */
template <typename T, typename R>
struct Logits {
  const T *row;
  size_t vocab;
  Eight<T> held[R::HELD ? R::HELD : 1];

  __device__ __forceinline__ Logits(const T *row_, size_t vocab_) : row(row_), vocab(vocab_) {
#pragma unroll
    for (int i = 0; i < R::HELD; i++) {
      if (column(i) < vocab) held[i].load(row + column(i));
    }
  }
  static __device__ __forceinline__ size_t column(int i) {
    return (i * R::THREADS + threadIdx.x) * (size_t)8;
  }
  /* Calls f(value, column) for each element. */
  template <typename F>
  __device__ __forceinline__ void for_each(F f) {
    if (R::HELD) {
#pragma unroll
      for (int i = 0; i < R::HELD; i++) {
        forget_floats(held[i]);
        if (column(i) < vocab) call_for_eight(held[i], column(i), f);
      }
    } else if (R::VECTOR) {
      for (int i = 0; column(i) < vocab; i++) {
        Eight<T> x;
        x.load(row + column(i));
        call_for_eight(x, column(i), f);
      }
    } else {
      for (size_t c = threadIdx.x; c < vocab; c += R::THREADS) f(to_float(row[c]), c);
    }
  }
  template <typename F>
  static __device__ __forceinline__ void call_for_eight(const Eight<T> &eight, size_t c, F f) {
    float x[8];
    eight.get(x);
#pragma unroll
    for (int i = 0; i < 8; i++) f(x[i], c + i);
  }
};

/* Bitonic sort in decreasing order; n is a power of two. */
template <int THREADS>
static __device__ void sort_ranks(uint64_t *rank, unsigned n) {
  for (unsigned size = 2; size <= n; size *= 2) {
    for (unsigned step = size / 2; step; step /= 2) {
      __syncthreads();
      for (unsigned i = threadIdx.x; i < n / 2; i += THREADS) {
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

/* Returns the number of lanes with a larger rank, or the same rank and a lower number. */
static __device__ __forceinline__ unsigned count_better(uint64_t mine) {
  unsigned better = 0;
  for (int i = 0; i < 32; i++) {
    uint64_t other = __shfl_sync(0xffffffffu, mine, i);
    better += other > mine || (other == mine && i < (int)(threadIdx.x % 32));
  }
  return better;
}

/* Returns a lower bound of the k largest logits: if a row is divided into at least k parts, the
 * k-th largest of the parts' maxima. For k <= WARPS a part is the part of a warp, otherwise of
 * a thread. Parts without logits have the maximum -inf. Uses rank[0 … THREADS - 1]. */
template <typename R>
static __device__ float find_bound(uint64_t *rank, float most, unsigned k) {
  unsigned lane = threadIdx.x % 32;
  float bound;
  if (k > R::WARPS) {
    rank[threadIdx.x] = rank_of(most, threadIdx.x);
    sort_ranks<R::THREADS>(rank, R::THREADS);
    bound = value_of(rank[k - 1]);
  } else {
    most = warp_max(most);
    if (lane == 0) rank[threadIdx.x / 32] = rank_of(most, threadIdx.x / 32);
    __syncthreads();
    /* All warps compute the same. */
    uint64_t mine = lane < R::WARPS ? rank[lane] : 0;
    unsigned which = __ballot_sync(0xffffffffu, count_better(mine) == k - 1);
    bound = value_of(__shfl_sync(0xffffffffu, mine, __ffs((int)which) - 1));
  }
  __syncthreads();
  return bound;
}

/* Writes the k largest ranks of a row in decreasing order to rank[], by k searches. */
template <typename T, typename R>
static __device__ void search_ranks(uint64_t *rank, Logits<T, R> logits, unsigned k) {
  __shared__ uint64_t best_of[R::WARPS];
  uint64_t last = ~(uint64_t)0;
  for (unsigned i = 0; i < k; i++) {
    uint64_t next = 0;
    logits.for_each([&](float x, size_t c) {
      uint64_t r = rank_of(x, c);
      if (r < last && r > next) next = r;
    });
    next = warp_best(next);
    if (threadIdx.x % 32 == 0) best_of[threadIdx.x / 32] = next;
    __syncthreads();
    last = best_of[0];
    for (int w = 1; w < R::WARPS; w++) last = best_of[w] > last ? best_of[w] : last;
    __syncthreads();
    if (threadIdx.x == 0) rank[i] = last;
  }
  __syncthreads();
}

/* Sorts the candidates rank[0 … found - 1] in decreasing order; at least the first k are
 * sorted. */
template <int THREADS>
static __device__ void sort_candidates(uint64_t *rank, unsigned found) {
  if (found <= 32) { /* each lane of a warp counts how many precede its candidate */
    if (threadIdx.x < 32) {
      uint64_t mine = threadIdx.x < found ? rank[threadIdx.x] : 0;
      unsigned at = count_better(mine);
      __syncwarp();
      rank[at] = mine;
    }
    __syncthreads();
    return;
  }
  unsigned n = 1;
  while (n < found) n *= 2;
  for (unsigned i = found + threadIdx.x; i < n; i += THREADS) rank[i] = 0;
  sort_ranks<THREADS>(rank, n);
}

/* One block per row. Phase 1: maximum of each thread and log-sum-exp. Phase 2: collects the
 * logits not below the bound, normally k and a few more; only threads whose maximum is not
 * below it have any. Phase 3: sorts them or, if there are more than TOP_ROOM (adversarial order
 * of logits), searches the next largest k times. Phase 4: writes the first k. */
template <typename T, int THREADS, int HELD, bool VECTOR>
static __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    find_top_k(float *value, int32_t *id, float *lse, const T *__restrict__ all, size_t vocab,
               unsigned k) {
  typedef Reading<THREADS, HELD, VECTOR> R;
  __shared__ uint64_t rank[TOP_ROOM];
  __shared__ unsigned found;
  const T *row = all + blockIdx.x * vocab;
  Logits<T, R> logits(row, vocab);
  float own = -INFINITY, total = 0; /* fmaxf ignores NaN, which counts as -inf */
  logits.for_each([&](float x, size_t) { own = fmaxf(own, x); });
  if (threadIdx.x == 0) found = 0;
  float most = block_max<R::THREADS>(own);
  logits.for_each([&](float x, size_t) { total += exp2_fast((x - most) * LOG2_E); });
  total = block_sum<R::THREADS>(total);
  if (threadIdx.x == 0) lse[blockIdx.x] = most + logf(total);

  float bound = find_bound<R>(rank, own, k);
  if (!(own < bound)) {
    logits.for_each([&](float x, size_t c) {
      if (x < bound) return;
      /* The order does not matter, because the ranks are sorted later. */
      unsigned at = atomicAdd(&found, 1u);
      if (at < TOP_ROOM) rank[at] = rank_of(x, c);
    });
  }
  __syncthreads();
  if (found <= TOP_ROOM)
    sort_candidates<R::THREADS>(rank, found);
  else
    search_ranks(rank, Logits<T, Reading<R::THREADS, 0, R::VECTOR>>(row, vocab), k);
  if (threadIdx.x < k) {
    uint64_t r = rank[threadIdx.x];
    value[blockIdx.x * (size_t)k + threadIdx.x] = value_of(r);
    id[blockIdx.x * (size_t)k + threadIdx.x] = (int32_t) ~(uint32_t)r;
  }
}

template <typename T, typename R>
static void launch_top_k(float *value, int32_t *id, float *lse, const T *logits, size_t rows,
                         size_t vocab, size_t k, cudaStream_t stream) {
  find_top_k<T, R::THREADS, R::HELD, R::VECTOR>
      <<<(unsigned)rows, R::THREADS, 0, stream>>>(value, id, lse, logits, vocab, (unsigned)k);
}

cudaError_t kernel_top_k(Type type, float *value, int32_t *id, float *lse, const void *logits,
                         size_t rows, size_t vocab, size_t k, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  if (k == 0 || k > KERNEL_MAX_TOP_K || k > vocab) return cudaErrorInvalidValue;
  bool vector = vocab % 8 == 0 && is_aligned(logits);
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    /* keeps up to 32,768 logits of 16 bits in registers */
    typedef Reading<512, sizeof(T) == 2 ? 8 : 0, true> Held;
    const T *x = (const T *)logits;
    bool fits = vocab <= Held::THREADS * Held::HELD * 8 && k <= Held::WARPS;
    if (vector && fits)
      launch_top_k<T, Held>(value, id, lse, x, rows, vocab, k, stream);
    else if (vector)
      launch_top_k<T, Reading<1024, 0, true>>(value, id, lse, x, rows, vocab, k, stream);
    else
      launch_top_k<T, Reading<1024, 0, false>>(value, id, lse, x, rows, vocab, k, stream);
  });
}
