/* The instructions of attention on the tensor cores: products of tiles, copies to
 * shared memory that nobody waits for, tiles read from there, and what else its two
 * ways share. Depends on attend.cuh. */
#ifndef BACKEND_CUDA_MMA_CUH
#define BACKEND_CUDA_MMA_CUH

#include "backend/cuda/attend.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define HAS_MMA 1

/* c (16, 8) += a (16, 16) · b (16, 8). Lane (g, t) = (lane / 4, lane % 4) has of c the
 * columns 2t, 2t + 1 of the rows g and g + 8. */
template <typename T>
static __device__ __forceinline__ void mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                           uint32_t a3, uint32_t b0, uint32_t b1);

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

/* An 8 by 8 tile of 16-bit elements, two of row g in lane (g, t), turned over. */
static __device__ __forceinline__ uint32_t transposed(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

/* Shared memory by its 32-bit address: half the registers of a pointer. */
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

/* To memory, 16 bytes by one instruction. */
static __device__ __forceinline__ void write16(void *to, uint4 x) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y),
               "r"(x.z), "r"(x.w)
               : "memory");
}

/* Four tiles of 8 by 8 from shared memory: lane l names row l % 8 of tile l / 8, and
 * lane (g, t) gets columns 2t, 2t + 1 of each tile's row g … */
static __device__ __forceinline__ void load_tiles(uint32_t (&x)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}
/* … or rows 2t, 2t + 1 of each tile's column g. */
static __device__ __forceinline__ void load_tiles_over(uint32_t (&x)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}

/* The other way round: what lanes (g, t) have of four tiles goes where load_tiles with
 * the same `at` would read it. */
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

/* Begins a copy of 16 bytes to shared memory, or, where there is nothing, of zeros. */
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
/* The copies begun since the last mark are a group … */
static __device__ __forceinline__ void copies_mark(void) {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/* … and this waits for all of this thread's groups but the last one. */
static __device__ __forceinline__ void copies_wait_but_last(void) {
  asm volatile("cp.async.wait_group 1;" ::: "memory");
}

/* Which of 16 keys a query keeps, for 16 queries: lane l has query l % 16. A Philox
 * call gives eight keys, so the 32 lanes make the tile together. */
static __device__ __forceinline__ uint32_t keep_tile(const Attend &a, size_t query0, int head,
                                                     int key0, int lane) {
  uint64_t probability = ((uint64_t)(query0 + lane % 16) * a.heads + head) * MOST_KEYS + key0;
  uint32_t keep = keep8(a.drop, probability / 8 + lane / 16) << (lane / 16 * 8);
  return keep | __shfl_xor_sync(0xffffffffu, keep, 16);
}

/* Of this warp in its block; the compiler knows that all lanes have the same. */
static __device__ __forceinline__ int warp_number(void) {
  return (int)__reduce_or_sync(0xffffffffu, threadIdx.x / 32);
}

/* Dropout by the tile, cheaper than keep_tile where the order of keys is free. */
struct Keep {
  uint32_t k0, k1, site; /* of Philox */
  uint32_t low, high;    /* the threshold's 15 lower bits, twice; its highest one, inverted */
};

/* Byte i of the result is byte `pick` >> 4i & 7 of x and y, or where bit 3 of that pick
 * is set too, all ones if its highest bit is set and else zeros. */
static __device__ __forceinline__ uint32_t pick_bytes(uint32_t x, uint32_t y, uint32_t pick) {
  uint32_t z;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(y), "r"(pick));
  return z;
}

/* key: where in shared memory it lies. */
static __device__ __forceinline__ Keep keep_of(const Drop &drop, uint32_t key) {
  Keep keep;
  keep.k0 = get4(key), keep.k1 = get4(key + 4);
  keep.site = drop.site;
  keep.low = pick_bytes(drop.threshold & 0x7fff, 0, 0x1010);
  keep.high = drop.threshold & 0x8000 ? 0 : 0xffffffffu;
  return keep;
}

/* Which of TILES times 16 keys are kept by 16 queries: lane (g, t) learns it of keys
 * 4t … 4t + 3 of each tile, bits[][0] of query g, bits[][1] of g + 8: key 4t + i's is the
 * highest bit of byte i. A Philox call gives eight keys, so lane (g, t) makes those of
 * keys 8 (t / 2) … for query g, or with t odd g + 8, whose count is `group` for the first
 * tile; neighbours share. Round by round for all tiles, which needs few registers. */
template <int TILES>
static __device__ __forceinline__ void keep_fours(uint32_t (&bits)[TILES][2], const Keep &keep,
                                                  uint64_t group, bool odd) {
  uint32_t c[TILES][4], k0 = keep.k0, k1 = keep.k1;
  asm volatile("" : "+r"(k0), "+r"(k1)); /* or all rounds' keys lie in registers for good */
#pragma unroll
  for (int j = 0; j < TILES; j++) {
    c[j][0] = (uint32_t)group + 2 * (uint32_t)j; /* a row's counts never carry */
    c[j][1] = (uint32_t)(group >> 32), c[j][2] = keep.site, c[j][3] = 0;
  }
#pragma unroll
  for (int round = 0; round < 10; round++) {
#pragma unroll
    for (int j = 0; j < TILES; j++) {
      uint64_t p0 = (uint64_t)0xD2511F53u * c[j][0], p1 = (uint64_t)0xCD9E8D57u * c[j][2];
      c[j][0] = (uint32_t)(p1 >> 32) ^ c[j][1] ^ k0;
      c[j][2] = (uint32_t)(p0 >> 32) ^ c[j][3] ^ k1;
      c[j][1] = (uint32_t)p1;
      c[j][3] = (uint32_t)p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
#pragma unroll
  for (int j = 0; j < TILES; j++) {
    /* Both halves of a word compared at once: the lower 15 bits by a subtraction that
     * cannot borrow; then the highest, so that two of three bits decide. */
#pragma unroll
    for (int i = 0; i < 4; i++) {
      uint32_t &word = c[j][i], least = (word | 0x80008000u) - keep.low;
      word = (word & least) | (word & keep.high) | (least & keep.high);
    }
    uint32_t first = pick_bytes(c[j][0], c[j][1], 0x7531);
    uint32_t second = pick_bytes(c[j][2], c[j][3], 0x7531);
    uint32_t mine = odd ? second : first;
    uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
    bits[j][0] = odd ? other : mine, bits[j][1] = odd ? mine : other;
  }
}
/* Two packed elements, keys 4t + 2n, 4t + 2n + 1, as lo or hi says. */
template <int N>
static __device__ __forceinline__ uint32_t kept(uint32_t pair, uint32_t bits) {
  return pair & pick_bytes(bits, bits, N ? 0xbbaa : 0x9988);
}

static __device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
static __device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
/* In a few units of the last place, for positive normal numbers. log2 of 0 is -inf. */
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

/* Was this kernel built for a device with these instructions? */
template <typename K>
static bool is_built(K kernel) {
  cudaFuncAttributes is;
  if (cudaFuncGetAttributes(&is, kernel) == cudaSuccess) return is.ptxVersion >= 80;
  (void)cudaGetLastError();
  return false;
}

#endif
