/* Declarations shared by the implementations of attention:
 *   attend_group*.cu  tensor cores, heads of 64, several heads per block
 *   attend_fast.cu    tensor cores, heads of 32, 64 and 128
 *   attend_plain.cu   all other shapes, types and GPUs
 * Depends on device.cuh. */
#ifndef BACKEND_CUDA_ATTEND_CUH
#define BACKEND_CUDA_ATTEND_CUH

#include <math.h>

#include "backend/cuda/device.cuh"

/* Number of keys per query in the dropout element (query, head, key): the maximum length of a
 * sentence. */
#define MOST_KEYS 4096

/* The struct Attention in the form that kernels use. */
struct Attend {
  const int32_t *q_off, *k_off, *k_len;
  size_t q_ld, kv_ld, o_ld;
  int heads, d;
  bool causal;
  float scale; /* scale of the scores, 1 / sqrt(d) */
  Drop drop;
};

static inline Attend attend_of(const Attention *a) {
  Attend at = {};
  at.q_off = a->q_off;
  at.k_off = a->k_off;
  at.k_len = a->k_len;
  at.q_ld = a->q_ld;
  at.kv_ld = a->kv_ld;
  at.o_ld = a->o_ld;
  at.heads = (int)a->heads;
  at.d = (int)a->d;
  at.causal = a->causal;
  at.scale = (float)(1 / sqrt((double)a->d));
  at.drop = drop_of(a->drop);
  return at;
}

struct Sentence {
  size_t q0, k0;  /* first query and key of the sentence in the batch */
  int rows, keys; /* number of queries and keys of the sentence */
};

static __device__ __forceinline__ Sentence sentence_of(const Attend &a, unsigned s) {
  Sentence is;
  is.q0 = (size_t)a.q_off[s];
  is.k0 = (size_t)a.k_off[s];
  is.rows = a.q_off[s + 1] - a.q_off[s];
  is.keys = a.k_len ? a.k_len[s] : a.k_off[s + 1] - a.k_off[s];
  return is;
}

/* Returns the bytes of shared memory of an SM of this GPU, 0 if that is not known. */
static inline size_t sm_bytes(void) {
  int device = 0, bytes = 0;
  if (cudaGetDevice(&device) ||
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device)) {
    (void)cudaGetLastError();
    return 0;
  }
  return (size_t)bytes;
}

/* Returns true if an SM of this GPU has no room for three blocks of attend_group*.cu with 48 KB
 * of shared memory. */
static inline bool has_small_sm(void) {
  size_t bytes = sm_bytes();
  return bytes && bytes < 3 * (48 << 10);
}

#define HINDERED_BYTES (100 << 10) /* shared memory of an SM of most GPUs with small SMs */

struct GroupChoice {
  bool is_tight; /* uses the kernels for GPUs with little shared memory; they run on any GPU */
  /* for benchmarks: as few blocks per SM as with HINDERED_BYTES, on a GPU that has more */
  bool is_hindered;
};

/* Launch the kernels of attend_group*.cu: bf16 and fp16, all arrays 16-byte aligned. Return
 * false if the shape or the device is not supported. */
bool attend_by_group(Type, void *o, float *lse, const void *q, const void *k, const void *v,
                     const Attention *, GroupChoice, cudaStream_t);
bool attend_backward_by_group(Type, void *dq, void *dk, void *dv, const void *do_,
                              const void *o, const float *lse, const void *q, const void *k,
                              const void *v, const Attention *, GroupChoice, cudaStream_t);

/* Allows a kernel of attend_group*.cu its shared memory. Returns the bytes to launch it with,
 * or 0 if that is not possible. */
template <typename K>
static size_t allow_group(K kernel, size_t bytes, GroupChoice choice) {
  if (choice.is_hindered) bytes = bytes * sm_bytes() / HINDERED_BYTES;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) ==
          cudaSuccess &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                           cudaSharedmemCarveoutMaxShared) == cudaSuccess)
    return bytes;
  (void)cudaGetLastError();
  return 0;
}

/* Launch attention on tensor cores; *done is false if the shape, type or device is not
 * supported. */
cudaError_t attend_fast(Type, void *o, float *lse, const void *q, const void *k, const void *v,
                        const Attention *, cudaStream_t, bool *done);
cudaError_t attend_backward_fast(Type, void *dq, void *dk, void *dv, const void *do_,
                                 const void *o, const float *lse, const void *q, const void *k,
                                 const void *v, const Attention *, float *delta, cudaStream_t,
                                 bool *done);

#endif
