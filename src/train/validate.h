/* How good the model is now: the loss on the validation examples, and the metrics of the task.
 * Depends on model, task, comm. */
#ifndef TRAIN_VALIDATE_H
#define TRAIN_VALIDATE_H

#include "train/task.h"

typedef struct {
  double value[TASK_METRICS]; /* in the order of the task's metrics */
  double seconds;
} Validation;

/* Validates w, after task->kind->prepare. Examples are shared out over the ranks, each exactly
 * once; every rank calls it and gets the result. ERR_STOPPED on every rank: one of them was asked
 * to stop. */
NODISCARD Err validate_model(Task *task, Model *model, Weights w, Comm *comm, bool show_samples,
                             Validation *result);
/* The metrics as the log prints them. */
void validate_print(const TaskKind *kind, const Validation *v, char *out, size_t size);

#endif
