/* Every operation of a backend as a test case: its arrays and a call. Shared by the tests of the
 * CPU and GPU backends. Include after cmocka. */
#ifndef TESTS_OPS_CASES_H
#define TESTS_OPS_CASES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/rng.h"

static Rng rng = {.key = 7};

static float *draw(size_t n) {
  float *x;
  assert_int_equal(mem_alloc_aligned(&x, (n + 16) * sizeof *x), ERR_OK);
  for (size_t i = 0; i < n; i++) {
    double u = ((double)(rng_next(&rng) >> 11) + 1) * 0x1p-53,
           v = (double)(rng_next(&rng) >> 11) * 0x1p-53;
    x[i] = (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
  }
  return x;
}

static inline float *copy(const float *x, size_t n) {
  float *y;
  assert_int_equal(mem_alloc_aligned(&y, (n + 16) * sizeof *y), ERR_OK);
  memcpy(y, x, n * sizeof *y);
  return y;
}

#define ARRAYS 13

/* An operation as a function of inputs and outputs, with the arrays that the case owns. */
typedef struct {
  float *a[ARRAYS]; /* inputs and outputs of the operation */
  size_t n[ARRAYS];
  int32_t *id, *pos, *off_q, *off_k;
  int32_t *index; /* MAX_ROWS row numbers, distinct if not negative; or NULL */
  size_t rows, in, out, d, heads, sentences, q_rows;
  Dropout drop;
  Activation act;
  size_t gap; /* extra elements between two rows of queries */
  bool causal;
  double loss[3];
  double *sums;  /* device memory for the sums of losses; NULL: the sums are in `loss` */
  uint8_t *mask; /* mask of ReLU, MASK_BYTES bytes */
} Case;

#define MASK_BYTES ((size_t)2048 * 512 / 8)
static uint8_t masks[MASK_BYTES];

#define MAX_ROWS 2048
static int32_t indices[MAX_ROWS];

static void set(Case *c, int i, size_t n) {
  c->a[i] = draw(n);
  c->n[i] = n;
}

static inline void drop_arrays(Case *c) {
  for (int i = 0; i < ARRAYS; i++) mem_free(c->a[i]);
}

static Attention attention_of(const Case *c) {
  size_t width = c->heads * c->d;
  return (Attention){.sentences = c->sentences,
                     .heads = c->heads,
                     .d = c->d,
                     .q_off = c->off_q,
                     .k_off = c->off_k,
                     .q_ld = width + c->gap,
                     .kv_ld = 2 * width,
                     .o_ld = width,
                     .q_rows = c->q_rows,
                     .causal = c->causal,
                     .drop = c->drop};
}

/* Returns the address of element n of an array of the backend's type. */
static void *from(const Backend *b, const float *array, size_t n) {
  return (char *)(uintptr_t)array + n * type_size(b->type);
}

static AddNorm norm_of(const Case *c) {
  return (AddNorm){.rows = c->rows, .d = c->d, .epsilon = 1e-6f, .drop = c->drop};
}

static void do_linear(const Backend *b, Case *c) {
  b->linear(b, c->a[3], c->a[0], c->a[1], c->a[2], c->rows, c->in, c->out);
}
static void do_linear_dx(const Backend *b, Case *c) {
  b->linear_dx(b, c->a[0], c->a[3], c->a[1], c->rows, c->in, c->out, true);
}
static void do_linear_dw(const Backend *b, Case *c) {
  b->linear_dw(b, c->a[1], c->a[2], c->a[3], c->a[0], c->rows, c->in, c->out, true);
}
static void do_linear_dw_first(const Backend *b, Case *c) {
  b->linear_dw(b, c->a[1], c->a[2], c->a[3], c->a[0], c->rows, c->in, c->out, false);
}
static void do_embed(const Backend *b, Case *c) {
  b->embed(b, c->a[2], c->a[0], c->a[1], c->id, c->pos, c->rows, c->d, 3, c->drop);
}
static void do_embed_back(const Backend *b, Case *c) {
  b->embed_backward(b, c->a[0], c->a[1], c->a[2], c->id, c->pos, c->rows, c->d, 40, 64, 3,
                    c->drop);
}
static void do_add_norm(const Backend *b, Case *c) {
  AddNorm n = norm_of(c);
  b->add_norm(b, c->a[4], c->a[5], c->a[6], c->a[0], c->a[1], c->a[2], c->a[3], &n);
}
/* The backward reads results of the forward, which make_norm_back computes with the reference
 * backend. */
static void do_add_norm_back(const Backend *b, Case *c) {
  AddNorm n = norm_of(c);
  b->add_norm_backward(b, c->a[7], c->a[8], c->a[2], c->a[3], c->a[12], c->a[9], c->a[10],
                       c->a[4], c->a[6], c->a[11], &n, true);
}
static void do_add_norm_back_first(const Backend *b, Case *c) {
  AddNorm n = norm_of(c);
  b->add_norm_backward(b, c->a[7], c->a[8], c->a[2], c->a[3], c->a[12], c->a[9], c->a[10],
                       c->a[4], c->a[6], c->a[11], &n, false);
}
static void do_attend(const Backend *b, Case *c) {
  Attention a = attention_of(c);
  size_t width = c->heads * c->d;
  b->attend(b, c->a[2], c->a[3], c->a[0], c->a[1], from(b, c->a[1], width), &a);
}
static void do_attend_back(const Backend *b, Case *c) {
  Attention a = attention_of(c);
  size_t width = c->heads * c->d;
  b->attend_backward(b, c->a[4], c->a[5], from(b, c->a[5], width), c->a[6], c->a[2], c->a[3],
                     c->a[0], c->a[1], from(b, c->a[1], width), &a);
}
static void do_activate(const Backend *b, Case *c) {
  b->activate(b, c->a[1], c->act == ACT_RELU ? c->mask : NULL, c->a[0], NULL, c->rows, c->d,
              c->act, c->drop);
}
static void do_activate_bias(const Backend *b, Case *c) {
  b->activate(b, c->a[1], c->act == ACT_RELU ? c->mask : NULL, c->a[0], c->a[5], c->rows, c->d,
              c->act, c->drop);
}
/* Converts the ReLU mask to floats, so that it can be compared. */
static void do_mask(const Backend *b, Case *c) {
  static uint8_t bits[MASK_BYTES];
  size_t n = c->n[0];
  b->activate(b, c->a[1], c->mask, c->a[0], NULL, c->rows, c->d, ACT_RELU, c->drop);
  assert_int_equal(b->get(b, bits, c->mask, (n + 7) / 8), ERR_OK);
  float *number = draw(n);
  for (size_t i = 0; i < n; i++) number[i] = (float)(bits[i / 8] >> i % 8 & 1);
  b->put(b, c->a[3], number, n * sizeof *number);
  mem_free(number);
}
/* Returns what activate_backward reads: x, or the mask of a forward pass that is run here. */
static const void *kept_of(const Backend *b, Case *c, int x, int y) {
  if (c->act != ACT_RELU) return c->a[x];
  b->activate(b, c->a[y], c->mask, c->a[x], NULL, c->rows, c->d, c->act, c->drop);
  return c->mask;
}
static void do_activate_back(const Backend *b, Case *c) {
  const void *kept = kept_of(b, c, 0, 3);
  b->activate_backward(b, c->a[2], c->a[4], c->a[1], kept, c->rows, c->d, c->act, c->drop,
                       true);
}
static void do_loss(const Backend *b, Case *c) {
  b->loss(b, c->a[0], c->sums ? c->sums : c->loss, c->id, c->rows, c->out, 0.1f, 0.5f);
}
/* The activations that `act` of a shape does not select. */
static void do_tanh(const Backend *b, Case *c) {
  b->activate(b, c->a[1], NULL, c->a[0], c->a[5], c->rows, c->d, ACT_TANH, c->drop);
}
static void do_tanh_back(const Backend *b, Case *c) {
  b->activate_backward(b, c->a[2], c->a[4], c->a[1], c->a[0], c->rows, c->d, ACT_TANH, c->drop,
                       true);
}
static void do_dropout(const Backend *b, Case *c) {
  b->activate(b, c->a[1], NULL, c->a[0], c->a[5], c->rows, c->d, ACT_NONE, c->drop);
}
static void do_dropout_back(const Backend *b, Case *c) {
  b->activate_backward(b, c->a[2], c->a[4], c->a[1], NULL, c->rows, c->d, ACT_NONE, c->drop,
                       false);
}
static void do_gather_rows(const Backend *b, Case *c) {
  b->gather_rows(b, c->a[1], c->a[0], c->index, c->rows, c->d);
}
static void do_scatter_rows(const Backend *b, Case *c) {
  b->scatter_rows(b, c->a[0], c->a[1], c->index, c->rows, c->n[0] / c->d, c->d);
}
static void run_head_loss(const Backend *b, Case *c, HeadKind kind, int weight, float scale) {
  HeadLoss h = {.kind = kind,
                .rows = c->rows,
                .labels = c->out,
                .weight = weight ? c->a[weight] : NULL,
                .smoothing = 0.1f,
                .scale = scale};
  b->head_loss(b, c->a[0], c->sums ? c->sums : c->loss, c->a[1], &h);
}
static void do_head_softmax(const Backend *b, Case *c) {
  run_head_loss(b, c, HEAD_SOFTMAX, 0, 0.5f);
}
static void do_head_softmax_weighted(const Backend *b, Case *c) {
  run_head_loss(b, c, HEAD_SOFTMAX, 2, 0.5f);
}
static void do_head_sigmoid(const Backend *b, Case *c) {
  run_head_loss(b, c, HEAD_SIGMOID, 0, 0.5f);
}
static void do_head_sigmoid_weighted(const Backend *b, Case *c) {
  run_head_loss(b, c, HEAD_SIGMOID, 2, 0.5f);
}
static void do_head_square(const Backend *b, Case *c) {
  run_head_loss(b, c, HEAD_SQUARE, 2, 0.5f);
}
static void do_head_no_gradient(const Backend *b, Case *c) {
  run_head_loss(b, c, HEAD_SOFTMAX, 2, 0);
}
static void do_square_sums(const Backend *b, Case *c) {
  static double sums[256]; /* sums of squares of at most 2048 x 512 elements */
  b->square_sums(b, sums, c->a[0], c->n[0]);
  for (size_t i = 0; i * NORM_UNIT < c->n[0]; i++) {
    float sum = (float)sums[i];
    b->put(b, c->a[1] + i, &sum, sizeof sum);
  }
}
static void do_add(const Backend *b, Case *c) {
  b->add(b, c->a[0], c->a[1], 0.3f, c->n[0]);
}
/* Allocates the scalars of a step in the backend's memory. */
static StepNumbers *make_numbers(const Backend *b, float lr) {
  StepNumbers *there,
      now = {.lr = lr, .correction1 = 0.1f, .correction2 = 0.02f, .grad_scale = 0.5f};
  assert_int_equal(b->alloc(b, &there, sizeof *there), ERR_OK);
  b->put(b, there, &now, sizeof now);
  return there;
}
static void run_adam(const Backend *b, Case *c, bool coupled) {
  StepNumbers *now = make_numbers(b, 1e-3f);
  AdamStep s = {.beta1 = 0.9f,
                .beta2 = 0.98f,
                .epsilon = 1e-9f,
                .decay = 0.01f,
                .coupled = coupled,
                .now = now,
                .lr_factor = 0.75f};
  b->adam(b, c->a[0], c->a[1], c->a[2], c->a[3], c->n[0], &s);
  b->release(b, now);
}
static void do_adam(const Backend *b, Case *c) {
  run_adam(b, c, false);
}
static void do_adam_coupled(const Backend *b, Case *c) {
  run_adam(b, c, true);
}
/* More ranges than a launch on a GPU takes, of 0 to 60 elements; the array begins inside of one. */
static void do_adam_ranges(const Backend *b, Case *c) {
  enum { RANGES = 300, BEGIN = 20 };
  AdamRange range[RANGES] = {{0}};
  for (size_t i = 0, at = 0; i < RANGES; i++) {
    size_t end = i + 1 < RANGES ? at + i * 7 % 16 * ADAM_ALIGN : SIZE_MAX / 2;
    range[i] = (AdamRange){.begin = at, .end = end, .decays = i % 3, .is_frozen = i % 5 == 4};
    range[i].lr_factor = 1 / (float)(1 + i % 7);
    at = end;
  }
  StepNumbers *now = make_numbers(b, 1e-3f);
  AdamStep s = {.beta1 = 0.9f, .beta2 = 0.98f, .epsilon = 1e-9f, .decay = 0.01f, .now = now};
  s.range = range;
  s.ranges = RANGES;
  s.begin = BEGIN;
  b->adam(b, c->a[0], c->a[1], c->a[2], c->a[3], c->n[0], &s);
  b->release(b, now);
}
static void do_momentum(const Backend *b, Case *c) {
  StepNumbers *now = make_numbers(b, 0.1f);
  MomentumStep s = {
      .beta = 0.9f, .decay = 0.01f, .now = now, .lr = 9, .scale = 9, .lr_factor = 0.75f};
  b->momentum(b, c->a[0], c->a[1], c->a[2], c->n[0], &s);
  b->release(b, now);
}
static void do_ema(const Backend *b, Case *c) {
  StepNumbers *now = make_numbers(b, 0);
  b->ema(b, c->a[0], c->a[1], 0.7, c->n[0], now);
  b->release(b, now);
}

static void make_linear(Case *c) {
  set(c, 0, c->rows * c->in), set(c, 1, c->out * c->in), set(c, 2, c->out),
      set(c, 3, c->rows * c->out);
}
static void make_embed(Case *c) {
  set(c, 0, 40 * c->d);
  set(c, 1, 64 * c->d);
  set(c, 2, c->rows * c->d);
}
static void make_norm(Case *c) {
  for (int i = 0; i < ARRAYS; i++)
    set(c, i, i == 2 || i == 3 || i >= 11 ? c->d : i == 6 ? 2 * c->rows : c->rows * c->d);
}
static void make_norm_back(Case *c) {
  Backend reference;
  backend_reference(&reference);
  make_norm(c);
  do_add_norm(&reference, c);
}
static void make_attend(Case *c) {
  size_t width = c->heads * c->d, rows = (size_t)c->off_q[c->sentences],
         keys = (size_t)c->off_k[c->sentences];
  set(c, 0, rows * (width + c->gap)), set(c, 1, keys * 2 * width), set(c, 2, rows * width),
      set(c, 3, rows * c->heads);
  set(c, 4, rows * (width + c->gap));
  set(c, 5, keys * 2 * width);
  set(c, 6, rows * width);
}
static void make_attend_back(Case *c) {
  Backend reference;
  backend_reference(&reference);
  make_attend(c);
  do_attend(&reference, c);
}
static void make_flat(Case *c) {
  for (int i = 0; i < 4; i++) set(c, i, c->rows * c->d);
}
static void make_flat_back(Case *c) {
  make_flat(c);
  set(c, 4, c->d);
  set(c, 5, c->d);
}
static void make_adam(Case *c) {
  make_flat(c);
  /* The second moment, a sum of squares, must not be negative. */
  for (size_t i = 0; i < c->n[2]; i++) c->a[2][i] = fabsf(c->a[2][i]);
}
static void make_loss(Case *c) {
  if (c->out < 2) c->out = 5; /* A softmax over one class has no loss. */
  set(c, 0, c->rows * c->out);
}

/* Rows by index: every fifth index is negative, the others are distinct and not in order. */
static void make_rows(Case *c) {
  size_t tokens = 2 * c->rows + 3;
  set(c, 0, tokens * c->d);
  set(c, 1, c->rows * c->d);
  c->index = indices;
  for (size_t r = 0; r < c->rows && r < MAX_ROWS; r++)
    indices[r] = r % 5 == 3 ? -1 : (int32_t)(tokens - 1 - 2 * r);
}
static void make_head(Case *c) {
  make_loss(c);
  set(c, 1, c->rows * c->out);
  set(c, 2, c->out);
  for (size_t i = 0; i < c->out; i++) c->a[2][i] = fabsf(c->a[2][i]) + 0.1f;
}
/* Class numbers; every seventh row has no loss. */
static void make_head_softmax(Case *c) {
  make_head(c);
  for (size_t r = 0; r < c->rows; r++)
    c->a[1][r] = r % 7 == 4 ? -1 : (float)rng_below(&rng, c->out);
}
/* Labels 0 and 1, and some between. */
static void make_head_sigmoid(Case *c) {
  make_head(c);
  for (size_t i = 0; i < c->n[1]; i++)
    c->a[1][i] = i % 6 == 5 ? 0.3f : (float)rng_below(&rng, 2);
}

/* Tolerances relative to the norm of an array, in units of fp32 rounding (2^-24). */
static const struct {
  const char *name;
  void (*make)(Case *);
  void (*run)(const Backend *, Case *);
  double units;
  bool is_gemm; /* --precision bf16 rounds the operands of this operation */
  unsigned low; /* bit i: array i has the backend's type instead of float */
} ops[] = {
    {"linear", make_linear, do_linear, 20, true, 0x00f},
    {"linear_dx", make_linear, do_linear_dx, 20, true, 0x00f},
    {"linear_dw", make_linear, do_linear_dw, 20, true, 0x009},
    {"linear_dw, the first", make_linear, do_linear_dw_first, 20, true, 0x009},
    {"embed", make_embed, do_embed, 4, false, 0x005},
    {"embed_backward", make_embed, do_embed_back, 8, false, 0x004},
    {"add_norm", make_norm, do_add_norm, 16, false, 0x033},
    {"add_norm_backward", make_norm_back, do_add_norm_back, 32, false, 0x7b3},
    {"add_norm_backward, the first", make_norm_back, do_add_norm_back_first, 32, false, 0x7b3},
    {"attend", make_attend, do_attend, 32, false, 0x007},
    {"attend_backward", make_attend_back, do_attend_back, 64, false, 0x077},
    {"activate", make_flat, do_activate, 16, false, 0x00f},
    {"activate with a bias", make_flat_back, do_activate_bias, 16, false, 0x02f},
    {"activate's mask", make_flat, do_mask, 4, false, 0x007},
    {"activate_backward", make_flat_back, do_activate_back, 16, false, 0x00f},
    {"activate, tanh", make_flat_back, do_tanh, 16, false, 0x02f},
    {"activate_backward, tanh", make_flat_back, do_tanh_back, 16, false, 0x00f},
    {"activate, dropout alone", make_flat_back, do_dropout, 4, false, 0x02f},
    {"activate_backward, dropout alone", make_flat_back, do_dropout_back, 16, false, 0x00f},
    {"gather_rows", make_rows, do_gather_rows, 0, false, 0x003},
    {"scatter_rows", make_rows, do_scatter_rows, 0, false, 0x003},
    {"loss", make_loss, do_loss, 32, false, 0x001},
    {"head_loss, softmax", make_head_softmax, do_head_softmax, 32, false, 0x001},
    {"head_loss, softmax, weights", make_head_softmax, do_head_softmax_weighted, 32, false,
     0x001},
    {"head_loss, sigmoid", make_head_sigmoid, do_head_sigmoid, 32, false, 0x001},
    {"head_loss, sigmoid, weights", make_head_sigmoid, do_head_sigmoid_weighted, 32, false,
     0x001},
    {"head_loss, square", make_head, do_head_square, 32, false, 0x001},
    {"head_loss, no gradient", make_head_softmax, do_head_no_gradient, 32, false, 0x001},
    {"square_sums", make_flat, do_square_sums, 4, false, 0x000},
    {"add", make_flat, do_add, 4, false, 0x000},
    {"adam", make_adam, do_adam, 8, false, 0x000},
    {"adam_coupled", make_adam, do_adam_coupled, 8, false, 0x000},
    {"adam_ranges", make_adam, do_adam_ranges, 8, false, 0x000},
    {"momentum", make_flat, do_momentum, 8, false, 0x000},
    {"ema", make_flat, do_ema, 8, false, 0x000},
};
#define OPS (sizeof ops / sizeof *ops)

static int32_t ids[512], positions[512];
static const uint64_t drop_key = 0x123456789abcdefu;
static int32_t off_q[] = {0, 7, 8, 41, 77, 177}, off_k[] = {0, 9, 12, 45, 70, 171};

static inline Case shape(int which) {
  static const size_t table[][5] = {
      {77, 96, 130, 64, 4}, {33, 17, 7, 24, 3}, {128, 64, 256, 128, 2}, {1, 1, 1, 5, 1}};
  Case c = {.rows = table[which][0],
            .in = table[which][1],
            .out = table[which][2],
            .d = table[which][3],
            .heads = table[which][4]};
  c.id = ids;
  c.pos = positions;
  c.off_q = off_q;
  c.off_k = which % 2 ? off_q : off_k;
  c.causal = which % 2;
  c.sentences = which == 3 ? 2 : 5;
  c.gap = 3;
  c.q_rows = (size_t)off_q[c.sentences];
  c.act = (Activation)(which % 3);
  c.mask = masks;
  c.drop = (Dropout){&drop_key, 3, which == 2 ? 0 : 0.1f};
  for (size_t i = 0; i < 512; i++) {
    ids[i] = (int32_t)rng_below(&rng, c.out < 40 ? c.out : 40);
    positions[i] = (int32_t)(i % 64);
  }
  return c;
}

static inline double off_by(const Case *a, const Case *b) {
  double worst = 0;
  for (int i = 0; i < ARRAYS; i++) {
    double error = 0, size = 0;
    for (size_t k = 0; k < a->n[i]; k++) {
      double d = (double)a->a[i][k] - b->a[i][k];
      error += d * d;
      size += (double)b->a[i][k] * b->a[i][k];
    }
    error = sqrt(error / (size + 1e-12));
    /* the negated comparison is also true if `error` is NaN */
    if (!(error <= worst)) worst = error;
  }
  for (int i = 0; i < 3; i++) {
    double error = fabs(a->loss[i] - b->loss[i]) / (fabs(b->loss[i]) + 1e-6);
    if (b->loss[i] != 0 && !(error <= worst)) worst = error;
  }
  return worst;
}

#endif
