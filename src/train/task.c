/* Functions common to all tasks. Depends on task.h. */
#include "train/task.h"

#include <string.h>

const TaskKind *task_find(const char *name) {
  for (const TaskKind *const *kind = train_tasks; *kind; kind++)
    if (strcmp((*kind)->name, name) == 0) return *kind;
  return NULL;
}

bool task_is_better(const TaskKind *kind, double a, double b) {
  return kind->higher_is_better ? a > b : a < b;
}
