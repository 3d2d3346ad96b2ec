/* Residual, dropout and layer norm in one pass over memory: a row stays in registers. The
 * backward is in norm_backward.cu. Depends on fp8.cuh. */
#include "backend/cuda/fp8.cuh"

/* A block has four warps: one row per warp (WARPS 1) or one row for all (WARPS 4). A thread holds
 * VECS times eight columns of its row, WARPS * 256 columns apart. */
#define BLOCK_WARPS 4

template <int WARPS>
static __device__ __forceinline__ float row_sum(float x) {
  return WARPS == 1 ? warp_sum(x) : block_sum<BLOCK_WARPS * 32>(x);
}

/* Converts the row y to fp8. c: first column of a thread's VECS times eight columns, which are
 * STEP columns apart. */
template <int WARPS, int VECS, int STEP>
static __device__ __forceinline__ void convert_row(uint8_t *to, float *scale,
                                                   const Eight<__nv_bfloat16> (&y)[VECS],
                                                   size_t c, size_t d) {
  float most = 0, v[8];
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    y[i].get(v);
    if (c + i * STEP < d) most = fp8_max(most, v);
  }
  most = WARPS == 1 ? warp_max(most) : block_max<BLOCK_WARPS * 32>(most);
  float by = fp8_factor(most);
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    if (c + i * STEP < d) fp8_store8(to + c + i * STEP, y[i], by);
  }
  if (c == 0) *scale = most / FP8_LARGEST;
}

/* The bits of a later dropout: `words` words of 32 elements for each row; or none (NULL). */
struct Ahead {
  uint32_t *bits;
  uint32_t words;
  Drop drop;
};

static Ahead ahead_of(const AddNorm *n) {
  return {(uint32_t *)n->ahead, (uint32_t)(n->ahead_width / 32), drop_of(n->ahead_drop)};
}

/* Residual and layer norm. Rows are processed from the last to the first, here and in the
 * backward: the preceding GEMM may have left the last rows in L2. sum may be x: each thread
 * loads an element before storing it. DRAWS (one warp per row): also draws the bits of `ahead`,
 * while the row is on its way from memory. FP8 (T is bf16): converts the stored y too, to
 * `to`. */
template <typename T, int WARPS, int VECS, bool DRAWS, bool FP8>
static __device__ __forceinline__ void norm_row(T *sum, T *y, float *stat, const T *x,
                                                const T *branch, const float *gain,
                                                const float *bias, size_t rows, size_t d,
                                                float epsilon, const Drop &drop,
                                                const Ahead &ahead, const Fp8Rows &to) {
  const size_t per_block = BLOCK_WARPS / WARPS;
  size_t lane = WARPS == 1 ? threadIdx.x % 32 : threadIdx.x;
  size_t r = (gridDim.x - 1 - blockIdx.x) * per_block + (WARPS == 1 ? threadIdx.x / 32 : 0);
  /* The condition is the same for all threads that share the row. */
  if (r >= rows) return;
  /* Loads all elements first: because sum may be x, the compiler cannot move loads before
   * stores. */
  Eight<T> in_x[VECS], in_branch[VECS];
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    size_t c = (i * WARPS * 32 + lane) * 8, at = r * d + c;
    if (c >= d) continue;
    in_x[i].load(x + at);
    if (branch) in_branch[i].load(branch + at);
  }
  if constexpr (DRAWS) {
#pragma unroll 1
    for (uint32_t i = (uint32_t)lane; i < ahead.words; i += 32)
      ahead.bits[r * ahead.words + i] = keep32(ahead.drop, r * ahead.words + i);
  }
  float v[VECS][8], total = 0;
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    size_t c = (i * WARPS * 32 + lane) * 8, at = r * d + c;
    if (c >= d) continue;
    in_x[i].get(v[i]);
    if (branch) {
      float b[8];
      in_branch[i].get(b);
      drop8(b, drop, at / 8);
#pragma unroll
      for (int j = 0; j < 8; j++) v[i][j] += b[j];
      in_x[i].set(v[i]);
      in_x[i].store(sum + at);
      in_x[i].get(v[i]);
    }
#pragma unroll
    for (int j = 0; j < 8; j++) total += v[i][j];
  }
  float mean = row_sum<WARPS>(total) / (float)d, square = 0;
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    bool there = (i * WARPS * 32 + lane) * 8 < d;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      float off = there ? v[i][j] - mean : 0;
      square += off * off;
    }
  }
  float inverse = 1 / sqrtf(row_sum<WARPS>(square) / (float)d + epsilon);
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    size_t c = (i * WARPS * 32 + lane) * 8;
    if (c >= d) continue;
    float g[8], b[8];
    load8(g, gain + c);
    load8(b, bias + c);
#pragma unroll
    for (int j = 0; j < 8; j++) v[i][j] = (v[i][j] - mean) * inverse * g[j] + b[j];
    if constexpr (FP8) {
      in_x[i].set(v[i]);
      in_x[i].store(y + r * d + c);
    } else {
      store8(y + r * d + c, v[i]);
    }
  }
  if (lane == 0) {
    stat[2 * r] = mean;
    stat[2 * r + 1] = inverse;
  }
  if constexpr (FP8)
    convert_row<WARPS, VECS, WARPS * 256>(to.x + r * d, to.scale + r, in_x, lane * 8, d);
}

template <typename T, int WARPS, int VECS>
static __global__ void __launch_bounds__(BLOCK_WARPS * 32)
    add_norm(T *sum, T *y, float *stat, const T *x, const T *branch, const float *gain,
             const float *bias, size_t rows, size_t d, float epsilon, Drop drop) {
  norm_row<T, WARPS, VECS, false, false>(sum, y, stat, x, branch, gain, bias, rows, d, epsilon,
                                         drop, Ahead(), Fp8Rows());
}

template <typename T, int VECS>
static __global__ void __launch_bounds__(BLOCK_WARPS * 32)
    add_norm_drawing(T *sum, T *y, float *stat, const T *x, const T *branch, const float *gain,
                     const float *bias, size_t rows, size_t d, float epsilon, Drop drop,
                     Ahead ahead) {
  norm_row<T, 1, VECS, true, false>(sum, y, stat, x, branch, gain, bias, rows, d, epsilon, drop,
                                    ahead, Fp8Rows());
}

template <int WARPS, int VECS>
static __global__ void __launch_bounds__(BLOCK_WARPS * 32)
    add_norm_fp8(__nv_bfloat16 *sum, __nv_bfloat16 *y, float *stat, const __nv_bfloat16 *x,
                 const __nv_bfloat16 *branch, const float *gain, const float *bias, size_t rows,
                 size_t d, float epsilon, Drop drop, Fp8Rows to) {
  norm_row<__nv_bfloat16, WARPS, VECS, false, true>(sum, y, stat, x, branch, gain, bias, rows,
                                                    d, epsilon, drop, Ahead(), to);
}

/* For any d and alignment: uses one block per row and makes three passes over the row. */
template <typename T>
static __global__ void __launch_bounds__(256)
    add_norm_plain(T *sum, T *y, float *stat, const T *x, const T *branch, const float *gain,
                   const float *bias, size_t d, float epsilon, Drop drop) {
  size_t r = blockIdx.x;
  const T *row = branch ? sum + r * d : x + r * d;
  float total = 0, square = 0;
  for (size_t c = threadIdx.x; c < d; c += 256) {
    size_t at = r * d + c;
    if (branch) set_float(sum[at], to_float(x[at]) + to_float(branch[at]) * drop1(drop, at));
    total += to_float(row[c]);
  }
  float mean = block_sum<256>(total) / (float)d;
  for (size_t c = threadIdx.x; c < d; c += 256) {
    float off = to_float(row[c]) - mean;
    square += off * off;
  }
  float inverse = 1 / sqrtf(block_sum<256>(square) / (float)d + epsilon);
  for (size_t c = threadIdx.x; c < d; c += 256)
    set_float(y[r * d + c], (to_float(row[c]) - mean) * inverse * gain[c] + bias[c]);
  if (threadIdx.x == 0) {
    stat[2 * r] = mean;
    stat[2 * r + 1] = inverse;
  }
}

#define MAX_FAST_D 4096

/* Returns true if add_norm can load and store eight elements at a time. */
static bool is_fast_norm(const void *sum, const void *y, const void *x, const void *branch,
                         const float *gain, const float *bias, size_t d) {
  return d % 8 == 0 && d <= MAX_FAST_D && is_aligned(y) && is_aligned(x) && is_aligned(gain) &&
         is_aligned(bias) && (!branch || (is_aligned(sum) && is_aligned(branch)));
}

bool kernel_converts_norm(size_t d) {
  return d % 8 == 0 && d <= MAX_FAST_D;
}

cudaError_t kernel_add_norm_fp8(Fp8Rows to, void *sum, void *y, float *stat, const void *x,
                                const void *branch, const float *gain, const float *bias,
                                const AddNorm *n, cudaStream_t stream) {
  typedef __nv_bfloat16 T;
  if (n->rows == 0) return cudaSuccess;
  if (n->ahead || !is_fast_norm(sum, y, x, branch, gain, bias, n->d))
    return cudaErrorInvalidValue;
  auto launch = [&](auto kernel, size_t per_block) {
    kernel<<<blocks_for(n->rows, per_block), BLOCK_WARPS * 32, 0, stream>>>(
        (T *)sum, (T *)y, stat, (const T *)x, (const T *)branch, gain, bias, n->rows, n->d,
        n->epsilon, drop_of(n->drop), to);
  };
  if (n->d <= 1024)
    launch(add_norm_fp8<1, 4>, 4);
  else if (n->d <= 2048)
    launch(add_norm_fp8<4, 2>, 1);
  else
    launch(add_norm_fp8<4, 4>, 1);
  return cudaGetLastError();
}

cudaError_t kernel_add_norm(Type type, void *sum, void *y, float *stat, const void *x,
                            const void *branch, const float *gain, const float *bias,
                            const AddNorm *n, cudaStream_t stream) {
  if (n->rows == 0) return cudaSuccess;
  Drop drop = drop_of(n->drop);
  size_t rows = n->rows, d = n->d;
  bool fast = is_fast_norm(sum, y, x, branch, gain, bias, d);
  bool draws = n->ahead && drop_of(n->ahead_drop).threshold && fast && type != TYPE_F32 &&
               d > 256 && d <= 1024;
  if (n->ahead && !draws) {
    cudaError_t err = kernel_draw_bits(n->ahead, rows * n->ahead_width, n->ahead_drop, stream);
    if (err) return err;
  }
  return with_type(type, [&](auto t) {
    typedef decltype(t) T;
    auto launch = [&](auto kernel, size_t per_block, auto... more) {
      kernel<<<blocks_for(rows, per_block), BLOCK_WARPS * 32, 0, stream>>>(
          (T *)sum, (T *)y, stat, (const T *)x, (const T *)branch, gain, bias, rows, d,
          n->epsilon, drop, more...);
    };
    if constexpr (sizeof(T) == 2) {
      if (draws) {
        launch(d <= 512 ? add_norm_drawing<T, 2> : add_norm_drawing<T, 4>, 4, ahead_of(n));
        return;
      }
    }
    if (!fast)
      add_norm_plain<T><<<(unsigned)rows, 256, 0, stream>>>((T *)sum, (T *)y, stat,
                                                            (const T *)x, (const T *)branch,
                                                            gain, bias, d, n->epsilon, drop);
    else if (d <= 256)
      launch(add_norm<T, 1, 1>, 4);
    else if (d <= 512)
      launch(add_norm<T, 1, 2>, 4);
    /* a row of at most 1024 elements of 2 bytes fits into the registers of a warp */
    else if (d <= 1024 && sizeof(T) == 2)
      launch(add_norm<T, 1, 4>, 4);
    else if (d <= 1024)
      launch(add_norm<T, 4, 1>, 1);
    else if (d <= 2048)
      launch(add_norm<T, 4, 2>, 1);
    else
      launch(add_norm<T, 4, 4>, 1);
  });
}
