/* Forward GEMM fused with bias, ReLU and dropout, and the kernel that draws the bits of
 * dropout. The epilogue does not draw them: beside wgmma that takes longer than a pass of its
 * own. The mask array holds the bits on entry. add_norm (norm.cu) draws them while it waits for
 * memory; otherwise kernel_draw_bits does. Hopper only, bf16 and fp16, except for the drawing.
 * Depends on tile_matmul.cuh. */
#include "backend/cuda/tile_matmul.cuh"

#define BIAS_BYTES   (TILE_N * 2)
#define KEPT_BYTES   (16 * TILE_N / 8) /* the mask of 16 rows, which a warp writes */
#define LOADED_BYTES (2 * BIAS_BYTES)
#define OWN_BYTES    (2 * WARPS * KEPT_BYTES)
#define SHARED       (PIPE_BYTES + LOADED_BYTES + OWN_BYTES)

#define DRAW_THREADS 256

/* bits (words): which elements are kept, 32 per word. */
static __global__ void __launch_bounds__(DRAW_THREADS)
    draw_bits(uint32_t *bits, size_t words, Drop drop) {
  size_t at = blockIdx.x * (size_t)DRAW_THREADS + threadIdx.x;
  if (at < words) bits[at] = keep32(drop, at);
}

cudaError_t kernel_draw_bits(uint8_t *bits, size_t n, Dropout dropout, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  Drop drop = drop_of(dropout);
  if (drop.threshold == 0) return cudaMemsetAsync(bits, 0xff, n / 8, stream);
  draw_bits<<<blocks_for(n / 32, DRAW_THREADS), DRAW_THREADS, 0, stream>>>((uint32_t *)bits,
                                                                           n / 32, drop);
  return cudaGetLastError();
}

#if HAS_TENSOR_MAPS
#if HAS_WGMMA

/* Returns max(x + bias, 0) of two elements. */
template <typename T>
static __device__ __forceinline__ uint32_t add_relu(uint32_t x, uint32_t bias) {
  typename Two<T>::Is v, b, one;
  const uint32_t ones = Two<T>::ONES;
  memcpy(&v, &x, 4);
  memcpy(&b, &bias, 4);
  memcpy(&one, &ones, 4);
  v = __hfma2_relu(v, one, b);
  memcpy(&x, &v, 4);
  return x;
}

/* Returns a byte: bit i is set if element i of eight, none of which is negative, is not 0. */
static __device__ __forceinline__ uint32_t nonzero_mask(uint4 y) {
  const uint32_t most = 0x7fff7fff; /* carries into the highest bit of each half */
  return pack_signs(y.x + most, y.y + most, y.z + most, y.w + most);
}

/* y (m, n) = max(a (m, k) · bᵀ + bias, 0) ∘ bits * scale, b (n, k); kept: where y is not 0.
 * Loads the bias. Its own shared memory has the mask to write. */
template <typename T>
struct Forward : Masked<T> {
  typedef T Element;
  static constexpr bool B_ALONG = true;
  static constexpr uint32_t LOADED = LOADED_BYTES, OWN = OWN_BYTES;

  static __device__ __forceinline__ void load(const Job &j, uint32_t to, int, int column,
                                              uint32_t barrier) {
    bulk_load(to, (const T *)j.bias + column, BIAS_BYTES, barrier);
  }
  static __device__ __forceinline__ void place_lane(Lane &l, const Shared &s, uint32_t warp,
                                                    uint32_t g, uint32_t q) {
    l.loaded = s.loaded + q * 4;
    l.own = s.own + warp * KEPT_BYTES + g * 32 + q;
  }

  template <int P>
  static __device__ __forceinline__ void stage_part(const Lane &l, const Tile &t) {
    uint32_t x[8], bias[4];
#pragma unroll
    for (int i = 0; i < 4; i++) bias[i] = get4(t.loaded_at + (P * 4 + i) * 16);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      Bits bits = get_bits<P>(l, t, half);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        uint32_t v = add_relu<T>(t.word[2 * (P * 4 + i) + half], bias[i]);
        x[2 * i + half] = multiply_pair<T>(v, l.scale) & expand_bits(bits, i);
      }
    }
    stage_words(l, x);
  }

  /* Writes the mask of part P to shared memory. */
  template <int P>
  static __device__ __forceinline__ void write_part(const Lane &l, const Tile &t) {
#pragma unroll
    for (int half = 0; half < 2; half++)
      put1(t.own_at + half * 8 * 32 + P * 4, nonzero_mask(write_eight<P>(l, t, half)));
  }

  /* Each warp writes the mask of its 16 rows, 16 bytes per lane. */
  static __device__ __forceinline__ void finish_tile(const Job &j, const Shared &s,
                                                     const Tile &t) {
    uint32_t warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    uint32_t row = t.row * TILE_M + warp * 16 + lane / 2;
    __syncwarp();
    uint4 kept = get16(s.own + t.bits.at * (OWN / 2) + warp * KEPT_BYTES + lane * 16);
    if (row < (uint32_t)j.m)
      write16(j.kept + (size_t)row * (j.n / 8) + t.column / 8 + lane % 2 * 16, kept);
  }
};

#endif

template <typename T, int SPREAD>
static __global__ void BOUNDS relu_forward_matmul(const __grid_constant__ Job j) {
#if HAS_WGMMA
  run_block<Forward<T>, SPREAD>(j);
#else
  (void)j;
#endif
}

cudaError_t kernel_linear_relu_dropout(Type type, void *y, uint8_t *mask, const void *x,
                                       const void *w, const void *bias, size_t rows, size_t in,
                                       size_t out, Dropout drop, cudaStream_t stream) {
  bool spread = in >= 2 * PARTS * TILE_K;
  CUtensorMapDataType kind =
      type == TYPE_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  Job j = {};
  j.m = (int)rows;
  j.n = (int)out;
  j.k = (int)in;
  j.y = y;
  j.bias = bias;
  j.kept = mask;
  j.scale = drop_of(drop).scale;
  cudaError_t e = make_tensor_map(&j.a, kind, x, rows, in, TILE_M);
  if (!e) e = make_tensor_map(&j.b, kind, w, out, in, TILE_N / CLUSTER);
  if (!e)
    e = make_tensor_map(&j.mask, CU_TENSOR_MAP_DATA_TYPE_UINT8, mask, rows, out / 8, TILE_M);
  if (e) return e;
  if (type == TYPE_F16)
    return launch_kernel(
        spread ? relu_forward_matmul<__half, 2> : relu_forward_matmul<__half, 1>, SHARED, j,
        stream);
  return launch_kernel(
      spread ? relu_forward_matmul<__nv_bfloat16, 2> : relu_forward_matmul<__nv_bfloat16, 1>,
      SHARED, j, stream);
}

#else

cudaError_t kernel_linear_relu_dropout(Type, void *, uint8_t *, const void *, const void *,
                                       const void *, size_t, size_t, size_t, Dropout,
                                       cudaStream_t) {
  return cudaErrorNotSupported;
}

#endif
