/* dgrad GEMM fused with the backward of ReLU: applies the mask and sums the bias gradient in
 * the epilogue. Hopper only, bf16 and fp16. Depends on tile_matmul.cuh. */
#include "backend/cuda/tile_matmul.cuh"

#define SUMS_BYTES (WARPS * TILE_N * 4)
#define OWN_BYTES  (2 * SUMS_BYTES)
#define SHARED     (PIPE_BYTES + OWN_BYTES)

#if HAS_TENSOR_MAPS
#if HAS_WGMMA

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

/* y (m, n) = (a (m, k) · b (k, n)) ∘ mask * scale, and the column sums of y. Its own shared
 * memory has the column sums of each warp for two tiles. */
template <typename T>
struct Backward : Masked<T> {
  typedef T Element;
  static constexpr bool B_ALONG = false, DYNAMIC = true;
  static constexpr uint32_t LOADED = 0, OWN = OWN_BYTES;

  static __device__ __forceinline__ void load(const Job &, uint32_t, int, int, uint32_t) {
  }
  static __device__ __forceinline__ void place_lane(Lane &l, const Shared &s, uint32_t warp,
                                                    uint32_t g, uint32_t q) {
    l.own = s.own + (warp * TILE_N + q * 8 + g) * 4;
  }

  /* Scales and masks part P. */
  template <int P>
  static __device__ __forceinline__ void stage_part(const Lane &l, const Tile &t) {
    uint32_t x[8];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      Bits bits = get_bits<P>(l, t, half);
#pragma unroll
      for (int i = 0; i < 4; i++)
        x[2 * i + half] =
            multiply_pair<T>(t.word[2 * (P * 4 + i) + half], l.scale) & expand_bits(bits, i);
    }
    stage_words(l, x);
  }

  /* Writes the column sums of part P to shared memory. */
  template <int P>
  static __device__ __forceinline__ void write_part(const Lane &l, const Tile &t) {
    uint32_t x[2][4];
    load_tiles_over(x[0], l.put[0]);
    load_tiles_over(x[1], l.put[1]);
    put4(t.own_at + P * 32 * 4, __float_as_uint(sum_rows<T>(x)));
    write_eight<P>(l, t, 0);
    write_eight<P>(l, t, 1);
  }

  /* Adds the warps' column sums and writes them to the tile's row of j.sums. */
  static __device__ __forceinline__ void finish_tile(const Job &j, const Shared &s,
                                                     const Tile &t) {
    uint32_t mine = threadIdx.x - 128, at = s.own + t.bits.at * SUMS_BYTES + mine * 4;
    float sum = 0;
    asm volatile("bar.sync 1, 256;" ::: "memory"); /* synchronizes all multiplying warps */
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += __uint_as_float(get4(at + w * TILE_N * 4));
    j.sums[(size_t)t.row * j.n + t.column + mine] = sum;
  }
};

#endif

template <typename T, int SPREAD>
static __global__ void BOUNDS relu_backward_matmul(const __grid_constant__ Job j) {
#if HAS_WGMMA
  run_block<Backward<T>, SPREAD>(j);
#else
  (void)j;
#endif
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
                                        void *work, unsigned *tile_counter,
                                        cudaStream_t stream) {
  bool spread = out >= 2 * PARTS * TILE_K;
  CUtensorMapDataType kind =
      type == TYPE_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  Job j = {};
  j.m = (int)rows;
  j.n = (int)in;
  j.k = (int)out;
  j.y = dx;
  j.sums = (float *)work;
  j.tile_counter = tile_counter;
  j.scale = drop_of(drop).scale;
  cudaError_t e = make_tensor_map(&j.a, kind, dy, rows, out, TILE_M);
  if (!e) e = make_tensor_map(&j.b, kind, w, out, in, TILE_K);
  if (!e)
    e = make_tensor_map(&j.mask, CU_TENSOR_MAP_DATA_TYPE_UINT8, mask, rows, in / 8, TILE_M);
  if (e) return e;
  if (type == TYPE_F16)
    e = launch_kernel(
        spread ? relu_backward_matmul<__half, 2> : relu_backward_matmul<__half, 1>, SHARED, j,
        stream);
  else
    e = launch_kernel(spread ? relu_backward_matmul<__nv_bfloat16, 2>
                             : relu_backward_matmul<__nv_bfloat16, 1>,
                      SHARED, j, stream);
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
                                        void *, unsigned *, cudaStream_t) {
  return cudaErrorNotSupported;
}

#endif
