/* trireme inspect: describes a data set, as text or JSON, by the function of its task. Depends on
 * train/task.h. */
#include "base/log.h"
#include "cmd/cmd.h"
#include "train/task.h"

Err cmd_inspect(OptSet *opts) {
  const TaskKind *kind = task_find(opt_text(opts, "task")); /* never NULL: a valid choice */
  log_quiet(opt_flag(opts, "quiet"));
  TRY(cmd_refuse_ranks("inspect", "call it without mpirun or srun"));
  if (!kind->inspect)
    return err_set(ERR_USAGE, "inspect has nothing to show for --task %s; pass another --task",
                   kind->name);
  return kind->inspect(opts);
}
