/* Decoding operations on the CPU: attention of one query per row over a key/value cache, and
 * top-k of a row of logits. The threads divide the rows. Depends on fast.h. */
#include <math.h>
#include <string.h>

#include "backend/cpu/fast/fast.h"

/* Maximum number of scores on the stack; as many heads are processed at a time as fit. Threads
 * may have small stacks (ulimit -s, OMP_STACKSIZE), so a head with more keys uses the thread's
 * working memory. */
#define STACK_SCORES ((size_t)1 << 13)

/* o += share * value. */
static inline void add_scaled(float *o, float share, const float *value, size_t n) {
  size_t c = 0;
  for (; c + LANES <= n; c += LANES) *(Lanes *)(o + c) += *(const Lanes *)(value + c) * share;
  for (; c < n; c++) o[c] += value[c] * share;
}

/* Prefetches n floats. Cache rows are far apart in memory, so the row after the next is
 * prefetched. */
static inline void prefetch_row(const float *x, size_t n) {
  for (size_t c = 0; c < n; c += 16) __builtin_prefetch(x + c);
}

static void softmax(float *p, size_t n) {
  float total = replace_by_exp(p, find_max(p, n), n);
  scale_array(p, 1 / total, n);
}

/* Attention of row r for the heads h to end - 1. The heads of a key are adjacent in memory, so
 * each cache row is read once for all of them. */
static void attend_row(const CachedAttention *a, float *o, const float *q, const float *k,
                       const float *v, size_t r, size_t h, size_t end) {
  float stack[STACK_SCORES], scale = 1 / sqrtf((float)a->d);
  size_t n = (size_t)a->len[r], d = a->d, heads = end - h, ld = a->kv_ld;
  float *p = n <= STACK_SCORES ? stack : FAST(fast_thread_work)(n);
  const int32_t *at = a->at ? a->at + (size_t)a->list[r] * a->at_ld : NULL;
  size_t first = at ? 0 : (size_t)a->first[r];
  q += r * a->q_ld + h * d;
  o += r * a->o_ld + h * d;
  k += h * d;
  v += h * d;
  /* Computes the scores p (heads, n), their softmax, then the weighted sum of the values. ROW(j)
   * is the offset of key j in the cache. */
#define ROW(j) ((at ? (size_t)at[j] : first + (j)) * ld)
  for (size_t j = 0; j < n; j++) {
    const float *key = k + ROW(j), *next = k + ROW(j + 2 < n ? j + 2 : n - 1);
    for (size_t i = 0; i < heads; i++) {
      prefetch_row(next + i * d, d);
      p[i * n + j] = dot_product(q + i * d, key + i * d, d) * scale;
    }
  }
  for (size_t i = 0; i < heads && n; i++) softmax(p + i * n, n);
  for (size_t c = 0; c < heads * d; c++) o[c] = 0;
  for (size_t j = 0; j < n; j++) {
    const float *value = v + ROW(j), *next = v + ROW(j + 2 < n ? j + 2 : n - 1);
    for (size_t i = 0; i < heads; i++) {
      prefetch_row(next + i * d, d);
      add_scaled(o + i * d, p[i * n + j], value + i * d, d);
    }
  }
#undef ROW
}

/* Stores the own key and value of row r in the cache. */
static void append_key(const CachedAttention *a, const float *q, float *k, float *v, size_t r) {
  size_t width = a->heads * a->d, n = (size_t)a->len[r];
  if (!a->appends || n == 0) return;
  size_t to = (size_t)a->at[(size_t)a->list[r] * a->at_ld + n - 1] * a->kv_ld;
  memcpy(k + to, q + r * a->q_ld + width, width * sizeof *k);
  memcpy(v + to, q + r * a->q_ld + 2 * width, width * sizeof *v);
}

static void attend_cached(const Backend *b, void *o_, const void *q_, void *k_, void *v_,
                          const CachedAttention *a) {
  float *o = o_, *k = k_, *v = v_;
  const float *q = q_;
#pragma omp parallel for num_threads(b->threads) schedule(dynamic, 4)
  for (size_t r = 0; r < a->rows; r++) {
    size_t n = a->len[r] ? (size_t)a->len[r] : 1;
    size_t together = n <= STACK_SCORES ? STACK_SCORES / n : 1;
    append_key(a, q, k, v, r);
    for (size_t h = 0; h < a->heads; h += together)
      attend_row(a, o, q, k, v, r, h, h + together < a->heads ? h + together : a->heads);
  }
}

/* Inserts x into the sorted list of the `room` largest values; n: its current length. Returns the
 * new length. Call it in ascending order of the ids: of equal values the one inserted first
 * remains first. */
static inline size_t insert_sorted(float *value, int32_t *id, size_t n, size_t room, float x,
                                   int32_t which) {
  if (n == room && !(x > value[n - 1])) return n;
  size_t i = n < room ? n++ : n - 1;
  for (; i > 0 && x > value[i - 1]; i--) {
    value[i] = value[i - 1];
    id[i] = id[i - 1];
  }
  value[i] = x;
  id[i] = which;
  return n;
}

#define MAX_PARTS 4096 /* maximum number of parts into which a row of logits is divided */

/* Computes top-k and log-sum-exp of a row. One pass over the parts of the row finds the maximum
 * of each part and the sum of exponentials, rescaled whenever the maximum rises. The k largest
 * values can only be in the k parts with the largest maxima, so only these are searched. */
static void find_top_k(float *value, int32_t *id, float *lse, const float *row, size_t vocab,
                       size_t k) {
  size_t part = 256;
  while (part * MAX_PARTS < vocab) part *= 2;
  size_t parts = (vocab + part - 1) / part, chosen = 0;
  float largest[MAX_PARTS], peak = -INFINITY, share[MAX_PARTS];
  int32_t which[MAX_PARTS];
  double total = 0;
  for (size_t i = 0; i < parts; i++) {
    const float *x = row + i * part;
    size_t n = vocab - i * part < part ? vocab - i * part : part;
    float most = find_max(x, n);
    largest[i] = most;
    if (most > peak) {
      total *= exp((double)peak - (double)most);
      peak = most;
    }
    total += (double)sum_exp(x, peak, n);
  }
  *lse = peak + (float)log(total);
  size_t room = k < parts ? k : parts;
  for (size_t i = 0; i < parts; i++)
    chosen = insert_sorted(share, which, chosen, room, largest[i], (int32_t)i);
  /* The parts are searched in ascending order of the ids, as insert_sorted requires. */
  float least = share[room - 1];
  int32_t last = which[room - 1];
  size_t n = 0;
  for (size_t i = 0; i < parts; i++) {
    if (largest[i] < least || (largest[i] == least && (int32_t)i > last)) continue;
    size_t end = (i + 1) * part < vocab ? (i + 1) * part : vocab;
    for (size_t c = i * part; c < end; c++) {
      float x = row[c] > -INFINITY ? row[c] : -INFINITY; /* NaN is sorted last, like -inf. */
      n = insert_sorted(value, id, n, k, x, (int32_t)c);
    }
  }
  for (; n < k; n++) {
    value[n] = -INFINITY;
    id[n] = 0;
  }
}

static void top_k(const Backend *b, float *value, int32_t *id, float *lse, const void *logits_,
                  size_t rows, size_t vocab, size_t k) {
  const float *logits = logits_;
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t r = 0; r < rows; r++)
    find_top_k(value + r * k, id + r * k, lse + r, logits + r * vocab, vocab, k);
}

void FAST(fast_step)(Backend *b) {
  b->attend_cached = attend_cached;
  b->top_k = top_k;
}
