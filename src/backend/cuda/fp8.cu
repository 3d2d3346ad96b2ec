/* Converts the operands of a GEMM to fp8, with one scale per row. Depends on fp8.cuh. */
#include "backend/cuda/fp8.cuh"

/* A block has four warps: one row per warp (WARPS 1), or one row for all (WARPS 4). A thread
 * holds VECS times eight columns of its row, WARPS * 256 columns apart. */
#define BLOCK_WARPS 4
#define THREADS     (BLOCK_WARPS * 32)
#define PIECE_ROWS  4 /* rows per thread that a block transposes at a time */
/* columns that a block transposes: few, so that a block reads them in few turns, which take a
 * memory latency each, and matrices of 1024 columns have a block for nearly every SM of an H100 or
 * H200 */
#define STRIP 8
/* threads of a block that transposes alone, beside no conversion of x */
#define ALONE_THREADS 1024

typedef __nv_bfloat16 Low;

/* Returns the maximum over the threads that share a row. */
template <int WARPS>
static __device__ __forceinline__ float row_max(float x) {
  __shared__ float part[BLOCK_WARPS];
  x = warp_max(x);
  if (WARPS == 1) return x;
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < WARPS; w++) x = fmaxf(x, part[w]);
  return x;
}

/* Converts one row. fmaxf ignores NaN, and a NaN element stays NaN. An infinite element becomes
 * NaN and the other elements of its row become 0. */
template <int WARPS, int VECS>
static __device__ __forceinline__ void convert_row(uint8_t *to, float *scale, const Low *from,
                                                   size_t n) {
  size_t lane = WARPS == 1 ? threadIdx.x % 32 : threadIdx.x;
  Eight<Low> in[VECS];
  float most = 0, x[8];
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    size_t c = (i * WARPS * 32 + lane) * 8;
    if (c < n) in[i].load(from + c);
  }
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    if ((i * WARPS * 32 + lane) * 8 >= n) continue;
    in[i].get(x);
    most = fp8_max(most, x);
  }
  most = row_max<WARPS>(most);
  float by = fp8_factor(most);
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    size_t c = (i * WARPS * 32 + lane) * 8;
    if (c < n) fp8_store8(to + c, in[i], by);
  }
  if (lane == 0) *scale = most / FP8_LARGEST;
}

/* Converts and transposes STRIP columns of w (out, in) to rows of (in, out), by COUNT threads.
 * Pass 1: the maximum of each column; pass 2: conversion, in pieces of PIECE rows through shared
 * memory. */
template <int COUNT>
static __device__ __forceinline__ void transpose_strip(uint8_t *to, float *scale, const Low *w,
                                                       size_t in, size_t out, size_t column) {
  constexpr int PIECE = COUNT * PIECE_ROWS;
  __shared__ float part[COUNT / 32][STRIP], total[STRIP];
  __shared__ __align__(16) uint8_t piece[STRIP][PIECE + 16];
  unsigned row = threadIdx.x; /* A thread has every COUNT-th row. */
  const Low *from = w + column;
  float most[STRIP] = {0}, x[STRIP], by[STRIP];
  Eight<Low> e[PIECE_ROWS];
  auto load = [&](size_t first) {
#pragma unroll
    for (int i = 0; i < PIECE_ROWS; i++) {
      size_t r = first + row + i * COUNT;
      e[i].raw = make_uint4(0, 0, 0, 0);
      if (r < out) e[i].load(from + r * in);
    }
  };
  for (size_t first = 0; first < out; first += PIECE) {
    load(first);
#pragma unroll
    for (int i = 0; i < PIECE_ROWS; i++) {
      e[i].get(x);
#pragma unroll
      for (int j = 0; j < STRIP; j++) most[j] = fmaxf(most[j], fabsf(x[j]));
    }
  }
#pragma unroll
  for (int j = 0; j < STRIP; j++) {
    most[j] = warp_max(most[j]);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32][j] = most[j];
  }
  __syncthreads();
  if (threadIdx.x < STRIP) {
    float all = 0;
#pragma unroll
    for (int i = 0; i < COUNT / 32; i++) all = fmaxf(all, part[i][threadIdx.x]);
    total[threadIdx.x] = all;
    scale[column + threadIdx.x] = all / FP8_LARGEST;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < STRIP; j++) by[j] = fp8_factor(total[j]);
  for (size_t first = 0; first < out; first += PIECE) {
    /* One large piece is still in registers; small blocks would need more of them for that. */
    if (COUNT < ALONE_THREADS || out > PIECE) load(first);
    /* All threads must have read the previous rows from shared memory. */
    if (first) __syncthreads();
#pragma unroll
    for (int i = 0; i < PIECE_ROWS; i++) {
      e[i].get(x);
#pragma unroll
      for (int j = 0; j < STRIP; j += 2) {
        uint32_t two = fp8_convert2(x[j] * by[j], x[j + 1] * by[j + 1]);
        piece[j][row + i * COUNT] = (uint8_t)two;
        piece[j + 1][row + i * COUNT] = (uint8_t)(two >> 8);
      }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < STRIP * PIECE / 16; i += COUNT) {
      unsigned c = i / (PIECE / 16), r = i % (PIECE / 16) * 16;
      if (first + r < out)
        *(uint4 *)(void *)(to + (column + c) * out + first + r) =
            *(uint4 *)(void *)&piece[c][r];
    }
  }
}

/* Converts x (rows, n), from the last row to the first because the last may still be in L2.
 * Before x it converts w: the rows of (more, n) or, if TRANSPOSES, the columns of (n, more). */
template <int WARPS, int VECS, bool TRANSPOSES>
static __global__ void __launch_bounds__(THREADS)
    convert(Fp8 to, const Low *x, const Low *w, size_t rows, size_t n, size_t more) {
  const size_t per_block = BLOCK_WARPS / WARPS;
  size_t block = blockIdx.x, strips = TRANSPOSES ? more / STRIP : 0;
  if (TRANSPOSES && block < strips) {
    transpose_strip<THREADS>(to.w, to.w_scale, w, more, n, block * STRIP);
    return;
  }
  size_t r = (gridDim.x - 1 - block) * per_block + (WARPS == 1 ? threadIdx.x / 32 : 0);
  if (r < rows)
    convert_row<WARPS, VECS>(to.x + r * n, to.x_scale + r, x + r * n, n);
  else if (!TRANSPOSES && (r -= rows) < more)
    convert_row<WARPS, VECS>(to.w + r * n, to.w_scale + r, w + r * n, n);
}

/* Converts the columns of w (n, more) alone. */
static __global__ void __launch_bounds__(ALONE_THREADS)
    transpose(Fp8 to, const Low *w, size_t n, size_t more) {
  transpose_strip<ALONE_THREADS>(to.w, to.w_scale, w, more, n, blockIdx.x * (size_t)STRIP);
}

size_t kernel_fp8_work(size_t rows, size_t in, size_t out) {
  size_t most = in > out ? in : out;
  return fp8_round_up(rows * most) + fp8_round_up(in * out) +
         fp8_round_up(rows * sizeof(float)) + fp8_round_up(most * sizeof(float));
}

Fp8Rows kernel_fp8_rows(void *work, size_t rows, size_t n) {
  Fp8Rows to = {(uint8_t *)work, (float *)(void *)((char *)work + fp8_round_up(rows * n))};
  return to;
}

cudaError_t kernel_fp8(Fp8 *to, const void *x, const void *w, size_t rows, size_t in,
                       size_t out, bool back, void *work, cudaStream_t stream) {
  size_t n = back ? out : in, more = back ? in : out;
  Fp8Rows first = kernel_fp8_rows(work, rows, n);
  char *at = (char *)first.scale + fp8_round_up(rows * sizeof(float));
  to->x = first.x;
  to->x_scale = first.scale;
  to->w = (uint8_t *)at;
  to->w_scale = (float *)(void *)(at + fp8_round_up(in * out));
  if (!x) rows = 0; /* The rows of x are there already. */
  auto launch = [&](auto kernel, size_t per_block) {
    size_t blocks = back ? more / STRIP + (rows + per_block - 1) / per_block
                         : (rows + more + per_block - 1) / per_block;
    kernel<<<(unsigned)blocks, THREADS, 0, stream>>>(*to, (const Low *)x, (const Low *)w, rows,
                                                     n, more);
  };
#define LAUNCH(WARPS, VECS)                                  \
  if (back)                                                  \
    launch(convert<WARPS, VECS, true>, BLOCK_WARPS / WARPS); \
  else                                                       \
    launch(convert<WARPS, VECS, false>, BLOCK_WARPS / WARPS)
  if (n % FP8_MULTIPLE || more % FP8_MULTIPLE || n > FP8_MAX_DIM) return cudaErrorInvalidValue;
  if (back && !x) {
    transpose<<<(unsigned)(more / STRIP), ALONE_THREADS, 0, stream>>>(*to, (const Low *)w, n,
                                                                      more);
  } else if (n <= 1024) {
    LAUNCH(1, 4);
  } else if (n <= 2048) {
    LAUNCH(1, 8);
  } else if (n <= 4096) {
    LAUNCH(4, 4);
  } else if (n <= 8192) {
    LAUNCH(4, 8);
  } else {
    LAUNCH(4, 16);
  }
#undef LAUNCH
  return cudaGetLastError();
}
