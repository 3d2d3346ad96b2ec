/* Column sums of a matrix, in two kernels: each block sums a part of the rows, then the partial
 * sums are added in a fixed order. Depends on sections.cuh. */
#include "backend/cuda/sections.cuh"

#define WARPS  8
#define BLOCKS 1024
/* blocks of sum_share that an SM runs at once: all its threads */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define SUM_BLOCKS 4
#elif defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1200) && \
    __CUDA_ARCH__ != 800
#define SUM_BLOCKS 6
#else
#define SUM_BLOCKS 8
#endif
#define WIDE  256 /* threads of a block that processes whole rows */
#define AHEAD 8   /* rows that a thread of such a block loads at a time */

static int assumed_sms;

void kernel_assume_sms(int sms) {
  assumed_sms = sms;
}

cudaError_t kernel_count_sms(size_t *count) {
  int device = 0, sms = assumed_sms;
  cudaError_t err = cudaSuccess;
  if (!sms) err = cudaGetDevice(&device);
  if (!sms && !err) err = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  *count = (size_t)sms;
  return err;
}

/* Adds the sums of the warps, eight columns per lane, and writes them to this block's row of
 * parts (gridDim.y, n). */
static __device__ __forceinline__ void write_share(float *parts, const float sum[8], size_t n) {
  __shared__ float shared[WARPS][256];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < 8; i++) shared[warp][lane * 8 + i] = sum[i];
  __syncthreads();
  size_t mine = blockIdx.x * (size_t)256 + threadIdx.x;
  if (mine >= n) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < WARPS; w++) total += shared[w][threadIdx.x];
  parts[blockIdx.y * n + mine] = total;
}

/* Sums this block's part of the rows: eight columns per thread; the warps alternate over the
 * rows. */
template <typename T, bool VECTOR>
static __global__ void __launch_bounds__(WARPS * 32, SUM_BLOCKS)
    sum_share(float *parts, const T *dy, size_t rows, size_t n) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  size_t column = blockIdx.x * (size_t)256 + lane * 8;
  size_t share = (rows + gridDim.y - 1) / gridDim.y, begin = blockIdx.y * share;
  size_t end = begin + share < rows ? begin + share : rows;
  int count = column >= n ? 0 : n - column < 8 ? (int)(n - column) : 8;
  float sum[8] = {0};
  if (count) {
    const T *at = dy + (begin + warp) * n + column;
    int left = end > begin + warp ? (int)((end - begin - warp + WARPS - 1) / WARPS) : 0;
#pragma unroll 4
    for (; left > 0; left--, at += WARPS * n) {
      float x[8];
      if (VECTOR)
        load8(x, at);
      else
        load_some(x, at, count);
#pragma unroll
      for (int i = 0; i < 8; i++) sum[i] += x[i];
    }
  }
  write_share(parts, sum, n);
}

/* Backward of ReLU (see elements.cu) and column sums of its result. A team of `lanes` threads
 * processes a row, or 2048 columns of it, eight columns per thread. dx may be dy, so the
 * compiler cannot move loads before stores: AHEAD rows are loaded explicitly before the first
 * is stored. Blocks alternate over pieces of rows, so that all blocks work in one region of
 * memory, from the last rows to the first: the preceding GEMM may have left the last rows in
 * L2. A share has a piece in every turn. */
template <typename T>
static __global__ void __launch_bounds__(WIDE, SM_BLOCKS)
    relu_backward_share(T *dx, float *parts, const T *dy, const uint8_t *mask, size_t rows,
                        size_t n, int lanes, float scale, Sections s) {
  __shared__ float shared[WIDE * 8], totals[WIDE * 8];
  int team = threadIdx.x / lanes, teams = WIDE / lanes, lane = threadIdx.x % lanes;
  size_t column = (blockIdx.x * (size_t)lanes + lane) * 8;
  size_t pieces = (size_t)s.turns * s.shares;
  /* The first `longer` pieces have one row more than the others. */
  size_t least = rows / pieces, longer = rows % pieces;
  bool has_columns = column < n && team < teams;
  for (unsigned number = blockIdx.y; number < s.shares * s.each; number += gridDim.y) {
    Section now = find_section(s, number, gridDim.y);
    float sum[8] = {0};
    for (unsigned turn = now.begin; has_columns && turn < now.end; turn++) {
      size_t piece = (s.turns - 1 - turn) * (size_t)s.shares + now.share;
      size_t begin = piece * least + (piece < longer ? piece : longer);
      size_t first = begin + team, end = begin + least + (piece < longer);
      Eight<T> in[AHEAD];
      uint32_t bits[AHEAD];
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        size_t r = first + a * teams, at = r * n + column;
        if (r < end) {
          in[a].load(dy + at);
          bits[a] = mask[at / 8];
        }
      }
#pragma unroll
      for (int a = 0; a < AHEAD; a++) {
        size_t r = first + a * teams;
        float x[8];
        if (r >= end) break;
        in[a].get(x);
#pragma unroll
        for (int i = 0; i < 8; i++) {
          x[i] = bits[a] >> i & 1 ? x[i] * scale : 0;
          sum[i] += x[i];
        }
        store8(dx + r * n + column, x);
      }
    }
    __syncthreads(); /* All threads must have read the sums of the previous section. */
#pragma unroll
    for (int i = 0; i < 8; i++) shared[i * WIDE + threadIdx.x] = sum[i];
    __syncthreads();
    /* A thread has the same columns in every section, so that `totals` needs no barrier. */
    for (int k = threadIdx.x; k < lanes * 8; k += WIDE) {
      size_t c = blockIdx.x * (size_t)lanes * 8 + k;
      float total = 0;
      for (int t = 0; t < teams; t++) total += shared[k % 8 * WIDE + t * lanes + k / 8];
      if (now.continues_part) total = totals[k] + total;
      totals[k] = total;
      if (now.completes_part && c < n) parts[now.part * n + c] = total;
    }
  }
}

/* Destinations of the sums, `width` columns each. */
struct Targets {
  float *at[3];
  size_t width;
};

/* Sums `count` times EACH rows of parts: 32 columns per block; 32 warps alternate over the
 * groups of EACH adjacent rows. */
template <int EACH>
static __global__ void __launch_bounds__(1024)
    add_parts(Targets to, const float *parts, size_t count, size_t n, bool add) {
  __shared__ float shared[32][33];
  int x = threadIdx.x % 32, y = threadIdx.x / 32;
  size_t column = blockIdx.x * (size_t)32 + x;
  float sum = 0;
  if (column < n) {
#pragma unroll(8 / EACH)
    for (size_t p = y; p < count; p += 32) {
      const float *at = parts + p * EACH * n + column;
      float one = *at;
#pragma unroll
      for (int i = 1; i < EACH; i++) one += at[i * n];
      sum += one;
    }
  }
  shared[y][x] = sum;
  __syncthreads();
  sum = warp_sum(shared[x][y]);
  column = blockIdx.x * (size_t)32 + y;
  if (x || column >= n) return;
  float *at = to.at[0] + column;
  if (column >= to.width) at = to.at[1] + (column - to.width);
  if (column >= 2 * to.width) at = to.at[2] + (column - 2 * to.width);
  *at = add ? *at + sum : sum;
}

cudaError_t kernel_add_parts(float *const *to, int targets, size_t width, const float *parts,
                             size_t count, size_t each, bool add, cudaStream_t stream) {
  Targets all = {{NULL, NULL, NULL}, width};
  size_t n = targets * width;
  for (int i = 0; i < targets; i++) all.at[i] = to[i];
  auto launch = [&](auto kernel) {
    kernel<<<blocks_for(n, 32), 1024, 0, stream>>>(all, parts, count, n, add);
  };
  static_assert(MOST_SECTIONS == 3, "");
  if (each == 1)
    launch(add_parts<1>);
  else if (each == 2)
    launch(add_parts<2>);
  else
    launch(add_parts<3>);
  return cudaGetLastError();
}

/* Returns the threads of a team, for relu_backward_share. */
static int wide_lanes(size_t n) {
  return n < WIDE * 8 ? (int)(n / 8) : WIDE;
}
/* Divides the rows for relu_backward_share; n is a multiple of 8. */
static Sections divide_wide(size_t rows, size_t n) {
  size_t across = (n + WIDE * 8 - 1) / (WIDE * 8), teams = WIDE / wide_lanes(n);
  size_t most = across > MOST_SHARES ? 1 : MOST_SHARES / across, want = (rows + 7) / 8;
  size_t shares = want < most ? want : most, a_turn = AHEAD * teams * shares;
  return divide_turns(shares, (rows + a_turn - 1) / a_turn);
}

/* Returns the number of partial sums. It depends only on the shape, so that sums have the same
 * bits on every GPU. */
static size_t count_shares(size_t rows, size_t n) {
  size_t columns = (n + 255) / 256, most = columns > BLOCKS ? 1 : BLOCKS / columns;
  size_t want = (rows + 31) / 32;
  return want < most ? want : most;
}

size_t kernel_column_sums_work(size_t rows, size_t n) {
  size_t most = count_shares(rows, n);
  if (rows && n && n % 8 == 0) {
    Sections s = divide_wide(rows, n);
    size_t wide = (size_t)s.shares * s.each;
    if (wide > most) most = wide;
  }
  return most * n * sizeof(float);
}

cudaError_t kernel_column_sums(Type type, float *dbias, const void *dy, size_t rows, size_t n,
                               bool add, void *work, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  if (rows == 0) return kernel_add_parts(&dbias, 1, n, NULL, 0, 1, add, stream);
  float *parts = (float *)work;
  size_t count = count_shares(rows, n);
  dim3 grid(blocks_for(n, 256), (unsigned)count);
  cudaError_t err = with_type(type, [&](auto t) {
    typedef decltype(t) T;
    if (n % 8 == 0 && is_aligned(dy))
      sum_share<T, true><<<grid, WARPS * 32, 0, stream>>>(parts, (const T *)dy, rows, n);
    else
      sum_share<T, false><<<grid, WARPS * 32, 0, stream>>>(parts, (const T *)dy, rows, n);
  });
  if (err) return err;
  return kernel_add_parts(&dbias, 1, n, parts, count, 1, add, stream);
}

cudaError_t kernel_relu_backward_sums(Type type, void *dx, float *dbias, const void *dy,
                                      const uint8_t *mask, size_t rows, size_t n, float scale,
                                      bool add, void *work, cudaStream_t stream) {
  float *parts = (float *)work;
  int lanes = wide_lanes(n);
  size_t sms;
  cudaError_t err = kernel_count_sms(&sms);
  if (err) return err;
  Sections s = divide_wide(rows, n);
  unsigned across = blocks_for(n, (size_t)lanes * 8);
  unsigned blocks = count_section_blocks(s, sms, across);
  dim3 grid(across, blocks);
  err = with_type(type, [&](auto t) {
    typedef decltype(t) T;
    relu_backward_share<T><<<grid, WIDE, 0, stream>>>((T *)dx, parts, (const T *)dy, mask, rows,
                                                      n, lanes, scale, s);
  });
  if (err) return err;
  return kernel_add_parts(&dbias, 1, n, parts, s.shares, count_share_parts(s, blocks), add,
                          stream);
}
