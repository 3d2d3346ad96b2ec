/* Data, configuration and batches of the tasks with texts. Depends on data, model/bert, agree, task.h. */
#include "train/text_task.h"

#include <inttypes.h>
#include <string.h>

#include "data/text_encoder.h"
#include "train/agree.h"

Err text_task_check_family(const ModelConfig *config, const char *verb) {
  if (bert_config(config)) return ERR_OK;
  return err_set(ERR_USAGE, "a model of family %s cannot be trained to %s; use a BERT model",
                 config->family->name, verb);
}

/* ---- opening ---- */

Err text_task_add_file(TextTask *t, const char *what, const char *name) {
  ModelFile *file = &t->task.file[t->task.files++];
  file->what = what;
  file->name = name;
  return dataset_path(&t->data, name, file->path);
}

Err text_task_open(TextTask *t, const TaskSpec *spec,
                   Err (*open)(DataSet *d, const char *dir)) {
  Task *task = &t->task;
  TRY(open(&t->data, spec->data));
  const Meta *meta = &t->data.meta;
  memcpy(task->data, t->data.dir, sizeof task->data);
  TRY(agree_data_hash(&t->data, task->data_hash));
  task->tokens = meta->split[SPLIT_TRAIN].tokens[0];
  TextTokenizer kind = text_tokenizer_kind(meta->classify->tokenizer_file);
  return text_task_add_file(t, "tokenizer", text_tokenizer_file[kind]);
}

/* The table of positions keeps the size of the preset, which pretrained weights have, unless texts are
 * longer. */
BertConfig text_task_config(const TextTask *t, const ModelConfig *given) {
  const Meta *meta = &t->data.meta;
  BertConfig c = *bert_config(given);
  int positions = (int)meta->max_tokens + c.position_offset;
  c.vocab = meta->vocab;
  c.max_tokens = (int)meta->max_tokens;
  c.has_pairs = meta->classify->texts == 2;
  c.is_lower = meta->classify->is_lower;
  c.strips_accents = meta->classify->strips_accents;
  if (c.max_positions < positions) c.max_positions = positions;
  return c;
}

void text_task_close(TextTask *t) {
  text_loader_close(t->loader);
  text_buffer_free(&t->batch);
  order_plan_free(&t->plan);
  dataset_close(&t->data);
}

/* ---- batches ---- */

/* Fails if a validation text does not fit into a batch. Otherwise the run would fail at its
 * first validation. */
static Err check_valid_length(const TextTask *t, uint32_t capacity) {
  uint64_t need = t->data.meta.split[SPLIT_VALID].longest[0];
  if (!t->task.valid_examples || need <= capacity) return ERR_OK;
  return err_set(ERR_USAGE,
                 "a batch of %u tokens cannot hold the longest validation text, %" PRIu64
                 " tokens; give --batch-tokens %" PRIu64 " or more, or --valid-every 0",
                 capacity, need, need);
}

Err text_task_plan_batches(Task *task, uint32_t capacity) {
  TextTask *t = (TextTask *)task;
  TRY(order_plan(&t->plan, &t->data.order, capacity));
  task->capacity = t->plan.capacity;
  task->batches = t->plan.batches;
  task->fill = t->plan.fill;
  return check_valid_length(t, capacity);
}

Err text_task_open_loader(Task *task, const LoaderSpec *given) {
  TextTask *t = (TextTask *)task;
  LoaderSpec spec = *given;
  spec.mask_rate = t->mask_rate;
  text_loader_close(t->loader);
  t->loader = NULL;
  return text_loader_open(&t->loader, &t->data, &t->plan, &spec);
}

Err text_task_prepare(TextTask *t, const Model *model) {
  uint32_t capacity = (uint32_t)model->capacity;
  TRY(text_buffer_new(&t->batch, &t->data, capacity, capacity / 2 + 1));
  return t->mask_rate > 0 ? text_buffer_mask(&t->batch, &t->data, t->mask_rate) : ERR_OK;
}

TaskBatch text_task_batch(const TextBuffer *b, uint32_t predictions) {
  return (TaskBatch){.data = &b->batch,
                     .examples = b->batch.texts,
                     .predictions = predictions,
                     .tokens = {b->batch.tokens, 0}};
}
