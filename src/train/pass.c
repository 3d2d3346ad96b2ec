/* Queues the parts of a training step, each captured as one CUDA graph. Depends on model,
 * optim, graphs. */
#include "train/pass.h"

#include <stddef.h>
#include <string.h>

#include "base/progress.h"

enum { GRADIENTS, UPDATE, WHOLE }; /* values of GraphKey.kind */

Err pass_open(Pass *p) {
  return p->backend->alloc(p->backend, &p->now, sizeof *p->now);
}

void pass_close(Pass *p) {
  if (!p->backend) return;
  graphs_free(&p->graphs, p->backend);
  if (p->now) p->backend->release(p->backend, p->now);
  *p = (Pass){0};
}

/* The functions below queue the work of a graph. For equal keys they must queue the same
 * operations. */

_Static_assert(offsetof(StepNumbers, count) ==
                   offsetof(StepNumbers, loss) + sizeof((StepNumbers *)0)->loss,
               "losses and counts are one array");
_Static_assert(sizeof((StepNumbers *)0)->loss + sizeof((StepNumbers *)0)->count ==
                   STEP_TOTALS * sizeof(double),
               "STEP_TOTALS is the number of its elements");

/* Sums losses and counts of this rank with those of the others. The losses are complete when backward
 * begins: summed before the first gradients, they are there long before these. */
static void sum_totals(Pass *p) {
  const Backend *b = p->backend;
  b->copy(b, p->now->loss, p->model->sums, sizeof p->now->loss);
  b->zero(b, p->model->sums, sizeof p->now->loss);
  p->ranks->sum_totals(p->ranks_context);
  p->has_summed = true;
}

static void mark_ready(void *pass, size_t begin, size_t end) {
  Pass *p = pass;
  if (p->ranks && !p->has_summed) sum_totals(p);
  p->ready(p->context, begin, end);
}

static void queue_gradients(void *pass) {
  Pass *p = pass;
  ModelPass run = {p->smoothing, p->scale, p->ready ? mark_ready : NULL, p};
  p->has_summed = false;
  model_run(p->model, (Weights){p->w, p->low}, p->g, &run);
}

/* Updates a range; its optimizer state begins at element `owned` of m and v. */
static void queue_piece(Pass *p, PassPiece piece, size_t owned) {
  const Backend *b = p->backend;
  size_t n = piece.end - piece.begin;
  OptimPiece part = {.begin = piece.begin,
                     .n = n,
                     .w = p->w + piece.begin,
                     .m = p->m ? p->m + owned : NULL,
                     .v = p->v ? p->v + owned : NULL,
                     .g = p->g + piece.begin};
  if (p->low != p->w) part.low = (char *)p->low + piece.begin * type_size(b->type);
  optim_update(p->optim, p->groups, b, p->now, &part);
  if (p->e) b->ema(b, p->e + piece.begin, part.w, (double)p->ema, n, p->now);
}

/* Sums of squares of the ranges of other ranks are 0, so that the sum over all ranks has the
 * bits of an update without sharding. */
static void queue_sharded_update(Pass *p) {
  const Backend *b = p->backend;
  size_t units = norm_units(p->model->params.padded), owned = 0;
  b->zero(b, p->sums, units * sizeof *p->sums);
  for (size_t i = 0; i < p->pieces; i++) {
    PassPiece x = p->piece[i];
    if (x.end > x.begin)
      b->square_sums_async(b, p->sums + x.begin / NORM_UNIT, p->g + x.begin, x.end - x.begin);
  }
  p->ranks->sum_squares(p->ranks_context);
  b->clip(b, p->now, p->sums, units, NULL);
  for (size_t i = 0; i < p->pieces; i++) {
    PassPiece x = p->piece[i];
    if (x.end > x.begin) queue_piece(p, x, owned);
    owned += x.end - x.begin;
  }
  p->ranks->gather_weights(p->ranks_context);
}

static void queue_whole_update(Pass *p) {
  const Backend *b = p->backend;
  size_t n = p->model->params.padded;
  b->square_sums_async(b, p->sums, p->g, n);
  b->clip(b, p->now, p->sums, norm_units(n), p->ranks ? NULL : p->model->sums);
  queue_piece(p, (PassPiece){0, n}, 0);
}

static void queue_update(void *pass) {
  Pass *p = pass;
  if (p->ranks && !p->has_summed) sum_totals(p);
  if (p->ranks) p->ranks->finish(p->ranks_context);
  if (p->groups) groups_clear_frozen(p->groups, p->backend, p->g);
  if (p->piece)
    queue_sharded_update(p);
  else
    queue_whole_update(p);
}

static void queue_whole(void *pass) {
  queue_gradients(pass);
  queue_update(pass);
}

/* Runs `work` as a CUDA graph if possible. The key of UPDATE has no shape, because the update
 * does not depend on the batch. */
static Err run_work(Pass *p, uint32_t kind, void (*work)(void *)) {
  GraphKey key = {.kind = kind};
  if (p->without_graphs) {
    work(p);
    return ERR_OK;
  }
  if (kind != UPDATE) {
    memcpy(key.shape, p->model->shape, sizeof key.shape);
    key.dropout = p->model->dropout;
    key.first = p->model->first;
    key.scale = p->scale;
  }
  return graphs_run(&p->graphs, p->backend, key, work, p);
}

void pass_load(Pass *p, const void *batch, StepKey key) {
  model_load(p->model, batch, key);
  p->loaded = p->model->loads;
}

static Err run_batch(Pass *p, uint32_t kind, const void *batch, StepKey key, float scale,
                     GradReady ready, void *context, void (*work)(void *)) {
  p->scale = scale;
  p->ready = ready;
  p->context = context;
  if (!p->loaded || p->loaded != p->model->loads) model_load(p->model, batch, key);
  p->model->first = p->is_first;
  p->loaded = 0;
  p->is_first = false;
  /* If a CUDA graph is launched, the host does not know when forward ends. */
  p->model->forward_end = progress_clock();
  return run_work(p, kind, work);
}

/* Returns 600 s for start-up (libraries, kernels compiled by the driver, timing of GEMM
 * algorithms), plus the time of 6 FLOPs per parameter for each token on both sides, at a speed
 * that any device exceeds. */
double pass_limit(const Model *m) {
  double start_up = 600, flops = m->backend->host ? 1e9 : 1e11;
  return start_up + 6.0 * (double)m->params.total * 2.0 * (double)m->capacity / flops;
}

void pass_begin(Pass *p) {
  p->is_first = true;
}

void pass_clear(Pass *p) {
  const Backend *b = p->backend;
  b->zero(b, p->g, p->model->params.padded * sizeof(float));
  p->is_first = false;
}

Err pass_gradients(Pass *p, const void *batch, StepKey key, float scale, GradReady ready,
                   void *context) {
  return run_batch(p, GRADIENTS, batch, key, scale, ready, context, queue_gradients);
}

Err pass_update(Pass *p, const StepNumbers *now) {
  const Backend *b = p->backend;
  b->put(b, p->now, now, sizeof *now);
  p->ready = NULL;
  return run_work(p, UPDATE, queue_update);
}

Err pass_whole(Pass *p, const void *batch, StepKey key, float scale, GradReady ready,
               void *context, const StepNumbers *now) {
  const Backend *b = p->backend;
  b->put(b, p->now, now, sizeof *now);
  return run_batch(p, WHOLE, batch, key, scale, ready, context, queue_whole);
}

Err pass_end(Pass *p, StepNumbers *now) {
  const Backend *b = p->backend;
  p->model->predictions = 0; /* the losses of these predictions are returned in now->loss */
  return b->get(b, now, p->now, sizeof *now);
}
