/* Prints the run before it starts: model, data, batches, ranks, device, memory; with --dry-run
 * also the time of a step and the network traffic. Depends on trainer.h. */
#include "train/plan.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/progress.h"
#include "train/fit.h"

/* Prints what the memory of the host, or of the GPU, is used for. */
static void print_shares(const FitPlan *f, bool is_host, const char *where) {
  Str line = {0};
  char text[32];
  uint64_t total = is_host ? f->host_bytes : f->device_bytes;
  for (size_t i = 0; i < f->shares; i++)
    if (f->share[i].is_host == is_host)
      str_addf(&line, "%s%s %s", line.len ? ", " : "", f->share[i].name,
               str_of_bytes(text, f->share[i].bytes));
  if (total) log_info("memory   %s%s: %s", str_of_bytes(text, total), where, str_text(&line));
  str_free(&line);
}

static Err print_memory(const Trainer *t) {
  FitPlan f;
  TRY(fit_plan(t, &f));
  print_shares(&f, /*is_host=*/false,
               world_has_others(&t->world) ? " on the GPU of rank 0" : " on the GPU");
  print_shares(&f, /*is_host=*/true,
               world_has_others(&t->world) ? " on rank 0"
               : t->world.backend.host     ? ""
                                           : " in host memory");
  return ERR_OK;
}

Err plan_print(const Trainer *t) {
  const TrainSpec *s = t->spec;
  const ModelConfig *c = &t->state.model->config;
  char about[160], parameters[32], batches[32];
  c->family->describe(c, about, sizeof about);
  log_info("model    %s, %s parameters", about,
           str_of_count(parameters, t->state.model->params.total));
  /* describe() may warn, and warnings are shown on every rank, so only rank 0 calls it. */
  if (world_is_writer(&t->world)) t->task->kind->describe(t->task);
  log_info("batches  %u x %u %s in a step, %s micro-batches per epoch, packing %.1f %%",
           t->micro_batches, t->task->capacity, t->task->kind->capacity_unit,
           str_of_count(batches, t->task->batches), 100 * t->task->fill);
  const char *way = t->world.allreduce.about;
  bool rounded = s->allreduce_bf16 && (world_has_others(&t->world) || s->reproducible);
  log_info("ranks    %s%s%s%s%s%s", comm_about(t->world.comm), *way ? ", " : "", way,
           rounded ? ", gradients all-reduced in bf16" : "",
           s->shard ? ", optimizer state sharded" : "",
           s->reproducible ? ", reproducible" : "");
  log_info("device   %s", t->world.backend.about);
  return print_memory(t);
}

/* Returns the FLOPs of the GEMMs of a step: 2 per weight and token in forward, 4 in
 * backward. */
static double count_gemm_flops(const Trainer *t) {
  const ModelConfig *c = &t->state.model->config;
  ModelShape shape = c->family->shape(c);
  double tokens = t->task->capacity;
  return 6 * tokens * t->micro_batches * (shape.gemm_weights[0] + shape.gemm_weights[1]);
}

static size_t limit_size(size_t size, size_t most) {
  return size < most ? size : most;
}

/* Measures a GEMM of the feed-forward layers for 0.2 s or more; *rate is in FLOP/s. Its sizes are
 * limited, so that it fits into memory and ends soon; larger GEMMs have about the same rate. */
static Err measure_gemm_rate(const Trainer *t, double *rate) {
  const Backend *b = &t->world.backend;
  const ModelConfig *c = &t->state.model->config;
  ModelShape shape = c->family->shape(c);
  size_t d = limit_size(shape.d_model, 2048), ff = limit_size(shape.ffn_dim, 8192);
  size_t rows = limit_size(t->task->capacity, 1024);
  size_t size = type_size(b->type);
  void *x = NULL, *y = NULL, *w = NULL;
  Err err;
  TRY_DONE(b->alloc(b, &x, rows * d * size));
  TRY_DONE(b->alloc(b, &y, rows * ff * size));
  TRY_DONE(b->alloc(b, &w, d * ff * size));
  b->linear(b, y, x, w, NULL, rows, d, ff);
  TRY_DONE(b->sync(b));
  double start = progress_clock(), took = 0;
  int times = 0;
  for (; took < 0.2; times++, took = progress_clock() - start) {
    b->linear(b, y, x, w, NULL, rows, d, ff);
    TRY_DONE(b->sync(b));
  }
  *rate = 2.0 * (double)rows * (double)d * (double)ff * times / took;
done:
  if (x) b->release(b, x);
  if (y) b->release(b, y);
  if (w) b->release(b, w);
  return err;
}

Err plan_dry_run(Trainer *t) {
  double rate = 0, work = count_gemm_flops(t);
  char text[32], time[32];
  TRY(plan_print(t));
  ErrRecord refusal = err_take(fit_print(t)); /* keep the error until all lines are printed */
  Err err = measure_gemm_rate(t, &rate);
  if (err) return refusal.code ? err_give(&refusal) : err;
  double rounds = world_rounds(&t->world, t->micro_batches);
  double step = work / t->micro_batches * rounds / rate;
  log_info("time     about %s a step, %s for all %" PRIu64
           " steps: %.3f TFLOP of GEMMs a step at %.0f GFLOP/s, measured on this device",
           str_of_seconds(time, step), str_of_seconds(text, step * (double)t->steps), t->steps,
           work / 1e12, rate / 1e9);
  double traffic = world_traffic(&t->world, t->spec, t->micro_batches, &t->state.model->params);
  if (world_has_others(&t->world))
    log_info("network  each rank sends and receives %s in a step",
             str_of_bytes(text, (uint64_t)traffic));
  /* A barrier: a rank that returns an error ends the others, so wait until rank 0 has printed
   * all lines. */
  comm_sum(t->world.comm, "the plan", &(double){0}, 1);
  return refusal.code ? err_give(&refusal) : ERR_OK;
}
