/* The classification task: labeled texts, evaluated by F1, AUC and others. Depends on task.h. */
#ifndef TRAIN_TASK_CLASSIFY_H
#define TRAIN_TASK_CLASSIFY_H

#include "train/task.h"

/* TaskSpec.options of the classification task. */
typedef struct {
  const char *class_weights; /* none, balanced or a list */
  const char *metric;        /* metric that selects the best checkpoint, or "auto" */
  size_t samples;            /* number of texts that a validation prints */
  double smoothing;          /* of the labels; must be 0 if they are numbers */
} ClassifyOptions;

extern const TaskKind classify_task;

#endif
