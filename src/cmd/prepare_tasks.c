/* The table of the tasks of prepare. A new task is a new file and one line here. */
#include "cmd/prepare_task.h"

const PrepareTask *const prepare_tasks[] = {&prepare_task_translate, &prepare_task_classify,
                                            &prepare_task_mlm, NULL};
