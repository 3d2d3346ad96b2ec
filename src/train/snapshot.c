/* Saves the training state to checkpoints and restores it. Rank 0 reads and writes files. When
 * saving, the other ranks send it their part of the optimizer state; when restoring, it sends
 * them all arrays. Depends on checkpoint, saver, state, step. */
#include "train/snapshot.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "train/init_from.h"
#include "train/rundir.h"
#include "train/step.h"

TrainArrays train_arrays(const Trainer *t) {
  const ModelState *st = &t->state;
  return (TrainArrays){.config = &st->model->config,
                       .params = &st->model->params,
                       .file = t->task->file,
                       .files = t->task->files,
                       .task = t->task->kind->name,
                       .data = t->spec->accept_data ? NULL : t->task->data_hash,
                       .w = st->w,
                       .e = st->e,
                       .m = st->m,
                       .v = st->v,
                       .second = st->second};
}

SaveSteps train_save_steps(const Trainer *t) {
  return (SaveSteps){t->spec->save_every, t->task->valid_examples ? t->spec->valid_every : 0};
}

/* On rank 0: fills `a`, the saver's snapshot, and the counters from a checkpoint or with
 * initial values. */
static Err load_or_begin(Trainer *t, TrainArrays *a) {
  const Params *p = &t->state.model->params;
  size_t bytes = p->padded * sizeof(float);
  char dir[FILE_PATH_MAX];
  bool is_found;
  a->task = t->task->kind->name;
  a->data = train_arrays(t).data;
  if (*t->run.load_from) {
    Err err = checkpoint_load(t->run.load_from, a, &t->run.at);
    t->run.load_from[0] = '\0'; /* a later roll-back searches the run directory again */
    if (err != ERR_WORK || t->run.is_from_copy) return err;
    log_warn("%s; another checkpoint is searched", err_message());
  }
  TRY(checkpoint_find(t->run.dir, dir, &is_found));
  if (is_found) TRY(checkpoint_load(dir, a, &t->run.at));
  t->run.saved = is_found ? t->run.at.step : 0;
  if (is_found) return ERR_OK;
  t->run.at = (TrainCounters){.lr_scale = 1, .micro_batches = t->micro_batches};
  params_init(p, t->spec->seed, a->w);
  if (*t->spec->init_from) TRY(init_from_model(t, a->w));
  if (a->e) memcpy(a->e, a->w, bytes);
  if (a->m) memset(a->m, 0, bytes);
  if (a->v) memset(a->v, 0, bytes);
  if (a->second) memset(a->second, 0, p->count * sizeof *a->second);
  return ERR_OK;
}

/* Stores the hash of the current data set in the counters. Warns if the run had another data
 * set, but not after a roll-back (is_warm), because the checkpoint may be older than
 * --accept-data. */
static void adopt_data(Trainer *t) {
  TrainCounters *at = &t->run.at;
  if (!t->world.is_warm && *at->data && strcmp(at->data, t->task->data_hash) != 0)
    log_warn("%s continues on another data set than it was trained on so far: %s", t->run.dir,
             t->task->data);
  memcpy(at->data, t->task->data_hash, sizeof at->data);
}

static bool is_loss_scaled(const Trainer *t) {
  LossScale asked = t->spec->loss_scale;
  return asked == SCALE_DYNAMIC || (asked == SCALE_AUTO && t->world.backend.type == TYPE_F16);
}

/* Sends rank 0's counters and arrays to all ranks. */
static void distribute_state(Trainer *t, const TrainArrays *a) {
  World *w = &t->world;
  ModelState *st = &t->state;
  const Backend *b = &w->backend;
  comm_broadcast(w->comm, "counters", &t->run.at, sizeof t->run.at);
  comm_broadcast(w->comm, "the saved step", &t->run.saved, sizeof t->run.saved);
  scaler_switch(&t->run.at.scaler, is_loss_scaled(t));
  state_broadcast(st, w, "weights", st->w, a->w);
  state_broadcast(st, w, "EMA weights", st->e, a->e);
  state_scatter_optimizer(st, w, st->m, a->m);
  state_scatter_optimizer(st, w, st->v, a->v);
  b->lower(b, st->low, st->w, st->model->params.padded);
  st->is_partial = false;
  if (st->second) {
    size_t bytes = st->model->params.count * sizeof *st->second;
    if (world_is_writer(w)) memcpy(st->second, a->second, bytes);
    comm_broadcast(w->comm, "NovoGrad second moments", st->second, bytes);
  }
}

Err train_restore(Trainer *t) {
  World *w = &t->world;
  bool is_writer = world_is_writer(w);
  TrainArrays none = {0};
  TrainArrays *a = is_writer ? saver_begin(t->run.saver) : &none;
  comm_report(w->comm, COMM_NO_LIMIT, "loading the checkpoint");
  if (is_writer) {
    TRY(load_or_begin(t, a));
    adopt_data(t);
  }
  t->run.at.batch_tokens = t->task->capacity;
  t->run.at.seed = t->spec->seed;
  snprintf(t->run.at.task, sizeof t->run.at.task, "%s", t->task->kind->name);
  distribute_state(t, a);
  t->health = (Health){0};
  t->run.is_validation_pending = false;
  t->run.is_best_lost = false;
  t->next = (MicroBatch){0};
  t->state.pass.loaded = 0;
  LoaderSpec loader = world_loader_spec(w, t->spec->seed, t->run.at.step, t->micro_batches);
  return t->task->kind->open_loader(t->task, &loader);
}

/* On rank 0: copies the arrays that are not sharded to the snapshot. */
static Err copy_whole_arrays(Trainer *t, TrainArrays *a) {
  const ModelState *st = &t->state;
  const Backend *b = &t->world.backend;
  size_t bytes = st->model->params.padded * sizeof(float);
  TRY(b->get(b, a->w, st->w, bytes));
  if (st->e) TRY(b->get(b, a->e, st->e, bytes));
  if (st->second) memcpy(a->second, st->second, st->model->params.count * sizeof *st->second);
  return ERR_OK;
}

/* Copies the state to `a`, the snapshot of rank 0. Every rank calls it; `a` is ignored on other
 * ranks. */
static Err fill_snapshot(Trainer *t, TrainArrays *a) {
  World *w = &t->world;
  TrainArrays none = {0};
  if (!world_is_writer(w)) a = &none;
  if (world_is_writer(w)) TRY(copy_whole_arrays(t, a));
  TRY(state_collect_optimizer(&t->state, w, a->m, t->state.m));
  return state_collect_optimizer(&t->state, w, a->v, t->state.v);
}

static TrainCounters get_counters_now(const Run *run) {
  TrainCounters now = run->at;
  now.seconds = run_elapsed(run);
  return now;
}

Err train_save(Trainer *t, SaveMode mode) {
  Run *run = &t->run;
  bool is_writer = world_is_writer(&t->world);
  TrainArrays *a = NULL;
  TRY(train_complete_weights(t));
  comm_report(t->world.comm, COMM_NO_LIMIT, "step %" PRIu64 ", saving", run->at.step);
  if (is_writer) {
    TRY(rundir_check_place(run->dir, run->lock));
    run_settle_validation(run);
    a = saver_begin(run->saver);
  }
  TRY(fill_snapshot(t, a));
  run->saved = run->at.step;
  if (!is_writer) return ERR_OK;
  TrainCounters now = get_counters_now(run);
  saver_commit(run->saver, &now, mode);
  return ERR_OK;
}

Err train_copy(Trainer *t) {
  Run *run = &t->run;
  bool is_writer = world_is_writer(&t->world);
  TRY(train_complete_weights(t));
  comm_report(t->world.comm, COMM_NO_LIMIT, "step %" PRIu64 ", copying the state",
              run->at.step);
  if (is_writer) run_settle_validation(run);
  TRY(fill_snapshot(t, is_writer ? copies_begin(run->copies) : NULL));
  if (!is_writer) return ERR_OK;
  TrainCounters now = get_counters_now(run);
  copies_commit(run->copies, &now);
  return ERR_OK;
}
