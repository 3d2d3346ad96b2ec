/* Tests of the kernels of classification heads: rows by index, losses. Depends on check.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "check.h"

void head_kernels(Type type, const Backend *ref);

/* Every fifth index is negative, the others are distinct and not in order. */
static int32_t *make_index(size_t rows, size_t tokens, int32_t **device) {
  int32_t *index = (int32_t *)host_floats(rows);
  for (size_t r = 0; r < rows; r++) index[r] = r % 5 == 3 ? -1 : (int32_t)(tokens - 1 - 2 * r);
  *device = device_copy(index, rows * sizeof *index);
  return index;
}

static void test_rows(Type type, const Backend *ref, size_t rows, size_t d) {
  size_t tokens = 2 * rows + 3;
  BEGIN("gather_rows %s rows %zu d %zu skew %zu", type_name(type), rows, d, skew);
  Array *x = array_draw(type, tokens * d, 1), *y = array_blank(type, rows * d),
        *dy = array_draw(type, rows * d, 1), *dx = array_blank(type, tokens * d);
  float *want = host_floats(rows * d), *want_dx = host_floats(tokens * d);
  int32_t *there, *index = make_index(rows, tokens, &there);
  ref->gather_rows(ref, want, x->host, index, rows, d);
  ref->scatter_rows(ref, want_dx, dy->host, index, rows, tokens, d);
  TWICE {
    MUST(kernel_gather_rows(type, y->at, x->at, there, rows, d, 0));
    MUST(kernel_scatter_rows(type, dx->at, dy->at, there, rows, tokens, d, 0));
    expect(y, want, 0, "gather_rows");
    expect(dx, want_dx, 0, "scatter_rows");
  }
}

/* Targets of a head; every seventh is missing. */
static void fill_target(Array *target, const HeadLoss *h) {
  for (size_t i = 0; i < target->n; i++) {
    bool is_missing = i % 7 == 4;
    if (h->kind == HEAD_SOFTMAX)
      target->host[i] = is_missing ? -1 : (float)draw_below(h->labels);
    else if (is_missing)
      target->host[i] = NAN;
    else if (h->kind == HEAD_SIGMOID)
      target->host[i] = i % 6 == 5 ? 0.3f : (float)draw_below(2);
  }
}

static void test_head_loss(Type type, const Backend *ref, HeadLoss h, bool weighted) {
  size_t n = h.rows * h.labels;
  BEGIN("head_loss %s kind %d rows %zu labels %zu weights %d scale %g skew %zu",
        type_name(type), (int)h.kind, h.rows, h.labels, weighted, (double)h.scale, skew);
  Array *x = array_draw(type, n, 3),
        *target = array_draw(TYPE_F32, h.kind == HEAD_SOFTMAX ? h.rows : n, 2),
        *weight = array_draw(TYPE_F32, h.labels, 1);
  for (size_t i = 0; i < h.labels; i++) weight->host[i] = fabsf(weight->host[i]) + 0.1f;
  fill_target(target, &h);
  /* Equal largest logits, of which the first is the prediction; one beyond the range of expf. */
  if (h.labels > 2) x->host[0] = x->host[h.labels - 1] = 20;
  if (h.rows > 1) x->host[h.labels] = 200;
  float *want = host_copy(x);
  double loss[3] = {1, 2, 3}, got[3], *sums = device_copy(loss, sizeof loss);
  h.weight = weighted ? weight->host : NULL;
  ref->head_loss(ref, want, loss, target->host, &h);
  h.weight = weighted ? weight->at : NULL;
  void *work = device_scratch(kernel_loss_work(h.rows));
  double start[3] = {1, 2, 3}, tolerance = 1e-6;
  arrays_reset();
  TWICE {
    MUST(cudaMemcpy(sums, start, sizeof start, cudaMemcpyHostToDevice));
    MUST(kernel_head_loss(type, x->at, sums, target->at, &h, work, 0));
    MUST(cudaMemcpy(got, sums, sizeof got, cudaMemcpyDeviceToHost));
    expect(x, want, type == TYPE_F32 ? 16 : 1, "head_loss's gradient");
    expect_near(got[0], loss[0], tolerance * fabs(loss[0]), "smoothed and weighted sum");
    expect_near(got[1], loss[1], tolerance * fabs(loss[1]), "plain sum");
    expect_near(got[2], loss[2], 0, "correct rows");
  }
}

void head_kernels(Type type, const Backend *ref) {
  static const size_t rows[][2] = {{1, 1}, {3, 8}, {20, 7}, {130, 768}, {5, 1025}, {700, 64}};
  for (size_t i = 0; i < COUNT(rows); i++) {
    test_rows(type, ref, rows[i][0], rows[i][1]);
    arrays_free();
  }
  static const size_t heads[][2] = {{1, 1},  {5, 2},   {33, 6},  {4, 32},
                                    {7, 33}, {64, 20}, {9, 100}, {2050, 3}};
  for (size_t i = 0; i < 12 * COUNT(heads); i++) {
    HeadLoss h = {.kind = (HeadKind)(i % 3), .smoothing = 0.1f, .scale = i / 6 % 2 ? 0.5f : 0};
    h.rows = heads[i / 12][0];
    h.labels = heads[i / 12][1];
    test_head_loss(type, ref, h, i / 3 % 2);
    arrays_free();
  }
}
