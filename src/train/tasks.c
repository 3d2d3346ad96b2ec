/* The table of tasks. A new task is a new file and one line here. */
#include "train/task_classify.h"
#include "train/task_mlm.h"
#include "train/task_translate.h"

const TaskKind *const train_tasks[] = {&translate_task, &classify_task, &mlm_task, NULL};
