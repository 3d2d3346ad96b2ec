/* trireme prepare: finds the task that --task names, applies its defaults, refuses options of other
 * tasks, and calls it. Depends on prepare_task.h. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/prepare_task.h"

static const PrepareTask *find_task(const char *name) {
  size_t i = 0;
  while (strcmp(prepare_tasks[i]->name, name) != 0) i++; /* ends: the name is a valid choice */
  return prepare_tasks[i];
}

static Err refuse_option(const char *option, const PrepareTask *task) {
  return err_set(ERR_USAGE, "--%s is not an option of prepare --task %s; leave it out", option,
                 task->name);
}

static bool has_table(const PrepareTask *task, const OptSpec *table) {
  for (const OptSpec *const *own = task->options; own && *own; own++)
    if (*own == table) return true;
  return false;
}

static Err check_table(const OptSet *opts, const PrepareTask *task, const OptSpec *table) {
  if (has_table(task, table)) return ERR_OK;
  for (const OptSpec *row = table; row->name; row++)
    if (opt_given(opts, row->name)) return refuse_option(row->name, task);
  return ERR_OK;
}

static Err check_options(const OptSet *opts, const PrepareTask *task) {
  for (const char *const *name = task->unused; name && *name; name++)
    if (opt_given(opts, *name)) return refuse_option(*name, task);
  for (const PrepareTask *const *other = prepare_tasks; *other; other++)
    for (const OptSpec *const *table = (*other)->options; table && *table; table++)
      TRY(check_table(opts, task, *table));
  return ERR_OK;
}

static Err run_task(OptSet *opts) {
  const PrepareTask *task = find_task(opt_text(opts, "task"));
  char where[64];
  snprintf(where, sizeof where, "defaults of --task %s", task->name);
  TRY(check_options(opts, task));
  if (task->defaults)
    TRY(opt_set_defaults(opts, task->defaults, strlen(task->defaults), where));
  return task->run(opts);
}

Err cmd_prepare(OptSet *opts) {
  log_quiet(opt_flag(opts, "quiet"));
  Err err = run_task(opts);
  /* main() does not print ERR_STOPPED. */
  if (err == ERR_STOPPED) log_error("%s", err_message());
  return err;
}
