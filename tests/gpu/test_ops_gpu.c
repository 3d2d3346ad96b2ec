/* Compares every operation of the CUDA backend with the reference in fp32, bf16 and fp16, at
 * shapes that are and are not multiples of 8; then a whole Transformer with the CPU. Returns 77
 * if there is no GPU. Needs the plug-in in TRIREME_PLUGIN_PATH. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arrays.h"
#include "model/transformer.h"

/* Copies a test case to the GPU. Also rounds the host's arrays to the type, so that both sides
 * start with the same numbers. */
static Case upload_case(const Backend *b, Case *c, unsigned low) {
  Case g = *c;
  for (int i = 0; i < ARRAYS; i++) {
    if (!c->a[i]) continue;
    g.a[i] = upload(b, c->a[i], c->n[i], low >> i & 1);
    download(b, c->a[i], g.a[i], c->n[i], low >> i & 1);
  }
  g.id = upload_ints(b, c->id, 512);
  g.pos = upload_ints(b, c->pos, 512);
  if (c->index) g.index = upload_ints(b, c->index, MAX_ROWS);
  g.off_q = upload_ints(b, c->off_q, 6);
  g.off_k = upload_ints(b, c->off_k, 6);
  g.drop.key = upload_key(b, c->drop.key);
  ok(b->alloc(b, &g.sums, 3 * sizeof *g.sums));
  ok(b->alloc(b, &g.mask, MASK_BYTES));
  return g;
}

/* Copies a test case back to the host. */
static Case download_case(const Backend *b, const Case *g, unsigned low) {
  Case c = *g;
  for (int i = 0; i < ARRAYS; i++) {
    if (!g->a[i]) continue;
    ok(mem_alloc_aligned(&c.a[i], (g->n[i] + 16) * sizeof(float)));
    download(b, c.a[i], g->a[i], g->n[i], low >> i & 1);
  }
  ok(b->get(b, c.loss, g->sums, sizeof c.loss));
  return c;
}

static void drop_case(const Backend *b, Case *g) {
  for (int i = 0; i < ARRAYS; i++) b->release(b, g->a[i]);
  void *rest[] = {g->id,    g->pos,  g->index, g->off_q,
                  g->off_k, g->sums, g->mask,  (void *)(uintptr_t)g->drop.key};
  for (int i = 0; i < 8; i++) b->release(b, rest[i]);
}

/* Returns the tolerance of an operation. In bf16 and fp16 each stored value has one rounding
 * error; attention also rounds its probabilities, twice in backward. */
static double limit_of(const Backend *b, size_t op) {
  double units = ops[op].units * 4; /* other orders of additions, faster exponentials */
  if (b->type != TYPE_F32) units = strncmp(ops[op].name, "attend", 6) == 0 ? 6 : 2;
  return units * rounding[b->type];
}

static void compare_one(const Backend *b, const Backend *reference, size_t op, int which,
                        size_t gap) {
  Case c = shape(which);
  c.gap = gap;
  ops[op].make(&c);
  Case first = upload_case(b, &c, ops[op].low);
  Case second = upload_case(b, &c, ops[op].low);
  ops[op].run(b, &first);
  ops[op].run(b, &second);
  Case got = download_case(b, &first, ops[op].low),
       again = download_case(b, &second, ops[op].low);
  ops[op].run(reference, &c);
  double e = off_by(&got, &c), most = limit_of(b, op);
  if (!(e <= most))
    fail_msg("%s: %s, shape %d, gap %zu: off by %g, %g allowed", b->about, ops[op].name, which,
             gap, e, most);
  for (int i = 0; i < ARRAYS; i++) {
    if (got.a[i] && memcmp(got.a[i], again.a[i], got.n[i] * sizeof(float)) != 0)
      fail_msg("%s: %s, shape %d: array %d differs from run to run", b->about, ops[op].name,
               which, i);
  }
  drop_arrays(&c);
  drop_arrays(&got);
  drop_arrays(&again);
  drop_case(b, &first);
  drop_case(b, &second);
}

static void test_ops_match_reference_in_all_types(void **state) {
  (void)state;
  Backend reference;
  backend_reference(&reference);
  for (int p = 0; p < 3; p++) {
    Backend b;
    open_gpu(&b, precisions[p]);
    ok(b.reserve(&b, 128, 128));
    for (size_t op = 0; op < OPS; op++) {
      /* Skips shape 3 in bf16 and fp16, where a single product may cancel to 0. */
      for (int which = 0; which < (b.type == TYPE_F32 ? 4 : 3); which++) {
        compare_one(&b, &reference, op, which, 3);
        if (strncmp(ops[op].name, "attend", 6) == 0)
          /* Uses the fast implementation of attention. */
          compare_one(&b, &reference, op, which, 8);
      }
    }
    backend_close(&b);
  }
}

/* tf32 keeps ten fraction bits of the operands. */
static void test_linear_tf32_rounds_operands(void **state) {
  (void)state;
  Backend b, reference;
  backend_reference(&reference);
  open_gpu(&b, "tf32");
  for (size_t op = 0; op < 3; op++) {
    Case c = shape(2);
    ops[op].make(&c);
    Case g = upload_case(&b, &c, ops[op].low);
    ops[op].run(&b, &g);
    Case got = download_case(&b, &g, ops[op].low);
    ops[op].run(&reference, &c);
    assert_true(off_by(&got, &c) <= 0x1p-10);
    drop_arrays(&c);
    drop_arrays(&got);
    drop_case(&b, &g);
  }
  backend_close(&b);
}

static void test_memory_copies_and_errors(void **state) {
  (void)state;
  Backend b;
  open_gpu(&b, "fp32");
  /* More elements than all pipeline stages hold, and an odd number. */
  size_t n = ((size_t)37 << 20) / 4 + 3;
  float *x = draw(n), *y = draw(n), *there, *other;
  float *kept = copy(x, n);
  ok(b.alloc(&b, &there, n * sizeof *x));
  ok(b.alloc(&b, &other, n * sizeof *x));
  ok(b.get(&b, y, there, n * sizeof *y));
  for (size_t i = 0; i < n; i++) assert_true(y[i] == 0); /* new memory is zeroed */
  b.put(&b, there, x, n * sizeof *x);
  memset(x, 0, n * sizeof *x); /* put() has copied the host memory, which may be overwritten */
  b.copy(&b, other, there, n * sizeof *x);
  b.zero(&b, there, 4);
  ok(b.get(&b, y, other, n * sizeof *y));
  assert_memory_equal(y, kept, n * sizeof *y);
  ok(b.get(&b, y, there, n * sizeof *y));
  assert_true(y[0] == 0 && y[1] == kept[1]);
  b.release(&b, there), b.release(&b, other), b.release(&b, NULL);
  void *block;
  assert_int_equal(b.alloc(&b, &block, (size_t)1 << 50), ERR_WORK);
  assert_non_null(strstr(err_message(), "--batch-tokens"));
  assert_null(block);
  ok(b.sync(&b)); /* a failed allocation does not affect later operations */
  mem_free(x);
  mem_free(y);
  mem_free(kept);
  backend_close(&b);
}

/* Makes a batch of sentences of 3 to 40 tokens with random ids. */
static void fill(Batch *batch, const TransformerConfig *c) {
  batch->sentences = 0;
  batch->rows[0] = batch->rows[1] = 0;
  batch->src_off[0] = batch->tgt_off[0] = 0;
  while (batch->rows[0] + 40 <= batch->capacity && batch->rows[1] + 40 <= batch->capacity) {
    uint32_t n = 3 + (uint32_t)rng_below(&rng, 38), m = 3 + (uint32_t)rng_below(&rng, 38);
    for (uint32_t i = 0; i < n; i++) {
      batch->src[batch->rows[0] + i] = (int32_t)rng_below(&rng, (uint64_t)c->vocab);
      batch->src_pos[batch->rows[0] + i] = (int32_t)i;
    }
    for (uint32_t i = 0; i < m; i++) {
      batch->tgt_in[batch->rows[1] + i] = (int32_t)rng_below(&rng, (uint64_t)c->vocab);
      batch->tgt_out[batch->rows[1] + i] = (int32_t)rng_below(&rng, (uint64_t)c->vocab);
      batch->tgt_pos[batch->rows[1] + i] = (int32_t)i;
    }
    batch->rows[0] += n;
    batch->rows[1] += m;
    batch->src_off[++batch->sentences] = (int32_t)batch->rows[0];
    batch->tgt_off[batch->sentences] = (int32_t)batch->rows[1];
  }
  batch_pad(batch, 0);
}

/* Computes loss and accumulated gradients of two steps with dropout. */
static void run_model(const Backend *b, const TransformerConfig *c, const Batch batch[2],
                      const float *w, float *g, ModelLoss *loss) {
  Transformer t;
  ok(transformer_new(&t, c, b, batch[0].capacity, 0, true));
  size_t n = t.model.params.padded;
  float *full = upload(b, w, n, false), *there;
  void *low = b->type == TYPE_F32 ? full : upload(b, w, n, true);
  ok(b->alloc(b, &there, n * sizeof *there));
  for (int i = 0; i < 2; i++) {
    StepKey key = {100 + (uint64_t)i, true, i == 0};
    transformer_step(&t, (Weights){full, low}, there, &batch[i], key, 0.1f, 1.0f / 64, NULL,
                     NULL);
  }
  ok(model_loss(&t.model, loss));
  ok(b->get(b, g, there, n * sizeof *g));
  if (low != full) b->release(b, low);
  b->release(b, full), b->release(b, there);
  transformer_free(&t);
}

static void compare_models(bool post) {
  TransformerConfig c = {.vocab = 500, .max_positions = 48, .bos = 2, .eos = 1};
  ok(transformer_preset(&c, "tiny"));
  c.d_model = 64;
  c.ffn_dim = 96;
  c.heads = post ? 2 : 1;
  c.layers[0] = c.layers[1] = 2;
  c.pre_norm = !post;
  c.attention_bias = post;
  c.activation = post ? ACT_GELU : ACT_RELU;
  c.positions = post ? POSITION_LEARNED : POSITION_HALVES;
  c.tying = post ? TIE_NONE : TIE_ALL;
  c.drop_embed = c.drop_attention = c.drop_activation = c.drop_residual = 0.1f;
  Params params;
  Batch batch[2];
  ok(transformer_lay_out_params(&params, &c));
  size_t n = params.padded;
  float *w = draw(n), *g[2] = {draw(n), draw(n)};
  params_init(&params, 5, w);
  for (int i = 0; i < 2; i++) {
    ok(batch_new(&batch[i], 512, 256));
    fill(&batch[i], &c);
  }
  Backend cpu;
  ModelLoss want, got;
  ok(backend_cpu(&cpu, 0, false));
  run_model(&cpu, &c, batch, w, g[0], &want);
  for (int p = 0; p < 3; p++) {
    /* The error is relative to the norm of all gradients. */
    static const double most[] = {2e-5, 0.04, 0.015};
    Backend b;
    open_gpu(&b, precisions[p]);
    run_model(&b, &c, batch, w, g[1], &got);
    double e = apart(g[1], g[0], n), l = fabs(got.sum[0] - want.sum[0]) / want.sum[0];
    if (!(e < most[p]) || !(l < most[p] / 5) || got.predictions != want.predictions)
      fail_msg("%s, %s-norm: gradients off by %g (%g allowed), loss %.8g for %.8g", b.about,
               post ? "post" : "pre", e, most[p], got.sum[0], want.sum[0]);
    backend_close(&b);
  }
  for (int i = 0; i < 2; i++) batch_free(&batch[i]);
  mem_free(w);
  mem_free(g[0]);
  mem_free(g[1]);
  params_free(&params);
}

static void test_transformer_step_matches_cpu(void **state) {
  (void)state;
  compare_models(false);
  compare_models(true);
}

int main(void) {
  int why = check_gpu();
  if (why) return why;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory_copies_and_errors),
      cmocka_unit_test(test_ops_match_reference_in_all_types),
      cmocka_unit_test(test_linear_tf32_rounds_operands),
      cmocka_unit_test(test_transformer_step_matches_cpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
