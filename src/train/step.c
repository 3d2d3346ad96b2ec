/* One step: a global batch of micro-batches, shared out over the ranks in turn;
 * gradients summed while they are made; one update. Relies on model, comm, optim. */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "train/train_internal.h"

/* The most seconds between two signs of life so far decide how long is too long. */
static void tick(Train *t, double *since, const char *what, uint32_t i) {
  double now = progress_clock(), took = now - *since;
  if (took > t->usual) t->usual = took;
  *since = now;
  /* The first step touches memory for the first time, and knows no usual time yet. */
  double allowed = t->warm ? 5 * t->usual : 600;
  comm_at(t->comm, allowed, "step %llu, micro-batch %u, %s", (unsigned long long)t->at.step, i,
          what);
}

/* For tests: what can go wrong, at a chosen step of a chosen rank. Gradients are
 * added to what is there, so what is put there first stays. */
static void inject(Train *t) {
  const Backend *b = &t->backend;
  float nan = NAN;
  if (fault_now("nan", t->at.step, t->rank))
    b->put(b, t->g + t->t.params.total / 2, &nan, sizeof nan);
  if (fault_now("die", t->at.step, t->rank)) kill(getpid(), SIGKILL);
  if (fault_now("hang", t->at.step, t->rank))
    for (;;) sleep(1000);
}

/* Do gradients travel, or are they kept between rounds? */
static bool is_shared(const Train *t) {
  return t->ranks > 1 || (t->spec->reproducible && t->group > 1);
}

/* A device's gradients that travel through the program's memory. */
static bool goes_by_host(const Train *t) {
  return !t->backend.host && !t->exchange.wire && is_shared(t);
}

/* `last`: its gradients may travel as they are made. A device's are fetched first,
 * unless they have a wire of their own. */
static Err micro_batch(Train *t, uint32_t i, bool last, StepSum *sum) {
  const Batch *batch;
  const Backend *b = &t->backend;
  double start = progress_clock(), mark = start;
  tick(t, &mark, "waiting for data", i);
  TRY(loader_next(t->loader, &batch));
  double got = progress_clock();
  tick(t, &mark, "forward and backward", i);
  StepKey key = {rng_mix(rng_mix(t->spec->seed, t->at.step), i), true};
  transformer_step(&t->t, (Weights){t->w, t->low}, t->g, batch, key, t->spec->smoothing,
                   (float)scaler_factor(&t->at.scaler),
                   last && (b->host || t->exchange.wire) ? reducer_ready : NULL, t->reducer);
  if (last && goes_by_host(t))
    TRY(b->get(b, t->stage, t->g, t->t.params.padded * sizeof(float)));
  tick(t, &mark, "after backward", i);
  sum->data += got - start;
  sum->forward += t->t.turned - got;
  sum->backward += progress_clock() - t->t.turned;
  sum->pairs += batch->sentences;
  return ERR_OK;
}

/* Until the gradients have travelled by wire. As long as this rank's own device still makes
 * them, it is the one that works. */
static Err settle(Train *t, uint32_t i, double *start, StepSum *sum) {
  double mark = *start;
  tick(t, &mark, "backward on the device", i);
  TRY(exchange_wait_made(&t->exchange));
  tick(t, &mark, "waiting for the others' gradients", i);
  sum->backward += mark - *start;
  *start = mark;
  return exchange_wait(&t->exchange);
}

/* Micro-batches of one round, the `round`-th of each rank; reduced at its end. */
static Err reduced_round(Train *t, uint32_t i, uint32_t round, bool first, bool last,
                         StepSum *sum) {
  uint32_t left = t->group - round * (uint32_t)t->ranks;
  int active = left < (uint32_t)t->ranks ? (int)left : t->ranks;
  reducer_round(t->reducer, t->spec->reproducible ? active : t->ranks, first, last);
  if (i < t->group) TRY(micro_batch(t, i, true, sum));
  double start = progress_clock();
  reducer_finish(t->reducer);
  const Backend *b = &t->backend;
  if (t->exchange.wire) TRY(settle(t, i, &start, sum));
  if (last && goes_by_host(t)) b->put(b, t->g, t->stage, t->t.params.padded * sizeof(float));
  sum->wait += progress_clock() - start;
  return ERR_OK;
}

/* Reproducible: the sum is made after every round, in the order of the micro-batches.
 * Otherwise each rank adds up its own, and the sum is made once. */
static Err gradients(Train *t, StepSum *sum) {
  uint32_t ranks = (uint32_t)t->ranks, rounds = (t->group + ranks - 1) / ranks;
  size_t bytes = t->t.params.padded * sizeof(float);
  bool each = t->spec->reproducible;
  const Backend *b = &t->backend;
  double mark = progress_clock();
  tick(t, &mark, "beginning", (uint32_t)t->rank);
  b->zero(b, t->g, bytes);
  inject(t);
  for (uint32_t round = 0; round < rounds; round++) {
    uint32_t i = round * ranks + (uint32_t)t->rank;
    bool mine_last = i + ranks >= t->group;
    if (each && round) b->zero(b, t->g, bytes);
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
  const Backend *b = &t->backend;
  size_t n = t->t.params.padded;
  if (!t->spec->shard) {
    b->queue_norm2(b, t->queued, t->g, n);
  } else {
    for (size_t i = 0; i < reducer_pieces(t->reducer); i++) {
      size_t begin, end;
      reducer_piece(t->reducer, i, &begin, &end);
      if (end > begin)
        b->queue_norm2(b, t->queued + begin / NORM_UNIT, t->g + begin, end - begin);
    }
  }
  size_t units = (n + NORM_UNIT - 1) / NORM_UNIT;
  return b->host ? ERR_OK : b->get(b, t->sums, t->queued, units * sizeof *t->sums);
}

/* The norm is the same to the bit however the gradient is spread over the ranks. */
static double norm_of(Train *t) {
  if (t->spec->shard) reducer_gather_units(t->reducer, "norms", t->sums);
  return optim_norm(t->sums, (t->t.params.padded + NORM_UNIT - 1) / NORM_UNIT);
}

static Err update(Train *t, double lr, double scale) {
  const OptimSpec *o = &t->spec->optim;
  const Backend *b = &t->backend;
  size_t n = t->t.params.padded, owned = 0;
  if (o->kind == OPTIM_NOVOGRAD) {
    optim_layers(o, b, &t->t.params, t->w, t->m, t->second, t->g, t->at.step, lr, scale);
  } else if (!t->spec->shard) {
    optim_piece(o, b, t->w, t->m, t->v, t->g, n, t->at.step, lr, scale);
  } else {
    for (size_t i = 0; i < reducer_pieces(t->reducer); i++) {
      size_t begin, end;
      reducer_piece(t->reducer, i, &begin, &end);
      optim_piece(o, b, t->w + begin, t->m + owned, t->v ? t->v + owned : NULL, t->g + begin,
                  end - begin, t->at.step, lr, scale);
      owned += end - begin;
    }
    TRY(train_gather_weights(t));
  }
  b->lower(b, t->low, t->w, n);
  if (t->e) b->ema(b, t->e, t->w, (double)t->spec->ema, n);
  return ERR_OK;
}

/* What the micro-batches of all ranks came to. A device is waited for once a step, for
 * the squares; behind them the losses are there too. */
static Err losses(Train *t, StepSum *sum) {
  BatchLoss mine;
  double start = progress_clock();
  TRY(squares(t));
  TRY(transformer_loss(&t->t, &mine));
  double got = progress_clock();
  *(t->backend.host ? &sum->update : &sum->backward) += got - start;
  double all[] = {mine.loss, mine.nll, mine.right, (double)mine.rows, sum->pairs};
  comm_sum(t->comm, "losses", all, sizeof all / sizeof *all);
  sum->loss = all[0], sum->nll = all[1], sum->right = all[2], sum->rows = all[3],
  sum->pairs = all[4];
  sum->wait += progress_clock() - got;
  return ERR_OK;
}

Err train_step(Train *t, double lr, StepSum *sum, bool *healthy) {
  uint64_t before = mem_count();
  *sum = (StepSum){.steps = 1};
  TRY(gradients(t, sum));
  TRY(losses(t, sum));
  double start = progress_clock();
  double times = sum->rows * scaler_factor(&t->at.scaler); /* what the mean's gradient was */
  sum->norm = norm_of(t) / times;
  bool finite = isfinite(sum->norm), sound = isfinite(sum->loss);
  *healthy = sound && scaler_take(&t->at.scaler, finite);
  sum->skipped = *healthy && !finite;
  if (sound && finite) {
    double clip = (double)t->spec->clip;
    double scale = clip > 0 && sum->norm > clip ? clip / sum->norm : 1;
    TRY(update(t, lr, scale / times));
  }
  sum->update += progress_clock() - start;
  t->warm = true;
  sum->allocations = (double)(mem_count() - before);
  return ERR_OK;
}
