/* Rows of 64 columns in shared memory: how they get there, products of their tiles,
 * how results leave, and how long sentences are shared out. For attend_staged.cu,
 * attend_back_staged.cu, attend_group.cu. Relies on mma.cuh.
 *
 * Staged rows are 128 bytes: eight chunks of 16, chunk c of row r at place c ^ r % 8,
 * so that eight rows' chunks of one column lie in different banks. A tile is 16 rows. */
#ifndef BACKEND_CUDA_STAGED_CUH
#define BACKEND_CUDA_STAGED_CUH

#include "backend/cuda/mma.cuh"

#define D       64  /* columns of a head */
#define ROW     128 /* bytes of a staged row */
#define TILE    (16 * ROW)
#define HELPERS 64 /* a power of 2 */
#define LISTED  64 /* pieces a block lists at a time */
#define EACH    8  /* sentences a thread looks at, at a time */

struct Piece {
  int sentence, part;
};

#if HAS_MMA
/* Begins to copy rows 0 … count - 1, and zeros up to a whole tile, with all threads
 * of the block; tiles of `to` lie `step` bytes apart. */
template <int THREADS, typename T>
static __device__ __forceinline__ void stage(uint32_t to, int step, const T *from, size_t ld,
                                             int count) {
  int c = (int)threadIdx.x % 8, end = (count + 15) / 16 * 16;
#pragma unroll 1
  for (int row = (int)threadIdx.x / 8; row < end; row += THREADS / 8)
    copy16(to + row / 16 * step + row % 16 * ROW + ((c ^ row % 8) << 4),
           from + (size_t)(row < count ? row : 0) * ld + c * 8, row < count);
}

/* Where lane l finds row l % 16, chunk l / 16, and row l % 8, chunk l / 8, of rows that
 * begin at a multiple of eight rows; chunk c more is this ^ c << 4. */
static __device__ __forceinline__ uint32_t by_16(int lane) {
  return (uint32_t)(lane % 16 * ROW + ((lane / 16 ^ lane % 8) << 4));
}
static __device__ __forceinline__ uint32_t by_8(int lane) {
  return (uint32_t)(lane % 8 * ROW + ((lane / 8 ^ lane % 8) << 4));
}

/* The left operands of four products: 16 rows, all columns. */
static __device__ __forceinline__ void load_left(uint32_t (&x)[4][4], uint32_t tile, int lane) {
  uint32_t at = tile + by_16(lane);
#pragma unroll
  for (int c = 0; c < 4; c++) load_tiles(x[c], at ^ (uint32_t)(2 * c) << 4);
}

/* s (16, 8) += left (16, D) · rowsᵀ, eight rows. */
template <typename T>
static __device__ __forceinline__ void mma_rows(float s[4], const uint32_t (&left)[4][4],
                                                uint32_t rows, int lane) {
  uint32_t at = rows + by_8(lane);
#pragma unroll
  for (int c = 0; c < 4; c += 2) {
    uint32_t x[4];
    load_tiles(x, at ^ (uint32_t)(2 * c) << 4);
    mma<T>(s, left[c][0], left[c][1], left[c][2], left[c][3], x[0], x[1]);
    mma<T>(s, left[c + 1][0], left[c + 1][1], left[c + 1][2], left[c + 1][3], x[2], x[3]);
  }
}

/* sum (16, D) += left (16, 16) · tile (16, D). */
template <typename T>
static __device__ __forceinline__ void mma_tile(float (&sum)[D / 8][4], const uint32_t left[4],
                                                uint32_t tile, int lane) {
  uint32_t at = tile + by_16(lane);
#pragma unroll
  for (int j = 0; j < D / 8; j += 2) {
    uint32_t x[4];
    load_tiles_over(x, at ^ (uint32_t)j << 4);
    mma<T>(sum[j], left[0], left[1], left[2], left[3], x[0], x[1]);
    mma<T>(sum[j + 1], left[0], left[1], left[2], left[3], x[2], x[3]);
  }
}

static __device__ __forceinline__ void clear(float (&sum)[D / 8][4]) {
#pragma unroll
  for (int j = 0; j < D / 8; j++) sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0;
}

/* Four words of each of four lanes turned over: lane t gets word t of all. */
static __device__ __forceinline__ uint4 quad_turn(uint32_t a, uint32_t b, uint32_t c,
                                                  uint32_t d, int t) {
  bool odd = t & 1, high = t & 2;
  uint32_t x = __shfl_xor_sync(0xffffffffu, odd ? a : b, 1);
  uint32_t y = __shfl_xor_sync(0xffffffffu, odd ? c : d, 1);
  uint32_t lo0 = odd ? x : a, lo1 = odd ? b : x, hi0 = odd ? y : c, hi1 = odd ? d : y;
  x = __shfl_xor_sync(0xffffffffu, high ? lo0 : hi0, 2);
  y = __shfl_xor_sync(0xffffffffu, high ? lo1 : hi1, 2);
  return high ? make_uint4(x, y, hi0, hi1) : make_uint4(lo0, lo1, x, y);
}

/* Writes the rows of a tile that are below `end`; rows g times lo, g + 8 times hi. */
template <typename T>
static __device__ __forceinline__ void store_tile(T *base, size_t ld, int row0, int end,
                                                  const float (&sum)[D / 8][4], float lo,
                                                  float hi, int lane) {
  int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float by = r ? hi : lo;
    uint32_t w[D / 8];
#pragma unroll
    for (int j = 0; j < D / 8; j++) w[j] = pack2<T>(sum[j][2 * r] * by, sum[j][2 * r + 1] * by);
    uint4 left = quad_turn(w[0], w[1], w[2], w[3], t);
    uint4 right = quad_turn(w[4], w[5], w[6], w[7], t);
    int row = row0 + g + r * 8;
    if (row >= end) continue;
    uint4 *to = reinterpret_cast<uint4 *>(base + (size_t)row * ld);
    to[t] = left, to[4 + t] = right;
  }
}

/* The pieces of this helper, `skip` left out, LISTED at most: pieces are numbered
 * through all sentences, and a helper has every HELPERSth. Returns how many it has,
 * with those left out. pieces_of(s): how many sentence s is cut into. */
template <int THREADS, typename F>
static __device__ __forceinline__ int list_pieces(Piece *list, int helper, int sentences,
                                                  int skip, F pieces_of) {
  __shared__ int part[THREADS / 32];
  int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, total = 0;
  for (int s0 = 0; s0 < sentences; s0 += THREADS * EACH) {
    int first = s0 + (int)threadIdx.x * EACH, count[EACH], mine = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      count[e] = first + e < sentences ? pieces_of(first + e) : 0;
      mine += count[e];
    }
    int upto = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      int before = __shfl_up_sync(0xffffffffu, upto, step);
      if (lane >= step) upto += before;
    }
    __syncthreads(); /* the last round's parts were read */
    if (lane == 31) part[warp] = upto;
    __syncthreads();
    int at = total + upto - mine;
    for (int w = 0; w < THREADS / 32; w++) {
      if (w < warp) at += part[w];
      total += part[w];
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
#pragma unroll 1
      for (int p = (helper - at) & (HELPERS - 1); p < count[e]; p += HELPERS) {
        int slot = (at + p) / HELPERS - skip;
        if (slot >= 0 && slot < LISTED) list[slot] = {first + e, p};
      }
      at += count[e];
    }
  }
  __syncthreads();
  return total > helper ? (total - helper + HELPERS - 1) / HELPERS : 0;
}

/* Calls run(sentence, part) for this block's pieces of long sentences, or
 * run(sentence, -1) for its one short sentence. */
template <int THREADS, typename P, typename R>
static __device__ __forceinline__ void share_out(int sentences, int number, P pieces_of,
                                                 R run) {
  __shared__ Piece list[LISTED];
  bool helps = number < HELPERS;
  if (!helps && pieces_of(number - HELPERS)) return;
  for (int skip = 0, all = 1; skip < all; skip += LISTED) {
    if (helps) all = list_pieces<THREADS>(list, number, sentences, skip, pieces_of);
    for (int i = skip; i < all && i < skip + LISTED; i++) {
      Piece piece = {number - HELPERS, -1};
      if (helps) piece = list[i - skip];
      run(piece.sentence, piece.part);
      __syncthreads(); /* before the next piece, or list, comes into its place */
    }
  }
}
#endif

#endif
