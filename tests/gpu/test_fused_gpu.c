/* Compares fused operations (GEMMs with ReLU and dropout, their backward, the output layer with its
 * loss) with the single operations on the same GPU. Returns 77 if there is no GPU. Needs the plug-in
 * in TRIREME_PLUGIN_PATH. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arrays.h"

/* Compares linear_relu_backward with linear_dx and activate_backward on the same GPU. */
static void check_relu_backward(const Backend *b, const size_t shape[3], size_t askew) {
  size_t rows = shape[0], in = shape[1], out = shape[2];
  float *dy = draw_many(rows * out), *w = draw_many(in * out), *one = draw(in);
  float *dx[2] = {draw_many(rows * in), draw_many(rows * in)}, *db[2];
  uint8_t *mask, *mask_at;
  /* Backward needs only the rate, for the scale: the mask says which elements were dropped. */
  Dropout drop = {.rate = 0.1f};
  ok(mem_alloc(&mask, rows * in / 8, 1));
  for (size_t i = 0; i < rows * in / 8; i++) mask[i] = (uint8_t)(i * 40503 >> 7);
  ok(b->alloc(b, &mask_at, rows * in / 8));
  b->put(b, mask_at, mask, rows * in / 8);
  /* an unaligned dy, whose last elements are not used */
  const char *dy_at = upload(b, dy, rows * out, true),
             *from = dy_at + askew * type_size(b->type);
  void *w_at = upload(b, w, in * out, true);
  size_t used = rows - (askew ? 1 : 0);
  for (int way = 0; way < 2; way++) {
    void *dx_at = upload(b, dx[way], rows * in, true), *db_at = upload(b, one, in, false);
    if (way == 0) {
      b->linear_relu_backward(b, dx_at, db_at, from, w_at, mask_at, used, in, out, drop, true);
    } else {
      b->linear_dx(b, dx_at, from, w_at, used, in, out, false);
      b->activate_backward(b, dx_at, db_at, dx_at, mask_at, used, in, ACT_RELU, drop, true);
    }
    db[way] = draw(in);
    download(b, dx[way], dx_at, used * in, true);
    download(b, db[way], db_at, in, false);
    b->release(b, dx_at), b->release(b, db_at);
  }
  double off = apart(dx[0], dx[1], used * in), db_off = apart(db[0], db[1], in);
  if (!(off < 0.5 * rounding[b->type] && db_off < rounding[b->type]))
    fail_msg("%s: %zu rows, %zu in, %zu out: off by %g, %g", b->about, rows, in, out, off,
             db_off);
  b->release(b, mask_at), b->release(b, w_at), b->release(b, (void *)(uintptr_t)dy_at);
  mem_free(dy);
  mem_free(w);
  mem_free(one);
  mem_free(mask);
  for (int way = 0; way < 2; way++) mem_free(dx[way]), mem_free(db[way]);
}

static void test_linear_relu_backward_matches_two_operations(void **state) {
  (void)state;
  int fused = 0;
  for (int p = 0; p < 3; p++) {
    static const size_t shape[][3] = {{16411, 512, 512}, {8200, 1024, 1024}, {4099, 2048, 576}};
    Backend b;
    open_gpu(&b, precisions[p]);
    assert_false(b.fuses_relu(&b, 100, 512, 512)); /* too small for the fused kernel */
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
      if (!b.fuses_relu(&b, shape[i][0], shape[i][1], shape[i][2])) continue;
      check_relu_backward(&b, shape[i], 0);
      check_relu_backward(&b, shape[i], 1);
      fused++;
    }
    backend_close(&b);
  }
  if (fused == 0) skip(); /* only Hopper GPUs have the fused kernel */
  assert_int_equal(fused, 2 * 3);
}

/* Compares linear_relu_dropout, with bits from add_norm, with linear and activate on the same
 * GPU. */
static void check_relu_forward(const Backend *b, const size_t shape[3], float rate,
                               size_t askew) {
  size_t rows = shape[0], out = shape[1], in = shape[2], bytes = rows * out / 8, differ = 0;
  float *x = draw_many(rows * in), *w = draw_many(in * out), *bias = draw(out + 8),
        *ones = draw(in), *y[2] = {draw_many(rows * out), draw_many(rows * out)};
  static const uint64_t key = 99;
  uint8_t *mask[2], *mask_at;
  ok(b->alloc(b, &mask_at, bytes));
  Dropout drop = {.key = upload_key(b, &key), .site = 5, .rate = rate};
  const char *bias_at = upload(b, bias, out + 8, true);
  void *x_at = upload(b, x, rows * in, true), *w_at = upload(b, w, in * out, true),
       *gain_at = upload(b, ones, in, false), *norm_at = upload(b, x, rows * in, true),
       *stat_at = upload(b, y[0], 2 * rows, false);
  const void *from = bias_at + askew * type_size(b->type); /* an unaligned bias */
  AddNorm n = {.rows = rows, .d = in, .epsilon = 1e-6f, .ahead = mask_at, .ahead_width = out};
  n.ahead_drop = drop;
  for (int way = 0; way < 2; way++) {
    void *y_at = upload(b, y[way], rows * out, true);
    if (way == 0) {
      b->add_norm(b, NULL, norm_at, stat_at, x_at, NULL, gain_at, gain_at, &n);
      b->linear_relu_dropout(b, y_at, mask_at, norm_at, w_at, from, rows, in, out, drop);
    } else {
      b->linear(b, y_at, norm_at, w_at, NULL, rows, in, out);
      b->activate(b, y_at, mask_at, y_at, from, rows, out, ACT_RELU, drop);
    }
    ok(mem_alloc(&mask[way], bytes, 1));
    ok(b->get(b, mask[way], mask_at, bytes));
    download(b, y[way], y_at, rows * out, true);
    b->release(b, y_at);
  }
  for (size_t i = 0; i < bytes; i++)
    for (int bit = mask[0][i] ^ mask[1][i]; bit; bit &= bit - 1) differ++;
  /* A sum next to 0 may have another sign with another order of additions. */
  double off = apart(y[0], y[1], rows * out);
  if (!(off < 1.5 * rounding[b->type] && differ <= rows * out / 2000))
    fail_msg("%s: %zu rows, %zu in, %zu out: off by %g, %zu bits differ", b->about, rows, in,
             out, off, differ);
  const void *all[] = {mask_at, drop.key, x_at, w_at, gain_at, norm_at, stat_at, bias_at};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    b->release(b, (void *)(uintptr_t)all[i]);
  mem_free(x), mem_free(w), mem_free(bias), mem_free(ones);
  for (int way = 0; way < 2; way++) mem_free(y[way]), mem_free(mask[way]);
}

static void test_linear_relu_dropout_matches_two_operations(void **state) {
  (void)state;
  int fused = 0;
  for (int p = 0; p < 3; p++) {
    static const size_t shape[][3] = {{16411, 512, 512}, {8200, 1024, 1024}, {4099, 2048, 576}};
    Backend b;
    open_gpu(&b, precisions[p]);
    assert_false(
        b.fuses_linear_relu_dropout(&b, 100, 512, 512)); /* too small for the fused kernel */
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
      if (!b.fuses_linear_relu_dropout(&b, shape[i][0], shape[i][2], shape[i][1])) continue;
      check_relu_forward(&b, shape[i], 0.1f, 0);
      check_relu_forward(&b, shape[i], 0, 0);
      check_relu_forward(&b, shape[i], 0.3f, 1);
      fused++;
    }
    backend_close(&b);
  }
  if (fused == 0) skip(); /* only Hopper GPUs have the fused kernel */
  assert_int_equal(fused, 2 * 3);
}

/* A case of linear_loss: the label smoothing, the elements by which x is unaligned, and whether the
 * weight gradient is added to dw or overwrites it. */
typedef struct {
  float smoothing;
  size_t askew;
  bool accumulate;
} LossCase;

/* Draws the operands of a case. The mean of each column is 0.5 or -0.5 times the deviation, so that
 * the sums of the rows, which label smoothing needs, are a visible part of the gradients. The signs
 * are such that the means do not shift the logits. Every fifth row of x predicts its target. */
static void draw_loss_operands(float *x, float *w, int32_t *target, const size_t shape[3]) {
  size_t rows = shape[0], d = shape[1], vocab = shape[2];
  float unit = 1 / sqrtf((float)d);
  for (size_t i = 0; i < vocab * d; i++) w[i] = (w[i] + (i & 1 ? 0.5f : -0.5f)) * unit;
  for (size_t i = 0; i < rows * d; i++) x[i] += i & 2 ? 0.5f : -0.5f;
  for (size_t r = 0; r < rows; r++) {
    size_t y = r * 40503 % vocab;
    target[r] = r % 9 == 5 ? -1 : (int32_t)y;
    for (size_t i = 0; r % 5 == 4 && i < d; i++) x[r * d + i] = 12 * w[y * d + i];
  }
}

/* Compares linear_loss with its four operations on the same GPU: the losses and the gradients. */
static void check_linear_loss(const Backend *b, const size_t shape[3], LossCase c) {
  size_t rows = shape[0], d = shape[1], vocab = shape[2], all = rows + LOSS_EXTRA_ROWS;
  float *x = draw_many(rows * d + 8), *w = draw_many(vocab * d), *before = draw_many(vocab * d);
  float *dx[2], *dw[2];
  int32_t *target;
  double loss[2][3];
  ok(mem_alloc(&target, rows, sizeof *target));
  draw_loss_operands(x + c.askew, w, target, shape);
  const char *x_at = upload(b, x, rows * d + 8, true);
  void *w_at = upload(b, w, vocab * d, true), *target_at = upload_ints(b, target, rows),
       *logits, *scaled, *dx_at;
  ok(b->alloc(b, &logits, all * vocab * type_size(b->type)));
  ok(b->alloc(b, &scaled, all * d * type_size(b->type)));
  ok(b->alloc(b, &dx_at, rows * d * type_size(b->type)));
  for (int way = 0; way < 2; way++) {
    LinearLoss j = {.rows = rows,
                    .in = d,
                    .vocab = vocab,
                    .x = x_at + c.askew * type_size(b->type),
                    .w = w_at,
                    .target = target_at,
                    .smoothing = c.smoothing,
                    .scale = 2,
                    .logits = logits,
                    .scaled = scaled,
                    .dx = dx_at,
                    .accumulate = c.accumulate};
    dx[way] = draw_many(rows * d);
    dw[way] = draw_many(vocab * d);
    j.dw = upload(b, before, vocab * d, false);
    ok(b->alloc(b, &j.loss, 3 * sizeof *j.loss));
    if (way == 0) {
      b->linear_loss(b, &j);
      b->linear_loss_dx(b, &j);
      b->linear_loss_dw(b, &j);
    } else {
      b->linear(b, logits, j.x, w_at, NULL, rows, d, vocab);
      b->loss(b, logits, j.loss, target_at, rows, vocab, c.smoothing, j.scale);
      b->linear_dx(b, dx_at, logits, w_at, rows, d, vocab, false);
      b->linear_dw(b, j.dw, NULL, logits, j.x, rows, d, vocab, c.accumulate);
    }
    ok(b->get(b, loss[way], j.loss, sizeof loss[way]));
    download(b, dx[way], dx_at, rows * d, true);
    download(b, dw[way], j.dw, vocab * d, false);
    b->release(b, j.loss), b->release(b, j.dw);
  }
  /* Both ways round the logits, or their distance from the target's, and their gradient. */
  double off = apart(dx[0], dx[1], rows * d), dw_off = apart(dw[0], dw[1], vocab * d);
  bool near = fabs(loss[0][2] - loss[1][2]) <= 2 + (double)rows / 200;
  assert_true(loss[1][2] > (double)rows / 8); /* the rows that predict their target */
  for (int i = 0; i < 2; i++) near = near && fabs(loss[0][i] / loss[1][i] - 1) < 1e-3;
  if (!(off < 4 * rounding[b->type] && dw_off < 4 * rounding[b->type] && near))
    fail_msg(
        "%s: %zu rows, d %zu, vocab %zu: off by %g, %g; losses %g, %g, not %g, %g; %g and "
        "%g correct",
        b->about, rows, d, vocab, off, dw_off, loss[0][0], loss[0][1], loss[1][0], loss[1][1],
        loss[0][2], loss[1][2]);
  const void *arrays[] = {x_at, w_at, target_at, logits, scaled, dx_at};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
    b->release(b, (void *)(uintptr_t)arrays[i]);
  mem_free(x), mem_free(w), mem_free(before), mem_free(target);
  for (int way = 0; way < 2; way++) mem_free(dx[way]), mem_free(dw[way]);
}

static void test_linear_loss_matches_four_operations(void **state) {
  (void)state;
  int fused = 0;
  for (int p = 0; p < 3; p++) {
    static const size_t shape[][3] = {{4099, 512, 2048}, {8200, 1024, 1024}, {16411, 576, 512}};
    Backend b;
    open_gpu(&b, precisions[p]);
    assert_false(b.fuses_loss(&b, 100, 512, 512)); /* too small for the fused kernel */
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
      if (!b.fuses_loss(&b, shape[i][0], shape[i][1], shape[i][2])) continue;
      check_linear_loss(&b, shape[i], (LossCase){.smoothing = 0.1f, .accumulate = true});
      check_linear_loss(&b, shape[i], (LossCase){.smoothing = 0.1f, .accumulate = false});
      check_linear_loss(&b, shape[i], (LossCase){.smoothing = 0, .accumulate = true});
      fused++;
    }
    if (fused)
      check_linear_loss(&b, shape[0],
                        (LossCase){.smoothing = 0.1f, .askew = 1, .accumulate = true});
    backend_close(&b);
  }
  if (fused == 0) skip(); /* only Hopper GPUs have the fused kernel */
  assert_int_equal(fused, 3);
}

/* The layer norm could write fp8 rows, but the GEMM is too small for fp8 and reads the bits. */
static void test_linear_relu_dropout_after_norm_in_fp8(void **state) {
  (void)state;
  static const size_t shape[3] = {16411, 512, 1024};
  Backend b;
  if (backend_open(&b, &(BackendSpec){"cuda", "fp8", 1})) {
    print_message("cannot run: %s\n", err_message());
    skip();
  }
  bool fuses = b.fuses_linear_relu_dropout(&b, shape[0], shape[2], shape[1]);
  if (fuses) check_relu_forward(&b, shape, 0.1f, 0);
  backend_close(&b);
  if (fuses) return;
  open_gpu(&b, "bf16");
  assert_false(b.fuses_linear_relu_dropout(&b, shape[0], shape[2], shape[1]));
  backend_close(&b);
  skip(); /* only Hopper GPUs have the fused kernel */
}

int main(void) {
  int why = check_gpu();
  if (why) return why;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear_relu_backward_matches_two_operations),
      cmocka_unit_test(test_linear_relu_dropout_matches_two_operations),
      cmocka_unit_test(test_linear_relu_dropout_after_norm_in_fp8),
      cmocka_unit_test(test_linear_loss_matches_four_operations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
