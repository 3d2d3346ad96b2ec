/* Operations of decoding, one position at a time: attention over cached keys, and
 * the best words of a row of logits. A row is one thread's. Relies on fast.h. */
#include <math.h>

#include "backend/cpu/fast/fast.h"

#define SCORES ((size_t)1 << 16) /* of as many heads as fit are kept at once */

/* Adds share * value to o. */
static inline void mix(float *o, float share, const float *value, size_t n) {
  size_t c = 0;
  for (; c + LANES <= n; c += LANES) *(Lanes *)(o + c) += *(const Lanes *)(value + c) * share;
  for (; c < n; c++) o[c] += value[c] * share;
}

/* Keys lie far apart; the next but one is asked for while this one is read. */
static inline void ask(const float *x, size_t n) {
  for (size_t c = 0; c < n; c += 16) __builtin_prefetch(x + c);
}

static void softmax(float *p, size_t n) {
  float total = exp_and_sum(p, largest_of(p, n), n);
  scale_all(p, 1 / total, n);
}

/* Heads `h` to `end` of row r: a key's heads lie side by side, so keys are read in
 * one go. */
static void attend_row(const CachedAttention *a, float *o, const float *q, const float *k,
                       const float *v, size_t r, size_t h, size_t end) {
  float p[SCORES], scale = 1 / sqrtf((float)a->d);
  size_t n = (size_t)a->len[r], d = a->d, heads = end - h, ld = a->kv_ld;
  const int32_t *at = a->at ? a->at + r * a->at_ld : NULL;
  size_t first = at ? 0 : (size_t)a->first[r];
  q += r * a->q_ld + h * d, o += r * a->o_ld + h * d, k += h * d, v += h * d;
#define ROW(j) ((at ? (size_t)at[j] : first + (j)) * ld)
  for (size_t j = 0; j < n; j++) {
    const float *key = k + ROW(j), *next = k + ROW(j + 2 < n ? j + 2 : n - 1);
    for (size_t i = 0; i < heads; i++) {
      ask(next + i * d, d);
      p[i * n + j] = dot(q + i * d, key + i * d, d) * scale;
    }
  }
  for (size_t i = 0; i < heads; i++) softmax(p + i * n, n);
  for (size_t c = 0; c < heads * d; c++) o[c] = 0;
  for (size_t j = 0; j < n; j++) {
    const float *value = v + ROW(j), *next = v + ROW(j + 2 < n ? j + 2 : n - 1);
    for (size_t i = 0; i < heads; i++) {
      ask(next + i * d, d);
      mix(o + i * d, p[i * n + j], value + i * d, d);
    }
  }
#undef ROW
}

static void attend_cached(const Backend *b, void *o_, const void *q_, const void *k_,
                          const void *v_, const CachedAttention *a) {
  float *o = o_;
  const float *q = q_, *k = k_, *v = v_;
#pragma omp parallel for num_threads(b->threads) schedule(dynamic, 4)
  for (size_t r = 0; r < a->rows; r++) {
    size_t together = SCORES / (size_t)a->len[r];
    for (size_t h = 0; h < a->heads; h += together)
      attend_row(a, o, q, k, v, r, h, h + together < a->heads ? h + together : a->heads);
  }
}

/* Keeps the largest `room` of what is offered in the order of the ids, sorted. */
static inline size_t offer(float *value, int32_t *id, size_t n, size_t room, float x,
                           int32_t which) {
  if (n == room && !(x > value[n - 1])) return n;
  size_t i = n < room ? n++ : n - 1;
  for (; i > 0 && x > value[i - 1]; i--) value[i] = value[i - 1], id[i] = id[i - 1];
  value[i] = x, id[i] = which;
  return n;
}

#define PARTS 4096 /* of a row, at most */

/* Once over the row in parts: the largest of each part, and the sum of exps under a
 * largest that may rise on the way. The best words lie in the parts whose largest
 * are the best. */
static void top_row(float *value, int32_t *id, float *lse, const float *row, size_t vocab,
                    size_t best) {
  size_t part = 256;
  while (part * PARTS < vocab) part *= 2;
  size_t parts = (vocab + part - 1) / part, chosen = 0;
  float largest[PARTS], peak = -INFINITY, share[PARTS];
  int32_t which[PARTS];
  double total = 0;
  for (size_t i = 0; i < parts; i++) {
    const float *x = row + i * part;
    size_t n = vocab - i * part < part ? vocab - i * part : part;
    float most = largest_of(x, n);
    largest[i] = most;
    if (most > peak) {
      total *= exp((double)peak - (double)most);
      peak = most;
    }
    total += (double)exp_sum(x, peak, n);
  }
  *lse = peak + (float)log(total);
  size_t room = best < parts ? best : parts;
  for (size_t i = 0; i < parts; i++)
    chosen = offer(share, which, chosen, room, largest[i], (int32_t)i);
  /* In the order of the ids, so that the smaller of equals is met first. */
  float least = share[room - 1];
  int32_t last = which[room - 1];
  size_t n = 0;
  for (size_t i = 0; i < parts; i++) {
    if (largest[i] < least || (largest[i] == least && (int32_t)i > last)) continue;
    size_t end = (i + 1) * part < vocab ? (i + 1) * part : vocab;
    for (size_t c = i * part; c < end; c++) {
      float x = row[c] > -INFINITY ? row[c] : -INFINITY; /* what is no number comes last */
      n = offer(value, id, n, best, x, (int32_t)c);
    }
  }
  for (; n < best; n++) value[n] = -INFINITY, id[n] = 0;
}

static void top(const Backend *b, float *value, int32_t *id, float *lse, const void *logits_,
                size_t rows, size_t vocab, size_t best) {
  const float *logits = logits_;
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t r = 0; r < rows; r++)
    top_row(value + r * best, id + r * best, lse + r, logits + r * vocab, vocab, best);
}

void FAST(fast_step)(Backend *b) {
  b->attend_cached = attend_cached;
  b->top_k = top;
}
