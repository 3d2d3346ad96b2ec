/* Kernels for decoding: copies of cache rows, lists of cache rows, and attention of one query per
 * row over a key/value cache. Depends on device.cuh. */
#include <math.h>

#include "backend/cuda/device.cuh"

/* ---- copies of rows ---- */

/* Copies rows in units of type U: one element, or 16 bytes if all sizes allow it. */
template <typename U>
static __global__ void __launch_bounds__(128)
    copy_rows(U *to, size_t to_ld, const U *__restrict__ from, size_t from_ld, size_t width) {
  to += blockIdx.x * to_ld;
  from += blockIdx.x * from_ld;
  for (size_t i = blockIdx.y * (size_t)128 + threadIdx.x; i < width; i += gridDim.y * 128)
    to[i] = from[i];
}

template <typename U>
static cudaError_t launch_copy(void *to, size_t to_ld, const void *from, size_t from_ld,
                               size_t rows, size_t width, cudaStream_t stream) {
  unsigned columns = blocks_for(width, 128 * 4);
  dim3 grid((unsigned)rows, columns < 1024 ? columns : 1024);
  copy_rows<<<grid, 128, 0, stream>>>((U *)to, to_ld, (const U *)from, from_ld, width);
  return cudaGetLastError();
}

cudaError_t kernel_copy_rows(Type type, void *to, size_t to_ld, const void *from,
                             size_t from_ld, size_t rows, size_t width, cudaStream_t stream) {
  if (rows == 0 || width == 0) return cudaSuccess;
  size_t size = type_size(type), wide = 16 / size;
  if ((width | to_ld | from_ld) % wide == 0 && is_aligned(to) && is_aligned(from))
    return launch_copy<uint4>(to, to_ld / wide, from, from_ld / wide, rows, width / wide,
                              stream);
  return size == 4 ? launch_copy<uint32_t>(to, to_ld, from, from_ld, rows, width, stream)
                   : launch_copy<uint16_t>(to, to_ld, from, from_ld, rows, width, stream);
}

/* Extends the lists of cache rows; one warp per list. */
static __global__ void __launch_bounds__(128)
    extend(int32_t *to, const int32_t *__restrict__ from, const int32_t *__restrict__ parent,
           size_t rows, size_t ld, size_t n, int32_t first) {
  size_t r = blockIdx.x * (size_t)4 + threadIdx.x / 32;
  if (r >= rows) return;
  to += r * ld;
  if (n) from += (size_t)parent[r] * ld;
  for (size_t i = threadIdx.x % 32; i < n; i += 32) to[i] = from[i];
  if (threadIdx.x % 32 == 0) to[n] = first + (int32_t)r;
}

cudaError_t kernel_extend(int32_t *to, const int32_t *from, const int32_t *parent, size_t rows,
                          size_t ld, size_t n, int32_t first, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  extend<<<blocks_for(rows, 4), 128, 0, stream>>>(to, from, parent, rows, ld, n, first);
  return cudaGetLastError();
}

/* ---- attention over cached keys ---- */

struct Cached {
  const int32_t *at, *first, *len;
  size_t at_ld, q_ld, kv_ld, o_ld, rows;
  int heads, d;
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

#define CACHED_WARPS 4 /* warps per block */

/* Attention over the cache: one warp per row and head. LANES lanes share a key, so 32 / LANES
 * keys are processed in parallel, and AHEAD such sets are loaded before the first is used. Each
 * set of lanes has a running softmax of its own keys; they are merged at the end. The order of
 * the sums depends only on the number of keys. */
template <typename T, int LANES, bool VECTOR>
static __global__ void __launch_bounds__(CACHED_WARPS * 32)
    attend_cached(T *o, const T *__restrict__ q, const T *__restrict__ k,
                  const T *__restrict__ v, Cached a) {
  constexpr int KEYS = 32 / LANES, AHEAD = KEYS < 32 ? 2 : 1;
  size_t item = blockIdx.x * (size_t)CACHED_WARPS + threadIdx.x / 32;
  if (item >= a.rows * (size_t)a.heads) return;
  size_t r = item / (size_t)a.heads, head = item % (size_t)a.heads * (size_t)a.d;
  int lane = threadIdx.x % 32, column = lane % LANES * 8, set = lane / LANES;
  int count = a.d - column < 0 ? 0 : a.d - column < 8 ? a.d - column : 8;
  int n = a.len[r], first = a.at ? 0 : a.first[r];
  const int32_t *at = a.at ? a.at + r * a.at_ld : NULL;
  float x[8], sum[8] = {0}, most = -INFINITY, total = 0;
  k += head + column;
  v += head + column;
  Part<T, VECTOR> part;
  part.load(q + r * a.q_ld + head + column, count);
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
  for (int c = 0; c < 8; c++) sum[c] /= total;
  T *to = o + r * a.o_ld + head + column;
  if (VECTOR)
    store8(to, sum);
  else
    store_some(to, sum, count);
}

template <typename T, int LANES>
static void launch_cached(T *o, const T *q, const T *k, const T *v, const Cached &a,
                          cudaStream_t stream) {
  unsigned blocks = blocks_for(a.rows * (size_t)a.heads, CACHED_WARPS);
  bool vector = ((size_t)a.d | a.q_ld | a.kv_ld | a.o_ld) % 8 == 0 && is_aligned(o) &&
                is_aligned(q) && is_aligned(k) && is_aligned(v);
  if (vector)
    attend_cached<T, LANES, true><<<blocks, CACHED_WARPS * 32, 0, stream>>>(o, q, k, v, a);
  else
    attend_cached<T, LANES, false><<<blocks, CACHED_WARPS * 32, 0, stream>>>(o, q, k, v, a);
}

cudaError_t kernel_attend_cached(Type type, void *o, const void *q, const void *k,
                                 const void *v, const CachedAttention *c, cudaStream_t stream) {
  if (c->rows == 0 || c->heads == 0) return cudaSuccess;
  if (c->d == 0 || c->d > KERNEL_MAX_HEAD) return cudaErrorInvalidValue;
  Cached a = {};
  a.at = c->at;
  a.first = c->first;
  a.len = c->len;
  a.at_ld = c->at_ld;
  a.q_ld = c->q_ld;
  a.kv_ld = c->kv_ld;
  a.o_ld = c->o_ld;
  a.rows = c->rows;
  a.heads = (int)c->heads;
  a.d = (int)c->d;
  a.scale = (float)(1.4426950408889634 / sqrt((double)c->d));
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    T *to = (T *)o;
    const T *x = (const T *)q, *y = (const T *)k, *z = (const T *)v;
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
