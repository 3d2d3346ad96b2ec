/* The task of masked language models: predict the tokens that were masked in plain text. Depends on
 * task.h. */
#ifndef TRAIN_TASK_MLM_H
#define TRAIN_TASK_MLM_H

#include "train/task.h"

/* TaskSpec.options of this task. */
typedef struct {
  double mask_rate; /* share of the tokens that are masked */
} MlmOptions;

extern const TaskKind mlm_task;

#endif
