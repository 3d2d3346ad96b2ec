/* Directory, counters and validations of a run. Depends on log, rundir, saver. */
#include "train/run.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/event.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "train/rundir.h"

void run_init(Run *r, const char *dir) {
  *r = (Run){.dir = dir, .lock = -1};
}

void run_close_saver(Run *r) {
  copies_free(r->copies);
  r->copies = NULL;
  saver_free(r->saver);
  r->saver = NULL;
}

void run_close(Run *r) {
  metrics_close(&r->metrics);
  if (r->lock >= 0) close(r->lock);
  r->lock = -1;
}

double run_elapsed(const Run *r) {
  return r->at.seconds + progress_clock() - r->began;
}

/* Fails if --batch-tokens or --seed differ from those in the checkpoint, which has a checksum;
 * DIR/config may be lost or edited. */
static Err check_order(const TrainCounters *c, uint64_t batch_tokens, uint64_t seed) {
  if (!c->batch_tokens || (c->batch_tokens == batch_tokens && c->seed == seed)) return ERR_OK;
  return err_set(ERR_USAGE,
                 "the checkpoint of step %" PRIu64 " was made with --batch-tokens %" PRIu64
                 " --seed %" PRIu64 " and cannot go on with --batch-tokens %" PRIu64
                 " --seed %" PRIu64 "; give its own to resume",
                 c->step, c->batch_tokens, c->seed, batch_tokens, seed);
}

Err run_lock(Run *r) {
  return rundir_lock(r->dir, &r->lock);
}

Err run_enter(Run *r, const char *options, const char *const *task_options,
              uint64_t batch_tokens, uint64_t seed) {
  TRY(rundir_enter(r->dir, r->is_resumed, options, task_options));
  return check_order(&r->at, batch_tokens, seed);
}

Err run_commit(Run *r, const char *options, const char *hparams) {
  char path[FILE_PATH_MAX];
  TRY(rundir_commit(r->dir, options, &r->lock));
  event_run();
  TRY(file_join(path, r->dir, "log.txt"));
  TRY(log_to(path));
  MetricsSpec metrics = {.run_dir = r->dir,
                         .step = r->at.step,
                         .seconds = r->at.seconds,
                         .options = hparams,
                         .with_tensorboard = r->with_tensorboard,
                         .wandb_project = r->wandb_project};
  return metrics_open(&r->metrics, &metrics);
}

/* A step without a checkpoint (none is saved while the loss is out of range) cannot become the
 * best. */
bool run_judge_validation(Run *r, double score, bool is_better, int patience) {
  bool has_checkpoint = r->saved == r->at.step;
  bool is_best = is_better && has_checkpoint;
  TrainCounters *v = &r->validated;
  *v = r->at;
  v->validated = r->at.step;
  v->seconds = run_elapsed(r); /* a resumed run does not repeat the validation */
  if (is_best) {
    v->best_score = score;
    v->best_step = r->at.step;
    v->worse = 0;
  } else if (!is_better) {
    v->worse++;
  }
  r->is_out_of_patience = patience > 0 && v->worse >= patience;
  if (!is_best) r->at.worse = v->worse;
  r->is_best_lost = false;
  r->is_validation_pending = has_checkpoint;
  if (has_checkpoint) saver_add_validation(r->saver, v, is_best);
  return is_best;
}

void run_settle_best(Run *r) {
  bool is_there, is_moved;
  char path[FILE_PATH_MAX];
  Err err = checkpoint_settle_best(r->dir, r->at.best_step, &is_there, &is_moved);
  if (!err) err = file_join(path, r->dir, "valid-best.txt");
  /* The outputs are those of another validation. */
  if (!err && is_moved && unlink(path) != 0 && errno != ENOENT)
    err = err_errno("cannot remove", path);
  if (err) log_warn("%s", err_message());
  if (err || is_there || (!is_moved && !r->at.best_step)) return;
  log_warn("%s has no undamaged best checkpoint of step %" PRIu64
           " or before: the next validation counts as the best",
           r->dir, r->at.step);
  r->at.best_step = 0;
  r->at.best_score = 0;
}

void run_settle_validation(Run *r) {
  Err err;
  if (!r->is_validation_pending) return;
  saver_wait(r->saver, &err);
  const TrainCounters *v = &r->validated;
  r->is_validation_pending = false;
  r->is_best_lost = err && v->best_step == v->step;
  if (r->is_best_lost) return;
  r->at.best_score = v->best_score;
  r->at.best_step = v->best_step;
  r->at.worse = v->worse;
}
