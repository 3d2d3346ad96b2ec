/* Rows by index and the losses of classification heads on the CPU. The threads divide the rows; the
 * order of every sum is independent of the number of threads. Heads have few labels, so the
 * exponentials are plain and in double. Depends on backend.h. */
#include "backend/cpu/head.h"

#include <math.h>
#include <string.h>

#define MIN_ELEMENTS 16384 /* with fewer, starting threads costs more than it saves */

static void gather_rows(const Backend *b, void *y_, const void *x_, const int32_t *index,
                        size_t rows, size_t d) {
  float *y = y_;
  const float *x = x_;
#pragma omp parallel for num_threads(b->threads) schedule(static) if (rows * d >= MIN_ELEMENTS)
  for (size_t r = 0; r < rows; r++) {
    if (index[r] < 0)
      memset(y + r * d, 0, d * sizeof *y);
    else
      memcpy(y + r * d, x + (size_t)index[r] * d, d * sizeof *y);
  }
}

static void scatter_rows(const Backend *b, void *dx_, const void *dy_, const int32_t *index,
                         size_t rows, size_t tokens, size_t d) {
  float *dx = dx_;
  const float *dy = dy_;
#pragma omp parallel for num_threads(b->threads) \
    schedule(static) if (tokens * d >= MIN_ELEMENTS)
  for (size_t t = 0; t < tokens; t++) memset(dx + t * d, 0, d * sizeof *dx);
#pragma omp parallel for num_threads(b->threads) schedule(static) if (rows * d >= MIN_ELEMENTS)
  for (size_t r = 0; r < rows; r++) {
    if (index[r] >= 0) memcpy(dx + (size_t)index[r] * d, dy + r * d, d * sizeof *dx);
  }
}

/* Sums over the classes of one row. */
typedef struct {
  float most;      /* the largest logit */
  size_t best;     /* its index, the smallest among equal ones */
  double lse;      /* log-sum-exp */
  double weights;  /* sum of the class weights */
  double weighted; /* sum of weight * logit */
} RowSums;

static RowSums sum_row(const float *row, const float *weight, size_t n) {
  RowSums s = {.most = row[0]};
  double total = 0;
  for (size_t c = 1; c < n; c++) {
    if (row[c] > s.most) {
      s.most = row[c];
      s.best = c;
    }
  }
  for (size_t c = 0; c < n; c++) {
    double w = weight ? (double)weight[c] : 1;
    total += exp((double)row[c] - (double)s.most);
    s.weights += w;
    s.weighted += w * (double)row[c];
  }
  s.lse = (double)s.most + log(total);
  return s;
}

static void compute_softmax_row(float *row, double loss[3], float wanted, const HeadLoss *h) {
  if (!(wanted >= 0)) {
    if (h->scale != 0) memset(row, 0, h->labels * sizeof *row);
    return;
  }
  size_t target = (size_t)wanted;
  RowSums s = sum_row(row, h->weight, h->labels);
  double even = (double)h->smoothing / (double)h->labels, scale = (double)h->scale;
  double hit = (1 - (double)h->smoothing) * (h->weight ? (double)h->weight[target] : 1);
  double plain = s.lse - (double)row[target];
  loss[0] += hit * plain + even * (s.weights * s.lse - s.weighted);
  loss[1] += plain;
  loss[2] += s.best == target;
  if (h->scale == 0) return;
  double factor = scale * (hit + even * s.weights);
  for (size_t c = 0; c < h->labels; c++) {
    double less = even * (h->weight ? (double)h->weight[c] : 1) + (c == target ? hit : 0);
    row[c] = (float)(factor * exp((double)row[c] - s.lse) - scale * less);
  }
}

/* Adds the loss of one label and returns its gradient. log(1 + exp(x)) = max(x, 0) + rest and
 * log(1 + exp(-x)) = max(-x, 0) + rest, with rest = log(1 + exp(-|x|)). */
static double compute_label(double x, double loss[3], double target, double weight,
                            double smoothing) {
  double small = exp(-fabs(x)), rest = log1p(small);
  double no = (x > 0 ? x : 0) + rest, yes = (x < 0 ? -x : 0) + rest;
  double p = (x >= 0 ? 1 : small) / (1 + small), not_p = (x >= 0 ? small : 1) / (1 + small);
  double t = target + smoothing * (0.5 - target);
  loss[0] += weight * t * yes + (1 - t) * no;
  loss[1] += target * yes + (1 - target) * no;
  return (1 - t) * p - weight * t * not_p;
}

static void compute_sigmoid_row(float *row, double loss[3], const float *target,
                                const HeadLoss *h) {
  size_t known = 0, right = 0;
  for (size_t c = 0; c < h->labels; c++) {
    double grad = 0;
    if (!isnan(target[c])) {
      known++;
      right += (row[c] >= 0) == (target[c] >= 0.5f);
      grad = compute_label((double)row[c], loss, (double)target[c],
                           h->weight ? (double)h->weight[c] : 1, (double)h->smoothing);
    }
    if (h->scale != 0) row[c] = (float)((double)h->scale * grad);
  }
  loss[2] += known > 0 && right == known;
}

static void compute_square_row(float *row, double loss[3], const float *target,
                               const HeadLoss *h) {
  for (size_t c = 0; c < h->labels; c++) {
    double off = isnan(target[c]) ? 0 : (double)row[c] - (double)target[c];
    double weighted = h->weight ? (double)h->weight[c] * off : off;
    loss[0] += weighted * off;
    loss[1] += off * off;
    if (h->scale != 0) row[c] = (float)(2 * (double)h->scale * weighted);
  }
}

static void compute_rows(float *logits, double loss[3], const float *target, size_t begin,
                         size_t end, const HeadLoss *h) {
  for (size_t r = begin; r < end; r++) {
    float *row = logits + r * h->labels;
    if (h->kind == HEAD_SOFTMAX)
      compute_softmax_row(row, loss, target[r], h);
    else if (h->kind == HEAD_SIGMOID)
      compute_sigmoid_row(row, loss, target + r * h->labels, h);
    else
      compute_square_row(row, loss, target + r * h->labels, h);
  }
}

static void head_loss(const Backend *b, void *logits, double *loss, const float *target,
                      const HeadLoss *h) {
  /* ROWS: rows whose losses one thread sums; this fixes the order of additions. */
  enum { ROWS = 64, PARTS = 256 };
  size_t step = (size_t)ROWS * PARTS;
  double sum[PARTS][3];
  for (size_t first = 0; first < h->rows; first += step) {
    size_t end = h->rows - first < step ? h->rows : first + step;
    size_t parts = (end - first + ROWS - 1) / ROWS;
    memset(sum, 0, parts * sizeof *sum);
#pragma omp parallel for num_threads(b->threads) schedule(static) if (parts > 1)
    for (size_t p = 0; p < parts; p++) {
      size_t begin = first + p * ROWS, stop = end - begin < ROWS ? end : begin + ROWS;
      compute_rows(logits, sum[p], target, begin, stop, h);
    }
    for (size_t p = 0; p < parts; p++) {
      for (int i = 0; i < 3; i++) loss[i] += sum[p][i];
    }
  }
}

void cpu_fill_head(Backend *b) {
  b->gather_rows = gather_rows;
  b->scatter_rows = scatter_rows;
  b->head_loss = head_loss;
}
