/* Translation as a task: pairs of sentences, judged by BLEU. Depends on decode, task.h. */
#ifndef TRAIN_TASK_TRANSLATE_H
#define TRAIN_TASK_TRANSLATE_H

#include "decode/beam.h"
#include "train/task.h"

/* TaskSpec.options of this task. */
typedef struct {
  BeamSpec beam; /* of the search that a validation translates with */
  int samples;   /* translations that a validation prints */
} TranslateOptions;

extern const TaskKind translate_task;

#endif
