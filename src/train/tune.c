/* Measures the all-reduce of NCCL beside the backward pass. First the sizes of buckets are compared with
 * the CTAs that were asked for, then limits of CTAs with the best size. The ranks add their times, so
 * that all choose the same. Depends on trainer, step, allreduce, gradients. */
#include "train/tune.h"

#include "base/log.h"
#include "base/progress.h"
#include "train/step.h"

#define MAX_SECONDS       60  /* no further candidate is tried after this time */
#define CANDIDATE_SECONDS 1   /* of timed passes for one candidate */
#define MIN_GAIN          .01 /* a difference of less than 1 % is noise */
#define MIN_PASSES        3
#define MAX_PASSES        50
#define FIRST_BUCKET      ((size_t)4 << 20) /* bytes */
#define LAST_BUCKET       ((size_t)128 << 20)

static const int ctas_tried[] = {0, 4, 8, 16};

typedef struct {
  Trainer *t;
  AllreduceSpec spec; /* that of the open communicator */
  size_t bucket;      /* bytes of the buckets in use */
  double start;
  Tuned best;
  double best_ms; /* 0: nothing was measured */
} Tuning;

/* Runs forward, backward and all-reduce of the first micro-batch of the next step. */
static Err run_pass(Tuning *u) {
  Trainer *t = u->t;
  World *w = &t->world;
  Gradients *q = &w->grads;
  comm_report(w->comm, w->first_timeout, "measuring the all-reduce");
  pass_begin(&t->state.pass);
  gradients_begin_round(q, (GradRound){w->ranks, true, true});
  TRY(pass_gradients(&t->state.pass, t->next.batch.data, t->next.key, 1, gradients_ready(q),
                     q->reducer));
  gradients_queue_sum(q);
  return allreduce_wait(&w->allreduce);
}

/* Runs `passes` passes and returns their mean time over all ranks, in seconds. */
static Err time_passes(Tuning *u, int passes, double *seconds) {
  World *w = &u->t->world;
  double start = progress_clock();
  for (int i = 0; i < passes; i++) TRY(run_pass(u));
  *seconds = (progress_clock() - start) / passes;
  comm_sum(w->comm, "times of the all-reduce", seconds, 1);
  *seconds /= w->ranks;
  return ERR_OK;
}

static void print_candidate(const Tuning *u, double ms) {
  char ctas[32] = "CTAs as NCCL chooses";
  if (!world_is_writer(&u->t->world)) return;
  if (u->spec.max_ctas) snprintf(ctas, sizeof ctas, "at most %d CTAs", u->spec.max_ctas);
  log_info("tune     buckets of %.3g MB, %s: %.3f ms", (double)u->bucket / (1 << 20), ctas, ms);
}

/* Times the buckets and CTAs in use, and keeps them if they are clearly the fastest so far. */
static Err try_candidate(Tuning *u) {
  double first, seconds;
  TRY(time_passes(u, 1, &first)); /* also GEMM algorithms are selected, connections are made */
  TRY(time_passes(u, 1, &first));
  double passes = CANDIDATE_SECONDS / first;
  int n = passes < MIN_PASSES ? MIN_PASSES : passes > MAX_PASSES ? MAX_PASSES : (int)passes;
  TRY(time_passes(u, n, &seconds));
  print_candidate(u, 1e3 * seconds);
  if (u->best_ms > 0 && 1e3 * seconds >= (1 - MIN_GAIN) * u->best_ms) return ERR_OK;
  u->best_ms = 1e3 * seconds;
  u->best = (Tuned){.is_set = true, .bucket = u->bucket, .ctas = u->spec.max_ctas};
  return ERR_OK;
}

/* Returns true if there is time for another candidate; rank 0 decides. */
static bool has_time(Tuning *u) {
  bool has = progress_clock() - u->start < MAX_SECONDS;
  comm_broadcast(u->t->world.comm, "time to measure", &has, sizeof has);
  return has;
}

static Err use_bucket(Tuning *u, size_t bytes) {
  World *w = &u->t->world;
  u->bucket = bytes;
  return gradients_set_bucket(&w->grads, w->comm, bytes / sizeof(float));
}

static Err use_ctas(Tuning *u, int ctas) {
  u->spec.max_ctas = ctas;
  return allreduce_reopen(&u->t->world.allreduce, &u->spec);
}

/* A bucket larger than the gradient is one bucket, so that one such size is enough. */
static Err try_buckets(Tuning *u) {
  size_t gradient = u->t->state.model->params.padded * sizeof(float);
  for (size_t bytes = FIRST_BUCKET; bytes <= LAST_BUCKET && has_time(u); bytes *= 2) {
    if (bytes != u->t->spec->bucket) {
      TRY(use_bucket(u, bytes));
      TRY(try_candidate(u));
    }
    if (bytes >= gradient) break;
  }
  return use_bucket(u, u->best.bucket);
}

static Err try_ctas(Tuning *u) {
  if (!allreduce_limits_ctas(&u->t->world.allreduce)) return ERR_OK;
  for (size_t i = 0; i < sizeof ctas_tried / sizeof *ctas_tried && has_time(u); i++) {
    if (ctas_tried[i] == u->t->spec->nccl_ctas) continue;
    TRY(use_ctas(u, ctas_tried[i]));
    TRY(try_candidate(u));
  }
  return u->spec.max_ctas == u->best.ctas ? ERR_OK : use_ctas(u, u->best.ctas);
}

static Err measure_candidates(Tuning *u) {
  TRY(try_candidate(u)); /* what was asked for */
  double asked_ms = u->best_ms;
  TRY(try_buckets(u));
  TRY(try_ctas(u));
  if (world_is_writer(&u->t->world))
    log_info(
        "tuned    buckets of %.3g MB, --nccl-ctas %d: %.3f ms a pass instead of %.3f; measured "
        "in %.0f s",
        (double)u->best.bucket / (1 << 20), u->best.ctas, u->best_ms, asked_ms,
        progress_clock() - u->start);
  return ERR_OK;
}

/* Graphs are captured later, for the chosen buckets. The losses of the passes are dropped. */
static Err measure_without_graphs(Tuning *u) {
  Pass *pass = &u->t->state.pass;
  ModelLoss dropped;
  bool without_graphs = pass->without_graphs;
  pass->without_graphs = true;
  Err err = measure_candidates(u);
  pass->without_graphs = without_graphs;
  TRY(err);
  return model_loss(u->t->state.model, &dropped);
}

Err tune_allreduce(Trainer *t) {
  World *w = &t->world;
  Tuning u = {.t = t, .bucket = t->spec->bucket, .start = progress_clock()};
  if (w->grads.path != GRADS_NCCL) {
    if (world_is_writer(w))
      log_info("tune     nothing is measured: gradients are not reduced from GPU to GPU");
    return ERR_OK;
  }
  u.spec = world_allreduce_spec(t->spec);
  u.spec.max_elements = (u.bucket > LAST_BUCKET ? u.bucket : LAST_BUCKET) / sizeof(float);
  TRY(allreduce_reopen(&w->allreduce, &u.spec));
  TRY(train_fetch_next(t));
  TRY(measure_without_graphs(&u));
  w->tuned = u.best;
  return state_use_buckets(&t->state, w, t->spec);
}
