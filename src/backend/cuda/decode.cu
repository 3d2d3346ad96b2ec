/* Kernels for decoding: lists of cache rows, and attention of one query per row over a key/value
 * cache. Depends on device.cuh. */
#include <math.h>

#include "backend/cuda/device.cuh"

/* ---- lists of cache rows ---- */

/* Makes the lists of cache rows; one warp per list. */
static __global__ void __launch_bounds__(128)
    extend(int32_t *at, const int32_t *__restrict__ list, const int32_t *__restrict__ parent,
           const int32_t *__restrict__ len, const int32_t *__restrict__ slot, size_t rows,
           size_t ld) {
  size_t r = blockIdx.x * (size_t)4 + threadIdx.x / 32;
  if (r >= rows || len[r] == 0) return;
  int last = len[r] - 1;
  int32_t *to = at + (size_t)list[r] * ld;
  const int32_t *from = at + (last ? (size_t)parent[r] * ld : 0);
  for (int i = threadIdx.x % 32; i < last; i += 32) to[i] = from[i];
  if (threadIdx.x % 32 == 0) to[last] = slot[r];
}

cudaError_t kernel_extend(int32_t *at, const int32_t *list, const int32_t *parent,
                          const int32_t *len, const int32_t *slot, size_t rows, size_t ld,
                          cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  extend<<<blocks_for(rows, 4), 128, 0, stream>>>(at, list, parent, len, slot, rows, ld);
  return cudaGetLastError();
}

/* ---- attention over cached keys ---- */

struct Cached {
  const int32_t *at, *list, *first, *len;
  size_t at_ld, q_ld, kv_ld, o_ld, rows;
  int heads, d;
  bool appends;
  float scale; /* log2(e) / sqrt(d): scores are in units of log 2 */
};

/* Up to eight elements of a head per lane. */
template <typename T, bool VECTOR>
struct Part {
  Eight<T> raw;
  float some[VECTOR ? 1 : 8];
  __device__ __forceinline__ void load(const T *p, int count) {
    if (VECTOR) {
      if (count) raw.load(p);
    } else {
      load_some(some, p, count);
    }
  }
  __device__ __forceinline__ void get(float x[8], int count) const {
    if (VECTOR && count) {
      raw.get(x);
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = VECTOR ? 0 : some[VECTOR ? 0 : i];
  }
};

/* Copies `count` elements, or eight if VECTOR and count is not 0. */
template <typename T, bool VECTOR>
static __device__ __forceinline__ void store_part(T *to, const T *from, int count) {
  if (VECTOR && count) {
    Eight<T> raw;
    raw.load(from);
    raw.store(to);
  }
  for (int i = 0; i < count && !VECTOR; i++) to[i] = from[i];
}

#define CACHED_WARPS 4 /* warps per block */
/* Minimum blocks per SM, which limits the registers; fewer would spill. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define CACHED_BLOCKS 6
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CACHED_BLOCKS 7
#else
#define CACHED_BLOCKS 8
#endif

/* Attention over the cache: one warp per row and head. A block has the same head of consecutive
 * rows: hypotheses of one sentence are adjacent and share their source and most of their earlier
 * tokens, so that keys and values that one warp reads are in the L1 cache for the others. LANES lanes share a key, so 32 / LANES
 * keys are processed in parallel, and AHEAD such sets are loaded before the first is used. Each
 * set of lanes has a running softmax of its own keys; they are merged at the end. The order of
 * the sums depends only on the number of keys. A warp that appends stores its part of the row's
 * own key and value first, and then reads them from the cache like the others; no other warp reads
 * them. */
template <typename T, int LANES, bool VECTOR>
static __global__ void __launch_bounds__(CACHED_WARPS * 32,
                                         VECTOR && sizeof(T) == 2 ? CACHED_BLOCKS : 1)
    attend_cached(T *o, const T *__restrict__ q, T *k, T *v, Cached a) {
  constexpr int KEYS = 32 / LANES, AHEAD = KEYS < 32 ? 2 : 1;
  size_t r = blockIdx.x / (unsigned)a.heads * (size_t)CACHED_WARPS + threadIdx.x / 32;
  if (r >= a.rows) return;
  size_t head = blockIdx.x % (unsigned)a.heads * (size_t)a.d;
  int lane = threadIdx.x % 32, column = lane % LANES * 8, set = lane / LANES;
  int count = a.d - column < 0 ? 0 : a.d - column < 8 ? a.d - column : 8;
  int n = a.len[r], first = a.at ? 0 : a.first[r];
  const int32_t *at = a.at ? a.at + (size_t)a.list[r] * a.at_ld : NULL;
  float x[8], sum[8] = {0}, most = -INFINITY, total = 0;
  k += head + column;
  v += head + column;
  Part<T, VECTOR> part;
  q += r * a.q_ld + head + column;
  if (a.appends && n) {
    size_t width = (size_t)a.heads * a.d, to = (size_t)at[n - 1] * a.kv_ld;
    if (set == 0) store_part<T, VECTOR>(k + to, q + width, count);
    if (set == 1 % KEYS) store_part<T, VECTOR>(v + to, q + 2 * width, count);
    __syncwarp();
  }
  part.load(q, count);
  part.get(x, count);
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] *= a.scale;
  /* Loads 32 cache row numbers at a time, one per lane. */
  for (int begin = 0; begin < n; begin += 32) {
    int own = begin + lane, row = own >= n ? 0 : at ? at[own] : first + own;
    for (int i = 0; i < 32 && begin + i < n; i += KEYS * AHEAD) {
      Part<T, VECTOR> key[AHEAD], value[AHEAD];
      bool there[AHEAD];
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        int which = i + u * KEYS + set;
        size_t from = (size_t)__shfl_sync(0xffffffffu, row, which) * a.kv_ld;
        there[u] = begin + which < n;
        key[u].load(k + from, there[u] ? count : 0);
        value[u].load(v + from, there[u] ? count : 0);
      }
      float score[AHEAD], peak = most;
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        float y[8], dot = 0;
        key[u].get(y, there[u] ? count : 0);
#pragma unroll
        for (int c = 0; c < 8; c++) dot += x[c] * y[c];
#pragma unroll
        for (int step = LANES / 2; step; step /= 2)
          dot += __shfl_xor_sync(0xffffffffu, dot, step);
        score[u] = there[u] ? dot : -INFINITY;
        peak = fmaxf(peak, score[u]);
      }
      /* If both maxima are -inf, their difference would be NaN. */
      float keep = most == peak ? 1 : exp2_fast(most - peak);
      most = peak;
      total *= keep;
#pragma unroll
      for (int c = 0; c < 8; c++) sum[c] *= keep;
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        float y[8], share = there[u] ? exp2_fast(score[u] - peak) : 0;
        value[u].get(y, there[u] ? count : 0);
        total += share;
#pragma unroll
        for (int c = 0; c < 8; c++) sum[c] += share * y[c];
      }
    }
  }
  /* Merges the softmaxes of the sets of lanes. */
#pragma unroll
  for (int step = LANES; step < 32; step *= 2) {
    float peak = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    float keep = most == peak ? 1 : exp2_fast(most - peak);
    most = peak;
    total *= keep;
    total += __shfl_xor_sync(0xffffffffu, total, step);
#pragma unroll
    for (int c = 0; c < 8; c++) {
      sum[c] *= keep;
      sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], step);
    }
  }
  if (set || !count) return;
#pragma unroll
  for (int c = 0; c < 8; c++) sum[c] = n ? sum[c] / total : 0;
  T *to = o + r * a.o_ld + head + column;
  if (VECTOR)
    store8(to, sum);
  else
    store_some(to, sum, count);
}

template <typename T, int LANES>
static void launch_cached(T *o, const T *q, T *k, T *v, const Cached &a, cudaStream_t stream) {
  unsigned blocks = blocks_for(a.rows, CACHED_WARPS) * (unsigned)a.heads;
  bool vector = ((size_t)a.d | a.q_ld | a.kv_ld | a.o_ld) % 8 == 0 && is_aligned(o) &&
                is_aligned(q) && is_aligned(k) && is_aligned(v);
  if (vector)
    attend_cached<T, LANES, true><<<blocks, CACHED_WARPS * 32, 0, stream>>>(o, q, k, v, a);
  else
    attend_cached<T, LANES, false><<<blocks, CACHED_WARPS * 32, 0, stream>>>(o, q, k, v, a);
}

cudaError_t kernel_attend_cached(Type type, void *o, const void *q, void *k, void *v,
                                 const CachedAttention *c, cudaStream_t stream) {
  if (c->rows == 0 || c->heads == 0) return cudaSuccess;
  if (c->d == 0 || c->d > KERNEL_MAX_HEAD) return cudaErrorInvalidValue;
  Cached a = {};
  a.at = c->at;
  a.list = c->list;
  a.first = c->first;
  a.len = c->len;
  a.at_ld = c->at_ld;
  a.q_ld = c->q_ld;
  a.kv_ld = c->kv_ld;
  a.o_ld = c->o_ld;
  a.rows = c->rows;
  a.heads = (int)c->heads;
  a.d = (int)c->d;
  a.appends = c->appends;
  a.scale = (float)(1.4426950408889634 / sqrt((double)c->d));
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    T *to = (T *)o;
    const T *x = (const T *)q;
    T *y = (T *)k, *z = (T *)v;
    if (a.d <= 32)
      launch_cached<T, 4>(to, x, y, z, a, stream);
    else if (a.d <= 64)
      launch_cached<T, 8>(to, x, y, z, a, stream);
    else if (a.d <= 128)
      launch_cached<T, 16>(to, x, y, z, a, stream);
    else
      launch_cached<T, 32>(to, x, y, z, a, stream);
  });
}
