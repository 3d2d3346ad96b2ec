/* TimedBackend: operations and bytes compared with numbers computed by hand, the source of the
 * times, the bits of a step, and allocation failures. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backend/timed.h"
#include "base/mem.h"
#include "model/transformer.h"
#include "support.h"

static void open_timed(TimedBackend *c, Backend *inner) {
  OK(backend_cpu(inner, 1, false));
  OK(timed_open(c, inner));
}

/* Checks the work that was counted for one kind since the last call, and resets it. */
static void assert_work(TimedBackend *c, WorkKind kind, uint64_t calls, double operations,
                        double bytes) {
  Work *w = &c->work[kind];
  assert_int_equal(w->calls, calls);
  assert_true(w->operations == operations);
  assert_true(w->bytes == bytes);
  assert_true(w->seconds >= 0);
  *w = (Work){0};
}

static void test_timed_gemms_count_operations_and_bytes(void **state) {
  (void)state;
  TimedBackend c;
  Backend inner;
  float x[15] = {1}, w[35] = {1}, y[21], bias[7] = {0};
  open_timed(&c, &inner);
  const Backend *b = &c.backend;
  timed_begin(&c);
  b->linear(b, y, x, w, NULL, 3, 5, 7);
  OK(timed_end(&c));
  assert_work(&c, WORK_LINEAR, 1, 2 * 3 * 5 * 7, 4 * (15 + 35 + 21));
  timed_begin(&c);
  b->linear(b, y, x, w, bias, 3, 5, 7);
  b->linear_dx(b, x, y, w, 3, 5, 7, false);
  b->linear_dw(b, w, NULL, y, x, 3, 5, 7, true);
  OK(timed_end(&c));
  assert_work(&c, WORK_LINEAR, 1, 210, 4 * (15 + 35 + 21 + 7));
  assert_work(&c, WORK_DGRAD, 1, 210, 4 * (21 + 35 + 15));
  assert_work(&c, WORK_WGRAD, 1, 210, 4 * (21 + 15 + 2 * 35));
  timed_begin(&c);
  b->linear_dx(b, x, y, w, 3, 5, 7, true);
  b->linear_dw(b, w, bias, y, x, 3, 5, 7, true);
  OK(timed_end(&c));
  assert_work(&c, WORK_DGRAD, 1, 210, 4 * (21 + 35 + 2 * 15));
  assert_work(&c, WORK_WGRAD, 1, 210, 4 * (21 + 15 + 2 * 35 + 2 * 7));
  timed_begin(&c);
  b->linear_dw(b, w, bias, y, x, 3, 5, 7, false);
  OK(timed_end(&c));
  assert_work(&c, WORK_WGRAD, 1, 210, 4 * (21 + 15 + 35 + 7));
  assert_int_equal(c.periods, 4);
  timed_close(&c);
}

/* A fake bf16 device whose event i has the time i * i seconds. */
static size_t last_stamp;

static void fake_stamp(const Backend *b, size_t i) {
  (void)b;
  last_stamp = i;
}

static Err fake_stamps(const Backend *b, double *seconds, size_t n) {
  (void)b;
  for (size_t i = 0; i < n; i++) seconds[i] = (double)(i * i);
  return ERR_OK;
}

static void skip_linear(const Backend *b, void *y, const void *x, const void *w,
                        const void *bias, size_t rows, size_t in, size_t out) {
  (void)b;
  (void)y;
  (void)x;
  (void)w;
  (void)bias;
  (void)rows;
  (void)in;
  (void)out;
}

static void skip_lower(const Backend *b, void *low, const float *full, size_t n) {
  (void)b;
  (void)low;
  (void)full;
  (void)n;
}

static void test_timed_device_uses_its_events(void **state) {
  (void)state;
  TimedBackend c;
  Backend inner;
  float x[8], y[8];
  OK(backend_cpu(&inner, 1, false));
  inner.type = TYPE_BF16;
  inner.host = false;
  inner.linear = skip_linear;
  inner.lower = skip_lower;
  inner.stamp = fake_stamp;
  inner.stamps = fake_stamps;
  OK(timed_open(&c, &inner));
  assert_true(last_stamp >= 1024); /* timed_open has created events */
  const Backend *b = &c.backend;
  timed_begin(&c);
  b->linear(b, y, x, x, NULL, 3, 5, 7); /* from second 1 to 4 */
  b->zero(b, y, 12);                    /* from second 9 to 16 */
  b->linear(b, y, x, x, NULL, 3, 5, 7); /* from second 25 to 36 */
  b->lower(b, y, x, 8);                 /* from second 49 to 64 */
  assert_int_equal(last_stamp, 8);
  OK(timed_end(&c)); /* at second 81 */
  assert_true(c.work[WORK_LINEAR].seconds == 3 + 11);
  assert_true(c.work[WORK_MOVE].seconds == 7);
  assert_true(c.work[WORK_UPDATE].seconds == 15);
  assert_true(c.seconds == 81);
  assert_work(&c, WORK_LINEAR, 2, 420, 2 * 2 * (15 + 35 + 21));
  assert_work(&c, WORK_MOVE, 1, 0, 12);
  assert_work(&c, WORK_UPDATE, 1, 0, 8 * 4 + 8 * 2);
  timed_begin(&c);
  /* Source and destination are the same array, so no bytes are counted. */
  b->lower(b, x, x, 8);
  OK(timed_end(&c));
  assert_work(&c, WORK_UPDATE, 1, 0, 0);
  timed_close(&c);
}

/* Counts the pairs of a query and a visible key one by one. */
static double count_pairs(const Attention *a) {
  double pairs = 0;
  for (size_t s = 0; s < a->sentences; s++) {
    int keys = a->k_len ? a->k_len[s] : a->k_off[s + 1] - a->k_off[s];
    for (int i = 0; i < a->q_off[s + 1] - a->q_off[s]; i++)
      for (int j = 0; j < keys; j++) pairs += !a->causal || j <= i;
  }
  return pairs;
}

static void check_attention(const int32_t *q_off, const int32_t *k_off, const int32_t *k_len,
                            bool causal, double keys) {
  enum { HEADS = 2, D = 4, ROWS = 16, WIDTH = HEADS * D };
  static float q[ROWS * WIDTH], k[ROWS * WIDTH], v[ROWS * WIDTH], o[ROWS * WIDTH],
      lse[ROWS * HEADS], dq[ROWS * WIDTH], dk[ROWS * WIDTH], dv[ROWS * WIDTH];
  TimedBackend c;
  Backend inner;
  Attention a = {.sentences = 3, .heads = HEADS, .d = D, .q_off = q_off, .k_off = k_off};
  a.k_len = k_len;
  a.q_ld = a.kv_ld = a.o_ld = WIDTH;
  a.causal = causal;
  a.q_rows = (size_t)q_off[3];
  backend_reference(&inner);
  OK(timed_open(&c, &inner));
  timed_begin(&c);
  c.backend.attend(&c.backend, o, lse, q, k, v, &a);
  c.backend.attend_backward(&c.backend, dq, dk, dv, o, o, lse, q, k, v, &a);
  OK(timed_end(&c));
  double queries = q_off[3];
  assert_work(&c, WORK_ATTEND, 1, 4 * count_pairs(&a) * WIDTH,
              4 * (2 * (queries + keys) * WIDTH + queries * HEADS));
  assert_work(&c, WORK_ATTEND_BACKWARD, 1, 10 * count_pairs(&a) * WIDTH,
              4 * (4 * (queries + keys) * WIDTH + queries * HEADS));
  timed_close(&c);
}

static void test_timed_attention_counts_visible_pairs(void **state) {
  (void)state;
  static const int32_t source[] = {0, 4, 6, 12}, target[] = {0, 3, 10, 12}, len[] = {2, 1, 5};
  check_attention(source, source, NULL, false, 12);
  check_attention(target, target, NULL, true, 12);
  check_attention(target, source, NULL, false, 12);
  check_attention(target, source, NULL, true, 12); /* more queries than keys, and fewer */
  check_attention(target, source, len, false, 8);
}

/* A fake fused linear_relu_backward of a device. */
static void relu_back(const Backend *b, void *dx, float *dbias, const void *dy, const void *w,
                      const uint8_t *mask, size_t rows, size_t in, size_t out, Dropout drop,
                      bool add) {
  b->linear_dx(b, dx, dy, w, rows, in, out, false);
  b->activate_backward(b, dx, dbias, dx, mask, rows, in, ACT_RELU, drop, add);
}

static void test_timed_linear_relu_backward_counts_as_dgrad(void **state) {
  (void)state;
  TimedBackend c;
  Backend inner;
  float dy[6] = {1, 2, 3, 4, 5, 6}, w[24], dx[16], dbias[8] = {0};
  const uint8_t mask[2] = {0x01, 0x80};
  for (int i = 0; i < 24; i++) w[i] = (float)i;
  open_timed(&c, &inner);
  const Backend *b = &c.backend;
  assert_null(b->fuses_relu); /* The CPU backend does not fuse this operation. */
  inner.linear_relu_backward = relu_back;
  timed_begin(&c);
  b->linear_relu_backward(b, dx, dbias, dy, w, mask, 2, 8, 3, (Dropout){0}, false);
  b->linear_relu_backward(b, dx, dbias, dy, w, mask, 2, 8, 3, (Dropout){0}, true);
  OK(timed_end(&c));
  assert_true(dbias[0] == 2 * dx[0] && dx[0] == 0 * 1 + 8 * 2 + 16 * 3);
  assert_true(dbias[7] == 2 * dx[15] && dx[15] == 7 * 4 + 15 * 5 + 23 * 6 && dx[7] == 0);
  assert_work(&c, WORK_DGRAD, 2, 2 * 2 * 2 * 8 * 3,
              2 * (4 * (6 + 24 + 16) + 16 / 8) + (4 + 8) * 8);
  timed_close(&c);
}

/* A fake fused linear_relu_dropout of a device. */
static void relu_forth(const Backend *b, void *y, uint8_t *mask, const void *x, const void *w,
                       const void *bias, size_t rows, size_t in, size_t out, Dropout drop) {
  b->linear(b, y, x, w, NULL, rows, in, out);
  b->activate(b, y, mask, y, bias, rows, out, ACT_RELU, drop);
}

static void test_timed_linear_relu_counts_as_linear(void **state) {
  (void)state;
  TimedBackend c;
  Backend inner;
  float x[6] = {1, 0, -1, 0, 1, 0}, w[24], bias[8] = {0}, y[16], gain[3] = {0}, stat[4];
  uint8_t mask[2], bits[2];
  AddNorm n = {.rows = 2, .d = 3, .epsilon = 1e-6f, .ahead = bits, .ahead_width = 8};
  for (int i = 0; i < 24; i++) w[i] = (float)(i % 5);
  bias[7] = -9;
  open_timed(&c, &inner);
  const Backend *b = &c.backend;
  assert_null(b->fuses_linear_relu_dropout); /* The CPU backend does not fuse this operation. */
  inner.linear_relu_dropout = relu_forth;
  timed_begin(&c);
  b->linear_relu_dropout(b, y, mask, x, w, bias, 2, 3, 8, (Dropout){0});
  b->add_norm(b, NULL, x, stat, x, NULL, gain, gain, &n);
  OK(timed_end(&c));
  assert_true(y[3] == 3 && y[0] == 0 && y[15] == 0 && y[9] == 4);
  assert_work(&c, WORK_LINEAR, 1, 2 * 2 * 3 * 8, 4 * (6 + 24 + 8 + 16) + 2 * 16 / 8);
  assert_work(&c, WORK_NORM, 1, 0, 4 * 2 * 6 + 8 * 2 + 8 * 3 + 16 / 8);
  timed_close(&c);
}

/* Fake operations of linear_loss of a device, which must be called in this order. */
static int loss_calls;
static void fused_loss(const Backend *b, const LinearLoss *j) {
  assert_true(!b->timer && j->vocab == 8);
  assert_int_equal(loss_calls++ % 3, 0);
}
static void fused_loss_dx(const Backend *b, const LinearLoss *j) {
  assert_true(!b->timer && j->vocab == 8);
  assert_int_equal(loss_calls++ % 3, 1);
}
static void fused_loss_dw(const Backend *b, const LinearLoss *j) {
  assert_true(!b->timer && j->vocab == 8);
  assert_int_equal(loss_calls++ % 3, 2);
}

static void test_timed_linear_loss_counts_as_gemms(void **state) {
  (void)state;
  TimedBackend c;
  Backend inner;
  LinearLoss j = {.rows = 2, .in = 3, .vocab = 8};
  open_timed(&c, &inner);
  const Backend *b = &c.backend;
  assert_null(b->fuses_loss); /* The CPU backend does not fuse this operation. */
  inner.linear_loss = fused_loss;
  inner.linear_loss_dx = fused_loss_dx;
  inner.linear_loss_dw = fused_loss_dw;
  timed_begin(&c);
  for (int i = 0; i < 2; i++) {
    j.accumulate = i == 1;
    b->linear_loss(b, &j);
    b->linear_loss_dx(b, &j);
    b->linear_loss_dw(b, &j);
  }
  OK(timed_end(&c));
  assert_int_equal(loss_calls, 6);
  double gemm = 2 * 2 * 3 * 8, all = 6 + 24 + 16;
  assert_work(&c, WORK_LINEAR, 2, 2 * gemm, 2 * (4 * all + 4 * 2));
  assert_work(&c, WORK_DGRAD, 2, 2 * gemm, 2 * 4 * all);
  assert_work(&c, WORK_WGRAD, 2, 2 * gemm, 2 * 4 * (6 + 16) + (4 + 8) * 24);
  timed_close(&c);
}

static void test_timed_other_operations_count_bytes(void **state) {
  (void)state;
  TimedBackend c;
  Backend inner;
  float a[24] = {0}, w[24] = {0}, m[24] = {0}, v[24] = {0}, e[24], stat[6], gain[4] = {1},
        bias[4] = {0}, dgain[4] = {0}, dbias[4] = {0}, dshift[16] = {0};
  uint8_t mask[2];
  const int32_t id[] = {1, 0, 5}, position[] = {0, 1, 2};
  double sums[3] = {0}, losses[3] = {0};
  StepNumbers now = {.grad_divisor = 1, .correction1 = 1, .correction2 = 1};
  AddNorm n = {.rows = 3, .d = 4, .epsilon = 1e-6f};
  open_timed(&c, &inner);
  const Backend *b = &c.backend;
  timed_begin(&c);
  b->add_norm(b, NULL, e, stat, a, NULL, gain, bias, &n);
  b->add_norm(b, m, e, stat, a, w, gain, bias, &n);
  b->add_norm_backward(b, e, NULL, dgain, dbias, NULL, a, NULL, m, stat, gain, &n, true);
  b->add_norm_backward(b, e, v, dgain, dbias, dshift, a, w, m, stat, gain, &n, false);
  b->activate(b, e, NULL, a, NULL, 2, 4, ACT_GELU, (Dropout){0});
  b->activate(b, e, mask, a, w, 2, 8, ACT_RELU, (Dropout){0});
  b->activate_backward(b, e, NULL, a, w, 2, 4, ACT_GELU, (Dropout){0}, true);
  b->activate_backward(b, e, dshift, a, mask, 2, 8, ACT_RELU, (Dropout){0}, true);
  b->embed(b, e, w, a, id, position, 3, 4, 1, (Dropout){0});
  b->embed_backward(b, w, NULL, e, id, position, 3, 4, 6, 3, 1, (Dropout){0});
  b->loss(b, a, sums, id, 3, 8, 0, 0);
  b->loss(b, a, sums, id, 3, 8, 0, 1);
  b->activate(b, e, NULL, a, NULL, 2, 4, ACT_NONE, (Dropout){0});
  b->activate_backward(b, e, NULL, a, NULL, 2, 4, ACT_NONE, (Dropout){0}, false);
  b->head_loss(b, a, sums, w, &(HeadLoss){.kind = HEAD_SOFTMAX, .rows = 3, .labels = 8});
  b->head_loss(b, a, sums, w,
               &(HeadLoss){HEAD_SIGMOID, .rows = 3, .labels = 8, .weight = w, .scale = 1});
  b->square_sums(b, sums, a, 24);
  b->clip(b, &now, sums, 1, losses);
  b->adam(b, w, m, v, a, 24, &(AdamStep){.epsilon = 1, .now = &now});
  b->momentum(b, w, m, a, 24, &(MomentumStep){.now = &now});
  b->ema(b, e, w, 0.5, 24, &now);
  b->add(b, w, a, 1, 24);
  b->lower(b, w, w, 24);
  b->copy(b, e, a, 96);
  b->zero(b, e, 96);
  b->put(b, e, a, 96);
  OK(b->get(b, e, a, 96));
  b->gather_rows(b, e, a, position, 2, 4);
  b->scatter_rows(b, e, a, position, 2, 5, 4);
  OK(timed_end(&c));
  assert_work(&c, WORK_NORM, 2, 0, 4 * (2 + 4) * 12 + 2 * (3 * 8 + 4 * 8));
  assert_work(&c, WORK_NORM_BACKWARD, 2, 0, 4 * (3 + 5) * 12 + 2 * 3 * 8 + 4 * (20 + 16));
  assert_work(&c, WORK_ACTIVATE, 3, 0, 2 * 4 * (8 + 8 + 16) + 16 / 8 + 4 * 8);
  assert_work(&c, WORK_ACTIVATE_BACKWARD, 3, 0,
              3 * 4 * 8 + 2 * 4 * 8 + 2 * 4 * 16 + 16 / 8 + 8 * 8);
  assert_work(&c, WORK_EMBED, 2, 0, 4 * (2 + 3) * 12 + 2 * 3 * 8);
  assert_work(&c, WORK_LOSS, 4, 0, 2 * 4 * (1 + 2) * 24 + 2 * 3 * 4 + 4 * 3 + 4 * 24 + 4 * 8);
  assert_work(&c, WORK_UPDATE, 7, 0, (4 + 28 + 20 + 12 + 12) * 24 + 8);
  assert_work(&c, WORK_MOVE, 6, 0, 2 * 96 + 96 + 2 * 96 + 2 * 96 + 4 * (16 + 2) + 4 * (28 + 2));
  timed_close(&c);
}

static int32_t src[] = {5, 6, 7, 1, 9, 1, 11, 12, 13, 14, 15, 1},
               src_pos[] = {0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4, 5}, src_off[] = {0, 4, 6, 12},
               tgt_in[] = {2, 21, 22, 2, 8, 9, 10, 11, 4, 6, 2, 17},
               tgt_out[] = {21, 22, 1, 8, 9, 10, 11, 4, 6, 1, 17, 1},
               tgt_pos[] = {0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 0, 1}, tgt_off[] = {0, 3, 10, 12};
static const Batch batch = {.capacity = 12,
                            .sentences = 3,
                            .rows = {12, 12},
                            .src = src,
                            .src_pos = src_pos,
                            .src_off = src_off,
                            .tgt_in = tgt_in,
                            .tgt_out = tgt_out,
                            .tgt_pos = tgt_pos,
                            .tgt_off = tgt_off};
static const TransformerConfig config = {.vocab = 23,
                                         .d_model = 16,
                                         .ffn_dim = 24,
                                         .heads = 4,
                                         .layers = {2, 3},
                                         .max_positions = 12,
                                         .pre_norm = true,
                                         .drop_residual = 0.1f,
                                         .norm_epsilon = 1e-6f};

/* Returns the gradients of one step, timed by `c` if it is not NULL. */
static float *gradients(Transformer *t, const Backend *b, TimedBackend *c) {
  float *w, *g;
  /* The logits are computed in three parts. */
  OK(transformer_new(t, &config, b, batch.capacity, 5, true));
  OK(mem_alloc_aligned(&w, t->model.params.padded * sizeof *w));
  OK(mem_alloc_aligned(&g, t->model.params.padded * sizeof *g));
  params_init(&t->model.params, 1, w);
  if (c) {
    t->model.backend = &c->backend;
    timed_begin(c);
  }
  transformer_step(t, (Weights){w, w}, g, &batch, (StepKey){7, true, false}, 0.1f, 1, NULL,
                   NULL);
  if (c) OK(timed_end(c));
  t->model.backend = b;
  mem_free(w);
  return g;
}

/* A step through TimedBackend must give the same bits and count the operations that `bench train`
 * reports. */
static void test_timed_step_has_same_bits_and_known_counts(void **state) {
  (void)state;
  TimedBackend c;
  Backend inner;
  Transformer plain, timed;
  double rows = 12, d = 16, ff = 24, vocab = 23;
  double encoder = 2 * (4 * d * d + 2 * d * ff), decoder = 3 * (8 * d * d + 2 * d * ff);
  double products = 2 * rows * (encoder + decoder + vocab * d);
  /* Self-attention of the encoder: squares of 4, 2, 6. Of the decoder: lower triangles of 3, 7, 2
   * with the diagonal. Cross-attention: their products. */
  double self[2] = {16 + 4 + 36, 6 + 28 + 3}, cross = 3 * 4 + 7 * 2 + 2 * 6;
  double pairs = 2 * self[0] + 3 * (self[1] + cross);
  open_timed(&c, &inner);
  float *g = gradients(&plain, &inner, NULL), *same = gradients(&timed, &inner, &c);
  assert_memory_equal(g, same, plain.model.params.padded * sizeof *g);
  double sum = 0, spent = 0;
  for (int i = WORK_LINEAR; i <= WORK_WGRAD; i++) {
    assert_true(c.work[i].operations == products);
    sum += c.work[i].operations;
  }
  assert_true(sum == 3 * products);
  assert_true(c.work[WORK_ATTEND].operations == 4 * pairs * d);
  assert_true(c.work[WORK_ATTEND_BACKWARD].operations == 10 * pairs * d);
  for (int i = 0; i < WORK_KINDS; i++) spent += c.work[i].seconds;
  assert_true(spent > 0 && spent <= c.seconds * (1 + 1e-9));
  /* 4 GEMMs per encoder layer, 6 per decoder layer, one for keys and values of the encoder's
   * output, and three parts of the logits. */
  for (int i = WORK_LINEAR; i <= WORK_WGRAD; i++)
    assert_int_equal(c.work[i].calls, 2 * 4 + 3 * 6 + 1 + 3);
  assert_int_equal(c.work[WORK_ATTEND].calls, 2 + 2 * 3);
  assert_int_equal(c.work[WORK_ATTEND_BACKWARD].calls, 2 + 2 * 3);
  assert_int_equal(c.work[WORK_NORM].calls, 2 * 2 + 1 + 3 * 3 + 1);
  assert_int_equal(c.work[WORK_LOSS].calls, 3);
  assert_int_equal(c.work[WORK_EMBED].calls, 4);
  transformer_free(&plain);
  transformer_free(&timed);
  mem_free(g);
  mem_free(same);
  timed_close(&c);
}

static void test_timed_out_of_memory_is_reported(void **state) {
  (void)state;
  TimedBackend c;
  Backend inner;
  char byte = 0;
  OK(backend_cpu(&inner, 1, false));
  for (uint64_t i = 1; i <= 2; i++) {
    mem_fail_after(i);
    assert_int_equal(timed_open(&c, &inner), ERR_WORK);
    mem_fail_after(0);
  }
  OK(timed_open(&c, &inner));
  timed_begin(&c);
  for (int i = 0; i < 5000; i++) c.backend.zero(&c.backend, &byte, 1);
  OK(timed_end(&c));
  assert_work(&c, WORK_MOVE, 5000, 0, 5000);
  timed_close(&c);
  OK(timed_open(&c, &inner));
  timed_begin(&c);
  mem_fail_after(1);
  for (int i = 0; i < 5000; i++) c.backend.zero(&c.backend, &byte, 1);
  mem_fail_after(0);
  assert_int_equal(timed_end(&c), ERR_WORK);
  assert_says("memory");
  timed_close(&c);
  timed_close(&c); /* A second timed_close must have no effect. */
}

static void test_timed_list_records_calls_up_to_its_limit(void **state) {
  (void)state;
  TimedBackend c;
  Backend inner;
  float x[15] = {1}, w[35] = {1}, y[21];
  OK(backend_cpu(&inner, 1, false));
  OK(timed_open_list(&c, &inner, 2));
  uint64_t allocations = mem_count();
  timed_begin(&c);
  Backend copy = c.backend; /* a copy of the table is timed too */
  copy.zero(&copy, y, sizeof y);
  for (int i = 0; i < 3; i++) copy.linear(&copy, y, x, w, NULL, 3, 5, 7);
  assert_true(y[0] == 1); /* calls that are not recorded are executed */
  OK(timed_end(&c));
  assert_int_equal(mem_count(), allocations);
  assert_int_equal(c.calls, 2);
  assert_int_equal(c.dropped, 2);
  assert_int_equal(c.call[0].kind, WORK_MOVE);
  assert_int_equal(c.call[1].kind, WORK_LINEAR);
  assert_int_equal(c.call[1].shape[2], 7);
  assert_true(c.call[1].operations == 210);
  assert_true(c.at[1] <= c.at[2] && c.at[2] <= c.at[3] && c.at[3] <= c.at[4]);
  timed_begin(&c); /* begins an empty list */
  OK(timed_end(&c));
  assert_int_equal(c.calls, 0);
  assert_int_equal(c.dropped, 0);
  timed_close(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_timed_gemms_count_operations_and_bytes),
      cmocka_unit_test(test_timed_device_uses_its_events),
      cmocka_unit_test(test_timed_attention_counts_visible_pairs),
      cmocka_unit_test(test_timed_linear_relu_backward_counts_as_dgrad),
      cmocka_unit_test(test_timed_linear_loss_counts_as_gemms),
      cmocka_unit_test(test_timed_linear_relu_counts_as_linear),
      cmocka_unit_test(test_timed_other_operations_count_bytes),
      cmocka_unit_test(test_timed_step_has_same_bits_and_known_counts),
      cmocka_unit_test(test_timed_list_records_calls_up_to_its_limit),
      cmocka_unit_test(test_timed_out_of_memory_is_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
