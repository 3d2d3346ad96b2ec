/* The tasks that there are. A new one is one file and one line here. */
#include "train/task_translate.h"

const TaskKind *const train_tasks[] = {&translate_task, NULL};
