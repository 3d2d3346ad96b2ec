/* Validation: computes the loss on the validation examples and the metrics of the task. Depends
 * on model, task, comm. */
#ifndef TRAIN_VALIDATE_H
#define TRAIN_VALIDATE_H

#include "train/task.h"

typedef struct {
  double value[TASK_METRICS]; /* one value for each of the task's metrics, in their order */
  double seconds;
} Validation;

/* Validates the weights w; task->kind->prepare must have been called. The examples are
 * distributed over the ranks. Every rank calls it and gets the result. Returns ERR_STOPPED on
 * every rank if one of them was asked to stop. `samples`: see TaskKind.score. */
NODISCARD Err validate_model(Task *task, Model *model, Weights w, Comm *comm,
                             TaskSamples *samples, Validation *result);
/* Formats the metrics for the log. */
void validate_print(const Task *task, const Validation *v, char *out, size_t size);

#endif
