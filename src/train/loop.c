/* The training loop: steps, metrics, validations, checkpoints, and roll-back to a checkpoint
 * when the loss diverges. Every rank runs it. Decisions that depend on time, signals or files
 * are made by one rank and broadcast. Depends on average, histograms, rank_times, snapshot, step,
 * validate. */
#include "train/loop.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/event.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/stop.h"
#include "train/average.h"
#include "train/histograms.h"
#include "train/rank_times.h"
#include "train/snapshot.h"
#include "train/step.h"
#include "train/stopping.h"
#include "train/validate.h"

#define PROGRESS_PERIOD 10 /* seconds without output after which a progress line is printed */

/* Messages at the first and the second Ctrl-C during a validation. The checkpoint of the step
 * was passed to the saver before the validation. */
static const char *const answers_validating[2] = {
    "stopping: this validation is interrupted, and --resume begins with it; the step is saved",
    "stopping: the checkpoint is still being written; a third Ctrl-C exits without saving"};

/* Messages at the first and the second Ctrl-C while checkpoints are averaged at the end of a
 * run. */
static const char *const answers_averaging[2] = {
    "stopping: all steps are saved; the average of checkpoints is not validated",
    "stopping: the average is still being written; a third Ctrl-C exits without it"};

/* Adds a span of this thread, which ends now, to the trace. */
static void trace_part(Trainer *t, const char *name, uint64_t step, double start) {
  if (trace_is_on(t->tracing.trace))
    trace_span(t->tracing.trace, TRACE_MAIN, name, start, progress_clock(),
               (TraceArgs){{{TRACE_STEP, (double)step}}});
}

static void trace_step(Trainer *t, uint64_t step, double start) {
  char name[TRACE_NAME];
  if (!trace_is_on(t->tracing.trace)) return;
  snprintf(name, sizeof name, "step %" PRIu64, step);
  trace_part(t, name, step, start);
}

static void begin_record(Trainer *t) {
  if (world_is_writer(&t->world))
    comm_report(t->world.comm, COMM_NO_LIMIT, "step %" PRIu64 ", writing metrics.jsonl",
                t->run.at.step);
  metrics_begin(&t->run.metrics, t->run.at.step, run_elapsed(&t->run));
}

static void add_step(StepSum *since, const StepSum *step) {
  for (int i = 0; i < MODEL_SUMS; i++) since->sum[i] += step->sum[i];
  since->predictions += step->predictions;
  since->examples += step->examples;
  for (int side = 0; side < 2; side++) since->tokens[side] += step->tokens[side];
  since->data += step->data;
  since->forward += step->forward;
  since->backward += step->backward;
  since->wait += step->wait;
  since->update += step->update;
  since->sent += step->sent;
  since->received += step->received;
  since->allocations += step->allocations;
  if (!step->skipped) since->grad_norm = step->grad_norm;
  since->steps++;
  since->skipped += step->skipped;
}

/* Returns a sum of losses per prediction; 0 if there is no prediction, as in batches of texts whose
 * labels are all unknown. */
static double get_mean(const StepSum *s, double sum) {
  return s->predictions > 0 ? sum / s->predictions : 0;
}

/* Returns the mean of the loss for the log. It is the loss without label smoothing, to be
 * comparable with the validation loss. */
static double get_shown_loss(const Trainer *t, const StepSum *s) {
  return get_mean(s, s->sum[t->task->kind->shown_sum]);
}

/* Adds exp(loss), unless it is too large for a double. */
static void record_perplexity(Trainer *t, const char *name, double loss) {
  double perplexity = exp(loss);
  if (t->task->kind->has_perplexity && isfinite(perplexity))
    metrics_add(&t->run.metrics, name, perplexity);
}

/* Adds the FLOP/s of the GEMMs of all ranks, 2 per weight and token in forward and 4 in backward, and
 * the share of the devices' peak (MFU), if that is known. */
static void record_flops(Trainer *t, const StepSum *s, double took) {
  const ModelConfig *c = &t->state.model->config;
  ModelShape shape = c->family->shape(c);
  double flops =
      6 * (s->tokens[0] * shape.gemm_weights[0] + s->tokens[1] * shape.gemm_weights[1]);
  if (!(flops > 0)) return;
  metrics_add(&t->run.metrics, "tflops_per_s", flops / took * 1e-12);
  if (t->peak_flops > 0) metrics_add(&t->run.metrics, "mfu", flops / took / t->peak_flops);
}

/* Writes the means over the steps since the last record; these took `took` seconds. */
static void record_step(Trainer *t, double lr, double took) {
  const StepSum *s = &t->since;
  const TaskKind *kind = t->task->kind;
  Metrics *m = &t->run.metrics;
  double n = (double)s->steps;
  begin_record(t);
  for (int i = 0; i < MODEL_SUMS; i++)
    if (kind->sums[i] && !t->task->hides_sum[i])
      metrics_add(m, kind->sums[i], get_mean(s, s->sum[i]));
  record_perplexity(t, "perplexity", get_shown_loss(t, s));
  metrics_add(m, "lr", lr);
  metrics_add(m, "grad_norm", s->grad_norm);
  metrics_add(m, "steps_per_s", n / took);
  metrics_add(m, kind->predictions_per_s, s->predictions / took);
  metrics_add(m, kind->examples_per_s, s->examples / took);
  if (kind->tokens_per_s) metrics_add(m, kind->tokens_per_s, s->tokens[0] / took);
  record_flops(t, s, took);
  metrics_add(m, "epoch", (double)t->run.at.step * t->micro_batches / (double)t->task->batches);
  metrics_add(m, "data_wait_ms", 1e3 * s->data / n);
  metrics_add(m, "forward_ms", 1e3 * s->forward / n);
  metrics_add(m, "backward_ms", 1e3 * s->backward / n);
  metrics_add(m, "comm_wait_ms", 1e3 * s->wait / n);
  metrics_add(m, "update_ms", 1e3 * s->update / n);
  metrics_add(m, "checkpoint_ms", 1e3 * s->save / n);
  if (world_has_others(&t->world)) {
    metrics_add(m, "sent_bytes", s->sent / n);
    metrics_add(m, "received_bytes", s->received / n);
  }
  metrics_add(m, "allocations", s->allocations / n);
  metrics_add(m, "loss_scale", scaler_factor(&t->run.at.scaler));
  metrics_add_count(m, "skipped", s->skipped);
  metrics_add_count(m, "rollbacks", (uint64_t)t->run.at.rollbacks);
  if (t->run.copies) {
    CopiesCount copies = copies_count(t->run.copies);
    metrics_add_count(m, "peer_copies", copies.written);
    metrics_add_count(m, "peer_copies_skipped", copies.skipped);
    metrics_add_count(m, "peer_copies_failed", copies.failed);
  }
  if (t->run.restart.is_counted) metrics_add_count(m, "restart_count", t->run.restart.count);
  metrics_end(m);
}

static Err log_step(Trainer *t, double lr) {
  const StepSum *s = &t->since;
  const TaskKind *kind = t->task->kind;
  double took = progress_clock() - t->since_start, n = (double)s->steps;
  double loss = get_shown_loss(t, s);
  double left = (double)(t->steps - t->run.at.step) * took / n;
  if (t->spec->seconds > 0) left = fmin(left, fmax(stopping_seconds_left(t), 0));
  if (world_is_writer(&t->world)) {
    char perplexity[32] = "", predictions[64] = "", comm[48] = "", time[32], remaining[32];
    if (kind->has_perplexity) snprintf(perplexity, sizeof perplexity, "  ppl %.4g", exp(loss));
    /* One class per text: both rates are the same number. */
    if (s->predictions != s->examples)
      snprintf(predictions, sizeof predictions, "  %.0f %s/s", s->predictions / took,
               kind->predictions);
    if (world_has_others(&t->world))
      snprintf(comm, sizeof comm, "  comm %.0f ms exposed", 1e3 * s->wait / n);
    log_live("step %" PRIu64 "  loss %.4f%s  lr %.3g  gnorm %.2f%s  %.0f %s/s%s  %s  %s left",
             t->run.at.step, loss, perplexity, lr, s->grad_norm, predictions,
             s->examples / took, kind->examples, comm,
             str_of_seconds(time, run_elapsed(&t->run)), str_of_seconds(remaining, left));
  }
  record_step(t, lr, took);
  TRY(rank_times_record(t));
  t->since = (StepSum){0};
  t->since_start = progress_clock();
  return ERR_OK;
}

/* Returns the learning rate of the step after `step`. */
static double get_lr(const Trainer *t, uint64_t step) {
  return t->run.at.lr_scale * schedule_lr(&t->schedule, step);
}

static bool is_log_due(const Trainer *t) {
  return t->run.at.step % t->spec->log_every == 0 || t->run.at.step == t->steps;
}

/* Records the steps since the last record, if a signal, --max-time or --patience ended the run. */
static Err log_rest(Trainer *t) {
  return t->since.steps ? log_step(t, get_lr(t, t->run.at.step - 1)) : ERR_OK;
}

/* Prints a line every PROGRESS_PERIOD seconds between two lines of --log-every, to show that
 * training continues. The line is not written to the metrics. */
static void show_progress(Trainer *t) {
  double now = progress_clock();
  if (t->shown < t->since_start) t->shown = t->since_start;
  if (now - t->shown < (double)fault_number("train-progress", PROGRESS_PERIOD)) return;
  t->shown = now;
  if (!world_is_writer(&t->world)) return;
  char time[32];
  double took = now - t->since_start;
  log_live("step %" PRIu64 " of %" PRIu64 "  loss %.4f  %s a step", t->run.at.step, t->steps,
           get_shown_loss(t, &t->since), str_of_seconds(time, took / (double)t->since.steps));
}

static bool is_validation_due(const Trainer *t) {
  if (!t->task->valid_examples || t->run.at.validated == t->run.at.step) return false;
  return t->run.at.step % t->spec->valid_every == 0 || t->run.at.step == t->steps;
}

/* Records a validation score on rank 0. Returns true if it is the best so far and its
 * checkpoint was passed to the saver. */
static bool judge_score(Trainer *t, double score, Str *outputs) {
  const TrainCounters *at = &t->run.at;
  run_settle_validation(&t->run); /* after this, at->best_score is on disk */
  saver_take_outputs(t->run.saver, outputs);
  bool is_better = at->best_step == 0 || task_is_better(t->task, score, at->best_score);
  return run_judge_validation(&t->run, score, is_better, t->spec->patience);
}

static void record_validation(Trainer *t, const Validation *v, const TaskSamples *samples) {
  const TaskKind *kind = t->task->kind;
  Metrics *m = &t->run.metrics;
  begin_record(t);
  for (int i = 0; kind->metrics[i].label; i++)
    if (!isnan(v->value[i])) metrics_add(m, kind->metrics[i].valid, v->value[i]);
  record_perplexity(t, "valid_perplexity", v->value[0]);
  metrics_add(m, "valid_seconds", v->seconds);
  MetricsTable table = {str_text(&samples->cells), samples->rows, samples->columns};
  if (samples->rows) metrics_add_table(m, "valid_samples", table);
  metrics_end(m);
}

static void free_samples(TaskSamples *samples) {
  str_free(&samples->cells);
  str_free(&samples->outputs);
}

/* Runs a validation. The checkpoint of this step has been passed to the saver before, which
 * writes it meanwhile; a validation that is interrupted by a signal loses nothing. */
static Err run_validation(Trainer *t) {
  TaskSamples samples = {0};
  Validation v;
  stop_answer_with(answers_validating);
  TRY(train_complete_weights(t));
  double began = progress_clock();
  Weights weights = state_eval_weights(&t->state, &t->world);
  Err err = validate_model(t->task, t->state.model, weights, t->world.comm, &samples, &v);
  if (err) {
    free_samples(&samples);
    t->since_start += progress_clock() - began;
    return err;
  }
  /* Before the score is judged: its time, in the checkpoint, is not before that of the record. */
  record_validation(t, &v, &samples);
  if (world_is_writer(&t->world)) {
    char figures[160];
    bool is_best = judge_score(t, v.value[t->task->decisive], &samples.outputs);
    validate_print(t->task, &v, figures, sizeof figures);
    log_info("valid    step %" PRIu64 "  %s%s  (%.1fs)", t->run.at.step, figures,
             is_best ? ", the best so far" : "", v.seconds);
  }
  t->run.at.validated = t->run.at.step;
  free_samples(&samples);
  /* The time of the validation does not count as time of steps; that of the steps since the last record,
   * of which there are some unless --valid-every is a multiple of --log-every, still does. */
  t->since_start += progress_clock() - began;
  stop_answer_with(NULL);
  return ERR_OK;
}

/* Sets the error for a final state that could not be saved for the reason `why`. Launch does not
 * restart the ranks: they would repeat the steps since the last checkpoint and fail again. */
static Err refuse_end(const Trainer *t, const char *why) {
  char bytes[32], text[1200];
  snprintf(text, sizeof text,
           "the last checkpoint, of step %" PRIu64 " (%s), was not saved: %s", t->run.at.step,
           str_of_bytes(bytes, saver_bytes(t->run.saver)), why);
  event_final(text);
  return err_set(ERR_WORK, "%s; then continue with --resume", text);
}

/* Makes sure that the final state is on disk. A failed save is tried once more; if it fails
 * again, rank 0 returns an error, which ends the other ranks. */
static Err ensure_last_save(Trainer *t) {
  Err err = ERR_OK;
  double failed = 0;
  if (world_is_writer(&t->world)) {
    run_settle_validation(&t->run);
    saver_wait(t->run.saver, &err);
    failed = err != ERR_OK;
  }
  comm_sum(t->world.comm, "failed saves", &failed, 1);
  if (failed <= 0) return ERR_OK;
  TRY(train_save(t, SAVE_AWAITED));
  if (!world_is_writer(&t->world)) return ERR_OK;
  /* Add the lost validation to the new checkpoint if it is of the same step. An earlier step
   * has no checkpoint, so it cannot be the best. */
  t->run.is_validation_pending = t->run.is_best_lost && t->run.validated.step == t->run.at.step;
  if (t->run.is_validation_pending)
    saver_add_validation(t->run.saver, &t->run.validated, t->run.is_best_lost);
  saver_wait(t->run.saver, &err);
  run_settle_validation(&t->run);
  if (!err) return ERR_OK;
  ErrRecord why = err_take(err);
  return refuse_end(t, why.text);
}

/* On rank 0: writes RUN/average and loads its weights into grads.host. */
static Err write_average(Trainer *t, int *count) {
  char out[FILE_PATH_MAX], path[FILE_PATH_MAX];
  saver_wait(t->run.saver, NULL);
  TRY(file_join(out, t->run.dir, "average"));
  TRY(average_last(t->run.dir, t->spec->average, train_save_steps(t), out, count));
  if (*count < 2) return ERR_OK;
  TRY(file_join(path, out, "weights.safetensors"));
  return store_load_array(&t->state.model->params, t->world.grads.host, path);
}

/* Overwrites the weights that validation reads with those in grads.host of rank 0. The run is
 * over and its last checkpoint holds the overwritten weights. */
static Weights replace_eval_weights(Trainer *t) {
  const Backend *b = &t->world.backend;
  ModelState *st = &t->state;
  size_t n = st->model->params.padded, bytes = n * sizeof(float);
  comm_broadcast(t->world.comm, "averaged weights", t->world.grads.host, bytes);
  b->put(b, st->e ? st->e : st->w, t->world.grads.host, bytes);
  if (!st->e) b->lower(b, st->low, st->w, n);
  return state_eval_weights(st, &t->world);
}

/* Averages the last checkpoints, writes them to RUN/average and validates the result. */
static Err average_checkpoints(Trainer *t, TrainResult *r) {
  const TaskKind *kind = t->task->kind;
  int count = 0;
  Validation v;
  if (t->spec->average < 2) return ERR_OK;
  stop_answer_with(answers_averaging);
  comm_report(t->world.comm, COMM_NO_LIMIT, "averaging checkpoints");
  if (world_is_writer(&t->world)) TRY(write_average(t, &count));
  comm_broadcast(t->world.comm, "averaged checkpoints", &count, sizeof count);
  if (count < 2) return ERR_OK;
  r->averaged = count;
  if (!t->task->valid_examples) return ERR_OK;
  Weights weights = replace_eval_weights(t);
  TRY(validate_model(t->task, t->state.model, weights, t->world.comm, NULL, &v));
  r->has_average_score = true;
  r->average_score = v.value[t->task->decisive];
  if (world_is_writer(&t->world)) {
    char figures[160];
    validate_print(t->task, &v, figures, sizeof figures);
    log_info("valid    average of the last %d checkpoints  %s  (%.1fs)", count, figures,
             v.seconds);
  }
  begin_record(t);
  for (int i = 0; kind->metrics[i].label; i++)
    if (!isnan(v.value[i])) metrics_add(&t->run.metrics, kind->metrics[i].average, v.value[i]);
  metrics_end(&t->run.metrics);
  return ERR_OK;
}

/* Called after a roll-back: removes the copies of later steps, from which a restart would
 * continue, and makes a new one. */
static Err replace_copies(Trainer *t) {
  if (!t->spec->copy_every) return ERR_OK;
  if (t->run.copies) copies_discard(t->run.copies);
  return train_copy(t);
}

/* Called after divergence: loads the last checkpoint and halves the learning rate. */
static Err roll_back(Trainer *t, const StepSum *step) {
  uint64_t from = t->run.at.step;
  double loss = get_shown_loss(t, step), scale = t->run.at.lr_scale / 2;
  int times = t->run.at.rollbacks + 1;
  const char *what = isfinite(step->sum[0]) && isfinite(step->grad_norm)
                         ? "the loss diverged"
                         : "the gradient is not finite";
  if (times > t->spec->rollbacks)
    return err_set(ERR_WORK,
                   "step %" PRIu64
                   ": %s (loss %.4g) after %d roll-backs, the limit of --max-rollbacks; "
                   "lower --lr or raise --warmup-steps, and continue with --resume",
                   from, what, loss, t->spec->rollbacks);
  comm_report(t->world.comm, COMM_NO_LIMIT, "step %" PRIu64 ", going back", from);
  if (world_is_writer(&t->world)) saver_wait(t->run.saver, NULL);
  double seconds = run_elapsed(&t->run);
  TRY(train_restore(t));
  if (world_is_writer(&t->world)) run_settle_best(&t->run);
  sampler_set_step(t->sampler, t->run.at.step);
  t->run.at.lr_scale = scale;
  t->run.at.rollbacks = times;
  t->run.at.seconds = seconds;
  t->run.began = progress_clock();
  t->since = (StepSum){0};
  t->since_start = t->run.began;
  if (world_is_writer(&t->world))
    log_warn("step %" PRIu64 ": %s (loss %.4g): back to step %" PRIu64
             ", with the learning rate times %.3g from now on (roll-back %d of %d)",
             from, what, loss, t->run.at.step, scale, times, t->spec->rollbacks);
  begin_record(t);
  metrics_set_event(&t->run.metrics, "rollback");
  metrics_add_count(&t->run.metrics, "rolled_back_from", from);
  metrics_add(&t->run.metrics, "lr_scale", scale);
  metrics_add_count(&t->run.metrics, "rollbacks", (uint64_t)times);
  metrics_undo_later(&t->run.metrics);
  metrics_end(&t->run.metrics);
  return replace_copies(t);
}

/* On rank 0: returns true if a copy can be made without waiting. A copy must contain the result
 * of the last validation, which is valid only once it is on disk. */
static bool is_ready_to_copy(const Run *run) {
  if (!run->copies) return false;
  bool is_validated = !run->is_validation_pending || !saver_is_busy(run->saver);
  if (is_validated && !copies_is_writing(run->copies))
    return copies_has_room(run->copies, run->at.step);
  copies_skip(run->copies);
  return false;
}

static bool must_stop(Trainer *t, TrainResult *r) {
  double start = progress_clock();
  bool is_over = stopping_decide(t, r);
  trace_part(t, "agree to go on", t->run.at.step, start);
  return is_over;
}

/* Reports to the launcher that the first step since the start of this process is complete. */
static void report_first_step(Trainer *t) {
  if (t->is_step_reported || !world_is_writer(&t->world)) return;
  event_step(t->run.at.step);
  t->is_step_reported = true;
}

/* While the loss is out of range no checkpoint is saved, because a roll-back would return to
 * it. */
static bool is_save_due(const Trainer *t) {
  uint64_t step = t->run.at.step;
  bool is_due = step % t->spec->save_every == 0 || is_validation_due(t);
  return step == t->steps || (is_due && health_good(&t->health));
}

static SaveMode get_save_mode(const Trainer *t) {
  return t->run.at.step >= t->steps ? SAVE_LAST : SAVE_IN_BACKGROUND;
}

/* Makes an in-memory copy if one is due. Rank 0 decides for all ranks, since each may hold a
 * part of the optimizer state. */
static Err copy_if_due(Trainer *t) {
  uint64_t every = t->spec->copy_every;
  if (!every || t->run.at.step % every != 0 || !health_good(&t->health)) return ERR_OK;
  bool is_ready = is_ready_to_copy(&t->run);
  comm_broadcast(t->world.comm, "ready to copy", &is_ready, sizeof is_ready);
  return is_ready ? train_copy(t) : ERR_OK;
}

/* Saves a checkpoint and measures how long training waits for it. */
static Err save_timed(Trainer *t) {
  double start = progress_clock();
  TRY(train_save(t, get_save_mode(t)));
  t->since.save += progress_clock() - start;
  trace_part(t, "checkpoint", t->run.at.step, start);
  return ERR_OK;
}

/* Prints and records the step, and makes the copy, checkpoint and validation that are due. */
static Err finish_step(Trainer *t, const StepSum *step, double lr) {
  const TrainSpec *s = t->spec;
  double start = progress_clock();
  if (is_log_due(t))
    TRY(log_step(t, lr));
  else
    show_progress(t);
  if (s->histogram_every && t->run.at.step % s->histogram_every == 0)
    TRY(train_write_histograms(t, step));
  trace_part(t, "log and metrics", t->run.at.step, start);
  start = progress_clock();
  TRY(copy_if_due(t));
  if (s->copy_every) trace_part(t, "in-memory copy", t->run.at.step, start);
  if (is_save_due(t)) TRY(save_timed(t));
  if (!is_validation_due(t)) return ERR_OK;
  start = progress_clock();
  TRY(run_validation(t));
  t->has_stop_sum = false; /* the patience of rank 0 may have ended */
  trace_part(t, "validation", t->run.at.step, start);
  return ERR_OK;
}

/* Runs one step, and what is due after it. */
static Err run_step(Trainer *t) {
  StepSum step;
  bool is_healthy;
  double lr = get_lr(t, t->run.at.step);
  TRY(train_step(t, lr, &step, &is_healthy));
  if (step.predictions > 0) t->last_loss = step.sum[0] / step.predictions;
  bool has_loss = step.predictions > 0 || !is_healthy;
  if (has_loss && !health_take(&t->health, is_healthy ? t->last_loss : NAN))
    return roll_back(t, &step);
  if (step.skipped && world_is_writer(&t->world))
    log_info("step %" PRIu64
             ": update skipped, the gradient overflowed; the loss scale is %g from now on",
             t->run.at.step, scaler_factor(&t->run.at.scaler));
  t->run.at.step++;
  sampler_set_step(t->sampler, t->run.at.step);
  t->run.at.predictions += (uint64_t)step.predictions;
  t->run.at.examples += (uint64_t)step.examples;
  add_step(&t->since, &step);
  report_first_step(t);
  return finish_step(t, &step, lr);
}

/* Stops recording and writes the trace, if steps are being recorded. */
static Err write_trace(Trainer *t) {
  if (!trace_is_on(t->tracing.trace)) return ERR_OK;
  return tracing_write(&t->tracing, t->world.comm, t->run.dir);
}

/* Runs one step, and records it if it is one of those of --trace. */
static Err run_traced_step(Trainer *t) {
  uint64_t step = t->run.at.step + 1; /* as in the log: the first step is 1 */
  if (tracing_is_due(&t->tracing)) TRY(tracing_begin(&t->tracing, t->world.comm, step));
  double start = progress_clock();
  TRY(run_step(t));
  trace_step(t, step, start);
  return tracing_count_step(&t->tracing) ? write_trace(t) : ERR_OK;
}

/* Converts ERR_STOPPED, returned when a signal interrupts a step or validation, to r->stopped:
 * the run then ends normally. */
static Err note_stop(Err err, TrainResult *r) {
  if (err != ERR_STOPPED) return err;
  r->stopped = true;
  return ERR_OK;
}

/* A resumed run that --patience has ended stays ended, so that repeating the command, as launchers and
 * batch systems do, does not train one more validation interval each time. */
static void check_patience(Trainer *t) {
  const TrainCounters *at = &t->run.at;
  int patience = t->spec->patience;
  if (!at->step || patience <= 0 || at->validated != at->step || at->worse < patience) return;
  t->run.is_out_of_patience = true;
  if (world_is_writer(&t->world))
    log_info("resume   the run ended early at step %" PRIu64
             ": %d validations without a better "
             "score, and --patience is %d; pass a larger --patience to continue",
             at->step, (int)at->worse, patience);
}

Err train_loop(Trainer *t, TrainResult *r) {
  t->run.call_began = progress_clock();
  t->run.began = t->run.call_began;
  t->since_start = t->run.call_began;
  if (t->run.at.step && t->run.at.step >= t->steps && world_is_writer(&t->world))
    log_info("resume   the run is at step %" PRIu64 ", and its last step is %" PRIu64
             ": nothing is left to train; pass more --steps or --epochs to continue",
             t->run.at.step, t->steps);
  /* Save the checkpoint that was due when the previous process ended. That process left an
   * in-memory copy of this step, from which this one continues. */
  if (t->run.saved != t->run.at.step && is_save_due(t)) TRY(train_save(t, get_save_mode(t)));
  /* Repeat the validation during which the previous process was interrupted. */
  if (t->run.at.step && is_validation_due(t)) TRY(note_stop(run_validation(t), r));
  check_patience(t);
  while (!r->stopped && t->run.at.step < t->steps && !must_stop(t, r))
    TRY(note_stop(run_traced_step(t), r));
  TRY(log_rest(t));
  TRY(write_trace(t));
  tracing_warn_unused(&t->tracing, t->world.comm);
  if (t->run.saved != t->run.at.step) TRY(train_save(t, SAVE_AWAITED));
  if (!r->stopped && t->task->valid_examples && t->run.at.validated != t->run.at.step)
    TRY(note_stop(run_validation(t), r));
  TRY(ensure_last_save(t));
  return r->stopped ? ERR_OK : note_stop(average_checkpoints(t, r), r);
}
