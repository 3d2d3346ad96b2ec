/* Attention without tensor cores: fp32, heads of any size up to 256, any alignment, and GPUs
 * whose tensor cores mma.cuh does not use. One block per sentence and head. Keys (or queries)
 * are staged in shared memory in tiles of 32: for scores each lane processes a row of the tile,
 * for weighted sums each lane processes columns. Depends on attend.cuh. */
#include "backend/cuda/attend.cuh"

#define WARPS     4
#define FRONT     4 /* rows per warp in the forward */
#define BACK      2 /* rows per warp in the backward, in which each row needs two vectors */
#define TILE_ROWS 32

/* Copies `count` rows of x (…, d), beginning at row0, to `to` as floats; `step` floats between
 * two rows; 0 from row `end` on. Synchronizes the block before and after. */
template <typename T>
static __device__ void stage_rows(float *to, int step, const T *x, size_t ld, int row0,
                                  int count, int end, int d) {
  __syncthreads();
  for (int r = threadIdx.x / 32; r < count; r += WARPS) {
    for (int c = threadIdx.x % 32; c < d; c += 32)
      to[r * step + c] = row0 + r < end ? to_float(x[(size_t)(row0 + r) * ld + c]) : 0;
  }
  __syncthreads();
}

/* Computes out[r], the dot product of row r of `mine` (R, d) and this lane's row of a tile. */
template <int R>
static __device__ __forceinline__ void dot_rows(float out[R], const float *mine,
                                                const float *tile, int d) {
  const float *row = tile + threadIdx.x % 32 * (d + 1);
#pragma unroll
  for (int r = 0; r < R; r++) out[r] = 0;
  for (int c = 0; c < d; c++) {
#pragma unroll
    for (int r = 0; r < R; r++) out[r] += mine[r * d + c] * row[c];
  }
}

/* sum[r] += sum over j of (by[r] of lane j) * row j of the tile; a lane has the columns lane,
 * lane + 32, … */
template <int R, int C>
static __device__ __forceinline__ void add_weighted_rows(float sum[R][C], const float by[R],
                                                         const float *tile, int count, int d) {
  int lane = threadIdx.x % 32;
  for (int j = 0; j < count; j++) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      float x = __shfl_sync(0xffffffffu, by[r], j);
#pragma unroll
      for (int c = 0; c < C; c++) {
        if (lane + c * 32 < d) sum[r][c] += x * tile[j * (d + 1) + lane + c * 32];
      }
    }
  }
}

template <typename T, int C>
static __device__ __forceinline__ void store_row(T *to, const float sum[C], float by, int d) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int c = 0; c < C; c++) {
    if (lane + c * 32 < d) set_float(to[lane + c * 32], sum[c] * by);
  }
}

/* Returns the dropout factor of one probability. */
static __device__ __forceinline__ float dropout_of(const Attend &a, size_t query, int head,
                                                   int key) {
  return drop1(a.drop, ((uint64_t)query * a.heads + head) * MOST_KEYS + key);
}

template <typename T, int C>
static __global__ void __launch_bounds__(WARPS * 32)
    attend_plain(T *o, float *lse, const T *q, const T *k, const T *v, Attend a) {
  extern __shared__ float shared[];
  float *tile = shared, *mine = shared + TILE_ROWS * (a.d + 1);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y, d = a.d;
  Sentence is = sentence_of(a, blockIdx.x);
  q += is.q0 * a.q_ld + (size_t)head * d;
  o += is.q0 * a.o_ld + (size_t)head * d;
  k += is.k0 * a.kv_ld + (size_t)head * d;
  v += is.k0 * a.kv_ld + (size_t)head * d;
  float to_log2 = a.scale * LOG2_E;
  const int group = WARPS * FRONT;
  for (int i0 = 0; i0 < is.rows; i0 += group) {
    stage_rows(mine, d, q, a.q_ld, i0, group, is.rows, d);
    float sum[FRONT][C] = {}, most[FRONT], total[FRONT];
#pragma unroll
    for (int r = 0; r < FRONT; r++) {
      most[r] = -INFINITY;
      total[r] = 0;
    }
    int end = a.causal && i0 + group < is.keys ? i0 + group : is.keys;
    for (int j0 = 0; j0 < end; j0 += TILE_ROWS) {
      int count = end - j0 < TILE_ROWS ? end - j0 : TILE_ROWS, j = j0 + lane;
      stage_rows(tile, d + 1, k, a.kv_ld, j0, TILE_ROWS, is.keys, d);
      float s[FRONT];
      dot_rows<FRONT>(s, mine + warp * FRONT * d, tile, d);
      /* Running softmax: rescales to the new maximum, then applies dropout. */
#pragma unroll
      for (int r = 0; r < FRONT; r++) {
        int i = i0 + warp * FRONT + r;
        bool visible = j < is.keys && (!a.causal || j <= i);
        s[r] = visible ? s[r] * to_log2 : -INFINITY;
        float now = fmaxf(most[r], warp_max(s[r])), shrink = exp2f(most[r] - now);
        most[r] = now;
        s[r] = exp2f(s[r] - now);
        total[r] = total[r] * shrink + warp_sum(s[r]);
#pragma unroll
        for (int c = 0; c < C; c++) sum[r][c] *= shrink;
        if (visible) s[r] *= dropout_of(a, is.q0 + i, head, j);
      }
      stage_rows(tile, d + 1, v, a.kv_ld, j0, TILE_ROWS, is.keys, d);
      add_weighted_rows<FRONT, C>(sum, s, tile, count, d);
    }
#pragma unroll
    for (int r = 0; r < FRONT; r++) {
      int i = i0 + warp * FRONT + r;
      if (i >= is.rows) continue;
      store_row<T, C>(o + (size_t)i * a.o_ld, sum[r], total[r] > 0 ? 1 / total[r] : 0, d);
      if (lane == 0) lse[(is.q0 + i) * a.heads + head] = (most[r] + log2f(total[r])) * LN_2;
    }
  }
}

/* Computes dq, and delta (q rows, heads) = sum over the columns of do * o for backward_keys. */
template <typename T, int C>
static __global__ void __launch_bounds__(WARPS * 32)
    backward_queries(T *dq, float *delta, const T *d_o, const T *o, const float *lse,
                     const T *q, const T *k, const T *v, Attend a) {
  extern __shared__ float shared[];
  const int group = WARPS * BACK;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y, d = a.d;
  float *tile = shared, *my_q = shared + TILE_ROWS * (d + 1), *my_do = my_q + group * d;
  Sentence is = sentence_of(a, blockIdx.x);
  q += is.q0 * a.q_ld + (size_t)head * d;
  dq += is.q0 * a.q_ld + (size_t)head * d;
  o += is.q0 * a.o_ld + (size_t)head * d;
  d_o += is.q0 * a.o_ld + (size_t)head * d;
  k += is.k0 * a.kv_ld + (size_t)head * d;
  v += is.k0 * a.kv_ld + (size_t)head * d;
  lse += is.q0 * a.heads + head;
  delta += is.q0 * a.heads + head;
  for (int i0 = 0; i0 < is.rows; i0 += group) {
    stage_rows(my_q, d, q, a.q_ld, i0, group, is.rows, d);
    stage_rows(my_do, d, d_o, a.o_ld, i0, group, is.rows, d);
    float sum[BACK][C] = {}, row_delta[BACK], base[BACK];
#pragma unroll
    for (int r = 0; r < BACK; r++) {
      int i = i0 + warp * BACK + r;
      row_delta[r] = base[r] = 0;
      /* i is the same for all lanes of the warp, so the whole warp continues. */
      if (i >= is.rows) continue;
      for (int c = lane; c < d; c += 32)
        row_delta[r] += my_do[(warp * BACK + r) * d + c] * to_float(o[(size_t)i * a.o_ld + c]);
      row_delta[r] = warp_sum(row_delta[r]);
      base[r] = lse[(size_t)i * a.heads];
      if (lane == 0) delta[(size_t)i * a.heads] = row_delta[r];
    }
    int end = a.causal && i0 + group < is.keys ? i0 + group : is.keys;
    for (int j0 = 0; j0 < end; j0 += TILE_ROWS) {
      int count = end - j0 < TILE_ROWS ? end - j0 : TILE_ROWS, j = j0 + lane;
      float s[BACK], dp[BACK];
      stage_rows(tile, d + 1, v, a.kv_ld, j0, TILE_ROWS, is.keys, d);
      dot_rows<BACK>(dp, my_do + warp * BACK * d, tile, d);
      stage_rows(tile, d + 1, k, a.kv_ld, j0, TILE_ROWS, is.keys, d);
      dot_rows<BACK>(s, my_q + warp * BACK * d, tile, d);
#pragma unroll
      for (int r = 0; r < BACK; r++) {
        int i = i0 + warp * BACK + r;
        bool visible = i < is.rows && j < is.keys && (!a.causal || j <= i);
        float p = visible ? exp2f((s[r] * a.scale - base[r]) * LOG2_E) : 0;
        float by = visible ? dropout_of(a, is.q0 + i, head, j) : 0;
        s[r] = p * (dp[r] * by - row_delta[r]) * a.scale;
      }
      add_weighted_rows<BACK, C>(sum, s, tile, count, d);
    }
#pragma unroll
    for (int r = 0; r < BACK; r++) {
      int i = i0 + warp * BACK + r;
      if (i < is.rows) store_row<T, C>(dq + (size_t)i * a.q_ld, sum[r], 1, d);
    }
  }
}

/* Computes dk and dv. */
template <typename T, int C>
static __global__ void __launch_bounds__(WARPS * 32)
    backward_keys(T *dk, T *dv, const float *delta, const T *d_o, const float *lse, const T *q,
                  const T *k, const T *v, Attend a) {
  extern __shared__ float shared[];
  const int group = WARPS * BACK;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y, d = a.d;
  float *tile = shared, *my_k = shared + TILE_ROWS * (d + 1), *my_v = my_k + group * d;
  Sentence is = sentence_of(a, blockIdx.x);
  q += is.q0 * a.q_ld + (size_t)head * d;
  d_o += is.q0 * a.o_ld + (size_t)head * d;
  k += is.k0 * a.kv_ld + (size_t)head * d;
  v += is.k0 * a.kv_ld + (size_t)head * d;
  dk += is.k0 * a.kv_ld + (size_t)head * d;
  dv += is.k0 * a.kv_ld + (size_t)head * d;
  lse += is.q0 * a.heads + head;
  delta += is.q0 * a.heads + head;
  for (int j0 = 0; j0 < is.keys; j0 += group) {
    stage_rows(my_k, d, k, a.kv_ld, j0, group, is.keys, d);
    stage_rows(my_v, d, v, a.kv_ld, j0, group, is.keys, d);
    float sum_k[BACK][C] = {}, sum_v[BACK][C] = {};
    for (int i0 = a.causal ? j0 / TILE_ROWS * TILE_ROWS : 0; i0 < is.rows; i0 += TILE_ROWS) {
      int count = is.rows - i0 < TILE_ROWS ? is.rows - i0 : TILE_ROWS, i = i0 + lane;
      float base = i < is.rows ? lse[(size_t)i * a.heads] : 0;
      float row_delta = i < is.rows ? delta[(size_t)i * a.heads] : 0;
      float s[BACK], dp[BACK], p[BACK];
      stage_rows(tile, d + 1, q, a.q_ld, i0, TILE_ROWS, is.rows, d);
      dot_rows<BACK>(s, my_k + warp * BACK * d, tile, d);
      stage_rows(tile, d + 1, d_o, a.o_ld, i0, TILE_ROWS, is.rows, d);
      dot_rows<BACK>(dp, my_v + warp * BACK * d, tile, d);
#pragma unroll
      for (int r = 0; r < BACK; r++) {
        int j = j0 + warp * BACK + r;
        bool visible = i < is.rows && j < is.keys && (!a.causal || j <= i);
        float by = visible ? dropout_of(a, is.q0 + i, head, j) : 0;
        p[r] = visible ? exp2f((s[r] * a.scale - base) * LOG2_E) : 0;
        s[r] = p[r] * (dp[r] * by - row_delta) * a.scale;
        p[r] *= by;
      }
      add_weighted_rows<BACK, C>(sum_v, p, tile, count, d);
      stage_rows(tile, d + 1, q, a.q_ld, i0, TILE_ROWS, is.rows, d);
      add_weighted_rows<BACK, C>(sum_k, s, tile, count, d);
    }
#pragma unroll
    for (int r = 0; r < BACK; r++) {
      int j = j0 + warp * BACK + r;
      if (j >= is.keys) continue;
      store_row<T, C>(dk + (size_t)j * a.kv_ld, sum_k[r], 1, d);
      store_row<T, C>(dv + (size_t)j * a.kv_ld, sum_v[r], 1, d);
    }
  }
}

/* ---- launchers ---- */

/* Allows a kernel to use `bytes` of shared memory: above 48 KiB CUDA requires an attribute. */
template <typename K>
static bool allow_shared_memory(K kernel, size_t bytes) {
  return bytes <= 48 << 10 ||
         !cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

template <typename T, int C>
static void launch_forward(T *o, float *lse, const T *q, const T *k, const T *v,
                           const Attention *a, cudaStream_t stream) {
  dim3 grid((unsigned)a->sentences, (unsigned)a->heads);
  size_t bytes = (TILE_ROWS * (a->d + 1) + WARPS * FRONT * a->d) * sizeof(float);
  if (allow_shared_memory(attend_plain<T, C>, bytes))
    attend_plain<T, C><<<grid, WARPS * 32, bytes, stream>>>(o, lse, q, k, v, attend_of(a));
}

template <typename T, int C>
static void launch_backward(T *dq, T *dk, T *dv, const T *d_o, const T *o, const float *lse,
                            const T *q, const T *k, const T *v, const Attention *a,
                            float *delta, cudaStream_t stream) {
  dim3 grid((unsigned)a->sentences, (unsigned)a->heads);
  size_t bytes = (TILE_ROWS * (a->d + 1) + 2 * WARPS * BACK * a->d) * sizeof(float);
  Attend at = attend_of(a);
  if (!allow_shared_memory(backward_queries<T, C>, bytes) ||
      !allow_shared_memory(backward_keys<T, C>, bytes))
    return;
  backward_queries<T, C>
      <<<grid, WARPS * 32, bytes, stream>>>(dq, delta, d_o, o, lse, q, k, v, at);
  backward_keys<T, C>
      <<<grid, WARPS * 32, bytes, stream>>>(dk, dv, delta, d_o, lse, q, k, v, at);
}

cudaError_t kernel_attend(Type type, void *o, float *lse, const void *q, const void *k,
                          const void *v, const Attention *a, cudaStream_t stream) {
  if (a->sentences == 0 || a->heads == 0) return cudaSuccess;
  bool done;
  cudaError_t err = attend_fast(type, o, lse, q, k, v, a, stream, &done);
  if (err || done) return err;
  if (a->d == 0 || a->d > KERNEL_MAX_HEAD) return cudaErrorInvalidValue;
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    auto run = [&](auto launch) {
      launch((T *)o, lse, (const T *)q, (const T *)k, (const T *)v, a, stream);
    };
    if (a->d <= 64)
      run(launch_forward<T, 2>);
    else if (a->d <= 128)
      run(launch_forward<T, 4>);
    else
      run(launch_forward<T, 8>);
  });
}

size_t kernel_attend_backward_work(size_t q_rows, size_t heads) {
  return q_rows * heads * sizeof(float);
}

cudaError_t kernel_attend_backward(Type type, void *dq, void *dk, void *dv, const void *d_o,
                                   const void *o, const float *lse, const void *q,
                                   const void *k, const void *v, const Attention *a, void *work,
                                   cudaStream_t stream) {
  if (a->sentences == 0 || a->heads == 0) return cudaSuccess;
  bool done;
  float *delta = (float *)work;
  cudaError_t err =
      attend_backward_fast(type, dq, dk, dv, d_o, o, lse, q, k, v, a, delta, stream, &done);
  if (err || done) return err;
  if (a->d == 0 || a->d > KERNEL_MAX_HEAD) return cudaErrorInvalidValue;
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    auto run = [&](auto launch) {
      launch((T *)dq, (T *)dk, (T *)dv, (const T *)d_o, (const T *)o, lse, (const T *)q,
             (const T *)k, (const T *)v, a, delta, stream);
    };
    if (a->d <= 64)
      run(launch_backward<T, 2>);
    else if (a->d <= 128)
      run(launch_backward<T, 4>);
    else
      run(launch_backward<T, 8>);
  });
}
