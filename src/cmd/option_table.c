/* Puts the option table together. Depends on model/model.h, train/task.h, prepare_task.h. */
#include "cmd/option_table.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "cmd/prepare_task.h"
#include "train/task.h"

#define ROWS   512
#define TABLES 64
#define NAMES  512 /* size of a buffer for a list of names */

static OptSpec rows[ROWS + 1]; /* the last row, which has no name, ends the table */
static size_t used;
static char tasks[NAMES], prepared[NAMES], inspected[NAMES], presets[NAMES];

/* Appends "|names" to a list. */
static void add_names(char list[NAMES], const char *names) {
  size_t n = strlen(list);
  int more = snprintf(list + n, NAMES - n, "%s%s", n ? "|" : "", names);
  assert(more > 0 && n + (size_t)more < NAMES);
  (void)more;
}

static void add_row(const OptSpec *row) {
  assert(used < ROWS);
  rows[used++] = *row;
}

/* Appends the option tables of a task or family, except those that are in the table already. */
static void add_tables(const OptSpec *const *tables) {
  static const OptSpec *added[TABLES];
  static size_t count;
  for (; tables && *tables; tables++) {
    bool is_added = false;
    for (size_t i = 0; i < count; i++) is_added = is_added || added[i] == *tables;
    if (is_added) continue;
    assert(count < TABLES);
    added[count++] = *tables;
    for (const OptSpec *row = *tables; row->name; row++) add_row(row);
  }
}

static void list_names(void) {
  for (const TaskKind *const *kind = train_tasks; *kind; kind++)
    add_names(tasks, (*kind)->name);
  add_names(inspected, tasks);
  for (const PrepareTask *const *task = prepare_tasks; *task; task++) {
    add_names(prepared, (*task)->name);
    if (!task_find((*task)->name)) add_names(inspected, (*task)->name);
  }
  for (const ModelFamily *const *f = model_families; *f; f++) add_names(presets, (*f)->presets);
}

/* Fills in the choices of --task and --preset. Their defaults are those of the first task. */
static void add_general_options(void) {
  list_names();
  for (const OptSpec *s = cmd_general_options; s->name; s++) {
    OptSpec row = *s;
    if (strcmp(row.name, "task") == 0 && strcmp(row.commands, "prepare") == 0) {
      row.choices = prepared;
      row.initial = prepare_tasks[0]->name;
    } else if (strcmp(row.name, "task") == 0 && strcmp(row.commands, "inspect") == 0) {
      row.choices = inspected;
    } else if (strcmp(row.name, "task") == 0 && !*row.choices) {
      row.choices = tasks;
      row.initial = train_tasks[0]->name;
    } else if (strcmp(row.name, "preset") == 0) {
      row.choices = presets;
      row.initial = train_tasks[0]->family->default_preset;
    }
    add_row(&row);
  }
}

/* ---- defaults of the tasks ---- */

/* A value in the text of a task's defaults. */
typedef struct {
  const char *text;
  size_t len;
} TaskDefault;

/* Finds the option in lines "name = value". Its text is NULL if it is not there. */
static TaskDefault find_default(const char *lines, const char *name) {
  size_t n = strlen(name);
  for (const char *at = lines; at && *at; at += strspn(at, "\n")) {
    size_t line = strcspn(at, "\n");
    if (strncmp(at, name, n) == 0 && strncmp(at + n, " = ", 3) == 0)
      return (TaskDefault){.text = at + n + 3, .len = line - n - 3};
    at += line;
  }
  return (TaskDefault){0};
}

/* Appends "512 for classify", or " and mlm" if the task before, whose default is `last`, has the
 * same. */
static void add_task_default(Str *out, const char *task, TaskDefault value, TaskDefault *last) {
  bool is_same =
      last->text && last->len == value.len && memcmp(last->text, value.text, value.len) == 0;
  if (is_same)
    str_addf(out, " and %s", task);
  else
    str_addf(out, "%s%.*s for %s", out->len ? ", " : "", (int)value.len, value.text, task);
  *last = value;
}

/* Appends the defaults that tasks have for an option of prepare or of train alone. */
static void add_task_defaults(Str *out, const OptSpec *row) {
  TaskDefault value, last = {0};
  bool is_prepare = strcmp(row->commands, "prepare") == 0;
  bool is_train = strcmp(row->commands, "train") == 0;
  for (const PrepareTask *const *task = prepare_tasks; is_prepare && *task; task++) {
    value = find_default((*task)->defaults, row->name);
    if (value.text) add_task_default(out, (*task)->name, value, &last);
  }
  for (const TaskKind *const *kind = train_tasks; is_train && *kind; kind++) {
    value = find_default((*kind)->defaults, row->name);
    if (value.text) add_task_default(out, (*kind)->name, value, &last);
  }
}

const OptSpec *cmd_options(void) {
  opt_set_special_defaults(add_task_defaults);
  if (used) return rows;
  add_general_options();
  for (const TaskKind *const *kind = train_tasks; *kind; kind++) {
    add_tables((*kind)->family->options);
    add_tables((*kind)->options);
  }
  for (const PrepareTask *const *task = prepare_tasks; *task; task++)
    add_tables((*task)->options);
  return rows;
}
