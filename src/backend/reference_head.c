/* Reference implementation of the operations of classification heads (rows by index, losses) in
 * plain C; tests compare the other backends with it. Depends on backend.h. */
#include <math.h>
#include <string.h>

#include "backend/backend.h"

void reference_head(Backend *b);

static void gather_rows(const Backend *b, void *y_, const void *x_, const int32_t *index,
                        size_t rows, size_t d) {
  (void)b;
  float *y = y_;
  const float *x = x_;
  for (size_t r = 0; r < rows; r++) {
    for (size_t c = 0; c < d; c++)
      y[r * d + c] = index[r] < 0 ? 0 : x[(size_t)index[r] * d + c];
  }
}

static void scatter_rows(const Backend *b, void *dx_, const void *dy_, const int32_t *index,
                         size_t rows, size_t tokens, size_t d) {
  (void)b;
  float *dx = dx_;
  const float *dy = dy_;
  for (size_t i = 0; i < tokens * d; i++) dx[i] = 0;
  for (size_t r = 0; r < rows; r++) {
    for (size_t c = 0; c < d && index[r] >= 0; c++)
      dx[(size_t)index[r] * d + c] = dy[r * d + c];
  }
}

static double get_weight(const HeadLoss *h, size_t label) {
  return h->weight ? (double)h->weight[label] : 1;
}

static double compute_lse(const float *row, size_t n) {
  double most = -INFINITY, total = 0;
  /* fmax is not used, because gcc 12 cannot vectorize it on ARM. */
  for (size_t c = 0; c < n; c++) most = (double)row[c] > most ? (double)row[c] : most;
  for (size_t c = 0; c < n; c++) total += exp((double)row[c] - most);
  return most + log(total);
}

/* Returns the share of class c in the smoothed and weighted target. */
static double get_share(const HeadLoss *h, size_t c, size_t target) {
  double e = (double)h->smoothing;
  return get_weight(h, c) * (e / (double)h->labels + (c == target ? 1 - e : 0));
}

static void compute_softmax_row(float *row, double loss[3], float wanted, const HeadLoss *h) {
  size_t n = h->labels, target = (size_t)wanted, best = 0;
  double lse = compute_lse(row, n), shares = 0;
  for (size_t c = 0; c < n; c++) {
    if (row[c] > row[best]) best = c;
    shares += get_share(h, c, target);
    loss[0] += get_share(h, c, target) * (lse - (double)row[c]);
  }
  loss[1] += lse - (double)row[target];
  loss[2] += best == target;
  for (size_t c = 0; c < n && h->scale != 0; c++) {
    double p = exp((double)row[c] - lse);
    row[c] = (float)((double)h->scale * (shares * p - get_share(h, c, target)));
  }
}

/* Returns log(1 + exp(x)) = -log(1 - sigmoid(x)) without overflow. */
static double compute_softplus(double x) {
  return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static void compute_sigmoid_row(float *row, double loss[3], const float *target,
                                const HeadLoss *h) {
  bool right = true;
  size_t labels = 0;
  for (size_t c = 0; c < h->labels; c++) {
    double x = (double)row[c], plain = (double)target[c], e = (double)h->smoothing;
    double t = plain * (1 - e) + e / 2, w = get_weight(h, c), p = 1 / (1 + exp(-x)), grad = 0;
    if (!isnan(plain)) {
      loss[0] += w * t * compute_softplus(-x) + (1 - t) * compute_softplus(x);
      loss[1] += plain * compute_softplus(-x) + (1 - plain) * compute_softplus(x);
      right = right && (x >= 0) == (plain >= 0.5);
      labels++;
      grad = (1 - t) * p - w * t * (1 - p);
    }
    if (h->scale != 0) row[c] = (float)((double)h->scale * grad);
  }
  loss[2] += right && labels > 0;
}

static void compute_square_row(float *row, double loss[3], const float *target,
                               const HeadLoss *h) {
  for (size_t c = 0; c < h->labels; c++) {
    double off = isnan(target[c]) ? 0 : (double)row[c] - (double)target[c];
    loss[0] += get_weight(h, c) * off * off;
    loss[1] += off * off;
    if (h->scale != 0) row[c] = (float)((double)h->scale * 2 * get_weight(h, c) * off);
  }
}

static void head_loss(const Backend *b, void *logits, double *loss, const float *target,
                      const HeadLoss *h) {
  (void)b;
  for (size_t r = 0; r < h->rows; r++) {
    float *row = (float *)logits + r * h->labels;
    if (h->kind == HEAD_SIGMOID)
      compute_sigmoid_row(row, loss, target + r * h->labels, h);
    else if (h->kind == HEAD_SQUARE)
      compute_square_row(row, loss, target + r * h->labels, h);
    else if (target[r] >= 0)
      compute_softmax_row(row, loss, target[r], h);
    else if (h->scale != 0)
      memset(row, 0, h->labels * sizeof *row);
  }
}

void reference_head(Backend *b) {
  b->gather_rows = gather_rows;
  b->scatter_rows = scatter_rows;
  b->head_loss = head_loss;
}
