/* Compares the Transformer with PyTorch: logits, all gradients and ten steps of Adam, for three
 * configurations, on every backend. tests/golden/model has the expected values and the script
 * that made them. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backend/dropout.h"
#include "base/mem.h"
#include "format/safetensors.h"
#include "model/transformer.h"
#include "support.h"

#define TOLERANCE 1e-5 /* largest relative error of a norm */

static int32_t src[] = {5, 6, 7, 1, 9, 1, 11, 12, 13, 14, 15, 1},
               src_pos[] = {0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4, 5};
static int32_t src_off[] = {0, 4, 6, 12};
static int32_t tgt_in[] = {2, 21, 22, 2, 8, 9, 10, 11, 2, 17},
               tgt_out[] = {21, 22, 1, 8, 9, 10, 11, 1, 17, 1};
static int32_t tgt_pos[] = {0, 1, 2, 0, 1, 2, 3, 4, 0, 1}, tgt_off[] = {0, 3, 8, 10};
static const Batch batch = {.capacity = 12,
                            .sentences = 3,
                            .rows = {12, 10},
                            .src = src,
                            .src_pos = src_pos,
                            .src_off = src_off,
                            .tgt_in = tgt_in,
                            .tgt_out = tgt_out,
                            .tgt_pos = tgt_pos,
                            .tgt_off = tgt_off};

static TransformerConfig config_of(const char *form) {
  TransformerConfig c = {.vocab = 23,
                         .d_model = 16,
                         .ffn_dim = 24,
                         .heads = 4,
                         .layers = {2, 2},
                         .max_positions = 12,
                         .norm_epsilon = 1e-6f};
  if (strcmp(form, "pre") == 0) {
    c.pre_norm = true, c.activation = ACT_RELU, c.positions = POSITION_HALVES,
    c.tying = TIE_ALL;
  } else {
    bool tied = strcmp(form, "post") == 0;
    c.attention_bias = true;
    c.activation = tied ? ACT_GELU : ACT_SILU;
    c.positions = tied ? POSITION_INTERLEAVED : POSITION_LEARNED;
    c.tying = tied ? TIE_DECODER : TIE_NONE;
  }
  return c;
}

typedef struct {
  Backend backend;
  Transformer t;
  SafeFile golden;
  float *w, *g, *m, *v;
} Fixture;

static void read_golden(const Fixture *f, const char *kind, const char *name, float *out,
                        uint64_t count) {
  char full[96];
  snprintf(full, sizeof full, "%s%s", kind, name);
  const SafeTensor *t = safetensors_find(&f->golden, full);
  if (!t) fail_msg("the golden file has no %s", full);
  OK(safetensors_read(&f->golden, t, out, count));
}

static void open_fixture(Fixture *f, const char *form, bool reference) {
  char path[64];
  TransformerConfig c = config_of(form);
  *f = (Fixture){0};
  if (reference)
    backend_reference(&f->backend);
  else
    OK(backend_cpu(&f->backend, 2, false));
  OK(transformer_new(&f->t, &c, &f->backend, batch.capacity, 0, true));
  snprintf(path, sizeof path, "tests/golden/model/%s.safetensors", form);
  OK(safetensors_open(&f->golden, path));
  float **array[] = {&f->w, &f->g, &f->m, &f->v};
  for (int i = 0; i < 4; i++)
    OK(mem_alloc_aligned(array[i], f->t.model.params.padded * sizeof(float)));
  size_t weights = 0;
  for (size_t i = 0; i < f->golden.tensors; i++)
    weights += strncmp(f->golden.tensor[i].name, "weight/", 7) == 0;
  assert_int_equal(weights, f->t.model.params.count); /* both models have the same parameters */
  for (size_t i = 0; i < f->t.model.params.count; i++) {
    const Param *p = &f->t.model.params.param[i];
    read_golden(f, "weight/", p->name, f->w + p->offset, p->rows * p->cols);
  }
}

static void close_fixture(Fixture *f) {
  transformer_free(&f->t);
  safetensors_close(&f->golden);
  float *array[] = {f->w, f->g, f->m, f->v};
  for (int i = 0; i < 4; i++) mem_free(array[i]);
}

static double difference(const float *a, const float *b, size_t n) {
  double error = 0, size = 0;
  for (size_t i = 0; i < n; i++) {
    error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    size += (double)b[i] * b[i];
  }
  return sqrt(error / (size + 1e-30));
}

static void assert_close(const char *name, const float *a, const float *b, size_t n) {
  double e = difference(a, b, n);
  if (!(e < TOLERANCE)) fail_msg("%s is off by %g", name, e);
}

static void check_gradients(const char *form, bool reference) {
  Fixture f;
  float golden[4096];
  open_fixture(&f, form, reference);
  /* Without backward, the logits are not overwritten by gradients. */
  Weights w = {f.w, f.w};
  transformer_step(&f.t, w, NULL, &batch, (StepKey){0}, 0.1f, 1, NULL, NULL);
  read_golden(&f, "", "logits", golden, 10 * 23);
  assert_close("logits", f.t.logits, golden, 10 * 23);
  transformer_step(&f.t, w, f.g, &batch, (StepKey){0}, 0.1f, 1, NULL, NULL);
  for (size_t i = 0; i < f.t.model.params.count; i++) {
    const Param *p = &f.t.model.params.param[i];
    assert_true(p->rows * p->cols <= 4096);
    read_golden(&f, "grad/", p->name, golden, p->rows * p->cols);
    assert_close(p->name, f.g + p->offset, golden, p->rows * p->cols);
  }
  close_fixture(&f);
}

static void check_ten_steps(const char *form, bool reference) {
  Fixture f;
  ModelLoss loss;
  float losses[10];
  open_fixture(&f, form, reference);
  read_golden(&f, "", "losses", losses, 10);
  size_t n = f.t.model.params.padded;
  for (int step = 0; step < 10; step++) {
    memset(f.g, 0, n * sizeof(float));
    transformer_step(&f.t, (Weights){f.w, f.w}, f.g, &batch, (StepKey){0}, 0.1f, 0.1f, NULL,
                     NULL);
    OK(model_loss(&f.t.model, &loss));
    if (!(fabs(loss.sum[0] - losses[step]) < TOLERANCE * losses[step])) {
      fail_msg("%s: loss %d is %.8g, PyTorch has %.8g", form, step, loss.sum[0],
               (double)losses[step]);
    }
    StepNumbers now = {.lr = 1e-3f, .grad_scale = 1};
    AdamStep adam = {
        .beta1 = 0.9f, .beta2 = 0.98f, .epsilon = 1e-9f, .now = &now, .lr_factor = 1};
    now.correction1 = 1 - powf(0.9f, (float)(step + 1));
    now.correction2 = 1 - powf(0.98f, (float)(step + 1));
    f.backend.adam(&f.backend, f.w, f.m, f.v, f.g, n, &adam);
  }
  close_fixture(&f);
}

static void test_model_gradients_equal_pytorch(void **state) {
  (void)state;
  const char *forms[] = {"pre", "post", "free"};
  for (int i = 0; i < 3; i++) {
    check_gradients(forms[i], true);
    check_gradients(forms[i], false);
  }
}

static void test_model_10_steps_equal_pytorch(void **state) {
  (void)state;
  const char *forms[] = {"pre", "post", "free"};
  for (int i = 0; i < 3; i++) {
    check_ten_steps(forms[i], true);
    check_ten_steps(forms[i], false);
  }
}

static void test_model_preset_base_has_reference_size(void **state) {
  (void)state;
  static const struct {
    const char *preset;
    size_t parameters;
  } cases[] = {{"base", 60880896}, {"big", 209842176}};
  for (int i = 0; i < 2; i++) {
    TransformerConfig c = {.vocab = 32768, .max_positions = 256};
    Params p;
    OK(transformer_preset(&c, cases[i].preset));
    OK(transformer_lay_out_params(&p, &c));
    assert_int_equal(p.total, cases[i].parameters);
    for (size_t ranks = 1; ranks <= 10; ranks++) assert_int_equal(p.padded % ranks, 0);
    params_free(&p);
  }
}

/* With the same dropout key the fast backend and the reference drop the same elements. */
static void test_dropout_same_key_same_mask_everywhere(void **state) {
  (void)state;
  Fixture a, b;
  ModelLoss loss[2];
  open_fixture(&a, "pre", true);
  open_fixture(&b, "pre", false);
  Transformer *t[2] = {&a.t, &b.t};
  for (int i = 0; i < 2; i++) {
    TransformerConfig *c = &t[i]->config;
    c->drop_embed = c->drop_attention = c->drop_activation = c->drop_residual = 0.3f;
  }
  StepKey key = {99, true, false};
  transformer_step(&a.t, (Weights){a.w, a.w}, a.g, &batch, key, 0.1f, 1, NULL, NULL);
  transformer_step(&b.t, (Weights){b.w, b.w}, b.g, &batch, key, 0.1f, 1, NULL, NULL);
  OK(model_loss(&a.t.model, &loss[0]));
  OK(model_loss(&b.t.model, &loss[1]));
  assert_close("gradients under dropout", b.g, a.g, a.t.model.params.padded);
  assert_true(fabs(loss[0].sum[0] - loss[1].sum[0]) < 1e-5 * loss[0].sum[0]);
  close_fixture(&a);
  close_fixture(&b);
}

/* A device's linear_relu_backward, composed of the two separate operations. Used for source
 * tokens only, or for all. */
static int fused;
static bool fuses_some(const Backend *b, size_t rows, size_t in, size_t out) {
  (void)b;
  assert_true(in == 24 && out == 16);
  return rows == 12;
}
static bool fuses_all(const Backend *b, size_t rows, size_t in, size_t out) {
  return fuses_some(b, rows, in, out) || rows == 10;
}
static void relu_back(const Backend *b, void *dx, float *dbias, const void *dy, const void *w,
                      const uint8_t *mask, size_t rows, size_t in, size_t out, Dropout drop,
                      bool add) {
  b->linear_dx(b, dx, dy, w, rows, in, out, false);
  b->activate_backward(b, dx, dbias, dx, mask, rows, in, ACT_RELU, drop, add);
  fused++;
}

/* A device's linear_relu_dropout, composed of the two separate operations, and the layer norm
 * that draws the bits for it: it fills the mask, which linear_relu_dropout must receive. */
static void (*plain_norm)(const Backend *, void *, void *, float *, const void *, const void *,
                          const float *, const float *, const AddNorm *);
static int fused_forward;
static bool fuses_forward_some(const Backend *b, size_t rows, size_t in, size_t out) {
  return fuses_some(b, rows, out, in);
}
static bool fuses_forward_all(const Backend *b, size_t rows, size_t in, size_t out) {
  return fuses_all(b, rows, out, in);
}
static void norm_ahead(const Backend *b, void *sum, void *y, float *stat, const void *x,
                       const void *branch, const float *gain, const float *bias,
                       const AddNorm *n) {
  plain_norm(b, sum, y, stat, x, branch, gain, bias, n);
  if (!n->ahead) return;
  assert_int_equal(n->ahead_width, 24);
  memset(n->ahead, 0, n->rows * n->ahead_width / 8);
  for (size_t i = 0; i < n->rows * n->ahead_width; i++)
    if (dropout_factor(n->ahead_drop, i) != 0) n->ahead[i / 8] |= (uint8_t)(1 << i % 8);
}
static void relu_forth(const Backend *b, void *y, uint8_t *mask, const void *x, const void *w,
                       const void *bias, size_t rows, size_t in, size_t out, Dropout drop) {
  for (size_t i = 0; i < rows * out; i++)
    assert_int_equal(mask[i / 8] >> i % 8 & 1, dropout_factor(drop, i) != 0);
  b->linear(b, y, x, w, NULL, rows, in, out);
  b->activate(b, y, mask, y, bias, rows, out, ACT_RELU, drop);
  fused_forward++;
}

static void test_model_fused_forward_relu_same_bits(void **state) {
  (void)state;
  static const struct {
    const char *form;
    bool (*fuses)(const Backend *, size_t, size_t, size_t);
    int calls; /* number of calls in two steps */
    float rate;
  } cases[] = {{"pre", fuses_forward_some, 4, 0.3f},
               {"pre", fuses_forward_all, 8, 0.3f},
               {"pre", fuses_forward_all, 8, 0},
               {"post", fuses_forward_all, 0, 0.3f}};
  for (int i = 0; i < 4; i++) {
    Fixture f[2];
    fused_forward = 0;
    for (int one = 0; one < 2; one++) {
      open_fixture(&f[one], cases[i].form, true);
      if (one) f[1].backend.fuses_linear_relu_dropout = cases[i].fuses;
      plain_norm = f[one].backend.add_norm;
      f[one].backend.add_norm = norm_ahead;
      f[one].backend.linear_relu_dropout = relu_forth;
      f[one].t.config.drop_activation = cases[i].rate;
      for (int step = 0; step < 2; step++)
        transformer_step(&f[one].t, (Weights){f[one].w, f[one].w}, f[one].g, &batch,
                         (StepKey){7, true, step == 0}, 0.1f, 1, NULL, NULL);
    }
    assert_int_equal(fused_forward, cases[i].calls);
    assert_memory_equal(f[0].g, f[1].g, f[0].t.model.params.padded * sizeof(float));
    close_fixture(&f[0]), close_fixture(&f[1]);
  }
}

/* A device's linear_loss and its gradients, composed of the four separate operations. They use all
 * of their scratch memory. */
static int fused_losses;
static bool fuses_two_rows(const Backend *b, size_t rows, size_t in, size_t vocab) {
  (void)b;
  assert_int_equal(in, 16);
  assert_int_equal(vocab, 23);
  return rows == 2;
}
static void fused_loss(const Backend *b, const LinearLoss *j) {
  b->linear(b, j->logits, j->x, j->w, NULL, j->rows, j->in, j->vocab);
  b->loss(b, j->logits, j->loss, j->target, j->rows, j->vocab, j->smoothing, j->scale);
}
static void fused_loss_dx(const Backend *b, const LinearLoss *j) {
  b->linear_dx(b, j->dx, j->logits, j->w, j->rows, j->in, j->vocab, false);
}
static void fused_loss_dw(const Backend *b, const LinearLoss *j) {
  b->linear_dw(b, j->dw, NULL, j->logits, j->x, j->rows, j->in, j->vocab, j->accumulate);
  memset(j->logits, 0xff, (j->rows + LOSS_EXTRA_ROWS) * j->vocab * sizeof(float));
  memset(j->scaled, 0xff, (j->rows + LOSS_EXTRA_ROWS) * j->in * sizeof(float));
  fused_losses++;
}

/* Two steps with the logits of up to `tokens` of the 10 tokens at a time. The operation takes those
 * of two tokens, unless the output layer has a bias: `calls` in both steps. The first step
 * overwrites gradients that are NaN, the second one adds to them. */
static void check_fused_loss(bool has_bias, size_t tokens, int calls) {
  TransformerConfig c = config_of("pre");
  Transformer t[2];
  Backend b[2];
  float *w, *g[2];
  double sums[2][3];
  c.output_bias = has_bias;
  fused_losses = 0;
  for (int one = 0; one < 2; one++) {
    backend_reference(&b[one]);
    b[one].fuses_loss = one ? fuses_two_rows : NULL;
    b[one].linear_loss = fused_loss;
    b[one].linear_loss_dx = fused_loss_dx;
    b[one].linear_loss_dw = fused_loss_dw;
    OK(transformer_new(&t[one], &c, &b[one], batch.capacity, tokens, true));
    size_t n = t[one].model.params.padded;
    OK(mem_alloc_aligned(&w, n * sizeof *w));
    OK(mem_alloc_aligned(&g[one], n * sizeof *w));
    for (size_t i = 0; i < n; i++) {
      w[i] = 0.3f * sinf((float)(i * i % 1009));
      g[one][i] = NAN;
    }
    for (int step = 0; step < 2; step++)
      transformer_step(&t[one], (Weights){w, w}, g[one], &batch, (StepKey){7, true, step == 0},
                       0.1f, 1, NULL, NULL);
    memcpy(sums[one], t[one].model.sums, sizeof sums[one]);
    mem_free(w);
  }
  assert_int_equal(fused_losses, calls);
  assert_true(isfinite(g[1][t[1].at.output]));
  assert_memory_equal(g[0], g[1], t[0].model.params.padded * sizeof(float));
  assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
  for (int one = 0; one < 2; one++) {
    transformer_free(&t[one]);
    mem_free(g[one]);
  }
}

static void test_model_fused_loss_same_bits(void **state) {
  (void)state;
  check_fused_loss(/*has_bias=*/false, 8, 2);
  check_fused_loss(/*has_bias=*/false, 2, 10);
  check_fused_loss(/*has_bias=*/true, 2, 0);
}

static void test_model_fused_relu_same_bits(void **state) {
  (void)state;
  static const struct {
    const char *form;
    bool (*fuses)(const Backend *, size_t, size_t, size_t);
    int calls; /* number of calls in two steps */
  } cases[] = {{"pre", fuses_some, 4}, {"pre", fuses_all, 8}, {"post", fuses_all, 0}};
  for (int i = 0; i < 3; i++) {
    Fixture f[2];
    fused = 0;
    for (int one = 0; one < 2; one++) {
      open_fixture(&f[one], cases[i].form, true);
      if (one) f[1].backend.fuses_relu = cases[i].fuses;
      /* Backend.linear_relu_backward is not used by default. */
      f[one].backend.linear_relu_backward = relu_back;
      f[one].t.config.drop_activation = 0.3f;
      for (int step = 0; step < 2; step++) /* the gradients of the second step are added */
        transformer_step(&f[one].t, (Weights){f[one].w, f[one].w}, f[one].g, &batch,
                         (StepKey){7, true, step == 0}, 0.1f, 1, NULL, NULL);
    }
    assert_int_equal(fused, cases[i].calls);
    assert_memory_equal(f[0].g, f[1].g, f[0].t.model.params.padded * sizeof(float));
    close_fixture(&f[0]), close_fixture(&f[1]);
  }
}

/* Packs a batch and pads it to `rows` tokens on each side, as for a device. */
static void pack(Batch *b, const uint32_t (*len)[2], uint32_t sentences, uint32_t most) {
  OK(batch_new(b, 40, most));
  for (uint32_t k = 0, id = 3; k < sentences; k++) {
    for (uint32_t i = 0; i < len[k][0]; i++, id++) {
      b->src[b->rows[0]] = (int32_t)(id % 23), b->src_pos[b->rows[0]++] = (int32_t)i;
    }
    for (uint32_t i = 0; i < len[k][1]; i++, id++) {
      b->tgt_in[b->rows[1]] = (int32_t)(id % 23), b->tgt_pos[b->rows[1]] = (int32_t)i;
      b->tgt_out[b->rows[1]++] = (int32_t)((id + 5) % 23);
    }
    b->src_off[k + 1] = (int32_t)b->rows[0], b->tgt_off[k + 1] = (int32_t)b->rows[1];
  }
  b->sentences = sentences;
  batch_pad(b, 22);
}

/* Padding changes no bit: compares a fake device that computes on the CPU, with padding on both
 * sides, on either side and on none, with the CPU backend. */
static void test_model_padding_changes_nothing(void **state) {
  (void)state;
  static const uint32_t len[][3][2] = {{{3, 5}, {7, 2}, {1, 6}},
                                       {{3, 5}, {4, 2}, {1, 6}},
                                       {{3, 6}, {7, 2}, {1, 8}},
                                       {{5, 6}, {2, 2}, {1, 8}}};
  const char *forms[] = {"pre", "post", "free"};
  for (int i = 0; i < 24; i++) {
    Fixture f[2];
    Batch b;
    ModelLoss loss[2];
    pack(&b, len[i % 4], 3, 3 + (uint32_t)i % 2);
    for (int side = 0; side < 2; side++)
      assert_int_equal(b.padded[side] > b.rows[side], side ? i % 4 < 2 : i % 2 == 0);
    for (int device = 0; device < 2; device++) {
      open_fixture(&f[device], forms[i / 8], i / 4 % 2);
      Transformer *t = &f[device].t;
      TransformerConfig c = t->config;
      transformer_free(t);
      c.drop_embed = c.drop_attention = c.drop_activation = c.drop_residual = 0.3f;
      f[device].backend.host = !device;
      OK(transformer_new(t, &c, &f[device].backend, b.capacity, 5, true));
      transformer_step(t, (Weights){f[device].w, f[device].w}, f[device].g, &b,
                       (StepKey){99, true, false}, 0.1f, 1, NULL, NULL);
      OK(model_loss(&t->model, &loss[device]));
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    assert_int_equal(loss[0].predictions, b.rows[1]);
    for (size_t k = 0; k < f[0].t.model.params.padded; k++) assert_true(f[0].g[k] == f[1].g[k]);
    close_fixture(&f[0]), close_fixture(&f[1]);
    batch_free(&b);
  }
}

/* Asserts that every element of the flat array is reported exactly once, when its gradient is
 * complete. */
typedef struct {
  uint8_t *told;
  const float *g;
  float *seen;
  size_t last; /* beginning of the last reported range */
  int calls;
} Announced;

static void note_ready(void *context, size_t begin, size_t end) {
  Announced *a = context;
  assert_true(begin < end);
  for (size_t i = begin; i < end; i++) {
    assert_int_equal(a->told[i], 0);
    a->told[i] = 1;
    a->seen[i] = a->g[i];
  }
  a->last = begin;
  a->calls++;
}

static void test_model_gradients_are_announced_when_complete(void **state) {
  (void)state;
  /* One range for the embeddings, one for cross_kv and one for each layer; with pre-norm two
   * more for the final norms. */
  static const struct {
    const char *form;
    int calls;
  } cases[] = {{"pre", 8}, {"post", 6}, {"free", 6}};
  for (int i = 0; i < 3; i++) {
    Fixture f;
    Announced a = {0};
    open_fixture(&f, cases[i].form, false);
    size_t n = f.t.model.params.padded;
    OK(mem_alloc(&a.told, n, 1));
    OK(mem_alloc(&a.seen, n, sizeof(float)));
    a.g = f.g;
    transformer_step(&f.t, (Weights){f.w, f.w}, f.g, &batch, (StepKey){.first = true}, 0.1f, 1,
                     note_ready, &a);
    for (size_t k = 0; k < n; k++) {
      assert_int_equal(a.told[k], 1);
      assert_true(a.seen[k] == f.g[k]);
    }
    assert_int_equal(a.calls, cases[i].calls);
    assert_int_equal(a.last, 0);
    mem_free(a.told);
    mem_free(a.seen);
    close_fixture(&f);
  }
}

/* The reported ranges of gradients, in their order. */
typedef struct {
  size_t begin[16], end[16], count;
} Ranges;

static void note_range(void *context, size_t begin, size_t end) {
  Ranges *r = context;
  assert_true(r->count < 16);
  r->begin[r->count] = begin;
  r->end[r->count] = end;
  r->count++;
}

static void test_model_announce_without_batch_has_order_of_backward(void **state) {
  (void)state;
  const char *forms[] = {"pre", "post", "free"};
  for (int i = 0; i < 3; i++) {
    Fixture f;
    Ranges made = {0}, told = {0};
    open_fixture(&f, forms[i], false);
    transformer_step(&f.t, (Weights){f.w, f.w}, f.g, &batch, (StepKey){.first = true}, 0.1f, 1,
                     note_range, &made);
    model_announce(&f.t.model, note_range, &told);
    assert_true(made.count > 5);
    assert_memory_equal(&made, &told, sizeof made);
    close_fixture(&f);
  }
}

/* The first micro-batch of a step overwrites the gradients and the others add to them: the same
 * bits as adding all of them to zero. With all logits at once and in several chunks. */
static void test_model_first_micro_batch_overwrites_gradients(void **state) {
  (void)state;
  const char *forms[] = {"pre", "post", "free"};
  for (int i = 0; i < 12; i++) {
    Fixture f;
    float *g;
    open_fixture(&f, forms[i % 3], i >= 6);
    Transformer *t = &f.t;
    TransformerConfig c = t->config;
    transformer_free(t);
    c.drop_residual = 0.3f;
    OK(transformer_new(t, &c, &f.backend, batch.capacity, i / 3 % 2 ? 4 : 0, true));
    size_t n = t->model.params.padded;
    OK(mem_alloc_aligned(&g, n * sizeof *g));
    for (size_t k = 0; k < n; k++) f.g[k] = NAN;
    for (uint64_t k = 0; k < 3; k++) {
      Weights w = {f.w, f.w};
      StepKey key = {k, true, false}, as_first = {k, true, k == 0};
      transformer_step(t, w, g, &batch, key, 0.1f, 1, NULL, NULL);
      transformer_step(t, w, f.g, &batch, as_first, 0.1f, 1, NULL, NULL);
      for (size_t e = 0; e < n; e++) assert_true(f.g[e] == g[e]);
    }
    mem_free(g);
    close_fixture(&f);
  }
}

/* model_loss returns the sum over all steps since its last call. */
static void test_model_loss_sums_steps_since_last_call(void **state) {
  (void)state;
  Fixture f;
  ModelLoss one, two, none;
  open_fixture(&f, "pre", false);
  for (int steps = 1; steps <= 2; steps++) {
    for (int i = 0; i < steps; i++)
      transformer_step(&f.t, (Weights){f.w, f.w}, NULL, &batch, (StepKey){0}, 0, 0, NULL, NULL);
    OK(model_loss(&f.t.model, steps == 1 ? &one : &two));
  }
  OK(model_loss(&f.t.model, &none));
  assert_int_equal(one.predictions, 10);
  assert_int_equal(two.predictions, 20);
  assert_true(one.sum[1] > 0 && fabs(two.sum[1] - 2 * one.sum[1]) < 1e-9 * two.sum[1]);
  assert_true(none.predictions == 0 && none.sum[0] == 0 && none.sum[1] == 0 &&
              none.sum[2] == 0);
  close_fixture(&f);
}

/* Gradient of the output bias without label smoothing: softmax minus the one-hot targets, summed over
 * the tokens. Logits of all tokens are in memory, so they can be read after a forward pass. */
static void expect_bias_gradient(const Transformer *t, double *d_bias) {
  size_t vocab = (size_t)t->config.vocab;
  const float *logits = t->logits;
  for (uint32_t r = 0; r < batch.rows[1]; r++) {
    const float *x = logits + r * vocab;
    double sum = 0;
    for (size_t i = 0; i < vocab; i++) sum += exp((double)x[i]);
    for (size_t i = 0; i < vocab; i++) d_bias[i] += exp((double)x[i]) / sum;
    d_bias[batch.tgt_out[r]] -= 1;
  }
}

static void check_output_bias(bool reference, size_t logit_rows) {
  Backend b;
  Transformer t, chunked;
  TransformerConfig c = config_of("pre");
  float *w, *g;
  double expected[23] = {0};
  c.output_bias = true;
  if (reference)
    backend_reference(&b);
  else
    OK(backend_cpu(&b, 2, false));
  OK(transformer_new(&t, &c, &b, batch.capacity, 0, true));
  OK(transformer_new(&chunked, &c, &b, batch.capacity, logit_rows, true));
  size_t n = t.model.params.padded;
  OK(mem_alloc_aligned(&w, n * sizeof *w));
  OK(mem_alloc_aligned(&g, n * sizeof *g));
  for (size_t i = 0; i < n; i++) w[i] = 0.3f * sinf((float)(i * i % 1009));
  transformer_step(&t, (Weights){w, w}, NULL, &batch, (StepKey){0}, 0, 1, NULL, NULL);
  expect_bias_gradient(&t, expected);
  for (int times = 1; times <= 2; times++) {
    StepKey key = {.first = times == 1};
    transformer_step(&chunked, (Weights){w, w}, g, &batch, key, 0, 1, NULL, NULL);
    for (int i = 0; i < c.vocab; i++)
      assert_true(fabs((double)g[t.at.output_bias + (size_t)i] - times * expected[i]) < 1e-5);
  }
  mem_free(w);
  mem_free(g);
  transformer_free(&t);
  transformer_free(&chunked);
}

static void test_model_output_bias_gradient_is_sum_of_logit_gradients(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) check_output_bias(i % 2, i / 2 ? 4 : 0);
}

/* Forward and backward give the same bits if the fp32 weights are NaN except for those that are
 * marked as read in fp32: a sharded optimizer gathers only these in fp32. */
static void test_model_reads_only_marked_weights_in_fp32(void **state) {
  (void)state;
  static const char *const form[] = {"pre", "post", "free"};
  for (int i = 0; i < 3; i++) {
    Fixture f;
    StepKey key = {.first = true};
    open_fixture(&f, form[i], false);
    const Params *p = &f.t.model.params;
    for (size_t k = 0; k < p->padded; k++) f.m[k] = NAN;
    for (size_t k = 0; k < p->count; k++) {
      const Param *q = &p->param[k];
      if (q->is_full) memcpy(f.m + q->offset, f.w + q->offset, q->rows * q->cols * sizeof *f.m);
    }
    transformer_step(&f.t, (Weights){f.w, f.w}, f.g, &batch, key, 0.1f, 1, NULL, NULL);
    transformer_step(&f.t, (Weights){f.m, f.w}, f.v, &batch, key, 0.1f, 1, NULL, NULL);
    assert_memory_equal(f.g, f.v, p->padded * sizeof *f.g);
    close_fixture(&f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_model_gradients_equal_pytorch),
      cmocka_unit_test(test_model_10_steps_equal_pytorch),
      cmocka_unit_test(test_model_preset_base_has_reference_size),
      cmocka_unit_test(test_dropout_same_key_same_mask_everywhere),
      cmocka_unit_test(test_model_fused_relu_same_bits),
      cmocka_unit_test(test_model_fused_loss_same_bits),
      cmocka_unit_test(test_model_fused_forward_relu_same_bits),
      cmocka_unit_test(test_model_padding_changes_nothing),
      cmocka_unit_test(test_model_gradients_are_announced_when_complete),
      cmocka_unit_test(test_model_announce_without_batch_has_order_of_backward),
      cmocka_unit_test(test_model_first_micro_batch_overwrites_gradients),
      cmocka_unit_test(test_model_loss_sums_steps_since_last_call),
      cmocka_unit_test(test_model_output_bias_gradient_is_sum_of_logit_gradients),
      cmocka_unit_test(test_model_reads_only_marked_weights_in_fp32),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
