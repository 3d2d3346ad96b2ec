/* Instructions for attention on tensor cores: wrappers of mma, ldmatrix, stmatrix and cp.async.
 * Turing (compute capability 7.5) has no cp.async, no bf16, and mma of half the depth: there
 * copies are synchronous, and only the kernels for fp16 have code. Depends on attend.cuh. */
#ifndef BACKEND_CUDA_MMA_CUH
#define BACKEND_CUDA_MMA_CUH

#include <type_traits>

#include "backend/cuda/attend.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
#define IS_TURING 1
#else
#define IS_TURING 0
#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
#define HAS_MMA 1

/* c (16, 8) += a (16, 16) · b (16, 8). Lane (g, t) = (lane / 4, lane % 4) holds the columns 2t,
 * 2t + 1 of the rows g and g + 8 of c. */
template <typename T>
static __device__ __forceinline__ void mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                           uint32_t a3, uint32_t b0, uint32_t b1);

#if IS_TURING
/* c (16, 8) += a (16, 8) · b (8, 8): half of an mma of 16 columns of a. */
static __device__ __forceinline__ void mma_half(float c[4], uint32_t a0, uint32_t a1,
                                                uint32_t b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}
template <>
__device__ __forceinline__ void mma<__half>(float c[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                            uint32_t a3, uint32_t b0, uint32_t b1) {
  mma_half(c, a0, a1, b0);
  mma_half(c, a2, a3, b1);
}
/* is_built() is false for bf16. */
template <>
__device__ __forceinline__ void mma<__nv_bfloat16>(float *, uint32_t, uint32_t, uint32_t,
                                                   uint32_t, uint32_t, uint32_t) {
  __trap();
  __builtin_unreachable();
}
#else
#define MMA(TYPE)                                                                     \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))

template <>
__device__ __forceinline__ void mma<__nv_bfloat16>(float c[4], uint32_t a0, uint32_t a1,
                                                   uint32_t a2, uint32_t a3, uint32_t b0,
                                                   uint32_t b1) {
  MMA("bf16");
}
template <>
__device__ __forceinline__ void mma<__half>(float c[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                            uint32_t a3, uint32_t b0, uint32_t b1) {
  MMA("f16");
}
#endif

/* Transposes an 8 x 8 tile of 16-bit elements; lane (g, t) has two elements of row g. */
static __device__ __forceinline__ uint32_t transposed(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

/* Returns the 32-bit address of shared memory, which needs half the registers of a pointer. */
static __device__ __forceinline__ uint32_t shared_at(const void *p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}
static __device__ __forceinline__ uint4 get16(uint32_t at) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(at)
               : "memory");
  return x;
}
static __device__ __forceinline__ uint32_t get4(uint32_t at) {
  uint32_t x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
  return x;
}
static __device__ __forceinline__ void put4(uint32_t at, uint32_t x) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}

static __device__ __forceinline__ void put1(uint32_t at, uint32_t x) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}

/* Stores 16 bytes to global memory with one instruction. */
static __device__ __forceinline__ void write16(void *to, uint4 x) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}

/* Loads four 8 x 8 tiles from shared memory: lane l passes the address of row l % 8 of tile l /
 * 8, and lane (g, t) receives columns 2t, 2t + 1 of row g of each tile. */
static __device__ __forceinline__ void load_tiles(uint32_t (&x)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}
/* Like load_tiles, transposed: lane (g, t) receives rows 2t, 2t + 1, column g of each tile. */
static __device__ __forceinline__ void load_tiles_over(uint32_t (&x)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}

/* Stores four tiles; the inverse of load_tiles with the same `at`. */
static __device__ __forceinline__ void store_tiles(uint32_t at, uint32_t a, uint32_t b,
                                                   uint32_t c, uint32_t d) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
#else
  uint32_t x[4] = {a, b, c, d};
  int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; i++)
    put4(__shfl_sync(0xffffffffu, at, i * 8 + lane / 4) + (uint32_t)(lane % 4 * 4), x[i]);
#endif
}

/* Start an asynchronous copy of 16 or 4 bytes to shared memory; copy zeros if `there` is
 * false. */
#if IS_TURING
static __device__ __forceinline__ void copy16(uint32_t to, const void *from, bool there) {
  asm volatile(
      "{\n"
      ".reg .pred there;\n"
      ".reg .b32 x<4>;\n"
      "setp.ne.s32 there, %2, 0;\n"
      "mov.b32 x0, 0;\n"
      "mov.b32 x1, 0;\n"
      "mov.b32 x2, 0;\n"
      "mov.b32 x3, 0;\n"
      "@there ld.global.nc.v4.b32 {x0, x1, x2, x3}, [%1];\n"
      "st.shared.v4.b32 [%0], {x0, x1, x2, x3};\n"
      "}\n" ::"r"(to),
      "l"(from), "r"((int)there)
      : "memory");
}
static __device__ __forceinline__ void copy4(uint32_t to, const void *from, bool there) {
  put4(to, there ? __ldg((const uint32_t *)from) : 0);
}
static __device__ __forceinline__ void copies_mark(void) {
}
static __device__ __forceinline__ void copies_wait_but_last(void) {
}
#else
static __device__ __forceinline__ void copy16(uint32_t to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
static __device__ __forceinline__ void copy4(uint32_t to, const void *from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
               "r"(there ? 4 : 0)
               : "memory");
}
/* Commits the cp.async copies since the last call as a group. */
static __device__ __forceinline__ void copies_mark(void) {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits for all cp.async groups of this thread except the last. */
static __device__ __forceinline__ void copies_wait_but_last(void) {
  asm volatile("cp.async.wait_group 1;" ::: "memory");
}
#endif

/* Returns the index of this warp in its block, computed so that the compiler knows it to be
 * uniform. */
static __device__ __forceinline__ int warp_number(void) {
#if IS_TURING
  return (int)__shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
#else
  return (int)__reduce_or_sync(0xffffffffu, threadIdx.x / 32);
#endif
}

/* Selects bytes (prmt): byte i of the result is byte (pick >> 4i & 7) of x and y. If bit 3 of
 * that nibble is set, the highest bit of the byte is replicated instead: all ones or zeros. */
static __device__ __forceinline__ uint32_t pick_bytes(uint32_t x, uint32_t y, uint32_t pick) {
  uint32_t z;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(y), "r"(pick));
  return z;
}

static __device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
static __device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
/* Approximations within a few ulp, for positive normal numbers; log2_fast(0) is -inf. */
static __device__ __forceinline__ float inverse_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
static __device__ __forceinline__ float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
#define HAS_MMA 0
#endif

/* Returns true if the kernel, whose elements are T, has code for the current device with these
 * instructions: compiled for compute capability 8.0 or later, for fp16 7.5 or later. */
template <typename T, typename K>
static bool is_built(K kernel) {
  cudaFuncAttributes is;
  int least = std::is_same<T, __half>::value ? 75 : 80;
  if (cudaFuncGetAttributes(&is, kernel) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
#ifdef CUDA_AS /* The machine code does not tell for which source it was compiled. */
  is.ptxVersion = CUDA_AS;
#endif
  return is.ptxVersion >= least;
}

#endif
