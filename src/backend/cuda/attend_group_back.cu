/* Attention's way back on the tensor cores for heads of 64 columns: all rows of a
 * sentence are asked for at once, read once, and stay on the chip until its results
 * are written. Relies on attend.cuh, mma.cuh, staged.cuh.
 *
 * A block has four warps and room for 64 rows of each array, four tiles. A sentence of
 * up to 64 rows and keys is the work of one block for each GROUP of heads, which takes
 * as many of them side by side as have room: one, two of up to 32 rows, four of up to
 * 16, so that there is a tile for each warp. Longer sentences are cut into pieces of one
 * head, which need nothing of each other and are shared out evenly among the first
 * HELPERS blocks of each head; as blocks begin in order, the long work begins first.
 * A pair is a tile of queries and one of keys. */
#include "backend/cuda/attend.cuh"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/staged.cuh"

#define GROUP   4
#define WARPS   4
#define THREADS (WARPS * 32)
#define ROWS    (WARPS * 16) /* there is room for; the queries of a piece */
#define KEYS    (WARPS * 8)  /* of a piece */
#define PLANE   (ROWS * ROW) /* bytes of an array */
#define PAIR    1024         /* bytes: p, then ds */
#define PAIRS   (WARPS * PAIR)

/* q, do, k, v; p and ds of each pair; the keys of Philox's rounds. */
#define BACK_BYTES (4 * PLANE + WARPS * PAIRS + 80)

/* Of dropout, known before the kernel begins. */
struct Chance {
  float log2_scale, minus_over; /* the scale as a power of 2, and minus one over it */
  uint32_t below, both;         /* see keep_masks */
};

#if HAS_MMA
/* ---- small parts ---- */

/* d (16, 8) = a (16, 16) · b (16, 8) + c. */
template <typename T>
static __device__ __forceinline__ void mma_onto(float (&d)[4], const uint32_t (&a)[4],
                                                uint32_t b0, uint32_t b1, float c0, float c1,
                                                float c2, float c3) {
  d[0] = c0, d[1] = c1, d[2] = c2, d[3] = c3;
  mma<T>(d, a[0], a[1], a[2], a[3], b0, b1);
}

/* Both elements times 1 / sqrt(D), a power of 2. */
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

/* Where a lane finds its rows of a tile: see by_16 and by_8 in staged.cuh. Tiles begin
 * at multiples of 1024 bytes, so these are added. */
struct Places {
  uint32_t by_16[4], by_8[2];
};

static __device__ __forceinline__ Places places_of(int lane) {
  Places at;
#pragma unroll
  for (int c = 0; c < 4; c++) at.by_16[c] = by_16(lane) ^ (uint32_t)c << 5;
  at.by_8[0] = by_8(lane), at.by_8[1] = by_8(lane) ^ 64;
  return at;
}

/* With 32 bits each a row and its width are multiplied at once. */
template <typename T>
static __device__ __forceinline__ T *row_of(T *p, int row, size_t ld) {
  return p + (size_t)(uint32_t)row * (uint32_t)ld;
}

/* ---- dropout ---- */

/* The keys of Philox's rounds, for keep_masks, two rounds in 16 bytes of shared memory.
 * A barrier must follow. */
static __device__ __forceinline__ void put_keys(uint4 *to, const Drop &drop) {
  uint32_t i = threadIdx.x;
  if (drop.threshold && i < 5) {
    uint64_t key = __ldg(drop.key);
    uint32_t x = (uint32_t)key + 2 * i * 0x9E3779B9u;
    uint32_t y = (uint32_t)(key >> 32) + 2 * i * 0xBB67AE85u;
    to[i] = make_uint4(x, y, x + 0x9E3779B9u, y + 0xBB67AE85u);
  }
}

/* Which probabilities of a pair are kept: mask 2n + r is of queries g + 8r and keys
 * 8n + 2t, 8n + 2t + 1, half a word each, all ones or none. A Philox call has eight
 * keys of a query, in word t those of lane t. So lane t of four calls for r = t % 2,
 * n = t / 2 (c0 and c1 are its call), and the four turn their words over. */
static __device__ __forceinline__ void keep_masks(uint32_t (&mask)[4], const Chance &chance,
                                                  const uint4 *keys, uint32_t site, uint32_t c0,
                                                  uint32_t c1, int t) {
  uint32_t c2 = site, c3 = 0;
#pragma unroll
  for (uint32_t i = 0; i < 5; i++) {
    uint4 key = keys[i];
#pragma unroll
    for (int e = 0; e < 2; e++) {
      uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
      c0 = (uint32_t)(p1 >> 32) ^ c1 ^ (e ? key.z : key.x);
      c2 = (uint32_t)(p0 >> 32) ^ c3 ^ (e ? key.w : key.y);
      c1 = (uint32_t)p1;
      c3 = (uint32_t)p0;
    }
  }
  /* Is a half at least the threshold? Bit 15 of the difference says so of their lower 15
   * bits; with that and the half's own bit 15 either is enough, or it takes both. */
  uint32_t w[4] = {c0, c1, c2, c3};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint32_t d = (w[i] | 0x80008000u) - chance.below;
    w[i] = (d & w[i]) | (d & chance.both) | (w[i] & chance.both);
  }
  /* Of each word its two bytes with answers; then two steps of turning over. */
  uint32_t low = pick_bytes(w[0], w[1], 0x7531), high = pick_bytes(w[2], w[3], 0x7531);
  uint32_t mine = t & 2 ? high : low, across = t & 2 ? low : high;
  across = __shfl_xor_sync(0xffffffffu, across, 2);
  uint32_t turn = t & 1 ? 0x7632 : 0x5410;
  uint32_t kept = pick_bytes(mine, across, turn);
  uint32_t sent = pick_bytes(mine, across, turn ^ 0x2222u);
  sent = __shfl_xor_sync(0xffffffffu, sent, 1);
  /* Now kept has the calls of lanes t and t ^ 2, sent those of t ^ 1 and t ^ 3. */
  uint32_t which = 0x9988u ^ (t & 1 ? 0x4444u : 0) ^ (t & 2 ? 0x2222u : 0);
#pragma unroll
  for (uint32_t c = 0; c < 4; c++)
    mask[c] = pick_bytes(kept, sent, which ^ (c & 1 ? 0x4444u : 0) ^ (c & 2 ? 0x2222u : 0));
}

/* ---- pairs ---- */

/* 16 queries as the first half needs them. Rows past the sentence's end are zeros, and
 * so is what they give. */
struct Queries {
  uint32_t q[4][4], d_o[4][4];
  float lse2[2];     /* of rows g, g + 8: minus lse in powers of 2, times the dropout's scale */
  float delta[2];    /* minus the sum of do * o, through the dropout's scale */
  int i0, keys, all; /* the first row; how many keys there are, and how many all rows see */
  bool causal;
  uint64_t group; /* this lane's first Philox call; only 32 bits change with the keys */
};

template <typename T>
static __device__ __forceinline__ void load_queries(Queries &x, uint32_t q, uint32_t d_o,
                                                    uint32_t o, const Places &at, float by,
                                                    int lane) {
  int g = lane / 4;
#pragma unroll
  for (int c = 0; c < 4; c++) {
    load_tiles(x.d_o[c], d_o + at.by_16[c]);
    load_tiles(x.q[c], q + at.by_16[c]);
  }
  /* do · oᵀ, of which the diagonal is wanted: row g's is in lane (g, g / 2). */
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
    x.delta[r] = __shfl_sync(0xffffffffu, mine, (lane & ~3) + g / 2) * by;
  }
  __syncwarp(); /* o was read: its place is p's and ds's */
}

/* A pair: what each query gives each of the keys j0 …, with dropout and its scale (p),
 * and how the loss changes with the products of q and k (ds), both as left operands. */
template <typename T>
static __device__ __forceinline__ void back_pair(uint32_t (&p)[4], uint32_t (&ds)[4],
                                                 const Queries &x, uint32_t k, int j0,
                                                 const Places &at, const Drop &drop,
                                                 const Chance &chance, const uint4 *keys,
                                                 int lane) {
  const float to_log2 = 0.125f * LOG2_E;
  int t = lane % 4;
  float s[2][4], dp[2][4];
#pragma unroll
  for (int m = 0; m < 4; m++) { /* 8 rows of k, 8 more, and of v */
    const uint32_t(&left)[4][4] = m < 2 ? x.q : x.d_o;
    float(&to)[4] = m < 2 ? s[m] : dp[m - 2];
    float lo = m < 2 ? 0 : x.delta[0], hi = m < 2 ? 0 : x.delta[1];
#pragma unroll
    for (int c = 0; c < 2; c++) {
      uint32_t y[4];
      load_tiles(y, k + (uint32_t)(m / 2 * PLANE + m % 2 * 8 * ROW) + at.by_8[c]);
      if (c == 0)
        mma_onto<T>(to, left[0], y[0], y[1], lo, lo, hi, hi);
      else
        mma<T>(to, left[2][0], left[2][1], left[2][2], left[2][3], y[0], y[1]);
      const uint32_t(&then)[4] = left[2 * c + 1];
      mma<T>(to, then[0], then[1], then[2], then[3], y[2], y[3]);
    }
  }
  if (j0 + 16 > x.all) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      int seen = x.causal ? min(x.keys, x.i0 + lane / 4 + r * 8 + 1) : x.keys;
#pragma unroll
      for (int e = 0; e < 4; e++) {
        if (j0 + e / 2 * 8 + 2 * t + e % 2 >= seen) s[e / 2][2 * r + e % 2] = -INFINITY;
      }
    }
  }
  uint32_t mask[4];
  if (drop.threshold)
    keep_masks(mask, chance, keys, drop.site, (uint32_t)x.group + (uint32_t)j0 / 8,
               (uint32_t)(x.group >> 32), t);
  else
    mask[0] = mask[1] = mask[2] = mask[3] = 0xffffffffu;
#pragma unroll
  for (int n = 0; n < 2; n++) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      uint32_t m = mask[2 * n + r];
      float lo = exp2_fast(s[n][2 * r] * to_log2 + x.lse2[r]);
      float hi = exp2_fast(s[n][2 * r + 1] * to_log2 + x.lse2[r]);
      p[2 * n + r] = pack2<T>(lo, hi) & m;
      lo *= m & 2 ? dp[n][2 * r] : x.delta[r];
      hi *= m >> 31 ? dp[n][2 * r + 1] : x.delta[r];
      ds[2 * n + r] = times_scale<T>(pack2<T>(lo, hi));
    }
  }
}

/* What a warp adds up: 16 rows. Nobody sets it to 0 as long as something is added. */
struct Sum {
  float x[D / 8][4];
  bool empty;
};

/* sum += left (16, 16) · tile (16, D). */
template <typename T>
static __device__ __forceinline__ void add_tile(Sum &sum, const uint32_t (&left)[4],
                                                uint32_t tile, const Places &at) {
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

/* Eight by eight p and ds lie as 128 bytes, in the order in which the left operand
 * turned over has them: the second and third change places. Where a lane puts its row. */
static __device__ __forceinline__ uint32_t pair_row(int lane) {
  int m = lane / 8;
  return (uint32_t)((m % 2 * 2 + m / 2) * 128 + lane % 8 * 16);
}

/* sum (16 keys, D) += pᵀ · do, or dsᵀ · q. */
template <typename T>
static __device__ __forceinline__ void add_pair(Sum &sum, uint32_t pair, uint32_t tile,
                                                const Places &at, int lane) {
  uint32_t x[4];
  load_tiles_over(x, pair + (uint32_t)lane * 16);
  add_tile<T>(sum, x, tile, at);
}

/* Writes the first `count` rows of a tile, from row `first` on, and empties it, by way of the
 * 2048 bytes at `by`, which are this warp's own. */
template <typename T>
static __device__ __forceinline__ void store_rows(T *to, int first, int head, size_t ld,
                                                  int count, Sum &sum, uint32_t by,
                                                  const Places &at, int lane) {
  if (sum.empty) {
    __syncwarp(); /* keeps this a branch */
    clear(sum.x);
  }
  sum.empty = true;
  __syncwarp(); /* what lies there was read */
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

/* ---- the kernel ---- */

/* First half: a warp has 16 queries and goes over the keys, for dq, leaving p and ds.
 * Second half: a warp has 16 keys and goes over the queries, for dv and dk. A short
 * sentence has both. A piece of a long one is the first half of 16 queries a warp, in
 * rounds over all keys, or the second of 16 keys and either dv or dk a warp, in rounds
 * over all queries, whose p and ds are made again. */
template <typename T>
static __global__ void __launch_bounds__(THREADS, 4)
    attend_back_group(T *dq, T *dk, T *dv, const T *__restrict__ d_o, const T *__restrict__ o,
                      const float *__restrict__ lse, const T *__restrict__ q,
                      const T *__restrict__ k, const T *__restrict__ v, Attend a, Chance chance,
                      int sentences) {
#if HAS_MMA
  extern __shared__ __align__(128) uint4 staged[];
  uint32_t in_q = shared_at(staged), in_do = in_q + PLANE, in_k = in_do + PLANE;
  uint32_t in_v = in_k + PLANE, pairs = in_v + PLANE;
  int lane = (int)(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  int warp =
      (int)__shfl_sync(0xffffffffu, threadIdx.x / 32, 0); /* known to be one for all lanes */
  int helpers = HELPERS * a.heads, groups = (a.heads + GROUP - 1) / GROUP;
  int block = (int)blockIdx.x, rest = block - helpers;
  int number = rest < 0 ? block / a.heads : HELPERS + sentences - 1 - rest / groups;
  int first_head = rest < 0 ? block % a.heads : rest % groups * GROUP;
  const Places at = places_of(lane);
  put_keys(staged + (BACK_BYTES - 80) / 16, a.drop);

  auto pieces_of = [&](int s) {
    int rows = a.q_off[s + 1] - a.q_off[s];
    int keys = a.k_len ? a.k_len[s] : a.k_off[s + 1] - a.k_off[s];
    if (rows <= ROWS && keys <= ROWS) return 0;
    return (rows + ROWS - 1) / ROWS + (keys + KEYS - 1) / KEYS;
  };
  auto run = [&](int s, int part) {
    Sentence is = sentence_of(a, (unsigned)s);
    int is_q0 = (int)is.q0, is_k0 = (int)is.k0; /* offsets are 32 bits wide */
    int firsts = (is.rows + ROWS - 1) / ROWS;   /* as many pieces are first halves */
    bool whole = part < 0, by_queries = !whole && part < firsts, by_keys = part >= firsts;
    /* The rows and keys of this round, and how far the rounds go. */
    int i_at = by_queries ? part * ROWS : 0, j_at = by_keys ? (part - firsts) * KEYS : 0;
    int end = by_keys ? is.rows : is.keys;
    if (a.causal && by_queries) end = min(end, i_at + ROWS);
    if (a.causal && by_keys) i_at = j_at; /* earlier queries do not see these keys */
    /* Tiles for a head: 1, 2 or 4. This warp's head and its tile in it. */
    int most = max(is.rows, is.keys), shift = whole && most <= 32 ? most > 16 : 2;
    int slot = warp >> shift, tile = warp & ((1 << shift) - 1), side = WARPS >> shift;
    int last = whole ? min(a.heads, first_head + GROUP) : first_head + 1;
    /* Results leave through rows that nobody reads any more: see below. */
    bool roomy = shift < 2;
    uint32_t by =
        roomy ? pairs + (uint32_t)(warp * PAIRS + 2 * PAIR) : in_v + (uint32_t)(warp * TILE);
    Sum sum;
    sum.empty = true;

    /* Begins to copy the heads from h on, and zeros where there are no rows or heads any
     * more. Each thread has a row of a tile, 16 bytes of it, and that of four tiles. */
    int row = (int)(threadIdx.x / 8), c = (int)(threadIdx.x % 8);
    auto copy = [&](uint32_t to, int step, const T *from, int row0, size_t ld, int count,
                    int h) {
      to += (uint32_t)(row * ROW + ((c ^ row % 8) << 4));
      from = row_of(from, row0 + row, ld) + (uint32_t)(h * D + c * 8);
      uint32_t tile_on = 16 * (uint32_t)ld;
      uint32_t odd = shift ? tile_on : D, high = shift == 2 ? 2 * tile_on : 2 * D >> shift;
#pragma unroll
      for (int i = 0; i < WARPS; i++) {
        int below = (i & ((1 << shift) - 1)) * 16; /* as many rows */
        if (h + (i >> shift) >= last) below = ROWS;
        copy16(to + (uint32_t)(i * step), from + (i & 1 ? odd : 0) + (i & 2 ? high : 0),
               below + row < count);
      }
    };

    for (int h = first_head, again = 0;; again = 1) {
      int rows = min(ROWS, is.rows - i_at), keys = min(by_keys ? KEYS : ROWS, is.keys - j_at);
      int q0 = is_q0 + i_at, k0 = is_k0 + j_at;
      if (again) __syncthreads(); /* what lies there was read */
      if (!again || !by_queries) {
        copy(in_q, TILE, q, q0, a.q_ld, rows, h);
        copy(in_do, TILE, d_o, q0, a.o_ld, rows, h);
        copy(pairs, PAIRS, o, q0, a.o_ld, rows, h);
      }
      if (!again || by_queries) copy(in_k, TILE, k, k0, a.kv_ld, keys, h);
      if (!again || by_queries || (whole && !roomy)) copy(in_v, TILE, v, k0, a.kv_ld, keys, h);

      int head = h + slot, i0 = i_at + tile * 16;
      bool has_queries = head < last && tile * 16 < rows;
      bool has_keys = whole && head < last && tile * 16 < keys;
      Queries x;
#pragma unroll
      for (int r = 0; r < 2; r++) {
        int i = i0 + g + r * 8;
        x.lse2[r] = 0;
        if (has_queries && i < is.rows)
          x.lse2[r] = __ldg(row_of(lse, is_q0 + i, (size_t)a.heads) + head);
      }
      copies_wait();
      __syncthreads();

      if (has_queries) {
        x.lse2[0] = chance.log2_scale - x.lse2[0] * LOG2_E;
        x.lse2[1] = chance.log2_scale - x.lse2[1] * LOG2_E;
        x.i0 = i0, x.keys = is.keys, x.causal = a.causal;
        x.all = a.causal ? min(is.keys, i0 + 1) : is.keys;
        uint32_t query = (uint32_t)(is_q0 + i0 + g + t % 2 * 8);
        x.group = ((uint64_t)query * (uint32_t)a.heads + (uint32_t)head) * (MOST_KEYS / 8) +
                  (uint32_t)t / 2;
        load_queries<T>(x, in_q + warp * TILE, in_do + warp * TILE, pairs + warp * PAIRS, at,
                        chance.minus_over, lane);
        int seen = a.causal ? min(keys, i0 + 1 - j_at) : keys; /* up to this tile's */
        uint32_t tile_k = in_k + (uint32_t)((slot << shift) * TILE);
        uint32_t pair = pairs + (uint32_t)(warp * PAIRS) + pair_row(lane);
#pragma unroll 1
        for (int j = 0; j < seen; j += 16, tile_k += TILE, pair += PAIR) {
          uint32_t p[4], ds[4];
          back_pair<T>(p, ds, x, tile_k, j_at + j, at, a.drop, chance,
                       staged + (BACK_BYTES - 80) / 16, lane);
          if (!by_queries) {
            store_tiles(pair, p[0], p[1], p[2], p[3]);
            store_tiles(pair + PAIR / 2, ds[0], ds[1], ds[2], ds[3]);
          }
          if (!by_keys) add_tile<T>(sum, ds, tile_k, at);
        }
      }

      if (!by_queries) {
        __syncthreads();
        /* Now k and v are free for the next heads, unless results leave through v. */
        int next = h + side;
        if (whole && next < last) {
          copy(in_k, TILE, k, k0, a.kv_ld, keys, next);
          if (roomy) copy(in_v, TILE, v, k0, a.kv_ld, keys, next);
        }
        if (whole && has_queries) {
          store_rows(dq, is_q0 + i0, head, a.q_ld, is.rows - i0, sum, by, at, lane);
        }
        int unit = whole ? tile : warp / 2;
        bool does = whole ? has_keys : unit * 16 < keys;
#pragma unroll 1
        for (int is_dk = whole ? 0 : warp % 2; does && is_dk < 2; is_dk++) {
          int i = a.causal ? max(0, (j_at - i_at) / 16 + unit) : 0;
          uint32_t first = (uint32_t)((slot << shift) + i);
          uint32_t pair = pairs + first * PAIRS + (uint32_t)(unit * PAIR + is_dk * (PAIR / 2));
          uint32_t rows_at = (is_dk ? in_q : in_do) + first * TILE;
#pragma unroll 1
          for (; i * 16 < rows; i++, pair += PAIRS, rows_at += TILE)
            add_pair<T>(sum, pair, rows_at, at, lane);
          if (!whole) break;
          store_rows(is_dk ? dk : dv, is_k0 + tile * 16, head, a.kv_ld, is.keys - tile * 16,
                     sum, by, at, lane);
        }
      }
      if (whole) {
        h += side;
        if (h >= last) return;
      } else if (by_keys) {
        i_at += ROWS;
        if (i_at >= end) break;
      } else {
        j_at += ROWS;
        if (j_at >= end) break;
      }
    }
    __syncthreads(); /* v was read */
    if (by_queries) {
      int first = i_at + warp * 16;
      if (first < is.rows)
        store_rows(dq, is_q0 + first, first_head, a.q_ld, is.rows - first, sum, by, at, lane);
    } else {
      int first = j_at + warp / 2 * 16;
      if (first < is.keys)
        store_rows(warp % 2 ? dk : dv, is_k0 + first, first_head, a.kv_ld, is.keys - first, sum,
                   by, at, lane);
    }
  };
  share_out<THREADS>(sentences, number, pieces_of, run);
#else
  __trap();
#endif
}

/* ---- launcher ---- */

template <typename T>
static bool launch(T *dq, T *dk, T *dv, const T *d_o, const T *o, const float *lse, const T *q,
                   const T *k, const T *v, const Attention *a, cudaStream_t stream) {
  if (!is_built(attend_back_group<T>)) return false;
  if (cudaFuncSetAttribute(attend_back_group<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           BACK_BYTES) != cudaSuccess ||
      cudaFuncSetAttribute(attend_back_group<T>, cudaFuncAttributePreferredSharedMemoryCarveout,
                           cudaSharedmemCarveoutMaxShared) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  Attend at = attend_of(a);
  Chance chance = {log2f(at.drop.scale), -1 / at.drop.scale,
                   (at.drop.threshold & 0x7fff) * 0x10001u,
                   at.drop.threshold < 0x8000 ? 0xffffffffu : 0};
  size_t groups = (a->heads + GROUP - 1) / GROUP;
  unsigned blocks = (unsigned)(HELPERS * a->heads + a->sentences * groups);
  attend_back_group<T><<<blocks, THREADS, BACK_BYTES, stream>>>(
      dq, dk, dv, d_o, o, lse, q, k, v, at, chance, (int)a->sentences);
  return true;
}

bool attend_back_by_group(Type type, void *dq, void *dk, void *dv, const void *d_o,
                          const void *o, const float *lse, const void *q, const void *k,
                          const void *v, const Attention *a, cudaStream_t stream) {
  if (a->d != D) return false;
  auto run = [&](auto zero) {
    typedef decltype(zero) T;
    return launch((T *)dq, (T *)dk, (T *)dv, (const T *)d_o, (const T *)o, lse, (const T *)q,
                  (const T *)k, (const T *)v, a, stream);
  };
  return type == TYPE_BF16 ? run(__nv_bfloat16()) : run(__half());
}
