/* Forward attention on tensor cores for heads of 64, several heads of a sentence per block.
 * Depends on attend.cuh, mma.cuh, staged.cuh.
 *
 * A block processes a sentence of up to 64 queries and GROUP of its heads. A stage of shared
 * memory has four tiles (16 rows) of q, k and v. A sentence of 1, 2, or 3 to 4 tiles is staged
 * with 4, 2, or 1 of its heads side by side, so that each of the four warps has a tile of 16
 * queries and sees all keys at once. More than 64 keys are staged 64 at a time. A sentence of
 * more than 64 queries is divided into pieces of 64 queries and one head, which are distributed
 * over the first HELPERS blocks of each head (share_out).
 *
 * With two stages (STAGES) the next heads are copied to one (cp.async) while those of the other
 * are computed. SMs of 100 KB have room for only two such blocks, Turing's of 64 KB for one.
 * There one stage and nothing else in shared memory make it four blocks, as many as the
 * registers allow, and on Turing two; while a block waits for its copies the others compute.
 *
 * Key 4t + 2n + e of a tile (t < 4; n, e < 2) is staged in row 8n + 2t + e. An mma then leaves
 * four adjacent keys of two queries in each lane, the order in which keep_fours computes
 * dropout bits. */
#include "backend/cuda/attend.cuh"
#include "backend/cuda/attend_dropout.cuh"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/staged.cuh"

#define WARPS   4
#define THREADS (WARPS * 32)
#define GROUP   4            /* heads per block */
#define ROWS    (WARPS * 16) /* rows of q, k and v in a stage */
#define ARRAY   (ROWS * ROW) /* bytes of q, k or v in a stage */
#define STAGE   (3 * ARRAY)
#define KEY     (2 * STAGE) /* offset of the dropout key in shared memory, after two stages */
/* shared memory; with one stage the dropout key is read from global memory */
#define BYTES (STAGES * STAGE + (STAGES - 1) * 8)

#if HAS_MMA
/* The contents of a stage: the heads beginning at `head`, the keys beginning at key0. */
struct Step {
  int head, key0;
};

/* Running softmax of one tile of queries and one head; most, total: maximum and sum of the rows
 * g and g + 8. */
struct Sums {
  float o[D / 8][4], most[2], total[2];
};

static __device__ __forceinline__ void clear(Sums &x) {
  clear(x.o);
  x.most[0] = x.most[1] = -INFINITY;
  x.total[0] = x.total[1] = 0;
}

/* Adds TILES * 16 keys to x; `first`: x is empty. In the last tile, row g sees the keys below
 * seen[0], counted from this lane's first key, and row g + 8 those below seen[1]. at_k, at_v:
 * addresses (by_8, by_16) of the first tile of k and v. key (with two stages), group, odd:
 * arguments of keep_fours for dropout. */
template <typename T, bool DROPS, int STAGES, int TILES>
static __device__ __forceinline__ void add_keys(Sums &x, const uint32_t (&left)[4][4],
                                                uint32_t at_k, uint32_t at_v,
                                                const int (&seen)[2], bool first, float to_log2,
                                                const Drop &drop, uint32_t key, uint64_t group,
                                                bool odd) {
  /* Computes the scores s = q kᵀ, masked in the last tile, and their maximum. */
  float s[2 * TILES][4], now[2] = {-INFINITY, -INFINITY};
  uint32_t keeps[TILES][2];
  if (DROPS) keep_fours(keeps, STAGES == 1 ? keep_of(drop) : keep_of(drop, key), group, odd);
#pragma unroll
  for (int j = 0; j < TILES; j++) {
#pragma unroll
    for (int n = 0; n < 2; n++) {
      float(&to)[4] = s[2 * j + n];
      to[0] = to[1] = to[2] = to[3] = 0;
#pragma unroll
      for (int c = 0; c < 4; c += 2) {
        uint32_t y[4];
        load_tiles(y, (c ? at_k ^ 64 : at_k) + (uint32_t)((2 * j + n) * 8 * ROW));
        mma<T>(to, left[c][0], left[c][1], left[c][2], left[c][3], y[0], y[1]);
        mma<T>(to, left[c + 1][0], left[c + 1][1], left[c + 1][2], left[c + 1][3], y[2], y[3]);
      }
    }
    if (j == TILES - 1) {
#pragma unroll
      for (int e = 0; e < 8; e++) {
        if (e / 4 * 2 + e % 2 >= seen[e / 2 % 2]) s[2 * j + e / 4][e % 4] = -INFINITY;
      }
    }
#pragma unroll
    for (int e = 0; e < 8; e++) now[e / 2 % 2] = fmaxf(now[e / 2 % 2], s[2 * j + e / 4][e % 4]);
  }
  /* Rescales x to the new maximum, which is finite because every row sees the first key. */
  float from[2];
  if (!first) {
    now[0] = fmaxf(now[0], x.most[0]);
    now[1] = fmaxf(now[1], x.most[1]);
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    now[r] = quad_max(now[r]);
    from[r] = now[r] * to_log2;
  }
  if (first) {
    clear(x.o);
    x.total[0] = x.total[1] = 0;
  } else {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float shrink = exp2_fast(x.most[r] * to_log2 - from[r]);
      x.total[r] *= shrink;
#pragma unroll
      for (int j = 0; j < D / 8; j++) {
        x.o[j][2 * r] *= shrink;
        x.o[j][2 * r + 1] *= shrink;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; r++) x.most[r] = now[r];
    /* p = exp(s - most), dropout, o += p · v. */
#pragma unroll
  for (int j = 0; j < TILES; j++) {
#pragma unroll
    for (int e = 0; e < 8; e++) {
      float &p = s[2 * j + e / 4][e % 4];
      p = exp2_fast(p * to_log2 - from[e / 2 % 2]);
      x.total[e / 2 % 2] += p;
    }
    uint32_t p[4];
#pragma unroll
    for (int m = 0; m < 4; m++)
      p[m] = pack2<T>(s[2 * j + m / 2][m % 2 * 2], s[2 * j + m / 2][m % 2 * 2 + 1]);
    if (DROPS) {
      p[0] = kept<0>(p[0], keeps[j][0]);
      p[1] = kept<0>(p[1], keeps[j][1]);
      p[2] = kept<1>(p[2], keeps[j][0]);
      p[3] = kept<1>(p[3], keeps[j][1]);
    }
#pragma unroll
    for (int c = 0; c < D / 8; c += 2) {
      uint32_t y[4];
      load_tiles_over(y, (at_v ^ (uint32_t)c << 4) + (uint32_t)(j * TILE));
      mma<T>(x.o[c], p[0], p[1], p[2], p[3], y[0], y[1]);
      mma<T>(x.o[c + 1], p[0], p[1], p[2], p[3], y[2], y[3]);
    }
  }
}

/* Stores the first `count` rows of a tile; multiplies rows g by lo and g + 8 by hi. The tile is
 * transposed from mma order to whole rows in `room`, shared memory of this warp. to: this
 * lane's first destination, row lane / 8 and chunk lane % 8. */
template <typename T>
static __device__ __forceinline__ void store_tile(T *to, size_t ld, int count, uint32_t room,
                                                  const float (&sum)[D / 8][4], float lo,
                                                  float hi, int lane) {
  uint32_t at = room + by_16(lane);
  __syncwarp(); /* All lanes must have read the previous contents of `room`. */
#pragma unroll
  for (int c = 0; c < D / 8; c += 2)
    store_tiles(at ^ (uint32_t)c << 4, pack2<T>(sum[c][0] * lo, sum[c][1] * lo),
                pack2<T>(sum[c][2] * hi, sum[c][3] * hi),
                pack2<T>(sum[c + 1][0] * lo, sum[c + 1][1] * lo),
                pack2<T>(sum[c + 1][2] * hi, sum[c + 1][3] * hi));
  __syncwarp();
  int row = lane / 8;
  uint32_t from = room + (uint32_t)(row * ROW + ((lane % 8 ^ row) << 4));
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint4 y = get16((i % 2 ? from ^ 64 : from) + (uint32_t)(i * 4 * ROW));
    if (row + i * 4 < count) write16(to, y);
    to += 4 * ld;
  }
}
#endif

template <typename T, bool DROPS, int STAGES>
static __global__ void __launch_bounds__(THREADS, IS_TURING ? 2 : 4)
    attend_group(T *o, float *lse, const T *__restrict__ q, const T *__restrict__ k,
                 const T *__restrict__ v, Attend a, int sentences) {
#if HAS_MMA
  extern __shared__ __align__(128) uint4 staged[];
  uint32_t stages = shared_at(staged);
  int lane = (int)(threadIdx.x % 32), warp = warp_number(), g = lane / 4, t = lane % 4;
  float to_log2 = a.scale * LOG2_E;
  /* Selects the work of this block. Groups of heads of one sentence are adjacent blocks, so
   * that whole rows are read at about the same time. The helper blocks, with one head each,
   * come first, then the sentences from the last to the first: the preceding GEMM may have left
   * the last rows in L2. */
  int groups = (a.heads + GROUP - 1) / GROUP, block = (int)blockIdx.x / groups;
  int number = sentences - 1 - (block - HELPERS * GROUP),
      head0 = (int)blockIdx.x % groups * GROUP;
  int heads = min(head0 + GROUP, a.heads); /* one past the last head of this block */
  bool helps = number >= sentences;
  /* The sentence is loaded early, so that the latency overlaps with other work. */
  Sentence own = {};
  if (helps) {
    head0 += block % GROUP;
    heads = min(heads, head0 + 1);
  } else {
    own = sentence_of(a, (unsigned)number);
  }
  number = helps ? block / GROUP : HELPERS + number;
  if (head0 >= heads) return;

  /* This thread copies chunk c of row r of every tile. */
  int c = (int)(threadIdx.x % 8), r = (int)(threadIdx.x / 8);
  int place = r / 2 % 2 * 8 + r / 4 * 2 + r % 2;
  uint32_t to_q = stages + (uint32_t)(r * ROW + ((c ^ r % 8) << 4));
  uint32_t to_k = stages + ARRAY + (uint32_t)(place * ROW + ((c ^ place % 8) << 4));

  auto pieces_of = [&](int s) {
    int rows = helps ? a.q_off[s + 1] - a.q_off[s] : own.rows;
    return rows > ROWS ? (rows + ROWS - 1) / ROWS : 0;
  };
  auto run = [&](int s, int part) {
    Sentence is = helps ? sentence_of(a, (unsigned)s) : own;
    int begin = part < 0 ? 0 : part * ROWS;
    int rows = min(ROWS, is.rows - begin);
    /* largest number of keys that a row of the block sees */
    int keys = a.causal ? min(is.keys, begin + rows) : is.keys;
    if (rows <= 0) return;
    int longer = max(rows, keys),
        wide = longer > 32 || keys == 0 ? 2 : longer > 16; /* log2 of the tiles per head */
    int aside = 4 >> wide;                                 /* heads per step */
    uint32_t q_step = (uint32_t)a.q_ld * sizeof(T), kv_step = (uint32_t)a.kv_ld * sizeof(T);
    const char *from_q = (const char *)q + (uint64_t)(uint32_t)(is.q0 + begin + r) * q_step;
    const char *from_k = (const char *)k + (uint64_t)(uint32_t)(is.k0 + r) * kv_step;
    from_q += head0 * ROW + c * 16;
    from_k += head0 * ROW + c * 16;
    size_t to_v = (size_t)((const char *)v - (const char *)k);

    if (DROPS && STAGES == 2 &&
        threadIdx.x < 2) /* The dropout key is copied together with the first rows. */
      copy4(stages + KEY + threadIdx.x * 4, (const uint32_t *)a.drop.key + threadIdx.x, true);
    /* Starts the copies of a step; from_q and from_k point to its heads. */
    auto begin_copies = [&](Step x, uint32_t stage) {
      const char *at_k = from_k + (uint64_t)(uint32_t)x.key0 * kv_step;
      int q_left = rows - r, k_left = keys - x.key0 - r;
#pragma unroll
      for (int p = 0; p < 4; p++) { /* p: index of a tile of the stage */
        int beside = p >> wide, first = (p & ((1 << wide) - 1)) * 16;
        if (x.head + beside >= heads || first >= longer) continue;
        const char *at = at_k + (beside * ROW + first * kv_step);
        copy16(to_q + stage + p * TILE, from_q + (beside * ROW + first * q_step),
               first < q_left);
        copy16(to_k + stage + p * TILE, at, first < k_left);
        copy16(to_k + stage + ARRAY + p * TILE, at + to_v, first < k_left);
      }
    };
    /* Calls work(step, stage) for each step when its copies are complete. several: a head has
     * several steps of ROWS keys. */
    auto each_step = [&](bool several, auto work) {
      auto advance = [&](Step &x) {
        if (several) x.key0 += ROWS;
        if (several && x.key0 < keys) return false;
        x.key0 = 0;
        x.head += aside;
        return true;
      };
      if constexpr (STAGES == 1) {
        Step now = {head0, 0};
#pragma unroll 1
        for (bool again = false; now.head < heads; again = true) {
          /* All warps must have read the stage before it is overwritten. */
          if (again) __syncthreads();
          begin_copies(now, 0);
          copies_wait();
          __syncthreads();
          work(now, stages);
          if (advance(now)) {
            from_q += aside * ROW;
            from_k += aside * ROW;
          }
        }
      } else {
        Step now = {head0, 0}, next = now;
        uint32_t stage = 0;
#pragma unroll 1
        for (int i = -2; now.head < heads; i++, stage ^= STAGE) {
          if (i >= 0) {
            copies_wait_but_last();
            __syncthreads();
            work(now, stages + stage);
            advance(now);
          }
          if (next.head < heads) {
            /* All warps must have read the stage before it is overwritten. */
            if (i >= 0) __syncthreads();
            begin_copies(next, stage);
            if (advance(next)) {
              from_q += aside * ROW;
              from_k += aside * ROW;
            }
          }
          copies_mark();
        }
      }
    };

    int slot = warp >> wide, i0 = begin + (warp & ((1 << wide) - 1)) * 16;
    int end = a.causal ? min(keys, i0 + 16) : keys;
    uint32_t in_k = ARRAY + (uint32_t)((slot << wide) * TILE) + by_8(lane);
    uint32_t in_v = 2 * ARRAY + (uint32_t)((slot << wide) * TILE) + by_16(lane);
    /* Computes how many keys of the tile beginning at key j0 the two rows see, counted from
     * this lane's first key. */
    auto sees = [&](int(&seen)[2], int j0) {
      seen[0] = seen[1] = end - j0 - 4 * t;
      if (a.causal) {
        seen[0] = min(seen[0], i0 + g + 1 - j0 - 4 * t);
        seen[1] = min(seen[1], i0 + g + 9 - j0 - 4 * t);
      }
    };
    /* For lse and dropout each lane handles one of its two rows: row g, or row g + 8 if t is
     * odd. */
    bool odd = t & 1;
    int row = i0 + g + (odd ? 8 : 0);
    uint64_t before = (uint64_t)(uint32_t)(is.q0 + row) * (uint32_t)a.heads;
    auto group_of = [&](int head) {
      return (before + (uint32_t)head) * (MOST_KEYS / 8) + (uint32_t)t / 2;
    };
    /* Normalizes the sums; writes o and lse. */
    auto finish = [&](Sums &x, int head, uint32_t tile) {
      float by[2];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        x.total[h] = quad_sum(x.total[h]);
        /* The total is 0 if there are no keys. */
        by[h] = a.drop.scale * inverse_fast(fmaxf(x.total[h], 1e-30f));
      }
      float most = odd ? x.most[1] : x.most[0], total = odd ? x.total[1] : x.total[0];
      if (t < 2 && row < is.rows)
        lse[before + (uint32_t)head] = (most * to_log2 + log2_fast(total)) * LN_2;
      store_tile(o + (uint64_t)(uint32_t)(is.q0 + i0 + lane / 8) * (uint32_t)a.o_ld +
                     (head * D + lane % 8 * 8),
                 a.o_ld, is.rows - i0, tile, x.o, by[0], by[1], lane);
    };

    if (keys > 0 && keys <= ROWS) {
      int tiles = (end + 15) / 16, seen[2];
      sees(seen, tiles * 16 - 16);
      each_step(false, [&](Step now, uint32_t stage) {
        int head = now.head + slot;
        if (head >= heads || i0 >= is.rows) return;
        uint32_t left[4][4], tile = stage + (uint32_t)(warp * TILE);
        Sums x;
        load_left(left, tile, lane);
        auto all = [&](auto add) {
          add(x, left, stage + in_k, stage + in_v, seen, true, to_log2, a.drop, stages + KEY,
              group_of(head), odd);
        };
        if (tiles == 1)
          all(add_keys<T, DROPS, STAGES, 1>);
        else if (tiles == 2)
          all(add_keys<T, DROPS, STAGES, 2>);
        else if (tiles == 3)
          all(add_keys<T, DROPS, STAGES, 3>);
        else
          all(add_keys<T, DROPS, STAGES, 4>);
        finish(x, head, tile);
      });
    } else {
      /* More than ROWS keys, or none: processes one head at a time, with its keys in several
       * steps. */
      Sums x;
      clear(x);
      each_step(true, [&](Step now, uint32_t stage) {
        if (i0 >= is.rows) return;
        uint32_t tile = stage + (uint32_t)(warp * TILE);
#pragma unroll 1
        for (int j0 = now.key0; j0 < min(end, now.key0 + ROWS); j0 += 16) {
          uint32_t left[4][4], at = stage + (uint32_t)(j0 - now.key0) * ROW;
          int seen[2];
          sees(seen, j0);
          load_left(left, tile, lane);
          add_keys<T, DROPS, STAGES, 1>(x, left, at + in_k, at + in_v, seen, j0 == 0, to_log2,
                                        a.drop, stages + KEY,
                                        group_of(now.head) + (uint32_t)j0 / 8, odd);
        }
        if (now.key0 + ROWS >= keys) finish(x, now.head, tile);
      });
    }
  };
  if constexpr (STAGES == 1)
    share_out_tight<THREADS>(staged, sentences, number, pieces_of, run);
  else
    share_out<THREADS>(sentences, number, pieces_of, run);
#else
  __trap();
#endif
}

template <typename T, bool DROPS, int STAGES>
static bool launch(T *o, float *lse, const T *q, const T *k, const T *v, const Attention *a,
                   GroupChoice choice, cudaStream_t stream) {
  auto kernel = attend_group<T, DROPS, STAGES>;
  if (!is_built<T>(kernel)) return false;
  size_t bytes = BYTES; /* scripts/occupancy reads this line */
  bytes = allow_group(kernel, bytes, choice);
  if (!bytes) return false;
  size_t groups = (a->heads + GROUP - 1) / GROUP;
  unsigned blocks = (unsigned)((GROUP * HELPERS + a->sentences) * groups);
  kernel<<<blocks, THREADS, bytes, stream>>>(o, lse, q, k, v, attend_of(a), (int)a->sentences);
  return true;
}

bool attend_by_group(Type type, void *o, float *lse, const void *q, const void *k,
                     const void *v, const Attention *a, GroupChoice choice,
                     cudaStream_t stream) {
  if (a->d != D) return false;
  auto run = [&](auto zero) {
    typedef decltype(zero) T;
    bool drops = a->drop.rate != 0, is_tight = choice.is_tight;
    auto with = drops && is_tight ? launch<T, true, 1>
                : drops           ? launch<T, true, 2>
                : is_tight        ? launch<T, false, 1>
                                  : launch<T, false, 2>;
    return with((T *)o, lse, (const T *)q, (const T *)k, (const T *)v, a, choice, stream);
  };
  return type == TYPE_BF16 ? run(__nv_bfloat16()) : run(__half());
}
