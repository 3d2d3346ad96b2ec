/* Converts the operands of a GEMM to fp8 with one scale per tensor, for GPUs on which cuBLASLt has
 * no GEMMs with one scale per row. Weights and activations become e4m3. The gradient of an output
 * becomes e5m2 (5 bits of exponent, 2 of mantissa): its rows differ in magnitude by more than the
 * range of e4m3, and a small row without a scale of its own would become 0. Depends on fp8.cuh.
 *
 * The first kernel finds the largest absolute values of x and w, the second one converts. The
 * largest value does not depend on the order of blocks, so the bits are the same in each run. */
#include "backend/cuda/fp8.cuh"

#define THREADS    128
#define VECS       8                            /* times eight elements per thread */
#define BLOCK_SIZE ((size_t)THREADS * VECS * 8) /* elements of x or w that a block handles */
#define STRIP      FP8_MULTIPLE                 /* columns that a block transposes */
#define PIECE      128                          /* rows that a block transposes */
#define PIECE_ROWS 4                            /* those rows per thread */
#define E4M3_MAX   FP8_LARGEST
#define E5M2_MAX   57344.0f /* largest e5m2 number */
/* Offset of the two maxima, of x and w, in x_scale: divide_work leaves 256 bytes or more. */
#define MAXIMA_AT 32

typedef __nv_bfloat16 Low;

/* Loads this thread's part of a block's elements, beginning at `first`; zeros after n. */
static __device__ __forceinline__ void load_block(Eight<Low> (&e)[VECS], const Low *from,
                                                  size_t first, size_t n) {
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    size_t c = first + ((size_t)i * THREADS + threadIdx.x) * 8;
    e[i].raw = make_uint4(0, 0, 0, 0);
    if (c < n) e[i].load(from + c);
  }
}

/* most[0], most[1]: maxima of x (x_size elements) and w (w_size), as the bits of floats, which
 * are ordered like integers if there is no sign. fmaxf ignores NaN. The first blocks read x. */
static __global__ void __launch_bounds__(THREADS)
    find_largest(uint32_t *most, const Low *x, const Low *w, size_t x_size, size_t w_size,
                 unsigned x_blocks) {
  bool of_w = blockIdx.x >= x_blocks;
  size_t first = (size_t)(of_w ? blockIdx.x - x_blocks : blockIdx.x) * BLOCK_SIZE;
  Eight<Low> e[VECS];
  float largest = 0, y[8];
  load_block(e, of_w ? w : x, first, of_w ? w_size : x_size);
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    e[i].get(y);
    largest = fp8_max(largest, y);
  }
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0) atomicMax(most + of_w, __float_as_uint(largest));
}

/* Converts a block of x or w. A NaN element stays NaN. An infinite element becomes NaN, the other
 * elements become 0, and the scale is infinite, so that the whole product is NaN. */
template <__nv_fp8_interpretation_t KIND>
static __device__ __forceinline__ void convert_block(uint8_t *to, const Low *from, size_t first,
                                                     size_t n, float by) {
  Eight<Low> e[VECS];
  load_block(e, from, first, n);
#pragma unroll
  for (int i = 0; i < VECS; i++) {
    size_t c = first + ((size_t)i * THREADS + threadIdx.x) * 8;
    if (c < n) fp8_store8<KIND>(to + c, e[i], by);
  }
}

/* A converted piece in shared memory, transposed, with padding against bank conflicts. */
struct Piece {
  __align__(16) uint8_t at[STRIP][PIECE + 16];
};

/* Loads eight columns of every 32nd row, beginning at `row`; zeros for rows from `out` on. */
static __device__ __forceinline__ void load_piece(Eight<Low> (&e)[PIECE_ROWS], const Low *from,
                                                  size_t row, size_t in, size_t out) {
#pragma unroll
  for (int i = 0; i < PIECE_ROWS; i++) {
    size_t r = row + i * 32;
    e[i].raw = make_uint4(0, 0, 0, 0);
    if (r < out) e[i].load(from + r * in);
  }
}

/* Multiplies the elements by `by`, converts them and writes them to shared memory. */
static __device__ __forceinline__ void put_piece(Piece &piece,
                                                 const Eight<Low> (&e)[PIECE_ROWS], float by) {
  unsigned quarter = threadIdx.x % 4, row = threadIdx.x / 4;
  float x[8];
#pragma unroll
  for (int i = 0; i < PIECE_ROWS; i++) {
    e[i].get(x);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      uint32_t two = fp8_convert2(x[j] * by, x[j + 1] * by);
      piece.at[quarter * 8 + j][row + i * 32] = (uint8_t)two;
      piece.at[quarter * 8 + j + 1][row + i * 32] = (uint8_t)(two >> 8);
    }
  }
}

/* Writes a piece, rows of w beginning at `first`, to STRIP rows of `out` elements. */
static __device__ __forceinline__ void write_piece(uint8_t *to, const Piece &piece,
                                                   size_t first, size_t out) {
  for (unsigned i = threadIdx.x; i < STRIP * PIECE / 16; i += THREADS) {
    unsigned c = i / (PIECE / 16), r = i % (PIECE / 16) * 16;
    if (first + r < out)
      *(uint4 *)(void *)(to + c * out + first + r) =
          *(const uint4 *)(const void *)&piece.at[c][r];
  }
}

/* Converts the piece of w (out, in) with number `block` and transposes it to (in, out). */
static __device__ __forceinline__ void transpose_piece(uint8_t *to, const Low *w, size_t in,
                                                       size_t out, size_t block, float by) {
  __shared__ Piece piece;
  size_t column = block % (in / STRIP) * STRIP, first = block / (in / STRIP) * PIECE;
  Eight<Low> e[PIECE_ROWS];
  load_piece(e, w + column + threadIdx.x % 4 * 8, first + threadIdx.x / 4, in, out);
  put_piece(piece, e, by);
  __syncthreads();
  write_piece(to + column * out, piece, first, out);
}

/* The first blocks convert x (x_size elements), the others w; BACK: x is a gradient, and w
 * (out, in) is transposed. */
template <bool BACK>
static __global__ void __launch_bounds__(THREADS)
    convert_tensors(Fp8 to, const Low *x, const Low *w, size_t x_size, size_t in, size_t out,
                    unsigned x_blocks) {
  const float limit = BACK ? E5M2_MAX : E4M3_MAX;
  float x_most = to.x_scale[MAXIMA_AT], w_most = to.x_scale[MAXIMA_AT + 1];
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    to.x_scale[0] = x_most / limit;
    to.w_scale[0] = w_most / E4M3_MAX;
  }
  size_t block = blockIdx.x < x_blocks ? blockIdx.x : blockIdx.x - x_blocks;
  float w_by = fp8_factor(w_most, E4M3_MAX);
  if (blockIdx.x < x_blocks)
    convert_block<BACK ? __NV_E5M2 : __NV_E4M3>(to.x, x, block * BLOCK_SIZE, x_size,
                                                fp8_factor(x_most, limit));
  else if (BACK)
    transpose_piece(to.w, w, in, out, block, w_by);
  else
    convert_block<__NV_E4M3>(to.w, w, block * BLOCK_SIZE, in * out, w_by);
}

/* Divides `work` among x (rows, n), w (w_size elements) and their scales. */
static Fp8 divide_work(size_t rows, size_t n, size_t w_size, void *work) {
  Fp8 to = {};
  char *at = (char *)work;
  to.x = (uint8_t *)at;
  at += fp8_round_up(rows * n);
  to.w = (uint8_t *)at;
  at += fp8_round_up(w_size);
  to.x_scale = (float *)(void *)at;
  at += fp8_round_up(rows * sizeof(float));
  to.w_scale = (float *)(void *)at;
  return to;
}

cudaError_t kernel_fp8_tensor(Fp8 *to, const void *x, const void *w, size_t rows, size_t in,
                              size_t out, bool back, void *work, cudaStream_t stream) {
  size_t n = back ? out : in, x_size = rows * n;
  if (!x || in % STRIP || out % STRIP || n > FP8_MAX_DIM) return cudaErrorInvalidValue;
  *to = divide_work(rows, n, in * out, work);
  uint32_t *most = (uint32_t *)(void *)(to->x_scale + MAXIMA_AT);
  unsigned x_blocks = blocks_for(x_size, BLOCK_SIZE),
           w_blocks = blocks_for(in * out, BLOCK_SIZE);
  cudaError_t e = cudaMemsetAsync(most, 0, 2 * sizeof *most, stream);
  if (e) return e;
  find_largest<<<x_blocks + w_blocks, THREADS, 0, stream>>>(
      most, (const Low *)x, (const Low *)w, x_size, in * out, x_blocks);
  if (back) w_blocks = (unsigned)(in / STRIP) * blocks_for(out, PIECE);
  auto kernel = back ? convert_tensors<true> : convert_tensors<false>;
  kernel<<<x_blocks + w_blocks, THREADS, 0, stream>>>(*to, (const Low *)x, (const Low *)w,
                                                      x_size, in, out, x_blocks);
  return cudaGetLastError();
}
