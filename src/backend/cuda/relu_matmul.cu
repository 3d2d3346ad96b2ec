/* The product on the way back that meets ReLU, with the mask applied and the bias's gradient
 * summed on its way out: on Hopper, in bf16 and fp16. A block does tiles in turn: one thread
 * of it has them loaded, two warp groups multiply. These take a tile that is done out while
 * the tensor cores are at work on the next one: they keep its elements in registers, two in a
 * word, and an eighth of them leaves after each piece of the sum, or in two steps after two.
 * Beside such products an instruction takes several times as long as alone, so there are few.
 * Depends on hopper.cuh. */
#include "backend/cuda/hopper.cuh"

#define TILE_M  128 /* rows, half for each of the two warp groups */
#define TILE_N  256
#define TILE_K  64 /* elements, 128 bytes: the width of a box */
#define STAGES  4
#define PARTS   8 /* in which a tile leaves: of each warp 16 rows and 32 columns */
#define CLUSTER 2 /* blocks that have the same columns and load a share of w each */
#define THREADS 384
#define WARPS   8 /* that multiply */

#define A_BYTES     (TILE_M * TILE_K * 2)
#define B_BYTES     (TILE_N * TILE_K * 2)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define BOX_BYTES   (TILE_K * TILE_K * 2)
#define BITS_BYTES  (TILE_M * TILE_N / 8)
#define SUMS_BYTES  (WARPS * TILE_N * 4)
#define STAND_BYTES (16 * 32 * 2) /* of a warp's part */
#define SHARED                                                                           \
  (1024 + STAGES * STAGE_BYTES + 2 * BITS_BYTES + 2 * SUMS_BYTES + WARPS * STAND_BYTES + \
   2 * (STAGES + 2) * 8)

#if HAS_TENSOR_MAPS

/* y (m, n) = a (m, k) · b (k, n), by the mask. */
struct Job {
  CUtensorMap a, b, mask; /* as they are loaded, tile by tile */
  int m, n, k;
  void *y;
  float *sums; /* (rows of tiles, n) of columns */
  float scale; /* of the elements that stay */
};

#if HAS_WGMMA

/* Addresses in shared memory: stages of a and b; twice the mask of a tile, a byte for each
 * eight in rows of 32; twice the sums of columns of each warp; a part of each warp, which is
 * turned there from the order of the tensor cores into rows; barriers. */
struct Shared {
  uint32_t stages, bits, sums, stand, full, empty, bits_full, bits_empty;
};

/* Where a ring of N is. */
template <int N>
struct Ring {
  uint32_t at, parity;
  __device__ __forceinline__ void next(void) {
    if (++at == N) at = 0, parity ^= 1;
  }
};

/* The tiles of this block, one after the other. */
struct Walk {
  int at, step, end, across, rank;
  __device__ __forceinline__ explicit Walk(const Job &j) {
    at = blockIdx.x / CLUSTER, step = gridDim.x / CLUSTER, rank = (int)cluster_rank();
    across = j.n / TILE_N;
    end = (j.m + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER) * across;
  }
  __device__ __forceinline__ int row(void) const { /* of tiles */
    return at / across * CLUSTER + rank;
  }
  __device__ __forceinline__ int column(void) const {
    return at % across * TILE_N;
  }
};

/* ---- the way in ---- */

static __device__ __forceinline__ void load_all(const Job &j, const Shared &s) {
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
        tile_spread(b + i * BOX_BYTES, &j.b, column + rank * share + i * TILE_K, k, full, all);
    }
  }
}

/* ---- the way out ---- */

/* Two elements of a type. */
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

/* A number of which the type may not have all digits: the rest is in `low`. Both twice. */
struct Factor {
  uint32_t high, low;
};

template <typename T>
static __device__ __forceinline__ Factor factor_of(float x) {
  uint32_t high = pack2<T>(x, x);
  float rest = x - unpack2<T>(high).x;
  return {high, pack2<T>(rest, rest)};
}

template <typename T>
static __device__ __forceinline__ uint32_t times(uint32_t x, Factor by) {
  typename Two<T>::Is v, high, low;
  memcpy(&v, &x, 4), memcpy(&high, &by.high, 4), memcpy(&low, &by.low, 4);
  v = __hfma2(v, high, __hmul2(v, low));
  memcpy(&x, &v, 4);
  return x;
}

/* What a lane has to do with each part. A part of a warp stands in rows of 64 bytes, their
 * four eights in another order in each two rows: those of eight rows are in all banks. */
struct Lane {
  uint32_t put[2], get[2]; /* where it puts rows of matrices, and gets its own */
  uint32_t bits, sums, shift;
  Factor scale;
};

template <typename T>
static __device__ __forceinline__ Lane lane_of(const Job &j, const Shared &s) {
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
  l.scale = factor_of<T>(j.scale);
  return l;
}

/* A tile that is done. Words 2 i and 2 i + 1 of lane (g, q) are of columns 8 i + 2 q and the
 * next, rows g and g + 8. */
struct Tile {
  uint32_t word[64];
  int row, column; /* of tiles; of elements */
  size_t eight;    /* this lane's in row g of part 0 */
  bool inside[2];  /* is there a row g, and g + 8? */
  Ring<2> bits;
};

/* Part P as it is to be, in shared memory. */
template <typename T, int P>
static __device__ __forceinline__ void part_makes(const Lane &l, const Tile &t) {
  uint32_t x[8];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    /* Bits 2 q and 2 q + 1 of a byte become the highest of two, and each all of a half. */
    uint32_t kept = get4(l.bits + t.bits.at * BITS_BYTES + half * 8 * 32 + P * 4);
    uint32_t second = kept << l.shift, first = second << 1;
#pragma unroll
    for (int i = 0; i < 4; i++)
      x[2 * i + half] = times<T>(t.word[2 * (P * 4 + i) + half], l.scale) &
                        high_bits(first, second, 0xcc88 + 0x1111 * i);
  }
  __syncwarp(); /* the last part was read */
  store_tiles(l.put[0], x[0], x[1], x[2], x[3]);
  store_tiles(l.put[1], x[4], x[5], x[6], x[7]);
  __syncwarp();
}

/* The sums of 16 rows that were turned over: lane (g, q) has column g of eight q. */
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

/* Part P to where it belongs. */
template <typename T, int P>
static __device__ __forceinline__ void part_leaves(const Job &j, const Lane &l, const Tile &t) {
  uint32_t x[2][4];
  load_tiles_over(x[0], l.put[0]);
  load_tiles_over(x[1], l.put[1]);
  put4(l.sums + t.bits.at * SUMS_BYTES + P * 32 * 4, __float_as_uint(sum_rows<T>(x)));
#pragma unroll
  for (int half = 0; half < 2; half++) {
    size_t eight = t.eight + (size_t)half * j.n + P * 4; /* n eights are eight rows */
    uint4 y = get16(l.get[half]);
    if (t.inside[half]) write16((T *)j.y + eight * 8, y);
  }
}

/* The sums of the warps to the tile's row. */
static __device__ __forceinline__ void sums_leave(const Job &j, const Shared &s,
                                                  const Tile &t) {
  uint32_t mine = threadIdx.x - 128, at = s.sums + t.bits.at * SUMS_BYTES + mine * 4;
  float sum = 0;
  asm volatile("bar.sync 1, 256;" ::: "memory"); /* all that multiply */
#pragma unroll
  for (int w = 0; w < WARPS; w++) sum += __uint_as_float(get4(at + w * TILE_N * 4));
  j.sums[(size_t)t.row * j.n + t.column + mine] = sum;
}

/* Step I of those in which a tile leaves, SPREAD for each part. */
template <typename T, int SPREAD, int I>
static __device__ __forceinline__ void step_out(const Job &j, const Shared &s, const Lane &l,
                                                Tile &t) {
  if (I == 0) barrier_wait(s.bits_full + t.bits.at * 8, t.bits.parity);
  if (I % SPREAD == 0) part_makes<T, I / SPREAD>(l, t);
  if (I % SPREAD == SPREAD - 1) part_leaves<T, I / SPREAD>(j, l, t);
  if (I + 1 < PARTS * SPREAD) return;
  sums_leave(j, s, t);
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive_here(s.bits_empty + t.bits.at * 8);
  t.bits.next();
}

/* The last tile, which no other follows. */
template <typename T, int I>
static __device__ __forceinline__ void all_out(const Job &j, const Shared &s, const Lane &l,
                                               Tile &t) {
  step_out<T, 1, I>(j, s, l, t);
  if constexpr (I + 1 < PARTS) all_out<T, I + 1>(j, s, l, t);
}

/* ---- the product ---- */

/* One piece of the sum: four products of 16; and the stage before is free again. */
template <typename T>
static __device__ __forceinline__ void multiply_stage(float (&c)[128], const Shared &s,
                                                      Ring<STAGES> &r, bool first,
                                                      uint32_t &last) {
  uint32_t half = threadIdx.x / 128 - 1, thread = threadIdx.x % 128;
  uint32_t stage = s.stages + r.at * STAGE_BYTES;
  uint64_t a = matrix_at(stage + half * (A_BYTES / 2), 16);
  uint64_t b = matrix_at(stage + A_BYTES, BOX_BYTES);
  barrier_wait(s.full + r.at * 8, r.parity);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < TILE_K / 16; i++) /* 32 bytes along a row; 16 rows of 128 bytes */
    wgmma<T>(c, a + i * (32 >> 4), b + i * (16 * 128 >> 4), !first || i > 0);
  wgmma_commit();
  if (!first) {
    wgmma_wait<1>();
    if (thread < CLUSTER) barrier_arrive(last, thread);
  }
  last = s.empty + r.at * 8;
  r.next();
}

/* The first pieces; after each the tile before is a step further out, if there is one. */
template <typename T, int SPREAD, int I>
static __device__ __forceinline__ void first_stages(const Job &j, const Shared &s,
                                                    const Lane &l, float (&c)[128],
                                                    Ring<STAGES> &r, uint32_t &last, Tile &t) {
  multiply_stage<T>(c, s, r, I == 0, last);
  if (t.row >= 0) step_out<T, SPREAD, I>(j, s, l, t);
  if constexpr (I + 1 < PARTS * SPREAD) first_stages<T, SPREAD, I + 1>(j, s, l, c, r, last, t);
}

template <typename T, int SPREAD>
static __device__ __forceinline__ void multiply_all(const Job &j, const Shared &s) {
  float c[128];
  Tile t = {};
  Lane l = lane_of<T>(j, s);
  Ring<STAGES> r = {0, 0};
  t.row = -1;
  for (Walk walk(j); walk.at < walk.end; walk.at += walk.step) {
    uint32_t last = 0;
    first_stages<T, SPREAD, 0>(j, s, l, c, r, last, t);
#pragma unroll 1
    for (int k = PARTS * SPREAD * TILE_K; k < j.k; k += TILE_K)
      multiply_stage<T>(c, s, r, false, last);
    wgmma_wait<0>();
    if (threadIdx.x % 128 < CLUSTER) barrier_arrive(last, threadIdx.x % 128);
#pragma unroll
    for (int i = 0; i < 64; i++) t.word[i] = pack2<T>(c[2 * i], c[2 * i + 1]);
    t.row = walk.row(), t.column = walk.column();
    uint32_t row = t.row * TILE_M + (threadIdx.x / 32 - 4) * 16 + threadIdx.x % 32 / 4;
    t.eight = ((size_t)row * j.n + t.column) / 8 + threadIdx.x % 4;
    t.inside[0] = row < (uint32_t)j.m, t.inside[1] = row + 8 < (uint32_t)j.m;
  }
  if (t.row >= 0) all_out<T, 0>(j, s, l, t);
}

#define BOUNDS __launch_bounds__(THREADS, 1)
#else
#define BOUNDS __launch_bounds__(32) /* there is no code; see kernel_fuses_relu */
#endif

template <typename T, int SPREAD>
static __global__ void BOUNDS relu_matmul(const __grid_constant__ Job j) {
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
    barriers_ready();
  }
  cluster_sync();
  if (threadIdx.x >= 128) {
    registers_more<240>();
    multiply_all<T, SPREAD>(j, s);
  } else {
    registers_less<24>();
    if (threadIdx.x == 0) load_all(j, s);
  }
  cluster_sync(); /* no block leaves while another may still write to it */
#else
  (void)j;
#endif
}

/* ---- launches ---- */

/* A matrix (rows, columns), rows contiguous, as it is loaded: boxes of `box` rows and 128
 * bytes, or, where it is of bytes, of a tile's columns; what lies outside is 0. */
static cudaError_t map_matrix(CUtensorMap *map, CUtensorMapDataType type, const void *at,
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

static size_t rows_of_tiles(size_t rows) {
  return (rows + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER) * CLUSTER;
}

template <typename T, int SPREAD>
static cudaError_t launch(const Job &j, cudaStream_t stream) {
  int device = 0, processors = 0;
  cudaError_t e = cudaGetDevice(&device);
  if (!e) e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (!e)
    e = cudaFuncSetAttribute(relu_matmul<T, SPREAD>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  if (e) return e;
  size_t clusters = rows_of_tiles((size_t)j.m) / CLUSTER * ((size_t)j.n / TILE_N);
  size_t most = (size_t)processors / CLUSTER;
  cudaLaunchAttribute how = {};
  how.id = cudaLaunchAttributeClusterDimension;
  how.val.clusterDim.x = CLUSTER, how.val.clusterDim.y = how.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)(clusters < most ? clusters : most) * CLUSTER);
  config.blockDim = dim3(THREADS);
  config.dynamicSmemBytes = SHARED;
  config.stream = stream;
  config.attrs = &how, config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, relu_matmul<T, SPREAD>, j);
}

bool kernel_fuses_relu(Type type, size_t rows, size_t in, size_t out) {
  const size_t most = INT32_MAX / 2;
  cudaFuncAttributes is;
  if (type == TYPE_F32 || rows == 0 || rows > most || in % TILE_N || in > most ||
      out % TILE_K || out < PARTS * TILE_K || out > most)
    return false;
  if (cudaFuncGetAttributes(&is, relu_matmul<__nv_bfloat16, 1>)) {
    (void)cudaGetLastError();
    return false;
  }
  return is.maxThreadsPerBlock == THREADS;
}

size_t kernel_linear_relu_backward_work(size_t rows, size_t in) {
  return rows_of_tiles(rows) * in * sizeof(float);
}

cudaError_t kernel_linear_relu_backward(Type type, void *dx, float *dbias, const void *dy,
                                    const void *w, const uint8_t *mask, size_t rows, size_t in,
                                    size_t out, Dropout drop, bool add, void *work,
                                    cudaStream_t stream) {
  bool spread = out >= 2 * PARTS * TILE_K;
  CUtensorMapDataType kind =
      type == TYPE_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  Job j = {};
  j.m = (int)rows, j.n = (int)in, j.k = (int)out;
  j.y = dx, j.sums = (float *)work, j.scale = drop_of(drop).scale;
  cudaError_t e = map_matrix(&j.a, kind, dy, rows, out, TILE_M);
  if (!e) e = map_matrix(&j.b, kind, w, out, in, TILE_K);
  if (!e) e = map_matrix(&j.mask, CU_TENSOR_MAP_DATA_TYPE_UINT8, mask, rows, in / 8, TILE_M);
  if (e) return e;
  if (type == TYPE_F16)
    e = spread ? launch<__half, 2>(j, stream) : launch<__half, 1>(j, stream);
  else
    e = spread ? launch<__nv_bfloat16, 2>(j, stream) : launch<__nv_bfloat16, 1>(j, stream);
  if (e) return e;
  return kernel_add_parts(&dbias, 1, in, j.sums, rows_of_tiles(rows), add, stream);
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
