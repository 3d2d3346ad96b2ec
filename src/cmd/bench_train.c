/* trireme bench train: speed of training steps on one device. The sentences have the lengths
 * listed in a file and random token ids, so the speed depends only on lengths and model size.
 * Depends on model, data/order, train/pass. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cmd/bench.h"
#include "cmd/bench_parts.h"
#include "data/input.h"
#include "model/transformer.h"
#include "train/pass.h"

#define WARM_UP     3  /* steps with each batch shape before the measurement */
#define AHEAD       32 /* number of batches, created before the measurement and used in turn */
#define TIMED_STEPS 5  /* largest number of steps that are timed operation by operation */

Err bench_read_lengths(Lengths *l, const char *path) {
  Input *in;
  const char *line;
  size_t n;
  TRY(input_open(&in, path));
  Err err = ERR_OK;
  while (!(err = input_line(in, &line, &n)) && line) {
    unsigned source, target;
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)(n < 60 ? n : 60), line);
    if (sscanf(text, "%u %u", &source, &target) != 2 || source < 2 || target < 2 ||
        source > 4096 || target > 4096) {
      err = err_set(ERR_WORK,
                    "%s:%llu: expected a source and a target length from 2 to 4096 tokens, "
                    "with the end-of-sentence token; correct this line",
                    path, (unsigned long long)input_number(in));
      break;
    }
    err = mem_grow(&l->len, &l->cap, l->pairs + 1, sizeof *l->len);
    if (err) break;
    l->len[l->pairs][0] = source - 1;
    l->len[l->pairs++][1] = target - 1;
    if (source > l->longest) l->longest = source;
    if (target > l->longest) l->longest = target;
  }
  input_close(in);
  if (!err && l->pairs == 0)
    err = err_set(ERR_WORK, "%s is empty; it must have two lengths per line", path);
  return err;
}

static Err give_lengths(void *context, uint64_t i, uint32_t len[2]) {
  const Lengths *l = context;
  len[0] = l->len[i][0];
  len[1] = l->len[i][1];
  return ERR_OK;
}

static Err open_order(Order *order, Lengths *l) {
  char path[] = "/tmp/trireme-bench-XXXXXX", hex[65];
  uint64_t bytes;
  int fd = mkstemp(path);
  if (fd < 0) return err_errno("cannot create", path);
  close(fd);
  Err err = order_write(path, &(uint64_t){l->pairs}, 1, give_lengths, l, &bytes, hex);
  if (!err) err = order_open(order, path);
  unlink(path);
  return err;
}

static void fill_side(Rng *rng, int32_t *id, int32_t *pos, uint32_t n, uint32_t vocab) {
  for (uint32_t i = 0; i < n; i++) {
    id[i] = (int32_t)(4 + rng_below(rng, vocab - 4));
    pos[i] = (int32_t)i;
  }
}

/* Fills batch number i of the plan with random token ids. */
static Err fill_batch(Batch *b, Order *order, const OrderPlan *plan, const Lengths *l,
                      uint64_t i, uint32_t vocab) {
  Rng rng = {.key = i};
  TRY(order_batch(order, plan, 7, i / plan->batches, i % plan->batches, b->pair,
                  &b->sentences));
  b->rows[0] = b->rows[1] = 0;
  for (uint32_t k = 0; k < b->sentences; k++) {
    uint32_t n = l->len[b->pair[k]][0] + 1, m = l->len[b->pair[k]][1] + 1;
    fill_side(&rng, b->src + b->rows[0], b->src_pos + b->rows[0], n, vocab);
    fill_side(&rng, b->tgt_in + b->rows[1], b->tgt_pos + b->rows[1], m, vocab);
    fill_side(&rng, b->tgt_out + b->rows[1], b->tgt_pos + b->rows[1], m, vocab);
    b->src_off[k] = (int32_t)b->rows[0];
    b->tgt_off[k] = (int32_t)b->rows[1];
    b->rows[0] += n;
    b->rows[1] += m;
  }
  b->src_off[b->sentences] = (int32_t)b->rows[0];
  b->tgt_off[b->sentences] = (int32_t)b->rows[1];
  batch_pad(b, 0);
  return ERR_OK;
}

/* The state of training steps without data set, ranks and files. */
typedef struct {
  Model *model;
  Pass pass;
  double loss;      /* sum over all target tokens since the warm-up */
  uint64_t rows[2]; /* source and target tokens since the warm-up */
  uint64_t taken;   /* bytes of the backend's memory that this benchmark allocated */
  uint64_t left;    /* bytes that were free on the GPU before the benchmark allocated memory */
} Trainer;

static const OptimSpec adam = {OPTIM_ADAM, 0.9f, 0.98f, 1e-9f, 0};

static Err alloc_counted(Trainer *r, const Backend *b, void *pointer, size_t bytes) {
  r->taken += bytes;
  return b->alloc(b, pointer, bytes);
}

static Err new_trainer(Trainer *r, const ModelConfig *c, const Backend *b, size_t capacity) {
  Pass *p = &r->pass;
  uint64_t all;
  if (!b->host) TRY(b->memory(b, &r->left, &all));
  ModelSpec spec = {.config = c, .backend = b, .capacity = capacity, .training = true};
  TRY(model_new(&r->model, &spec));
  r->taken = r->model->arena_bytes;
  *p = (Pass){.backend = b, .model = r->model, .optim = &adam, .smoothing = 0.1f};
  size_t n = r->model->params.padded;
  float **list[] = {&p->w, &p->g, &p->m, &p->v}, *start;
  for (int i = 0; i < 4; i++) TRY(alloc_counted(r, b, list[i], n * sizeof(float)));
  TRY(alloc_counted(r, b, &p->sums, (n / NORM_UNIT + 1) * sizeof *p->sums));
  p->low = p->w;
  if (b->type != TYPE_F32) TRY(alloc_counted(r, b, &p->low, n * type_size(b->type)));
  TRY(pass_open(p));
  TRY(mem_alloc_aligned(&start, n * sizeof *start));
  params_init(&r->model->params, 1, start);
  b->put(b, p->w, start, n * sizeof *start);
  mem_free(start);
  b->lower(b, p->low, p->w, n);
  return b->sync(b);
}

static void free_trainer(Trainer *r) {
  if (!r->model) return;
  const Backend *b = r->model->backend;
  void *list[] = {r->pass.low != r->pass.w ? r->pass.low : NULL,
                  r->pass.w,
                  r->pass.g,
                  r->pass.m,
                  r->pass.v,
                  r->pass.sums};
  pass_close(&r->pass);
  for (int i = 0; i < 6; i++)
    if (list[i]) b->release(b, list[i]);
  model_free(r->model);
}

/* Measures the device memory in use. Libraries (cuBLAS, NCCL) allocate memory that shows only
 * in the free memory of the device. Another program may free memory meanwhile, so the result is
 * at least r->taken. */
static Err measure_memory(const Trainer *r, uint64_t *bytes) {
  const Backend *b = r->model->backend;
  uint64_t left, all;
  *bytes = r->taken;
  /* Free host memory depends on other programs, so it is not used. */
  if (b->host) return ERR_OK;
  TRY(b->memory(b, &left, &all));
  if (left + *bytes < r->left) *bytes = r->left - left;
  return ERR_OK;
}

static StepKey make_step_key(uint64_t number) {
  return (StepKey){.key = rng_mix(1, number), .dropout = true, .first = false};
}

/* Runs one training step. Copies the next batch to the device before it synchronizes, at the
 * end of the step. */
static Err run_step(Trainer *r, const Batch *batch, uint64_t number, const Batch *next) {
  StepNumbers now = optim_numbers(&adam, number, 1e-4);
  now.max_grad_norm = 1;
  now.grad_divisor = batch->rows[1];
  TRY(pass_whole(&r->pass, batch, make_step_key(number), 1, &now));
  if (next) pass_load(&r->pass, next, make_step_key(number + 1));
  TRY(pass_end(&r->pass, &now));
  r->loss += now.loss[0];
  for (int side = 0; side < 2; side++) r->rows[side] += batch->rows[side];
  return ERR_OK;
}

/* Returns the FLOPs of the GEMMs: 6 per weight and token (2 forward, 4 backward). Attention
 * scores are not counted. */
static double count_flops(const Trainer *r) {
  const ModelConfig *c = &r->model->config;
  ModelShape shape = c->family->shape(c);
  return 6 * ((double)r->rows[0] * shape.gemm_weights[0] +
              (double)r->rows[1] * shape.gemm_weights[1]);
}

/* Runs each batch shape WARM_UP times, to select GEMM algorithms, to capture its CUDA graph and
 * to launch the graph once. Without CUDA graphs one batch is enough. */
static Err warm_up(Trainer *r, const Batch *batch, size_t batches) {
  bool has_graphs = r->model->backend->graph_begin;
  for (size_t i = 0; i < (has_graphs ? batches : 1); i++) {
    size_t k = 0;
    while (memcmp(batch[k].padded, batch[i].padded, sizeof batch[i].padded) != 0) k++;
    for (uint64_t n = 0; n < (k < i ? 0 : WARM_UP); n++) TRY(run_step(r, &batch[i], n, NULL));
  }
  return ERR_OK;
}

typedef struct {
  Trainer *r;
  const Batch *batch; /* (batches) the batches, used one after another */
  size_t batches;
} Turns;

/* Runs a step without CUDA graphs, with the model's current backend, which may be a timing
 * backend. */
static Err step_in_turn(void *context, uint64_t number) {
  const Turns *t = context;
  Pass *pass = &t->r->pass;
  pass->backend = t->r->model->backend;
  pass->without_graphs = true;
  return run_step(t->r, &t->batch[number % t->batches], number, NULL);
}

/* Measures steps on batches that were created beforehand. */
static Err run_bench(Trainer *r, Batch *batch, size_t batches, const OrderPlan *plan,
                     const OptSet *opts) {
  uint64_t steps = (uint64_t)opt_count(opts, "steps"), graphs, memory;
  TRY(warm_up(r, batch, batches));
  r->rows[0] = r->rows[1] = 0;
  r->loss = 0;
  double start = progress_clock();
  for (uint64_t i = 0; i < steps; i++) {
    const Batch *next = i + 1 < steps ? &batch[(i + 1) % batches] : NULL;
    TRY(run_step(r, &batch[i % batches], i + WARM_UP, next));
  }
  double seconds = progress_clock() - start, mean = r->loss / (double)r->rows[1];
  graphs = r->pass.graphs.captured;
  double rate = (double)r->rows[1] / seconds, flops = count_flops(r) / seconds;
  TRY(measure_memory(r, &memory)); /* measure memory before bench_parts allocates more */
  Turns turns = {r, batch, batches};
  BenchSteps timed = {&r->model->backend, step_in_turn, &turns, steps + WARM_UP,
                      steps < TIMED_STEPS ? steps : TIMED_STEPS};
  if (opt_flag(opts, "json")) {
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "bench", "train",
        "backend", r->model->backend->about, "preset", opt_text(opts, "preset"), "precision",
        opt_text(opts, "precision"), "parameters", (json_int_t)r->model->params.total,
        "batch_tokens", (int)plan->capacity, "tgt_tok_s", rate, "step_ms",
        1e3 * seconds / (double)steps, "fill", plan->fill, "model_tflops", flops * 1e-12,
        "loss", mean, "memory_gb", (double)memory / 1e9, "graphs", (json_int_t)graphs);
    Err err = bench_parts(&timed, j);
    r->pass.backend = r->model->backend;
    if (!err) {
      json_dumpf(j, stdout, JSON_REAL_PRECISION(6));
      putchar('\n');
    }
    json_decref(j);
    return err;
  }
  char count[32];
  printf("%s; %s, %s parameters, batches of %u tokens a side\n", r->model->backend->about,
         opt_text(opts, "preset"), str_of_count(count, r->model->params.total), plan->capacity);
  printf("train: %.0f target tokens/s, %.1f ms a step, %.3f TFLOP/s, mean loss %.3f, %.2f GB\n",
         rate, 1e3 * seconds / (double)steps, flops * 1e-12, mean, (double)memory / 1e9);
  if (graphs)
    printf("graphs: %llu captured, %llu steps launched as graphs\n", (unsigned long long)graphs,
           (unsigned long long)r->pass.graphs.launched);
  fflush(stdout);
  Err err = bench_parts(&timed, NULL);
  r->pass.backend = r->model->backend;
  return err;
}

Err bench_train(const OptSet *opts) {
  const char *path = opt_text(opts, "lengths");
  if (!path)
    return err_set(ERR_USAGE,
                   "no lengths given: pass --lengths FILE, source and target length per line");
  Backend backend = {0};
  TransformerConfig config = {.vocab = (int)opt_count(opts, "vocab-size"), .bos = 2, .eos = 1};
  Lengths l = {0};
  Order order = {0};
  OrderPlan plan = {0};
  Batch batch[AHEAD] = {0};
  size_t batches = (size_t)opt_count(opts, "steps");
  if (batches > AHEAD) batches = AHEAD;
  Trainer trainer = {0};
  Err err;
  BackendSpec spec = {opt_text(opts, "device"), opt_text(opts, "precision"),
                      (int)opt_count(opts, "threads")};
  TRY_DONE(backend_open(&backend, &spec));
  TRY_DONE(transformer_preset(&config, opt_text(opts, "preset")));
  TRY_DONE(backend_check_fp8(&backend, (size_t)config.d_model, (size_t)config.ffn_dim,
                             (size_t)opt_count(opts, "batch-tokens")));
  TRY_DONE(bench_read_lengths(&l, path));
  config.max_positions = (int)l.longest;
  TRY_DONE(open_order(&order, &l));
  TRY_DONE(order_plan(&plan, &order, (uint32_t)opt_count(opts, "batch-tokens")));
  for (size_t i = 0; i < batches; i++) {
    TRY_DONE(batch_new(&batch[i], plan.capacity, plan.most_sentences));
    TRY_DONE(fill_batch(&batch[i], &order, &plan, &l, i, (uint32_t)config.vocab));
  }
  ModelConfig model = transformer_model_config(&config);
  TRY_DONE(new_trainer(&trainer, &model, &backend, plan.capacity));
  err = run_bench(&trainer, batch, batches, &plan, opts);
done:
  free_trainer(&trainer);
  for (size_t i = 0; i < batches; i++) batch_free(&batch[i]);
  order_plan_free(&plan);
  order_close(&order);
  mem_free(l.len);
  backend_close(&backend);
  return err;
}
