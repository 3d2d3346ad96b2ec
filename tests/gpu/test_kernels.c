/* Compares every CUDA kernel with the reference in fp32, bf16 and fp16: shapes that are and are
 * not multiples of 8, aligned and unaligned, with dropout, and twice to compare bits. Options:
 *   --attend          attention only
 *   --attend N        only its implementation N
 *   --speed           prints times instead
 *   --speed attend    prints the times of attention
 *   --speed loss      prints the times of losses
 *   --speed rows N    prints the times of norms, ReLU and sums while another kernel occupies N SMs
 * Returns 77 if there is no GPU. Depends on check.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/dropout.h"
#include "check.h"

void speed(bool attention_only); /* defined in kernels_speed.c */
void speed_output(void);         /* likewise: losses only */
void speed_rows_beside(int sms); /* likewise */
void attention_kernels(Type type, const Backend *ref,
                       int variant);                /* defined in kernels_attention.c */
void decode_kernels(Type type, const Backend *ref); /* defined in kernels_decode.c */
void fp8_kernels(void);                             /* defined in kernels_fp8.c */
void relu_kernels(Type type);                       /* defined in kernels_relu.c */
void loss_kernels(void);                            /* defined in kernels_loss.c */
void sums_kernels(Type type, const Backend *ref, size_t widest); /* defined in kernels_sums.c */
void head_kernels(Type type, const Backend *ref);                /* defined in kernels_head.c */

static Backend ref;
static int only_variant = -1; /* implementation of attention requested by the option; -1: all */
static const uint64_t drop_key = 0x1234567890abcdef;
static const Dropout none = {0}, some = {.key = &drop_key, .site = 77, .rate = 0.1f};

/* Returns a copy of `drop` whose key is in device memory. */
static Dropout on_device(Dropout drop) {
  drop.key = device_copy(&drop_key, sizeof drop_key);
  return drop;
}

static int32_t *ids(size_t n, size_t limit, int32_t **device) {
  int32_t *id = (int32_t *)host_floats(n);
  for (size_t i = 0; i < n; i++) {
    /* A third of the ids are equal, because the kernel splits frequent words into many
     * chunks. */
    id[i] = (int32_t)(draw_below(3) ? draw_below(limit) : limit / 2);
  }
  *device = device_copy(id, n * sizeof *id);
  return id;
}

/* Tests of element-wise kernels. */

static void test_cast(Type type, size_t n) {
  BEGIN("cast %s n %zu skew %zu", type_name(type), n, skew);
  Array *x = array_draw(TYPE_F32, n, 1), *low = array_blank(type, n),
        *back = array_blank(TYPE_F32, n);
  const float odd[] = {
      0,     -0.0f,  65504,       65519.996f,  65520,          1e-7f,    6e-8f,   2e-8f,
      3e38f, -1e30f, 1.00390625f, 1.01171875f, 1.00048828125f, INFINITY, 6.1e-5f, -3e-5f};
  for (size_t i = 0; i < COUNT(odd) && i < n; i++) x->host[i] = odd[i];
  float *want = host_copy(x);
  for (size_t i = 0; i < n; i++) want[i] = type_round(type, x->host[i]);
  arrays_reset();
  TWICE {
    MUST(kernel_cast_to(type, low->at, x->at, n, 0));
    MUST(kernel_cast_from(type, back->at, low->at, n, 0));
    expect(low, want, 0, "cast_to");
    expect(back, want, 0, "cast_from");
  }
}

static void test_activate(Type type, Activation act, size_t rows, size_t width, Dropout drop) {
  size_t n = rows * width;
  BEGIN("activate %s act %d rows %zu width %zu rate %g skew %zu", type_name(type), (int)act,
        rows, width, (double)drop.rate, skew);
  Array *x = array_draw(type, n, 2), *y = array_blank(type, n), *dy = array_draw(type, n, 1),
        *dx = array_blank(type, n), *x_in = array_zero(type, n),
        *db = array_draw(TYPE_F32, width, 1), *bias = array_draw(type, width, 1),
        *y_bias = array_blank(type, n);
  float *want = host_floats(n), *want_dx = host_floats(n), *want_db = host_copy(db);
  double limit = type == TYPE_F32 ? 16 : 1;
  /* Limit for column sums, which may add rounded or unrounded values. */
  double coarse = type == TYPE_F32 ? 64 : 2 * type_epsilon(type) / type_epsilon(TYPE_F32);
  void *work = device_scratch(kernel_column_sums_work(rows, width));
  Dropout there = on_device(drop);
  bool masked = act == ACT_RELU;
  size_t bytes = masked ? (n + 7) / 8 : 0; /* one element more, which must not change */
  uint8_t *want_mask = (uint8_t *)host_floats(bytes / 4 + 1), *mask = device_scratch(bytes + 1);
  if (n) x->host[n / 2] = 0; /* inputs at which the derivative is 0 */
  float *want_bias = host_floats(n);
  ref.activate(&ref, want_bias, NULL, x->host, bias->host, rows, width, act, drop);
  ref.activate(&ref, want, masked ? want_mask : NULL, x->host, NULL, rows, width, act, drop);
  want_mask[bytes] = 0xff;
  const void *kept = masked ? (void *)want_mask : x->host;
  ref.activate_backward(&ref, want_dx, want_db, dy->host, kept, rows, width, act, drop, true);
  memcpy(x_in->host, x->host, n * sizeof(float));
  arrays_reset();
  TWICE {
    MUST(cudaMemset(mask, 0xff, bytes + 1));
    MUST(kernel_activate(type, y_bias->at, masked ? mask : NULL, x->at, bias->at, rows, width,
                         act, there, 0));
    expect(y_bias, want_bias, limit, "activate with a bias");
    MUST(cudaMemset(mask, 0xff, bytes + 1));
    MUST(kernel_activate(type, y->at, masked ? mask : NULL, x->at, NULL, rows, width, act,
                         there, 0));
    kept = masked ? (void *)mask : act == ACT_NONE ? NULL : x->at;
    MUST(kernel_activate_backward(type, dx->at, db->at, dy->at, kept, rows, width, act, there,
                                  true, work, 0));
    expect(y, want, limit, "activate");
    expect_exact(mask, want_mask, bytes + 1, "activate's mask");
    expect(dx, want_dx, limit, "activate_backward");
    expect(db, want_db, coarse, "activate_backward's bias");
    MUST(kernel_activate_backward(type, dy->at, NULL, dy->at, kept, rows, width, act, there,
                                  false, NULL, 0));
    expect(dy, want_dx, limit, "activate_backward in place");
    MUST(kernel_activate(type, x_in->at, NULL, x_in->at, NULL, rows, width, act, there, 0));
    expect(x_in, want, limit, "activate in place");
  }
}

static void test_column_sums(Type type, size_t rows, size_t n) {
  BEGIN("column_sums %s rows %zu n %zu skew %zu", type_name(type), rows, n, skew);
  Array *dy = array_draw(type, rows * n, 1), *db = array_draw(TYPE_F32, n, 1),
        *alone = array_blank(TYPE_F32, n);
  void *work = device_scratch(kernel_column_sums_work(rows, n));
  float *want = host_copy(db), *want_alone = host_floats(n);
  for (size_t c = 0; c < n; c++) {
    double sum = 0;
    for (size_t r = 0; r < rows; r++) sum += dy->host[r * n + c];
    want[c] = (float)(want[c] + sum);
    want_alone[c] = (float)sum;
  }
  TWICE {
    MUST(kernel_column_sums(type, db->at, dy->at, rows, n, true, work, 0));
    expect(db, want, 16, "column_sums");
    MUST(kernel_column_sums(type, alone->at, dy->at, rows, n, false, work, 0));
    expect(alone, want_alone, 16, "column_sums, the first");
  }
}

static void test_square_sums(size_t n) {
  BEGIN("square_sums n %zu skew %zu", n, skew);
  size_t units = (n + 4095) / 4096;
  Array *x = array_draw(TYPE_F32, n, 1);
  double *sums = device_scratch((units + 1) * sizeof(double)), got[64];
  TWICE {
    MUST(kernel_square_sums(sums, x->at, n, 0));
    MUST(cudaMemcpy(got, sums, units * sizeof *got, cudaMemcpyDeviceToHost));
    for (size_t u = 0; u < units; u++) {
      double want = 0;
      for (size_t i = u * 4096; i < n && i < (u + 1) * 4096; i++)
        want += (double)x->host[i] * x->host[i];
      expect_near(got[u], want, 1e-12 * want, "square_sums");
    }
  }
}

/* Compares with clip.h on the host, bit for bit: clipped, not clipped, and not finite. */
static void test_clip(size_t units, int which) {
  BEGIN("clip units %zu case %d", units, which);
  StepNumbers begin = {.grad_divisor = 2e4, .max_grad_norm = which == 1 ? 0.25 : 0, .lr = 7},
              want = begin, got;
  double losses[3] = {which == 2 ? (double)NAN : 5, 6, 7}, taken[3], after[3], sums[2000];
  memcpy(taken, losses, sizeof losses);
  for (size_t u = 0; u < units; u++) sums[u] = draw_even() * 1e9;
  if (which == 3) sums[units / 2] = INFINITY;
  ref.clip(&ref, &want, sums, units, taken);
  StepNumbers *there = device_copy(&begin, sizeof begin);
  double *loss = device_copy(losses, sizeof losses);
  MUST(kernel_clip(there, device_copy(sums, units * sizeof *sums), units, loss, 0));
  MUST(cudaMemcpy(&got, there, sizeof got, cudaMemcpyDeviceToHost));
  MUST(cudaMemcpy(after, loss, sizeof after, cudaMemcpyDeviceToHost));
  expect_near(isnan(got.grad_scale), which > 1, 0, "is the step left out");
  if (which < 2) expect_exact(there, &want, sizeof want, "clip");
  if (which == 2) expect_near(got.grad_norm, want.grad_norm, 0, "norm");
  expect_near(after[0] == 0 && after[1] == 0 && after[2] == 0, 1, 0, "losses after clip");
}

/* The losses are in `now`, and the divisor follows from the predictions of all ranks. */
static void test_clip_of_ranks(double predictions) {
  BEGIN("clip of ranks, %g predictions", predictions);
  StepNumbers want = {.max_grad_norm = 0.25, .loss = {5, 6, 7}, .loss_scale = 1024};
  double sums[300];
  want.count[0] = predictions;
  for (size_t u = 0; u < 300; u++) sums[u] = draw_even() * 1e9;
  StepNumbers *there = device_copy(&want, sizeof want);
  ref.clip(&ref, &want, sums, 300, NULL);
  MUST(kernel_clip(there, device_copy(sums, sizeof sums), 300, NULL, 0));
  expect_exact(there, &want, sizeof want, "clip");
}

/* Adam in double precision; w, m, v are the initial values. */
static void adam_in_double(float *w, float *m, float *v, const float *g, size_t n,
                           const AdamStep *s, const StepNumbers *now) {
  for (size_t i = 0; i < n; i++) {
    double grad = g[i] * (double)now->grad_scale + (s->coupled ? s->decay * (double)w[i] : 0);
    m[i] = (float)(s->beta1 * (double)m[i] + (1 - (double)s->beta1) * grad);
    v[i] = (float)(s->beta2 * (double)v[i] + (1 - (double)s->beta2) * grad * grad);
    double step = (m[i] / (double)now->correction1) /
                  (sqrt(v[i] / (double)now->correction2) + s->epsilon);
    double lr = (double)(now->lr * s->lr_factor);
    w[i] = (float)(w[i] - lr * (step + (s->coupled ? 0 : s->decay * (double)w[i])));
  }
}

static void test_update(Type type, size_t n, bool coupled, int where) {
  /* where: 0: the scalars of momentum are arguments; 1: they are on the device; 2: on the
   * device and not finite */
  BEGIN("adam %s n %zu coupled %d scale %d skew %zu", type_name(type), n, coupled, where, skew);
  StepNumbers now = {.lr = 0.01f,
                     .correction1 = 0.1f,
                     .correction2 = 0.02f,
                     .grad_scale = where == 2 ? NAN : 0.5f};
  AdamStep s = {.beta1 = 0.9f,
                .beta2 = 0.98f,
                .epsilon = 1e-9f,
                .decay = 0.1f,
                .coupled = coupled,
                .lr_factor = 0.5f};
  MomentumStep mo = {
      .beta = 0.9f, .decay = 0.1f, .lr = 0.01f, .scale = 0.5f, .lr_factor = 0.5f};
  Array *w = array_draw(TYPE_F32, n, 1), *m = array_draw(TYPE_F32, n, 0.1f),
        *v = array_draw(TYPE_F32, n, 0.1f), *g = array_draw(TYPE_F32, n, 1),
        *low = array_zero(type, n), *w2 = array_draw(TYPE_F32, n, 1),
        *m2 = array_draw(TYPE_F32, n, 1), *low2 = array_zero(type, n),
        *e = array_draw(TYPE_F32, n, 1), *sum = array_draw(TYPE_F32, n, 1);
  for (size_t i = 0; i < n; i++) v->host[i] = fabsf(v->host[i]);
  float *want_w = host_copy(w), *want_m = host_copy(m), *want_v = host_copy(v),
        *want_w2 = host_copy(w2), *want_m2 = host_copy(m2), *want_e = host_copy(e),
        *want_sum = host_copy(sum), *want_low = host_copy(low), *want_low2 = host_copy(low2);
  s.now = device_copy(&now, sizeof now);
  s.low = low->at;
  mo.low = low2->at;
  if (where) {
    mo.now = s.now;
    mo.lr = mo.scale = 99;
  }
  if (where < 2) adam_in_double(want_w, want_m, want_v, g->host, n, &s, &now);
  for (size_t i = 0; i < n; i++) {
    if (where < 2) {
      want_m2[i] =
          (float)(0.9f * (double)want_m2[i] + (0.5 * g->host[i] + 0.1f * (double)want_w2[i]));
      want_w2[i] = (float)(want_w2[i] - (where ? 0.5f : 1) * 0.01f * (double)want_m2[i]);
      want_low[i] = want_w[i];
      want_low2[i] = want_w2[i];
    }
    if (where < 2)
      want_e[i] = (float)(want_e[i] + (1 - (double)0.99f) * ((double)g->host[i] - want_e[i]));
    want_sum[i] = (float)(want_sum[i] + 0.3f * (double)g->host[i]);
  }
  arrays_reset();
  TWICE {
    MUST(kernel_adam(type, w->at, m->at, v->at, g->at, n, &s, 0));
    MUST(kernel_momentum(type, w2->at, m2->at, g->at, n, &mo, 0));
    MUST(kernel_ema(e->at, g->at, n, 0.99f, s.now, 0));
    MUST(kernel_add(sum->at, g->at, 0.3f, n, 0));
    expect(w, want_w, 4, "adam's w");
    expect(m, want_m, 4, "adam's m");
    expect(v, want_v, 4, "adam's v");
    expect(low, want_low, type == TYPE_F32 ? 4 : 1, "adam's copy");
    expect(w2, want_w2, 4, "momentum's w");
    expect(m2, want_m2, 4, "momentum's m");
    expect(low2, want_low2, type == TYPE_F32 ? 4 : 1, "momentum's copy");
    expect(e, want_e, 4, "ema");
    expect(sum, want_sum, 4, "add");
  }
}

/* Tests of row-wise kernels. */

static void test_embed(Type type, size_t rows, size_t d, size_t vocab, Dropout drop) {
  BEGIN("embed %s rows %zu d %zu vocab %zu rate %g skew %zu", type_name(type), rows, d, vocab,
        (double)drop.rate, skew);
  size_t longest = 40;
  Dropout there = on_device(drop);
  Array *table = array_draw(type, vocab * d, 1), *place = array_draw(TYPE_F32, longest * d, 1),
        *x = array_blank(type, rows * d), *dx = array_draw(type, rows * d, 1),
        *dtable = array_draw(TYPE_F32, vocab * d, 1),
        *dplace = array_draw(TYPE_F32, longest * d, 1);
  int32_t *id_at, *pos_at, *id = ids(rows, vocab, &id_at), *pos = ids(rows, longest, &pos_at);
  int32_t *sorted = device_scratch(2 * rows * sizeof *sorted),
          *want_sorted = (int32_t *)host_floats(2 * rows);
  void *work = device_scratch(kernel_sort_ids_work(rows)),
       *work2 = device_scratch(kernel_embed_backward_work(rows, d));
  size_t at = 0;
  for (size_t v = 0; v < vocab; v++) {
    for (size_t r = 0; r < rows; r++) {
      if ((size_t)id[r] == v) {
        want_sorted[at] = id[r];
        want_sorted[rows + at++] = (int32_t)r;
      }
    }
  }
  float *want = host_floats(rows * d), *want_table = host_copy(dtable),
        *want_place = host_copy(dplace);
  ref.embed(&ref, want, table->host, place->host, id, pos, rows, d, 3, drop);
  ref.embed_backward(&ref, want_table, want_place, dx->host, id, pos, rows, d, vocab, longest,
                     3, drop);
  TWICE {
    MUST(kernel_embed(type, x->at, table->at, place->at, id_at, pos_at, rows, d, 3, there, 0));
    expect(x, want, 2, "embed");
    MUST(kernel_sort_ids(sorted, id_at, rows, vocab, work, 0));
    expect_exact(sorted, want_sorted, 2 * rows * sizeof *sorted, "sort_ids");
    MUST(kernel_embed_backward(type, dtable->at, dx->at, sorted, rows, d, 3, there, work2, 0));
    expect(dtable, want_table, 64, "embed_backward's table");
    MUST(kernel_sort_ids(sorted, pos_at, rows, longest, work, 0));
    MUST(kernel_embed_backward(type, dplace->at, dx->at, sorted, rows, d, 1, there, work2, 0));
    expect(dplace, want_place, 64, "embed_backward's positions");
  }
}

static void test_norm(Type type, size_t rows, size_t d, Dropout drop) {
  BEGIN("add_norm %s rows %zu d %zu rate %g skew %zu", type_name(type), rows, d,
        (double)drop.rate, skew);
  size_t n = rows * d;
  AddNorm an = {.rows = rows, .d = d, .epsilon = 1e-6f, .drop = drop}, at = an;
  at.drop = on_device(drop);
  Array *x = array_draw(type, n, 1), *branch = array_draw(type, n, 1),
        *gain = array_draw(TYPE_F32, d, 1), *bias = array_draw(TYPE_F32, d, 1),
        *sum = array_blank(type, n), *y = array_blank(type, n),
        *stat = array_blank(TYPE_F32, 2 * rows), *y_alone = array_blank(type, n);
  float *want_sum = host_floats(n), *want_y = host_floats(n),
        *want_stat = host_floats(2 * rows), *want_alone = host_floats(n),
        *scratch = host_floats(2 * rows);
  ref.add_norm(&ref, want_sum, want_y, want_stat, x->host, branch->host, gain->host, bias->host,
               &an);
  ref.add_norm(&ref, NULL, want_alone, scratch, x->host, NULL, gain->host, bias->host, &an);
  /* Backward, computed from a sum that is rounded to the type. */
  Array *sum_in = array_zero(type, n), *stat_in = array_zero(TYPE_F32, 2 * rows),
        *dy = array_draw(type, n, 1), *through = array_draw(type, n, 1),
        *dx = array_blank(type, n), *dbranch = array_blank(type, n),
        *dgain = array_draw(TYPE_F32, d, 1), *dbias = array_draw(TYPE_F32, d, 1),
        *dx_alone = array_blank(type, n), *dgain2 = array_blank(TYPE_F32, d),
        *dbias2 = array_blank(TYPE_F32, d), *dshift = array_draw(TYPE_F32, d, 1);
  for (size_t i = 0; i < n; i++) sum_in->host[i] = type_round(type, want_sum[i]);
  memcpy(stat_in->host, want_stat, 2 * rows * sizeof(float));
  float *want_dx = host_floats(n), *want_db = host_floats(n), *want_dgain = host_copy(dgain),
        *want_dbias = host_copy(dbias), *want_dx2 = host_floats(n),
        *want_dgain2 = host_floats(d), *want_dbias2 = host_floats(d),
        *want_dshift = host_copy(dshift);
  ref.add_norm_backward(&ref, want_dx, want_db, want_dgain, want_dbias, want_dshift, dy->host,
                        through->host, sum_in->host, stat_in->host, gain->host, &an, true);
  ref.add_norm_backward(&ref, want_dx2, NULL, want_dgain2, want_dbias2, NULL, dy->host, NULL,
                        sum_in->host, stat_in->host, gain->host, &an, false);
  void *work = device_scratch(kernel_add_norm_backward_work(rows, d));
  /* The statistics of a stored sum differ from those of the exact one by its rounding. */
  double coarse = type_epsilon(type) / type_epsilon(TYPE_F32);
  arrays_reset();
  TWICE {
    MUST(kernel_add_norm(type, sum->at, y->at, stat->at, x->at, branch->at, gain->at, bias->at,
                         &at, 0));
    expect(sum, want_sum, 2, "sum");
    expect(y, want_y, 8, "y");
    expect(stat, want_stat, type == TYPE_F32 ? 32 : 2 * coarse, "stat");
    MUST(kernel_add_norm(type, NULL, y_alone->at, stat->at, x->at, NULL, gain->at, bias->at,
                         &at, 0));
    expect(y_alone, want_alone, 8, "y without branch");
    MUST(kernel_add_norm_backward(type, dx->at, dbranch->at, dgain->at, dbias->at, dshift->at,
                                  dy->at, through->at, sum_in->at, stat_in->at, gain->at, &at,
                                  true, work, 0));
    expect(dx, want_dx, 8, "dx");
    expect(dbranch, want_db, 8, "dbranch");
    expect(dgain, want_dgain, 64, "dgain");
    expect(dbias, want_dbias, 64, "dbias");
    expect(dshift, want_dshift, type == TYPE_F32 ? 64 : 2 * coarse, "dshift");
    MUST(kernel_add_norm_backward(type, dx_alone->at, NULL, dgain2->at, dbias2->at, NULL,
                                  dy->at, NULL, sum_in->at, stat_in->at, gain->at, &at, false,
                                  work, 0));
    expect(dx_alone, want_dx2, 8, "dx without branch");
    expect(dgain2, want_dgain2, 64, "dgain without branch, the first");
    expect(dbias2, want_dbias2, 64, "dbias without branch, the first");
    MUST(kernel_add_norm_backward(type, through->at, dy->at, dgain2->at, dbias2->at, NULL,
                                  dy->at, through->at, sum_in->at, stat_in->at, gain->at, &at,
                                  true, work, 0));
    expect(through, want_dx, 8, "dx in place");
    expect(dy, want_db, 8, "dbranch in place");
  }
}

static void test_loss(Type type, size_t rows, size_t vocab, float scale) {
  BEGIN("loss %s rows %zu vocab %zu scale %g skew %zu", type_name(type), rows, vocab,
        (double)scale, skew);
  Array *logits = array_draw(type, rows * vocab, 2);
  int32_t *at, *target = ids(rows, vocab, &at);
  for (size_t r = 0; r < rows; r++) {
    float *row = logits->host + r * vocab;
    /* The target is the only maximum (correct), the first of two equal maxima (correct), or the
     * second (wrong). */
    if (r % 4 < 3) row[target[r]] = 16;
    if (r % 4 == 1) row[vocab - 1] = 16;
    if (r % 4 == 2) row[0] = 16;
    if (r % 5 == 4) target[r] = -1; /* an ignored token */
  }
  at = device_copy(target, rows * sizeof *target);
  float *want = host_copy(logits);
  double want_sum[3] = {5, 6, 7}, begin[3] = {5, 6, 7}, got[3], first[3] = {0};
  ref.loss(&ref, want, want_sum, target, rows, vocab, 0.1f, scale);
  double *sum = device_scratch(sizeof begin);
  void *work = device_scratch(kernel_loss_work(rows));
  arrays_reset();
  TWICE {
    MUST(cudaMemcpy(sum, begin, sizeof begin, cudaMemcpyHostToDevice));
    MUST(kernel_loss(type, logits->at, sum, at, rows, vocab, 0.1f, scale, work, 0));
    /* If a probability exceeds 0.9, probability - 1 loses digits by cancellation. */
    expect(logits, want, type == TYPE_F32 ? 256 : 1, "loss's gradient");
    MUST(cudaMemcpy(got, sum, sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 2; i++)
      expect_near(got[i], want_sum[i], 1e-5 * (double)rows, i ? "plain loss" : "loss");
    expect_near(got[2], want_sum[2], 0, "right guesses");
    if (run) expect_near(memcmp(got, first, sizeof got), 0, 0, "loss twice");
    memcpy(first, got, sizeof got);
  }
}

static void test_all_kernels(Type type) {
  static const size_t lengths[] = {1, 7, 8, 1000, 4099, 70000};
  for (size_t i = 0; i < COUNT(lengths); i++) {
    size_t n = lengths[i];
    test_cast(type, n);
    arrays_free();
    for (int where = 0; where < 3; where++) {
      test_update(type, n, false, where);
      arrays_free();
      test_update(type, n, true, where);
      arrays_free();
    }
    if (type == TYPE_F32) {
      test_square_sums(n);
      arrays_free();
    }
  }
  static const size_t units[] = {1, 255, 257, 1030, 1999};
  for (size_t i = 0; i < 4 * COUNT(units) && type == TYPE_F32; i++) {
    test_clip(units[i / 4], (int)i % 4);
    test_clip_of_ranks(25000);
    test_clip_of_ranks(0);
    arrays_free();
  }
  static const size_t matrix[][2] = {{1, 1},      {5, 8},     {300, 40}, {1000, 37},
                                     {3000, 520}, {70, 2048}, {1, 7},    {2, 70000}};
  for (size_t i = 0; i < COUNT(matrix); i++) {
    test_column_sums(type, matrix[i][0], matrix[i][1]);
    arrays_free();
    for (int act = ACT_RELU; act <= ACT_NONE; act++) {
      test_activate(type, (Activation)act, matrix[i][0], matrix[i][1], some);
      arrays_free();
      test_activate(type, (Activation)act, matrix[i][0], matrix[i][1], none);
      arrays_free();
    }
  }

  static const size_t table[][3] = {{1, 8, 3},       {37, 24, 100},  {300, 10, 300},
                                    {2000, 64, 200}, {700, 512, 90}, {515, 1032, 9},
                                    {600, 8, 70000}};
  for (size_t i = 0; i < COUNT(table); i++) {
    test_embed(type, table[i][0], table[i][1], table[i][2], some);
    arrays_free();
    test_embed(type, table[i][0], table[i][1], table[i][2], none);
    arrays_free();
  }
  static const size_t norm[][2] = {
      {3, 8},       {130, 24},  {9, 10},    {70, 256}, {2300, 136}, {3000, 512}, {21, 504},
      {1300, 1000}, {33, 1000}, {40, 1024}, {7, 2048}, {600, 4096}, {5, 4100},   {3, 5000}};
  for (size_t i = 0; i < COUNT(norm); i++) {
    test_norm(type, norm[i][0], norm[i][1], some);
    arrays_free();
    test_norm(type, norm[i][0], norm[i][1], none);
    arrays_free();
  }
  static const size_t loss[][2] = {{1, 3},     {9, 1000},  {5, 1003},  {4, 4104}, {6, 10007},
                                   {5, 16384}, {9, 32768}, {3, 40000}, {2, 70000}};
  for (size_t i = 0; i < COUNT(loss); i++) {
    test_loss(type, loss[i][0], loss[i][1], 0.5f);
    arrays_free();
    test_loss(type, loss[i][0], loss[i][1], 0);
    arrays_free();
  }
  attention_kernels(type, &ref, only_variant);
  decode_kernels(type, &ref);
  head_kernels(type, &ref);
  if (type == TYPE_BF16 && !skew) {
    fp8_kernels();
    loss_kernels();
  }
  if (!skew) relu_kernels(type);
  if (!skew) sums_kernels(type, &ref, SIZE_MAX);
}

/* Tests one type, with all arrays aligned or none. */
static int check_one(Type type, bool all) {
  backend_reference(&ref);
  if (all)
    test_all_kernels(type);
  else
    attention_kernels(type, &ref, only_variant);
  printf("%s, %s: %d comparisons, %d failed\n", type_name(type), skew ? "askew" : "aligned",
         checks, failures);
  fflush(stdout);
  return failures ? 1 : 0;
}

/* Tests each type in its own process, in parallel, because the reference takes most of the
 * time. The parent must not have initialized CUDA. */
static int check_all(bool all) {
  int failed = 0, status;
  for (skew = 0; skew < 2; skew++) {
    for (int type = TYPE_F32; type <= TYPE_F16; type++) {
      pid_t child = fork();
      if (child == 0) _exit(check_one((Type)type, all));
      if (child < 0) failed++;
    }
  }
  while (wait(&status) > 0) failed += status != 0;
  return failed ? 1 : 0;
}

static void test_sums_alone(Type type, size_t widest) {
  backend_reference(&ref);
  sums_kernels(type, &ref, widest);
}

static bool has_device(void) {
  int devices = 0, status;
  pid_t child = fork();
  if (child == 0) _exit(cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 ? 0 : 1);
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && (!strcmp(argv[1], "--fp8") || !strcmp(argv[1], "--relu") ||
                   !strcmp(argv[1], "--loss") || !strcmp(argv[1], "--sums"))) {
    /* Runs in this process, as a sanitizer needs. */
    if (!strcmp(argv[1], "--fp8"))
      fp8_kernels();
    else if (!strcmp(argv[1], "--relu"))
      relu_kernels(TYPE_BF16);
    else if (!strcmp(argv[1], "--loss"))
      loss_kernels();
    else
      test_sums_alone(TYPE_BF16, argc > 2 ? strtoul(argv[2], NULL, 10) : SIZE_MAX);
    printf("%s: %d comparisons, %d failed\n", argv[1] + 2, checks, failures);
    return failures ? 1 : 0;
  }
  if (!has_device()) {
    fprintf(stderr, "skipped: there is no CUDA device here\n");
    return 77;
  }
  if (argc > 1 && !strcmp(argv[1], "--speed")) {
    if (argc > 2 && !strcmp(argv[2], "loss"))
      speed_output();
    else if (argc > 3 && !strcmp(argv[2], "rows"))
      speed_rows_beside(atoi(argv[3]));
    else
      speed(argc > 2 && !strcmp(argv[2], "attend"));
    return 0;
  }
  bool all = argc < 2 || strcmp(argv[1], "--attend") != 0;
  if (!all && argc > 2) only_variant = atoi(argv[2]);
  return check_all(all);
}
