/* What the tasks that train a BERT model on texts have in common: data set, configuration, batches and
 * the buffer of the validation. Depends on data, model/bert, task.h. */
#ifndef TRAIN_TEXT_TASK_H
#define TRAIN_TEXT_TASK_H

#include "data/text_loader.h"
#include "model/bert.h"
#include "train/task.h"

/* The struct of such a task begins with it. */
typedef struct {
  Task task; /* must be the first member: Task * is cast to TextTask * */
  DataSet data;
  OrderPlan plan;
  TextLoader *loader;
  TextBuffer batch; /* of the validation */
  double mask_rate; /* share of the tokens that are masked; 0: none */
} TextTask;

/* Opens a data set with `open` and fills in the members of Task that all such tasks have. The tokenizer
 * is the first file of checkpoints. Task.config is not set. */
NODISCARD Err text_task_open(TextTask *t, const TaskSpec *spec,
                             Err (*open)(DataSet *d, const char *dir));
/* Adds a file of the data set to those of every checkpoint. */
NODISCARD Err text_task_add_file(TextTask *t, const char *what, const char *name);
/* Returns `given` with vocabulary and everything that turns texts into ids as in the data set; the caller
 * sets the head. */
BertConfig text_task_config(const TextTask *t, const ModelConfig *given);
/* Fails unless the model is of the BERT family. `verb`: what it is trained to do. */
NODISCARD Err text_task_check_family(const ModelConfig *config, const char *verb);
void text_task_close(TextTask *t);

/* TaskKind.plan_batches and open_loader. */
NODISCARD Err text_task_plan_batches(Task *task, uint32_t capacity);
NODISCARD Err text_task_open_loader(Task *task, const LoaderSpec *spec);
/* Allocates the buffer of the validation. */
NODISCARD Err text_task_prepare(TextTask *t, const Model *model);
/* Describes a batch with this number of terms of the loss. */
TaskBatch text_task_batch(const TextBuffer *b, uint32_t predictions);

#endif
