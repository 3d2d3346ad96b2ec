/* Set-up, loop and end of a training run. Depends on setup, plan, loop. */
#include "train/train.h"

#include <inttypes.h>

#include "base/event.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "train/loop.h"
#include "train/plan.h"
#include "train/setup.h"

/* Messages at the first and the second Ctrl-C. A single rank can drop the current step; several
 * ranks must finish it together. Under `trireme launch` a rank gets one signal, which may mean that
 * machines join or leave, and launch handles Ctrl-C. */
static const char *const answers_alone[2] = {
    "stopping: finishing this step, then saving; a second Ctrl-C drops the step",
    "stopping: this step is dropped, the state before it is saved; a third Ctrl-C exits "
    "without saving"};
static const char *const answers_ranks[2] = {
    "stopping: finishing this step, then saving",
    "stopping: all ranks must finish this step, which is then saved; a third Ctrl-C exits "
    "without saving"};

/* Advice after the loss of a rank. --resume needs a run directory, which a new run creates at the end
 * of its set-up. */
static const char remedy_resume[] = "continue from the last checkpoint with --resume";

static void print_copies(Copies *copies) {
  CopiesCount n = copies_count(copies);
  log_info("copies   %" PRIu64 " in memory, %" PRIu64
           " skipped while another was written, %" PRIu64 " failed",
           n.written, n.skipped, n.failed);
}

/* Ends the measurements of the hosts. Their cost is in the log file. */
static void stop_sampler(Trainer *t, TrainResult *r) {
  SamplerCount n = sampler_stop(t->sampler);
  t->sampler = NULL;
  r->lost_samples = n.lost;
  if (!n.samples) return;
  log_record("system   %" PRIu64 " samples of this host, %" PRIu64
             " of other hosts dropped; %.3f s of processor time in %.0f s",
             n.samples, n.dropped, n.cpu, n.seconds);
}

static Err train_and_report(Trainer *t, TrainResult *r) {
  comm_set_remedy(t->world.comm, remedy_resume); /* The run directory exists now. */
  Err err = plan_print(t);
  if (!err) err = train_loop(t, r);
  if (!err) err = allreduce_finish(&t->world.allreduce);
  stop_sampler(t, r);
  if (t->run.copies) print_copies(t->run.copies);
  r->step = t->run.at.step;
  r->predictions = t->run.at.predictions;
  r->metric = task_decisive(t->task);
  r->best_score = t->run.at.best_score;
  r->best_step = t->run.at.best_step;
  r->loss = t->last_loss;
  r->seconds = run_elapsed(&t->run);
  if (!err && !r->stopped) metrics_finish(&t->run.metrics, r->seconds);
  r->lost_metrics = metrics_lost(&t->run.metrics, METRICS_JSONL);
  r->lost_texts = metrics_lost(&t->run.metrics, METRICS_SAMPLES);
  r->lost_events = metrics_lost(&t->run.metrics, METRICS_TFEVENTS);
  r->lost_wandb = metrics_lost(&t->run.metrics, METRICS_WANDB);
  log_live_end();
  return err;
}

Err train_run(const TrainSpec *spec, Comm *comm, const char *options, TrainResult *r) {
  Trainer *t;
  *r = (TrainResult){0};
  TRY(mem_alloc(&t, 1, sizeof *t));
  t->spec = spec;
  world_init(&t->world, comm);
  run_init(&t->run, spec->run);
  bool is_alone = !world_has_others(&t->world) && !event_has_launcher();
  stop_watch_twice(is_alone ? answers_alone : answers_ranks);
  if (spec->start == RUN_RESUME) comm_set_remedy(comm, remedy_resume);
  Err err = train_set_up(t, options);
  if (!err) err = spec->dry_run ? plan_dry_run(t) : train_and_report(t, r);
  stop_unwatch();
  comm_report(comm, COMM_NO_LIMIT, "its end");
  train_tear_down(t);
  mem_free(t);
  return err;
}
