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

bool task_is_better(const TaskKind *kind, double a, double b) {
  return kind->higher_is_better ? a > b : a < b;
}
