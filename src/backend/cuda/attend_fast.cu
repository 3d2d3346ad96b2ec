/* Attention on tensor cores for bf16 and fp16: one block per sentence and head, one warp per 16
 * rows. Sentences are short, so fragments are loaded from global memory without staging; a
 * second read hits L1. Depends on attend.cuh, mma.cuh.
 *
 * Fragments of mma.m16n8k16. A lane is (g, t) = (lane / 4, lane % 4). The order of the summed
 * dimension and of the result's columns is free as long as both operands agree. It is chosen
 * for wide loads:
 *  - "along" a row, if the head's columns are summed: lane (g, t) reads 16 bytes, columns 32c +
 *  8t …, of row g, which are its operands of two mma instructions;
 *  - "across" rows, if rows are summed: lane (g, t) reads D / 8 columns beginning at g * D / 8
 *  of the rows 2t, 2t + 1, 2t + 8, 2t + 9; column j of each belongs to mma j. Lane (g, t) then
 *  holds D / 4 adjacent columns of the result, beginning at t * D / 4, of the rows g, g + 8. */
#include "backend/cuda/attend.cuh"
#include "backend/cuda/attend_dropout.cuh"
#include "backend/cuda/mma.cuh"

#define WARPS 2

#if HAS_MMA
/* Load 32 columns of a row, or all D, "along" (see the top of the file); zeros for rows from
 * `end` on. */
template <typename T>
static __device__ __forceinline__ uint4 load_32(const T *base, size_t ld, int row, int end,
                                                int c, int t) {
  if (row >= end) return make_uint4(0, 0, 0, 0);
  return *reinterpret_cast<const uint4 *>(base + (size_t)row * ld + c * 32 + t * 8);
}
template <typename T, int D>
static __device__ __forceinline__ void load_along(uint4 (&x)[D / 32], const T *base, size_t ld,
                                                  int row, int end, int t) {
#pragma unroll
  for (int c = 0; c < D / 32; c++) x[c] = load_32(base, ld, row, end, c, t);
}

/* s (16, 8) += a · bᵀ, both loaded "along"; lo and hi are rows g and g + 8 of a. */
template <typename T>
static __device__ __forceinline__ void mma_along(float s[4], uint4 lo, uint4 hi, uint4 b) {
  mma<T>(s, lo.x, hi.x, lo.y, hi.y, b.x, b.y);
  mma<T>(s, lo.z, hi.z, lo.w, hi.w, b.z, b.w);
}

/* Loads 16 rows "across" (see the top of the file); zeros for rows from `end` on. */
template <typename T, int D>
static __device__ __forceinline__ void load_across(uint32_t (&x)[4][D / 16], const T *base,
                                                   size_t ld, int row0, int end, int g, int t) {
#pragma unroll
  for (int r = 0; r < 4; r++) {
    int row = row0 + 2 * t + r % 2 + r / 2 * 8;
    const T *p = base + (size_t)row * ld + g * (D / 8);
#pragma unroll
    for (int w = 0; w < D / 16; w++) x[r][w] = 0;
    if (row >= end) continue;
    if (D == 32) {
      uint2 v = *reinterpret_cast<const uint2 *>(p);
      x[r][0] = v.x;
      x[r][1] = v.y;
    } else {
#pragma unroll
      for (int w = 0; w < D / 16; w += 4) {
        uint4 v = *reinterpret_cast<const uint4 *>(p + 2 * w);
        x[r][w] = v.x;
        x[r][w + 1] = v.y;
        x[r][w + 2] = v.z;
        x[r][w + 3] = v.w;
      }
    }
  }
}

/* sum (16, D) += a (16, 16) · x (16, D); x is loaded "across". */
template <typename T, int D>
static __device__ __forceinline__ void mma_across(float (&sum)[D / 8][4], const uint32_t a[4],
                                                  const uint32_t (&x)[4][D / 16]) {
#pragma unroll
  for (int j = 0; j < D / 8; j++) {
    /* selects the high or the low 16-bit halves of two words */
    uint32_t pick = j % 2 ? 0x7632 : 0x5410;
    mma<T>(sum[j], a[0], a[1], a[2], a[3], __byte_perm(x[0][j / 2], x[1][j / 2], pick),
           __byte_perm(x[2][j / 2], x[3][j / 2], pick));
  }
}

/* Stores rows row0 + g and row0 + g + 8 of a result of mma_across, multiplied by lo and hi. */
template <typename T, int D>
static __device__ __forceinline__ void store_sums(T *base, size_t ld, int row0, int end,
                                                  const float (&sum)[D / 8][4], float lo,
                                                  float hi, int g, int t) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int row = row0 + g + half * 8;
    if (row >= end) continue;
    float by = half ? hi : lo;
    uint32_t w[D / 8];
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      w[i] = pack2<T>(sum[2 * i][2 * half] * by, sum[2 * i + 1][2 * half] * by);
      w[D / 16 + i] =
          pack2<T>(sum[2 * i][2 * half + 1] * by, sum[2 * i + 1][2 * half + 1] * by);
    }
    uint4 *to = reinterpret_cast<uint4 *>(base + (size_t)row * ld + t * (D / 4));
#pragma unroll
    for (int i = 0; i < D / 32; i++)
      to[i] = make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]);
  }
}
#endif

/* ---- forward ---- */

template <typename T, int D>
static __global__ void __launch_bounds__(WARPS * 32)
    attend_head(T *o, float *lse, const T *__restrict__ q, const T *__restrict__ k,
                const T *__restrict__ v, Attend a) {
#if HAS_MMA
  /* Number of tiles of 8 keys processed together: as many as the registers can hold. */
  constexpr int TILES = D > 64 ? 2 : 4;
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, head = blockIdx.y;
  Sentence is = sentence_of(a, blockIdx.x);
  q += is.q0 * a.q_ld + (size_t)head * D;
  k += is.k0 * a.kv_ld + (size_t)head * D;
  v += is.k0 * a.kv_ld + (size_t)head * D;
  o += is.q0 * a.o_ld + (size_t)head * D;
  float to_log2 = a.scale * LOG2_E;

  for (int i0 = threadIdx.x / 32 * 16; i0 < is.rows; i0 += WARPS * 16) {
    uint4 q_lo[D / 32], q_hi[D / 32];
    load_along<T, D>(q_lo, q, a.q_ld, i0 + g, is.rows, t);
    load_along<T, D>(q_hi, q, a.q_ld, i0 + g + 8, is.rows, t);
    float sum[D / 8][4];
#pragma unroll
    for (int j = 0; j < D / 8; j++) sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0;
    float most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
    int end = a.causal && i0 + 16 < is.keys ? i0 + 16 : is.keys;
    int seen[2] = {is.keys, is.keys}; /* number of keys visible to the rows g and g + 8 */
    if (a.causal) {
      seen[0] = min(seen[0], i0 + g + 1);
      seen[1] = min(seen[1], i0 + g + 9);
    }

    for (int j0 = 0; j0 < end; j0 += TILES * 8) {
      uint4 in_k[TILES][D / 32];
      uint32_t in_v[TILES / 2][4][D / 16];
#pragma unroll
      for (int n = 0; n < TILES; n++)
        load_along<T, D>(in_k[n], k, a.kv_ld, j0 + n * 8 + g, end, t);
#pragma unroll
      for (int n = 0; n < TILES / 2; n++)
        load_across<T, D>(in_v[n], v, a.kv_ld, j0 + n * 16, end, g, t);

      /* Scores times log2(e), for exp2, and their running maximum. */
      float s[TILES][4], now[2] = {most[0], most[1]};
#pragma unroll
      for (int n = 0; n < TILES; n++) {
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
        if (j0 + n * 8 < end) {
#pragma unroll
          for (int c = 0; c < D / 32; c++) mma_along<T>(s[n], q_lo[c], q_hi[c], in_k[n][c]);
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
          bool visible = j0 + n * 8 + 2 * t + e % 2 < seen[e / 2];
          s[n][e] = visible ? s[n][e] * to_log2 : -INFINITY;
          now[e / 2] = fmaxf(now[e / 2], s[n][e]);
        }
      }
      /* Rescales sum and total to the new maximum, which is finite because every row sees key
       * 0. */
#pragma unroll
      for (int r = 0; r < 2; r++) {
        now[r] = quad_max(now[r]);
        float shrink = exp2_fast(most[r] - now[r]);
        most[r] = now[r];
        total[r] *= shrink;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
          sum[j][2 * r] *= shrink;
          sum[j][2 * r + 1] *= shrink;
        }
      }
#pragma unroll
      for (int n = 0; n < TILES; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
          s[n][e] = exp2_fast(s[n][e] - now[e / 2]);
          total[e / 2] += s[n][e];
        }
      }
      /* Applies dropout, then sum += p · v. */
#pragma unroll
      for (int n = 0; n < TILES; n += 2) {
        if (j0 + n * 8 >= end) break;
        if (a.drop.threshold) {
          uint32_t keep = keep_tile(a, is.q0 + i0, head, j0 + n * 8, lane);
          uint32_t bits[2] = {__shfl_sync(0xffffffffu, keep, g),
                              __shfl_sync(0xffffffffu, keep, g + 8)};
#pragma unroll
          for (int e = 0; e < 8; e++) {
            if (!(bits[e / 2 % 2] >> (e / 4 * 8 + 2 * t + e % 2) & 1)) s[n + e / 4][e % 4] = 0;
          }
        }
        uint32_t p[4] = {pack2<T>(s[n][0], s[n][1]), pack2<T>(s[n][2], s[n][3]),
                         pack2<T>(s[n + 1][0], s[n + 1][1]),
                         pack2<T>(s[n + 1][2], s[n + 1][3])};
        mma_across<T, D>(sum, p, in_v[n / 2]);
      }
    }

    /* Normalizes the sums; writes o and lse. */
    float by[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      total[r] = quad_sum(total[r]);
      by[r] = total[r] > 0 ? a.drop.scale / total[r] : 0;
      int row = i0 + g + r * 8;
      if (t == 0 && row < is.rows)
        lse[(is.q0 + row) * a.heads + head] = (most[r] + log2f(total[r])) * LN_2;
    }
    store_sums<T, D>(o, a.o_ld, i0, is.rows, sum, by[0], by[1], g, t);
  }
#else
  __trap();
#endif
}

/* ---- backward ---- */

/* A sentence of up to SHARED_ROWS queries keeps lse and delta in shared memory. One of up to
 * SHARED_PAIRS pairs of 16 queries and 16 keys also keeps dS there; longer sentences recompute
 * dS in phase 3. */
#define SHARED_ROWS  128
#define SHARED_PAIRS 36

#if HAS_MMA
struct RowStat {
  float lse2, delta; /* lse2 = lse / ln 2; delta = sum over the columns of do * o */
};
#endif

/* Backward in three phases. Phase 1: delta. Phase 2: a warp has 16 keys and loops over the
 * queries, for dk and dv; scores are transposed, (keys, queries). Phase 3: a warp has 16
 * queries and loops over the keys, for dq. With P the probabilities and M the dropout factors,
 * dS = P ∘ (M ∘ (do vᵀ) - delta). */
template <typename T, int D>
static __global__ void __launch_bounds__(WARPS * 32, D > 64 ? 4 : 6)
    attend_head_backward(T *dq, T *dk, T *dv, const T *__restrict__ d_o,
                         const T *__restrict__ o, const float *__restrict__ lse,
                         const T *__restrict__ q, const T *__restrict__ k,
                         const T *__restrict__ v, Attend a, float *delta) {
#if HAS_MMA
  __shared__ uint4 shared_ds[SHARED_PAIRS][32];
  __shared__ RowStat shared_stat[SHARED_ROWS];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  int head = blockIdx.y;
  Sentence is = sentence_of(a, blockIdx.x);
  q += is.q0 * a.q_ld + (size_t)head * D;
  dq += is.q0 * a.q_ld + (size_t)head * D;
  k += is.k0 * a.kv_ld + (size_t)head * D;
  dk += is.k0 * a.kv_ld + (size_t)head * D;
  v += is.k0 * a.kv_ld + (size_t)head * D;
  dv += is.k0 * a.kv_ld + (size_t)head * D;
  o += is.q0 * a.o_ld + (size_t)head * D;
  d_o += is.q0 * a.o_ld + (size_t)head * D;
  lse += is.q0 * a.heads + head;
  delta += is.q0 * a.heads + head;
  float to_log2 = a.scale * LOG2_E;
  int q_tiles = (is.rows + 15) / 16, k_tiles = (is.keys + 15) / 16;
  bool fits = is.rows <= SHARED_ROWS, kept = fits && q_tiles * k_tiles <= SHARED_PAIRS;

  /* Phase 1: delta[i] = sum over c of o[i][c] * d_o[i][c]. LANES threads per row. */
  constexpr int LANES = D / 8;
  for (int i0 = 0; i0 < is.rows; i0 += WARPS * 32 / LANES) {
    int i = i0 + threadIdx.x / LANES, c = threadIdx.x % LANES * 8;
    float x[8], y[8], sum = 0;
    if (i < is.rows) {
      load8(x, o + (size_t)i * a.o_ld + c);
      load8(y, d_o + (size_t)i * a.o_ld + c);
#pragma unroll
      for (int e = 0; e < 8; e++) sum += x[e] * y[e];
    }
#pragma unroll
    for (int step = LANES / 2; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (i >= is.rows || c) continue;
    if (fits)
      shared_stat[i] = {lse[(size_t)i * a.heads] * LOG2_E, sum};
    else
      delta[(size_t)i * a.heads] = sum;
  }
  __syncthreads();
  auto stat_of = [&](int i) -> RowStat {
    if (i >= is.rows) return {0, 0};
    if (fits) return shared_stat[i];
    return {lse[(size_t)i * a.heads] * LOG2_E, delta[(size_t)i * a.heads]};
  };

  /* Phase 2: dk and dv. */
  for (int kt = warp; kt < k_tiles; kt += WARPS) {
    int j0 = kt * 16;
    /* k and v stay in registers, except those of heads of more than 64 columns, which are
     * reloaded. */
    constexpr bool RESIDENT = D <= 64;
    uint4 k_lo[D / 32], k_hi[D / 32], v_lo[D / 32], v_hi[D / 32];
    auto load_keys = [&](int c) {
      k_lo[c] = load_32(k, a.kv_ld, j0 + g, is.keys, c, t);
      k_hi[c] = load_32(k, a.kv_ld, j0 + g + 8, is.keys, c, t);
      v_lo[c] = load_32(v, a.kv_ld, j0 + g, is.keys, c, t);
      v_hi[c] = load_32(v, a.kv_ld, j0 + g + 8, is.keys, c, t);
    };
#pragma unroll
    for (int c = 0; RESIDENT && c < D / 32; c++) load_keys(c);
    float sum_k[D / 8][4], sum_v[D / 8][4];
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) sum_k[j][e] = sum_v[j][e] = 0;
    }
    for (int qt = a.causal ? kt : 0; qt < q_tiles; qt++) {
      int i0 = qt * 16;
      /* s = k qᵀ and dp = v doᵀ: keys g, g + 8; queries 8n + 2t, 8n + 2t + 1. */
      float s[2][4], dp[2][4];
#pragma unroll
      for (int e = 0; e < 4; e++) s[0][e] = s[1][e] = dp[0][e] = dp[1][e] = 0;
#pragma unroll
      for (int c = 0; c < D / 32; c++) {
        if (!RESIDENT) load_keys(c);
#pragma unroll
        for (int n = 0; n < 2; n++) {
          int row = i0 + n * 8 + g;
          mma_along<T>(s[n], k_lo[c], k_hi[c], load_32(q, a.q_ld, row, is.rows, c, t));
          mma_along<T>(dp[n], v_lo[c], v_hi[c], load_32(d_o, a.o_ld, row, is.rows, c, t));
        }
      }
      /* Replaces s by P ∘ M and dp by dS. */
      uint32_t keep = 0xffff;
      if (a.drop.threshold) keep = keep_tile(a, is.q0 + i0, head, j0, lane);
      uint32_t p[4], ds[4];
#pragma unroll
      for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          int i = i0 + n * 8 + 2 * t + e;
          RowStat stat = stat_of(i);
          uint32_t bits = __shfl_sync(0xffffffffu, keep, n * 8 + 2 * t + e);
#pragma unroll
          for (int r = 0; r < 2; r++) {
            int j = j0 + g + r * 8;
            bool visible = i < is.rows && j < is.keys && (!a.causal || j <= i);
            float x = visible ? exp2_fast(s[n][2 * r + e] * to_log2 - stat.lse2) : 0;
            bool keeps = bits >> (g + r * 8) & 1;
            float back = keeps ? dp[n][2 * r + e] * a.drop.scale : 0;
            s[n][2 * r + e] = keeps ? x : 0;
            dp[n][2 * r + e] = x * (back - stat.delta);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
          p[2 * n + r] = pack2<T>(s[n][2 * r], s[n][2 * r + 1]);
          ds[2 * n + r] = pack2<T>(dp[n][2 * r], dp[n][2 * r + 1]);
        }
      }
      if (kept) /* Stores dS transposed to (queries, keys), as phase 3 reads it. */
        shared_ds[qt * k_tiles + kt][lane] = make_uint4(transposed(ds[0]), transposed(ds[2]),
                                                        transposed(ds[1]), transposed(ds[3]));
      /* Adds (P ∘ M)ᵀ do to dv and dSᵀ q to dk. */
      uint32_t across[4][D / 16];
      load_across<T, D>(across, d_o, a.o_ld, i0, is.rows, g, t);
      mma_across<T, D>(sum_v, p, across);
      load_across<T, D>(across, q, a.q_ld, i0, is.rows, g, t);
      mma_across<T, D>(sum_k, ds, across);
    }
    store_sums<T, D>(dk, a.kv_ld, j0, is.keys, sum_k, a.scale, a.scale, g, t);
    store_sums<T, D>(dv, a.kv_ld, j0, is.keys, sum_v, a.drop.scale, a.drop.scale, g, t);
  }
  __syncthreads();

  /* Phase 3: dq += dS k. */
  for (int qt = warp; qt < q_tiles; qt += WARPS) {
    int i0 = qt * 16, last = a.causal && qt + 1 < k_tiles ? qt + 1 : k_tiles;
    float sum[D / 8][4];
#pragma unroll
    for (int j = 0; j < D / 8; j++) sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0;
    for (int kt = 0; kt < last; kt++) {
      int j0 = kt * 16;
      uint32_t ds[4], across[4][D / 16];
      load_across<T, D>(across, k, a.kv_ld, j0, is.keys, g, t);
      if (kept) {
        uint4 x = shared_ds[qt * k_tiles + kt][lane];
        ds[0] = x.x;
        ds[1] = x.y;
        ds[2] = x.z;
        ds[3] = x.w;
      } else {
        /* Recomputes dS for the queries g, g + 8 and the keys 8n + 2t, 8n + 2t + 1. */
        float s[2][4], dp[2][4];
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
          for (int e = 0; e < 4; e++) s[n][e] = dp[n][e] = 0;
          uint4 lo[D / 32], hi[D / 32], in[D / 32];
          load_along<T, D>(lo, q, a.q_ld, i0 + g, is.rows, t);
          load_along<T, D>(hi, q, a.q_ld, i0 + g + 8, is.rows, t);
          load_along<T, D>(in, k, a.kv_ld, j0 + n * 8 + g, is.keys, t);
#pragma unroll
          for (int c = 0; c < D / 32; c++) mma_along<T>(s[n], lo[c], hi[c], in[c]);
          load_along<T, D>(lo, d_o, a.o_ld, i0 + g, is.rows, t);
          load_along<T, D>(hi, d_o, a.o_ld, i0 + g + 8, is.rows, t);
          load_along<T, D>(in, v, a.kv_ld, j0 + n * 8 + g, is.keys, t);
#pragma unroll
          for (int c = 0; c < D / 32; c++) mma_along<T>(dp[n], lo[c], hi[c], in[c]);
        }
        uint32_t keep = 0xffff;
        if (a.drop.threshold) keep = keep_tile(a, is.q0 + i0, head, j0, lane);
#pragma unroll
        for (int r = 0; r < 2; r++) {
          int i = i0 + g + r * 8;
          RowStat stat = stat_of(i);
          uint32_t bits = __shfl_sync(0xffffffffu, keep, g + r * 8);
#pragma unroll
          for (int n = 0; n < 2; n++) {
            float x[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
              int j = j0 + n * 8 + 2 * t + e;
              bool visible = i < is.rows && j < is.keys && (!a.causal || j <= i);
              float prob = visible ? exp2_fast(s[n][2 * r + e] * to_log2 - stat.lse2) : 0;
              bool keeps = bits >> (n * 8 + 2 * t + e) & 1;
              x[e] = prob * ((keeps ? dp[n][2 * r + e] * a.drop.scale : 0) - stat.delta);
            }
            ds[2 * n + r] = pack2<T>(x[0], x[1]);
          }
        }
      }
      mma_across<T, D>(sum, ds, across);
    }
    store_sums<T, D>(dq, a.q_ld, i0, is.rows, sum, a.scale, a.scale, g, t);
  }
#else
  __trap();
#endif
}

/* ---- launchers ---- */

/* True: kernels of attend_group*.cu are used if the shape allows it. kernel_select_attention
 * sets this variable. */
static bool uses_groups = true;
/* Set by kernel_select_attention. */
static GroupChoice group_choice;
/* See kernel_last_attention. */
static thread_local const char *last_attention;

const char *kernel_select_attention(int variant) {
  /* 100 KB: with as few blocks per SM as that much shared memory allows */
  static const char *const name[] = {"in groups", "direct", "tight", "100 KB", "tight 100 KB"};
  bool exists = variant >= 0 && variant < 5 && (variant < 3 || sm_bytes() > HINDERED_BYTES);
  if (!exists) variant = 0;
  uses_groups = variant != 1;
  group_choice.is_tight = variant == 2 || variant == 4;
  group_choice.is_hindered = variant > 2;
  return exists ? name[variant] : NULL;
}

const char *kernel_last_attention(void) {
  return last_attention;
}

/* Returns the choice for a launch: GPUs with little shared memory use the tight kernels. */
static GroupChoice choose_group(void) {
  GroupChoice choice = group_choice;
  choice.is_tight = choice.is_tight || has_small_sm();
  return choice;
}

static bool has_wide_rows(const Attention *a) {
  return a->q_ld % 8 == 0 && a->kv_ld % 8 == 0 && a->o_ld % 8 == 0;
}

template <typename T>
static bool launch_forward(T *o, float *lse, const T *q, const T *k, const T *v,
                           const Attention *a, cudaStream_t stream) {
  auto run = [&](auto kernel) {
    if (!is_built<T>(kernel)) return false;
    dim3 grid((unsigned)a->sentences, (unsigned)a->heads);
    kernel<<<grid, WARPS * 32, 0, stream>>>(o, lse, q, k, v, attend_of(a));
    return true;
  };
  if (a->d == 32) return run(attend_head<T, 32>);
  if (a->d == 64) return run(attend_head<T, 64>);
  if (a->d == 128) return run(attend_head<T, 128>);
  return false;
}

template <typename T>
static bool launch_backward(T *dq, T *dk, T *dv, const T *d_o, const T *o, const float *lse,
                            const T *q, const T *k, const T *v, const Attention *a,
                            float *delta, cudaStream_t stream) {
  auto run = [&](auto kernel) {
    if (!is_built<T>(kernel)) return false;
    dim3 grid((unsigned)a->sentences, (unsigned)a->heads);
    kernel<<<grid, WARPS * 32, 0, stream>>>(dq, dk, dv, d_o, o, lse, q, k, v, attend_of(a),
                                            delta);
    return true;
  };
  if (a->d == 32) return run(attend_head_backward<T, 32>);
  if (a->d == 64) return run(attend_head_backward<T, 64>);
  if (a->d == 128) return run(attend_head_backward<T, 128>);
  return false;
}

cudaError_t attend_fast(Type type, void *o, float *lse, const void *q, const void *k,
                        const void *v, const Attention *a, cudaStream_t stream, bool *done) {
  *done = false;
  last_attention = NULL;
  if (!has_wide_rows(a) || !is_aligned(o) || !is_aligned(q) || !is_aligned(k) || !is_aligned(v))
    return cudaSuccess;
  if (type == TYPE_F32) return cudaSuccess;
  GroupChoice choice = choose_group();
  *done = uses_groups && attend_by_group(type, o, lse, q, k, v, a, choice, stream);
  if (*done) last_attention = choice.is_tight ? "tight" : "in groups";
  if (*done) return cudaGetLastError();
  if (type == TYPE_BF16) {
    typedef __nv_bfloat16 T;
    *done = launch_forward((T *)o, lse, (const T *)q, (const T *)k, (const T *)v, a, stream);
  }
  if (type == TYPE_F16) {
    typedef __half T;
    *done = launch_forward((T *)o, lse, (const T *)q, (const T *)k, (const T *)v, a, stream);
  }
  if (*done) last_attention = "direct";
  return *done ? cudaGetLastError() : cudaSuccess;
}

cudaError_t attend_backward_fast(Type type, void *dq, void *dk, void *dv, const void *d_o,
                                 const void *o, const float *lse, const void *q, const void *k,
                                 const void *v, const Attention *a, float *delta,
                                 cudaStream_t stream, bool *done) {
  *done = false;
  last_attention = NULL;
  if (!has_wide_rows(a) || !is_aligned(dq) || !is_aligned(dk) || !is_aligned(dv) ||
      !is_aligned(d_o) || !is_aligned(o) || !is_aligned(q) || !is_aligned(k) || !is_aligned(v))
    return cudaSuccess;
  if (type == TYPE_F32) return cudaSuccess;
  GroupChoice choice = choose_group();
  *done = uses_groups &&
          attend_backward_by_group(type, dq, dk, dv, d_o, o, lse, q, k, v, a, choice, stream);
  if (*done) last_attention = choice.is_tight ? "tight" : "in groups";
  if (*done) return cudaGetLastError();
  if (type == TYPE_BF16) {
    typedef __nv_bfloat16 T;
    *done = launch_backward((T *)dq, (T *)dk, (T *)dv, (const T *)d_o, (const T *)o, lse,
                            (const T *)q, (const T *)k, (const T *)v, a, delta, stream);
  }
  if (type == TYPE_F16) {
    typedef __half T;
    *done = launch_backward((T *)dq, (T *)dk, (T *)dv, (const T *)d_o, (const T *)o, lse,
                            (const T *)q, (const T *)k, (const T *)v, a, delta, stream);
  }
  if (*done) last_attention = "direct";
  return *done ? cudaGetLastError() : cudaSuccess;
}
