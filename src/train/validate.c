/* Validation of any task. Depends on model, task, comm. */
#include "train/validate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/progress.h"
#include "base/stop.h"
#include "train/pass.h"

/* Sums the losses over all validation examples, without dropout and label smoothing. The
 * batches are distributed over the ranks. */
static Err sum_losses(Task *task, Model *model, Weights w, Comm *comm, ModelLoss *total) {
  /* Sums of losses, number of predictions, number of ranks that were asked to stop. */
  double sum[MODEL_SUMS + 2] = {0};
  uint64_t next = 0;
  uint64_t count = 0;
  while (next < task->valid_examples && !stop_asked()) {
    TaskBatch batch;
    ModelLoss loss;
    TRY(task->kind->valid_batch(task, &next, &batch));
    if (!comm_owns(comm, count++)) continue;
    comm_report(comm, pass_limit(model), "validation, loss");
    model_load(model, batch.data, (StepKey){0});
    model_run(model, w, NULL, &(ModelPass){0});
    if (task->kind->take_outputs) TRY(task->kind->take_outputs(task, model));
    TRY(model_loss(model, &loss));
    for (int i = 0; i < MODEL_SUMS; i++) sum[i] += loss.sum[i];
    sum[MODEL_SUMS] += (double)loss.predictions;
  }
  sum[MODEL_SUMS + 1] = stop_asked();
  comm_sum(comm, "validation loss", sum, MODEL_SUMS + 2);
  if (sum[MODEL_SUMS + 1] > 0) return err_set(ERR_STOPPED, "stopped within a validation");
  memcpy(total->sum, sum, sizeof total->sum);
  total->predictions = (uint64_t)sum[MODEL_SUMS];
  return ERR_OK;
}

Err validate_model(Task *task, Model *model, Weights w, Comm *comm, TaskSamples *samples,
                   Validation *result) {
  ModelLoss loss;
  double start = progress_clock();
  *result = (Validation){0};
  TRY(sum_losses(task, model, w, comm, &loss));
  /* End the status line of the step, so that the output of the task begins on a new line. */
  log_live_end();
  TRY(task->kind->score(task, comm, &loss, samples, result->value));
  result->seconds = progress_clock() - start;
  comm_broadcast(comm, "validation", result, sizeof *result);
  return ERR_OK;
}

static bool is_shown(const Task *task, const Validation *v, int i) {
  const TaskMetric *m = &task->kind->metrics[i];
  return !isnan(v->value[i]) && (!m->is_hidden || i == task->decisive);
}

void validate_print(const Task *task, const Validation *v, char *out, size_t size) {
  const TaskKind *kind = task->kind;
  size_t at = 0;
  *out = '\0';
  for (int i = 0; kind->metrics[i].label && at < size; i++) {
    const TaskMetric *m = &kind->metrics[i];
    bool is_loss = kind->has_perplexity && i == 0;
    if (!is_shown(task, v, i)) continue;
    int n = snprintf(out + at, size - at, "%s%s %.*f", at ? "  " : "", m->label, m->digits,
                     v->value[i]);
    if (n > 0) at += (size_t)n;
    if (is_loss && at < size) {
      n = snprintf(out + at, size - at, "  ppl %.4g", exp(v->value[i]));
      if (n > 0) at += (size_t)n;
    }
  }
}
