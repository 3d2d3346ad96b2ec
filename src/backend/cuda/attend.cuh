/* What the ways of attention share: the tensor cores' (attend_fast.cu, attend_group.cu,
 * attend_group_backward.cu) and the plain one (attend_plain.cu). Depends on device.cuh. */
#ifndef BACKEND_CUDA_ATTEND_CUH
#define BACKEND_CUDA_ATTEND_CUH

#include <math.h>

#include "backend/cuda/device.cuh"

/* The dropout's count has room for this many keys of a query. */
#define MOST_KEYS 4096

struct Attend {
  const int32_t *q_off, *k_off, *k_len;
  size_t q_ld, kv_ld, o_ld;
  int heads, d;
  bool causal;
  float scale; /* 1 / sqrt(d) */
  Drop drop;
};

static inline Attend attend_of(const Attention *a) {
  Attend at = {};
  at.q_off = a->q_off, at.k_off = a->k_off, at.k_len = a->k_len;
  at.q_ld = a->q_ld, at.kv_ld = a->kv_ld, at.o_ld = a->o_ld;
  at.heads = (int)a->heads, at.d = (int)a->d;
  at.causal = a->causal;
  at.scale = (float)(1 / sqrt((double)a->d));
  at.drop = drop_of(a->drop);
  return at;
}

struct Sentence {
  size_t q0, k0; /* first rows */
  int rows, keys;
};

static __device__ __forceinline__ Sentence sentence_of(const Attend &a, unsigned s) {
  Sentence is;
  is.q0 = (size_t)a.q_off[s], is.k0 = (size_t)a.k_off[s];
  is.rows = a.q_off[s + 1] - a.q_off[s];
  is.keys = a.k_len ? a.k_len[s] : a.k_off[s + 1] - a.k_off[s];
  return is;
}

/* Several heads of a sentence in a block, through shared memory (attend_group.cu,
 * attend_group_backward.cu): heads of 64, bf16 and fp16, everything aligned to 16 bytes. False:
 * not with this shape, not on this device. */
bool attend_by_group(Type, void *o, float *lse, const void *q, const void *k, const void *v,
                     const Attention *, cudaStream_t);
bool attend_backward_by_group(Type, void *dq, void *dk, void *dv, const void *do_,
                              const void *o, const float *lse, const void *q, const void *k,
                              const void *v, const Attention *, cudaStream_t);

/* The tensor cores' way, where it can be had; else *done is false. */
cudaError_t attend_fast(Type, void *o, float *lse, const void *q, const void *k, const void *v,
                        const Attention *, cudaStream_t, bool *done);
cudaError_t attend_back_fast(Type, void *dq, void *dk, void *dv, const void *do_, const void *o,
                             const float *lse, const void *q, const void *k, const void *v,
                             const Attention *, float *delta, cudaStream_t, bool *done);

#endif
