/* Instructions that only Hopper (sm_90a) has: TMA copies of tiles, the mbarriers that count them,
 * and wgmma. Depends on mma.cuh. */
#ifndef BACKEND_CUDA_HOPPER_CUH
#define BACKEND_CUDA_HOPPER_CUH

#include "backend/cuda/mma.cuh"

#if CUDART_VERSION >= 12000
#include <cuda.h> /* declares CUtensorMap */
#define HAS_TENSOR_MAPS 1
#endif

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && HAS_TENSOR_MAPS
#define HAS_WGMMA 1

/* ---- mbarriers in shared memory, by their 32-bit addresses ---- */

static __device__ __forceinline__ void barrier_init(uint32_t at, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}

/* Waits until the mbarrier phase of this parity has completed. */
static __device__ __forceinline__ void barrier_wait(uint32_t at, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(at),
      "r"(parity)
      : "memory");
}

/* Arrives at the mbarrier, and adds `bytes` to the bytes that its current phase waits for. */
static __device__ __forceinline__ void barrier_expect(uint32_t at, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
               : "memory");
}

/* Arrives at the barrier of another block of the cluster, to signal that a buffer was read. Does
 * not order writes of this thread. */
static __device__ __forceinline__ void barrier_arrive(uint32_t at, uint32_t block) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(at),
      "r"(block)
      : "memory");
}

static __device__ __forceinline__ void barrier_arrive_here(uint32_t at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

/* Stores a word to the shared memory of another block of the cluster, and arrives at the barrier
 * there; receive4 in that block returns the word. CUDA 12.0 does not have st.async. */
static __device__ __forceinline__ void send4(uint32_t to, uint32_t word, uint32_t barrier,
                                             uint32_t block) {
  asm volatile(
      "{\n"
      ".reg .b32 there, arrived;\n"
      "mapa.shared::cluster.u32 there, %0, %3;\n"
      "mapa.shared::cluster.u32 arrived, %2, %3;\n"
      "st.shared::cluster.u32 [there], %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [arrived];\n"
      "}\n" ::"r"(to),
      "r"(word), "r"(barrier), "r"(block)
      : "memory");
}

/* Waits for the barrier, as barrier_wait does, and returns the word that send4 of another block has
 * stored: acquires at cluster scope, not at block scope. */
static __device__ __forceinline__ uint32_t receive4(uint32_t at, uint32_t barrier,
                                                    uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
  return get4(at);
}

/* Makes initialized barriers visible to the cluster; call cluster_sync after it. */
static __device__ __forceinline__ void publish_barriers(void) {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Synchronizes all threads of the cluster. An aligned barrier must be executed by a converged
 * warp, hence __syncwarp. */
static __device__ __forceinline__ void cluster_sync(void) {
  __syncwarp();
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

static __device__ __forceinline__ uint32_t cluster_rank(void) {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/* ---- TMA ---- */

/* Starts a copy of the tile at (x, y) of a tensor map to shared memory of this block. */
static __device__ __forceinline__ void tile_load(uint32_t to, const CUtensorMap *map, int x,
                                                 int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

/* Starts a multicast copy to the same offset in all blocks of the bit mask `blocks`, each with
 * its own barrier. */
static __device__ __forceinline__ void tile_multicast(uint32_t to, const CUtensorMap *map,
                                                      int x, int y, uint32_t barrier,
                                                      uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(blocks)
      : "memory");
}

/* Starts a copy of `bytes` contiguous bytes, a multiple of 16, to shared memory of this
 * block. */
static __device__ __forceinline__ void bulk_load(uint32_t to, const void *from, uint32_t bytes,
                                                 uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
      : "memory");
}

/* ---- warp groups ---- */

/* Set the number of registers per thread, for a whole warp group. */
template <int N>
static __device__ __forceinline__ void decrease_registers(void) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
static __device__ __forceinline__ void increase_registers(void) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* Returns four bytes, each all ones or zeros: byte i repeats the highest bit of one of the
 * eight bytes of the two words (prmt with sign replication). Nibble i of `which` is 8 + the
 * number (0 to 7) of that byte. */
static __device__ __forceinline__ uint32_t replicate_signs(uint32_t first, uint32_t second,
                                                           uint32_t which) {
  uint32_t x;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(x) : "r"(first), "r"(second), "r"(which));
  return x;
}

/* Returns the wgmma descriptor of a matrix in shared memory that was loaded in boxes of 128
 * bytes width with 128-byte swizzling. If the rows run along the summed dimension, `lead` is
 * ignored; if they run across it, boxes of 64 columns are `lead` bytes apart. */
static __device__ __forceinline__ uint64_t make_descriptor(uint32_t at, uint32_t lead) {
  return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(lead >> 4) << 16 |
         (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

static __device__ __forceinline__ void wgmma_fence(void) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void wgmma_commit(void) {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most N of the committed wgmma groups are pending. */
template <int N>
static __device__ __forceinline__ void wgmma_wait(void) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define F4(i)  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define F16(i) F4(i), F4(i + 4), F4(i + 8), F4(i + 12)
#define F64(i) F16(i), F16(i + 16), F16(i + 32), F16(i + 48)
#define WGMMA(TYPE, TRANS)                                                                   \
  asm volatile(                                                                              \
      "{\n"                                                                                  \
      ".reg .pred more;\n"                                                                   \
      "setp.ne.b32 more, %130, 0;\n"                                                         \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE                           \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "             \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "     \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "     \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "     \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "     \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "     \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "     \
      "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, " \
      "%124, %125, %126, %127}, %128, %129, more, 1, 1, 0, " TRANS                           \
      ";\n"                                                                                  \
      "}\n"                                                                                  \
      : F64(0), F64(64)                                                                      \
      : "l"(a), "l"(b), "r"((int)add))

/* Starts c (64, 256) = a (64, 16) · b (16, 256), + c if `add`; a is stored along the summed
 * dimension, b along it (ALONG) or across it. Warp w holds rows 16 w …; a lane holds the
 * elements that `mma` of mma.cuh describes, c[4 i] … for columns 8 i …. The result is valid
 * after wgmma_commit and wgmma_wait. */
template <typename T, bool ALONG>
static __device__ __forceinline__ void wgmma(float (&c)[128], uint64_t a, uint64_t b, bool add);
template <>
__device__ __forceinline__ void wgmma<__nv_bfloat16, false>(float (&c)[128], uint64_t a,
                                                            uint64_t b, bool add) {
  WGMMA("bf16", "1");
}
template <>
__device__ __forceinline__ void wgmma<__nv_bfloat16, true>(float (&c)[128], uint64_t a,
                                                           uint64_t b, bool add) {
  WGMMA("bf16", "0");
}
template <>
__device__ __forceinline__ void wgmma<__half, false>(float (&c)[128], uint64_t a, uint64_t b,
                                                     bool add) {
  WGMMA("f16", "1");
}
template <>
__device__ __forceinline__ void wgmma<__half, true>(float (&c)[128], uint64_t a, uint64_t b,
                                                    bool add) {
  WGMMA("f16", "0");
}
#undef WGMMA
#undef F64
#undef F16
#undef F4

#endif
#endif
