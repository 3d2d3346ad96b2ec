/* Compares the kernels of linear_loss with a host computation in double: complete and incomplete
 * tiles, one and several tiles per block, rows without a target, rows whose target is so
 * improbable that they are rescaled, and NaN in the operands. Depends on check.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"

void loss_kernels(void);

#define MARGIN 0x1p-7 /* as in loss_matmul.cu */
#define UNIT   0x1p-8 /* largest relative rounding error of bf16 */

/* What the host knows of a row. */
typedef struct {
  double all;  /* sum of the logits */
  double t;    /* logit of the target */
  double sum;  /* of the exponentials, with those that the kernel cannot represent limited */
  double most; /* largest binary exponent other than that of the target */
} Row;

typedef struct {
  LinearLoss j;
  Array *x, *w, *e, *h, *dx;
  int32_t *target;
  float *kept, *got_e, *got_h, *got_kept; /* kept is in device memory; the others are not */
  double *z;                              /* (rows, vocab) logits */
} LossCase;

static double dot(const float *a, const float *b, size_t n) {
  double sum[4] = {0};
  for (size_t i = 0; i < n; i += 4)
    for (size_t k = 0; k < 4; k++) sum[k] += (double)a[i + k] * b[i + k];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Every seventh row from row 3 on has no target. Every fifth row predicts its target. With
 * `extreme`, rows 1 and 2 have another word that is 2^115 and 2^173 times as probable, about. */
static void draw_rows(LossCase *c, bool extreme) {
  size_t d = c->j.in, vocab = c->j.vocab;
  for (size_t r = 0; r < c->j.rows; r++) {
    size_t y = draw_below(vocab), like = y;
    float by = 5;
    c->target[r] = r % 7 == 3 ? -1 : (int32_t)y;
    if (extreme && (r == 1 || r == 2)) {
      like = (y + 1) % vocab;
      by = r == 1 ? 20 : 30;
    } else if (r % 5 != 4) {
      continue;
    }
    for (size_t i = 0; i < d; i++)
      c->x->host[r * d + i] = type_round(TYPE_BF16, by * c->w->host[like * d + i]);
  }
}

static void make_case(LossCase *c, size_t rows, size_t vocab, size_t d, float smoothing,
                      bool extreme) {
  size_t all = rows + LOSS_EXTRA_ROWS;
  c->x = array_draw(TYPE_BF16, rows * d, 1);
  c->w = array_draw(TYPE_BF16, vocab * d, 2 / sqrtf((float)d));
  c->e = array_blank(TYPE_BF16, all * vocab);
  c->h = array_blank(TYPE_BF16, all * d);
  c->dx = array_draw(TYPE_BF16, rows * d, 1);
  c->target = (int32_t *)host_floats(rows);
  c->got_e = host_floats(all * vocab);
  c->got_h = host_floats(all * d);
  c->got_kept = host_floats(d + rows);
  c->j = (LinearLoss){.rows = rows, .in = d, .vocab = vocab, .smoothing = smoothing};
  draw_rows(c, extreme);
  array_put(c->x);
  c->j.scale = 0.5f;
  c->j.x = c->x->at;
  c->j.w = c->w->at;
  c->j.logits = c->e->at;
  c->j.scaled = c->h->at;
  c->j.dx = c->dx->at;
  c->j.target = device_copy(c->target, rows * sizeof *c->target);
  if (mem_alloc(&c->z, rows * vocab, sizeof *c->z)) exit(1);
  for (size_t r = 0; r < rows; r++)
    for (size_t v = 0; v < vocab; v++)
      c->z[r * vocab + v] = dot(c->x->host + r * d, c->w->host + v * d, d);
}

/* Returns the binary logarithm of an element of e before it is rescaled. */
static double exponent(const LossCase *c, size_t r, size_t v, double t) {
  return (c->z[r * c->j.vocab + v] - t) / log(2) - MARGIN;
}

static Row compute_row(const LossCase *c, size_t r) {
  Row row = {.most = -INFINITY};
  size_t y = (size_t)c->target[r], vocab = c->j.vocab;
  row.t = c->z[r * vocab + y];
  for (size_t v = 0; v < vocab; v++) {
    double bits = exponent(c, r, v, row.t);
    row.all += c->z[r * vocab + v];
    row.sum += exp2(fmin(bits, 127));
    if (v != y && bits > row.most) row.most = bits;
  }
  return row;
}

/* Copies a bf16 array to floats. */
static void fetch(float *to, const Array *a) {
  uint16_t *low = NULL;
  if (mem_alloc(&low, a->n, 2)) exit(1);
  MUST(cudaMemcpy(low, a->at, a->n * 2, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < a->n; i++) {
    uint32_t bits = (uint32_t)low[i] << 16;
    memcpy(&to[i], &bits, 4);
  }
  mem_free(low);
}

/* Returns what the target's element was when it was added; it is too small to count in a row that
 * is rescaled. */
static double target_part(const Row *row) {
  return row->sum >= 0x1p100 ? 0 : exp2(-MARGIN);
}

/* Checks a row of e, except the target's element, and returns its sum with target_part. The
 * exponent has the rounding error of bf16, and so has the element. */
static double check_row(const LossCase *c, size_t r, const Row *row) {
  size_t y = (size_t)c->target[r], vocab = c->j.vocab, wrong = 0;
  bool rescaled = row->sum >= 0x1p100;
  const float *e = c->got_e + r * vocab;
  double sum = target_part(row);
  for (size_t v = 0; v < vocab; v++) {
    double bits = fmin(exponent(c, r, v, row->t), 127), got;
    if (v == y) continue;
    sum += (double)e[v];
    if (rescaled) bits -= 100;
    got = log2((double)e[v]);
    if (bits < -120)
      wrong += !(e[v] >= 0 && got < -119);
    else
      wrong += !(fabs(got - bits) <= UNIT * fabs(bits + (rescaled ? 100 : 0)) + 0.008);
  }
  expect_near((double)wrong, 0, 0, "elements of e");
  return sum;
}

/* Compares h and the target's element with what follows from the sum of e. */
static void check_products(const LossCase *c, size_t r, const Row *row, double sum) {
  size_t d = c->j.in, y = (size_t)c->target[r], wrong = 0;
  double s = (double)c->j.scale / sum, left = target_part(row);
  double want = left - (1 - (double)c->j.smoothing) * sum, got = c->got_kept[d + r];
  expect_near(got, s, UNIT * s, "factor of a row");
  expect_near(c->got_e[r * c->j.vocab + y], want, 3 * UNIT * (fabs(want) + left),
              "target of e");
  for (size_t i = 0; i < d; i++) {
    double x = c->x->host[r * d + i] * got;
    wrong += !(fabs(c->got_h[r * d + i] - x) <= 1.01 * UNIT * fabs(x));
  }
  expect_near((double)wrong, 0, 0, "elements of h");
}

/* A row without a target is 0 in e and h. */
static void check_empty_row(const LossCase *c, size_t r) {
  size_t wrong = c->got_kept[c->j.in + r] != 0;
  for (size_t v = 0; v < c->j.vocab; v++) wrong += c->got_e[r * c->j.vocab + v] != 0;
  for (size_t i = 0; i < c->j.in; i++) wrong += c->got_h[r * c->j.in + i] != 0;
  expect_near((double)wrong, 0, 0, "row without a target");
}

static void check_extra_rows(const LossCase *c) {
  size_t rows = c->j.rows, vocab = c->j.vocab, d = c->j.in, wrong = 0;
  const float *e = c->got_e + rows * vocab, *h = c->got_h + rows * d;
  bool smooth = c->j.smoothing != 0;
  double by = -(double)c->j.scale * (double)c->j.smoothing / (double)vocab;
  for (size_t i = 0; i < LOSS_EXTRA_ROWS * vocab; i++)
    wrong += smooth ? e[i] != (i < 2 * vocab ? 1 : 0) : !isnan(e[i]);
  for (size_t i = 0; i < d; i++) {
    double sum = 0, size = 0;
    for (size_t r = 0; r < rows; r++) {
      double x = c->target[r] < 0 ? 0 : c->x->host[r * d + i];
      sum += x;
      size += fabs(x);
    }
    wrong += smooth ? !(fabs((double)h[i] + h[d + i] - by * sum) <=
                        UNIT * UNIT * fabs(by * sum) + 1e-6 * fabs(by) * size)
                    : !isnan(h[i]);
  }
  for (size_t i = 2 * d; i < LOSS_EXTRA_ROWS * d; i++)
    wrong += smooth ? h[i] != 0 : !isnan(h[i]);
  expect_near((double)wrong, 0, 0, "extra rows");
}

/* dx is what the GEMM would have written. */
static void check_dx(LossCase *c) {
  size_t d = c->j.in, vocab = c->j.vocab;
  double even = (double)c->j.scale * (double)c->j.smoothing / (double)vocab, wrong = 0;
  float *want = host_floats(c->j.rows * d);
  for (size_t i = 0; i < d; i++) {
    double sum = 0;
    for (size_t v = 0; v < vocab; v++) sum += c->w->host[v * d + i];
    if (even != 0) wrong += !(fabs(c->got_kept[i] - sum) <= 1e-5 * (fabs(sum) + 10));
    for (size_t r = 0; r < c->j.rows; r++)
      want[r * d + i] =
          c->target[r] < 0
              ? 0
              : (float)((double)c->got_kept[d + r] * c->dx->host[r * d + i] - even * sum);
  }
  expect_near(wrong, 0, 0, "sum of w");
  MUST(kernel_linear_loss_dx(&c->j, c->kept, 0));
  expect(c->dx, want, 1, "dx");
}

/* Checks what a run has written, given the sums of the losses. */
static void check_results(LossCase *c, const double got[3]) {
  double want[3] = {0}, room = 0, unsure = 0, even = c->j.smoothing / (double)c->j.vocab;
  for (size_t r = 0; r < c->j.rows; r++) {
    if (c->target[r] < 0) {
      check_empty_row(c, r);
      continue;
    }
    Row row = compute_row(c, r);
    check_products(c, r, &row, check_row(c, r, &row));
    double nll = log(row.sum) + MARGIN * log(2);
    want[0] += nll + (double)c->j.smoothing * row.t - even * row.all;
    want[1] += nll;
    want[2] += row.most < 0;
    room += UNIT * fmax(row.most, 4);
    unsure += fabs(row.most) < 1e-3;
  }
  expect_near(got[0], want[0] + 1, room, "smoothed sum");
  expect_near(got[1], want[1] + 2, room, "plain sum");
  expect_near(got[2], want[2] + 3, unsure, "correct predictions");
}

static void check_loss(size_t rows, size_t vocab, size_t d, float smoothing, bool extreme) {
  LossCase c;
  BEGIN("linear_loss, %zu rows, vocab %zu, d %zu, smoothing %g%s", rows, vocab, d,
        (double)smoothing, extreme ? ", extreme" : "");
  expect_near(kernel_fuses_loss(TYPE_BF16, rows, d, vocab), true, 0, "not taken");
  make_case(&c, rows, vocab, d, smoothing, extreme);
  const double start[3] = {1, 2, 3};
  double got[3];
  c.j.loss = device_copy(start, sizeof start);
  c.kept = device_scratch(kernel_linear_loss_kept(&c.j));
  void *work = device_scratch(kernel_linear_loss_work(&c.j));
  TWICE {
    MUST(cudaMemcpy(c.j.loss, start, sizeof start, cudaMemcpyHostToDevice));
    MUST(kernel_linear_loss(&c.j, c.kept, work, 0));
    MUST(cudaMemcpy(got, c.j.loss, sizeof got, cudaMemcpyDeviceToHost));
    MUST(cudaMemcpy(c.got_kept, c.kept, kernel_linear_loss_kept(&c.j), cudaMemcpyDeviceToHost));
    if (run == 0) {
      fetch(c.got_e, c.e);
      fetch(c.got_h, c.h);
      check_results(&c, got);
      check_extra_rows(&c);
    }
    /* the same bits in both runs, and the guard memory; NaN is equal to NaN */
    expect(c.e, c.got_e, 1e-9, "e");
    expect(c.h, c.got_h, 1e-9, "h");
    check_dx(&c);
  }
  mem_free(c.z);
  arrays_free();
}

/* A NaN in one row of x, or in one row of w, makes the losses NaN. Of the factors, that of the row
 * of x is NaN, or those of all rows with a target. */
static void check_nan(bool in_w) {
  LossCase c;
  BEGIN("linear_loss, NaN in %s", in_w ? "w" : "x");
  make_case(&c, 130, 512, 512, 0.1f, false);
  size_t d = c.j.in, nans = 0, wanted = 0;
  Array *a = in_w ? c.w : c.x;
  a->host[2 * d + 7] = NAN;
  array_put(a);
  double got[3] = {0};
  c.j.loss = device_copy(got, sizeof got);
  c.kept = device_scratch(kernel_linear_loss_kept(&c.j));
  MUST(kernel_linear_loss(&c.j, c.kept, device_scratch(kernel_linear_loss_work(&c.j)), 0));
  MUST(cudaMemcpy(got, c.j.loss, sizeof got, cudaMemcpyDeviceToHost));
  MUST(cudaMemcpy(c.got_kept, c.kept, kernel_linear_loss_kept(&c.j), cudaMemcpyDeviceToHost));
  expect_near(isnan(got[0]), true, 0, "smoothed sum is NaN");
  expect_near(isnan(got[1]), true, 0, "plain sum is NaN");
  for (size_t r = 0; r < c.j.rows; r++) {
    nans += isnan(c.got_kept[d + r]) != 0;
    wanted += in_w ? c.target[r] >= 0 : r == 2;
  }
  expect_near((double)nans, (double)wanted, 0, "rows whose factor is NaN");
  mem_free(c.z);
  arrays_free();
}

void loss_kernels(void) {
  if (!kernel_fuses_loss(TYPE_BF16, 4096, 1024, 1024)) return; /* only Hopper has them */
  check_loss(1, 512, 512, 0.1f, false);
  check_loss(130, 2048, 512, 0, true);
  check_loss(130, 2048, 512, 0.1f, true);
  check_loss(1000, 512, 1024, 0.1f, true);
  check_loss(300, 2304, 576, 0.1f, false);
  check_loss(257, 768, 2048, 0.2f, true);
  /* several bands of rows, and more tiles than blocks */
  check_loss(2600, 2048, 512, 0.1f, true);
  check_nan(false);
  check_nan(true);
  static const size_t refused[][3] = {
      {0, 512, 512}, {9, 512, 500}, {9, 520, 512}, {9, 448, 512}};
  for (size_t i = 0; i < COUNT(refused); i++) {
    BEGIN("linear_loss, shape %zu that is not supported", i);
    expect_near(kernel_fuses_loss(TYPE_BF16, refused[i][0], refused[i][1], refused[i][2]),
                false, 0, "taken");
  }
  BEGIN("linear_loss, types that are not supported");
  expect_near(kernel_fuses_loss(TYPE_F16, 9, 512, 512), false, 0, "fp16");
  expect_near(kernel_fuses_loss(TYPE_F32, 9, 512, 512), false, 0, "fp32");
}
