/* The reference backend: every operation in plain C, with sums in double precision. Slow and
 * simple; tests compare the other backends with it. Depends on backend.h, dropout.h, host.h. */
#include <math.h>
#include <string.h>

#include "backend/adam.h"
#include "backend/backend.h"
#include "backend/dropout.h"
#include "backend/host.h"

static Err reserve(const Backend *b, size_t longest, size_t d) {
  (void)b;
  (void)longest;
  (void)d;
  return ERR_OK;
}

static void linear(const Backend *b, void *y_, const void *x_, const void *w_,
                   const void *bias_, size_t rows, size_t in, size_t out) {
  (void)b;
  float *y = y_;
  const float *x = x_, *w = w_, *bias = bias_;
  for (size_t r = 0; r < rows; r++) {
    for (size_t o = 0; o < out; o++) {
      double sum = bias ? bias[o] : 0;
      for (size_t i = 0; i < in; i++) sum += (double)x[r * in + i] * w[o * in + i];
      y[r * out + o] = (float)sum;
    }
  }
}

static void linear_dx(const Backend *b, void *dx_, const void *dy_, const void *w_, size_t rows,
                      size_t in, size_t out, bool accumulate) {
  (void)b;
  float *dx = dx_;
  const float *dy = dy_, *w = w_;
  for (size_t r = 0; r < rows; r++) {
    for (size_t i = 0; i < in; i++) {
      double sum = accumulate ? dx[r * in + i] : 0;
      for (size_t o = 0; o < out; o++) sum += (double)dy[r * out + o] * w[o * in + i];
      dx[r * in + i] = (float)sum;
    }
  }
}

static void linear_dw(const Backend *b, float *dw, float *dbias, const void *dy_,
                      const void *x_, size_t rows, size_t in, size_t out, bool accumulate) {
  (void)b;
  const float *dy = dy_, *x = x_;
  for (size_t o = 0; o < out; o++) {
    for (size_t i = 0; i < in; i++) {
      double sum = accumulate ? dw[o * in + i] : 0;
      for (size_t r = 0; r < rows; r++) sum += (double)dy[r * out + o] * x[r * in + i];
      dw[o * in + i] = (float)sum;
    }
    double sum = 0;
    for (size_t r = 0; r < rows; r++) sum += dy[r * out + o];
    if (dbias) dbias[o] = (accumulate ? dbias[o] : 0) + (float)sum;
  }
}

static void embed(const Backend *b, void *x_, const void *table_, const float *place,
                  const int32_t *id, const int32_t *position, size_t rows, size_t d,
                  float scale, Dropout drop) {
  (void)b;
  float *x = x_;
  const float *table = table_;
  for (size_t r = 0; r < rows; r++) {
    for (size_t c = 0; c < d; c++) {
      float value = table[(size_t)id[r] * d + c] * scale + place[(size_t)position[r] * d + c];
      x[r * d + c] = value * dropout_factor(drop, r * d + c);
    }
  }
}

static void embed_backward(const Backend *b, float *dtable, float *dplace, const void *dx_,
                           const int32_t *id, const int32_t *position, size_t rows, size_t d,
                           size_t words, size_t places, float scale, Dropout drop) {
  (void)b;
  (void)words;
  (void)places;
  const float *dx = dx_;
  for (size_t r = 0; r < rows; r++) {
    for (size_t c = 0; c < d; c++) {
      float grad = dx[r * d + c] * dropout_factor(drop, r * d + c);
      dtable[(size_t)id[r] * d + c] += grad * scale;
      if (dplace) dplace[(size_t)position[r] * d + c] += grad;
    }
  }
}

static void add_norm(const Backend *b, void *sum_, void *y_, float *stat, const void *x_,
                     const void *branch_, const float *gain, const float *bias,
                     const AddNorm *n) {
  (void)b;
  float *sum = sum_, *y = y_;
  const float *x = x_, *branch = branch_;
  for (size_t r = 0; r < n->rows; r++) {
    double mean = 0, variance = 0;
    const float *row = branch ? sum + r * n->d : x + r * n->d;
    for (size_t c = 0; c < n->d; c++) {
      size_t e = r * n->d + c;
      if (branch) sum[e] = x[e] + branch[e] * dropout_factor(n->drop, e);
      mean += row[c];
    }
    mean /= (double)n->d;
    for (size_t c = 0; c < n->d; c++) variance += (row[c] - mean) * (row[c] - mean);
    double inverse = 1 / sqrt(variance / (double)n->d + n->epsilon);
    for (size_t c = 0; c < n->d; c++)
      y[r * n->d + c] = (float)((row[c] - mean) * inverse * gain[c] + bias[c]);
    stat[2 * r] = (float)mean;
    stat[2 * r + 1] = (float)inverse;
  }
}

static void add_norm_backward(const Backend *b, void *dx_, void *dbranch_, float *dgain,
                              float *dbias, float *dshift, const void *dy_,
                              const void *through_, const void *sum_, const float *stat,
                              const float *gain, const AddNorm *n, bool accumulate) {
  (void)b;
  float *dx = dx_, *dbranch = dbranch_;
  const float *dy = dy_, *through = through_, *sum = sum_;
  for (size_t c = 0; c < n->d && !accumulate; c++) {
    dgain[c] = dbias[c] = 0;
    if (dshift) dshift[c] = 0;
  }
  for (size_t r = 0; r < n->rows; r++) {
    double mean = stat[2 * r], inverse = stat[2 * r + 1], g_sum = 0, gx_sum = 0;
    for (size_t c = 0; c < n->d; c++) {
      size_t e = r * n->d + c;
      double normal = (sum[e] - mean) * inverse;
      g_sum += (double)dy[e] * gain[c];
      gx_sum += (double)dy[e] * gain[c] * normal;
      dgain[c] += (float)(dy[e] * normal);
      dbias[c] += dy[e];
    }
    for (size_t c = 0; c < n->d; c++) {
      size_t e = r * n->d + c;
      double normal = (sum[e] - mean) * inverse;
      double grad =
          inverse * ((double)dy[e] * gain[c] - (g_sum + normal * gx_sum) / (double)n->d);
      if (through) grad += through[e];
      dx[e] = (float)grad;
      if (dbranch) dbranch[e] = (float)grad * dropout_factor(n->drop, e);
      if (dshift) dshift[c] += dbranch[e];
    }
  }
}

/* Returns the dropout element of one attention probability: its index in (query tokens, heads,
 * 4096 keys). */
static uint64_t probability_index(const Attention *a, size_t query_row, size_t head,
                                  size_t key) {
  return ((uint64_t)query_row * a->heads + head) * 4096 + key;
}

static size_t count_keys(const Attention *a, size_t s) {
  return (size_t)(a->k_len ? a->k_len[s] : a->k_off[s + 1] - a->k_off[s]);
}

/* Returns the number of keys that query i of sentence s attends to. */
static size_t count_visible_keys(const Attention *a, size_t s, size_t i) {
  size_t keys = count_keys(a, s);
  return a->causal && i + 1 < keys ? i + 1 : keys;
}

/* Returns q · k / sqrt(d) of query i and key j. */
static double compute_score(const Attention *a, const float *q, const float *k, size_t s,
                            size_t h, size_t i, size_t j) {
  const float *query = q + ((size_t)a->q_off[s] + i) * a->q_ld + h * a->d;
  const float *key = k + ((size_t)a->k_off[s] + j) * a->kv_ld + h * a->d;
  double sum = 0;
  for (size_t c = 0; c < a->d; c++) sum += (double)query[c] * key[c];
  return sum / sqrt((double)a->d);
}

static void attend(const Backend *b, void *o_, float *lse, const void *q_, const void *k_,
                   const void *v_, const Attention *a) {
  (void)b;
  float *o = o_;
  const float *q = q_, *k = k_, *v = v_;
  double p[4096];
  for (size_t s = 0; s < a->sentences; s++) {
    for (size_t h = 0; h < a->heads; h++) {
      for (size_t i = 0; i < (size_t)(a->q_off[s + 1] - a->q_off[s]); i++) {
        size_t keys = count_visible_keys(a, s, i), row = (size_t)a->q_off[s] + i;
        double most = -INFINITY, total = 0;
        for (size_t j = 0; j < keys; j++) {
          p[j] = compute_score(a, q, k, s, h, i, j);
          most = fmax(most, p[j]);
        }
        for (size_t j = 0; j < keys; j++) {
          p[j] = exp(p[j] - most);
          total += p[j];
        }
        lse[row * a->heads + h] = (float)(most + log(total));
        for (size_t j = 0; j < keys; j++)
          p[j] *= dropout_factor(a->drop, probability_index(a, row, h, j)) / total;
        for (size_t c = 0; c < a->d; c++) {
          double sum = 0;
          for (size_t j = 0; j < keys; j++)
            sum += p[j] * v[((size_t)a->k_off[s] + j) * a->kv_ld + h * a->d + c];
          o[row * a->o_ld + h * a->d + c] = (float)sum;
        }
      }
    }
  }
}

static void attend_backward(const Backend *b, void *dq_, void *dk_, void *dv_, const void *do__,
                            const void *o_, const float *lse, const void *q_, const void *k_,
                            const void *v_, const Attention *a) {
  (void)b;
  float *dq = dq_, *dk = dk_, *dv = dv_;
  const float *do_ = do__, *o = o_, *q = q_, *k = k_, *v = v_;
  for (size_t s = 0; s < a->sentences; s++) {
    size_t rows = (size_t)(a->q_off[s + 1] - a->q_off[s]), keys = count_keys(a, s);
    for (size_t h = 0; h < a->heads; h++) {
      for (size_t j = 0; j < keys; j++) {
        size_t at = ((size_t)a->k_off[s] + j) * a->kv_ld + h * a->d;
        memset(dk + at, 0, a->d * sizeof *dk);
        memset(dv + at, 0, a->d * sizeof *dv);
      }
      for (size_t i = 0; i < rows; i++) {
        size_t row = (size_t)a->q_off[s] + i, seen = count_visible_keys(a, s, i);
        size_t qat = row * a->q_ld + h * a->d, oat = row * a->o_ld + h * a->d;
        double delta = 0; /* delta = do · o, which equals the sum over j of p[j] * dp[j] */
        for (size_t c = 0; c < a->d; c++) delta += (double)do_[oat + c] * o[oat + c];
        memset(dq + qat, 0, a->d * sizeof *dq);
        for (size_t j = 0; j < seen; j++) {
          size_t kat = ((size_t)a->k_off[s] + j) * a->kv_ld + h * a->d;
          double p = exp(compute_score(a, q, k, s, h, i, j) - lse[row * a->heads + h]), dp = 0;
          float factor = dropout_factor(a->drop, probability_index(a, row, h, j));
          for (size_t c = 0; c < a->d; c++) {
            dv[kat + c] += (float)(p * factor * do_[oat + c]);
            dp += (double)do_[oat + c] * v[kat + c];
          }
          double ds = p * (dp * factor - delta) / sqrt((double)a->d);
          for (size_t c = 0; c < a->d; c++) {
            dq[qat + c] += (float)(ds * k[kat + c]);
            dk[kat + c] += (float)(ds * q[qat + c]);
          }
        }
      }
    }
  }
}

#define SQRT_HALF        0.70710678118654752
#define SQRT_TWO_OVER_PI 0.79788456080286536

static double apply_activation(Activation kind, double x) {
  switch (kind) {
    case ACT_RELU:
      return x > 0 ? x : 0;
    case ACT_GELU:
      return 0.5 * x * (1 + erf(x * SQRT_HALF));
    case ACT_SILU:
      return x / (1 + exp(-x));
    case ACT_TANH:
      return tanh(x);
    case ACT_NONE:
      return x;
  }
  return 0;
}

static double activation_derivative(Activation kind, double x) {
  double s;
  switch (kind) {
    case ACT_RELU:
      return x > 0;
    case ACT_GELU:
      return 0.5 * (1 + erf(x * SQRT_HALF)) + 0.5 * x * SQRT_TWO_OVER_PI * exp(-0.5 * x * x);
    case ACT_SILU:
      s = 1 / (1 + exp(-x));
      return s * (1 + x * (1 - s));
    case ACT_TANH:
      return 1 / (cosh(x) * cosh(x));
    case ACT_NONE:
      return 1;
  }
  return 0;
}

static void activate(const Backend *b, void *y_, uint8_t *mask, const void *x_,
                     const void *bias_, size_t rows, size_t width, Activation kind,
                     Dropout drop) {
  (void)b;
  size_t n = rows * width;
  float *y = y_;
  const float *x = x_, *bias = bias_;
  for (size_t i = 0; i < n; i++) {
    float sum = bias ? x[i] + bias[i % width] : x[i];
    y[i] = (float)apply_activation(kind, sum) * dropout_factor(drop, i);
  }
  if (!mask) return;
  memset(mask, 0, (n + 7) / 8);
  for (size_t i = 0; i < n; i++) mask[i / 8] |= (uint8_t)((y[i] > 0) << i % 8);
}

static void activate_backward(const Backend *b, void *dx_, float *dbias, const void *dy_,
                              const void *kept, size_t rows, size_t width, Activation kind,
                              Dropout drop, bool accumulate) {
  (void)b;
  if (dbias && !accumulate) memset(dbias, 0, width * sizeof *dbias);
  float *dx = dx_;
  const float *dy = dy_, *x = kept;
  const uint8_t *mask = kept;
  float scale = drop.rate == 0 ? 1 : dropout_scale(drop.rate);
  for (size_t i = 0; i < rows * width; i++) {
    if (kind == ACT_RELU)
      dx[i] = dy[i] * (mask[i / 8] >> i % 8 & 1 ? scale : 0);
    else
      dx[i] = (float)(dy[i] * activation_derivative(kind, kind == ACT_NONE ? 0 : x[i])) *
              dropout_factor(drop, i);
    if (dbias) dbias[i % width] += dx[i];
  }
}

static void loss(const Backend *b, void *logits_, double *sum, const int32_t *target,
                 size_t rows, size_t vocab, float smoothing, float scale) {
  (void)b;
  float *logits = logits_;
  double even = smoothing / (double)vocab, hit = 1 - smoothing + even;
  for (size_t r = 0; r < rows; r++) {
    float *row = logits + r * vocab;
    if (target[r] < 0) {
      if (scale != 0) memset(row, 0, vocab * sizeof *row);
      continue;
    }
    size_t best = 0;
    double most = row[0], total = 0, all = 0;
    for (size_t c = 0; c < vocab; c++) {
      if (row[c] > most) {
        most = row[c];
        best = c;
      }
    }
    for (size_t c = 0; c < vocab; c++) {
      total += exp(row[c] - most);
      all += row[c];
    }
    double lse = most + log(total), wanted = row[target[r]];
    sum[0] += lse - (1 - (double)smoothing) * wanted - even * all;
    sum[1] += lse - wanted;
    sum[2] += best == (size_t)target[r];
    for (size_t c = 0; c < vocab && scale != 0; c++) {
      double p = exp(row[c] - lse);
      row[c] = (float)(scale * (p - (c == (size_t)target[r] ? hit : even)));
    }
  }
}

static void square_sums(const Backend *b, double *sums, const float *x, size_t n) {
  (void)b;
  for (size_t i = 0; i < n; i++) {
    if (i % NORM_UNIT == 0) sums[i / NORM_UNIT] = 0;
    sums[i / NORM_UNIT] += (double)x[i] * x[i];
  }
}

static void add(const Backend *b, float *x, const float *y, float scale, size_t n) {
  (void)b;
  for (size_t i = 0; i < n; i++) x[i] += scale * y[i];
}

/* Updates elements that are in one range. */
static void update_adam(float *w, float *m, float *v, const float *g, size_t n,
                        const AdamStep *s) {
  double lr = (double)(s->now->lr * s->lr_factor);
  for (size_t i = 0; i < n; i++) {
    double grad = (double)g[i] * s->now->grad_scale, decay = s->decay * (double)w[i];
    if (s->coupled) {
      grad += decay;
      decay = 0;
    }
    m[i] = (float)(s->beta1 * (double)m[i] + (1 - (double)s->beta1) * grad);
    v[i] = (float)(s->beta2 * (double)v[i] + (1 - (double)s->beta2) * grad * grad);
    double step = (m[i] / (double)s->now->correction1) /
                  (sqrt(v[i] / (double)s->now->correction2) + s->epsilon);
    w[i] = (float)(w[i] - lr * (step + decay));
  }
}

static void adam(const Backend *b, float *w, float *m, float *v, const float *g, size_t n,
                 const AdamStep *s) {
  (void)b;
  if (!isfinite(s->now->grad_scale)) return;
  for (size_t i = 0, more; i < n; i += more) {
    AdamStep part;
    bool is_frozen;
    more = adam_cut(s, i, n - i, &part, &is_frozen);
    if (!is_frozen) update_adam(w + i, m + i, v + i, g + i, more, &part);
  }
}

static void momentum(const Backend *b, float *w, float *m, const float *g, size_t n,
                     const MomentumStep *s) {
  (void)b;
  float lr = s->now ? s->now->lr * s->lr_factor : s->lr;
  float scale = s->now ? s->now->grad_scale : s->scale;
  if (!isfinite(scale)) return;
  for (size_t i = 0; i < n; i++) {
    double grad = (double)g[i] * scale + (double)w[i] * s->decay;
    m[i] = (float)(s->beta * (double)m[i] + grad);
    w[i] = (float)(w[i] - lr * (double)m[i]);
  }
}

static void ema(const Backend *b, float *e, const float *w, double keep, size_t n,
                const StepNumbers *now) {
  (void)b;
  if (!isfinite(now->grad_scale)) return;
  for (size_t i = 0; i < n; i++) e[i] = (float)(e[i] + (1 - keep) * ((double)w[i] - e[i]));
}

/* Sets the decoding operations; defined in reference_step.c. */
void reference_step(Backend *b);
/* Sets the operations of classification heads; defined in reference_head.c. */
void reference_head(Backend *b);

void backend_reference(Backend *b) {
  *b = (Backend){.name = "reference", .about = "reference: plain C, one thread", .threads = 1};
  host_fill_table(b);
  b->reserve = reserve;
  b->linear = linear;
  b->linear_dx = linear_dx;
  b->linear_dw = linear_dw;
  b->embed = embed;
  b->embed_backward = embed_backward;
  b->add_norm = add_norm;
  b->add_norm_backward = add_norm_backward;
  b->attend = attend;
  b->attend_backward = attend_backward;
  b->activate = activate;
  b->activate_backward = activate_backward;
  b->loss = loss;
  b->square_sums = square_sums;
  b->square_sums_async = square_sums;
  b->add = add;
  b->adam = adam;
  b->momentum = momentum;
  b->ema = ema;
  reference_step(b);
  reference_head(b);
}
