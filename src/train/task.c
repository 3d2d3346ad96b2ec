/* Functions common to all tasks. Depends on task.h. */
#include "train/task.h"

#include <string.h>

const TaskKind *task_find(const char *name) {
  for (const TaskKind *const *kind = train_tasks; *kind; kind++)
    if (strcmp((*kind)->name, name) == 0) return *kind;
  return NULL;
}

static bool is_listed(const OptSpec *const *tables, const OptSpec *table) {
  for (; tables && *tables; tables++)
    if (*tables == table) return true;
  return false;
}

bool task_has_options(const TaskKind *kind, const OptSpec *table) {
  return is_listed(kind->options, table) || is_listed(kind->family->options, table);
}

const TaskMetric *task_decisive(const Task *task) {
  return &task->kind->metrics[task->decisive];
}

bool task_is_better(const Task *task, double a, double b) {
  return task_decisive(task)->lower_is_better ? a < b : a > b;
}
