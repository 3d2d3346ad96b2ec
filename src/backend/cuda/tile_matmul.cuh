/* GEMM on Hopper whose epilogue, an operation on the finished tiles, overlaps with the main
 * loop: bf16 and fp16, for linear_relu_dropout (relu_matmul_forward.cu) and its backward
 * (relu_matmul.cu), and bf16 for the exponentials of linear_loss (loss_matmul.cu).
 *
 * Persistent blocks, warp-specialized: one thread starts the TMA loads, two warp groups multiply
 * (wgmma). The epilogue of a tile overlaps with the main loop of the next tile: the multiplying
 * warps keep the finished tile in registers, two elements per word, and write an eighth of it (a
 * "part") after each stage of k, or in two steps after two stages. Other instructions run several
 * times slower in parallel with wgmma, so the epilogue uses as few as possible.
 *
 * An epilogue is a class E with these members; those of Masked are inherited:
 *   Element                 the element type
 *   B_ALONG                 true: b is stored (n, k); false: (k, n)
 *   HAS_MASK                every tile has TILE_M rows of mask bits
 *   BAND                    the order of the tiles: see Walk
 *   DYNAMIC                 false: a cluster computes fixed tiles; true: those that it takes from
 *                           Job.tile_counter (a dynamic tile scheduler)
 *   LOADED, OWN             bytes of shared memory, of two tiles: loaded (with the mask); its own
 *   place_lane              sets the addresses of a lane in the memory LOADED and OWN
 *   load                    starts the load of LOADED / 2 bytes of a tile
 *   Shift, get_shift        what pack needs of a tile, read before its last product is complete
 *   pack                    packs two finished elements of row g (half 0) or g + 8 (half 1)
 *   stage_part              computes a part in registers and writes it to shared memory, by rows
 *   write_part              writes the part to global memory
 *   finish_tile             runs after the last part, before the buffers of the tile are released
 * Depends on hopper.cuh. */
#ifndef BACKEND_CUDA_TILE_MATMUL_CUH
#define BACKEND_CUDA_TILE_MATMUL_CUH

#include "backend/cuda/hopper.cuh"

#define TILE_M  128 /* rows of a tile, half for each of the two warp groups */
#define TILE_N  256
#define TILE_K  64 /* elements of k per stage, 128 bytes: the width of a TMA box */
#define STAGES  4
#define PARTS   8 /* parts of a tile in the epilogue: 16 rows and 32 columns per warp */
#define CLUSTER 2 /* blocks with the same columns; each loads half of w for both */
#define THREADS 384
#define WARPS   8 /* warps that multiply */

#define A_BYTES     (TILE_M * TILE_K * 2)
#define B_BYTES     (TILE_N * TILE_K * 2)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define BOX_BYTES   (TILE_K * TILE_K * 2)
#define BITS_BYTES  (TILE_M * TILE_N / 8)
#define PART_BYTES  (16 * 32 * 2) /* bytes of a transposed part of a tile, per warp */
/* bytes of the barriers, and of what Shared has after them */
#define BARRIER_BYTES ((2 * (STAGES + 2) + 1) * 8 + 3 * 4)
/* bytes of shared memory of a kernel, without LOADED and OWN of its epilogue */
#define PIPE_BYTES \
  (1024 + STAGES * STAGE_BYTES + 2 * BITS_BYTES + WARPS * PART_BYTES + BARRIER_BYTES)

#if HAS_TENSOR_MAPS

/* Arguments of the kernels: a (m, k) · b, and of their epilogues. */
struct Job {
  CUtensorMap a, b, mask; /* TMA descriptors of the operands and the mask */
  int m, n, k;
  void *y;
  float scale; /* factor of the elements that the mask keeps */
  /* backward: (rows of tiles, n) column sums of each row of tiles; loss: see Exponential */
  float *sums;
  const void *bias;   /* forward: (n) */
  uint8_t *kept;      /* forward: the mask to write */
  const float *shift; /* loss: (rows of whole tiles) what is added to the elements of a row */
  /* backward: the number of the next tile, 0 before and after the kernel. A cluster takes tiles until
   * there are none. While another kernel occupies SMs (NCCL), clusters that find no free SM start
   * late; by then the others have computed their tiles. */
  unsigned *tile_counter;
};

#if HAS_WGMMA

/* Addresses in shared memory: stages of a and b; the mask of two tiles, a byte per eight
 * elements in rows of 32 bytes; what the epilogue loads and has; one part per warp, in which it
 * is transposed from wgmma order to rows (`parts`); barriers. */
struct Shared {
  uint32_t stages, bits, loaded, own, parts, full, empty, bits_full, bits_empty;
  uint32_t rows; /* the rows of a that this warp group multiplies, in the first stage */
  /* DYNAMIC: the barrier and the word by which block 0 of the cluster sends the next tile to block
   * 1; the tiles of the two buffers of masks */
  uint32_t sent, next, tiles;
};

/* Position and phase parity in a ring of N buffers. */
template <int N>
struct Ring {
  uint32_t at, parity;
  __device__ __forceinline__ void next(void) {
    if (++at == N) {
      at = 0;
      parity ^= 1;
    }
  }
};

/* The tiles in their order: from left to right, one row of clusters after the other. With BAND above
 * 1, by bands of BAND rows of clusters and in each by columns of clusters, so that the clusters
 * that run at once read few columns of b, which may be larger than L2. `at` is the current tile of
 * the cluster. Unless tiles are dynamic, a cluster computes every `step`th. */
template <int BAND>
struct Walk {
  int at, step, end, across, rank;
  __device__ __forceinline__ explicit Walk(const Job &j) {
    at = blockIdx.x / CLUSTER;
    step = gridDim.x / CLUSTER;
    rank = (int)cluster_rank();
    across = j.n / TILE_N;
    end = (j.m + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER) * across;
  }
  /* returns the row of tiles to which the current tile belongs */
  __device__ __forceinline__ int row(void) const {
    if constexpr (BAND == 1) return at / across * CLUSTER + rank;
    int first = at / (across * BAND) * BAND;
    return (first + (at - first * across) % count_rows(first)) * CLUSTER + rank;
  }
  __device__ __forceinline__ int column(void) const {
    if constexpr (BAND == 1) return at % across * TILE_N;
    int first = at / (across * BAND) * BAND;
    return (at - first * across) / count_rows(first) * TILE_N;
  }
  /* returns the rows of clusters of the band that begins with row `first`; the last may have
   * fewer */
  __device__ __forceinline__ int count_rows(int first) const {
    return min(BAND, end / across - first);
  }
};

/* ---- dynamic tiles ---- */

/* Takes a tile; a number from walk.end on is none. Each of the walk.step clusters takes none once;
 * the last of them sets the counter to 0. */
template <int BAND>
static __device__ __forceinline__ int take_tile(const Job &j, const Walk<BAND> &walk) {
  return (int)atomicInc(j.tile_counter, (unsigned)(walk.end + walk.step - 1));
}

/* Runs in the loading threads: block 0 of the cluster sends `tile` to block 1, and both return it.
 * One word is enough: a tile has at least PARTS stages, more than the ring, so block 0 cannot load
 * the last of them before block 1 has read the word and multiplied the first. */
static __device__ __forceinline__ int share_tile(const Shared &s, int rank, int tile,
                                                 uint32_t &parity) {
  static_assert(CLUSTER == 2 && PARTS > STAGES, "");
  if (rank == 0) {
    send4(s.next, (uint32_t)tile, s.sent, 1);
    return tile;
  }
  tile = (int)receive4(s.next, s.sent, parity);
  parity ^= 1;
  return tile;
}

/* Runs in the multiplying warps: returns the tile whose first stage is next in the ring. One lane
 * reads it, the one that later arrives at bits_empty to release the word: racecheck does not see
 * that __syncwarp orders the reads of other lanes before that. */
static __device__ __forceinline__ int read_tile(const Shared &s, const Ring<STAGES> &r,
                                                uint32_t buffer) {
  uint32_t tile = 0;
  barrier_wait(s.full + r.at * 8, r.parity);
  if (threadIdx.x % 32 == 0) tile = get4(s.tiles + buffer * 4);
  return (int)__shfl_sync(0xffffffffu, tile, 0);
}

/* ---- loads ---- */

/* Loads this block's share of a stage of b, TILE_N / CLUSTER columns, for all blocks of the
 * cluster. */
template <bool ALONG>
static __device__ __forceinline__ void load_share(const Job &j, uint32_t to, int column, int k,
                                                  uint32_t full) {
  const uint16_t all = (1 << CLUSTER) - 1;
  if constexpr (ALONG) {
    tile_multicast(to, &j.b, k, column, full, all);
  } else {
#pragma unroll
    for (int i = 0; i < TILE_N / CLUSTER / TILE_K; i++)
      tile_multicast(to + i * BOX_BYTES, &j.b, column + i * TILE_K, k, full, all);
  }
}

/* Runs in the loading thread: loads for each tile its mask, if it has one, and all stages of a
 * and b. If tiles are dynamic, the multiplying warps read the number of a tile after they have
 * waited for its first stage; after the last tile an empty stage marks the end. */
template <typename E>
static __device__ __forceinline__ void load_tiles_of_block(const Job &j, const Shared &s) {
  Ring<STAGES> r = {0, 0};
  Ring<2> bits = {0, 0};
  const int rank = (int)cluster_rank(), share = TILE_N / CLUSTER;
  Walk<E::BAND> walk(j);
  uint32_t parity = 0;
  int next = 0;
  if constexpr (E::DYNAMIC) {
    if (rank == 0) next = take_tile(j, walk);
    walk.at = share_tile(s, rank, next, parity);
  }
  for (; walk.at < walk.end; bits.next()) {
    int row = walk.row() * TILE_M, column = walk.column();
    uint32_t there = s.bits_full + bits.at * 8;
    barrier_wait(s.bits_empty + bits.at * 8, bits.parity ^ 1);
    if constexpr (E::DYNAMIC) put4(s.tiles + bits.at * 4, (uint32_t)walk.at);
    barrier_expect(there, (E::HAS_MASK ? BITS_BYTES : 0) + E::LOADED / 2);
    if constexpr (E::HAS_MASK)
      tile_load(s.bits + bits.at * BITS_BYTES, &j.mask, column / 8, row, there);
    E::load(j, s.loaded + bits.at * (E::LOADED / 2), row, column, there);
    for (int k = 0; k < j.k; k += TILE_K, r.next()) {
      uint32_t full = s.full + r.at * 8, a = s.stages + r.at * STAGE_BYTES;
      uint32_t b = a + A_BYTES + rank * (B_BYTES / CLUSTER);
      barrier_wait(s.empty + r.at * 8, r.parity ^ 1);
      barrier_expect(full, STAGE_BYTES);
      tile_load(a, &j.a, k, row, full);
      load_share<E::B_ALONG>(j, b, column + rank * share, k, full);
      /* The next tile is taken so early that its first stage does not wait for the atomic. */
      if (E::DYNAMIC && rank == 0 && k == j.k - STAGES * TILE_K) next = take_tile(j, walk);
    }
    if constexpr (E::DYNAMIC)
      walk.at = share_tile(s, rank, next, parity);
    else
      walk.at += walk.step;
  }
  if constexpr (E::DYNAMIC) {
    barrier_wait(s.bits_empty + bits.at * 8, bits.parity ^ 1);
    put4(s.tiles + bits.at * 4, (uint32_t)walk.end);
    barrier_wait(s.empty + r.at * 8, r.parity ^ 1);
    barrier_arrive_here(s.full + r.at * 8);
  }
}

/* ---- epilogue ---- */

/* The vector type of two elements, and the word with two elements 1. */
template <typename T>
struct Two;
template <>
struct Two<__nv_bfloat16> {
  typedef __nv_bfloat162 Is;
  static constexpr uint32_t ONES = 0x3f803f80;
};
template <>
struct Two<__half> {
  typedef __half2 Is;
  static constexpr uint32_t ONES = 0x3c003c00;
};

/* A float as the sum high + low of two numbers of the element type, because one such number may
 * not represent it exactly. Each number is in both halves of its word, for multiply_pair. */
struct Factor {
  uint32_t high, low;
};

template <typename T>
static __device__ __forceinline__ Factor split_factor(float x) {
  uint32_t high = pack2<T>(x, x);
  float rest = x - unpack2<T>(high).x;
  return {high, pack2<T>(rest, rest)};
}

template <typename T>
static __device__ __forceinline__ uint32_t multiply_pair(uint32_t x, Factor by) {
  typename Two<T>::Is v, high, low;
  memcpy(&v, &x, 4);
  memcpy(&high, &by.high, 4);
  memcpy(&low, &by.low, 4);
  v = __hfma2(v, high, __hmul2(v, low));
  memcpy(&x, &v, 4);
  return x;
}

/* A finished tile. Words 2 i and 2 i + 1 of lane (g, q) hold columns 8 i + 2 q and the next, of
 * rows g and g + 8. The addresses are kept here because the compiler would compute them anew
 * for every part. */
struct Tile {
  uint32_t word[64];
  int row, column; /* row of tiles, or -1 if there is no tile; first column, in elements */
  int left;        /* rows from row g on: rows g and g + 8 exist if it is above 0 and above 8 */
  uint4 *to[2];    /* this lane's elements in rows g and g + 8 of part 0 of y */
  uint32_t bits_at, loaded_at, own_at; /* addresses of Lane, in the buffers of this tile */
  Ring<2> bits;
  /* loss: sums of the lane's elements in rows g and g + 8, and the AND of their words */
  float sum[2];
  uint32_t signs[2];
};

/* The constants of a lane for all parts. A part in shared memory has rows of 64 bytes, four
 * chunks of eight elements, permuted differently in every pair of rows, so that the same chunk
 * of eight rows is in different banks. */
struct Lane {
  /* addresses for store_tiles; addresses of the lane's chunks for reading */
  uint32_t put[2], get[2];
  uint32_t bits, loaded, own; /* addresses in the first of two buffers; the epilogue's: see E */
  uint32_t mask_shift; /* moves the bits of the lane to the highest bits of their bytes */
  Factor scale;
};

template <typename E>
static __device__ __forceinline__ Lane make_lane(const Job &j, const Shared &s) {
  uint32_t warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  uint32_t parts = s.parts + warp * PART_BYTES;
  Lane l;
#pragma unroll
  for (uint32_t i = 0; i < 2; i++) {
    uint32_t row = lane % 16, eight = 2 * i + lane / 16;
    l.put[i] = parts + row * 64 + (eight ^ row / 2 % 4) * 16;
    row = 8 * i + g;
    l.get[i] = parts + row * 64 + (q ^ row / 2 % 4) * 16;
  }
  l.bits = s.bits + (warp * 16 + g) * 32;
  l.mask_shift = 6 - 2 * q;
  l.scale = split_factor<typename E::Element>(j.scale);
  l.loaded = l.own = 0;
  E::place_lane(l, s, warp, g, q);
  return l;
}

/* What epilogues have in common that read a mask and pack the elements as they are. */
template <typename T>
struct Masked {
  static constexpr bool HAS_MASK = true, DYNAMIC = false;
  static constexpr int BAND = 1;
  struct Shift {};
  static __device__ __forceinline__ Shift get_shift(const Shared &, const Lane &,
                                                    const Tile &) {
    return {};
  }
  static __device__ __forceinline__ uint32_t pack(float a, float b, Shift, int) {
    return pack2<T>(a, b);
  }
};

/* Which elements a lane has in one row of a part: bits 2 q and 2 q + 1 of each byte of the
 * mask, shifted to the highest bit of the byte in `first` and `second`. */
struct Bits {
  uint32_t first, second;
};

/* Returns the mask of part P for rows g (half 0) or g + 8 (half 1). */
template <int P>
static __device__ __forceinline__ Bits get_bits(const Lane &l, const Tile &t, int half) {
  uint32_t kept = get4(t.bits_at + half * 8 * 32 + P * 4);
  uint32_t second = kept << l.mask_shift;
  return {second << 1, second};
}

/* Expands the two bits of byte i to masks of 16 bits. */
static __device__ __forceinline__ uint32_t expand_bits(Bits bits, int i) {
  return replicate_signs(bits.first, bits.second, 0xcc88 + 0x1111 * i);
}

/* Writes a part to shared memory: x[2 i + half] has chunk i. */
static __device__ __forceinline__ void stage_words(const Lane &l, const uint32_t (&x)[8]) {
  __syncwarp(); /* All lanes must have read the previous part from shared memory. */
  store_tiles(l.put[0], x[0], x[1], x[2], x[3]);
  store_tiles(l.put[1], x[4], x[5], x[6], x[7]);
  __syncwarp();
}

/* Writes the lane's eight elements of part P in rows g (half 0) or g + 8 (half 1) to global
 * memory and returns them. */
template <int P>
static __device__ __forceinline__ uint4 write_eight(const Lane &l, const Tile &t, int half) {
  uint4 y = get16(l.get[half]);
  if (t.left > half * 8) write16(t.to[half] + P * 4, y);
  return y;
}

/* Runs step I of the epilogue; a part takes SPREAD steps. */
template <typename E, int SPREAD, int I>
static __device__ __forceinline__ void run_epilogue_step(const Job &j, const Shared &s,
                                                         const Lane &l, Tile &t) {
  if (I == 0) barrier_wait(s.bits_full + t.bits.at * 8, t.bits.parity);
  if (I % SPREAD == 0) E::template stage_part<I / SPREAD>(l, t);
  if (I % SPREAD == SPREAD - 1) E::template write_part<I / SPREAD>(l, t);
  if (I + 1 < PARTS * SPREAD) return;
  E::finish_tile(j, s, t);
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive_here(s.bits_empty + t.bits.at * 8);
  t.bits.next();
}

/* Runs the whole epilogue of the last tile, beginning at step I. */
template <typename E, int I>
static __device__ __forceinline__ void finish_epilogue(const Job &j, const Shared &s,
                                                       const Lane &l, Tile &t) {
  run_epilogue_step<E, 1, I>(j, s, l, t);
  if constexpr (I + 1 < PARTS) finish_epilogue<E, I + 1>(j, s, l, t);
}

/* ---- main loop ---- */

/* Starts the wgmma of one stage (four of depth 16), waits for those of the previous stage and
 * releases its buffers, whose barrier is `last`. */
template <typename E>
static __device__ __forceinline__ void multiply_stage(float (&c)[128], const Shared &s,
                                                      Ring<STAGES> &r, bool first,
                                                      uint32_t &last) {
  uint32_t stage = s.stages + r.at * STAGE_BYTES, thread = threadIdx.x % 128;
  uint64_t a = make_descriptor(s.rows + r.at * STAGE_BYTES, 16);
  uint64_t b = make_descriptor(stage + A_BYTES, E::B_ALONG ? 16 : BOX_BYTES);
  barrier_wait(s.full + r.at * 8, r.parity);
  wgmma_fence();
#pragma unroll
  /* a advances by 32 bytes along a row; b likewise, or by 16 rows of 128 bytes */
  for (int i = 0; i < TILE_K / 16; i++)
    wgmma<typename E::Element, E::B_ALONG>(
        c, a + i * (32 >> 4), b + i * (E::B_ALONG ? 32 >> 4 : 16 * 128 >> 4), !first || i > 0);
  wgmma_commit();
  if (!first) {
    wgmma_wait<1>();
    if (thread < CLUSTER) barrier_arrive(last, thread);
  }
  last = s.empty + r.at * 8;
  r.next();
}

/* Runs the first stages of a tile, beginning at stage I; after each stage one step of the
 * previous tile's epilogue. */
template <typename E, int SPREAD, int I>
static __device__ __forceinline__ void multiply_first_stages(const Job &j, const Shared &s,
                                                             const Lane &l, float (&c)[128],
                                                             Ring<STAGES> &r, uint32_t &last,
                                                             Tile &t) {
  multiply_stage<E>(c, s, r, I == 0, last);
  if (t.row >= 0) run_epilogue_step<E, SPREAD, I>(j, s, l, t);
  if constexpr (I + 1 < PARTS * SPREAD)
    multiply_first_stages<E, SPREAD, I + 1>(j, s, l, c, r, last, t);
}

/* Sets the addresses of a finished tile. */
template <typename E>
static __device__ __forceinline__ void place_tile(const Job &j, const Lane &l, Tile &t) {
  int row = t.row * TILE_M + (int)(threadIdx.x / 32 - 4) * 16 + (int)(threadIdx.x % 32 / 4);
  t.left = j.m - row;
  t.to[0] = (uint4 *)j.y + ((size_t)row * j.n + t.column) / 8 + threadIdx.x % 4;
  t.to[1] = t.to[0] + j.n; /* eight rows of n / 8 units */
  t.bits_at = l.bits + t.bits.at * BITS_BYTES;
  t.loaded_at = l.loaded + t.bits.at * (E::LOADED / 2);
  t.own_at = l.own + t.bits.at * (E::OWN / 2);
}

/* Runs in the multiplying warps: computes all tiles of this block. */
template <typename E, int SPREAD>
static __device__ __forceinline__ void multiply_tiles(const Job &j, const Shared &s) {
  float c[128];
  Tile t = {};
  Lane l = make_lane<E>(j, s);
  Ring<STAGES> r = {0, 0};
  t.row = -1;
  Walk<E::BAND> walk(j);
  for (uint32_t buffer = 0;; buffer ^= 1) {
    if constexpr (E::DYNAMIC) walk.at = read_tile(s, r, buffer);
    if (walk.at >= walk.end) break;
    uint32_t last = 0;
    multiply_first_stages<E, SPREAD, 0>(j, s, l, c, r, last, t);
#pragma unroll 1
    for (int k = PARTS * SPREAD * TILE_K; k < j.k; k += TILE_K)
      multiply_stage<E>(c, s, r, /*first=*/false, last);
    typename E::Shift shift = E::get_shift(s, l, t);
    wgmma_wait<0>();
    if (threadIdx.x % 128 < CLUSTER) barrier_arrive(last, threadIdx.x % 128);
#pragma unroll
    for (int i = 0; i < 64; i++) t.word[i] = E::pack(c[2 * i], c[2 * i + 1], shift, i % 2);
    t.row = walk.row();
    t.column = walk.column();
    place_tile<E>(j, l, t);
    if constexpr (!E::DYNAMIC) walk.at += walk.step;
  }
  if (t.row >= 0) finish_epilogue<E, 0>(j, s, l, t);
}

/* The body of a kernel: computes the tiles of this block. */
template <typename E, int SPREAD>
static __device__ __forceinline__ void run_block(const Job &j) {
  extern __shared__ char shared[];
  uint32_t stages = (shared_at(shared) + 1023) & ~1023u, bits = stages + STAGES * STAGE_BYTES;
  uint32_t loaded = bits + 2 * BITS_BYTES, own = loaded + E::LOADED, parts = own + E::OWN;
  uint32_t full = parts + WARPS * PART_BYTES, empty = full + STAGES * 8;
  uint32_t bits_full = empty + STAGES * 8, sent = bits_full + 32;
  Shared s = {stages,    bits,           loaded, own,  parts,    full,     empty,
              bits_full, bits_full + 16, stages, sent, sent + 8, sent + 12};
  if (threadIdx.x == 0) {
    barrier_init(s.sent, 1);
    for (int i = 0; i < STAGES; i++) {
      barrier_init(s.full + i * 8, 1);
      barrier_init(s.empty + i * 8, 2 * CLUSTER);
    }
    for (int i = 0; i < 2; i++) {
      barrier_init(s.bits_full + i * 8, 1);
      barrier_init(s.bits_empty + i * 8, WARPS);
    }
    publish_barriers();
  }
  cluster_sync();
  if (threadIdx.x >= 128) {
    increase_registers<240>();
    s.rows += (uint32_t)(warp_number() / 4 - 1) * (A_BYTES / 2);
    multiply_tiles<E, SPREAD>(j, s);
  } else {
    decrease_registers<24>();
    if (threadIdx.x == 0) load_tiles_of_block<E>(j, s);
  }
  /* No block may exit while the other block of the cluster can still write to its shared
   * memory. */
  cluster_sync();
}

#define BOUNDS __launch_bounds__(THREADS, 1)
#else
/* On GPUs other than Hopper these kernels are empty; kernel_fuses_relu and kernel_fuses_loss
 * detect that by the smaller number of threads in the launch bounds. */
#define BOUNDS __launch_bounds__(32)
#endif

/* ---- launchers ---- */

/* Creates the TMA descriptor of a row-major matrix (rows, columns): boxes of `box` rows and 128
 * bytes or, for bytes (the mask), of a tile's columns. Elements outside are read as 0. */
static cudaError_t make_tensor_map(CUtensorMap *map, CUtensorMapDataType type, const void *at,
                                   size_t rows, size_t columns, uint32_t box) {
  decltype(&cuTensorMapEncodeTiled) encode;
  cudaDriverEntryPointQueryResult found;
  void *entry = NULL;
#if CUDART_VERSION >= 12050
  cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                   cudaEnableDefault, &found);
#else
  cudaError_t e =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found);
#endif
  if (e || found != cudaDriverEntryPointSuccess) return e ? e : cudaErrorNotSupported;
  memcpy(&encode, &entry, sizeof encode);
  bool bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8;
  const cuuint64_t size[2] = {columns, rows}, step[1] = {columns * (bytes ? 1 : 2)};
  const cuuint32_t part[2] = {bytes ? TILE_N / 8u : TILE_K, box}, one[2] = {1, 1};
  CUresult r =
      encode(map, type, 2, (void *)at, size, step, part, one, CU_TENSOR_MAP_INTERLEAVE_NONE,
             bytes ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return r ? cudaErrorInvalidValue : cudaSuccess;
}

static size_t count_tile_rows(size_t rows) {
  return (rows + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER) * CLUSTER;
}

/* Launches a kernel with `bytes` of shared memory. */
static cudaError_t launch_kernel(void (*kernel)(const Job), int bytes, const Job &j,
                                 cudaStream_t stream) {
  int device = 0, processors = 0;
  cudaError_t e = cudaGetDevice(&device);
  if (!e) e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (!e) e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (e) return e;
  size_t clusters = count_tile_rows((size_t)j.m) / CLUSTER * ((size_t)j.n / TILE_N);
  size_t most = (size_t)processors / CLUSTER;
  cudaLaunchAttribute how = {};
  how.id = cudaLaunchAttributeClusterDimension;
  how.val.clusterDim.x = CLUSTER;
  how.val.clusterDim.y = how.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)(clusters < most ? clusters : most) * CLUSTER);
  config.blockDim = dim3(THREADS);
  config.dynamicSmemBytes = (size_t)bytes;
  config.stream = stream;
  config.attrs = &how;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, j);
}

#endif
#endif
