/* trireme inspect: describes a data set, as text or JSON, by the function of its task. Depends on
 * data/dataset, prepare_task.h, train/task.h. */
#include <string.h>

#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/prepare_task.h"
#include "data/dataset.h"
#include "train/task.h"

/* Finds the function for a task: of the tasks that can be trained, or of those that prepare knows. */
static Err (*find_inspect(const char *name))(const OptSet *opts) {
  const TaskKind *kind = task_find(name);
  if (kind && kind->inspect) return kind->inspect;
  for (const PrepareTask *const *task = prepare_tasks; *task; task++)
    if (strcmp((*task)->name, name) == 0) return (*task)->inspect;
  return NULL;
}

Err cmd_inspect(OptSet *opts) {
  const char *task = opt_text(opts, "task");
  log_quiet(opt_flag(opts, "quiet"));
  TRY(cmd_refuse_ranks("inspect", "call it without mpirun or srun"));
  if (!task) TRY(dataset_find_task(opt_operand(opts, 0), &task));
  Err (*inspect)(const OptSet *) = find_inspect(task);
  if (!inspect)
    return err_set(ERR_USAGE, "inspect has nothing to show for --task %s; pass another --task",
                   task);
  return inspect(opts);
}
