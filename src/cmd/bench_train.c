/* trireme bench train: speed of training steps on one device. Sentences or texts have the lengths
 * listed in a file and random token ids, so the speed depends only on lengths and model size.
 * Depends on model, train/pass, bench_batches. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "backend/peak.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cmd/bench_batches.h"
#include "cmd/bench_parts.h"
#include "train/pass.h"

#define WARM_UP     3 /* steps with each batch shape before the measurement */
#define TIMED_STEPS 5 /* largest number of steps that are timed operation by operation */

/* The settings of the optimizer and the loss, which are those of `train` for the family. */
typedef struct {
  OptimSpec optim;
  float smoothing;
  GroupSpec groups;
} Settings;

static const Settings translator = {
    .optim = {OPTIM_ADAM, 0.9f, 0.98f, 1e-9f, 0}, .smoothing = 0.1f, .groups = {0}};
static const Settings classifier = {.optim = {OPTIM_ADAMW, 0.9f, 0.999f, 1e-8f, 0.01f},
                                    .smoothing = 0,
                                    .groups = {.skips_biases = true}};

/* The state of training steps without data set, ranks and files. */
typedef struct {
  const Settings *settings;
  Model *model;
  Pass pass;
  OptimGroups groups;
  /* Sums since the warm-up: */
  double loss;
  uint64_t tokens[2]; /* source and target tokens, or tokens of texts */
  uint64_t examples, predictions;
  uint64_t taken; /* bytes of the backend's memory that this benchmark allocated */
  uint64_t left;  /* bytes that were free on the GPU before the benchmark allocated memory */
} Trainer;

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
  r->settings = bench_has_texts(c) ? &classifier : &translator;
  r->taken = r->model->arena_bytes;
  *p = (Pass){.backend = b,
              .model = r->model,
              .optim = &r->settings->optim,
              .smoothing = r->settings->smoothing};
  TRY(groups_new(&r->groups, &r->model->params, &r->settings->groups));
  if (bench_has_texts(c)) p->groups = &r->groups;
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
  groups_free(&r->groups);
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
static Err run_step(Trainer *r, const BenchBatch *batch, uint64_t number,
                    const BenchBatch *next) {
  StepNumbers now = optim_numbers(&r->settings->optim, number, 1e-4);
  now.max_grad_norm = 1;
  now.grad_divisor = batch->predictions;
  pass_begin(&r->pass);
  TRY(pass_whole(&r->pass, batch->data, make_step_key(number), 1, NULL, NULL, &now));
  if (next) pass_load(&r->pass, next->data, make_step_key(number + 1));
  TRY(pass_end(&r->pass, &now));
  r->loss += now.loss[0];
  for (int side = 0; side < 2; side++) r->tokens[side] += batch->tokens[side];
  r->examples += batch->examples;
  r->predictions += batch->predictions;
  return ERR_OK;
}

/* Returns the FLOPs of the GEMMs: 6 per weight and token (2 forward, 4 backward). Attention
 * scores are not counted. */
static double count_flops(const Trainer *r) {
  const ModelConfig *c = &r->model->config;
  ModelShape shape = c->family->shape(c);
  return 6 * ((double)r->tokens[0] * shape.gemm_weights[0] +
              (double)r->tokens[1] * shape.gemm_weights[1]);
}

/* Returns true if the model has run a batch of the same shape as the loaded one; otherwise records
 * the shape. */
static bool is_known_shape(const Model *m, uint32_t (*shape)[4], size_t *count) {
  for (size_t i = 0; i < *count; i++)
    if (memcmp(shape[i], m->shape, sizeof m->shape) == 0) return true;
  memcpy(shape[(*count)++], m->shape, sizeof m->shape);
  return false;
}

/* On a device, runs each batch shape WARM_UP times, to select GEMM algorithms, to capture its CUDA
 * graph and to launch the graph once. On a CPU one batch is enough. */
static Err warm_up(Trainer *r, const BenchBatches *all) {
  bool is_on_device = !r->model->backend->host;
  uint32_t shape[BENCH_BATCHES][4];
  size_t shapes = 0;
  for (size_t i = 0; i < (is_on_device ? all->count : 1); i++) {
    pass_load(&r->pass, all->batch[i].data, make_step_key(0));
    if (is_known_shape(r->model, shape, &shapes)) continue;
    for (uint64_t n = 0; n < WARM_UP; n++) TRY(run_step(r, &all->batch[i], n, NULL));
  }
  r->loss = 0;
  r->tokens[0] = r->tokens[1] = r->examples = r->predictions = 0;
  return ERR_OK;
}

/* A trainer and the batches that it uses in turn. */
typedef struct {
  Trainer *r;
  const BenchBatches *all;
} Turns;

static const BenchBatch *find_batch(const BenchBatches *all, uint64_t number) {
  return &all->batch[number % all->count];
}

/* Runs a step without CUDA graphs, with the model's current backend, which may be a timing
 * backend. */
static Err step_in_turn(void *context, uint64_t number) {
  const Turns *t = context;
  Pass *pass = &t->r->pass;
  pass->backend = t->r->model->backend;
  pass->without_graphs = true;
  return run_step(t->r, find_batch(t->all, number), number, NULL);
}

/* What was measured. */
typedef struct {
  double tokens, examples; /* per second; of translators the target tokens */
  double cpu_tokens;       /* tokens per CPU second, all threads together */
  double step_ms, flops;   /* milliseconds of a step, FLOP/s */
  double mfu;              /* share of the device's peak; 0: unknown */
  double loss;             /* mean of a prediction */
  uint64_t memory;         /* bytes */
  uint64_t graphs;         /* number of CUDA graphs captured */
} Result;

static Err run_steps(Trainer *r, const BenchBatches *all, uint64_t steps, double *seconds) {
  double start = progress_clock();
  for (uint64_t i = 0; i < steps; i++) {
    const BenchBatch *next = i + 1 < steps ? find_batch(all, i + 1) : NULL;
    TRY(run_step(r, find_batch(all, i), i + WARM_UP, next));
  }
  *seconds = progress_clock() - start;
  return ERR_OK;
}

static Err measure_steps(Trainer *r, const BenchBatches *all, const OptSet *opts, Result *out) {
  uint64_t steps = (uint64_t)opt_count(opts, "steps");
  double seconds, peak = backend_peak(r->model->backend, opt_text(opts, "precision"));
  TRY(warm_up(r, all));
  double cpu = progress_cpu_clock();
  TRY(run_steps(r, all, steps, &seconds));
  cpu = progress_cpu_clock() - cpu;
  out->tokens = (double)r->tokens[bench_has_texts(&all->config) ? 0 : 1] / seconds;
  out->cpu_tokens = out->tokens * seconds / cpu;
  out->examples = (double)r->examples / seconds;
  out->step_ms = 1e3 * seconds / (double)steps;
  out->flops = count_flops(r) / seconds;
  out->mfu = peak > 0 ? out->flops / peak : 0;
  out->loss = r->loss / (double)r->predictions;
  out->graphs = r->pass.graphs.captured;
  return measure_memory(r, &out->memory);
}

static json_t *make_json(const Trainer *r, const BenchBatches *all, const OptSet *opts,
                         const Result *x) {
  bool texts = bench_has_texts(&all->config);
  json_t *j = json_pack(
      "{s:s, s:s, s:s, s:s, s:I, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "bench", "train",
      "backend", r->model->backend->about, "preset", opt_text(opts, "preset"), "precision",
      opt_text(opts, "precision"), "parameters", (json_int_t)r->model->params.total,
      "batch_tokens", (int)all->plan.capacity, texts ? "tok_s" : "tgt_tok_s", x->tokens,
      "step_ms", x->step_ms, "fill", all->plan.fill, "model_tflops", x->flops * 1e-12, "loss",
      x->loss, "memory_gb", (double)x->memory / 1e9, "graphs", (json_int_t)x->graphs);
  if (texts) json_object_set_new(j, "texts_s", json_real(x->examples));
  if (r->model->backend->host) json_object_set_new(j, "tok_cpu_s", json_real(x->cpu_tokens));
  if (x->mfu > 0) json_object_set_new(j, "mfu", json_real(x->mfu));
  return j;
}

static void print_result(const Trainer *r, const BenchBatches *all, const OptSet *opts,
                         const Result *x) {
  bool texts = bench_has_texts(&all->config);
  char count[32], speed[64], mfu[32] = "";
  printf("%s; %s, %s parameters, batches of %u tokens%s\n", r->model->backend->about,
         opt_text(opts, "preset"), str_of_count(count, r->model->params.total),
         all->plan.capacity, texts ? "" : " a side");
  if (texts)
    snprintf(speed, sizeof speed, "%.0f tokens/s, %.0f texts/s", x->tokens, x->examples);
  else
    snprintf(speed, sizeof speed, "%.0f target tokens/s", x->tokens);
  if (x->mfu > 0) snprintf(mfu, sizeof mfu, ", MFU %.1f %%", 100 * x->mfu);
  printf("train: %s, %.1f ms a step, %.3f TFLOP/s%s, mean loss %.3f, %.2f GB\n", speed,
         x->step_ms, x->flops * 1e-12, mfu, x->loss, (double)x->memory / 1e9);
  if (x->graphs)
    printf("graphs: %llu captured, %llu steps launched as graphs\n",
           (unsigned long long)x->graphs, (unsigned long long)r->pass.graphs.launched);
  fflush(stdout);
}

/* Times the operations of more steps and adds them to `into`, or prints the table. */
static Err time_operations(Trainer *r, const BenchBatches *all, uint64_t steps, json_t *into) {
  Turns turns = {r, all};
  BenchSteps timed = {&r->model->backend, step_in_turn, &turns, steps + WARM_UP,
                      steps < TIMED_STEPS ? steps : TIMED_STEPS};
  Err err = bench_parts(&timed, into);
  r->pass.backend = r->model->backend;
  return err;
}

/* Measures steps on batches that were created beforehand. The memory is measured before the
 * operations are timed, which allocates more. */
static Err run_bench(Trainer *r, const BenchBatches *all, const OptSet *opts) {
  uint64_t steps = (uint64_t)opt_count(opts, "steps");
  Result result = {0};
  TRY(measure_steps(r, all, opts, &result));
  if (!opt_flag(opts, "json")) {
    print_result(r, all, opts, &result);
    return time_operations(r, all, steps, NULL);
  }
  json_t *j = make_json(r, all, opts, &result);
  Err err = time_operations(r, all, steps, j);
  if (!err) {
    json_dumpf(j, stdout, JSON_REAL_PRECISION(6));
    putchar('\n');
  }
  json_decref(j);
  return err;
}

static Err open_bench(Trainer *r, BenchBatches *all, Backend *backend, const OptSet *opts) {
  BackendSpec device = {opt_text(opts, "device"), opt_text(opts, "precision"),
                        (int)opt_count(opts, "threads")};
  uint64_t steps = (uint64_t)opt_count(opts, "steps");
  BenchBatchSpec spec = {.preset = opt_text(opts, "preset"),
                         .path = opt_text(opts, "lengths"),
                         .vocab = (int)opt_count(opts, "vocab-size"),
                         .capacity = (uint32_t)opt_count(opts, "batch-tokens"),
                         .count = steps < BENCH_BATCHES ? (size_t)steps : BENCH_BATCHES};
  TRY(backend_open(backend, &device));
  TRY(bench_batches_open(all, &spec));
  ModelShape shape = all->config.family->shape(&all->config);
  TRY(backend_check_fp8(backend, shape.d_model, shape.ffn_dim, spec.capacity));
  return new_trainer(r, &all->config, backend, all->plan.capacity);
}

Err bench_train(const OptSet *opts) {
  if (!opt_text(opts, "lengths"))
    return err_set(ERR_USAGE,
                   "no lengths given: pass --lengths FILE, source and target length per line; "
                   "for BERT presets the length of a text per line");
  Backend backend = {0};
  BenchBatches *all;
  Trainer trainer = {0};
  TRY(mem_alloc(&all, 1, sizeof *all));
  Err err = open_bench(&trainer, all, &backend, opts);
  if (!err) err = run_bench(&trainer, all, opts);
  free_trainer(&trainer);
  bench_batches_close(all);
  mem_free(all);
  backend_close(&backend);
  return err;
}
