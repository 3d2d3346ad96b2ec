/* The translation task: sentence pairs, evaluated by BLEU. Depends on decode, task.h. */
#ifndef TRAIN_TASK_TRANSLATE_H
#define TRAIN_TASK_TRANSLATE_H

#include "decode/beam.h"
#include "train/task.h"

/* TaskSpec.options of the translation task. */
typedef struct {
  BeamSpec beam; /* beam search of the validation */
  int samples;   /* number of translations that a validation prints */
} TranslateOptions;

/* TaskKind.inspect of this task. */
NODISCARD Err translate_inspect(const OptSet *opts);

extern const TaskKind translate_task;

#endif
