/* The state of a run: made or loaded by the chief, given to every rank, saved.
 * Relies on model, data, comm, checkpoint, saver, record. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "train/agree.h"
#include "train/record.h"
#include "train/rundir.h"
#include "train/train_internal.h"

Weights train_weights(const Train *t) {
  const Backend *b = &t->world.backend;
  if (!t->state.e) return (Weights){t->state.w, t->state.low};
  b->lower(b, t->state.low_e, t->state.e, t->state.model->params.padded);
  return (Weights){t->state.e, t->state.low_e};
}

/* Memory. */

/* An array, and its copy in the backend's type, if that is another. */
static Err new_weights(Train *t, float **full, void **low) {
  const Backend *b = &t->world.backend;
  size_t n = t->state.model->params.padded;
  TRY(b->alloc(b, full, n * sizeof(float)));
  *low = *full;
  return b->type == TYPE_F32 ? ERR_OK : b->alloc(b, low, n * type_size(b->type));
}

/* Gradients that go through the program's memory lie where a device reaches them fast. */
static void pin_stage(Train *t, size_t bytes) {
  const Backend *b = &t->world.backend;
  if (b->host || t->world.ranks == 1 || t->world.exchange.wire) return;
  t->world.pinned = b->pin(b, t->world.stage, bytes) == ERR_OK;
  if (!t->world.pinned)
    log_warn("gradients travel more slowly than they could: %s", err_message());
}

static Err new_gradients(Train *t) {
  const TrainSpec *s = t->spec;
  const Backend *b = &t->world.backend;
  size_t n = t->state.model->params.padded, units = norm_units(n);
  TRY(b->alloc(b, &t->state.g, n * sizeof(float)));
  TRY(b->alloc(b, &t->state.queued, units * sizeof(double)));
  t->world.stage = t->state.g, t->state.sums = t->state.queued;
  if (!b->host) {
    TRY(mem_alloc_aligned(&t->world.stage, n * sizeof(float)));
    TRY(mem_alloc_aligned(&t->state.sums, units * sizeof(double)));
  }
  pin_stage(t, n * sizeof(float));
  ReduceSpec spec = {.unit = NORM_UNIT,
                     .bucket = s->bucket / sizeof(float),
                     .bf16 = s->exchange_bf16,
                     .shard = s->shard,
                     .rounds = s->reproducible && t->micro_batches > (uint32_t)t->world.ranks};
  if (t->world.exchange.wire) spec.send = exchange_send, spec.context = &t->world.exchange;
  TRY(reducer_new(&t->world.reducer, t->world.comm, t->world.stage, n, &spec));
  reducer_set_order(t->world.reducer, model_announce, t->state.model);
  exchange_bind(&t->world.exchange, t->world.reducer, t->state.g, s->shard);
  return ERR_OK;
}

static Err new_arrays(Train *t) {
  const TrainSpec *s = t->spec;
  const Backend *b = &t->world.backend;
  TRY(new_weights(t, &t->state.w, &t->state.low));
  if (s->ema > 0) TRY(new_weights(t, &t->state.e, &t->state.low_e));
  TRY(new_gradients(t));
  size_t mine = (s->shard ? reducer_owned(t->world.reducer) : t->state.model->params.padded) *
                sizeof(float);
  if (optim_has_moment(&s->optim, 1)) TRY(b->alloc(b, &t->state.m, mine));
  if (optim_has_moment(&s->optim, 2)) TRY(b->alloc(b, &t->state.v, mine));
  if (s->optim.kind == OPTIM_NOVOGRAD)
    TRY(mem_alloc(&t->state.second, t->state.model->params.count, sizeof *t->state.second));
  /* A wire's operations begin between those of the backward pass: not from a recording. */
  t->state.pass = (Pass){.backend = b,
                         .model = t->state.model,
                         .optim = &s->optim,
                         .smoothing = s->smoothing,
                         .ema = s->ema,
                         .plain = t->world.exchange.wire != NULL,
                         .w = t->state.w,
                         .g = t->state.g,
                         .e = t->state.e,
                         .low = t->state.low,
                         .m = t->state.m,
                         .v = t->state.v,
                         .sums = t->state.queued};
  return pass_open(&t->state.pass);
}

static void free_arrays(Train *t) {
  const Backend *b = &t->world.backend;
  if (t->world.pinned) b->unpin(b, t->world.stage);
  if (t->world.stage != t->state.g) mem_free(t->world.stage);
  if (t->state.sums != t->state.queued) mem_free(t->state.sums);
  if (t->state.low != t->state.w) b->release(b, t->state.low);
  if (t->state.low_e != t->state.e) b->release(b, t->state.low_e);
  void *theirs[] = {t->state.w, t->state.g, t->state.e,
                    t->state.m, t->state.v, t->state.queued};
  for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
    if (theirs[i]) b->release(b, theirs[i]);
  mem_free(t->state.second);
}

/* From the beginning, from a checkpoint, and to one. */

static TrainArrays shape_of(const Train *t) {
  return (TrainArrays){.config = &t->state.model->config,
                       .params = &t->state.model->params,
                       .tokenizer = t->task->tokenizer,
                       .data = t->spec->accept_data ? NULL : t->task->data_hash,
                       .w = t->state.w,
                       .e = t->state.e,
                       .m = t->state.m,
                       .v = t->state.v,
                       .second = t->state.second};
}

/* From the chief's copy to every rank's array; the gradient's memory is free. */
static void spread(Train *t, const char *name, float *array, const float *whole) {
  const Backend *b = &t->world.backend;
  size_t bytes = t->state.model->params.padded * sizeof(float);
  if (!array) return;
  if (t->world.chief) memcpy(t->world.stage, whole, bytes);
  comm_broadcast(t->world.comm, name, t->world.stage, bytes);
  b->put(b, array, t->world.stage, bytes);
}

/* A sharded optimiser deals out the pieces of whole moments. */
static void give_moment(Train *t, float *mine, const float *whole) {
  const Backend *b = &t->world.backend;
  if (!t->spec->shard) {
    spread(t, "moments", mine, whole);
  } else if (mine) {
    reducer_deal(t->world.reducer, "moments", t->world.stage, whole);
    b->put(b, mine, t->world.stage, reducer_owned(t->world.reducer) * sizeof(float));
  }
}

static Err take_moment(Train *t, float *whole, const float *mine) {
  const Backend *b = &t->world.backend;
  if (!mine) return ERR_OK;
  if (!t->spec->shard)
    return t->world.chief
               ? b->get(b, whole, mine, t->state.model->params.padded * sizeof(float))
               : ERR_OK;
  TRY(b->get(b, t->world.stage, mine, reducer_owned(t->world.reducer) * sizeof(float)));
  reducer_collect(t->world.reducer, "moments", t->world.stage, whole);
  return ERR_OK;
}

Err train_gather_weights(Train *t) {
  const Backend *b = &t->world.backend;
  size_t bytes = t->state.model->params.padded * sizeof(float);
  float *here = b->host ? t->state.w : t->world.stage;
  if (t->world.exchange.wire) {
    exchange_gather(&t->world.exchange, t->state.w);
    return ERR_OK;
  }
  if (!b->host) TRY(b->get(b, here, t->state.w, bytes));
  reducer_gather(t->world.reducer, "weights", here);
  if (!b->host) b->put(b, t->state.w, here, bytes);
  return ERR_OK;
}

static Err load_or_begin(Train *t, TrainArrays *a) {
  const Params *p = &t->state.model->params;
  size_t bytes = p->padded * sizeof(float);
  char dir[FILE_PATH_MAX];
  bool found;
  TRY(checkpoint_find(t->spec->run, dir, &found));
  a->data = shape_of(t).data;
  if (found) return checkpoint_load(dir, a, &t->run.at);
  t->run.at = (TrainCounters){.lr_scale = 1, .micro_batches = t->micro_batches};
  params_init(p, t->spec->seed, a->w);
  if (a->e) memcpy(a->e, a->w, bytes);
  if (a->m) memset(a->m, 0, bytes);
  if (a->v) memset(a->v, 0, bytes);
  if (a->second) memset(a->second, 0, p->count * sizeof *a->second);
  return ERR_OK;
}

static Err open_loader(Train *t) {
  t->next = (Micro){0};
  t->state.pass.loaded = 0;
  LoaderSpec spec = {.seed = t->spec->seed,
                     .step = t->run.at.step,
                     .group = t->micro_batches,
                     .begin = (uint32_t)t->world.rank,
                     .end = t->micro_batches,
                     .stride = (uint32_t)t->world.ranks};
  return t->task->kind->open_loader(t->task, &spec);
}

static bool is_scaled(const Train *t) {
  LossScale how = t->spec->loss_scale;
  return how == SCALE_DYNAMIC || (how == SCALE_AUTO && t->world.backend.type == TYPE_F16);
}

/* From here on the run's data are these. A roll-back loads checkpoints that name the old
 * ones, and is silent. */
static void adopt_data(Train *t) {
  if (!t->world.warm && *t->run.at.data && strcmp(t->run.at.data, t->task->data_hash) != 0)
    log_warn("%s goes on with other data than it was trained on so far: %s", t->spec->run,
             t->task->data);
  memcpy(t->run.at.data, t->task->data_hash, sizeof t->run.at.data);
}

Err train_restore(Train *t) {
  const Backend *b = &t->world.backend;
  TrainArrays none = {0}, *a = t->world.chief ? saver_begin(t->run.saver) : &none;
  comm_at(t->world.comm, COMM_WHILE_ALIVE, "loading the checkpoint");
  if (t->world.chief) TRY(load_or_begin(t, a));
  if (t->world.chief) adopt_data(t);
  t->run.at.batch_tokens = t->task->capacity;
  t->run.at.seed = t->spec->seed;
  comm_broadcast(t->world.comm, "counters", &t->run.at, sizeof t->run.at);
  scaler_switch(&t->run.at.scaler, is_scaled(t));
  spread(t, "weights", t->state.w, a->w);
  spread(t, "mean weights", t->state.e, a->e);
  give_moment(t, t->state.m, a->m);
  give_moment(t, t->state.v, a->v);
  b->lower(b, t->state.low, t->state.w, t->state.model->params.padded);
  if (t->state.second) {
    size_t n = t->state.model->params.count * sizeof *t->state.second;
    if (t->world.chief) memcpy(t->state.second, a->second, n);
    comm_broadcast(t->world.comm, "second moments", t->state.second, n);
  }
  t->health = (Health){0};
  t->run.saved = t->run.at.step;
  t->run.verdict_pending = false;
  t->run.verdict_lost = false;
  return open_loader(t);
}

void train_settle_verdict(Train *t) {
  Err err;
  if (!t->run.verdict_pending) return;
  saver_wait(t->run.saver, &err);
  const TrainCounters *v = &t->run.verdict;
  t->run.verdict_pending = false;
  t->run.verdict_lost = err && v->best_step == v->step;
  if (t->run.verdict_lost) return;
  t->run.at.best_score = v->best_score;
  t->run.at.best_step = v->best_step;
  t->run.at.worse = v->worse;
}

/* A copy is taken; the writing goes on beside the next steps. */
Err train_save(Train *t, bool awaited) {
  const Backend *b = &t->world.backend;
  size_t bytes = t->state.model->params.padded * sizeof(float);
  TrainArrays none = {0}, *a = &none;
  TRY(train_await_weights(t, &t->since));
  comm_at(t->world.comm, COMM_WHILE_ALIVE, "step %" PRIu64 ", saving", t->run.at.step);
  if (t->world.chief) {
    TRY(rundir_check_place(t->spec->run, t->run.lock));
    train_settle_verdict(t);
    a = saver_begin(t->run.saver);
    TRY(b->get(b, a->w, t->state.w, bytes));
    if (t->state.e) TRY(b->get(b, a->e, t->state.e, bytes));
    if (t->state.second)
      memcpy(a->second, t->state.second,
             t->state.model->params.count * sizeof *t->state.second);
  }
  TRY(take_moment(t, a->m, t->state.m));
  TRY(take_moment(t, a->v, t->state.v));
  t->run.saved = t->run.at.step;
  if (!t->world.chief) return ERR_OK;
  TrainCounters now = t->run.at;
  now.seconds = train_elapsed(t);
  saver_commit(t->run.saver, &now, awaited);
  return ERR_OK;
}

/* Reads the counters of the checkpoint to resume from, if there is one, and refuses it where
 * its data or model is another. Comes before memory is taken: sizes may be wrong options. */
static Err compare_checkpoint(Train *t, const ModelConfig *config) {
  TrainArrays shape = shape_of(t);
  char dir[FILE_PATH_MAX];
  bool found;
  shape.config = config;
  TRY(checkpoint_find(t->spec->run, dir, &found));
  return found ? checkpoint_compare(dir, &shape, &t->run.at) : ERR_OK;
}

/* How many micro-batches make a step is the run's, not the number of ranks'. */
static Err settle_group(Train *t) {
  const TrainSpec *s = t->spec;
  uint64_t saved = t->run.at.micro_batches;
  comm_broadcast(t->world.comm, "micro-batches", &saved, sizeof saved);
  t->micro_batches = s->micro_batches ? s->micro_batches
                     : saved          ? (uint32_t)saved
                                      : (uint32_t)t->world.ranks;
  if (saved && t->micro_batches != saved)
    return err_set(ERR_USAGE,
                   "the run has %" PRIu64
                   " micro-batches a step and cannot go on with %u; "
                   "leave --micro-batches out",
                   saved, t->micro_batches);
  if (t->micro_batches >= (uint32_t)t->world.ranks) return ERR_OK;
  return err_set(ERR_USAGE,
                 "%u micro-batches a step cannot be shared out over %d ranks; start at most "
                 "%u ranks, or give more --micro-batches",
                 t->micro_batches, t->world.ranks, t->micro_batches);
}

static void settle_steps(Train *t) {
  const TrainSpec *s = t->spec;
  t->steps = s->epochs
                 ? (s->epochs * t->task->batches + t->micro_batches - 1) / t->micro_batches
                 : s->steps;
  t->schedule = s->schedule;
  if (s->decay_to_end)
    t->schedule.decay = t->steps > s->schedule.warmup ? t->steps - s->schedule.warmup : 1;
  if (t->world.chief && s->schedule.warmup > t->steps)
    log_warn(
        "--warmup-steps %" PRIu64 " is longer than the run of %" PRIu64
        " steps: the learning rate never reaches its full value; pass a shorter --warmup-steps",
        s->schedule.warmup, t->steps);
}

/* The batches, and with them the length of the run. */
static Err settle_batches(Train *t, const ModelConfig *config) {
  uint32_t rows;
  if (t->world.chief && t->spec->resume) TRY(compare_checkpoint(t, config));
  TRY(settle_group(t));
  TRY(fit_rows(t, config, &rows));
  ModelShape shape = config->family->shape(config);
  TRY(backend_check_fp8(&t->world.backend, shape.d_model, shape.ffn_dim, rows));
  TRY(t->task->kind->plan_batches(t->task, rows));
  settle_steps(t);
  return ERR_OK;
}

/* The options as the run keeps them: without those of this call alone, and with what was
 * chosen in place of "auto". */
static Err settle_options(const Train *t, const char *record, Str *out) {
  static const char *const of_this_call[] = {"resume =", "accept-data ="};
  for (const char *at = record; *at;) {
    size_t len = strcspn(at, "\n");
    bool keep = true;
    for (size_t i = 0; i < sizeof of_this_call / sizeof *of_this_call; i++)
      if (str_starts(at, of_this_call[i])) keep = false;
    if (str_starts(at, "batch-tokens = auto"))
      str_addf(out, "batch-tokens = %u\n", t->task->capacity);
    else if (keep)
      str_addf(out, "%.*s\n", (int)len, at);
    at += len + (at[len] == '\n');
  }
  return str_check(out);
}

/* The order of the data hangs on these. The run's config, which has them too, may have lost
 * them; the checkpoint is under a checksum. */
static Err check_order(const Train *t) {
  const TrainCounters *c = &t->run.at;
  uint64_t rows = t->task->capacity, seed = t->spec->seed;
  if (!c->batch_tokens || (c->batch_tokens == rows && c->seed == seed)) return ERR_OK;
  return err_set(ERR_USAGE,
                 "the checkpoint of step %" PRIu64 " was made with --batch-tokens %" PRIu64
                 " --seed %" PRIu64 " and cannot go on with --batch-tokens %" PRIu64
                 " --seed %" PRIu64 "; give its own to resume",
                 c->step, c->batch_tokens, c->seed, rows, seed);
}

/* Rank 0 reads the run and checks that this call can go on with it. */
static Err enter_run(Train *t, const char *options) {
  TRY(rundir_enter(t->spec->run, t->spec->resume, options, &t->run.lock));
  return check_order(t);
}

static Err open_saver(Train *t) {
  const TrainSpec *s = t->spec;
  TrainArrays shape = shape_of(t);
  return saver_new(&t->run.saver, s->run, &shape, s->keep > s->average ? s->keep : s->average,
                   &t->world.backend);
}

/* Takes the memory of the model that was planned, and of what trains it. */
static Err take_memory(Train *t) {
  TRY(fit_or_refuse(t));
  TRY(model_allocate(t->state.model));
  TRY(new_arrays(t));
  return t->world.chief ? open_saver(t) : ERR_OK;
}

/* Nothing can refuse the run any more: it gets its options, its log and its metrics. */
static Err commit_run(Train *t, const char *options) {
  const char *run = t->spec->run;
  char path[FILE_PATH_MAX];
  TRY(rundir_commit(run, options, &t->run.lock));
  TRY(file_join(path, run, "log.txt"));
  TRY(log_to(path));
  return metrics_open(&t->run.metrics, run, t->run.at.step, t->run.at.seconds);
}

static Err begin_run(Train *t, const char *record) {
  const TaskMetric *metric = &t->task->kind->metrics[t->task->kind->decisive];
  Str options = {0};
  Err err;
  TRY_DONE(settle_options(t, record, &options));
  if (t->world.chief) TRY_DONE(enter_run(t, str_text(&options)));
  TRY_DONE(take_memory(t));
  TRY_DONE(train_restore(t));
  if (t->task->valid_examples)
    TRY_DONE(t->task->kind->prepare(t->task, t->state.model, train_weights(t)));
  if (t->world.chief) TRY_DONE(commit_run(t, str_text(&options)));
  if (t->run.at.step && t->run.at.best_step)
    log_info("resume   step %" PRIu64 ", best %s so far %.*f", t->run.at.step, metric->label,
             metric->digits, t->run.at.best_score);
  else if (t->run.at.step)
    log_info("resume   step %" PRIu64 ", no best checkpoint yet", t->run.at.step);
done:
  str_free(&options);
  return err;
}

Err train_set_up(Train *t, const char *record) {
  const TrainSpec *s = t->spec;
  comm_at(t->world.comm, COMM_WHILE_ALIVE, "opening the data set");
  if (t->world.chief && (s->resume || !s->dry_run)) TRY(rundir_check(s->run, s->resume));
  TRY(fit_open(t));
  TRY(exchange_choose(&t->world.exchange, t->world.comm, &t->world.backend, s->collectives,
                      s->reproducible));
  TRY(exchange_open(&t->world.exchange, &t->world.backend, s->bucket / sizeof(float),
                    s->exchange_bf16));
  TRY(s->task->open(&t->task, &(TaskSpec){.data = s->data,
                                          .config = &s->config,
                                          .options = s->task_options,
                                          .validates = s->valid_every > 0,
                                          .comm = t->world.comm}));
  TRY(agree_ranks(t->world.comm, record, "data-set-hash", t->task->data_hash));
  TRY(settle_batches(t, &t->task->config));
  TRY(model_plan(&t->state.model, &(ModelSpec){.config = &t->task->config,
                                               .backend = &t->world.backend,
                                               .capacity = t->task->capacity,
                                               .training = true}));
  if (s->dry_run) /* what the device cannot do is said here too */
    return model_reserve(&t->task->config, &t->world.backend);
  return begin_run(t, record);
}

void train_tear_down(Train *t) {
  exchange_close(&t->world.exchange); /* first: memory is given back when a device is at rest */
  saver_free(t->run.saver);           /* waits for what is being written */
  if (t->task) t->task->kind->close(t->task);
  reducer_free(t->world.reducer);
  pass_close(&t->state.pass); /* its recordings name the model's memory */
  model_free(t->state.model);
  free_arrays(t);
  backend_close(&t->world.backend);
  metrics_close(&t->run.metrics);
  if (t->run.lock >= 0) close(t->run.lock);
}
