/* Attention's way back as it was, a block for each sentence and head: kept until the
 * new one (attend_back_staged.cu) has been timed against it. Relies on attend.cuh,
 * mma.cuh, staged.cuh.
 *
 * A block has WARPS warps and room for ROWS rows of each array. A pair is a tile of
 * queries and one of keys. */
#include "backend/cuda/attend.cuh"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/staged.cuh"

/* q, do, k, v; p and ds of each pair; lse. */
template <int ROWS>
static constexpr size_t back_bytes(void) {
  return (size_t)4 * ROWS * D * 2 + (size_t)2 * ROWS * ROWS * 2 + ROWS * 4;
}

#if HAS_MMA
/* 16 queries as the first half needs them. */
struct Queries {
  uint32_t q[4][4], d_o[4][4];
  float lse2[2], delta[2]; /* of rows g, g + 8: lse in powers of 2; sum of do * o */
  int i0, seen[2];         /* the first one; how many keys each row sees */
};

template <typename T>
static __device__ __forceinline__ void load_queries(Queries &x, uint32_t q, uint32_t d_o,
                                                    uint32_t o, uint32_t lse, int lane) {
  int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < 2; c++) {
      uint32_t at = (uint32_t)((g + r * 8) * ROW + ((2 * t + c) ^ g) * 16);
      uint4 y = get16(o + at), dy = get16(d_o + at);
      uint32_t left[4] = {y.x, y.y, y.z, y.w}, right[4] = {dy.x, dy.y, dy.z, dy.w};
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float2 l = unpack2<T>(left[e]), m = unpack2<T>(right[e]);
        sum += l.x * m.x + l.y * m.y;
      }
    }
    x.delta[r] = quad_sum(sum);
    x.lse2[r] = __uint_as_float(get4(lse + (g + r * 8) * 4)) * LOG2_E;
  }
  load_left(x.q, q, lane), load_left(x.d_o, d_o, lane);
  __syncwarp(); /* o was read: its place is p's and ds's */
}

/* A pair: what each query gives each of the keys j0 …, with dropout (p), and how the
 * loss changes with the scores (ds), both as left operands. */
template <typename T>
static __device__ __forceinline__ void back_pair(uint32_t (&p)[4], uint32_t (&ds)[4],
                                                 const Queries &x, uint32_t k, uint32_t v,
                                                 int j0, const Attend &a, size_t q0, int head,
                                                 int lane) {
  int g = lane / 4, t = lane % 4;
  float to_log2 = a.scale * LOG2_E, s[2][4], dp[2][4];
  uint32_t keep = 0xffff;
  if (a.drop.threshold) keep = keep_tile(a, q0 + x.i0, head, j0, lane);
#pragma unroll
  for (int n = 0; n < 2; n++) {
#pragma unroll
    for (int e = 0; e < 4; e++) s[n][e] = dp[n][e] = 0;
    mma_rows<T>(s[n], x.q, k + n * 8 * ROW, lane);
    mma_rows<T>(dp[n], x.d_o, v + n * 8 * ROW, lane);
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    uint32_t bits = __shfl_sync(0xffffffffu, keep, g + r * 8) >> (2 * t);
#pragma unroll
    for (int n = 0; n < 2; n++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float &score = s[n][2 * r + e], &back = dp[n][2 * r + e];
        bool visible = j0 + n * 8 + 2 * t + e < x.seen[r], keeps = bits >> (n * 8 + e) & 1;
        float prob = visible ? exp2_fast(score * to_log2 - x.lse2[r]) : 0;
        back = prob * ((keeps ? back * a.drop.scale : 0) - x.delta[r]);
        score = keeps ? prob : 0;
      }
      p[2 * n + r] = pack2<T>(s[n][2 * r], s[n][2 * r + 1]);
      ds[2 * n + r] = pack2<T>(dp[n][2 * r], dp[n][2 * r + 1]);
    }
  }
}

/* Eight by eight they lie as 128 bytes, for load_tiles_over. */
static __device__ __forceinline__ void put_pair(uint32_t to, const uint32_t (&p)[4],
                                                const uint32_t (&ds)[4], int lane) {
#pragma unroll
  for (int m = 0; m < 4; m++) {
    put4(to + m * 128 + lane * 4, p[m]);
    put4(to + 512 + m * 128 + lane * 4, ds[m]);
  }
}

/* sum (16 keys, D) += pᵀ · do, or dsᵀ · q. */
template <typename T>
static __device__ __forceinline__ void add_pair(float (&sum)[D / 8][4], uint32_t pair,
                                                uint32_t tile, int lane) {
  uint32_t x[4];
  load_tiles_over(x, pair + lane * 16);
  uint32_t left[4] = {x[0], x[2], x[1], x[3]};
  mma_tile<T>(sum, left, tile, lane);
}
#endif

/* First half: a warp has 16 queries and goes over the keys, for dq, leaving p and ds.
 * Second half: a warp has 16 keys, and either dv or dk of them, and goes over the
 * queries. A short sentence has both. A piece of a long one is the first half of 16
 * queries a warp, in rounds over all keys, or the second of 8 keys a warp, in rounds
 * over all queries, whose p and ds are made again. */
template <typename T, int ROWS, int WARPS>
static __global__ void __launch_bounds__(WARPS * 32, 16 / WARPS)
    attend_back_former(T *dq, T *dk, T *dv, const T *__restrict__ d_o, const T *__restrict__ o,
                       const float *__restrict__ lse, const T *__restrict__ q,
                       const T *__restrict__ k, const T *__restrict__ v, Attend a,
                       int sentences) {
#if HAS_MMA
  constexpr int THREADS = WARPS * 32, QUERIES = WARPS * 16, KEYS = WARPS * 8;
  constexpr int TILES = ROWS / 16, PAIR = 1024, PAIRS = TILES * PAIR; /* bytes */
  static_assert(PAIRS >= TILE, "o's rows lie where p and ds will");
  extern __shared__ __align__(128) uint4 staged[];
  uint32_t in_q = shared_at(staged), in_do = in_q + ROWS * ROW, in_k = in_do + ROWS * ROW;
  uint32_t in_v = in_k + ROWS * ROW, pairs = in_v + ROWS * ROW, in_lse = pairs + TILES * PAIRS;
  int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, g = lane / 4;
  int head = (int)blockIdx.x % a.heads;
  size_t column = (size_t)head * D;

  auto pieces_of = [&](int s) {
    int rows = a.q_off[s + 1] - a.q_off[s];
    int keys = a.k_len ? a.k_len[s] : a.k_off[s + 1] - a.k_off[s];
    if (rows <= ROWS && keys <= ROWS) return 0;
    return (rows + QUERIES - 1) / QUERIES + (keys + KEYS - 1) / KEYS;
  };
  auto run = [&](int s, int part) {
    Sentence is = sentence_of(a, (unsigned)s);
    int firsts = (is.rows + QUERIES - 1) / QUERIES; /* as many pieces are first halves */
    bool whole = part < 0, by_queries = !whole && part < firsts, by_keys = part >= firsts;
    /* The rows and keys of this round, and how far the rounds go. */
    int i_at = by_queries ? part * QUERIES : 0, j_at = by_keys ? (part - firsts) * KEYS : 0;
    int end = by_keys ? is.rows : is.keys;
    if (a.causal && by_queries) end = min(end, i_at + QUERIES);
    if (a.causal && by_keys) i_at = j_at; /* earlier queries do not see these keys */
    float sum[D / 8][4];
    clear(sum);
    auto store_queries = [&](int i0) {
      store_tile(dq + is.q0 * a.q_ld + column, a.q_ld, i0, is.rows, sum, a.scale, a.scale,
                 lane);
    };
    auto store_keys = [&](int j0, bool is_dk) {
      float by = is_dk ? a.scale : a.drop.scale;
      store_tile((is_dk ? dk : dv) + is.k0 * a.kv_ld + column, a.kv_ld, j0, is.keys, sum, by,
                 by, lane);
    };

    for (bool again = false; !again || (by_keys ? i_at : j_at) < end; again = true) {
      int rows = min(by_queries ? QUERIES : ROWS, is.rows - i_at);
      int keys = min(by_keys ? KEYS : ROWS, is.keys - j_at);
      if (again) __syncthreads(); /* what lies there was read */
      if (!again || by_keys) {
        size_t row = is.q0 + (size_t)i_at;
        stage<THREADS>(in_q, TILE, q + row * a.q_ld + column, a.q_ld, rows);
        stage<THREADS>(in_do, TILE, d_o + row * a.o_ld + column, a.o_ld, rows);
        stage<THREADS>(pairs, PAIRS, o + row * a.o_ld + column, a.o_ld, rows);
        for (int i = (int)threadIdx.x; i < (rows + 15) / 16 * 16; i += THREADS)
          copy4(in_lse + i * 4, lse + (row + (i < rows ? i : 0)) * a.heads + head, i < rows);
      }
      if (!again || by_queries) {
        size_t row = is.k0 + (size_t)j_at;
        stage<THREADS>(in_k, TILE, k + row * a.kv_ld + column, a.kv_ld, keys);
        stage<THREADS>(in_v, TILE, v + row * a.kv_ld + column, a.kv_ld, keys);
      }
      copies_wait();
      __syncthreads();

      for (int i = warp; i * 16 < rows; i += WARPS) {
        Queries x;
        x.i0 = i_at + i * 16;
#pragma unroll
        for (int r = 0; r < 2; r++) {
          int row = x.i0 + g + r * 8, most = a.causal ? min(is.keys, row + 1) : is.keys;
          x.seen[r] = row < is.rows ? most : 0;
        }
        load_queries<T>(x, in_q + i * TILE, in_do + i * TILE, pairs + i * PAIRS,
                        in_lse + i * 64, lane);
#pragma unroll 1
        for (int j = 0; j * 16 < keys; j++) {
          uint32_t p[4], ds[4], at_k = in_k + j * TILE;
          if (a.causal && j_at + j * 16 > x.i0) break;
          back_pair<T>(p, ds, x, at_k, in_v + j * TILE, j_at + j * 16, a, is.q0, head, lane);
          if (!by_queries) put_pair(pairs + i * PAIRS + j * PAIR, p, ds, lane);
          if (!by_keys) mma_tile<T>(sum, ds, at_k, lane);
        }
        if (whole) store_queries(x.i0), clear(sum);
      }

      if (!by_queries) {
        __syncthreads();
        for (int u = warp; u / 2 * 16 < keys; u += WARPS) { /* of a piece one each */
          bool is_dk = u % 2;
          uint32_t pair = pairs + u / 2 * PAIR + (is_dk ? 512 : 0), in = is_dk ? in_q : in_do;
          int j0 = j_at + u / 2 * 16;
#pragma unroll 1
          for (int i = a.causal ? max(0, (j0 - i_at) / 16) : 0; i * 16 < rows; i++)
            add_pair<T>(sum, pair + i * PAIRS, in + i * TILE, lane);
          if (whole) store_keys(j0, is_dk), clear(sum);
        }
      }
      if (whole) return;
      *(by_keys ? &i_at : &j_at) += ROWS;
    }
    if (by_queries && i_at + warp * 16 < is.rows) store_queries(i_at + warp * 16);
    if (by_keys && j_at + warp / 2 * 16 < is.keys) store_keys(j_at + warp / 2 * 16, warp % 2);
  };
  share_out<THREADS>(sentences, (int)blockIdx.x / a.heads, pieces_of, run);
#else
  __trap();
#endif
}

/* ---- launchers ---- */

/* May this kernel be launched with so much shared memory? */
template <typename K>
static bool may_stage(K kernel, size_t bytes) {
  if (!is_built(kernel)) return false;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) ==
          cudaSuccess &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                           cudaSharedmemCarveoutMaxShared) == cudaSuccess)
    return true;
  (void)cudaGetLastError();
  return false;
}

static unsigned blocks_of(const Attention *a) {
  return (unsigned)(a->heads * (a->sentences + HELPERS));
}

template <typename T, int ROWS, int WARPS>
static bool backward(T *dq, T *dk, T *dv, const T *d_o, const T *o, const float *lse,
                     const T *q, const T *k, const T *v, const Attention *a,
                     cudaStream_t stream) {
  constexpr size_t bytes = back_bytes<ROWS>();
  if (!may_stage(attend_back_former<T, ROWS, WARPS>, bytes)) return false;
  attend_back_former<T, ROWS, WARPS><<<blocks_of(a), WARPS * 32, bytes, stream>>>(
      dq, dk, dv, d_o, o, lse, q, k, v, attend_of(a), (int)a->sentences);
  return true;
}

bool attend_back_formerly(Type type, void *dq, void *dk, void *dv, const void *d_o,
                          const void *o, const float *lse, const void *q, const void *k,
                          const void *v, const Attention *a, cudaStream_t stream) {
  if (a->d != D) return false;
  if (type == TYPE_BF16) {
    typedef __nv_bfloat16 T;
    return backward<T, 64, 4>((T *)dq, (T *)dk, (T *)dv, (const T *)d_o, (const T *)o, lse,
                              (const T *)q, (const T *)k, (const T *)v, a, stream);
  }
  typedef __half T;
  return backward<T, 64, 4>((T *)dq, (T *)dk, (T *)dv, (const T *)d_o, (const T *)o, lse,
                            (const T *)q, (const T *)k, (const T *)v, a, stream);
}
