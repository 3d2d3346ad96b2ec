/* dgrad GEMM fused with the backward of ReLU: applies the mask and sums the bias gradient in the
 * epilogue. Hopper only, bf16 and fp16.
 *
 * Persistent blocks, warp-specialized: one thread starts the TMA loads, two warp groups multiply
 * (wgmma). The epilogue of a tile overlaps with the main loop of the next tile: the multiplying
 * warps keep the finished tile in registers, two elements per word, and write an eighth of it (a
 * "part") after each stage of k, or in two steps after two stages. Other instructions run several
 * times slower in parallel with wgmma, so the epilogue uses as few as possible. Depends on
 * hopper.cuh. */
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
#define SUMS_BYTES  (WARPS * TILE_N * 4)
#define STAND_BYTES (16 * 32 * 2) /* bytes of a transposed part of a tile, per warp */
#define SHARED                                                                           \
  (1024 + STAGES * STAGE_BYTES + 2 * BITS_BYTES + 2 * SUMS_BYTES + WARPS * STAND_BYTES + \
   2 * (STAGES + 2) * 8)

#if HAS_TENSOR_MAPS

/* Arguments of the kernel: y (m, n) = (a (m, k) · b (k, n)) ∘ mask * scale. */
struct Job {
  CUtensorMap a, b, mask; /* TMA descriptors of the operands and the mask */
  int m, n, k;
  void *y;
  float *sums; /* (rows of tiles, n): column sums of each row of tiles */
  float scale; /* factor of the elements that the mask keeps */
};

#if HAS_WGMMA

/* Addresses in shared memory: stages of a and b; the mask of two tiles, a byte per eight elements
 * in rows of 32 bytes; column sums of each warp for two tiles; one part per warp ("stand"), in
 * which it is transposed from wgmma order to rows; barriers. */
struct Shared {
  uint32_t stages, bits, sums, stand, full, empty, bits_full, bits_empty;
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

/* Iterates over the tiles of this block. */
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
    return at / across * CLUSTER + rank;
  }
  __device__ __forceinline__ int column(void) const {
    return at % across * TILE_N;
  }
};

/* ---- loads ---- */

/* Runs in the loading thread: loads for each tile its mask and all stages of a and b. */
static __device__ __forceinline__ void load_tiles_of_block(const Job &j, const Shared &s) {
  Ring<STAGES> r = {0, 0};
  Ring<2> bits = {0, 0};
  const int rank = (int)cluster_rank(), share = TILE_N / CLUSTER;
  const uint16_t all = (1 << CLUSTER) - 1;
  for (Walk walk(j); walk.at < walk.end; walk.at += walk.step, bits.next()) {
    int row = walk.row() * TILE_M, column = walk.column();
    uint32_t there = s.bits_full + bits.at * 8;
    barrier_wait(s.bits_empty + bits.at * 8, bits.parity ^ 1);
    barrier_expect(there, BITS_BYTES);
    tile_load(s.bits + bits.at * BITS_BYTES, &j.mask, column / 8, row, there);
    for (int k = 0; k < j.k; k += TILE_K, r.next()) {
      uint32_t full = s.full + r.at * 8, a = s.stages + r.at * STAGE_BYTES;
      uint32_t b = a + A_BYTES + rank * (B_BYTES / CLUSTER);
      barrier_wait(s.empty + r.at * 8, r.parity ^ 1);
      barrier_expect(full, STAGE_BYTES);
      tile_load(a, &j.a, k, row, full);
#pragma unroll
      for (int i = 0; i < share / TILE_K; i++)
        tile_multicast(b + i * BOX_BYTES, &j.b, column + rank * share + i * TILE_K, k, full,
                       all);
    }
  }
}

/* ---- epilogue ---- */

/* The vector type of two elements. */
template <typename T>
struct Two;
template <>
struct Two<__nv_bfloat16> {
  typedef __nv_bfloat162 Is;
};
template <>
struct Two<__half> {
  typedef __half2 Is;
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

/* The constants of a lane for all parts. A part in shared memory has rows of 64 bytes, four
 * chunks of eight elements, permuted differently in every pair of rows, so that the same chunk of
 * eight rows is in different banks. */
struct Lane {
  /* addresses for store_tiles; addresses of the lane's chunks for reading */
  uint32_t put[2], get[2];
  uint32_t bits, sums, shift;
  Factor scale;
};

template <typename T>
static __device__ __forceinline__ Lane make_lane(const Job &j, const Shared &s) {
  uint32_t warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  uint32_t stand = s.stand + warp * STAND_BYTES;
  Lane l;
#pragma unroll
  for (uint32_t i = 0; i < 2; i++) {
    uint32_t row = lane % 16, eight = 2 * i + lane / 16;
    l.put[i] = stand + row * 64 + (eight ^ row / 2 % 4) * 16;
    row = 8 * i + g;
    l.get[i] = stand + row * 64 + (q ^ row / 2 % 4) * 16;
  }
  l.bits = s.bits + (warp * 16 + g) * 32;
  l.sums = s.sums + (warp * TILE_N + q * 8 + g) * 4;
  l.shift = 6 - 2 * q;
  l.scale = split_factor<T>(j.scale);
  return l;
}

/* A finished tile. Words 2 i and 2 i + 1 of lane (g, q) hold columns 8 i + 2 q and the next, of
 * rows g and g + 8. */
struct Tile {
  uint32_t word[64];
  int row, column; /* row of tiles, or -1 if there is no tile; first column, in elements */
  /* index in y, in units of eight elements, of this lane's elements in row g of part 0 */
  size_t eight;
  bool inside[2]; /* true if rows g and g + 8 exist */
  Ring<2> bits;
};

/* Scales and masks part P of a finished tile and writes it to shared memory. */
template <typename T, int P>
static __device__ __forceinline__ void stage_part(const Lane &l, const Tile &t) {
  uint32_t x[8];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    /* Shifts bits 2 q and 2 q + 1 of each byte to its highest bit; replicate_signs expands them
     * to masks of 16 bits. */
    uint32_t kept = get4(l.bits + t.bits.at * BITS_BYTES + half * 8 * 32 + P * 4);
    uint32_t second = kept << l.shift, first = second << 1;
#pragma unroll
    for (int i = 0; i < 4; i++)
      x[2 * i + half] = multiply_pair<T>(t.word[2 * (P * 4 + i) + half], l.scale) &
                        replicate_signs(first, second, 0xcc88 + 0x1111 * i);
  }
  __syncwarp(); /* All lanes must have read the previous part from shared memory. */
  store_tiles(l.put[0], x[0], x[1], x[2], x[3]);
  store_tiles(l.put[1], x[4], x[5], x[6], x[7]);
  __syncwarp();
}

/* Returns the column sums of a part of 16 rows that was loaded transposed: lane (g, q) returns
 * column g of chunk q. */
template <typename T>
static __device__ __forceinline__ float sum_rows(const uint32_t (&x)[2][4]) {
  const uint32_t all = 0xffffffffu;
  bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  float y[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float2 a = unpack2<T>(x[i / 2][i % 2 * 2]), b = unpack2<T>(x[i / 2][i % 2 * 2 + 1]);
    y[i] = (a.x + a.y) + (b.x + b.y);
  }
  float z0 = (odd ? y[1] : y[0]) + __shfl_xor_sync(all, odd ? y[0] : y[1], 1);
  float z1 = (odd ? y[3] : y[2]) + __shfl_xor_sync(all, odd ? y[2] : y[3], 1);
  return (upper ? z1 : z0) + __shfl_xor_sync(all, upper ? z0 : z1, 2);
}

/* Writes part P to global memory and its column sums to shared memory. */
template <typename T, int P>
static __device__ __forceinline__ void write_part(const Job &j, const Lane &l, const Tile &t) {
  uint32_t x[2][4];
  load_tiles_over(x[0], l.put[0]);
  load_tiles_over(x[1], l.put[1]);
  put4(l.sums + t.bits.at * SUMS_BYTES + P * 32 * 4, __float_as_uint(sum_rows<T>(x)));
#pragma unroll
  for (int half = 0; half < 2; half++) {
    /* half 0 is row g; half 1 is row g + 8, which begins n units of eight elements later */
    size_t eight = t.eight + (size_t)half * j.n + P * 4;
    uint4 y = get16(l.get[half]);
    if (t.inside[half]) write16((T *)j.y + eight * 8, y);
  }
}

/* Adds the warps' column sums and writes them to the tile's row of j.sums. */
static __device__ __forceinline__ void write_sums(const Job &j, const Shared &s,
                                                  const Tile &t) {
  uint32_t mine = threadIdx.x - 128, at = s.sums + t.bits.at * SUMS_BYTES + mine * 4;
  float sum = 0;
  asm volatile("bar.sync 1, 256;" ::: "memory"); /* synchronizes all multiplying warps */
#pragma unroll
  for (int w = 0; w < WARPS; w++) sum += __uint_as_float(get4(at + w * TILE_N * 4));
  j.sums[(size_t)t.row * j.n + t.column + mine] = sum;
}

/* Runs step I of the epilogue; a part takes SPREAD steps. */
template <typename T, int SPREAD, int I>
static __device__ __forceinline__ void run_epilogue_step(const Job &j, const Shared &s,
                                                         const Lane &l, Tile &t) {
  if (I == 0) barrier_wait(s.bits_full + t.bits.at * 8, t.bits.parity);
  if (I % SPREAD == 0) stage_part<T, I / SPREAD>(l, t);
  if (I % SPREAD == SPREAD - 1) write_part<T, I / SPREAD>(j, l, t);
  if (I + 1 < PARTS * SPREAD) return;
  write_sums(j, s, t);
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive_here(s.bits_empty + t.bits.at * 8);
  t.bits.next();
}

/* Runs the whole epilogue of the last tile, beginning at step I. */
template <typename T, int I>
static __device__ __forceinline__ void finish_epilogue(const Job &j, const Shared &s,
                                                       const Lane &l, Tile &t) {
  run_epilogue_step<T, 1, I>(j, s, l, t);
  if constexpr (I + 1 < PARTS) finish_epilogue<T, I + 1>(j, s, l, t);
}

/* ---- main loop ---- */

/* Starts the wgmma of one stage (four of depth 16), waits for those of the previous stage and
 * releases its buffers, whose barrier is `last`. */
template <typename T>
static __device__ __forceinline__ void multiply_stage(float (&c)[128], const Shared &s,
                                                      Ring<STAGES> &r, bool first,
                                                      uint32_t &last) {
  uint32_t half = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
  uint32_t stage = s.stages + r.at * STAGE_BYTES;
  uint64_t a = make_descriptor(stage + half * (A_BYTES / 2), 16);
  uint64_t b = make_descriptor(stage + A_BYTES, BOX_BYTES);
  barrier_wait(s.full + r.at * 8, r.parity);
  wgmma_fence();
#pragma unroll
  /* a advances by 32 bytes along a row, b by 16 rows of 128 bytes */
  for (int i = 0; i < TILE_K / 16; i++)
    wgmma<T>(c, a + i * (32 >> 4), b + i * (16 * 128 >> 4), !first || i > 0);
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
template <typename T, int SPREAD, int I>
static __device__ __forceinline__ void multiply_first_stages(const Job &j, const Shared &s,
                                                             const Lane &l, float (&c)[128],
                                                             Ring<STAGES> &r, uint32_t &last,
                                                             Tile &t) {
  multiply_stage<T>(c, s, r, I == 0, last);
  if (t.row >= 0) run_epilogue_step<T, SPREAD, I>(j, s, l, t);
  if constexpr (I + 1 < PARTS * SPREAD)
    multiply_first_stages<T, SPREAD, I + 1>(j, s, l, c, r, last, t);
}

/* Runs in the multiplying warps: computes all tiles of this block. */
template <typename T, int SPREAD>
static __device__ __forceinline__ void multiply_tiles(const Job &j, const Shared &s) {
  float c[128];
  Tile t = {};
  Lane l = make_lane<T>(j, s);
  Ring<STAGES> r = {0, 0};
  t.row = -1;
  for (Walk walk(j); walk.at < walk.end; walk.at += walk.step) {
    uint32_t last = 0;
    multiply_first_stages<T, SPREAD, 0>(j, s, l, c, r, last, t);
#pragma unroll 1
    for (int k = PARTS * SPREAD * TILE_K; k < j.k; k += TILE_K)
      multiply_stage<T>(c, s, r, /*first=*/false, last);
    wgmma_wait<0>();
    if (threadIdx.x % 128 < CLUSTER) barrier_arrive(last, threadIdx.x % 128);
#pragma unroll
    for (int i = 0; i < 64; i++) t.word[i] = pack2<T>(c[2 * i], c[2 * i + 1]);
    t.row = walk.row();
    t.column = walk.column();
    uint32_t row = t.row * TILE_M + (threadIdx.x / 32 - 4) * 16 + threadIdx.x % 32 / 4;
    t.eight = ((size_t)row * j.n + t.column) / 8 + threadIdx.x % 4;
    t.inside[0] = row < (uint32_t)j.m;
    t.inside[1] = row + 8 < (uint32_t)j.m;
  }
  if (t.row >= 0) finish_epilogue<T, 0>(j, s, l, t);
}

#define BOUNDS __launch_bounds__(THREADS, 1)
#else
/* On GPUs other than Hopper this kernel is empty; kernel_fuses_relu detects that by the smaller
 * number of threads in the launch bounds. */
#define BOUNDS __launch_bounds__(32)
#endif

template <typename T, int SPREAD>
static __global__ void BOUNDS relu_backward_matmul(const __grid_constant__ Job j) {
#if HAS_WGMMA
  extern __shared__ char shared[];
  uint32_t stages = (shared_at(shared) + 1023) & ~1023u, bits = stages + STAGES * STAGE_BYTES;
  uint32_t sums = bits + 2 * BITS_BYTES, stand = sums + 2 * SUMS_BYTES;
  uint32_t full = stand + WARPS * STAND_BYTES, empty = full + STAGES * 8;
  uint32_t bits_full = empty + STAGES * 8;
  Shared s = {stages, bits, sums, stand, full, empty, bits_full, bits_full + 16};
  if (threadIdx.x == 0) {
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
    multiply_tiles<T, SPREAD>(j, s);
  } else {
    decrease_registers<24>();
    if (threadIdx.x == 0) load_tiles_of_block(j, s);
  }
  /* No block may exit while the other block of the cluster can still write to its shared
   * memory. */
  cluster_sync();
#else
  (void)j;
#endif
}

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

template <typename T, int SPREAD>
static cudaError_t launch_kernel(const Job &j, cudaStream_t stream) {
  int device = 0, processors = 0;
  cudaError_t e = cudaGetDevice(&device);
  if (!e) e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (!e)
    e = cudaFuncSetAttribute(relu_backward_matmul<T, SPREAD>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
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
  config.dynamicSmemBytes = SHARED;
  config.stream = stream;
  config.attrs = &how;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, relu_backward_matmul<T, SPREAD>, j);
}

bool kernel_fuses_relu(Type type, size_t rows, size_t in, size_t out) {
  const size_t most = INT32_MAX / 2;
  cudaFuncAttributes is;
  if (type == TYPE_F32 || rows == 0 || rows > most || in % TILE_N || in > most ||
      out % TILE_K || out < PARTS * TILE_K || out > most)
    return false;
  if (cudaFuncGetAttributes(&is, relu_backward_matmul<__nv_bfloat16, 1>)) {
    (void)cudaGetLastError();
    return false;
  }
  return is.maxThreadsPerBlock == THREADS;
}

size_t kernel_linear_relu_backward_work(size_t rows, size_t in) {
  return count_tile_rows(rows) * in * sizeof(float);
}

cudaError_t kernel_linear_relu_backward(Type type, void *dx, float *dbias, const void *dy,
                                        const void *w, const uint8_t *mask, size_t rows,
                                        size_t in, size_t out, Dropout drop, bool add,
                                        void *work, cudaStream_t stream) {
  bool spread = out >= 2 * PARTS * TILE_K;
  CUtensorMapDataType kind =
      type == TYPE_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  Job j = {};
  j.m = (int)rows;
  j.n = (int)in;
  j.k = (int)out;
  j.y = dx;
  j.sums = (float *)work;
  j.scale = drop_of(drop).scale;
  cudaError_t e = make_tensor_map(&j.a, kind, dy, rows, out, TILE_M);
  if (!e) e = make_tensor_map(&j.b, kind, w, out, in, TILE_K);
  if (!e)
    e = make_tensor_map(&j.mask, CU_TENSOR_MAP_DATA_TYPE_UINT8, mask, rows, in / 8, TILE_M);
  if (e) return e;
  if (type == TYPE_F16)
    e = spread ? launch_kernel<__half, 2>(j, stream) : launch_kernel<__half, 1>(j, stream);
  else
    e = spread ? launch_kernel<__nv_bfloat16, 2>(j, stream)
               : launch_kernel<__nv_bfloat16, 1>(j, stream);
  if (e) return e;
  return kernel_add_parts(&dbias, 1, in, j.sums, count_tile_rows(rows), 1, add, stream);
}

#else

bool kernel_fuses_relu(Type, size_t, size_t, size_t) {
  return false;
}
size_t kernel_linear_relu_backward_work(size_t, size_t) {
  return 0;
}
cudaError_t kernel_linear_relu_backward(Type, void *, float *, const void *, const void *,
                                        const uint8_t *, size_t, size_t, size_t, Dropout, bool,
                                        void *, cudaStream_t) {
  return cudaErrorNotSupported;
}

#endif
