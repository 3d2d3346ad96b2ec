/* ReLU and its backward that also convert their result to fp8. A block processes whole rows,
 * because the scale of a row needs its maximum. Depends on fp8.cuh, columns.cu. */
#include "backend/cuda/fp8.cuh"

#define THREADS    256 /* threads of a block; twice as many for rows of more than 2048 columns */
#define SM_THREADS 512 /* threads of all blocks of an SM, limited by their registers */
#define PARTS      264 /* partial sums: two for each of the 132 SMs of an H100 or H200 */

/* `activate` of ReLU (elements.cu) for whole rows, one per block, which also converts them to
 * fp8. A thread has GROUPS groups of eight elements of its row, THREADS groups apart. The last
 * rows come first: the preceding GEMM may have left them in L2. */
template <int GROUPS>
static __global__ void __launch_bounds__(THREADS)
    relu_fp8(Fp8Rows to, __nv_bfloat16 *y, uint8_t *mask, const __nv_bfloat16 *x,
             const __nv_bfloat16 *bias, size_t width, Drop drop) {
  size_t r = gridDim.x - 1 - blockIdx.x, eights = width / 8, first = r * eights + threadIdx.x;
  Eight<__nv_bfloat16> in[GROUPS], more[GROUPS];
  uint32_t word[GROUPS][2];
  auto is_in_row = [&](int k) { return threadIdx.x + k * THREADS < eights; };
#pragma unroll
  for (int k = 0; k < GROUPS; k++) {
    if (is_in_row(k)) in[k].load(x + (first + k * THREADS) * 8);
    if (is_in_row(k) && bias) more[k].load(bias + (threadIdx.x + k * THREADS) * 8);
  }
  if (drop.threshold) drop_words<GROUPS, THREADS>(word, drop, first);
  float most = 0;
#pragma unroll
  for (int k = 0; k < GROUPS; k++) {
    float v[8], b[8];
    if (!is_in_row(k)) continue;
    in[k].get(v);
    if (bias) more[k].get(b);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      if (bias) v[i] += b[i];
      v[i] = fmaxf(v[i], 0);
      if (drop.threshold) v[i] = is_kept(word[k], i, drop) ? v[i] * drop.scale : 0;
    }
    if (mask) mask[first + k * THREADS] = (uint8_t)positive_mask(v);
    in[k].set(v);
    in[k].store(y + (first + k * THREADS) * 8);
    in[k].get(v);
    most = fp8_max(most, v);
  }
  most = block_max<THREADS>(most);
  float by = fp8_factor(most);
#pragma unroll
  for (int k = 0; k < GROUPS; k++) {
    if (is_in_row(k)) fp8_store8(to.x + (first + k * THREADS) * 8, in[k], by);
  }
  if (threadIdx.x == 0) to.scale[r] = most / FP8_LARGEST;
}

/* Returns the maximum of each of 8 rows over a block to all its threads. most: this thread's
 * maxima; part: one element per row and warp. */
template <int COUNT>
static __device__ __forceinline__ void rows_max(float (&most)[8], float (&part)[8][COUNT]) {
  constexpr int EACH = COUNT / 4; /* Four lanes combine the warps of a row. */
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int a = 0; a < 8; a++) {
    most[a] = warp_max(most[a]);
    if (lane == 0) part[a][threadIdx.x / 32] = most[a];
  }
  __syncthreads();
  float all = 0;
#pragma unroll
  for (int i = 0; i < EACH; i++) all = fmaxf(all, part[lane / 4][lane % 4 * EACH + i]);
  all = fmaxf(all, __shfl_xor_sync(0xffffffffu, all, 1));
  all = fmaxf(all, __shfl_xor_sync(0xffffffffu, all, 2));
#pragma unroll
  for (int a = 0; a < 8; a++) most[a] = __shfl_sync(0xffffffffu, all, a * 4);
}

/* Computes dx, its rows in fp8 and this block's sums of its columns, parts (gridDim.x, n);
 * eight columns per thread. Blocks alternate over pieces of AHEAD rows, from the last rows to
 * the first: the preceding GEMM may have left the last rows in L2. The next piece is loaded
 * before the barrier that the maxima of the rows need. dx may be dy. */
template <int COUNT>
static __global__ void __launch_bounds__(COUNT, SM_THREADS / COUNT)
    relu_backward_fp8(Fp8Rows to, __nv_bfloat16 *dx, float *parts, const __nv_bfloat16 *dy,
                      const uint8_t *mask, size_t rows, size_t n, float scale) {
  constexpr int AHEAD = 8;
  /* used in turn, so that one barrier per turn is sufficient */
  __shared__ float part[2][AHEAD][COUNT / 32];
  size_t column = threadIdx.x * (size_t)8, a_turn = AHEAD * (size_t)gridDim.x;
  size_t turns = (rows + a_turn - 1) / a_turn, pieces = turns * gridDim.x;
  /* The first `longer` pieces have one row more than the others. */
  size_t least = rows / pieces, longer = rows % pieces;
  bool there = column < n;
  float sum[8] = {0}, x[8];
  Eight<__nv_bfloat16> in[AHEAD], out[AHEAD];
  uint32_t bits[AHEAD];
  auto begin_of = [&](size_t turn) {
    size_t piece = turn * gridDim.x + blockIdx.x;
    return piece * least + (piece < longer ? piece : longer);
  };
  auto count_of = [&](size_t turn) {
    return (int)(least + (turn * gridDim.x + blockIdx.x < longer));
  };
  auto load = [&](size_t turn) {
    size_t at = begin_of(turn) * n + column;
    int count = there ? count_of(turn) : 0;
#pragma unroll
    for (int a = 0; a < AHEAD; a++, at += n) {
      in[a].raw = make_uint4(0, 0, 0, 0);
      bits[a] = 0;
      if (a < count) {
        in[a].load(dy + at);
        bits[a] = mask[at / 8];
      }
    }
  };
  if (turns) load(turns - 1);
  for (size_t turn = turns; turn-- > 0;) {
    size_t first = begin_of(turn);
    int count = count_of(turn);
    float most[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      in[a].get(x);
#pragma unroll
      for (int i = 0; i < 8; i++) {
        x[i] = bits[a] >> i & 1 ? x[i] * scale : 0;
        sum[i] += x[i];
      }
      out[a].set(x);
      out[a].get(x);
      most[a] = fp8_max(0, x);
      if (there && a < count) out[a].store(dx + (first + a) * n + column);
    }
    if (turn) load(turn - 1);
    rows_max(most, part[turn % 2]);
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      if (a >= count) break;
      if (there) fp8_store8(to.x + (first + a) * n + column, out[a], fp8_factor(most[a]));
      if (threadIdx.x == 0) to.scale[first + a] = most[a] / FP8_LARGEST;
    }
  }
  if (there) store8(parts + blockIdx.x * n + column, sum);
}

cudaError_t kernel_relu_fp8(Fp8Rows to, void *y, uint8_t *mask, const void *x, const void *bias,
                            size_t rows, size_t width, Dropout dropout, cudaStream_t stream) {
  typedef __nv_bfloat16 T;
  if (rows == 0) return cudaSuccess;
  if (width % 8 || width > FP8_MAX_DIM || !is_aligned(y) || !is_aligned(x) || !is_aligned(bias))
    return cudaErrorInvalidValue;
  auto launch = [&](auto kernel) {
    kernel<<<(unsigned)rows, THREADS, 0, stream>>>(to, (T *)y, mask, (const T *)x,
                                                   (const T *)bias, width, drop_of(dropout));
  };
  if (width <= THREADS * 8)
    launch(relu_fp8<1>);
  else if (width <= THREADS * 16)
    launch(relu_fp8<2>);
  else if (width <= THREADS * 32)
    launch(relu_fp8<4>);
  else
    launch(relu_fp8<8>);
  return cudaGetLastError();
}

size_t kernel_relu_backward_fp8_work(size_t n) {
  return PARTS * n * sizeof(float);
}

bool kernel_converts_relu_backward(size_t n) {
  return n % 8 == 0 && n >= THREADS * 4 && n <= THREADS * 16;
}

cudaError_t kernel_relu_backward_fp8(Fp8Rows to, void *dx, float *dbias, const void *dy,
                                     const uint8_t *mask, size_t rows, size_t n,
                                     Dropout dropout, bool add, void *work,
                                     cudaStream_t stream) {
  typedef __nv_bfloat16 T;
  if (!kernel_converts_relu_backward(n) || !is_aligned(dx) || !is_aligned(dy))
    return cudaErrorInvalidValue;
  if (rows == 0) return kernel_add_parts(&dbias, 1, n, NULL, 0, 1, add, stream);
  bool wide = n > THREADS * 8;
  size_t count = wide ? PARTS / 2 : PARTS, pieces = (rows + 7) / 8;
  if (count > pieces) count = pieces;
  auto launch = [&](auto kernel, int threads) {
    kernel<<<(unsigned)count, threads, 0, stream>>>(to, (T *)dx, (float *)work, (const T *)dy,
                                                    mask, rows, n, drop_of(dropout).scale);
  };
  if (wide)
    launch(relu_backward_fp8<2 * THREADS>, 2 * THREADS);
  else
    launch(relu_backward_fp8<THREADS>, THREADS);
  cudaError_t err = cudaGetLastError();
  if (err) return err;
  return kernel_add_parts(&dbias, 1, n, (const float *)work, count, 1, add, stream);
}
