/* Device functions shared by the kernels: loads and stores of the three element types as floats,
 * eight at a time; dropout masks; sums over warps and blocks in a fixed order. Depends on
 * kernels.h, dropout.h. */
#ifndef BACKEND_CUDA_DEVICE_CUH
#define BACKEND_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/philox.cuh"
#include "backend/dropout.h"

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

/* Calls f with a value of the C++ type that `type` names; returns the launch error. */
template <typename F>
static cudaError_t with_type(Type type, F f) {
  switch (type) {
    case TYPE_F32:
      f(0.0f);
      break;
    case TYPE_BF16:
      f(__nv_bfloat16());
      break;
    case TYPE_F16:
      f(__half());
      break;
  }
  return cudaGetLastError();
}

static inline bool is_aligned(const void *p) {
  return (uintptr_t)p % 16 == 0;
}

static inline unsigned blocks_for(size_t n, size_t each) {
  return (unsigned)((n + each - 1) / each);
}

/* ---- elements ---- */

static __device__ __forceinline__ float to_float(float x) {
  return x;
}
static __device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
static __device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}

static __device__ __forceinline__ void set_float(float &to, float x) {
  to = x;
}
static __device__ __forceinline__ void set_float(__nv_bfloat16 &to, float x) {
  to = __float2bfloat16_rn(x);
}
static __device__ __forceinline__ void set_float(__half &to, float x) {
  to = __float2half_rn(x);
}

/* Packs two elements into a 32-bit word, the first in the low half. */
template <typename T>
static __device__ __forceinline__ uint32_t pack2(float a, float b);
template <>
__device__ __forceinline__ uint32_t pack2<__nv_bfloat16>(float a, float b) {
  __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
  uint32_t word;
  memcpy(&word, &two, 4);
  return word;
}
template <>
__device__ __forceinline__ uint32_t pack2<__half>(float a, float b) {
  __half2 two = __floats2half2_rn(a, b);
  uint32_t word;
  memcpy(&word, &two, 4);
  return word;
}

template <typename T>
static __device__ __forceinline__ float2 unpack2(uint32_t word);
template <>
__device__ __forceinline__ float2 unpack2<__nv_bfloat16>(uint32_t word) {
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}
template <>
__device__ __forceinline__ float2 unpack2<__half>(uint32_t word) {
  __half2 two;
  memcpy(&two, &word, 4);
  return __half22float2(two);
}

/* Eight elements as stored in memory, 16-byte aligned. */
template <typename T>
struct Eight {
  uint4 raw;
  __device__ __forceinline__ void load(const T *p) {
    raw = *reinterpret_cast<const uint4 *>(p);
  }
  __device__ __forceinline__ void store(T *p) const {
    *reinterpret_cast<uint4 *>(p) = raw;
  }
  __device__ __forceinline__ void get(float x[8]) const {
    float2 a = unpack2<T>(raw.x), b = unpack2<T>(raw.y), c = unpack2<T>(raw.z),
           d = unpack2<T>(raw.w);
    x[0] = a.x;
    x[1] = a.y;
    x[2] = b.x;
    x[3] = b.y;
    x[4] = c.x;
    x[5] = c.y;
    x[6] = d.x;
    x[7] = d.y;
  }
  __device__ __forceinline__ void set(const float x[8]) {
    raw = make_uint4(pack2<T>(x[0], x[1]), pack2<T>(x[2], x[3]), pack2<T>(x[4], x[5]),
                     pack2<T>(x[6], x[7]));
  }
};

template <>
struct Eight<float> {
  float4 lo, hi;
  __device__ __forceinline__ void load(const float *p) {
    lo = reinterpret_cast<const float4 *>(p)[0];
    hi = reinterpret_cast<const float4 *>(p)[1];
  }
  __device__ __forceinline__ void store(float *p) const {
    reinterpret_cast<float4 *>(p)[0] = lo;
    reinterpret_cast<float4 *>(p)[1] = hi;
  }
  __device__ __forceinline__ void get(float x[8]) const {
    x[0] = lo.x;
    x[1] = lo.y;
    x[2] = lo.z;
    x[3] = lo.w;
    x[4] = hi.x;
    x[5] = hi.y;
    x[6] = hi.z;
    x[7] = hi.w;
  }
  __device__ __forceinline__ void set(const float x[8]) {
    lo = make_float4(x[0], x[1], x[2], x[3]);
    hi = make_float4(x[4], x[5], x[6], x[7]);
  }
};

template <typename T>
static __device__ __forceinline__ void load8(float x[8], const T *p) {
  Eight<T> e;
  e.load(p);
  e.get(x);
}

template <typename T>
static __device__ __forceinline__ void store8(T *p, const float x[8]) {
  Eight<T> e;
  e.set(x);
  e.store(p);
}

/* Load and store `count` (1 to 8) elements at any address; the others are read as 0 and not
 * written. */
template <typename T>
static __device__ __forceinline__ void load_some(float x[8], const T *p, int count) {
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = i < count ? to_float(p[i]) : 0;
}

template <typename T>
static __device__ __forceinline__ void store_some(T *p, const float x[8], int count) {
#pragma unroll
  for (int i = 0; i < 8; i++) {
    if (i < count) set_float(p[i], x[i]);
  }
}

/* ---- dropout, with the same bits as backend/dropout.h ---- */

struct Drop {
  const uint64_t *key;      /* pointer to device memory, which no kernel writes */
  uint32_t site, threshold; /* threshold 0: nothing is dropped */
  float scale;
};

static inline Drop drop_of(Dropout d) {
  Drop drop = {d.key, d.site, 0, 1};
  if (d.rate != 0)
    drop.threshold = dropout_threshold(d.rate), drop.scale = dropout_scale(d.rate);
  return drop;
}

/* Sets word[i] to the two random words of group + i * STEP, round by round, because all share the
 * key schedule. */
template <int N, int STEP>
static __device__ __forceinline__ void drop_words(uint32_t (&word)[N][2], const Drop &drop,
                                                  uint64_t group) {
  uint64_t key = __ldg(drop.key);
  uint32_t round_key = (uint32_t)key;
#pragma unroll
  for (int i = 0; i < N; i++) {
    uint64_t at = group + (uint64_t)i * STEP;
    word[i][0] = (uint32_t)at;
    word[i][1] = dropout_counter(key, drop.site, (uint32_t)(at >> 32));
  }
#pragma unroll
  for (int round = 0; round < DROPOUT_ROUNDS; round++) {
#pragma unroll
    for (int i = 0; i < N; i++) philox_round(word[i][0], word[i][1], round_key);
    round_key += PHILOX_KEY_STEP;
  }
}

/* Returns true if element i of eight is kept. Its 16 bits (see dropout_words) are rotated to the
 * upper half of a word, so that the bits below them do not matter. */
static __device__ __forceinline__ bool is_kept(const uint32_t (&word)[2], int i,
                                               const Drop &drop) {
  int by = i % 4 == 1 ? 0 : i % 4 == 3 ? 8 : i % 4 == 0 ? 16 : 24;
  return __funnelshift_l(word[i / 4], word[i / 4], by) >= drop.threshold << 16;
}

/* Returns a mask: bit i is set if element 8 * group + i is kept. */
static __device__ __forceinline__ uint32_t keep8(const Drop &drop, uint64_t group) {
  uint32_t word[1][2], keep = 0;
  drop_words<1, 1>(word, drop, group);
#pragma unroll
  for (int i = 0; i < 8; i++) keep |= is_kept(word[0], i, drop) ? 1u << i : 0;
  return keep;
}

/* Returns a byte: bit 2 i + h is the highest bit of half h (0: low) of word i. */
static __device__ __forceinline__ uint32_t pack_signs(uint32_t a, uint32_t b, uint32_t c,
                                                      uint32_t d) {
  uint32_t low, high; /* four bytes, 0 or -1, for two words */
  asm("prmt.b32 %0, %1, %2, 0xfdb9;" : "=r"(low) : "r"(a), "r"(b));
  asm("prmt.b32 %0, %1, %2, 0xfdb9;" : "=r"(high) : "r"(c), "r"(d));
  /* dot products with the bytes -1, -2, -4, -8 and -16, -32, -64, -128 */
  return (uint32_t)__dp4a((int)high, (int)0x80c0e0f0u, __dp4a((int)low, (int)0xf8fcfeffu, 0));
}

/* Returns a mask: bit i is set if element 32 * at + i is kept; the threshold is not 0. The same
 * bits as of keep8 with fewer instructions. */
static __device__ __forceinline__ uint32_t keep32(const Drop &drop, uint64_t at) {
  /* An element is kept if the sum of its 16 bits and `rest`, 65536 - threshold, has a carry: if
   * at least two of the highest bits of both and of the sum of their other bits are set. */
  const uint32_t others = 0x7fff7fff, rest = (65536 - drop.threshold) * 0x10001u;
  uint32_t word[4][2], byte[4];
  drop_words<4, 1>(word, drop, at * 4);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint32_t part[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint32_t x = j % 2 ? rotate_word(word[i][j / 2]) : word[i][j / 2];
      uint32_t sum = (x & others) + (rest & others);
      part[j] = (x & rest) | (sum & (x | rest));
    }
    byte[i] = pack_signs(part[0], part[1], part[2], part[3]);
  }
  return byte[0] | byte[1] << 8 | byte[2] << 16 | byte[3] << 24;
}

/* Applies dropout to the elements 8 * group … 8 * group + 7 of a site: sets them to 0 or scales
 * them. */
static __device__ __forceinline__ void drop8(float x[8], const Drop &drop, uint64_t group) {
  if (drop.threshold == 0) return;
  uint32_t word[1][2];
  drop_words<1, 1>(word, drop, group);
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = is_kept(word[0], i, drop) ? x[i] * drop.scale : 0;
}

static __device__ __forceinline__ float drop1(const Drop &drop, uint64_t element) {
  if (drop.threshold == 0) return 1;
  return keep8(drop, element / 8) >> (element % 8) & 1 ? drop.scale : 0;
}

/* ---- sums ---- */

static __device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

static __device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

static __device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

/* Returns the sum over a block of THREADS to every thread. */
template <int THREADS, typename N>
static __device__ __forceinline__ N block_sum(N x) {
  __shared__ N part[THREADS / 32];
  x = warp_sum(x);
  __syncthreads(); /* All threads must have read `part`, which the previous call wrote. */
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  N sum = part[0];
#pragma unroll
  for (int i = 1; i < THREADS / 32; i++) sum += part[i];
  return sum;
}

template <int THREADS>
static __device__ __forceinline__ float block_max(float x) {
  __shared__ float part[THREADS / 32];
  x = warp_max(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  float most = part[0];
#pragma unroll
  for (int i = 1; i < THREADS / 32; i++) most = fmaxf(most, part[i]);
  return most;
}

/* Returns a mask whose bit i is x[i] > 0: the sign of 0 - x[i], which is also correct for
 * -0. */
static __device__ __forceinline__ uint32_t positive_mask(const float x[8]) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 7; i >= 0; i--) bits = __funnelshift_l(__float_as_uint(0.0f - x[i]), bits, 1);
  return bits;
}

/* Waits for the cp.async copies of this thread; those of other threads also need a barrier. */
static __device__ __forceinline__ void copies_wait(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

static __device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/* Sums parts (count * each, targets * width) over its rows, first `each` adjacent rows, and
 * writes the first `width` columns to to[0], the next to to[1], and so on; at most three
 * targets; adds to the targets if `add`. See columns.cu. */
cudaError_t kernel_add_parts(float *const *to, int targets, size_t width, const float *parts,
                             size_t count, size_t each, bool add, cudaStream_t);
/* Sets *count to the number of SMs of the current GPU, or to what kernel_assume_sms has set. */
cudaError_t kernel_count_sms(size_t *count);
/* Adds the column sums of parts (rows, 3) to loss (3), in a fixed order. See loss.cu. */
cudaError_t kernel_sum_losses(double *loss, const double *parts, size_t rows, cudaStream_t);
/* Backward of ReLU and its column sums; n is a multiple of 8, all arrays are 16-byte aligned. */
cudaError_t kernel_relu_backward_sums(Type, void *dx, float *dbias, const void *dy,
                                      const uint8_t *mask, size_t rows, size_t n, float scale,
                                      bool add, void *work, cudaStream_t);

#endif
