/* Embedding, residual and layer norm, loss and optimizer updates on the CPU. The threads divide the
 * rows, or the columns if sums over rows are needed. The order of every sum is independent of the
 * number of threads. Depends on fast.h. */
#include <math.h>
#include <string.h>

#include "backend/adam.h"
#include "backend/cpu/fast/fast.h"

#define CHUNK 1024 /* floats processed at once, with their dropout factors: they fit into L1 */

static void embed(const Backend *b, void *x_, const void *table_, const float *place,
                  const int32_t *id, const int32_t *position, size_t rows, size_t d,
                  float scale, Dropout drop) {
  float *x = x_;
  const float *table = table_;
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t r = 0; r < rows; r++) {
    const float *from = table + (size_t)id[r] * d, *where = place + (size_t)position[r] * d;
    float *to = x + r * d, factor[CHUNK + 16];
    for (size_t c = 0; c < d; c += CHUNK) {
      size_t n = d - c < CHUNK ? d - c : CHUNK;
      FAST(fast_drop)(factor, drop, r * d + c, n);
      for (size_t i = 0; i < n; i++)
        to[c + i] = (from[c + i] * scale + where[c + i]) * factor[i];
    }
  }
}

/* Adds the embedding gradients. The threads divide the columns, so that the additions to a row of
 * the table are in the order of the tokens. */
static void embed_backward(const Backend *b, float *dtable, float *dplace, const void *dx_,
                           const int32_t *id, const int32_t *position, size_t rows, size_t d,
                           size_t words, size_t places, float scale, Dropout drop) {
  (void)words;
  (void)places;
  const float *dx = dx_;
  size_t part = 64, parts = (d + part - 1) / part;
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t p = 0; p < parts; p++) {
    size_t c = p * part, n = d - c < part ? d - c : part;
    float factor[64 + 16];
    for (size_t r = 0; r < rows; r++) {
      const float *from = dx + r * d + c;
      float *to = dtable + (size_t)id[r] * d + c;
      FAST(fast_drop)(factor, drop, r * d + c, n);
      for (size_t i = 0; i < n; i++) to[i] += from[i] * factor[i] * scale;
      if (!dplace) continue;
      float *where = dplace + (size_t)position[r] * d + c;
      for (size_t i = 0; i < n; i++) where[i] += from[i] * factor[i];
    }
  }
}

/* sum = x + dropout(branch), for one row; `first`: the row's first dropout element. */
static void add_branch(float *sum, const float *x, const float *branch, uint64_t first,
                       size_t d, Dropout drop) {
  if (drop.rate == 0) {
    for (size_t c = 0; c < d; c++) sum[c] = x[c] + branch[c];
    return;
  }
  float factor[CHUNK + 16];
  for (size_t c = 0; c < d; c += CHUNK) {
    size_t n = d - c < CHUNK ? d - c : CHUNK;
    FAST(fast_drop)(factor, drop, first + c, n);
    for (size_t i = 0; i < n; i++) sum[c + i] = x[c + i] + branch[c + i] * factor[i];
  }
}

static void add_norm(const Backend *b, void *sum_, void *y_, float *stat, const void *x_,
                     const void *branch_, const float *gain, const float *bias,
                     const AddNorm *n) {
  float *sum = sum_, *y = y_;
  const float *x = x_, *branch = branch_;
  size_t d = n->d;
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t r = 0; r < n->rows; r++) {
    const float *row = branch ? sum + r * d : x + r * d;
    if (branch) add_branch(sum + r * d, x + r * d, branch + r * d, r * d, d, n->drop);
    float mean = sum_row(row, d) / (float)d;
    float inverse = 1 / sqrtf(sum_squares(row, mean, d) / (float)d + n->epsilon);
    float *to = y + r * d;
    for (size_t c = 0; c < d; c++) to[c] = (row[c] - mean) * inverse * gain[c] + bias[c];
    stat[2 * r] = mean;
    stat[2 * r + 1] = inverse;
  }
}

/* Computes the two sums over a row that the backward of a layer norm needs: the sum of g = dy *
 * gain, and the sum of g times the normalized x. */
static void sum_norm_gradients(float *g_sum, float *gx_sum, const float *dy, const float *x,
                               float mean, float inverse, const float *gain, size_t d) {
  Lanes sum = {0}, product = {0};
  size_t c = 0;
  for (; c + LANES <= d; c += LANES) {
    Lanes g = lanes_at(dy + c) * lanes_at(gain + c);
    sum += g;
    product = lanes_madd(g, (lanes_at(x + c) - mean) * inverse, product);
  }
  *g_sum = lanes_sum(sum);
  *gx_sum = lanes_sum(product);
  for (; c < d; c++) {
    float g = dy[c] * gain[c];
    *g_sum += g;
    *gx_sum = madd(g, (x[c] - mean) * inverse, *gx_sum);
  }
}

/* Computes dx of one row: inverse * (g - mean(g) - x̂ * mean(g * x̂)) + through, with g = dy *
 * gain and x̂ the normalized x. */
static void backward_norm_row(float *dx, const float *dy, const float *through, const float *x,
                              float mean, float inverse, const float *gain, size_t d) {
  float g_sum, gx_sum;
  sum_norm_gradients(&g_sum, &gx_sum, dy, x, mean, inverse, gain, d);
  g_sum /= (float)d;
  gx_sum /= (float)d;
  size_t c = 0;
  for (; c + LANES <= d; c += LANES) {
    Lanes normed = (lanes_at(x + c) - mean) * inverse;
    Lanes back = inverse * (lanes_at(dy + c) * lanes_at(gain + c) - g_sum - normed * gx_sum);
    if (through) back += lanes_at(through + c);
    lanes_put(dx + c, back);
  }
  for (; c < d; c++) {
    float back = inverse * (dy[c] * gain[c] - g_sum - (x[c] - mean) * inverse * gx_sum);
    dx[c] = through ? back + through[c] : back;
  }
}

/* Computes the gradients of gain and bias; the threads divide the columns. */
static void backward_norm_parameters(const Backend *b, float *dgain, float *dbias,
                                     const float *dy, const float *x, const float *stat,
                                     size_t rows, size_t d, bool accumulate) {
  enum { VECTORS = 4, PART = VECTORS * LANES };
  size_t parts = (d + PART - 1) / PART;
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t p = 0; p < parts; p++) {
    size_t c = p * PART, n = d - c < PART ? d - c : PART;
    float gain[PART] = {0}, bias[PART] = {0};
    if (n == PART) {
      Lanes gains[VECTORS] = {{0}}, biases[VECTORS] = {{0}};
      for (size_t r = 0; r < rows; r++) {
        const float *g = dy + r * d + c, *v = x + r * d + c;
        float mean = stat[2 * r], inverse = stat[2 * r + 1];
#pragma GCC unroll 4
        for (int k = 0; k < VECTORS; k++) {
          Lanes back = lanes_at(g + k * LANES);
          Lanes normed = (lanes_at(v + k * LANES) - mean) * inverse;
          gains[k] = lanes_madd(back, normed, gains[k]);
          biases[k] += back;
        }
      }
      memcpy(gain, gains, sizeof gain);
      memcpy(bias, biases, sizeof bias);
    } else {
      for (size_t r = 0; r < rows; r++) {
        const float *g = dy + r * d + c, *v = x + r * d + c;
        for (size_t i = 0; i < n; i++) {
          gain[i] = madd(g[i], (v[i] - stat[2 * r]) * stat[2 * r + 1], gain[i]);
          bias[i] += g[i];
        }
      }
    }
    for (size_t i = 0; i < n; i++) {
      dgain[c + i] = (accumulate ? dgain[c + i] : 0) + gain[i];
      dbias[c + i] = (accumulate ? dbias[c + i] : 0) + bias[i];
    }
  }
}

static void add_norm_backward(const Backend *b, void *dx_, void *dbranch_, float *dgain,
                              float *dbias, float *dshift, const void *dy_,
                              const void *through_, const void *sum_, const float *stat,
                              const float *gain, const AddNorm *n, bool accumulate) {
  float *dx = dx_, *dbranch = dbranch_;
  const float *dy = dy_, *through = through_, *sum = sum_;
  size_t d = n->d;
  backward_norm_parameters(b, dgain, dbias, dy, sum, stat, n->rows, d, accumulate);
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t r = 0; r < n->rows; r++) {
    float *to = dx + r * d;
    backward_norm_row(to, dy + r * d, through ? through + r * d : NULL, sum + r * d,
                      stat[2 * r], stat[2 * r + 1], gain, d);
    if (!dbranch) continue;
    float factor[CHUNK + 16];
    for (size_t c = 0; c < d; c += CHUNK) {
      size_t part = d - c < CHUNK ? d - c : CHUNK;
      FAST(fast_drop)(factor, n->drop, r * d + c, part);
      for (size_t i = 0; i < part; i++) dbranch[r * d + c + i] = to[c + i] * factor[i];
    }
  }
  if (dshift) cpu_column_sums(b, dshift, dbranch, n->rows, d, accumulate);
}

/* *all = sum of a row, *total = sum of exp(x - most). If `keep`, the exponentials replace the
 * row, so that the gradient does not compute them again. */
static void sum_logits(float *all, float *total, float *row, float most, size_t vocab,
                       bool keep) {
  Lanes sum = {0}, exps = {0}, sum2 = {0}, exps2 = {0};
  size_t c = 0;
  for (; c + 2 * LANES <= vocab; c += 2 * LANES) {
    Lanes x = lanes_at(row + c), e = lanes_exp(x - most);
    Lanes x2 = lanes_at(row + c + LANES), e2 = lanes_exp(x2 - most);
    sum += x;
    exps += e;
    sum2 += x2;
    exps2 += e2;
    if (!keep) continue;
    lanes_put(row + c, e);
    lanes_put(row + c + LANES, e2);
  }
  *all = lanes_sum(sum + sum2);
  *total = lanes_sum(exps + exps2);
  for (; c < vocab; c++) {
    float e = fast_exp(row[c] - most);
    *all += row[c];
    *total += e;
    if (keep) row[c] = e;
  }
}

/* Computes loss and gradient of one row; see Backend.loss. */
static void compute_row_loss(float *row, double sum[3], int32_t wants, size_t vocab,
                             float smoothing, float scale) {
  if (wants < 0) {
    if (scale != 0) memset(row, 0, vocab * sizeof *row);
    return;
  }
  size_t target = (size_t)wants;
  float most = find_max(row, vocab), total, all, wanted = row[target],
        even = smoothing / (float)vocab;
  sum_logits(&all, &total, row, most, vocab, scale != 0);
  if (scale != 0) {
    float norm = scale / total, less = scale * even;
    size_t c = 0;
    for (; c + LANES <= vocab; c += LANES) lanes_put(row + c, lanes_at(row + c) * norm - less);
    for (; c < vocab; c++) row[c] = row[c] * norm - less;
    row[target] -= scale * (1 - smoothing);
  }
  double lse = (double)most + log((double)total);
  sum[0] += lse - (1 - (double)smoothing) * wanted - (double)even * all;
  sum[1] += lse - wanted;
  sum[2] += wanted >= most;
}

static void loss(const Backend *b, void *logits_, double *sum, const int32_t *target,
                 size_t rows, size_t vocab, float smoothing, float scale) {
  float *logits = logits_;
  /* Number of rows whose losses one thread sums; this fixes the order of additions. */
  enum { PART = 16 };
  size_t parts = (rows + PART - 1) / PART;
  double part_sum[1024][3];
  for (size_t first = 0; first < parts; first += 1024) {
    size_t n = parts - first < 1024 ? parts - first : 1024;
    memset(part_sum, 0, n * sizeof *part_sum);
#pragma omp parallel for num_threads(b->threads) schedule(dynamic)
    for (size_t p = 0; p < n; p++) {
      size_t begin = (first + p) * PART, end = begin + PART < rows ? begin + PART : rows;
      for (size_t r = begin; r < end; r++)
        compute_row_loss(logits + r * vocab, part_sum[p], target[r], vocab, smoothing, scale);
    }
    for (size_t p = 0; p < n; p++) {
      for (int i = 0; i < 3; i++) sum[i] += part_sum[p][i];
    }
  }
}

/* Sum of squares in 16 accumulators with a fixed final order. The square of a float is exact in
 * double, so the bits do not depend on vector width or FMA. */
static double sum_unit_squares(const float *x, size_t n) {
  double lane[16] = {0};
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t k = 0; k < 16; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
  }
  for (size_t k = 0; i + k < n; k++) lane[k] += (double)x[i + k] * (double)x[i + k];
  for (size_t half = 8; half; half /= 2) {
    for (size_t k = 0; k < half; k++) lane[k] += lane[k + half];
  }
  return lane[0];
}

static void square_sums(const Backend *b, double *sums, const float *x, size_t n) {
  size_t units = norm_units(n);
#pragma omp parallel for num_threads(b->threads) schedule(static) if (units > 1)
  for (size_t u = 0; u < units; u++) {
    size_t begin = u * NORM_UNIT;
    sums[u] = sum_unit_squares(x + begin, n - begin < NORM_UNIT ? n - begin : NORM_UNIT);
  }
}

static void add(const Backend *b, float *x, const float *y, float scale, size_t n) {
#pragma omp parallel for simd num_threads(b->threads) schedule(static)
  for (size_t i = 0; i < n; i++) x[i] += scale * y[i];
}

/* Optimizer updates. They use madd and lanes_madd, so that an element gets the same bits in the
 * vector part and in the remainder of a loop, and on any rank. Threads process parts of PART
 * elements, a multiple of LANES. Each part is a separate function call: inside an OpenMP region
 * the compiler would reload the shared scalars after each vector store, which may alias them. */
#define PART ((size_t)4096)

static size_t part_size(size_t at, size_t n) {
  return n - at < PART ? n - at : PART;
}

static void update_adam(float *w, float *m, float *v, const float *g, size_t n,
                        const AdamStep *s) {
  const StepNumbers *now = s->now;
  const float rate = now->lr * s->lr_factor, lr = rate / now->correction1;
  const float beta1 = s->beta1, beta2 = s->beta2;
  const float inner = s->coupled ? s->decay : 0, outer = s->coupled ? 0 : rate * s->decay;
  const float root = 1 / sqrtf(now->correction2), epsilon = s->epsilon, scale = now->grad_scale;
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    Lanes weight = lanes_at(w + i);
    Lanes grad = lanes_madd(lanes_of(inner), weight, lanes_at(g + i) * scale);
    Lanes mean = lanes_madd(lanes_of(beta1), lanes_at(m + i), (1 - beta1) * grad);
    Lanes square = lanes_madd(lanes_of(beta2), lanes_at(v + i), (1 - beta2) * grad * grad);
    Lanes below = lanes_madd(lanes_sqrt(square), lanes_of(root), lanes_of(epsilon));
    lanes_put(m + i, mean);
    lanes_put(v + i, square);
    lanes_put(w + i, weight - lanes_madd(lanes_of(outer), weight, lr * mean / below));
  }
  for (; i < n; i++) {
    float grad = madd(inner, w[i], g[i] * scale);
    float mean = madd(beta1, m[i], (1 - beta1) * grad);
    float square = madd(beta2, v[i], (1 - beta2) * grad * grad);
    m[i] = mean;
    v[i] = square;
    w[i] -= madd(outer, w[i], lr * mean / madd(sqrtf(square), root, epsilon));
  }
}

static void adam(const Backend *b, float *w, float *m, float *v, const float *g, size_t n,
                 const AdamStep *s) {
  if (!isfinite(s->now->grad_scale)) return;
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t at = 0; at < n; at += PART) {
    size_t end = at + part_size(at, n);
    for (size_t i = at, more; i < end; i += more) {
      AdamStep part;
      bool is_frozen;
      more = adam_cut(s, i, end - i, &part, &is_frozen);
      if (!is_frozen) update_adam(w + i, m + i, v + i, g + i, more, &part);
    }
  }
}

static void update_momentum(float *w, float *m, const float *g, size_t n, float lr, float scale,
                            float beta, float decay) {
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    Lanes weight = lanes_at(w + i);
    Lanes grad = lanes_madd(lanes_of(decay), weight, lanes_at(g + i) * scale);
    Lanes mean = lanes_madd(lanes_of(beta), lanes_at(m + i), grad);
    lanes_put(m + i, mean);
    lanes_put(w + i, lanes_madd(lanes_of(-lr), mean, weight));
  }
  for (; i < n; i++) {
    float mean = madd(beta, m[i], madd(decay, w[i], g[i] * scale));
    m[i] = mean;
    w[i] = madd(-lr, mean, w[i]);
  }
}

/* NovoGrad calls this function for each tensor; for short tensors starting threads costs more
 * than it saves. */
static void momentum(const Backend *b, float *w, float *m, const float *g, size_t n,
                     const MomentumStep *s) {
  float lr = s->now ? s->now->lr * s->lr_factor : s->lr;
  float scale = s->now ? s->now->grad_scale : s->scale;
  if (!isfinite(scale)) return;
#pragma omp parallel for num_threads(b->threads) schedule(static) if (n > NORM_UNIT)
  for (size_t at = 0; at < n; at += PART)
    update_momentum(w + at, m + at, g + at, part_size(at, n), lr, scale, s->beta, s->decay);
}

static void update_ema(float *e, const float *w, float take, size_t n) {
  size_t i = 0;
#pragma GCC unroll 4
  for (; i + LANES <= n; i += LANES) {
    Lanes mean = lanes_at(e + i);
    lanes_put(e + i, lanes_madd(lanes_of(take), lanes_at(w + i) - mean, mean));
  }
  for (; i < n; i++) e[i] = madd(take, w[i] - e[i], e[i]);
}

static void ema(const Backend *b, float *e, const float *w, double keep, size_t n,
                const StepNumbers *now) {
  if (!isfinite(now->grad_scale)) return;
#pragma omp parallel for num_threads(b->threads) schedule(static)
  for (size_t at = 0; at < n; at += PART)
    update_ema(e + at, w + at, (float)(1 - keep), part_size(at, n));
}

void FAST(fast_rows)(Backend *b) {
  b->embed = embed;
  b->embed_backward = embed_backward;
  b->add_norm = add_norm;
  b->add_norm_backward = add_norm_backward;
  FAST(fast_activations)(b);
  b->loss = loss;
  b->square_sums = square_sums;
  b->square_sums_async = square_sums;
  b->add = add;
  b->adam = adam;
  b->momentum = momentum;
  b->ema = ema;
}
