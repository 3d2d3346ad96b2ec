/* Attention backward on tensor cores for heads of 64 columns: dq, dk and dv from do. A block
 * copies all rows that it needs into shared memory once and keeps all intermediate values on
 * the chip. Depends on attend_pair.cuh, staged.cuh.
 *
 * A block has four warps and room for 64 rows (four tiles of 16) of each input. A pair is a
 * tile of queries and a tile of keys. There are three types of work:
 *   WHOLE    A sentence of up to 64 queries and 64 keys: one block for each GROUP of its heads.
 *            As many heads as fit are processed at a time (4 of up to 16 rows, 2 of up to 32,
 *            otherwise 1), so that each warp has a tile. The warps first compute pairs by
 *            queries (dq), then sum them by keys (dv, dk).
 *   QUERIES  64 queries of one head of a longer sentence, with all keys, 64 at a time: dq.
 *   KEYS     32 keys of one head of a longer sentence, with all queries, 64 at a time: dv in
 *            even warps, dk in odd warps. Its pairs are computed a second time, so that blocks
 *            do not depend on each other.
 * Parts of long sentences are distributed evenly over the first HELPERS blocks of each head.
 * GPUs start blocks in order, so the long work starts first.
 *
 * TIGHT is the variant for SMs of 100 KB of shared memory or less: 32 KB instead of 48, for
 * three blocks per SM instead of two, and 168 registers per thread instead of 128. Turing, with
 * 64 KB, has two blocks instead of one, and 240 registers per thread. A WHOLE sentence's
 * pairs stay in registers until all warps have read k and v, and then replace these. A KEYS
 * part has only half as many rows of k and v, and its pairs follow them. o is read from global
 * memory, and Philox's round keys are computed. */
#include "backend/cuda/attend.cuh"
#include "backend/cuda/attend_pair.cuh"

#define GROUP   4 /* heads of a block */
#define WARPS   4
#define THREADS (WARPS * 32)
/* rows of each input in shared memory; queries of a QUERIES part */
#define ROWS        (WARPS * 16)
#define KEYS        (WARPS * 8)  /* keys of a KEYS part */
#define PLANE_BYTES (ROWS * ROW) /* bytes of one input (q, do, k or v) in shared memory */
/* shared memory for the pairs of one tile of queries; at first it contains the tile's o */
#define PAIRS_BYTES (WARPS * PAIR_BYTES)

/* Offset of the counter word and the round keys of Philox in shared memory, after q, do, k, v and
 * the pairs of each tile of queries. */
#define ROUND_KEYS_AT (4 * PLANE_BYTES + WARPS * PAIRS_BYTES)
#define SHARED_BYTES  (TIGHT ? 4 * PLANE_BYTES : ROUND_KEYS_AT + ROUND_KEYS_BYTES)

/* blocks per SM that the registers must allow; A100 has shared memory for three of the four */
#define BLOCKS (!TIGHT ? 4 : IS_TURING ? 2 : 3)

#if HAS_MMA
/* Shared-memory addresses of the inputs and the pairs. */
struct Stage {
  uint32_t q, d_o, k, v, pairs;
};

/* The current work of a block, and the part of this warp. */
struct Work {
  /* the type of work (WHOLE, QUERIES, KEYS): exactly one is true */
  bool whole, by_queries, by_keys;
  int rows, keys; /* number of queries and keys of the sentence */
  int q0, k0;     /* first row of the sentence in q and in k */
  int i_at, j_at; /* first query and first key of the current round */
  /* rounds end at this query (by_keys) or at this key (by_queries) */
  int end;
  int shift; /* log2 of the tiles of a head: 0, 1, 2 */
  /* index of this warp's head among those processed together, and its tile */
  int slot, tile;
  int side; /* number of heads processed together */
  int last; /* one past the last head of the block */
};

/* Describes the work of this warp for a part of sentence s; part < 0: the whole sentence. */
static __device__ __forceinline__ Work plan_work(const Attend &a, int s, int part,
                                                 int first_head, int warp) {
  Sentence is = sentence_of(a, (unsigned)s);
  Work w;
  w.q0 = (int)is.q0; /* Token offsets fit into 32 bits. */
  w.k0 = (int)is.k0;
  w.rows = is.rows;
  w.keys = is.keys;
  int query_parts = (is.rows + ROWS - 1) / ROWS;
  w.whole = part < 0;
  w.by_queries = !w.whole && part < query_parts;
  w.by_keys = part >= query_parts;
  w.i_at = w.by_queries ? part * ROWS : 0;
  w.j_at = w.by_keys ? (part - query_parts) * KEYS : 0;
  w.end = w.by_keys ? is.rows : is.keys;
  if (a.causal && w.by_queries) w.end = min(w.end, w.i_at + ROWS);
  /* Causal attention: earlier queries do not see these keys. */
  if (a.causal && w.by_keys) w.i_at = w.j_at;
  int most = max(is.rows, is.keys);
  w.shift = w.whole && most <= 32 ? most > 16 : 2;
  w.slot = warp >> w.shift;
  w.tile = warp & ((1 << w.shift) - 1);
  w.side = WARPS >> w.shift;
  w.last = w.whole ? min(a.heads, first_head + GROUP) : first_head + 1;
  return w;
}

/* Starts to copy `count` rows beginning at row0, of the heads beginning at h, into `tiles`
 * tiles that are `step` bytes apart; writes zeros if there are no more rows or heads. A thread
 * copies 16 bytes of one row of each tile. */
template <typename T>
static __device__ __forceinline__ void copy_tiles(const Work &w, uint32_t to, int step,
                                                  const T *from, int row0, size_t ld, int count,
                                                  int h, int tiles = WARPS) {
  int row = (int)(threadIdx.x / 8), c = (int)(threadIdx.x % 8);
  to += (uint32_t)(row * ROW + ((c ^ row % 8) << 4));
  from = row_of(from, row0 + row, ld) + (uint32_t)(h * D + c * 8);
  uint32_t next_tile = 16 * (uint32_t)ld;
  uint32_t odd = w.shift ? next_tile : D;
  uint32_t high = w.shift == 2 ? 2 * next_tile : 2 * D >> w.shift;
#pragma unroll
  for (int i = 0; i < WARPS; i++) {
    if (i >= tiles) break;
    int rows_before = (i & ((1 << w.shift) - 1)) * 16;
    if (h + (i >> w.shift) >= w.last) rows_before = ROWS;
    copy16(to + (uint32_t)(i * step), from + (i & 1 ? odd : 0) + (i & 2 ? high : 0),
           rows_before + row < count);
  }
}

/* Completes x, the 16 queries of this warp, from shared memory and, if TIGHT, from o_rows.
 * Before the call x.lse2 contains lse. */
template <typename T, bool TIGHT>
static __device__ __forceinline__ void begin_queries(Queries &x, const uint4 (&o_rows)[4],
                                                     const Work &w, const Stage &in,
                                                     const Attend &a,
                                                     const DropConstants &constants,
                                                     const LaneOffsets &at, int head, int i0,
                                                     int g, int t, int warp, int lane) {
  x.lse2[0] = constants.log2_scale - x.lse2[0] * LOG2_E;
  x.lse2[1] = constants.log2_scale - x.lse2[1] * LOG2_E;
  x.i0 = i0;
  x.keys = w.keys;
  x.causal = a.causal;
  x.all = a.causal ? min(w.keys, i0 + 1) : w.keys;
  uint32_t query = (uint32_t)(w.q0 + i0 + g + t % 2 * 8);
  x.group = ((uint64_t)query * (uint32_t)a.heads + (uint32_t)head) * (MOST_KEYS / 8) +
            (uint32_t)t / 2;
  load_queries(x, in.q + warp * TILE, in.d_o + warp * TILE, at);
  if (TIGHT)
    compute_delta<T>(x, in.d_o + warp * TILE, o_rows, constants.minus_inverse_scale, lane);
  else
    compute_delta<T>(x, in.pairs + warp * PAIRS_BYTES, at, constants.minus_inverse_scale, lane);
}

/* Adds the pairs of key tile `unit` and all staged queries to dv (pᵀ · do) or dk (dsᵀ · q).
 * step: bytes of the pairs of one tile of queries. */
template <typename T>
static __device__ __forceinline__ void sum_pairs(Sum &sum, const Work &w, const Stage &in,
                                                 bool causal, int unit, int is_dk, int rows,
                                                 int step, const LaneOffsets &at, int lane) {
  /* Causal attention: earlier tiles of queries see none of these keys. */
  int i = causal ? max(0, (w.j_at - w.i_at) / 16 + unit) : 0;
  uint32_t first = (uint32_t)((w.slot << w.shift) + i);
  uint32_t pair = in.pairs + first * (uint32_t)step +
                  (uint32_t)(unit * PAIR_BYTES + is_dk * (PAIR_BYTES / 2));
  uint32_t rows_at = (is_dk ? in.q : in.d_o) + first * TILE;
#pragma unroll 1
  for (; i * 16 < rows; i++, pair += (uint32_t)step, rows_at += TILE)
    add_pair<T>(sum, pair, rows_at, at, lane);
}
#endif

template <typename T, bool TIGHT>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    attend_backward_group(T *dq, T *dk, T *dv, const T *__restrict__ d_o,
                          const T *__restrict__ o, const float *__restrict__ lse,
                          const T *__restrict__ q, const T *__restrict__ k,
                          const T *__restrict__ v, Attend a, DropConstants constants,
                          int sentences) {
#if HAS_MMA
  extern __shared__ __align__(128) uint4 staged[];
  Stage in;
  in.q = shared_at(staged);
  in.d_o = in.q + PLANE_BYTES;
  in.k = in.d_o + PLANE_BYTES;
  in.v = in.k + PLANE_BYTES;
  in.pairs = in.v + PLANE_BYTES;
  uint4 *round_keys = staged + ROUND_KEYS_AT / 16;
  int lane = (int)(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  /* The shuffle tells the compiler that all lanes have the same value. */
  int warp = (int)__shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  int helpers = HELPERS * a.heads, groups = (a.heads + GROUP - 1) / GROUP;
  int block = (int)blockIdx.x, rest = block - helpers;
  int number = rest < 0 ? block / a.heads : HELPERS + sentences - 1 - rest / groups;
  int first_head = rest < 0 ? block % a.heads : rest % groups * GROUP;
  const LaneOffsets at = lane_offsets(lane);
  if (!TIGHT) put_round_keys((uint32_t *)round_keys, a.drop);

  auto parts_of = [&](int s) {
    int rows = a.q_off[s + 1] - a.q_off[s];
    int keys = a.k_len ? a.k_len[s] : a.k_off[s + 1] - a.k_off[s];
    if (rows <= ROWS && keys <= ROWS) return 0;
    return (rows + ROWS - 1) / ROWS + (keys + KEYS - 1) / KEYS;
  };
  auto run = [&](int s, int part) {
    Work w = plan_work(a, s, part, first_head, warp);
    /* `by` is shared memory for transposing results: with several heads at a time the memory of
     * two of the warp's four pairs, which is then unused; otherwise this warp's tile of v,
     * which is free after the first half. */
    bool roomy = w.shift < 2;
    uint32_t by = roomy ? in.pairs + (uint32_t)(warp * PAIRS_BYTES + 2 * PAIR_BYTES)
                        : in.v + (uint32_t)(warp * TILE);
    int pairs_step = PAIRS_BYTES, plane = PLANE_BYTES, key_tiles = WARPS;
    if (TIGHT) {
      /* The pairs replace k and v, or follow the fewer keys of a KEYS part. Results are
       * transposed in this warp's part of that memory when no other warp reads it. */
      key_tiles = w.by_keys ? KEYS / 16 : WARPS;
      plane = key_tiles * TILE;
      pairs_step = key_tiles * PAIR_BYTES;
      in.v = in.k + (uint32_t)plane;
      in.pairs = w.by_keys ? in.k + PLANE_BYTES : in.k;
      by = in.k + (uint32_t)(warp * PAIRS_BYTES);
    }
    Sum sum;
    sum.empty = true;

    for (int h = first_head, again = 0;; again = 1) {
      int rows = min(ROWS, w.rows - w.i_at);
      int keys = min(w.by_keys ? KEYS : ROWS, w.keys - w.j_at);
      int q0 = w.q0 + w.i_at, k0 = w.k0 + w.j_at;
      /* All warps must have read the rows of the last round before they are overwritten. */
      if (again) __syncthreads();
      if (!again || !w.by_queries) {
        copy_tiles(w, in.q, TILE, q, q0, a.q_ld, rows, h);
        copy_tiles(w, in.d_o, TILE, d_o, q0, a.o_ld, rows, h);
        if (!TIGHT) copy_tiles(w, in.pairs, PAIRS_BYTES, o, q0, a.o_ld, rows, h);
      }
      if (!again || w.by_queries || (TIGHT && w.whole))
        copy_tiles(w, in.k, TILE, k, k0, a.kv_ld, keys, h, key_tiles);
      if (!again || w.by_queries || (w.whole && (TIGHT || !roomy)))
        copy_tiles(w, in.v, TILE, v, k0, a.kv_ld, keys, h, key_tiles);

      int head = h + w.slot, i0 = w.i_at + w.tile * 16;
      bool has_queries = head < w.last && w.tile * 16 < rows;
      bool has_keys = w.whole && head < w.last && w.tile * 16 < keys;
      Queries x;
      uint4 o_rows[4];
      if (TIGHT && has_queries)
        load_o_rows(o_rows, row_of(o, w.q0 + i0, a.o_ld) + head * D, a.o_ld, w.rows - i0, lane);
#pragma unroll
      for (int r = 0; r < 2; r++) {
        int i = i0 + g + r * 8;
        x.lse2[r] = 0;
        if (has_queries && i < w.rows)
          x.lse2[r] = __ldg(row_of(lse, w.q0 + i, (size_t)a.heads) + head);
      }
      copies_wait();
      __syncthreads();

      /* First half: this warp's queries with the staged keys. Adds to dq (sum) unless by_keys;
       * leaves p and ds in shared memory for the second half unless by_queries. If TIGHT, those
       * of a whole sentence stay in registers. */
      Pair kept[TIGHT ? WARPS : 1];
      /* keys that the first query sees; the loop rounds it up to a tile */
      int seen = !has_queries ? 0 : a.causal ? min(keys, i0 + 1 - w.j_at) : keys;
      if (has_queries) {
        begin_queries<T, TIGHT>(x, o_rows, w, in, a, constants, at, head, i0, g, t, warp, lane);
        uint32_t tile_k = in.k + (uint32_t)((w.slot << w.shift) * TILE);
        uint32_t pair = in.pairs + (uint32_t)(warp * pairs_step) + pair_row(lane);
        if (TIGHT && w.whole) {
#pragma unroll
          for (int j = 0; j < WARPS; j++) {
            Pair &now = kept[TIGHT ? j : 0];
            if (j * 16 >= seen) break;
            compute_pair<T, TIGHT>(now, x, tile_k + j * TILE, plane, j * 16, at, a.drop,
                                   constants, round_keys, lane);
            add_tile<T>(sum, now.ds, tile_k + j * TILE, at);
          }
        } else {
#pragma unroll 1
          for (int j = 0; j < seen; j += 16, tile_k += TILE, pair += PAIR_BYTES) {
            Pair now;
            compute_pair<T, TIGHT>(now, x, tile_k, plane, w.j_at + j, at, a.drop, constants,
                                   round_keys, lane);
            if (!w.by_queries) store_pair(pair, now);
            if (!w.by_keys) add_tile<T>(sum, now.ds, tile_k, at);
          }
        }
      }

      /* Second half: keys with the staged queries, for dv and dk. */
      if (TIGHT && w.whole) {
        __syncthreads(); /* All warps must have read k and v. */
        if (has_queries) {
          store_rows(dq, w.q0 + i0, head, a.q_ld, w.rows - i0, sum, by, at, lane);
          __syncwarp(); /* All lanes must have read the memory at `by`. */
          uint32_t pair = in.pairs + (uint32_t)(warp * PAIRS_BYTES) + pair_row(lane);
#pragma unroll
          for (int j = 0; j < WARPS; j++) {
            if (j * 16 < seen) store_pair(pair + j * PAIR_BYTES, kept[TIGHT ? j : 0]);
          }
        }
        __syncthreads();
        uint32_t tile_do = in.d_o + (uint32_t)(warp * TILE);
        int j0 = w.tile * 16;
#pragma unroll 1
        for (int is_dk = 0; is_dk < 2; is_dk++) {
          if (has_keys)
            sum_pairs<T>(sum, w, in, a.causal, w.tile, is_dk, rows, PAIRS_BYTES, at, lane);
          /* All warps must have read do, in which results are then transposed. */
          if (!is_dk) __syncthreads();
          if (has_keys)
            store_rows(is_dk ? dk : dv, w.k0 + j0, head, a.kv_ld, w.keys - j0, sum, tile_do, at,
                       lane);
        }
      } else if (!w.by_queries) {
        __syncthreads();
        /* The memory of k and v is free for the next heads, unless v is used to transpose
         * results. */
        int next = h + w.side;
        if (w.whole && next < w.last) {
          copy_tiles(w, in.k, TILE, k, k0, a.kv_ld, keys, next);
          if (roomy) copy_tiles(w, in.v, TILE, v, k0, a.kv_ld, keys, next);
        }
        if (w.whole && has_queries) {
          store_rows(dq, w.q0 + i0, head, a.q_ld, w.rows - i0, sum, by, at, lane);
        }
        int unit = w.whole ? w.tile : warp / 2;
        bool does = w.whole ? has_keys : unit * 16 < keys;
#pragma unroll 1
        for (int is_dk = w.whole ? 0 : warp % 2; does && is_dk < 2; is_dk++) {
          sum_pairs<T>(sum, w, in, a.causal, unit, is_dk, rows, pairs_step, at, lane);
          if (!w.whole) break;
          store_rows(is_dk ? dk : dv, w.k0 + w.tile * 16, head, a.kv_ld, w.keys - w.tile * 16,
                     sum, by, at, lane);
        }
      }
      if (w.whole) {
        h += w.side;
        if (h >= w.last) return;
      } else if (w.by_keys) {
        w.i_at += ROWS;
        if (w.i_at >= w.end) break;
      } else {
        w.j_at += ROWS;
        if (w.j_at >= w.end) break;
      }
    }
    __syncthreads(); /* All warps must have read v or the pairs before they are overwritten. */
    if (w.by_queries) {
      int first = w.i_at + warp * 16;
      if (first < w.rows)
        store_rows(dq, w.q0 + first, first_head, a.q_ld, w.rows - first, sum, by, at, lane);
    } else {
      int first = w.j_at + warp / 2 * 16;
      if (first < w.keys)
        store_rows(warp % 2 ? dk : dv, w.k0 + first, first_head, a.kv_ld, w.keys - first, sum,
                   by, at, lane);
    }
  };
  if constexpr (TIGHT)
    share_out_tight<THREADS>(staged, sentences, number, parts_of, run);
  else
    share_out<THREADS>(sentences, number, parts_of, run);
#else
  __trap();
#endif
}

template <typename T, bool TIGHT>
static bool launch_backward(T *dq, T *dk, T *dv, const T *d_o, const T *o, const float *lse,
                            const T *q, const T *k, const T *v, const Attention *a,
                            GroupChoice choice, cudaStream_t stream) {
  auto kernel = attend_backward_group<T, TIGHT>;
  if (!is_built<T>(kernel)) return false;
  size_t bytes = SHARED_BYTES; /* scripts/occupancy reads this line */
  bytes = allow_group(kernel, bytes, choice);
  if (!bytes) return false;
  Attend at = attend_of(a);
  DropConstants constants;
  constants.log2_scale = log2f(at.drop.scale);
  constants.minus_inverse_scale = -1 / at.drop.scale;
  constants.low_bits = (at.drop.threshold & 0x7fff) * 0x10001u;
  constants.high_clear = at.drop.threshold < 0x8000 ? 0xffffffffu : 0;
  size_t groups = (a->heads + GROUP - 1) / GROUP;
  unsigned blocks = (unsigned)(HELPERS * a->heads + a->sentences * groups);
  kernel<<<blocks, THREADS, bytes, stream>>>(dq, dk, dv, d_o, o, lse, q, k, v, at, constants,
                                             (int)a->sentences);
  return true;
}

bool attend_backward_by_group(Type type, void *dq, void *dk, void *dv, const void *d_o,
                              const void *o, const float *lse, const void *q, const void *k,
                              const void *v, const Attention *a, GroupChoice choice,
                              cudaStream_t stream) {
  if (a->d != D) return false;
  auto run = [&](auto zero) {
    typedef decltype(zero) T;
    auto launch = choice.is_tight ? launch_backward<T, true> : launch_backward<T, false>;
    return launch((T *)dq, (T *)dk, (T *)dv, (const T *)d_o, (const T *)o, lse, (const T *)q,
                  (const T *)k, (const T *)v, a, choice, stream);
  };
  return type == TYPE_BF16 ? run(__nv_bfloat16()) : run(__half());
}
