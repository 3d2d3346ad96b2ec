/* Sets up a training run, from options to the state before the first step. The list of set-up
 * steps, and the reasons for their order, are at the end of this file. Depends on agree, fit,
 * snapshot, rundir. */
#include "train/setup.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "train/agree.h"
#include "train/fit.h"
#include "train/process.h"
#include "train/rundir.h"
#include "train/snapshot.h"
#include "train/tune.h"

/* Values that earlier steps of the set-up compute for later ones. */
typedef struct {
  const char *options; /* options of this call, as lines of a config file */
  Str run_options;     /* options that are written to DIR/config */
  Str hparams;         /* the same and those with their default value */
} SetUp;

static Err check_directory(Trainer *t, SetUp *s) {
  (void)s;
  const TrainSpec *spec = t->spec;
  if (spec->copy_every && world_is_writer(&t->world) && !copies_dir())
    return err_set(ERR_USAGE,
                   "--peer-checkpoint %" PRIu64
                   " needs a directory in memory, TRIREME_PEER_DIR: start the ranks with "
                   "'trireme launch --peer-checkpoint %" PRIu64 " -- train …'",
                   spec->copy_every, spec->copy_every);
  bool is_needed = spec->start != RUN_NEW || !spec->dry_run;
  if (!is_needed || !world_is_writer(&t->world)) return ERR_OK;
  return rundir_check(spec->run, spec->start, &t->run.is_resumed);
}

static Err open_device(Trainer *t, SetUp *s) {
  (void)s;
  return world_open_device(&t->world, &t->spec->backend);
}

static Err open_transport(Trainer *t, SetUp *s) {
  (void)s;
  TRY(world_open_transport(&t->world, t->spec, t->run.is_resumed));
  if (t->spec->nccl_ctas && !t->world.allreduce.ops && world_is_writer(&t->world))
    log_info("ranks    --nccl-ctas %d%s no effect: gradients are not reduced from GPU to GPU",
             t->spec->nccl_ctas,
             t->spec->reserves_sms ? " and --reserve-sms yes have" : " has");
  return ERR_OK;
}

static Err open_task(Trainer *t, SetUp *s) {
  (void)s;
  const TrainSpec *spec = t->spec;
  TaskSpec task = {.data = spec->data,
                   .config = &spec->config,
                   .options = spec->task_options,
                   .validates = spec->valid_every > 0,
                   .comm = t->world.comm};
  return spec->task->open(&t->task, &task);
}

static Err compare_ranks(Trainer *t, SetUp *s) {
  return agree_ranks(t->world.comm, s->options, "data-set-hash", t->task->data_hash);
}

/* Selects the in-memory copy if it is later than the run's checkpoint. */
static void prefer_copy(Trainer *t, const TrainArrays *required) {
  TrainCounters at;
  char dir[FILE_PATH_MAX];
  if (!copies_find(t->run.dir, required, dir, &at)) return;
  if (!copies_is_later(&at, &t->run.at)) return;
  memcpy(t->run.load_from, dir, sizeof dir);
  t->run.is_from_copy = true;
  t->run.at = at;
}

/* Finds out whether the run had trained although it has no checkpoint. */
static Err find_lost_steps(Trainer *t) {
  char path[FILE_PATH_MAX];
  TRY(file_join(path, t->run.dir, "metrics.jsonl"));
  t->run.has_lost_steps = file_exists(path);
  return ERR_OK;
}

/* Finds the run's last undamaged checkpoint and reads its counters. */
static Err choose_checkpoint(Trainer *t, const TrainArrays *required) {
  char dir[FILE_PATH_MAX];
  bool is_found;
  TRY(checkpoint_find(t->run.dir, dir, &is_found));
  if (!is_found) return find_lost_steps(t);
  TRY(checkpoint_compare(dir, required, &t->run.at));
  memcpy(t->run.load_from, dir, sizeof dir);
  t->run.saved = t->run.at.step;
  return ERR_OK;
}

/* Locks a run that is resumed, and reads the counters of the checkpoint to resume from, if there is
 * one. Fails if its data or model differ. The lock comes first, because a process that ends may
 * still be saving its last checkpoint and removing older ones. */
static Err read_counters(Trainer *t, SetUp *s) {
  (void)s;
  if (!world_is_writer(&t->world) || !t->run.is_resumed) return ERR_OK;
  TrainArrays required = {.config = &t->task->config,
                          .file = t->task->file,
                          .files = t->task->files,
                          .task = t->task->kind->name,
                          .data = t->spec->accept_data ? NULL : t->task->data_hash};
  if (!t->spec->dry_run) TRY(run_lock(&t->run));
  Err err = choose_checkpoint(t, &required);
  if (t->spec->start != RUN_AUTO) return err;
  ErrRecord why = err_take(err);
  if (err) t->run.at = (TrainCounters){0};
  prefer_copy(t, &required);
  if (!err) return ERR_OK;
  if (!t->run.is_from_copy) return err_give(&why);
  log_warn("%s", why.text); /* A complete copy serves although no checkpoint is complete. */
  return ERR_OK;
}

static Err settle_micro_batches(Trainer *t, SetUp *s) {
  (void)s;
  return world_settle_micro_batches(&t->world, t->spec->micro_batches, t->run.at.micro_batches,
                                    t->spec->max_ranks, &t->micro_batches);
}

static Err plan_batches(Trainer *t, SetUp *s) {
  (void)s;
  uint32_t batch_tokens;
  ModelShape shape = t->task->config.family->shape(&t->task->config);
  TRY(fit_tokens(t, &t->task->config, &batch_tokens));
  TRY(backend_check_fp8(&t->world.backend, shape.d_model, shape.ffn_dim, batch_tokens));
  return t->task->kind->plan_batches(t->task, batch_tokens);
}

static uint64_t limit_warmup(const TrainSpec *spec, uint64_t steps) {
  uint64_t most = (uint64_t)(spec->max_warmup * (double)steps);
  bool is_limited = spec->max_warmup > 0 && most < spec->schedule.warmup;
  return is_limited ? most : spec->schedule.warmup;
}

static Err settle_steps(Trainer *t, SetUp *s) {
  (void)s;
  const TrainSpec *spec = t->spec;
  uint64_t batches = spec->epochs * t->task->batches;
  t->steps = spec->epochs ? (batches + t->micro_batches - 1) / t->micro_batches : spec->steps;
  t->schedule = spec->schedule;
  uint64_t warmup = limit_warmup(spec, t->steps);
  t->schedule.warmup = warmup;
  if (spec->decay_to_end) t->schedule.decay = t->steps > warmup ? t->steps - warmup : 1;
  if (world_is_writer(&t->world) && spec->patience && !t->task->valid_examples)
    log_warn(
        "--patience %d has no effect: the data set has no validation text; prepare it with "
        "--valid or --split",
        spec->patience);
  if (world_is_writer(&t->world) && warmup > t->steps)
    log_warn(
        "--warmup-steps %" PRIu64 " is longer than the run of %" PRIu64
        " steps: the learning rate never reaches its full value; pass a shorter --warmup-steps",
        warmup, t->steps);
  return ERR_OK;
}

static Err plan_model(Trainer *t, SetUp *s) {
  (void)s;
  ModelSpec spec = {.config = &t->task->config,
                    .backend = &t->world.backend,
                    .capacity = t->task->capacity,
                    .training = true};
  return model_plan(&t->state.model, &spec);
}

/* In a dry run, reports what the device does not support. (Otherwise model_allocate does.) */
static Err reserve_device(Trainer *t, SetUp *s) {
  (void)s;
  return t->spec->dry_run ? model_reserve(&t->task->config, &t->world.backend) : ERR_OK;
}

/* Returns true if a line of options has one that --tune chooses. */
static bool is_tuned_option(const char *line) {
  for (size_t i = 0; i < TUNED_OPTIONS; i++)
    if (str_starts(line, tuned_option[i]) && line[strlen(tuned_option[i])] == ' ') return true;
  return false;
}

/* Makes the options that are written to the run directory: without options that apply to this
 * call only, and with the chosen value instead of "batch-tokens = auto". micro-batches is
 * always written, because its default depends on the number of ranks: a run killed before its
 * first checkpoint may resume on another number. */
static void copy_options(const Trainer *t, const char *options, Str *out) {
  static const char *const of_this_call[] = {
      "resume =",          "auto-resume =", "accept-data =", "micro-batches =",
      "peer-checkpoint =", "trace =",       "trace-from =",  "tune ="};
  for (const char *at = options; *at;) {
    size_t len = strcspn(at, "\n");
    bool is_kept = true;
    for (size_t i = 0; i < sizeof of_this_call / sizeof *of_this_call; i++)
      if (str_starts(at, of_this_call[i])) is_kept = false;
    if (t->world.tuned.is_set && is_tuned_option(at)) is_kept = false;
    if (str_starts(at, "batch-tokens = auto"))
      str_addf(out, "batch-tokens = %u\n", t->task->capacity);
    else if (is_kept)
      str_addf(out, "%.*s\n", (int)len, at);
    at += len + (at[len] == '\n');
  }
  str_addf(out, "micro-batches = %u\n", t->micro_batches);
  if (t->world.tuned.is_set)
    str_addf(out, "bucket-size = %zu\nnccl-ctas = %d\nreserve-sms = %s\n",
             t->world.tuned.bucket, t->world.tuned.ctas,
             t->world.tuned.reserves_sms ? "yes" : "no");
}

static Err settle_options(Trainer *t, SetUp *s) {
  copy_options(t, s->options, &s->run_options);
  copy_options(t, t->spec->all_options ? t->spec->all_options : s->options, &s->hparams);
  TRY(str_check(&s->run_options));
  return str_check(&s->hparams);
}

/* The chosen values become options of the run, so that it continues with them. A run that has begun keeps
 * its own: launch repeats --tune at every restart, and other buckets may change the last digits. */
static Err tune_transport(Trainer *t, SetUp *s) {
  if (!t->spec->tunes) return ERR_OK;
  if (t->run.at.step > 0) {
    if (world_is_writer(&t->world))
      log_info(
          "tune     nothing is measured: the run continues with the buckets it began with");
    return ERR_OK;
  }
  TRY(tune_allreduce(t));
  str_free(&s->run_options);
  str_free(&s->hparams);
  return settle_options(t, s);
}

static Err enter_run(Trainer *t, SetUp *s) {
  if (!world_is_writer(&t->world)) return ERR_OK;
  return run_enter(&t->run, str_text(&s->run_options), t->task->kind->free_options,
                   t->task->capacity, t->spec->seed);
}

static Err check_memory(Trainer *t, SetUp *s) {
  (void)s;
  return fit_or_refuse(t);
}

static void log_frozen(const Trainer *t) {
  const Params *p = &t->state.model->params;
  uint32_t layers = t->spec->groups.freeze_layers;
  if (!layers || !world_is_writer(&t->world)) return;
  log_info("frozen   embeddings and first %" PRIu32 " of %" PRIu32
           " layers; %zu of %zu parameters are updated",
           layers, p->layers, groups_count_updated(&t->state.groups, p), p->total);
}

static Err take_memory(Trainer *t, SetUp *s) {
  (void)s;
  TRY(model_allocate(t->state.model));
  if (t->task->kind->begin_model) t->task->kind->begin_model(t->task, t->state.model);
  TRY(state_open(&t->state, &t->world, t->spec, t->micro_batches));
  log_frozen(t);
  return ERR_OK;
}

/* Keeps at least as many checkpoints as will be averaged at the end. */
static Err open_saver(Trainer *t, SetUp *s) {
  (void)s;
  const TrainSpec *spec = t->spec;
  TrainArrays shape = train_arrays(t);
  if (!world_is_writer(&t->world)) return ERR_OK;
  return saver_new(&t->run.saver, t->run.dir, &shape,
                   spec->keep > spec->average ? spec->keep : spec->average, train_save_steps(t),
                   &t->world.backend);
}

/* Must come after commit_run, because the directory of the copies is named by the run's id. */
static Err open_copies(Trainer *t, SetUp *s) {
  (void)s;
  TrainArrays shape = train_arrays(t);
  if (!t->spec->copy_every || !world_is_writer(&t->world)) return ERR_OK;
  return copies_new(&t->run.copies, t->run.dir, &shape, &t->world.backend);
}

static Err restore_state(Trainer *t, SetUp *s) {
  (void)s;
  return train_restore(t);
}

static Err open_trace(Trainer *t, SetUp *s) {
  (void)s;
  const TrainSpec *spec = t->spec;
  TRY(tracing_open(&t->tracing, t->world.comm, &t->world.backend, spec->trace_from,
                   spec->trace_steps));
  t->world.allreduce.trace = t->tracing.trace;
  if (t->run.saver) saver_set_trace(t->run.saver, t->tracing.trace);
  return ERR_OK;
}

static Err prepare_validation(Trainer *t, SetUp *s) {
  (void)s;
  if (!t->task->valid_examples) return ERR_OK;
  return t->task->kind->prepare(t->task, t->state.model,
                                state_eval_weights(&t->state, &t->world));
}

static Err commit_run(Trainer *t, SetUp *s) {
  t->run.with_tensorboard = t->spec->tensorboard;
  t->run.wandb_project = t->spec->wandb_project;
  if (!world_is_writer(&t->world)) return ERR_OK;
  return run_commit(&t->run, str_text(&s->run_options), str_text(&s->hparams));
}

static Err find_peak(Trainer *t, SetUp *s) {
  (void)s;
  t->peak_flops = world_peak(&t->world, t->spec->backend.precision);
  return ERR_OK;
}

static Err start_sampler(Trainer *t, SetUp *s) {
  (void)s;
  if (!t->spec->system_metrics) return ERR_OK;
  TRY(sampler_start(&t->sampler, t->world.comm, t->run.dir));
  sampler_set_step(t->sampler, t->run.at.step);
  return ERR_OK;
}

static Err settle_best(Trainer *t, SetUp *s) {
  (void)s;
  if (world_is_writer(&t->world) && t->run.is_resumed) run_settle_best(&t->run);
  return ERR_OK;
}

static Err print_resume(Trainer *t, SetUp *s) {
  (void)s;
  const TrainCounters *at = &t->run.at;
  const TaskMetric *metric = task_decisive(t->task);
  const char *from = t->run.is_from_copy ? " (in-memory copy)" : "";
  if (at->step && at->best_step)
    log_info("resume   step %" PRIu64 "%s, best %s so far %.*f", at->step, from, metric->label,
             metric->digits, at->best_score);
  else if (at->step)
    log_info("resume   step %" PRIu64 "%s, no best checkpoint yet", at->step, from);
  else if (t->run.has_lost_steps)
    log_warn("%s has no checkpoint: training begins again at step 0", t->run.dir);
  return ERR_OK;
}

static Err record_process(Trainer *t, SetUp *s) {
  (void)s;
  if (world_is_writer(&t->world)) process_record(t);
  return ERR_OK;
}

/* Writes to log and metrics that this process replaces one that was lost. */
static Err print_restart(Trainer *t, SetUp *s) {
  (void)s;
  if (!world_is_writer(&t->world)) return ERR_OK;
  t->run.restart = restart_read();
  const Restart *r = &t->run.restart;
  if (!r->count) return ERR_OK;
  log_info("restart  number %" PRIu64 ", at step %" PRIu64 "%s%s", r->count, t->run.at.step,
           *r->reason ? ": " : "", r->reason);
  Metrics *m = &t->run.metrics;
  metrics_begin(m, t->run.at.step, t->run.at.seconds);
  metrics_set_event(m, "restart");
  metrics_add_count(m, "restart_count", r->count);
  if (*r->reason) metrics_add_text(m, "restart_reason", r->reason);
  metrics_end(m);
  return ERR_OK;
}

typedef struct {
  const char *doing; /* name of the step in the watchdog's error if this rank hangs in it */
  Err (*act)(Trainer *t, SetUp *s);
} SetUpStep;

/* Order of the steps: cheap checks that often fail come first; a step comes after those that it
 * needs; commit_run, which changes the run directory, comes after all checks. */
static const SetUpStep plan_steps[] = {
    /* Refuses a wrong --run before anything is opened. */
    {"checking the run directory", check_directory},
    /* --batch-tokens auto depends on the free memory of the device, which NCCL reduces. */
    {"opening the device", open_device},
    {"choosing the transport", open_transport},
    {"opening the data set", open_task},
    /* The steps after this one rely on equal options and data on all ranks. */
    {"comparing options with the other ranks", compare_ranks},
    /* Takes the lock of a run that is resumed; nothing else in its directory changes yet. The
     * checkpoint fixes the micro-batches per step and the tokens per batch. It is compared with the
     * model before memory is allocated, so that wrong options fail early. */
    {"reading the checkpoint", read_counters},
    {"settling the micro-batches", settle_micro_batches},
    {"planning the batches", plan_batches},
    {"settling the steps", settle_steps}, /* --epochs needs the number of batches */
    {"planning the model", plan_model},
    {"asking the device", reserve_device},
};

/* Steps that a dry run leaves out. */
static const SetUpStep begin_steps[] = {
    {"settling the options", settle_options}, /* needs the chosen batch size */
    {"entering the run directory", enter_run},
    {"looking at the memory", check_memory},
    {"taking memory", take_memory},
    {"taking memory for checkpoints", open_saver}, /* needs the size of the arrays */
    {"taking memory for the trace", open_trace},   /* after the saver, which adds spans */
    {"loading the checkpoint", restore_state},     /* uses the saver's snapshot as a buffer */
    {"measuring the all-reduce", tune_transport},  /* needs weights, changes the options */
    {"preparing the validation", prepare_validation}, /* beam search packs the loaded weights */
    /* All checks have passed: saves the options of the run and opens its log and metrics. */
    {"writing the run directory", commit_run},
    {"taking memory for in-memory copies", open_copies},
    {"measuring the peak FLOP/s", find_peak},
    {"starting to measure the host", start_sampler}, /* writes to the run directory */
    {"finding the best checkpoint", settle_best},    /* changes a link in the run directory */
    {"beginning", print_resume}, /* prints to the log, which commit_run opens */
    {"reporting a restart", print_restart},
    {"recording how the process was started", record_process},
};

static Err run_set_up_steps(Trainer *t, SetUp *s, const SetUpStep *step, size_t steps) {
  for (size_t i = 0; i < steps; i++) {
    comm_report(t->world.comm, COMM_NO_LIMIT, "%s", step[i].doing);
    TRY(step[i].act(t, s));
  }
  return ERR_OK;
}

Err train_set_up(Trainer *t, const char *options) {
  SetUp s = {.options = options};
  Err err = run_set_up_steps(t, &s, plan_steps, sizeof plan_steps / sizeof *plan_steps);
  if (!err && !t->spec->dry_run)
    err = run_set_up_steps(t, &s, begin_steps, sizeof begin_steps / sizeof *begin_steps);
  str_free(&s.run_options);
  str_free(&s.hparams);
  return err;
}

/* Closes everything in reverse order, except that the transport is closed first: no collective
 * may access device memory that has been released. */
void train_tear_down(Trainer *t) {
  sampler_stop(t->sampler);
  world_close_transport(&t->world);
  run_close_saver(&t->run);
  tracing_close(&t->tracing, t->world.comm); /* the saver's thread, which uses it, has ended */
  if (t->task) t->task->kind->close(t->task);
  state_close(&t->state, &t->world);
  world_close(&t->world);
  run_close(&t->run);
}
