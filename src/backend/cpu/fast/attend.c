/* Attention over packed sentences on the CPU. A thread computes one sentence and head at a time;
 * all its arrays fit into the caches. The backward recomputes the probabilities from lse.
 * Operands are copied to buffers whose leading dimensions are multiples of LANES, padded with
 * zeros, so that rows consist of whole vectors. Depends on fast.h, tile_neon.h. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/fast/fast.h"
#ifdef __aarch64__
#include "backend/cpu/fast/tile_neon.h"
#endif
#include "base/mem.h"
#include "base/parallel.h"

#define ROWS    4 /* rows of C computed together */
#define VECTORS 2 /* vectors of a row of C computed together; on ARM four if possible */

/* c (rows, vectors * LANES) = a · b over depth; rows and vectors are constants in each caller. */
static inline __attribute__((always_inline)) void multiply_block(const int rows,
                                                                 const int vectors, float *c,
                                                                 size_t ldc, const float *a,
                                                                 size_t lda, const float *b,
                                                                 size_t ldb, size_t depth) {
  Lanes sum[ROWS][VECTORS] = {{{0}}}, right[VECTORS];
  for (size_t p = 0; p < depth; p++) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) right[j] = lanes_at(b + p * ldb + (size_t)j * LANES);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
      Lanes left = lanes_of(a[(size_t)r * lda + p]);
#pragma GCC unroll 4
      for (int j = 0; j < vectors; j++) sum[r][j] = lanes_madd(right[j], left, sum[r][j]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++)
      lanes_put(c + (size_t)r * ldc + (size_t)j * LANES, sum[r][j]);
  }
}

/* c (m, n) = a (m, k) · b (k, n); n is a multiple of LANES. `lower`: a is lower triangular (row i
 * is 0 after column i), like the probabilities under a causal mask. */
static void multiply_small(float *c, size_t ldc, const float *a, size_t lda, const float *b,
                           size_t ldb, size_t m, size_t n, size_t k, bool lower) {
  for (size_t i = 0; i < m; i += ROWS) {
    size_t height = m - i < ROWS ? m - i : ROWS;
    size_t depth = lower && i + height < k ? i + height : k, j = 0;
    float *to = c + i * ldc;
    const float *left = a + i * lda;
    if (height == ROWS) {
#ifdef __aarch64__
      for (; j + 16 <= n; j += 16) neon_matmul_4x16(to + j, ldc, left, lda, b + j, ldb, depth);
#endif
      for (; j + VECTORS * LANES <= n; j += VECTORS * LANES)
        multiply_block(ROWS, VECTORS, to + j, ldc, left, lda, b + j, ldb, depth);
      for (; j < n; j += LANES)
        multiply_block(ROWS, 1, to + j, ldc, left, lda, b + j, ldb, depth);
      continue;
    }
    for (size_t r = 0; r < height; r++) {
      for (j = 0; j + VECTORS * LANES <= n; j += VECTORS * LANES)
        multiply_block(1, VECTORS, to + r * ldc + j, ldc, left + r * lda, lda, b + j, ldb,
                       depth);
      for (; j < n; j += LANES)
        multiply_block(1, 1, to + r * ldc + j, ldc, left + r * lda, lda, b + j, ldb, depth);
    }
  }
}

/* Copies (n, d), rows `ld` elements apart, to rows padded with zeros; multiplies by `scale`. */
static void gather_rows(float *to, size_t to_ld, const float *from, size_t ld, size_t n,
                        size_t d, float scale) {
  for (size_t i = 0; i < n; i++) {
    for (size_t c = 0; c < d; c++) to[i * to_ld + c] = from[i * ld + c] * scale;
    for (size_t c = d; c < to_ld; c++) to[i * to_ld + c] = 0;
  }
}

/* Copies (n, d), rows `ld` elements apart, transposed to (d, n) padded with zeros. */
static void gather_transposed(float *to, size_t to_ld, const float *from, size_t ld, size_t n,
                              size_t d) {
  transpose_array(to, to_ld, from, ld, n, d);
  for (size_t c = 0; c < d && n < to_ld; c++) {
    for (size_t i = n; i < to_ld; i++) to[c * to_ld + i] = 0;
  }
}

static void scatter_rows(float *to, size_t ld, const float *from, size_t from_ld, size_t n,
                         size_t d) {
  for (size_t i = 0; i < n; i++) memcpy(to + i * ld, from + i * from_ld, d * sizeof *to);
}

/* Working memory, allocated by reserve(); each thread has `each` floats of it. */
static struct {
  float *at;
  size_t each; /* floats of the working memory per thread */
  int threads;
} work;

static size_t pad_to_lanes(size_t n) {
  return (n + LANES - 1) / LANES * LANES;
}

/* Returns the floats that attend_head_backward needs for n queries and n keys; attend_head needs
 * fewer. */
static size_t work_floats(size_t n, size_t d) {
  size_t np = pad_to_lanes(n), dp = pad_to_lanes(d);
  return 5 * n * dp + 2 * d * np + 3 * n * np + 2 * np + 256;
}

static Err reserve(const Backend *b, size_t longest, size_t d) {
  size_t each = work_floats(longest, d);
  if (each <= work.each && b->threads <= work.threads) return ERR_OK;
  if (each < work.each) each = work.each;
  mem_free(work.at);
  work.each = 0;
  TRY(mem_alloc_aligned(&work.at, (size_t)b->threads * each * sizeof(float)));
  work.each = each;
  work.threads = b->threads;
  return ERR_OK;
}

/* Returns *at and advances it by n floats. */
static float *take_floats(float **at, size_t n) {
  float *here = *at;
  *at += n;
  return here;
}

float *FAST(fast_thread_work)(size_t floats) {
  assert(floats <= work.each && "bug: Backend.reserve was not called for sentences this long");
  (void)floats;
  return work.at + (size_t)omp_get_thread_num() * work.each;
}

/* The shape of the attention of one sentence. */
typedef struct {
  size_t nq, nk, d;  /* number of queries and of keys, elements of a head */
  size_t qp, kp, dp; /* nq, nk and d rounded up to a multiple of LANES */
  size_t q0, k0;     /* first query and key in the batch */
} Shape;

static Shape shape_of(const Attention *a, size_t s) {
  Shape h = {.d = a->d, .dp = pad_to_lanes(a->d)};
  h.q0 = (size_t)a->q_off[s];
  h.k0 = (size_t)a->k_off[s];
  h.nq = (size_t)a->q_off[s + 1] - h.q0;
  h.nk = a->k_len ? (size_t)a->k_len[s] : (size_t)a->k_off[s + 1] - h.k0;
  h.kp = pad_to_lanes(h.nk);
  h.qp = pad_to_lanes(h.nq);
  return h;
}

/* Returns the dropout element of a query's first probability: its index in (query tokens, heads,
 * 4096 keys), as in reference.c. */
static uint64_t first_probability(const Attention *a, size_t query_row, size_t head) {
  return ((uint64_t)query_row * a->heads + head) * 4096;
}

/* Computes the softmax over the first `seen` scores of a row; the others become 0. */
static void softmax_row(float *p, size_t seen, size_t padded, float *lse) {
  float most = find_max(p, seen);
  /* Keys that are not seen: exp(-1e30) is 0, so their probability is 0. */
  for (size_t j = seen; j < padded; j++) p[j] = -1e30f;
  float total = replace_by_exp(p, most, padded);
  scale_array(p, 1 / total, padded);
  *lse = most + logf(total);
}

/* Computes the attention of sentence s and head h. */
static void attend_head(const Attention *a, float *o, float *lse, const float *q,
                        const float *k, const float *v, size_t s, size_t h) {
  Shape z = shape_of(a, s);
  if (z.nk == 0) {
    for (size_t r = z.q0; r < z.q0 + z.nq; r++) {
      memset(o + r * a->o_ld + h * z.d, 0, z.d * sizeof *o);
      lse[r * a->heads + h] = -INFINITY;
    }
    return;
  }
  float *at = FAST(fast_thread_work)(z.nq * z.dp + z.d * z.kp + z.nk * z.dp + z.nq * z.kp +
                                     z.nq * z.dp + z.kp + 16);
  float *qs = take_floats(&at, z.nq * z.dp), *kt = take_floats(&at, z.d * z.kp),
        *vs = take_floats(&at, z.nk * z.dp), *p = take_floats(&at, z.nq * z.kp),
        *os = take_floats(&at, z.nq * z.dp), *factor = at;
  gather_rows(qs, z.dp, q + z.q0 * a->q_ld + h * z.d, a->q_ld, z.nq, z.d,
              1 / sqrtf((float)z.d));
  gather_transposed(kt, z.kp, k + z.k0 * a->kv_ld + h * z.d, a->kv_ld, z.nk, z.d);
  gather_rows(vs, z.dp, v + z.k0 * a->kv_ld + h * z.d, a->kv_ld, z.nk, z.d, 1);
  /* p = softmax(q kᵀ / √d), with dropout. */
  multiply_small(p, z.kp, qs, z.dp, kt, z.kp, z.nq, z.kp, z.d, /*lower=*/false);
  for (size_t i = 0; i < z.nq; i++) {
    size_t seen = a->causal && i + 1 < z.nk ? i + 1 : z.nk;
    softmax_row(p + i * z.kp, seen, z.kp, &lse[(z.q0 + i) * a->heads + h]);
    if (a->drop.rate == 0) continue;
    FAST(fast_drop)(factor, a->drop, first_probability(a, z.q0 + i, h), seen);
    for (size_t j = 0; j < seen; j++) p[i * z.kp + j] *= factor[j];
  }
  multiply_small(os, z.dp, p, z.kp, vs, z.dp, z.nq, z.dp, z.nk, /*lower=*/a->causal);
  scatter_rows(o + z.q0 * a->o_ld + h * z.d, a->o_ld, os, z.dp, z.nq, z.d);
}

/* Backward of sentence s and head h. With P the probabilities, M the dropout factors and D[i] =
 * do[i] · o[i]:  dv = (P ∘ M)ᵀ do,  dS = P ∘ (M ∘ (do vᵀ) − D),  dq = dS k / √d, dk = dSᵀ q / √d.
 * Arrays: qs, gs, ks: q / √d, do, k / √d; kt, vt: kᵀ, vᵀ; p and ds: P ∘ M and dS; turned: the
 * transpose of p or ds; out: dk, then dv. */
static void attend_head_backward(const Attention *a, float *dq, float *dk, float *dv,
                                 const float *do_, const float *o, const float *lse,
                                 const float *q, const float *k, const float *v, size_t s,
                                 size_t h) {
  Shape z = shape_of(a, s);
  float root = 1 / sqrtf((float)z.d);
  float *at = FAST(fast_thread_work)(3 * z.nq * z.dp + 2 * z.d * z.kp + 2 * z.nk * z.dp +
                                     2 * z.nq * z.kp + z.nk * z.qp + 2 * z.kp + 64);
  float *qs = take_floats(&at, z.nq * z.dp), *gs = take_floats(&at, z.nq * z.dp),
        *dqs = take_floats(&at, z.nq * z.dp);
  float *kt = take_floats(&at, z.d * z.kp), *vt = take_floats(&at, z.d * z.kp);
  float *ks = take_floats(&at, z.nk * z.dp), *out = take_floats(&at, z.nk * z.dp);
  float *p = take_floats(&at, z.nq * z.kp), *ds = take_floats(&at, z.nq * z.kp),
        *turned = take_floats(&at, z.nk * z.qp), *factor = at;
  gather_rows(qs, z.dp, q + z.q0 * a->q_ld + h * z.d, a->q_ld, z.nq, z.d, root);
  gather_rows(gs, z.dp, do_ + z.q0 * a->o_ld + h * z.d, a->o_ld, z.nq, z.d, 1);
  gather_rows(ks, z.dp, k + z.k0 * a->kv_ld + h * z.d, a->kv_ld, z.nk, z.d, root);
  gather_transposed(kt, z.kp, k + z.k0 * a->kv_ld + h * z.d, a->kv_ld, z.nk, z.d);
  gather_transposed(vt, z.kp, v + z.k0 * a->kv_ld + h * z.d, a->kv_ld, z.nk, z.d);
  /* Computes the scores in p and do vᵀ in ds, then replaces them row by row by P ∘ M and dS. */
  multiply_small(p, z.kp, qs, z.dp, kt, z.kp, z.nq, z.kp, z.d, /*lower=*/false);
  multiply_small(ds, z.kp, gs, z.dp, vt, z.kp, z.nq, z.kp, z.d, /*lower=*/false);
  for (size_t i = 0; i < z.nq; i++) {
    size_t seen = a->causal && i + 1 < z.nk ? i + 1 : z.nk;
    float *pi = p + i * z.kp, *di = ds + i * z.kp, shift = lse[(z.q0 + i) * a->heads + h];
    float delta = dot_product(gs + i * z.dp, o + (z.q0 + i) * a->o_ld + h * z.d, z.d);
    FAST(fast_drop)(factor, a->drop, first_probability(a, z.q0 + i, h), seen);
    size_t j = 0;
    for (; j + LANES <= seen; j += LANES) {
      Lanes prob = lanes_exp(lanes_at(pi + j) - shift), kept = lanes_at(factor + j);
      lanes_put(di + j, prob * (lanes_at(di + j) * kept - delta));
      lanes_put(pi + j, prob * kept);
    }
    for (; j < seen; j++) {
      float prob = fast_exp(pi[j] - shift);
      di[j] = prob * (di[j] * factor[j] - delta);
      pi[j] = prob * factor[j];
    }
    for (; j < z.kp; j++) pi[j] = di[j] = 0;
  }
  /* Computes dq, dk and dv. */
  multiply_small(dqs, z.dp, ds, z.kp, ks, z.dp, z.nq, z.dp, z.nk, /*lower=*/a->causal);
  scatter_rows(dq + z.q0 * a->q_ld + h * z.d, a->q_ld, dqs, z.dp, z.nq, z.d);
  gather_transposed(turned, z.qp, ds, z.kp, z.nq, z.nk);
  multiply_small(out, z.dp, turned, z.qp, qs, z.dp, z.nk, z.dp, z.nq, /*lower=*/false);
  scatter_rows(dk + z.k0 * a->kv_ld + h * z.d, a->kv_ld, out, z.dp, z.nk, z.d);
  gather_transposed(turned, z.qp, p, z.kp, z.nq, z.nk);
  multiply_small(out, z.dp, turned, z.qp, gs, z.dp, z.nk, z.dp, z.nq, /*lower=*/false);
  scatter_rows(dv + z.k0 * a->kv_ld + h * z.d, a->kv_ld, out, z.dp, z.nk, z.d);
}

static void attend(const Backend *b, void *o, float *lse, const void *q, const void *k,
                   const void *v, const Attention *a) {
#pragma omp parallel for num_threads(b->threads) schedule(dynamic, 4)
  for (size_t i = 0; i < a->sentences * a->heads; i++)
    attend_head(a, o, lse, q, k, v, i / a->heads, i % a->heads);
}

static void attend_backward(const Backend *b, void *dq, void *dk, void *dv, const void *do_,
                            const void *o, const float *lse, const void *q, const void *k,
                            const void *v, const Attention *a) {
#pragma omp parallel for num_threads(b->threads) schedule(dynamic, 4)
  for (size_t i = 0; i < a->sentences * a->heads; i++) {
    attend_head_backward(a, dq, dk, dv, do_, o, lse, q, k, v, i / a->heads, i % a->heads);
  }
}

void FAST(fast_attend)(Backend *b) {
  b->reserve = reserve;
  b->attend = attend;
  b->attend_backward = attend_backward;
}
