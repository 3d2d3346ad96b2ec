/* Training steps as CUDA graphs: the same bits as without graphs, for batches of different
 * shapes and changes of the loss scale; few graphs; the tile counters of large GEMMs; operations
 * that cannot be captured are errors. Returns 77 if there is no GPU. Needs the plug-in in
 * TRIREME_PLUGIN_PATH. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "gpu.h"
#include "model/transformer.h"
#include "train/pass.h"

#define STEPS    50
#define CAPACITY 1024

static TransformerConfig small(void) {
  TransformerConfig c = {.vocab = 500, .max_positions = 48, .bos = 2, .eos = 1};
  ok(transformer_preset(&c, "tiny"));
  c.d_model = 128, c.ffn_dim = 192, c.heads = 2,
  c.layers[0] = c.layers[1] = 2; /* head dimension 64 */
  c.drop_embed = c.drop_attention = c.drop_activation = c.drop_residual = 0.1f;
  return c;
}

/* Adds sentences of 3 to 40 tokens until a side has `full` tokens. */
static void fill(Batch *b, Rng *rng, const TransformerConfig *c, uint32_t full) {
  int32_t *id[2] = {b->src, b->tgt_in}, *pos[2] = {b->src_pos, b->tgt_pos};
  b->sentences = 0;
  b->rows[0] = b->rows[1] = 0;
  while (b->rows[0] + 40 <= full && b->rows[1] + 40 <= full) {
    for (int side = 0; side < 2; side++) {
      uint32_t n = 3 + (uint32_t)rng_below(rng, 38);
      for (uint32_t i = 0; i < n; i++, b->rows[side]++) {
        id[side][b->rows[side]] = (int32_t)rng_below(rng, (uint64_t)c->vocab);
        pos[side][b->rows[side]] = (int32_t)i;
        if (side) b->tgt_out[b->rows[1]] = (int32_t)rng_below(rng, (uint64_t)c->vocab);
      }
    }
    b->src_off[++b->sentences] = (int32_t)b->rows[0];
    b->tgt_off[b->sentences] = (int32_t)b->rows[1];
  }
  batch_pad(b, 0);
}

typedef struct {
  Transformer t;
  Pass pass;
  OptimSpec optim;
} Run;

static float *array(const Backend *b, size_t n) {
  float *x;
  ok(b->alloc(b, &x, n * sizeof *x));
  return x;
}

static void begin(Run *r, const Backend *b, bool plain) {
  TransformerConfig c = small();
  Pass *p = &r->pass;
  float *w;
  *r = (Run){.optim = {OPTIM_ADAM, 0.9f, 0.98f, 1e-9f, 0.01f}};
  ok(transformer_new(&r->t, &c, b, CAPACITY, 0, true));
  size_t n = r->t.model.params.padded;
  *p = (Pass){
      .backend = b, .model = &r->t.model, .optim = &r->optim, .smoothing = 0.1f, .ema = 0.9f};
  p->without_graphs = plain;
  p->w = array(b, n);
  p->g = array(b, n);
  p->e = array(b, n);
  p->m = array(b, n);
  p->v = array(b, n);
  p->low = b->type == TYPE_F32 ? p->w : array(b, n);
  ok(b->alloc(b, &p->sums, (n / NORM_UNIT + 1) * sizeof *p->sums));
  ok(pass_open(p));
  ok(mem_alloc_aligned(&w, n * sizeof *w));
  params_init(&r->t.model.params, 5, w);
  b->put(b, p->w, w, n * sizeof *w);
  b->lower(b, p->low, p->w, n);
  mem_free(w);
}

static void end(Run *r) {
  const Backend *b = r->pass.backend;
  void *list[] = {r->pass.low == r->pass.w ? NULL : r->pass.low,
                  r->pass.w,
                  r->pass.g,
                  r->pass.e,
                  r->pass.m,
                  r->pass.v,
                  r->pass.sums};
  pass_close(&r->pass);
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (list[i]) b->release(b, list[i]);
  transformer_free(&r->t);
}

/* Runs steps of one and two micro-batches, with changes of the loss scale, a short batch, and a
 * step whose gradient norm is not finite. */
static void take_steps(Run *r, StepNumbers *now) {
  Rng rng = {.key = 31};
  TransformerConfig c = small();
  Batch batch;
  ok(batch_new(&batch, CAPACITY, CAPACITY / 3));
  for (uint64_t step = 0; step < STEPS; step++) {
    float scale = step < 20 || step > 40 ? 1 : 4;
    StepKey key = {step + 1, true, false};
    now[step] = optim_numbers(&r->optim, step, 1e-3);
    now[step].max_grad_norm = 0.5;
    fill(&batch, &rng, &c, step == 29 || step == STEPS - 1 ? 100 : CAPACITY);
    if (step % 5 < 3) {
      now[step].grad_divisor = (double)batch.rows[1] * (double)scale;
      if (step == 32)
        now[step].grad_divisor = 0; /* the norm is not finite, so the update is skipped */
      pass_begin(&r->pass);
      ok(pass_whole(&r->pass, &batch, key, scale, NULL, NULL, &now[step]));
    } else {
      double rows = batch.rows[1];
      pass_begin(&r->pass);
      ok(pass_gradients(&r->pass, &batch, key, scale, NULL, NULL));
      fill(&batch, &rng, &c, CAPACITY);
      ok(pass_gradients(&r->pass, &batch, key, scale, NULL, NULL));
      now[step].grad_divisor = (rows + batch.rows[1]) * (double)scale;
      ok(pass_update(&r->pass, &now[step]));
    }
    ok(pass_end(&r->pass, &now[step]));
    assert_int_equal(isfinite(now[step].grad_scale) != 0, step != 32);
  }
  batch_free(&batch);
}

static void same(const Run *a, const Run *b, const void *x, const void *y, size_t bytes,
                 const char *what) {
  char *here[2];
  const Backend *backend[] = {a->pass.backend, b->pass.backend};
  const void *there[] = {x, y};
  for (int i = 0; i < 2; i++) {
    ok(mem_alloc(&here[i], bytes, 1));
    ok(backend[i]->get(backend[i], here[i], there[i], bytes));
  }
  if (memcmp(here[0], here[1], bytes) != 0) fail_msg("%s differ", what);
  mem_free(here[0]);
  mem_free(here[1]);
}

static void test_steps_as_graphs_give_same_bits(void **state) {
  (void)state;
  static const char *const precisions[] = {"fp32", "bf16", "fp16"};
  static StepNumbers plain[STEPS], with_graphs[STEPS];
  for (int i = 0; i < 3; i++) {
    Backend b;
    Run one, two;
    open_gpu(&b, precisions[i]);
    assert_non_null(b.graph_begin);
    begin(&one, &b, true);
    begin(&two, &b, false);
    take_steps(&one, plain);
    take_steps(&two, with_graphs);
    size_t n = one.t.model.params.padded;
    const Pass *p = &one.pass, *q = &two.pass;
    for (int s = 0; s < STEPS; s++) {
      if (memcmp(plain[s].loss, with_graphs[s].loss, sizeof plain[s].loss) != 0)
        fail_msg("%s, step %d: the losses differ", precisions[i], s);
      if (s != 32 && (plain[s].grad_norm != with_graphs[s].grad_norm ||
                      plain[s].grad_scale != with_graphs[s].grad_scale))
        fail_msg("%s, step %d: the norms differ", precisions[i], s);
    }
    assert_true(plain[STEPS - 2].loss[1] / plain[STEPS - 2].grad_divisor <
                plain[0].loss[1] / plain[0].grad_divisor);
    same(&one, &two, p->w, q->w, n * sizeof(float), "weights");
    same(&one, &two, p->m, q->m, n * sizeof(float), "first moments");
    same(&one, &two, p->v, q->v, n * sizeof(float), "second moments");
    same(&one, &two, p->e, q->e, n * sizeof(float), "means");
    same(&one, &two, p->low, q->low, n * type_size(b.type), "low copies");
    printf("%s: %d graphs, %d launches\n", precisions[i], (int)q->graphs.captured,
           (int)q->graphs.launched);
    assert_int_equal(p->graphs.captured, 0);
    assert_true(q->graphs.captured >= 3 && q->graphs.captured <= 24);
    assert_true(q->graphs.launched > STEPS / 2);
    end(&one);
    end(&two);
    backend_close(&b);
  }
}

/* The low-precision copy that the update writes equals the converted weights. */
static void test_update_low_precision_copy_equals_cast_weights(void **state) {
  (void)state;
  static StepNumbers now[STEPS];
  Backend b;
  Run r;
  open_gpu(&b, "bf16");
  begin(&r, &b, false);
  take_steps(&r, now);
  size_t n = r.t.model.params.padded;
  float *low = array(&b, n);
  b.lower(&b, low, r.pass.w, n);
  same(&r, &r, low, r.pass.low, n * type_size(b.type), "copies");
  b.release(&b, low);
  end(&r);
  backend_close(&b);
}

/* Large GEMMs have a tile counter, which must be 0 when they start. Each of these GEMMs shifts the
 * columns of its input by one, exactly, so the result shows whether each ran once and in its turn:
 * more GEMMs than there are counters, launched twice. */
static void test_gemms_in_graph_run_once_and_in_order(void **state) {
  (void)state;
  enum { ROWS = 25600, D = 512, GEMMS = 1100, LAUNCHES = 2 };
  const size_t cells = (size_t)ROWS * D, size = type_size(TYPE_BF16);
  Backend b;
  Graph *r;
  float *host, *full, *w, *x[2];
  uint16_t *first, *got;
  open_gpu(&b, "bf16");
  ok(mem_alloc_aligned(&host, cells * sizeof *host));
  ok(mem_alloc(&first, cells, sizeof *first));
  ok(mem_alloc(&got, cells, sizeof *got));
  full = array(&b, cells);
  w = array(&b, D * D);
  for (int i = 0; i < 2; i++) x[i] = array(&b, cells);
  for (size_t i = 0; i < D * D; i++) host[i] = i % D == (i / D + 1) % D;
  b.put(&b, full, host, D * D * sizeof *host);
  b.lower(&b, w, full, D * D);
  Rng rng = {.key = 3};
  for (size_t i = 0; i < cells; i++) host[i] = (float)rng_below(&rng, 256);
  b.put(&b, full, host, cells * sizeof *host);
  b.lower(&b, x[0], full, cells);
  ok(b.get(&b, first, x[0], cells * size));
  b.linear(&b, x[1], x[0], w, NULL, ROWS, D, D); /* selects the algorithm */
  ok(b.graph_begin(&b));
  for (int i = 0; i < GEMMS; i++) b.linear(&b, x[(i + 1) % 2], x[i % 2], w, NULL, ROWS, D, D);
  ok(b.graph_end(&b, &r));
  for (size_t launch = 1; launch <= LAUNCHES; launch++) {
    size_t wrong = 0;
    b.graph_launch(&b, r);
    ok(b.get(&b, got, x[GEMMS % 2], cells * size));
    for (size_t i = 0; i < cells; i++)
      wrong += got[i] != first[i / D * D + (i + launch * GEMMS) % D];
    if (wrong) fail_msg("launch %zu: %zu of %zu elements are wrong", launch, wrong, cells);
  }
  b.graph_free(&b, r);
  void *list[] = {full, w, x[0], x[1]};
  for (int i = 0; i < 4; i++) b.release(&b, list[i]);
  mem_free(host);
  mem_free(first);
  mem_free(got);
  backend_close(&b);
}

/* Operations that cannot be captured return an error, without a hang. */
static void test_capture_of_host_operations_is_refused(void **state) {
  (void)state;
  for (int which = 0; which < 5; which++) {
    Backend b;
    Graph *r;
    float x[16] = {0}, *there;
    void *block;
    open_gpu(&b, "fp32");
    there = array(&b, 16);
    ok(b.sync(&b));
    ok(b.graph_begin(&b));
    b.zero(&b, there, sizeof x);
    switch (which) {
      case 0:
        assert_int_equal(b.alloc(&b, &block, 64), ERR_WORK);
        break;
      case 1:
        b.put(&b, there, x, sizeof x);
        break;
      case 2:
        assert_int_equal(b.get(&b, x, there, sizeof x), ERR_WORK);
        break;
      case 3:
        assert_int_equal(b.sync(&b), ERR_WORK);
        break;
      default: /* a GEMM of a new shape */
        b.linear(&b, there, there, there, NULL, 1, 3, 1);
    }
    assert_int_equal(b.graph_end(&b, &r), ERR_WORK);
    assert_non_null(strstr(err_message(), "TRIREME_GRAPH=0"));
    assert_null(r);
    assert_int_equal(b.sync(&b), ERR_WORK); /* the error is returned again */
    b.release(&b, there);
    backend_close(&b);
  }
}

int main(void) {
  int why = check_gpu();
  if (why) return why;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_steps_as_graphs_give_same_bits),
      cmocka_unit_test(test_update_low_precision_copy_equals_cast_weights),
      cmocka_unit_test(test_gemms_in_graph_run_once_and_in_order),
      cmocka_unit_test(test_capture_of_host_operations_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
