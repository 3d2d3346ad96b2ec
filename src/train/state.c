/* Arrays of the model in training, and their exchange between ranks. Depends on pass, world. */
#include "train/state.h"

#include <string.h>

#include "base/mem.h"

/* Allocates an array of weights and, if the backend's type is not fp32, its copy in that
 * type. */
static Err new_weights(const ModelState *st, const Backend *b, float **full, void **low) {
  size_t n = st->model->params.padded;
  TRY(b->alloc(b, full, n * sizeof(float)));
  *low = *full;
  return b->type == TYPE_F32 ? ERR_OK : b->alloc(b, low, n * type_size(b->type));
}

static Err open_gradients(ModelState *st, World *w, const TrainSpec *s,
                          uint32_t micro_batches) {
  const Backend *b = &w->backend;
  size_t n = st->model->params.padded, sums = norm_units(n) * sizeof(double);
  GradientsSpec spec = {.each_round = s->reproducible,
                        .is_sharded = s->shard,
                        .bf16 = s->allreduce_bf16,
                        .overlaps = s->overlaps,
                        .rounds = world_rounds(w, micro_batches),
                        .bucket = s->bucket / sizeof(float),
                        .announce = model_announce,
                        .model = st->model};
  TRY(gradients_open(&w->grads, w->comm, b, &w->allreduce, n, &spec));
  TRY(b->alloc(b, &st->square_sums, sums));
  st->square_sums_host = st->square_sums;
  return b->host ? ERR_OK : mem_alloc_aligned(&st->square_sums_host, sums);
}

static Err new_optimizer_state(ModelState *st, const World *w, const OptimSpec *o) {
  const Backend *b = &w->backend;
  bool is_sharded = st->update == UPDATE_SHARDED;
  size_t n = is_sharded ? reducer_owned(w->grads.reducer) : st->model->params.padded;
  if (optim_has_moment(o, 1)) TRY(b->alloc(b, &st->m, n * sizeof(float)));
  if (optim_has_moment(o, 2)) TRY(b->alloc(b, &st->v, n * sizeof(float)));
  if (o->kind != OPTIM_NOVOGRAD) return ERR_OK;
  return mem_alloc(&st->second, st->model->params.count, sizeof *st->second);
}

static UpdateKind choose_update(const World *w, const TrainSpec *s) {
  if (s->optim.kind == OPTIM_NOVOGRAD) return UPDATE_BY_WEIGHT;
  if (s->shard) return UPDATE_SHARDED;
  if (w->grads.path == GRADS_NCCL) return UPDATE_ON_DEVICE;
  return w->grads.path == GRADS_STAY && !w->backend.host ? UPDATE_ON_DEVICE : UPDATE_WHOLE;
}

/* Returns true if NCCL does all sums of a step, and the update is queued after them. */
static bool queues_sums(const World *w, const TrainSpec *s) {
  return w->grads.path == GRADS_NCCL && world_sums_on_device(s);
}

/* PassRanks: the sums over the ranks that are queued before the update. */

static void sum_totals(void *world) {
  World *w = world;
  allreduce_sum_totals(&w->allreduce);
}

static void finish_sums(void *world) {
  World *w = world;
  gradients_queue_sum(&w->grads);
}

static void sum_squares(void *world) {
  World *w = world;
  allreduce_sum_squares(&w->allreduce);
  allreduce_join(&w->allreduce);
}

static void gather_weights(void *world) {
  World *w = world;
  allreduce_gather_weights(&w->allreduce);
  allreduce_join(&w->allreduce);
}

static const PassRanks nccl_ranks = {sum_totals, finish_sums, sum_squares, gather_weights};

/* Actions of a pass beside the buckets: the sum of the totals, that of the squares, the
 * all-gather, and three joins. */
#define OTHER_ACTIONS 6

/* Sets what a step sums and gathers beside the gradients. */
static void bind_arrays(ModelState *st, World *w) {
  GatheredWeights g = pieces_gathered(&st->model->params, w->backend.type, /*is_nccl=*/true);
  AllreduceArrays arrays = {.totals = st->pass.now->loss, .totals_n = STEP_TOTALS};
  if (st->pieces.count) {
    arrays.squares = st->square_sums;
    arrays.squares_n = norm_units(st->model->params.padded);
    arrays.weights = st->low;
    arrays.weights_ranges = pieces_gather_all(&st->pieces, g.width);
    arrays.full = st->w;
    if (g.full_elements) arrays.full_ranges = pieces_gather_full(&st->pieces);
  }
  allreduce_bind_pass(&w->allreduce, &st->pass.graphs, &arrays);
}

/* Sets what depends on the buckets, which determine the pieces of a sharded optimizer. */
static Err use_buckets(ModelState *st, World *w) {
  st->pass.graphs.max_actions = reducer_pieces(w->grads.reducer) + OTHER_ACTIONS;
  pieces_close(&st->pieces);
  if (st->update == UPDATE_SHARDED)
    TRY(pieces_open(&st->pieces, w->grads.reducer, comm_rank(w->comm), comm_size(w->comm),
                    &st->model->params));
  st->pass.piece = st->pieces.own;
  st->pass.pieces = st->pieces.count;
  bind_arrays(st, w);
  return ERR_OK;
}

static Err queue_sums_in_pass(ModelState *st, World *w) {
  w->grads.is_sum_queued = true;
  st->pass.ranks = &nccl_ranks;
  st->pass.ranks_context = w;
  return use_buckets(st, w);
}

/* Allocates the optimizer state again, for other pieces, with zeros. */
static Err renew_optimizer_state(ModelState *st, World *w, const OptimSpec *o) {
  const Backend *b = &w->backend;
  size_t bytes = reducer_owned(w->grads.reducer) * sizeof(float);
  if (st->m) b->release(b, st->m);
  if (st->v) b->release(b, st->v);
  st->m = NULL;
  st->v = NULL;
  TRY(new_optimizer_state(st, w, o));
  if (st->m) b->zero(b, st->m, bytes);
  if (st->v) b->zero(b, st->v, bytes);
  st->pass.m = st->m;
  st->pass.v = st->v;
  return ERR_OK;
}

Err state_use_buckets(ModelState *st, World *w, const TrainSpec *s) {
  if (!queues_sums(w, s)) return ERR_OK;
  if (st->update == UPDATE_SHARDED) TRY(renew_optimizer_state(st, w, &s->optim));
  return use_buckets(st, w);
}

Err state_open(ModelState *st, World *w, const TrainSpec *s, uint32_t micro_batches) {
  const Backend *b = &w->backend;
  TRY(new_weights(st, b, &st->w, &st->low));
  if (s->ema > 0) TRY(new_weights(st, b, &st->e, &st->low_e));
  TRY(open_gradients(st, w, s, micro_batches));
  st->update = choose_update(w, s);
  TRY(new_optimizer_state(st, w, &s->optim));
  TRY(groups_new(&st->groups, &st->model->params, &s->groups));
  st->model->frozen_layers = s->groups.freeze_layers;
  st->pass =
      (Pass){.backend = b,
             .model = st->model,
             .optim = &s->optim,
             .groups = &st->groups,
             .smoothing = s->smoothing,
             .ema = s->ema,
             /* The host sends buckets after backward, whether a graph has sent them or not. */
             .without_graphs = w->grads.path == GRADS_NCCL && !queues_sums(w, s),
             .w = st->w,
             .g = w->grads.g,
             .e = st->e,
             .low = st->low,
             .m = st->m,
             .v = st->v,
             .sums = st->square_sums};
  w->first_timeout = pass_limit(st->model);
  TRY(pass_open(&st->pass));
  return queues_sums(w, s) ? queue_sums_in_pass(st, w) : ERR_OK;
}

void state_close(ModelState *st, const World *w) {
  const Backend *b = &w->backend;
  /* The CUDA graphs of the pass refer to the model's memory, so close it first. */
  pass_close(&st->pass);
  pieces_close(&st->pieces);
  model_free(st->model);
  if (st->square_sums_host != st->square_sums) mem_free(st->square_sums_host);
  if (st->low != st->w) b->release(b, st->low);
  if (st->low_e != st->e) b->release(b, st->low_e);
  void *const arrays[] = {st->w, st->e, st->m, st->v, st->square_sums};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
    if (arrays[i]) b->release(b, arrays[i]);
  mem_free(st->second);
  groups_free(&st->groups);
}

Weights state_eval_weights(const ModelState *st, const World *w) {
  const Backend *b = &w->backend;
  if (!st->e) return (Weights){st->w, st->low};
  b->lower(b, st->low_e, st->e, st->model->params.padded);
  return (Weights){st->e, st->low_e};
}

Err state_gather_weights(ModelState *st, World *w) {
  const Backend *b = &w->backend;
  size_t bytes = st->model->params.padded * sizeof(float);
  if (b->host) {
    reducer_allgather(w->grads.reducer, "weights", st->w);
    return ERR_OK;
  }
  TRY(b->get(b, w->grads.host, st->w, bytes));
  reducer_allgather(w->grads.reducer, "weights", w->grads.host);
  b->put(b, st->w, w->grads.host, bytes);
  return ERR_OK;
}

Err state_complete_weights(ModelState *st, World *w) {
  DeviceGather all = pieces_gather_all(&st->pieces, sizeof(float));
  if (!st->is_partial) return ERR_OK;
  if (st->low != st->w) TRY(allreduce_gather(&w->allreduce, st->w, &all));
  if (st->e) TRY(allreduce_gather(&w->allreduce, st->e, &all));
  st->is_partial = false;
  return ERR_OK;
}

void state_broadcast(const ModelState *st, World *w, const char *name, float *array,
                     const float *whole) {
  const Backend *b = &w->backend;
  size_t bytes = st->model->params.padded * sizeof(float);
  if (!array) return;
  if (world_is_writer(w)) memcpy(w->grads.host, whole, bytes);
  comm_broadcast(w->comm, name, w->grads.host, bytes);
  b->put(b, array, w->grads.host, bytes);
}

void state_scatter_optimizer(const ModelState *st, World *w, float *array, const float *whole) {
  const Backend *b = &w->backend;
  Reducer *reducer = w->grads.reducer;
  if (st->update != UPDATE_SHARDED) {
    state_broadcast(st, w, "optimizer state", array, whole);
  } else if (array) {
    reducer_scatter(reducer, "optimizer state", w->grads.host, whole);
    b->put(b, array, w->grads.host, reducer_owned(reducer) * sizeof(float));
  }
}

Err state_collect_optimizer(const ModelState *st, World *w, float *whole, const float *array) {
  const Backend *b = &w->backend;
  Reducer *reducer = w->grads.reducer;
  if (!array) return ERR_OK;
  if (st->update != UPDATE_SHARDED) {
    size_t bytes = st->model->params.padded * sizeof(float);
    return world_is_writer(w) ? b->get(b, whole, array, bytes) : ERR_OK;
  }
  TRY(b->get(b, w->grads.host, array, reducer_owned(reducer) * sizeof(float)));
  reducer_gather(reducer, "optimizer state", w->grads.host, whole);
  return ERR_OK;
}
