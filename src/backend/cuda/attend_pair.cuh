/* Building blocks of attention backward on tensor cores, heads of 64 columns
 * (attend_group_backward.cu):
 *   a pair, 16 queries and 16 keys: its probabilities p and the gradient of its scores, ds;
 *   the gradient of a tile of 16 rows (of q, k or v), summed over pairs and written.
 * All functions are called by a whole warp; lane (g, t) means g = lane / 4, t = lane % 4.
 * Shared memory is addressed by 32-bit addresses (mma.cuh) in the layout of staged.cuh. Depends
 * on attend_dropout.cuh, staged.cuh. */
#ifndef BACKEND_CUDA_ATTEND_PAIR_CUH
#define BACKEND_CUDA_ATTEND_PAIR_CUH

#include "backend/cuda/attend_dropout.cuh"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/staged.cuh"

#define PAIR_BYTES 1024 /* bytes of a pair: p, then ds, 512 bytes each */

/* Dropout constants that the host computes once per launch. */
struct DropConstants {
  float log2_scale;              /* log2 of the scale of kept elements */
  float minus_inverse_scale;     /* -1 / (scale of kept elements) */
  uint32_t low_bits, high_clear; /* bits of the threshold, see attend_dropout.cuh */
};

#if HAS_MMA
/* d (16, 8) = a (16, 16) · b (16, 8) + c. Rows 0 to 7 of c are (c0, c1), rows 8 to 15 (c2,
 * c3). */
template <typename T>
static __device__ __forceinline__ void mma_onto(float (&d)[4], const uint32_t (&a)[4],
                                                uint32_t b0, uint32_t b1, float c0, float c1,
                                                float c2, float c3) {
  d[0] = c0;
  d[1] = c1;
  d[2] = c2;
  d[3] = c3;
  mma<T>(d, a[0], a[1], a[2], a[3], b0, b1);
}

/* Multiplies two packed elements by 1 / sqrt(D), a power of 2. */
template <typename T>
static __device__ __forceinline__ uint32_t times_scale(uint32_t two);
template <>
__device__ __forceinline__ uint32_t times_scale<__nv_bfloat16>(uint32_t two) {
  __nv_bfloat162 x;
  memcpy(&x, &two, 4);
  x = __hmul2(x, __floats2bfloat162_rn(0.125f, 0.125f));
  memcpy(&two, &x, 4);
  return two;
}
template <>
__device__ __forceinline__ uint32_t times_scale<__half>(uint32_t two) {
  __half2 x;
  memcpy(&x, &two, 4);
  x = __hmul2(x, __floats2half2_rn(0.125f, 0.125f));
  memcpy(&two, &x, 4);
  return two;
}

/* Offsets of a lane's rows within a tile (see by_16 and by_8 in staged.cuh). Tiles begin at
 * multiples of 1024 bytes, so the offsets can be added to a tile's address. */
struct LaneOffsets {
  uint32_t by_16[4], by_8[2];
};

static __device__ __forceinline__ LaneOffsets lane_offsets(int lane) {
  LaneOffsets at;
#pragma unroll
  for (int c = 0; c < 4; c++) at.by_16[c] = by_16(lane) ^ (uint32_t)c << 5;
  at.by_8[0] = by_8(lane);
  at.by_8[1] = by_8(lane) ^ 64;
  return at;
}

/* Returns the address of a row. Both factors have 32 bits, so this is one multiplication
 * instruction. */
template <typename T>
static __device__ __forceinline__ T *row_of(T *p, int row, size_t ld) {
  return p + (size_t)(uint32_t)row * (uint32_t)ld;
}

/* ---- pairs ---- */

/* A tile of 16 queries. Rows after the end of the sentence are zeros, and so are their
 * results. */
struct Queries {
  uint32_t q[4][4], d_o[4][4]; /* left operands of mma: q and do */
  /* for rows g and g + 8: log2(dropout's scale) - lse * log2(e) */
  float lse2[2];
  float delta[2]; /* for rows g and g + 8: -sum(do * o) / dropout's scale */
  int i0;         /* index of the tile's first row in the sentence */
  int keys;       /* number of keys of the sentence */
  int all;        /* keys below this index are visible to all 16 rows */
  bool causal;
  /* Group of this lane's first Philox call; only its low 32 bits depend on the key. */
  uint64_t group;
};

/* Fills q and d_o of x from the tiles q and d_o in shared memory. */
static __device__ __forceinline__ void load_queries(Queries &x, uint32_t q, uint32_t d_o,
                                                    const LaneOffsets &at) {
#pragma unroll
  for (int c = 0; c < 4; c++) {
    load_tiles(x.d_o[c], d_o + at.by_16[c]);
    load_tiles(x.q[c], q + at.by_16[c]);
  }
}

/* Fills delta of x from the tile o in shared memory. After that the memory of o is free. */
template <typename T>
static __device__ __forceinline__ void compute_delta(Queries &x, uint32_t o,
                                                     const LaneOffsets &at,
                                                     float minus_inverse_scale, int lane) {
  int g = lane / 4;
  /* delta is the diagonal of do · oᵀ. The element of row g is in lane (g, g / 2). */
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float s[4] = {0, 0, 0, 0};
#pragma unroll
    for (int c = 0; c < 2; c++) {
      uint32_t y[4];
      load_tiles(y, o + (uint32_t)(r * 8 * ROW) + at.by_8[c]);
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const uint32_t(&left)[4] = x.d_o[2 * c + e];
        mma<T>(s, left[0], left[1], left[2], left[3], y[2 * e], y[2 * e + 1]);
      }
    }
    float mine = g & 1 ? s[2 * r + 1] : s[2 * r];
    x.delta[r] = __shfl_sync(0xffffffffu, mine, (lane & ~3) + g / 2) * minus_inverse_scale;
  }
  __syncwarp(); /* All lanes must have read o before p and ds overwrite it. */
}

/* Loads the first `count` rows, at most 16, of a tile of o from global memory; zeros for the
 * others. A lane has chunk lane % 8 of the rows lane / 8 + 4i. o: the first row. */
template <typename T>
static __device__ __forceinline__ void load_o_rows(uint4 (&x)[4], const T *o, size_t ld,
                                                   int count, int lane) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int row = lane / 8 + i * 4;
    x[i] = make_uint4(0, 0, 0, 0);
    if (row < count)
      x[i] = __ldg(reinterpret_cast<const uint4 *>(row_of(o, row, ld) + lane % 8 * 8));
  }
}

/* Fills delta of x from the rows of load_o_rows and the tile d_o in shared memory. */
template <typename T>
static __device__ __forceinline__ void compute_delta(Queries &x, uint32_t d_o,
                                                     const uint4 (&o)[4],
                                                     float minus_inverse_scale, int lane) {
  float sum[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int row = lane / 8 + i * 4;
    uint4 y = get16(d_o + (uint32_t)(row * ROW + ((lane % 8 ^ row % 8) << 4)));
    const uint32_t a[4] = {o[i].x, o[i].y, o[i].z, o[i].w}, b[4] = {y.x, y.y, y.z, y.w};
    sum[i] = 0;
#pragma unroll
    for (int e = 0; e < 4; e++) {
      float2 u = unpack2<T>(a[e]), v = unpack2<T>(b[e]);
      sum[i] += u.x * v.x + u.y * v.y;
    }
#pragma unroll
    for (int step = 4; step; step /= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], step);
  }
  /* Rows g and g + 8 are in lanes 8 (g % 4) …, in sum[g / 4] and sum[g / 4 + 2]. */
  int g = lane / 4, from = g % 4 * 8;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float lo = __shfl_sync(0xffffffffu, sum[2 * r], from);
    float hi = __shfl_sync(0xffffffffu, sum[2 * r + 1], from);
    x.delta[r] = (g < 4 ? lo : hi) * minus_inverse_scale;
  }
}

/* s (16, 16) = q · kᵀ and dp (16, 16) = do · vᵀ + delta, for the tile of k at address `k` and
 * the tile of v `plane` bytes after it. */
template <typename T>
static __device__ __forceinline__ void multiply_pair(float (&s)[2][4], float (&dp)[2][4],
                                                     const Queries &x, uint32_t k, int plane,
                                                     const LaneOffsets &at) {
#pragma unroll
  /* m: 0 and 1 are rows 0 to 7 and 8 to 15 of k, 2 and 3 those of v */
  for (int m = 0; m < 4; m++) {
    const uint32_t(&left)[4][4] = m < 2 ? x.q : x.d_o;
    float(&to)[4] = m < 2 ? s[m] : dp[m - 2];
    float lo = m < 2 ? 0 : x.delta[0], hi = m < 2 ? 0 : x.delta[1];
#pragma unroll
    for (int c = 0; c < 2; c++) {
      uint32_t y[4];
      load_tiles(y, k + (uint32_t)(m / 2 * plane + m % 2 * 8 * ROW) + at.by_8[c]);
      if (c == 0)
        mma_onto<T>(to, left[0], y[0], y[1], lo, lo, hi, hi);
      else
        mma<T>(to, left[2][0], left[2][1], left[2][2], left[2][3], y[0], y[1]);
      const uint32_t(&then)[4] = left[2 * c + 1];
      mma<T>(to, then[0], then[1], then[2], then[3], y[2], y[3]);
    }
  }
}

/* Sets the scores of keys that a query must not see to -inf. */
static __device__ __forceinline__ void mask_scores(float (&s)[2][4], const Queries &x, int j0,
                                                   int lane) {
  if (j0 + 16 <= x.all) return;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    int seen = x.causal ? min(x.keys, x.i0 + lane / 4 + r * 8 + 1) : x.keys;
#pragma unroll
    for (int e = 0; e < 4; e++) {
      if (j0 + e / 2 * 8 + 2 * (lane % 4) + e % 2 >= seen) s[e / 2][2 * r + e % 2] = -INFINITY;
    }
  }
}

/* p: the probabilities after dropout and its scale; ds: the gradient of the loss with respect
 * to q · kᵀ; both as left operands of an mma. */
struct Pair {
  uint32_t p[4], ds[4];
};

/* Computes a pair, the queries x and the 16 keys beginning at j0. k, plane: as in
 * multiply_pair. TIGHT: there are no round keys in shared memory. */
template <typename T, bool TIGHT>
static __device__ __forceinline__ void compute_pair(Pair &to, const Queries &x, uint32_t k,
                                                    int plane, int j0, const LaneOffsets &at,
                                                    const Drop &drop,
                                                    const DropConstants &constants,
                                                    const uint4 *round_keys, int lane) {
  const float to_log2 = 0.125f * LOG2_E;
  float s[2][4], dp[2][4];
  multiply_pair<T>(s, dp, x, k, plane, at);
  mask_scores(s, x, j0, lane);
  uint32_t mask[4];
  if (drop.threshold)
    keep_masks<TIGHT>(mask, drop, constants.low_bits, constants.high_clear, round_keys,
                      (uint32_t)x.group + (uint32_t)j0 / 8, (uint32_t)(x.group >> 32),
                      lane % 4);
  else
    mask[0] = mask[1] = mask[2] = mask[3] = 0xffffffffu;
#pragma unroll
  for (int n = 0; n < 2; n++) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      uint32_t m = mask[2 * n + r];
      float lo = exp2_fast(s[n][2 * r] * to_log2 + x.lse2[r]);
      float hi = exp2_fast(s[n][2 * r + 1] * to_log2 + x.lse2[r]);
      to.p[2 * n + r] = pack2<T>(lo, hi) & m;
      lo *= m & 2 ? dp[n][2 * r] : x.delta[r];
      hi *= m >> 31 ? dp[n][2 * r + 1] : x.delta[r];
      to.ds[2 * n + r] = times_scale<T>(pack2<T>(lo, hi));
    }
  }
}

/* Returns the offset of the row that a lane writes. p and ds are stored in shared memory as
 * four 8 by 8 tiles of 128 bytes, in the order in which a transposed left operand needs them:
 * the second and the third tile are swapped. */
static __device__ __forceinline__ uint32_t pair_row(int lane) {
  int m = lane / 8;
  return (uint32_t)((m % 2 * 2 + m / 2) * 128 + lane % 8 * 16);
}

/* Stores a pair; `at` includes pair_row(). */
static __device__ __forceinline__ void store_pair(uint32_t at, const Pair &x) {
  store_tiles(at, x.p[0], x.p[1], x.p[2], x.p[3]);
  store_tiles(at + PAIR_BYTES / 2, x.ds[0], x.ds[1], x.ds[2], x.ds[3]);
}

/* ---- gradients of a tile ---- */

/* The gradient of 16 rows, summed by a warp. While `empty` is true, x is not initialized: the
 * first matmul overwrites it. */
struct Sum {
  float x[D / 8][4];
  bool empty;
};

/* sum += left (16, 16) · tile (16, D). */
template <typename T>
static __device__ __forceinline__ void add_tile(Sum &sum, const uint32_t (&left)[4],
                                                uint32_t tile, const LaneOffsets &at) {
  uint32_t y[4][4];
#pragma unroll
  for (int j = 0; j < 4; j++) load_tiles_over(y[j], tile + at.by_16[j]);
  if (sum.empty) {
#pragma unroll
    for (int j = 0; j < D / 8; j++)
      mma_onto<T>(sum.x[j], left, y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1], 0, 0, 0, 0);
  } else {
#pragma unroll
    for (int j = 0; j < D / 8; j++)
      mma<T>(sum.x[j], left[0], left[1], left[2], left[3], y[j / 2][j % 2 * 2],
             y[j / 2][j % 2 * 2 + 1]);
  }
  sum.empty = false;
}

/* sum (16 keys, D) += pᵀ · do, or dsᵀ · q. `pair`: address of p or ds; `tile`: address of do or
 * q. */
template <typename T>
static __device__ __forceinline__ void add_pair(Sum &sum, uint32_t pair, uint32_t tile,
                                                const LaneOffsets &at, int lane) {
  uint32_t x[4];
  load_tiles_over(x, pair + (uint32_t)lane * 16);
  add_tile<T>(sum, x, tile, at);
}

/* Writes the first `count` rows of a sum to `to`, beginning at row `first`, and marks the sum
 * as empty. The tile is transposed in the 2048 bytes of shared memory at `by`, which no other
 * warp uses, so that whole rows are written. */
template <typename T>
static __device__ __forceinline__ void store_rows(T *to, int first, int head, size_t ld,
                                                  int count, Sum &sum, uint32_t by,
                                                  const LaneOffsets &at, int lane) {
  if (sum.empty) {
    /* Forces a real branch; otherwise the compiler would clear sum.x in all cases. */
    __syncwarp();
    clear(sum.x);
  }
  sum.empty = true;
  __syncwarp(); /* All lanes must have read the previous contents of the memory at `by`. */
#pragma unroll
  for (int j = 0; j < D / 8; j += 2)
    store_tiles(by + at.by_16[j / 2], pack2<T>(sum.x[j][0], sum.x[j][1]),
                pack2<T>(sum.x[j][2], sum.x[j][3]), pack2<T>(sum.x[j + 1][0], sum.x[j + 1][1]),
                pack2<T>(sum.x[j + 1][2], sum.x[j + 1][3]));
  __syncwarp();
  int row = lane / 8, c = lane % 8;
  uint32_t even = by + (uint32_t)(row * ROW + ((c ^ row) << 4)), odd = even ^ 64;
  to = row_of(to, first + row, ld) + (uint32_t)(head * D + c * 8);
#pragma unroll
  for (int i = 0; i < 4; i++, to += 4 * (uint32_t)ld) {
    uint4 x = get16((i % 2 ? odd : even) + (uint32_t)(i * 4 * ROW));
    if (row + i * 4 < count) write16(to, x);
  }
}
#endif

#endif
