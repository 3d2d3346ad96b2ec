/* Measures the all-reduce of NCCL beside the backward pass. First the sizes of buckets are compared with
 * the CTAs that were asked for, then limits of CTAs with the best size, each with and without GEMMs
 * that leave these SMs free. The ranks add their times, so that all choose the same. Depends on
 * trainer, step, allreduce, gradients. */
#include "train/tune.h"

#include "base/log.h"
#include "base/progress.h"
#include "base/stop.h"
#include "train/step.h"

#define MAX_SECONDS       60  /* no further candidate is tried after this time */
#define CANDIDATE_SECONDS 1   /* of timed passes for one candidate */
#define MIN_GAIN          .01 /* a difference of less than 1 % is noise */
#define MIN_PASSES        3
#define MAX_PASSES        50
#define FIRST_BUCKET      ((size_t)4 << 20) /* bytes */
#define LAST_BUCKET       ((size_t)128 << 20)

const char *const tuned_option[TUNED_OPTIONS] = {"bucket-size", "nccl-ctas", "reserve-sms"};

static const int ctas_tried[] = {0, 4, 8, 16};
/* Messages at the first and the second Ctrl-C. */
static const char *const answers_tuning[2] = {
    "stopping: the measurement ends after this candidate, and nothing is chosen",
    "stopping: this candidate is still being measured; a third Ctrl-C exits at once"};

typedef struct {
  Trainer *t;
  AllreduceSpec spec; /* that of the open communicator */
  size_t bucket;      /* bytes of the buckets in use */
  double start;
  Tuned best;
  double best_ms;  /* 0: nothing was measured */
  bool is_late;    /* MAX_SECONDS are over */
  bool is_stopped; /* a signal asked to stop */
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
  char ctas[64] = "CTAs as NCCL chooses";
  if (!world_is_writer(&u->t->world)) return;
  if (u->spec.max_ctas)
    snprintf(ctas, sizeof ctas, "at most %d CTAs%s", u->spec.max_ctas,
             u->spec.reserves_sms ? ", SMs reserved" : "");
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
  u->best = (Tuned){.is_set = true,
                    .bucket = u->bucket,
                    .ctas = u->spec.max_ctas,
                    .reserves_sms = u->spec.reserves_sms};
  return ERR_OK;
}

/* Returns true if another candidate is to be tried: rank 0 has time, and no rank was asked to stop. */
static bool has_time(Tuning *u) {
  const World *w = &u->t->world;
  bool is_late = world_is_writer(w) && progress_clock() - u->start >= MAX_SECONDS;
  double votes[2] = {is_late, stop_asked()};
  comm_sum(w->comm, "time to measure", votes, 2);
  if (votes[0] > 0 && !u->is_late && world_is_writer(w))
    log_info("tune     %d s are over: the other candidates are not measured", MAX_SECONDS);
  u->is_late = votes[0] > 0;
  u->is_stopped = votes[1] > 0;
  return !u->is_late && !u->is_stopped;
}

static Err use_bucket(Tuning *u, size_t bytes) {
  World *w = &u->t->world;
  u->bucket = bytes;
  return gradients_set_bucket(&w->grads, w->comm, bytes / sizeof(float));
}

static Err use_ctas(Tuning *u, int ctas, bool reserves_sms) {
  if (u->spec.max_ctas == ctas && u->spec.reserves_sms == reserves_sms) return ERR_OK;
  u->spec.max_ctas = ctas;
  u->spec.reserves_sms = reserves_sms;
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

/* Tries a limit of CTAs with and without reserved SMs, except what was asked for, which was the first
 * candidate. */
static Err try_limit(Tuning *u, int ctas) {
  const TrainSpec *asked = u->t->spec;
  for (int reserves = 0; reserves <= (ctas > 0); reserves++) {
    if (ctas == asked->nccl_ctas && (bool)reserves == asked->reserves_sms) continue;
    if (!has_time(u)) return ERR_OK;
    TRY(use_ctas(u, ctas, reserves));
    TRY(try_candidate(u));
  }
  return ERR_OK;
}

static Err try_ctas(Tuning *u) {
  int asked = u->t->spec->nccl_ctas;
  if (!allreduce_limits_ctas(&u->t->world.allreduce)) return ERR_OK;
  TRY(try_limit(u, asked));
  for (size_t i = 0; i < sizeof ctas_tried / sizeof *ctas_tried; i++)
    if (ctas_tried[i] != asked) TRY(try_limit(u, ctas_tried[i]));
  return use_ctas(u, u->best.ctas, u->best.reserves_sms);
}

static void print_choice(const Tuning *u, double asked_ms) {
  char against[48] = " a pass, as asked for";
  if (!world_is_writer(&u->t->world)) return;
  if (u->best_ms < asked_ms)
    snprintf(against, sizeof against, " a pass instead of %.3f", asked_ms);
  log_info(
      "tuned    buckets of %.3g MB, --nccl-ctas %d, --reserve-sms %s: %.3f ms%s; measured "
      "in %.0f s",
      (double)u->best.bucket / (1 << 20), u->best.ctas, u->best.reserves_sms ? "yes" : "no",
      u->best_ms, against, progress_clock() - u->start);
}

/* After a request to stop: continues with what was asked for, and chooses nothing, so that the next
 * start measures again. */
static Err drop_choice(Tuning *u) {
  const TrainSpec *asked = u->t->spec;
  u->best = (Tuned){0};
  TRY(use_bucket(u, asked->bucket));
  return use_ctas(u, asked->nccl_ctas, asked->reserves_sms);
}

static Err measure_candidates(Tuning *u) {
  TRY(try_candidate(u)); /* what was asked for */
  double asked_ms = u->best_ms;
  TRY(try_buckets(u));
  TRY(try_ctas(u));
  if (u->is_stopped) return drop_choice(u);
  print_choice(u, asked_ms);
  return ERR_OK;
}

/* Graphs are captured later, for the chosen buckets. The losses of the passes are dropped. */
static Err measure_without_graphs(Tuning *u) {
  Pass *pass = &u->t->state.pass;
  ModelLoss dropped;
  bool without_graphs = pass->without_graphs;
  pass->without_graphs = true;
  stop_answer_with(answers_tuning);
  Err err = measure_candidates(u);
  stop_answer_with(NULL);
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
