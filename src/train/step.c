/* One step: a global batch of micro-batches, shared out over the ranks in turn;
 * gradients summed while they are made; one update. Relies on model, comm, optim. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "backend/clip.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/stop.h"
#include "train/train_internal.h"

#define STALL 8 /* seconds that a fault on purpose holds the data back */

/* Seconds without progress after which this rank counts as hung. The first step touches memory for
 * the first time, and no usual time is known yet. */
static double patience(const Train *t) {
  return t->world.warm ? 5 * t->world.usual : pass_limit(t->state.model);
}

/* The most seconds between two signs of life so far decide how long is too long. */
static void tick(Train *t, double *since, const char *what, uint32_t i) {
  double now = progress_clock(), took = now - *since;
  if (took > t->world.usual) t->world.usual = took;
  *since = now;
  comm_at(t->world.comm, patience(t), "step %" PRIu64 ", micro-batch %u, %s", t->run.at.step, i,
          what);
}

/* A step begins. For tests: what can go wrong, at a chosen one of a chosen rank. True: its
 * gradient is to be spoilt. */
static bool begins(Train *t) {
  double mark = progress_clock();
  tick(t, &mark, "beginning", (uint32_t)t->world.rank);
  if (fault_now("die", t->run.at.step, t->world.rank)) kill(getpid(), SIGKILL);
  if (fault_now("hang", t->run.at.step, t->world.rank))
    for (;;) sleep(1000);
  return fault_now("nan", t->run.at.step, t->world.rank);
}

/* Where all micro-batches add, what is put there first stays. */
static void begin_gradients(Train *t, bool spoilt) {
  const Backend *b = &t->world.backend;
  float nan = NAN;
  pass_begin(&t->state.pass);
  if (!spoilt) return;
  pass_clear(&t->state.pass);
  b->put(b, t->state.g + t->state.model->params.param[t->state.model->params.count - 1].offset,
         &nan, sizeof nan);
}

/* Do gradients travel, or are they kept between rounds? */
static bool is_shared(const Train *t) {
  return t->world.ranks > 1 || (t->spec->reproducible && t->micro_batches > 1);
}

/* A device's gradients that travel through the program's memory. */
static bool goes_by_host(const Train *t) {
  return !t->world.backend.host && !t->world.exchange.wire && is_shared(t);
}

/* Does the device settle norm and clipping itself? Nobody else has a part in them. */
static bool is_alone(const Train *t) {
  return !t->world.backend.host && !is_shared(t) && !t->world.exchange.wire &&
         !t->spec->shard && t->spec->optim.kind != OPTIM_NOVOGRAD;
}

static Err fetch(Train *t, uint64_t step, uint32_t i, Micro *m) {
  *m = (Micro){.number = i, .key = {rng_mix(rng_mix(t->spec->seed, step), i), true, false}};
  m->start = m->mark = progress_clock();
  /* A file system may stall for any time: data that cannot be read is an error of its own. */
  comm_at(t->world.comm, COMM_WHILE_ALIVE, "step %" PRIu64 ", micro-batch %u, waiting for data",
          step, i);
  if (fault_now("stall", step, t->world.rank)) sleep(STALL);
  TRY(t->task->kind->next_batch(t->task, &m->batch));
  m->got = progress_clock();
  return ERR_OK;
}

static Err next_micro(Train *t, uint32_t i, Micro *m) {
  fault_point("micro-batch");
  /* The weights are still those before the step. Several ranks have to finish it together. */
  if (t->world.ranks == 1 && stop_hurried())
    return err_set(ERR_STOPPED, "step %" PRIu64 " is left undone", t->run.at.step);
  if (t->next.batch.data) {
    double waited = t->next.got - t->next.start;
    *m = t->next;
    t->next = (Micro){0};
    m->got = m->mark = progress_clock(), m->start = m->got - waited;
  } else {
    TRY(fetch(t, t->run.at.step, i, m));
  }
  tick(t, &m->mark, "forward and backward", i);
  return ERR_OK;
}

/* While the device is at work on this step, its next batch can be on its way. */
static Err look_ahead(Train *t) {
  if (t->run.at.step + 1 >= t->steps) return ERR_OK;
  TRY(fetch(t, t->run.at.step + 1, 0, &t->next));
  pass_load(&t->state.pass, t->next.batch.data, t->next.key);
  double mark = t->next.got;
  tick(t, &mark, "the end of the step", 0);
  return ERR_OK;
}

static void end_micro(Train *t, Micro *m, StepSum *sum) {
  tick(t, &m->mark, "after backward", m->number);
  sum->data += m->got - m->start;
  sum->forward += t->state.model->forward_end - m->got;
  sum->backward += progress_clock() - t->state.model->forward_end;
  sum->examples += m->batch.examples;
  sum->predictions += m->batch.predictions;
}

Err train_await_weights(Train *t, StepSum *sum) {
  Exchange *x = &t->world.exchange;
  if (!x->gathering) return ERR_OK;
  double start = progress_clock();
  comm_at(t->world.comm, patience(t), "step %" PRIu64 ", the update on the device",
          t->run.at.step);
  Err err = exchange_wait_made(x);
  double made = progress_clock();
  comm_at(t->world.comm, patience(t), "step %" PRIu64 ", waiting for the others' weights",
          t->run.at.step);
  if (!err) err = exchange_wait(x);
  sum->update += made - start, sum->wait += progress_clock() - made;
  return err ? err_context("step %" PRIu64 ", gathering the weights", t->run.at.step) : ERR_OK;
}

/* The device waits for the weights by itself, but tells nobody when they do not come: it
 * would look as if this rank did not move. So the program waits before the first work that
 * reads them, when the batch is there and on its way. Not later: what is queued behind
 * weights that never come fills the device's queue, and the program is stuck in it. What is
 * lost is the time in which the device is given its first work, microseconds. */
static Err begin_micro(Train *t, uint32_t i, Micro *m, StepSum *sum) {
  TRY(next_micro(t, i, m));
  if (!t->world.exchange.gathering) return ERR_OK;
  pass_load(&t->state.pass, m->batch.data, m->key);
  double start = progress_clock();
  TRY(train_await_weights(t, sum));
  m->mark = progress_clock();
  m->start += m->mark - start, m->got += m->mark - start; /* neither data nor forward */
  tick(t, &m->mark, "forward and backward", i);
  return ERR_OK;
}

/* `last`: its gradients may travel as they are made. A device's are fetched first,
 * unless they have a wire of their own. */
static Err micro_batch(Train *t, uint32_t i, bool last, StepSum *sum) {
  const Backend *b = &t->world.backend;
  Micro m;
  TRY(begin_micro(t, i, &m, sum));
  TRY(pass_gradients(
      &t->state.pass, m.batch.data, m.key, (float)scaler_factor(&t->run.at.scaler),
      last && (b->host || t->world.exchange.wire) ? reducer_ready : NULL, t->world.reducer));
  if (last && goes_by_host(t))
    TRY(b->get(b, t->world.stage, t->state.g, t->state.model->params.padded * sizeof(float)));
  end_micro(t, &m, sum);
  return ERR_OK;
}

/* Until the gradients have travelled by wire. As long as this rank's own device still makes
 * them, it is the one that works. */
static Err settle(Train *t, uint32_t i, double *start, StepSum *sum) {
  double mark = *start;
  tick(t, &mark, "backward on the device", i);
  Err err = exchange_wait_made(&t->world.exchange);
  tick(t, &mark, "waiting for the others' gradients", i);
  sum->backward += mark - *start;
  *start = mark;
  if (!err) err = exchange_wait(&t->world.exchange);
  return err ? err_context("step %" PRIu64 ", adding gradients", t->run.at.step) : ERR_OK;
}

/* Micro-batches of one round, the `round`-th of each rank; reduced at its end. */
static Err reduced_round(Train *t, uint32_t i, uint32_t round, bool first, bool last,
                         StepSum *sum) {
  uint32_t left = t->micro_batches - round * (uint32_t)t->world.ranks;
  int active = left < (uint32_t)t->world.ranks ? (int)left : t->world.ranks;
  reducer_round(t->world.reducer, t->spec->reproducible ? active : t->world.ranks, first, last);
  if (i < t->micro_batches) TRY(micro_batch(t, i, true, sum));
  double start = progress_clock();
  reducer_finish(t->world.reducer);
  const Backend *b = &t->world.backend;
  if (t->world.exchange.wire) TRY(settle(t, i, &start, sum));
  if (last && goes_by_host(t))
    b->put(b, t->state.g, t->world.stage, t->state.model->params.padded * sizeof(float));
  sum->wait += progress_clock() - start;
  return ERR_OK;
}

/* Reproducible: the sum is made after every round, in the order of the micro-batches.
 * Otherwise each rank adds up its own, and the sum is made once. */
static Err gradients(Train *t, StepSum *sum) {
  uint32_t ranks = (uint32_t)t->world.ranks, rounds = (t->micro_batches + ranks - 1) / ranks;
  bool each = t->spec->reproducible;
  for (uint32_t round = 0; round < rounds; round++) {
    uint32_t i = round * ranks + (uint32_t)t->world.rank;
    bool mine_last = i + ranks >= t->micro_batches;
    if (each && round) pass_begin(&t->state.pass);
    if (each)
      TRY(reduced_round(t, i, round, round == 0, round + 1 == rounds, sum));
    else if (mine_last) /* some ranks have one more than others */
      return reduced_round(t, i, round, true, true, sum);
    else
      TRY(micro_batch(t, i, false, sum));
  }
  return ERR_OK;
}

/* Squares of the gradient, unit by unit: those of this rank's pieces of it. */
static Err squares(Train *t) {
  const Backend *b = &t->world.backend;
  size_t n = t->state.model->params.padded;
  if (!t->spec->shard) {
    b->square_sums_async(b, t->state.queued, t->state.g, n);
  } else {
    for (size_t i = 0; i < reducer_pieces(t->world.reducer); i++) {
      size_t begin, end;
      reducer_piece(t->world.reducer, i, &begin, &end);
      if (end > begin)
        b->square_sums_async(b, t->state.queued + begin / NORM_UNIT, t->state.g + begin,
                             end - begin);
    }
  }
  return b->host
             ? ERR_OK
             : b->get(b, t->state.sums, t->state.queued, norm_units(n) * sizeof *t->state.sums);
}

/* `now` is settled, and says that there is something to do. */
static Err update(Train *t, const StepNumbers *now, double lr) {
  const OptimSpec *o = &t->spec->optim;
  const Backend *b = &t->world.backend;
  StepNumbers *there = t->state.pass.now;
  size_t n = t->state.model->params.padded, owned = 0;
  bool low = t->state.low != t->state.w,
       by_pieces = t->spec->shard || o->kind == OPTIM_NOVOGRAD;
  b->put(b, there, now, sizeof *now);
  if (o->kind == OPTIM_NOVOGRAD) {
    optim_layers(o, b, &t->state.model->params, t->state.w, t->state.m, t->state.second,
                 t->state.g, lr, clip_scale(now));
  } else if (!t->spec->shard) {
    optim_piece(o, b, there, low ? t->state.low : NULL, t->state.w, t->state.m, t->state.v,
                t->state.g, n);
  } else {
    for (size_t i = 0; i < reducer_pieces(t->world.reducer); i++) {
      size_t begin, end;
      reducer_piece(t->world.reducer, i, &begin, &end);
      optim_piece(o, b, there, NULL, t->state.w + begin, t->state.m + owned,
                  t->state.v ? t->state.v + owned : NULL, t->state.g + begin, end - begin);
      owned += end - begin;
    }
    TRY(train_gather_weights(t));
  }
  if (low && by_pieces) b->lower(b, t->state.low, t->state.w, n);
  if (t->state.e) b->ema(b, t->state.e, t->state.w, (double)t->spec->ema, n, there);
  return ERR_OK;
}

/* What the micro-batches of all ranks came to. A device is waited for once a step, for
 * the squares; behind them the losses are there too. */
static Err losses(Train *t, StepSum *sum) {
  ModelLoss mine;
  double start = progress_clock();
  TRY(squares(t));
  TRY(model_loss(t->state.model, &mine));
  double got = progress_clock();
  *(t->world.backend.host ? &sum->update : &sum->backward) += got - start;
  double all[MODEL_SUMS + 2] = {0};
  memcpy(all, mine.sum, sizeof mine.sum);
  all[MODEL_SUMS] = (double)mine.predictions;
  all[MODEL_SUMS + 1] = sum->examples;
  comm_sum(t->world.comm, "losses", all, sizeof all / sizeof *all);
  memcpy(sum->sum, all, sizeof sum->sum);
  sum->predictions = all[MODEL_SUMS];
  sum->examples = all[MODEL_SUMS + 1];
  sum->wait += progress_clock() - got;
  return ERR_OK;
}

/* The norm is the same to the bit however the gradient is spread over the ranks. */
static Err step_together(Train *t, double lr, StepNumbers *now, StepSum *sum) {
  begin_gradients(t, begins(t));
  TRY(gradients(t, sum));
  TRY(losses(t, sum));
  double start = progress_clock();
  now->grad_divisor = sum->predictions * scaler_factor(&t->run.at.scaler);
  now->loss[0] = sum->sum[0];
  if (t->spec->shard) reducer_gather_units(t->world.reducer, "norms", t->state.sums);
  optim_clip(now, t->state.sums, norm_units(t->state.model->params.padded));
  if (isfinite(now->grad_scale)) TRY(update(t, now, lr));
  sum->update += progress_clock() - start;
  return ERR_OK;
}

/* On one device, which is waited for once, at the end. */
static Err step_alone(Train *t, StepNumbers *now, StepSum *sum) {
  double factor = scaler_factor(&t->run.at.scaler);
  bool spoilt = begins(t);
  if (t->micro_batches == 1 && !spoilt) {
    Micro m;
    TRY(next_micro(t, 0, &m));
    now->grad_divisor = m.batch.predictions * factor;
    TRY(pass_whole(&t->state.pass, m.batch.data, m.key, (float)factor, now));
    end_micro(t, &m, sum);
  } else {
    begin_gradients(t, spoilt);
    for (uint32_t i = 0; i < t->micro_batches; i++) TRY(micro_batch(t, i, false, sum));
    now->grad_divisor = sum->predictions * factor;
    TRY(pass_update(&t->state.pass, now));
  }
  TRY(look_ahead(t));
  double start = progress_clock();
  TRY(pass_end(&t->state.pass, now));
  sum->backward += progress_clock() - start;
  memcpy(sum->sum, now->loss, sizeof sum->sum);
  return ERR_OK;
}

Err train_step(Train *t, double lr, StepSum *sum, bool *healthy) {
  uint64_t before = mem_count();
  StepNumbers now = optim_numbers(&t->spec->optim, t->run.at.step, lr);
  now.max_grad_norm = (double)t->spec->clip;
  *sum = (StepSum){.steps = 1};
  TRY(is_alone(t) ? step_alone(t, &now, sum) : step_together(t, lr, &now, sum));
  sum->norm = now.grad_norm;
  bool finite = isfinite(sum->norm), sound = isfinite(sum->sum[0]);
  *healthy = sound && scaler_take(&t->run.at.scaler, finite);
  sum->skipped = *healthy && !finite;
  t->world.warm = true;
  sum->allocations = (double)(mem_count() - before);
  return ERR_OK;
}
