/* Reference implementation of the decoding operations (attention over a key/value cache, top-k)
 * in plain C; tests compare the other backends with it. Depends on backend.h. */
#include <math.h>
#include <string.h>

#include "backend/backend.h"

void reference_step(Backend *b);

/* Returns the cache row of key j of row r. */
static size_t key_row(const CachedAttention *a, size_t r, size_t j) {
  return a->at ? (size_t)a->at[(size_t)a->list[r] * a->at_ld + j] : (size_t)a->first[r] + j;
}

/* Returns q · k / sqrt(d) of key j. Computed again at each call to keep this file simple. */
static double compute_score(const CachedAttention *a, const float *q, const float *k, size_t r,
                            size_t h, size_t j) {
  const float *x = q + r * a->q_ld + h * a->d, *y = k + key_row(a, r, j) * a->kv_ld + h * a->d;
  double sum = 0;
  for (size_t c = 0; c < a->d; c++) sum += (double)x[c] * y[c];
  return sum / sqrt((double)a->d);
}

/* Stores the row's own key and value in the cache. */
static void append_key(const CachedAttention *a, const float *q, float *k, float *v, size_t r) {
  size_t width = a->heads * a->d, n = (size_t)a->len[r];
  if (!a->appends || n == 0) return;
  size_t to = key_row(a, r, n - 1) * a->kv_ld;
  memcpy(k + to, q + r * a->q_ld + width, width * sizeof *k);
  memcpy(v + to, q + r * a->q_ld + 2 * width, width * sizeof *v);
}

static void attend_cached(const Backend *b, void *o_, const void *q_, void *k_, void *v_,
                          const CachedAttention *a) {
  float *o = o_, *k = k_, *v = v_;
  const float *q = q_;
  (void)b;
  for (size_t r = 0; r < a->rows; r++) append_key(a, q, k, v, r);
  for (size_t r = 0; r < a->rows; r++) {
    for (size_t h = 0; h < a->heads; h++) {
      size_t n = (size_t)a->len[r];
      double most = -INFINITY, total = 0;
      for (size_t j = 0; j < n; j++) most = fmax(most, compute_score(a, q, k, r, h, j));
      for (size_t j = 0; j < n; j++) total += exp(compute_score(a, q, k, r, h, j) - most);
      for (size_t c = 0; c < a->d; c++) {
        double sum = 0;
        for (size_t j = 0; j < n; j++)
          sum += exp(compute_score(a, q, k, r, h, j) - most) / total *
                 (double)v[key_row(a, r, j) * a->kv_ld + h * a->d + c];
        o[r * a->o_ld + h * a->d + c] = (float)sum;
      }
    }
  }
}

static void top_k(const Backend *b, float *value, int32_t *id, float *lse, const void *logits_,
                  size_t rows, size_t vocab, size_t k) {
  const float *logits = logits_;
  (void)b;
  for (size_t r = 0; r < rows; r++, logits += vocab, value += k, id += k) {
    double most = -INFINITY, total = 0;
    /* fmax is not used, because gcc 12 cannot vectorize it on ARM. */
    for (size_t i = 0; i < vocab; i++) {
      if ((double)logits[i] > most) most = (double)logits[i];
    }
    for (size_t i = 0; i < vocab; i++) total += exp((double)logits[i] - most);
    lse[r] = (float)(most + log(total));
    /* Finds the largest logit that is not selected yet; among equal ones the smaller id. */
    for (size_t n = 0; n < k; n++) {
      id[n] = -1;
      for (size_t i = 0; i < vocab; i++) {
        float x = logits[i];
        bool left = n == 0 || x < value[n - 1] || (x == value[n - 1] && (int)i > id[n - 1]);
        if (left && (id[n] < 0 || x > value[n])) {
          value[n] = x;
          id[n] = (int32_t)i;
        }
      }
    }
  }
}

void reference_step(Backend *b) {
  b->attend_cached = attend_cached;
  b->top_k = top_k;
}
