/* trireme train: converts options to a TrainSpec, runs the training and prints the summary.
 * Depends on train. */
#include "train/train.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/out.h"
#include "cmd/cmd.h"
#include "cmd/infer.h"
#include "comm/launcher.h"
#include "data/dataset.h"
#include "model/store.h"
#include "train/checkpoint.h"
#include "train/restart.h"
#include "train/rundir.h"
#include "train/tune.h"

#define MICRO_BATCHES_MAX 65536             /* upper limit of --micro-batches (options.c) */
#define CONFIG_LIMIT      ((size_t)1 << 20) /* largest size of RUN/config in bytes */

static double get_default_lr(const TaskKind *task, const ModelConfig *c, LrPolicy policy) {
  if (policy == LR_NOAM) return 2;
  return task->default_lr ? task->default_lr(c) : 1e-3;
}

static Err fill_schedule(Schedule *s, const OptSet *opts, const TaskKind *task,
                         const ModelConfig *c) {
  s->policy = (LrPolicy)opt_choice(opts, "lr-scheduler", lr_policy_names);
  s->lr = opt_text(opts, "lr") ? opt_real(opts, "lr") : get_default_lr(task, c, s->policy);
  s->warmup = (uint64_t)opt_count(opts, "warmup-steps");
  if (opt_text(opts, "lr-decay-steps")) s->decay = (uint64_t)opt_count(opts, "lr-decay-steps");
  s->min_lr = opt_real(opts, "min-lr");
  s->power = opt_real(opts, "lr-power");
  s->rate = opt_real(opts, "lr-decay-rate");
  s->d_model = (int)c->family->shape(c).d_model;
  if (s->policy == LR_INVERSE_TIME && s->min_lr <= 0)
    return err_set(ERR_USAGE,
                   "--lr-scheduler inverse-time falls to --min-lr: pass a --min-lr above 0");
  return opt_text(opts, "lr-milestones")
             ? schedule_parse_milestones(s, opt_text(opts, "lr-milestones"))
             : ERR_OK;
}

/* Reads from the environment to how many ranks the launch may grow; 0: unknown. */
static uint32_t read_max_ranks(void) {
  const char *text = getenv("TRIREME_MAX_RANKS");
  int64_t n;
  bool is_number = text && str_count(text, &n) == ERR_OK && n > 0 && n <= MICRO_BATCHES_MAX;
  return is_number ? (uint32_t)n : 0;
}

static Err fill_ranks(TrainSpec *s, const OptSet *opts) {
  s->max_ranks = read_max_ranks();
  s->shard = opt_flag(opts, "shard-optimizer");
  s->reproducible = opt_flag(opts, "reproducible");
  s->allreduce_bf16 = strcmp(opt_text(opts, "allreduce-dtype"), "bf16") == 0;
  s->bucket = (size_t)opt_count(opts, "bucket-size");
  s->nccl_ctas = (int)opt_count(opts, "nccl-ctas");
  s->reserves_sms = strcmp(opt_text(opts, "reserve-sms"), "yes") == 0;
  s->tunes = opt_flag(opts, "tune");
  s->overlaps = strcmp(opt_text(opts, "overlap"), "yes") == 0;
  s->transport = (AllreduceTransport)opt_choice(opts, "allreduce-transport", "auto|nccl|host");
  if (s->reserves_sms && !s->nccl_ctas)
    return err_set(
        ERR_USAGE,
        "--reserve-sms yes needs --nccl-ctas N with N above 0, the number of SMs; pass "
        "it, or --reserve-sms no");
  if (s->tunes && (s->reproducible || s->transport == TRANSPORT_HOST))
    return err_set(ERR_USAGE,
                   "--tune is not available with %s, which does not use NCCL; leave one of the "
                   "two out",
                   s->reproducible ? "--reproducible" : "--allreduce-transport host");
  if (s->shard && s->optim.kind == OPTIM_NOVOGRAD)
    return err_set(
        ERR_USAGE,
        "--shard-optimizer is not available with novograd, which needs the whole gradient of "
        "each matrix; leave it out, or use another --optimizer");
  return ERR_OK;
}

static Err fill_batch_tokens(TrainSpec *s, const char *text) {
  int64_t rows = 0;
  if (strcmp(text, "auto") == 0) return ERR_OK;
  if (str_count(text, &rows)) return err_context("--batch-tokens must be auto or a number");
  if (rows < 16 || rows > 16777216)
    return err_set(ERR_USAGE, "--batch-tokens %s is out of range: pass 16 to 16777216, or auto",
                   text);
  s->batch_tokens = (uint32_t)rows;
  return ERR_OK;
}

static void fill_optim(OptimSpec *o, const OptSet *opts) {
  o->kind = (OptimKind)opt_choice(opts, "optimizer", optim_names);
  o->beta1 = (float)opt_real(opts, "beta1");
  o->beta2 = (float)opt_real(opts, "beta2");
  o->epsilon = (float)opt_real(opts, "epsilon");
  o->decay = (float)opt_real(opts, "weight-decay");
}

static void fill_groups(GroupSpec *s, const OptSet *opts) {
  s->skips_biases = strcmp(opt_text(opts, "decay-biases"), "no") == 0;
  s->layer_lr_decay = (float)opt_real(opts, "layer-lr-decay");
  s->freeze_layers = (uint32_t)opt_count(opts, "freeze-layers");
}

/* Fails if an option of `tables` is given that does not belong to the task `kind`. */
static Err refuse_options(const OptSet *opts, const TaskKind *kind, const TaskKind *other,
                          const OptSpec *const *tables) {
  for (; tables && *tables; tables++) {
    if (task_has_options(kind, *tables)) continue;
    for (const OptSpec *row = *tables; row->name; row++)
      if (opt_given(opts, row->name))
        return err_set(ERR_USAGE, "--%s is an option of --task %s, not of %s; leave it out",
                       row->name, other->name, kind->name);
  }
  return ERR_OK;
}

/* Sets --task, unless it is given, to the task that the data set was prepared for. A data set that
 * cannot be read is reported when the task opens it. */
static Err follow_data_set(OptSet *opts) {
  const char *data = opt_text(opts, "data"), *task = NULL;
  char line[64];
  if (opt_given(opts, "task") || !data) return ERR_OK;
  if (dataset_find_task(data, &task) || !task_find(task)) return ERR_OK;
  if (strcmp(task, opt_text(opts, "task")) == 0) return ERR_OK;
  int n = snprintf(line, sizeof line, "task = %s\n", task);
  return opt_parse_recipe(opts, line, (size_t)n, data);
}

/* Finds the task that --task or the data set names, applies its defaults, and refuses options of
 * other tasks. */
static Err choose_task(OptSet *opts, const TaskKind **kind) {
  TRY(follow_data_set(opts));
  const TaskKind *chosen = task_find(opt_text(opts, "task"));
  Str lines = {0};
  char where[64];
  snprintf(where, sizeof where, "defaults of --task %s", chosen->name);
  str_addf(&lines, "preset = %s\n%s", chosen->family->default_preset,
           chosen->defaults ? chosen->defaults : "");
  Err err = str_check(&lines);
  if (!err) err = opt_set_defaults(opts, str_text(&lines), lines.len, where);
  str_free(&lines);
  for (const TaskKind *const *other = train_tasks; *other && !err; other++) {
    err = refuse_options(opts, chosen, *other, (*other)->options);
    if (!err) err = refuse_options(opts, chosen, *other, (*other)->family->options);
  }
  *kind = chosen;
  return err;
}

/* On rank 0: returns true if a new run without a GPU begins. A run that is continued has the preset that
 * it began with. */
static bool begins_on_cpu(const OptSet *opts) {
  const char *run = opt_text(opts, "run");
  bool is_resumed = opt_flag(opts, "resume") || opt_flag(opts, "auto-resume");
  char path[FILE_PATH_MAX];
  if (is_resumed && run && !file_join(path, run, "config") && file_exists(path)) return false;
  return !backend_expects_gpu(opt_text(opts, "device"));
}

/* Without --preset and --init-from: chooses a smaller model for a CPU, if the family has one. It is
 * recorded in the run's config, so that the run can continue on a GPU. */
static Err choose_cpu_preset(OptSet *opts, const ModelFamily *family, Comm *comm) {
  char line[64];
  if (!family->cpu_preset || opt_given(opts, "preset") || opt_given(opts, "init-from"))
    return ERR_OK;
  uint8_t is_chosen = comm_rank(comm) == 0 && begins_on_cpu(opts);
  comm_broadcast(comm, "whether the run has a GPU", &is_chosen, sizeof is_chosen);
  if (!is_chosen) return ERR_OK;
  log_info(
      "model    %s, the default without a GPU: %s is slow on a CPU; --preset selects another",
      family->cpu_preset, family->default_preset);
  int n = snprintf(line, sizeof line, "preset = %s\n", family->cpu_preset);
  return opt_parse_recipe(opts, line, (size_t)n, "preset for a CPU");
}

/* Sets the project of the run on Weights & Biases; the server refuses some names. */
static Err fill_wandb(TrainSpec *s, const OptSet *opts) {
  const char *mode = opt_text(opts, "wandb"), *project = opt_text(opts, "wandb-project");
  if (strcmp(mode, "off") == 0) return ERR_OK;
  if (strcmp(mode, "online") == 0)
    return err_set(
        ERR_USAGE,
        "--wandb online is not available: train with --wandb offline, which needs no account, "
        "and upload the run with 'wandb sync DIR'; the log prints DIR at the end");
  if (!*project || strlen(project) > 128 || strpbrk(project, "/\\#?%:"))
    return err_set(
        ERR_USAGE,
        "--wandb-project '%.140s' is not the name of a project: it must have 1 to 128 "
        "characters other than / \\ # ? %% :",
        project);
  s->wandb_project = project;
  return ERR_OK;
}

/* On rank 0: reads the configuration of the model that --init-from names or, if the run has a
 * checkpoint, that of the checkpoint, from which it continues. */
static Err read_initial_config(TrainSpec *s, const OptSet *opts, ModelConfig *config) {
  const char *given = opt_text(opts, "init-from"), *run = opt_text(opts, "run");
  bool is_resumed = opt_flag(opts, "resume") || opt_flag(opts, "auto-resume"), found = false;
  char dir[FILE_PATH_MAX];
  if (is_resumed && run && file_exists(run)) TRY(checkpoint_find(run, dir, &found));
  if (found) {
    log_info("init     --init-from %s is not used: the run continues from its checkpoint",
             given);
    return store_load_config(config, NULL, dir);
  }
  TRY(infer_find_model("--init-from ", given, dir));
  memcpy(s->init_from, dir, sizeof dir);
  TRY(store_load_config(config, NULL, dir));
  if (config->family == s->task->family) return ERR_OK;
  return err_set(
      ERR_USAGE,
      "--init-from %s is a model of family %s, but --task %s trains models of family "
      "%s; give a model of that family",
      given, config->family->name, s->task->name, s->task->family->name);
}

/* With --init-from and without --preset: sets the configuration to start from on all ranks. */
static Err share_initial_config(TrainSpec *s, const OptSet *opts, Comm *comm) {
  ModelConfig config = {0};
  if (!opt_text(opts, "init-from")) return ERR_OK;
  if (comm_rank(comm) == 0) TRY(read_initial_config(s, opts, &config));
  comm_broadcast(comm, "configuration of --init-from", config.own, sizeof config.own);
  config.family = s->task->family;
  if (!opt_given(opts, "preset")) s->config = config;
  return ERR_OK;
}

/* Fills in the spec from the options. The caller must have set spec->task and must free
 * spec->task_options. */
static Err fill_spec(TrainSpec *s, const OptSet *opts) {
  s->data = opt_text(opts, "data");
  s->run = opt_text(opts, "run");
  if (!s->data)
    return err_set(ERR_USAGE,
                   "no data set given: pass --data DIR, written by 'trireme prepare'");
  if (!s->run) return err_set(ERR_USAGE, "no run directory given: pass --run DIR");
  TRY(s->task->family->configure(&s->config, opts));
  TRY(mem_alloc(&s->task_options, 1, s->task->option_bytes ? s->task->option_bytes : 1));
  if (s->task->read_options) TRY(s->task->read_options(s->task_options, opts));
  TRY(fill_batch_tokens(s, opt_text(opts, "batch-tokens")));
  s->micro_batches =
      opt_text(opts, "micro-batches") ? (uint32_t)opt_count(opts, "micro-batches") : 0;
  s->steps = (uint64_t)opt_count(opts, "steps");
  bool has_epochs = opt_text(opts, "epochs") && !opt_given(opts, "steps");
  s->epochs = has_epochs ? (uint64_t)opt_count(opts, "epochs") : 0;
  s->seconds = opt_real(opts, "max-time");
  s->seed = (uint64_t)opt_count(opts, "seed");
  TRY(fill_schedule(&s->schedule, opts, s->task, &s->config));
  s->max_warmup = opt_given(opts, "warmup-steps") ? 0 : s->task->max_warmup;
  s->decay_to_end = !opt_text(opts, "lr-decay-steps");
  fill_optim(&s->optim, opts);
  fill_groups(&s->groups, opts);
  TRY(fill_ranks(s, opts));
  s->ema = (float)opt_real(opts, "ema-decay");
  s->loss_scale = (LossScale)opt_choice(opts, "loss-scale", "auto|none|dynamic");
  s->clip = (float)opt_real(opts, "clip-norm");
  s->smoothing = (float)opt_real(opts, "label-smoothing");
  s->backend = (BackendSpec){opt_text(opts, "device"), opt_text(opts, "precision"),
                             (int)opt_count(opts, "threads")};
  s->valid_every = (uint64_t)opt_count(opts, "valid-every");
  s->save_every = (uint64_t)opt_count(opts, "save-every");
  s->copy_every = (uint64_t)opt_count(opts, "peer-checkpoint");
  s->log_every = (uint64_t)opt_count(opts, "log-every");
  s->tensorboard = strcmp(opt_text(opts, "tensorboard"), "yes") == 0;
  s->system_metrics = strcmp(opt_text(opts, "system-metrics"), "yes") == 0;
  TRY(fill_wandb(s, opts));
  s->histogram_every = (uint64_t)opt_count(opts, "histogram-every");
  s->trace_steps = (uint64_t)opt_count(opts, "trace");
  s->trace_from = (uint64_t)opt_count(opts, "trace-from");
  if (s->histogram_every && !s->tensorboard)
    return err_set(ERR_USAGE,
                   "--histogram-every %" PRIu64
                   " writes histograms for TensorBoard: pass --tensorboard yes, or "
                   "--histogram-every 0",
                   s->histogram_every);
  s->keep = (int)opt_count(opts, "keep-checkpoints");
  s->average = (int)opt_count(opts, "average-checkpoints");
  s->rollbacks = (int)opt_count(opts, "max-rollbacks");
  s->patience = (int)opt_count(opts, "patience");
  if (s->patience && !s->valid_every)
    return err_set(
        ERR_USAGE,
        "--patience %d counts validations, but --valid-every 0 disables them: pass only one "
        "of the two",
        s->patience);
  s->start = opt_flag(opts, "resume")        ? RUN_RESUME
             : opt_flag(opts, "auto-resume") ? RUN_AUTO
                                             : RUN_NEW;
  s->dry_run = opt_flag(opts, "dry-run");
  s->accept_data = opt_flag(opts, "accept-data");
  return ERR_OK;
}

/* On rank 0: appends the contents of RUN/config to `text`. A run that has checkpoints but no
 * config can be resumed if the data set is given again. */
static Err load_run_config(const OptSet *opts, const char *path, Str *text) {
  bool is_resumed;
  if (file_exists(path)) return file_read(path, CONFIG_LIMIT, text);
  if (!opt_flag(opts, "resume") || opt_given(opts, "data")) return ERR_OK;
  return rundir_check(opt_text(opts, "run"), RUN_RESUME, &is_resumed);
}

/* Sends rank 0's text to all ranks, because other hosts may not see the run directory, or may
 * see an older state of it. */
static Err share_text(Comm *comm, Str *text) {
  uint64_t len = text->len;
  char *bytes = NULL;
  comm_broadcast(comm, "length of the run's config", &len, sizeof len);
  if (comm_rank(comm) == 0) {
    if (len) comm_broadcast(comm, "the run's config", text->s, len);
    return ERR_OK;
  }
  if (!len) return ERR_OK;
  TRY(mem_alloc(&bytes, len, 1));
  comm_broadcast(comm, "the run's config", bytes, len);
  str_addn(text, bytes, len);
  mem_free(bytes);
  return str_check(text);
}

/* Fails if this launch has trained the run and its config does not exist on rank 0: the directory
 * was moved or removed, and --auto-resume would begin a new run. Fails on all ranks, because
 * launch ends with status 2 only if no rank ends with another one before. */
static Err check_still_there(const char *run, const char *path, Comm *comm) {
  uint8_t is_gone = !file_exists(path);
  if (!restart_has_trained()) return ERR_OK;
  comm_broadcast(comm, "whether the run exists", &is_gone, sizeof is_gone);
  if (!is_gone) return ERR_OK;
  return err_set(
      ERR_USAGE,
      "%s is gone: this launch has trained it, and a restart does not begin a new run "
      "in its place; put the directory back and start the launch again",
      run);
}

/* With --tune a run that has begun keeps what it has chosen: a restart repeats the command line, whose
 * values are those from which the measurement began. */
static Err forget_untuned(OptSet *opts) {
  if (!opt_flag(opts, "tune")) return ERR_OK;
  for (size_t i = 0; i < TUNED_OPTIONS; i++) TRY(opt_forget(opts, tuned_option[i]));
  return ERR_OK;
}

/* With --resume or --auto-resume, applies the options with which the run was started, as read
 * by rank 0. Options of the command line have precedence, except those that --tune has chosen. */
static Err apply_run_config(OptSet *opts, Comm *comm) {
  const char *run = opt_text(opts, "run");
  bool is_resumed = opt_flag(opts, "resume") || opt_flag(opts, "auto-resume");
  char path[FILE_PATH_MAX];
  Str text = {0};
  if (!is_resumed || !run) return ERR_OK;
  TRY(file_join(path, run, "config"));
  TRY(check_still_there(run, path, comm));
  Err err = comm_rank(comm) == 0 ? load_run_config(opts, path, &text) : ERR_OK;
  if (!err) err = share_text(comm, &text);
  if (!err && text.len) err = forget_untuned(opts);
  if (!err && text.len) err = opt_parse_recipe(opts, str_text(&text), text.len, path);
  if (!err) comm_set_rank_timeout(comm, opt_real(opts, "rank-timeout"));
  str_free(&text);
  return err;
}

void cmd_introduce(const Comm *comm) {
  char name[96];
  if (comm_size(comm) == 1) return;
  snprintf(name, sizeof name, "rank %d on %s: ", comm_rank(comm),
           comm_host(comm, comm_rank(comm)));
  log_speaker(name);
  if (comm_rank(comm) > 0) log_quiet(true);
}

/* Rank 0 fails at once, and mpirun then kills the others, so that there is one error instead of
 * one per rank. The other ranks wait this long before they fail too, in case a script started
 * one of them without rank 0. */
#define REFUSAL_DELAY 5 /* delay in seconds */

void cmd_let_rank0_fail(void) {
  if (launcher_count_ranks() > 1 && launcher_rank() > 0) sleep(REFUSAL_DELAY);
}

Err cmd_refuse_ranks(const char *what, const char *remedy) {
  long ranks = launcher_count_ranks();
  if (ranks == 1) return ERR_OK;
  cmd_let_rank0_fail();
  return err_set(ERR_USAGE, "%s runs as one process, but %ld ranks were started; %s", what,
                 ranks, remedy);
}

/* Prints a line to standard output and to the log file. */
static void print_result(const char *fmt, ...) PRINTF_LIKE(1, 2);
static void print_result(const char *fmt, ...) {
  char line[FILE_PATH_MAX + 256];
  va_list args;
  va_start(args, fmt);
  vsnprintf(line, sizeof line, fmt, args);
  va_end(args);
  out_visible(line); /* the name of the run may contain any bytes */
  putchar('\n');
  log_record("%s", line);
}

static void print_summary(const TrainSpec *spec, const TrainResult *r) {
  char tokens[32], time[32];
  print_result("%s at step %" PRIu64 " after %s, %s %s",
               r->stopped ? "stopped"
               : r->early ? "ended early"
                          : "done",
               r->step, str_of_seconds(time, r->seconds), str_of_count(tokens, r->predictions),
               spec->task->predictions_done);
  /* --run may end with a slash, as shells complete directories. */
  const char *slash = str_ends(spec->run, "/") ? "" : "/";
  const TaskMetric *metric = r->metric;
  if (r->best_step)
    print_result("best: %s %.*f at step %" PRIu64 ", in %s%scheckpoints/best", metric->label,
                 metric->digits, r->best_score, r->best_step, spec->run, slash);
  if (r->has_average_score)
    print_result("average of the last %d checkpoints: %s %.*f, in %s%saverage", r->averaged,
                 metric->label, metric->digits, r->average_score, spec->run, slash);
  else if (r->averaged)
    print_result("average of the last %d checkpoints: in %s%saverage", r->averaged, spec->run,
                 slash);
  /* launch prints its own command, which continues with the same ranks. */
  if (r->stopped && !getenv("TRIREME_RESTART_COUNT")) {
    Str run = {0};
    str_add_shell(&run, spec->run);
    print_result("continue with: trireme train --run %s --resume", str_text(&run));
    str_free(&run);
  }
}

/* Lists what of the log and the metrics could not be written; an empty list if nothing is lost. */
static void list_lost_lines(const TrainResult *r, Str *list) {
  const struct {
    uint64_t count;
    const char *what;
  } lost[] = {{r->lost_metrics, "lines of metrics.jsonl"},
              {r->lost_texts, "lines of samples.jsonl"},
              {r->lost_samples, "lines of system.jsonl"},
              {log_lost(), "lines of log.txt"},
              {r->lost_events, "records for TensorBoard"},
              {r->lost_wandb, "records for Weights & Biases"}};
  for (size_t i = 0; i < sizeof lost / sizeof *lost; i++)
    if (lost[i].count)
      str_addf(list, "%s%" PRIu64 " %s", list->len ? ", " : "", lost[i].count, lost[i].what);
}

/* The run has failed, as on a full disk: the error comes next. */
static void warn_of_lost_lines(const TrainSpec *spec, const TrainResult *r) {
  Str list = {0};
  list_lost_lines(r, &list);
  if (list.len)
    log_warn("%s: could not be written and are lost: %s", spec->run, str_text(&list));
  str_free(&list);
}

/* The model is complete, but a part of its log or metrics is lost. */
static Err check_lost_lines(const TrainSpec *spec, const TrainResult *r) {
  Str list = {0};
  list_lost_lines(r, &list);
  Err err = str_check(&list);
  if (!err && list.len)
    err = err_set(ERR_WORK,
                  "%s: could not be written and are lost: %s; the checkpoints are complete",
                  spec->run, str_text(&list));
  str_free(&list);
  return err;
}

/* Warns if --lr looks like a peak. In most other programs --lr is the peak; with noam it is a
 * factor of (d_model * warmup)^-0.5, so the learning rate would be far too low. */
static void warn_of_small_lr(const Schedule *s) {
  if (s->policy != LR_NOAM) return;
  double peak = schedule_lr(s, s->warmup ? s->warmup - 1 : 0);
  if (peak >= 1e-5) return;
  log_warn(
      "--lr %g is a factor of the noam schedule: the learning rate is at most %.3g; to pass "
      "the peak, add --lr-scheduler inverse-sqrt",
      s->lr, peak);
}

Err cmd_train(OptSet *opts) {
  TrainSpec spec = {0};
  TrainResult r = {0};
  Str options = {0}, all_options = {0};
  Comm *comm = NULL;
  log_quiet(opt_flag(opts, "quiet"));
  log_hold();
  Err err;
  TRY_DONE(comm_open(&comm, opt_real(opts, "rank-timeout")));
  cmd_introduce(comm);
  TRY_DONE(apply_run_config(opts, comm));
  TRY_DONE(opt_keep_one(opts, "steps", "epochs"));
  TRY_DONE(choose_task(opts, &spec.task));
  TRY_DONE(choose_cpu_preset(opts, spec.task->family, comm));
  opt_record(opts, &options);
  opt_record_all(opts, &all_options);
  TRY_DONE(str_check(&options));
  TRY_DONE(str_check(&all_options));
  spec.all_options = str_text(&all_options);
  TRY_DONE(share_initial_config(&spec, opts, comm));
  TRY_DONE(fill_spec(&spec, opts));
  if (comm_rank(comm) == 0) warn_of_small_lr(&spec.schedule);
  err = train_run(&spec, comm, str_text(&options), &r);
  if (err && comm_rank(comm) == 0) warn_of_lost_lines(&spec, &r);
  TRY_DONE(err);
  if (comm_rank(comm) == 0 && !spec.dry_run) {
    print_summary(&spec, &r);
    /* Flush before an error: once a rank exits with a status other than 0, mpirun kills the
     * ranks and may lose output. */
    TRY_DONE(out_flush());
    TRY_DONE(check_lost_lines(&spec, &r));
  }
done:
  comm_close(comm, err);
  str_free(&options);
  str_free(&all_options);
  mem_free(spec.task_options);
  return !err && r.stopped ? ERR_STOPPED : err;
}
