/* The tasks for which prepare writes data sets. A task is one file that fills in a PrepareTask, and
 * one line in prepare_tasks.c. Depends on base/opt. */
#ifndef CMD_PREPARE_TASK_H
#define CMD_PREPARE_TASK_H

#include "base/err.h"
#include "base/opt.h"

typedef struct {
  const char *name; /* value of --task */
  /* Tables of the options of prepare that only some tasks have; ends with NULL. Two tasks may list the
   * same table. NULL: none. */
  const OptSpec *const *options;
  const char *const
      *unused; /* other options of prepare that this task does not have; ends with NULL */
  /* Defaults of this task that replace those in the option table, as lines of a config file. NULL:
   * none. */
  const char *defaults;
  Err (*run)(OptSet *opts);
  /* Describes such a data set if no task of train/task.h does; `opts` are those of the command
   * inspect. NULL: the task of the same name in train/task.h does. */
  Err (*inspect)(const OptSet *opts);
} PrepareTask;

/* Ends with NULL; the first task is the default. */
extern const PrepareTask *const prepare_tasks[];
extern const PrepareTask prepare_task_translate;
extern const PrepareTask prepare_task_classify;
extern const PrepareTask prepare_task_mlm;

#endif
