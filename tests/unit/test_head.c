/* The operations of classification heads on every CPU backend: losses and gradients of PyTorch
 * (tests/golden/head/cases.txt, made by make_golden.py), finite differences, rows by index, and
 * edge cases. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops_cases.h"

/* Opens the reference and each instruction set of this machine. */
static int open_all_backends(Backend list[5]) {
  const char *names[] = {"avx512", "avx2", "sse2", "neon"};
  int n = 1;
  backend_reference(&list[0]);
  for (int i = 0; i < 4; i++) {
    setenv("TRIREME_ISA", names[i], 1);
    if (backend_cpu(&list[n], 2, false) == ERR_OK) n++;
  }
  unsetenv("TRIREME_ISA");
  assert_true(n > 1);
  return n;
}

enum { MOST = 512 }; /* numbers in a line of the golden file */

/* One case of the golden file. */
typedef struct {
  HeadLoss h;
  double weight[MOST], logits[MOST], target[MOST], loss[3], grad[MOST];
} Golden;

/* Reads the next line, a word and n numbers. */
static void read_numbers(FILE *f, const char *word, double *to, size_t n) {
  char name[16], text[64];
  assert_int_equal(fscanf(f, "%15s", name), 1);
  assert_string_equal(name, word);
  assert_true(n <= MOST);
  for (size_t i = 0; i < n; i++) {
    assert_int_equal(fscanf(f, "%63s", text), 1);
    to[i] = strtod(text, NULL);
  }
}

static HeadKind parse_kind(const char *name) {
  if (strcmp(name, "softmax") == 0) return HEAD_SOFTMAX;
  if (strcmp(name, "sigmoid") == 0) return HEAD_SIGMOID;
  assert_string_equal(name, "square");
  return HEAD_SQUARE;
}

/* Returns false at the end of the file. */
static bool read_case(FILE *f, Golden *g, float *weight) {
  char kind[16];
  int weighted;
  HeadLoss *h = &g->h;
  int count = fscanf(f, " case %15s %zu %zu %f %f %d", kind, &h->rows, &h->labels,
                     &h->smoothing, &h->scale, &weighted);
  if (count == EOF) return false;
  assert_int_equal(count, 6);
  h->kind = parse_kind(kind);
  h->weight = weighted ? weight : NULL;
  size_t n = h->rows * h->labels;
  read_numbers(f, "weight", g->weight, h->labels);
  read_numbers(f, "logits", g->logits, n);
  read_numbers(f, "target", g->target, h->kind == HEAD_SOFTMAX ? h->rows : n);
  read_numbers(f, "loss", g->loss, 3);
  read_numbers(f, "grad", g->grad, n);
  for (size_t i = 0; i < h->labels; i++) weight[i] = (float)g->weight[i];
  return true;
}

static void check_golden(const Backend *b, const Golden *g) {
  float logits[MOST], kept[MOST], target[MOST];
  double loss[3] = {0}, again[3] = {0};
  size_t n = g->h.rows * g->h.labels;
  for (size_t i = 0; i < n; i++) {
    kept[i] = logits[i] = (float)g->logits[i];
    target[i] = (float)g->target[i];
  }
  HeadLoss no_gradient = g->h;
  no_gradient.scale = 0;
  b->head_loss(b, logits, again, target, &no_gradient);
  assert_memory_equal(logits, kept, n * sizeof *kept);
  b->head_loss(b, logits, loss, target, &g->h);
  assert_memory_equal(loss, again, sizeof loss);
  for (int i = 0; i < 2; i++) {
    if (!(fabs(loss[i] - g->loss[i]) <= 1e-12 * fabs(g->loss[i]) + 1e-12))
      fail_msg("%s: loss %d of kind %d, %zu x %zu is %.17g, not %.17g", b->about, i, g->h.kind,
               g->h.rows, g->h.labels, loss[i], g->loss[i]);
  }
  assert_true(loss[2] == g->loss[2]);
  for (size_t i = 0; i < n; i++) {
    if (!(fabs((double)logits[i] - g->grad[i]) <= 1e-7 * fabs(g->grad[i]) + 1e-12))
      fail_msg("%s: gradient %zu of kind %d, %zu x %zu is %.9g, not %.9g", b->about, i,
               g->h.kind, g->h.rows, g->h.labels, (double)logits[i], g->grad[i]);
  }
}

static void test_head_loss_matches_pytorch(void **state) {
  (void)state;
  static Golden g;
  static float weight[MOST];
  Backend list[5];
  int n = open_all_backends(list), cases = 0;
  FILE *f = fopen("tests/golden/head/cases.txt", "r");
  assert_non_null(f);
  for (; read_case(f, &g, weight); cases++) {
    for (int i = 0; i < n; i++) check_golden(&list[i], &g);
  }
  fclose(f);
  assert_int_equal(cases, 36);
}

/* The gradient must be that of the sum in loss[0], with weights and smoothing. */
static void test_head_loss_gradient_matches_finite_differences(void **state) {
  (void)state;
  Backend list[5];
  int n = open_all_backends(list);
  for (int k = 0; k < 3 * n; k++) {
    const Backend *b = &list[k / 3];
    HeadKind kind = (HeadKind)(k % 3);
    Case c = shape(1);
    (kind == HEAD_SOFTMAX ? make_head_softmax : make_head_sigmoid)(&c);
    float *grad = copy(c.a[0], c.n[0]), *logits = c.a[0];
    Case g = c;
    g.a[0] = grad;
    run_head_loss(b, &g, kind, 2, 0.5f);
    for (size_t i = 0; i < c.n[0]; i++) {
      double sum[2];
      float kept = logits[i];
      for (int way = 0; way < 2; way++) {
        memset(c.loss, 0, sizeof c.loss);
        logits[i] = kept + (way ? 0.01f : -0.01f);
        run_head_loss(b, &c, kind, 2, 0);
        sum[way] = 0.5 * c.loss[0];
      }
      logits[i] = kept;
      double slope = (sum[1] - sum[0]) / 0.02;
      if (!(fabs(slope - (double)grad[i]) <= 1e-3 * fabs(slope) + 1e-4))
        fail_msg("%s: kind %d, gradient %zu is %g, not %g", b->about, kind, i, (double)grad[i],
                 slope);
    }
    mem_free(grad);
    drop_arrays(&c);
  }
}

/* NaN targets, and negative classes, add no loss and have gradient 0; a row without any target is
 * not counted as correct. */
static void test_head_loss_missing_target_adds_nothing(void **state) {
  (void)state;
  enum { ROWS = 130, LABELS = 3, N = ROWS * LABELS };
  Backend list[5];
  int n = open_all_backends(list);
  for (int k = 0; k < 4 * n; k++) {
    const Backend *b = &list[k / 4];
    HeadLoss h = {.kind = (HeadKind)(k % 4 % 3), .rows = ROWS, .labels = LABELS, .scale = 1};
    float logits[N], target[N], missing = k % 4 == 3 ? -1 : NAN;
    double loss[3] = {0};
    for (int i = 0; i < N; i++) {
      logits[i] = (float)(i % 5);
      target[i] = missing;
    }
    b->head_loss(b, logits, loss, target, &h);
    assert_true(loss[0] == 0 && loss[1] == 0 && loss[2] == 0);
    for (int i = 0; i < N; i++) assert_true(logits[i] == 0);
  }
}

static void test_head_loss_equal_logits_predict_lowest_class(void **state) {
  (void)state;
  Backend list[5];
  int n = open_all_backends(list);
  for (int i = 0; i < n; i++) {
    const Backend *b = &list[i];
    float logits[] = {1, 2, 2, 1, 2, 2}, target[] = {1, 2};
    double loss[3] = {0};
    b->head_loss(b, logits, loss, target, &(HeadLoss){.rows = 2, .labels = 3});
    assert_true(loss[2] == 1);
  }
}

/* Sigmoid: a row is correct if all its known labels are; probability 0.5 is positive. */
static void test_head_loss_sigmoid_counts_rows(void **state) {
  (void)state;
  Backend list[5];
  int n = open_all_backends(list);
  for (int i = 0; i < n; i++) {
    const Backend *b = &list[i];
    float logits[] = {1, -1, 1, -1, 0, -2, 0, 3}, target[] = {1, 0, 1, 1, 1, NAN, 0, NAN};
    double loss[3] = {0};
    HeadLoss h = {.kind = HEAD_SIGMOID, .rows = 4, .labels = 2};
    b->head_loss(b, logits, loss, target, &h);
    assert_true(loss[2] == 2);
  }
}

/* Logits far outside the range of expf must give finite losses and gradients. */
static void test_head_loss_large_logits_stay_finite(void **state) {
  (void)state;
  Backend list[5];
  int n = open_all_backends(list);
  for (int k = 0; k < 2 * n; k++) {
    const Backend *b = &list[k / 2];
    float logits[] = {1e4f, -1e4f, -1e4f, 1e4f}, target[] = {0, 0, 1, 0};
    double loss[3] = {0};
    HeadLoss h = {.kind = (HeadKind)(k % 2), .rows = 2, .labels = 2, .scale = 1};
    b->head_loss(b, logits, loss, target, &h);
    assert_true(loss[0] == (k % 2 ? 3e4 : 2e4));
    for (int i = 0; i < 4; i++) assert_true(isfinite(logits[i]));
  }
}

static void test_head_loss_nan_logit_makes_loss_nan(void **state) {
  (void)state;
  Backend list[5];
  int n = open_all_backends(list);
  for (int k = 0; k < 3 * n; k++) {
    const Backend *b = &list[k / 3];
    for (int at = 0; at < 3; at++) {
      float logits[] = {1, 2, 3}, target[] = {1, 0, 0};
      double loss[3] = {0};
      logits[at] = NAN;
      HeadLoss h = {.kind = (HeadKind)(k % 3), .rows = 1, .labels = 3, .scale = 1};
      b->head_loss(b, logits, loss, target, &h);
      assert_true(isnan(loss[0]) && isnan(loss[1]));
    }
  }
}

/* Rows are copied bit for bit, NaN included; the backward clears every other row. */
static void test_scatter_rows_undoes_gather_rows(void **state) {
  (void)state;
  static const size_t widths[] = {1, 3, 64, 257};
  enum { TOKENS = 90, ROWS = 20 };
  Backend list[5];
  int n = open_all_backends(list);
  for (int k = 0; k < 4 * n; k++) {
    const Backend *b = &list[k / 4];
    size_t d = widths[k % 4];
    float *x = draw(TOKENS * d), *y = draw(ROWS * d), *dx = draw(TOKENS * d);
    int32_t index[ROWS];
    for (int r = 0; r < ROWS; r++) index[r] = r % 4 == 1 ? -1 : r * 7 % TOKENS;
    x[0] = NAN;
    b->gather_rows(b, y, x, index, ROWS, d);
    b->scatter_rows(b, dx, y, index, ROWS, TOKENS, d);
    float *want = draw(TOKENS * d);
    memset(want, 0, TOKENS * d * sizeof *want);
    for (int r = 0; r < ROWS; r++) {
      for (size_t c = 0; c < d && index[r] < 0; c++) assert_true(y[(size_t)r * d + c] == 0);
      if (index[r] < 0) continue;
      size_t from = (size_t)index[r] * d;
      assert_memory_equal(y + (size_t)r * d, x + from, d * sizeof *x);
      memcpy(want + from, x + from, d * sizeof *x);
    }
    assert_memory_equal(dx, want, TOKENS * d * sizeof *want);
    b->gather_rows(b, y, x, index, 0, d);
    b->scatter_rows(b, dx, y, index, 0, TOKENS, d);
    for (size_t i = 0; i < TOKENS * d; i++) assert_true(dx[i] == 0);
    float *array[] = {x, y, dx, want};
    for (int i = 0; i < 4; i++) mem_free(array[i]);
  }
}

/* Tanh saturates without NaN. */
static void test_activate_tanh_saturates(void **state) {
  (void)state;
  enum { N = 37 };
  Backend list[5];
  int n = open_all_backends(list);
  for (int k = 0; k < n; k++) {
    const Backend *b = &list[k];
    float x[N], y[N], dx[N], dy[N];
    for (int i = 0; i < N; i++) {
      x[i] = (i % 2 ? -1.0f : 1.0f) * (20 + 30 * (float)i);
      dy[i] = 1;
    }
    b->activate(b, y, NULL, x, NULL, 1, N, ACT_TANH, (Dropout){0});
    b->activate_backward(b, dx, NULL, dy, x, 1, N, ACT_TANH, (Dropout){0}, false);
    for (int i = 0; i < N; i++) {
      assert_true(y[i] == (i % 2 ? -1.0f : 1.0f));
      assert_true(fabsf(dx[i]) < 1e-15f);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_head_loss_matches_pytorch),
      cmocka_unit_test(test_head_loss_gradient_matches_finite_differences),
      cmocka_unit_test(test_head_loss_missing_target_adds_nothing),
      cmocka_unit_test(test_head_loss_equal_logits_predict_lowest_class),
      cmocka_unit_test(test_head_loss_sigmoid_counts_rows),
      cmocka_unit_test(test_head_loss_large_logits_stay_finite),
      cmocka_unit_test(test_head_loss_nan_logit_makes_loss_nan),
      cmocka_unit_test(test_scatter_rows_undoes_gather_rows),
      cmocka_unit_test(test_activate_tanh_saturates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
