/* One training step: forward and backward of this rank's micro-batches, gradient all-reduce,
 * update. gradients.h selects how gradients are reduced, state.h which rank updates which
 * weights. Depends on gradients, optim, pass, state, world. */
#include "train/step.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/clip.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/stop.h"
#include "train/stopping.h"

#define STALL_SECONDS 8 /* seconds by which the injected fault "stall" delays the data */

_Static_assert(sizeof((StepSum *)0)->sum == sizeof((StepNumbers *)0)->loss,
               "the backend writes as many sums of losses as a model has");
_Static_assert(STEP_COUNTS - COUNT_REASONS == STOP_REASONS,
               "StepNumbers.count has room for the reasons to stop");

/* Reports to the other ranks what this rank is doing, and after how many seconds it counts as
 * hung. */
static void report_progress(Trainer *t, double *since, const char *what, uint32_t micro_batch) {
  world_note_progress(&t->world, since);
  comm_report(t->world.comm, world_timeout(&t->world), "step %" PRIu64 ", micro-batch %u, %s",
              t->run.at.step, micro_batch, what);
}

/* Injects the faults that tests request. Returns true if this rank's gradient is to become
 * NaN. */
static bool inject_faults(const Trainer *t) {
  const World *w = &t->world;
  uint64_t step = t->run.at.step;
  if (world_has_fault(w, "die", step)) kill(getpid(), SIGKILL);
  if (world_has_fault(w, "hang", step))
    for (;;) sleep(1000);
  return world_has_fault(w, "nan", step);
}

/* Gradients accumulate over micro-batches, so a NaN written before the first one survives until the
 * update. */
static void begin_gradients(Trainer *t, bool with_nan) {
  const Backend *b = &t->world.backend;
  const Params *p = &t->state.model->params;
  float nan = NAN;
  pass_begin(&t->state.pass);
  if (!with_nan) return;
  pass_clear(&t->state.pass);
  b->put(b, t->world.grads.g + p->param[p->count - 1].offset, &nan, sizeof nan);
}

/* Delays every micro-batch by the milliseconds of the injected fault. */
static void inject_delay(const char *fault) {
  uint64_t ms = fault_number(fault, 0);
  if (ms) usleep((useconds_t)(1000 * ms));
}

/* Returns the number of the current step in the trace. As in the log and in the names of
 * checkpoints, the first step of a run is 1; run.at.step counts the steps that are complete. */
static double get_step_number(const Trainer *t) {
  return (double)(t->run.at.step + 1);
}

/* Adds a span of this thread to the trace. */
static void trace_part(Trainer *t, const char *name, double start, double end) {
  trace_span(t->tracing.trace, TRACE_MAIN, name, start, end,
             (TraceArgs){{{TRACE_STEP, get_step_number(t)}}});
}

/* Adds a micro-batch with its forward and backward to the trace. On a device these are the times
 * in which they were queued. */
static void trace_micro_batch(Trainer *t, const MicroBatch *m, double start, double end) {
  Trace *trace = t->tracing.trace;
  if (!trace_is_on(trace)) return;
  bool is_on_device = !t->world.backend.host;
  double forward_end = t->state.model->forward_end;
  TraceArgs args = {{{TRACE_STEP, get_step_number(t)},
                     {TRACE_MICRO_BATCH, m->number},
                     {TRACE_TOKENS, m->batch.tokens[0] + m->batch.tokens[1]}}};
  char name[TRACE_NAME];
  snprintf(name, sizeof name, "micro-batch %u", m->number);
  trace_span(trace, TRACE_MAIN, name, start, end, args);
  trace_span(trace, TRACE_MAIN, is_on_device ? "queue forward" : "forward", start, forward_end,
             args);
  trace_span(trace, TRACE_MAIN, is_on_device ? "queue backward" : "backward", forward_end, end,
             args);
}

static Err fetch_batch(Trainer *t, uint64_t step, uint32_t number, MicroBatch *m) {
  uint64_t key = rng_mix(rng_mix(t->spec->seed, step), number);
  *m = (MicroBatch){.number = number, .key = {.key = key, .dropout = true}};
  m->start = progress_clock();
  m->last_mark = m->start;
  /* No limit: a file system may stall for any time, and an unreadable file is reported as an
   * error. */
  comm_report(t->world.comm, COMM_NO_LIMIT,
              "step %" PRIu64 ", micro-batch %u, waiting for data", step, number);
  if (world_has_fault(&t->world, "stall", step)) sleep(STALL_SECONDS);
  inject_delay("slow-data");
  TRY(t->task->kind->next_batch(t->task, &m->batch));
  m->got = progress_clock();
  trace_span(t->tracing.trace, TRACE_MAIN, "wait for data", m->start, m->got,
             (TraceArgs){{{TRACE_STEP, (double)(step + 1)}, {TRACE_MICRO_BATCH, number}}});
  return ERR_OK;
}

Err train_fetch_next(Trainer *t) {
  if (t->next.batch.data) return ERR_OK;
  return fetch_batch(t, t->run.at.step, world_first_micro_batch(&t->world), &t->next);
}

static Err next_batch(Trainer *t, uint32_t number, MicroBatch *m) {
  fault_point("micro-batch");
  /* A second signal drops this step: the weights are still those before it. With several ranks,
   * all must finish the step. */
  if (!world_has_others(&t->world) && stop_hurried())
    return err_set(ERR_STOPPED, "step %" PRIu64 " was dropped after a second signal",
                   t->run.at.step);
  if (t->next.batch.data) {
    double waited = t->next.got - t->next.start;
    *m = t->next;
    t->next = (MicroBatch){0};
    m->got = progress_clock();
    m->last_mark = m->got;
    m->start = m->got - waited;
  } else {
    TRY(fetch_batch(t, t->run.at.step, number, m));
  }
  report_progress(t, &m->last_mark, "forward and backward", number);
  return ERR_OK;
}

/* Copies the first batch of the next step to the device while the device computes this step. */
static Err prefetch_next_step(Trainer *t) {
  if (t->run.at.step + 1 >= t->steps) return ERR_OK;
  TRY(fetch_batch(t, t->run.at.step + 1, world_first_micro_batch(&t->world), &t->next));
  pass_load(&t->state.pass, t->next.batch.data, t->next.key);
  double mark = t->next.got;
  report_progress(t, &mark, "the end of the step", t->next.number);
  return ERR_OK;
}

Err train_complete_weights(Trainer *t) {
  World *w = &t->world;
  if (!t->state.is_partial) return ERR_OK;
  comm_report(w->comm, world_timeout(w), "step %" PRIu64 ", waiting for the others' weights",
              t->run.at.step);
  double start = progress_clock();
  Err err = state_complete_weights(&t->state, w);
  trace_part(t, "wait for weights", start, progress_clock());
  return err ? err_context("step %" PRIu64 ", gathering the weights", t->run.at.step) : ERR_OK;
}

static void end_micro_batch(Trainer *t, MicroBatch *m, StepSum *sum) {
  double forward_end = t->state.model->forward_end, begun = m->last_mark;
  report_progress(t, &m->last_mark, "after backward", m->number);
  sum->data += m->got - m->start;
  sum->forward += forward_end - m->got;
  double end = progress_clock();
  sum->backward += end - forward_end;
  sum->examples += m->batch.examples;
  sum->predictions += m->batch.predictions;
  for (int side = 0; side < 2; side++) sum->tokens[side] += m->batch.tokens[side];
  trace_micro_batch(t, m, begun, end);
}

/* Runs forward and backward of one micro-batch. Backward calls `ready`, unless it is NULL, for
 * each range of complete gradients. */
static Err run_micro_batch(Trainer *t, uint32_t number, GradReady ready, StepSum *sum) {
  MicroBatch m;
  float loss_scale = (float)scaler_factor(&t->run.at.scaler);
  TRY(next_batch(t, number, &m));
  inject_delay("slow-compute");
  TRY(pass_gradients(&t->state.pass, m.batch.data, m.key, loss_scale, ready,
                     t->world.grads.reducer));
  end_micro_batch(t, &m, sum);
  return ERR_OK;
}

/* Over NCCL the update of a sharded optimizer is queued with the sums, so this wait includes
 * its all-reduce of squares and its all-gather. */
static const char *name_wait(const Trainer *t) {
  return t->state.pieces.count ? "waiting for the others' gradients and weights"
                               : "waiting for the others' gradients";
}

/* Waits for this rank's gradients, then for those of the other ranks. On a device, reports to
 * the other ranks which of the two it waits for. */
static Err wait_for_allreduce(Trainer *t, const Round *r, StepSum *sum) {
  Gradients *q = &t->world.grads;
  bool is_on_device = !t->world.backend.host;
  double mark = progress_clock(), start = mark;
  Err err = ERR_OK;
  if (r->has_micro_batch) {
    if (is_on_device) report_progress(t, &mark, "backward on the device", r->micro_batch);
    err = gradients_wait_made(q);
    if (is_on_device) report_progress(t, &mark, name_wait(t), r->micro_batch);
  }
  sum->backward += mark - start;
  if (!err) err = gradients_wait_sum(q, r->grads);
  double end = progress_clock();
  sum->wait += end - mark;
  if (is_on_device) trace_part(t, "wait for backward", start, mark);
  trace_part(t, "wait for all-reduce", mark, end);
  const char *what =
      t->state.pieces.count ? "adding gradients and gathering weights" : "adding gradients";
  return err ? err_context("step %" PRIu64 ", %s", t->run.at.step, what) : ERR_OK;
}

static Err accumulate_gradients(Trainer *t, StepSum *sum) {
  Gradients *q = &t->world.grads;
  RoundIterator it = {0};
  Round r;
  while (world_next_round(&t->world, t->micro_batches, &it, &r)) {
    if (r.is_fresh) pass_begin(&t->state.pass);
    if (r.is_reduced) gradients_begin_round(q, r.grads);
    GradReady ready = r.is_reduced ? gradients_ready(q) : NULL;
    if (r.has_micro_batch) TRY(run_micro_batch(t, r.micro_batch, ready, sum));
    if (r.is_reduced) TRY(wait_for_allreduce(t, &r, sum));
  }
  return ERR_OK;
}

/* Returns what the gradient of a step is divided by. A step without predictions, as when the labels of
 * all its texts are unknown, has a gradient of zeros. */
static double get_grad_divisor(const Trainer *t, double predictions) {
  return (predictions > 0 ? predictions : 1) * scaler_factor(&t->run.at.scaler);
}

/* Computes the sums of squares of the gradient, one per NORM_UNIT elements; if the update is
 * sharded, only those of the pieces that this rank owns. Blocks until the device is done. */
static Err compute_grad_square_sums(Trainer *t) {
  ModelState *st = &t->state;
  const Backend *b = &t->world.backend;
  const Gradients *q = &t->world.grads;
  size_t n = st->model->params.padded;
  groups_clear_frozen(&st->groups, b, q->g);
  if (st->update == UPDATE_SHARDED) {
    for (size_t i = 0; i < reducer_pieces(q->reducer); i++) {
      size_t begin, end;
      reducer_piece(q->reducer, i, &begin, &end);
      if (end == begin) continue;
      b->square_sums_async(b, st->square_sums + begin / NORM_UNIT, q->g + begin, end - begin);
    }
  } else {
    b->square_sums_async(b, st->square_sums, q->g, n);
  }
  if (b->host) return ERR_OK;
  return b->get(b, st->square_sums_host, st->square_sums, norm_units(n) * sizeof(double));
}

/* Sums the losses over all micro-batches and ranks. The host waits for the device only once,
 * for the sums of squares; the losses were computed before them. */
static Err allreduce_losses(Trainer *t, StepSum *sum) {
  ModelLoss mine;
  double start = progress_clock();
  TRY(compute_grad_square_sums(t));
  TRY(model_loss(t->state.model, &mine));
  double got = progress_clock();
  if (t->world.backend.host)
    sum->update += got - start;
  else
    sum->backward += got - start;
  double totals[MODEL_SUMS + 4] = {0};
  memcpy(totals, mine.sum, sizeof mine.sum);
  totals[MODEL_SUMS] = (double)mine.predictions;
  totals[MODEL_SUMS + 1] = sum->examples;
  memcpy(totals + MODEL_SUMS + 2, sum->tokens, sizeof sum->tokens);
  comm_sum(t->world.comm, "losses", totals, sizeof totals / sizeof *totals);
  memcpy(sum->sum, totals, sizeof sum->sum);
  sum->predictions = totals[MODEL_SUMS];
  sum->examples = totals[MODEL_SUMS + 1];
  memcpy(sum->tokens, totals + MODEL_SUMS + 2, sizeof sum->tokens);
  double end = progress_clock();
  sum->wait += end - got;
  trace_part(t, "gradient norm", start, got);
  trace_part(t, "wait for losses", got, end);
  return ERR_OK;
}

/* Updates the pieces that this rank owns; m and v hold these pieces one after another. */
static Err update_shard(Trainer *t) {
  ModelState *st = &t->state;
  const Gradients *q = &t->world.grads;
  size_t owned = 0;
  for (size_t i = 0; i < reducer_pieces(q->reducer); i++) {
    size_t begin, end;
    reducer_piece(q->reducer, i, &begin, &end);
    OptimPiece piece = {.begin = begin,
                        .n = end - begin,
                        .w = st->w + begin,
                        .m = st->m + owned,
                        .v = st->v ? st->v + owned : NULL,
                        .g = q->g + begin};
    optim_update(&t->spec->optim, &st->groups, &t->world.backend, st->pass.now, &piece);
    owned += end - begin;
  }
  return state_gather_weights(st, &t->world);
}

/* Updates the weights. now->grad_scale must contain the clipping. */
static Err update_weights(Trainer *t, const StepNumbers *now, double lr) {
  ModelState *st = &t->state;
  const OptimSpec *o = &t->spec->optim;
  const Backend *b = &t->world.backend;
  const float *g = t->world.grads.g;
  size_t n = st->model->params.padded;
  void *low = st->low != st->w ? st->low : NULL;
  b->put(b, st->pass.now, now, sizeof *now);
  if (st->update == UPDATE_SHARDED) {
    TRY(update_shard(t));
  } else if (st->update == UPDATE_BY_WEIGHT) {
    optim_layers(o, &st->groups, b, &st->model->params, st->w, st->m, st->second, g, lr,
                 clip_scale(now));
  } else {
    /* Also writes the low-precision copy `low`. */
    OptimPiece all = {.n = n, .low = low, .w = st->w, .m = st->m, .v = st->v, .g = g};
    optim_update(o, &st->groups, b, st->pass.now, &all);
    low = NULL;
  }
  if (low) b->lower(b, low, st->w, n);
  if (st->e) b->ema(b, st->e, st->w, (double)t->spec->ema, n, st->pass.now);
  return ERR_OK;
}

/* A step with all-reduce. The gradient norm has the same bits for any division of the gradient
 * among ranks. */
static Err step_on_ranks(Trainer *t, double lr, bool with_nan, StepNumbers *now, StepSum *sum) {
  ModelState *st = &t->state;
  begin_gradients(t, with_nan);
  TRY(accumulate_gradients(t, sum));
  TRY(allreduce_losses(t, sum));
  double start = progress_clock();
  now->grad_divisor = get_grad_divisor(t, sum->predictions);
  now->loss[0] = sum->sum[0];
  if (st->update == UPDATE_SHARDED)
    reducer_allgather_units(t->world.grads.reducer, "norms", st->square_sums_host);
  optim_clip(now, st->square_sums_host, norm_units(st->model->params.padded));
  if (isfinite(now->grad_scale)) TRY(update_weights(t, now, lr));
  double end = progress_clock();
  sum->update += end - start;
  trace_part(t, "update", start, end);
  return ERR_OK;
}

/* Queues the rank's last micro-batch, the sums over all ranks and the update. */
static Err run_last_micro_batch(Trainer *t, const Round *r, StepNumbers *now, StepSum *sum) {
  Gradients *q = &t->world.grads;
  MicroBatch m;
  double loss_scale = scaler_factor(&t->run.at.scaler);
  TRY(next_batch(t, r->micro_batch, &m));
  inject_delay("slow-compute");
  gradients_begin_round(q, r->grads);
  now->loss_scale = loss_scale;
  now->count[COUNT_PREDICTIONS] = sum->predictions + m.batch.predictions;
  now->count[COUNT_EXAMPLES] = sum->examples + m.batch.examples;
  for (int side = 0; side < 2; side++)
    now->count[COUNT_TOKENS + side] = sum->tokens[side] + m.batch.tokens[side];
  stopping_vote(t, now->count + COUNT_REASONS);
  TRY(pass_whole(&t->state.pass, m.batch.data, m.key, (float)loss_scale, gradients_ready(q),
                 q->reducer, now));
  end_micro_batch(t, &m, sum);
  return ERR_OK;
}

/* Blocks until the update is complete, and returns its numbers. */
static Err wait_for_update(Trainer *t, StepNumbers *now, double *seconds) {
  double start = progress_clock();
  TRY(pass_end(&t->state.pass, now));
  double end = progress_clock();
  *seconds += end - start;
  trace_part(t, "wait for the device", start, end);
  return ERR_OK;
}

/* A step of ranks over NCCL. The host queues everything; then it waits, first for this rank's
 * backward and then for the others, so that a rank that hangs is known. */
static Err step_over_nccl(Trainer *t, bool with_nan, StepNumbers *now, StepSum *sum) {
  RoundIterator it = {0};
  Round r;
  begin_gradients(t, with_nan);
  while (world_next_round(&t->world, t->micro_batches, &it, &r)) {
    if (r.is_reduced)
      TRY(run_last_micro_batch(t, &r, now, sum));
    else
      TRY(run_micro_batch(t, r.micro_batch, NULL, sum));
  }
  t->state.is_partial = t->state.pieces.count > 0;
  TRY(prefetch_next_step(t));
  TRY(wait_for_allreduce(t, &r, sum));
  double mark = progress_clock();
  report_progress(t, &mark, "the update on the device", r.micro_batch);
  TRY(wait_for_update(t, now, &sum->update));
  memcpy(sum->sum, now->loss, sizeof sum->sum);
  sum->predictions = now->count[COUNT_PREDICTIONS];
  sum->examples = now->count[COUNT_EXAMPLES];
  memcpy(sum->tokens, now->count + COUNT_TOKENS, sizeof sum->tokens);
  stopping_take_sum(t, now->count + COUNT_REASONS);
  return ERR_OK;
}

/* A step with UPDATE_ON_DEVICE of one rank: everything is queued, and the host waits once, at the
 * end. A step of one micro-batch is one CUDA graph. */
static Err step_on_device(Trainer *t, bool with_nan, StepNumbers *now, StepSum *sum) {
  Pass *pass = &t->state.pass;
  double loss_scale = scaler_factor(&t->run.at.scaler);
  if (t->micro_batches == 1 && !with_nan) {
    MicroBatch m;
    TRY(next_batch(t, 0, &m));
    now->grad_divisor = get_grad_divisor(t, m.batch.predictions);
    pass_begin(pass);
    TRY(pass_whole(pass, m.batch.data, m.key, (float)loss_scale, NULL, NULL, now));
    end_micro_batch(t, &m, sum);
  } else {
    begin_gradients(t, with_nan);
    TRY(accumulate_gradients(t, sum));
    now->grad_divisor = get_grad_divisor(t, sum->predictions);
    TRY(pass_update(pass, now));
  }
  TRY(prefetch_next_step(t));
  TRY(wait_for_update(t, now, &sum->backward));
  memcpy(sum->sum, now->loss, sizeof sum->sum);
  return ERR_OK;
}

Err train_step(Trainer *t, double lr, StepSum *sum, bool *is_healthy) {
  uint64_t allocations = mem_count();
  CommTraffic before = comm_traffic(t->world.comm);
  StepNumbers now = optim_numbers(&t->spec->optim, t->run.at.step, lr);
  now.max_grad_norm = (double)t->spec->clip;
  *sum = (StepSum){.steps = 1};
  double mark = progress_clock();
  report_progress(t, &mark, "beginning", world_first_micro_batch(&t->world));
  bool with_nan = inject_faults(t);
  if (t->state.pass.ranks)
    TRY(step_over_nccl(t, with_nan, &now, sum));
  else if (t->state.update == UPDATE_ON_DEVICE)
    TRY(step_on_device(t, with_nan, &now, sum));
  else
    TRY(step_on_ranks(t, lr, with_nan, &now, sum));
  sum->grad_norm = now.grad_norm;
  sum->grad_divisor = now.grad_divisor;
  bool is_finite = isfinite(sum->grad_norm);
  *is_healthy = isfinite(sum->sum[0]) && scaler_take(&t->run.at.scaler, is_finite);
  sum->skipped = *is_healthy && !is_finite;
  t->world.is_warm = true;
  sum->allocations = (double)(mem_count() - allocations);
  CommTraffic after = comm_traffic(t->world.comm);
  sum->sent = (double)(after.sent - before.sent);
  sum->received = (double)(after.received - before.received);
  return ERR_OK;
}
