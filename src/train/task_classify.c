/* The classification task: packed batches of labeled texts for a BERT model; validation computes
 * the scores of a classifier on the validation texts. The labels of the data set determine the
 * head: one class (softmax), several labels (sigmoid), or numbers (squared error). Depends on
 * data, model/bert, class_weights, classify_valid, task.h. */
#include "train/task_classify.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/opt_rows.h"
#include "data/text_encoder.h"
#include "data/text_loader.h"
#include "model/bert.h"
#include "train/agree.h"
#include "train/class_weights.h"
#include "train/classify_valid.h"
#include "train/inspect_classify.h"

typedef struct {
  Task task;
  DataSet data;
  OrderPlan plan;
  TextLoader *loader;
  bool has_weights;
  float *weight; /* (labels) class weights, if has_weights */
  /* Members for the validation: */
  ClassifyValid valid;
  TextBuffer batch;
  void *raw; /* outputs of a batch in the backend's type */
} ClassifyTask;

/* ---- opening ---- */

static bool is_wordpiece(const MetaClassify *c) {
  return strcmp(c->tokenizer_file, text_tokenizer_file[TEXT_WORDPIECE]) == 0;
}

/* Takes vocabulary, head and everything that turns texts into ids from the data set. The table of
 * positions keeps the size of the preset, which pretrained weights have, unless texts are longer. */
static Err complete_config(ModelConfig *out, const ModelConfig *given, const Meta *meta) {
  static const BertHead heads[] = {[LABEL_CLASS] = BERT_HEAD_SOFTMAX,
                                   [LABEL_MULTI] = BERT_HEAD_SIGMOID,
                                   [LABEL_NUMBER] = BERT_HEAD_SQUARE};
  const MetaClassify *labels = meta->classify;
  BertConfig c = *bert_config(given);
  int positions = (int)meta->max_tokens + c.position_offset;
  c.vocab = meta->vocab;
  c.head = heads[labels->kind];
  c.labels = (int)labels->labels;
  c.max_tokens = (int)meta->max_tokens;
  c.has_pairs = labels->texts == 2;
  c.is_lower = labels->is_lower;
  c.strips_accents = labels->strips_accents;
  if (c.max_positions < positions) c.max_positions = positions;
  *out = bert_model_config(&c);
  return bert_check_config(&c);
}

static Err add_file(ClassifyTask *t, const char *what, const char *name) {
  ModelFile *file = &t->task.file[t->task.files++];
  file->what = what;
  file->name = name;
  return dataset_path(&t->data, name, file->path);
}

static Err open_data(ClassifyTask *t, const TaskSpec *spec) {
  Task *task = &t->task;
  TRY(dataset_open_texts(&t->data, spec->data));
  const Meta *meta = &t->data.meta;
  const MetaClassify *c = meta->classify;
  memcpy(task->data, t->data.dir, sizeof task->data);
  TRY(agree_data_hash(&t->data, task->data_hash));
  TRY(add_file(t, "tokenizer",
               text_tokenizer_file[is_wordpiece(c) ? TEXT_WORDPIECE : TEXT_SENTENCEPIECE]));
  TRY(add_file(t, "list of labels", "labels.txt"));
  task->tokens = meta->split[SPLIT_TRAIN].tokens[0];
  /* The backend counts the texts whose prediction is right, but predictions are counted per
   * label. */
  task->hides_sum[2] = c->kind != LABEL_CLASS;
  return complete_config(&task->config, spec->config, meta);
}

static Err open_weights(ClassifyTask *t, const char *text) {
  TRY(mem_alloc(&t->weight, t->data.meta.classify->labels, sizeof *t->weight));
  return class_weights_read(text, &t->data.meta, &t->has_weights, t->weight);
}

static Err open_validation(ClassifyTask *t, const char *metric) {
  TRY(classify_valid_open(&t->valid, &t->data));
  t->task.valid_examples = t->valid.texts;
  return classify_valid_choose(&t->valid, metric, &t->task.decisive);
}

static void close_task(Task *task) {
  ClassifyTask *t = (ClassifyTask *)task;
  if (!t) return;
  text_loader_close(t->loader);
  text_buffer_free(&t->batch);
  classify_valid_free(&t->valid);
  mem_free(t->raw);
  mem_free(t->weight);
  order_plan_free(&t->plan);
  dataset_close(&t->data);
  mem_free(t);
}

static Err open_task(Task **out, const TaskSpec *spec) {
  const ClassifyOptions *options = spec->options;
  ClassifyTask *t;
  *out = NULL;
  if (!bert_config(spec->config))
    return err_set(ERR_USAGE,
                   "a model of family %s cannot be trained to classify; use a BERT model",
                   spec->config->family->name);
  TRY(mem_alloc(&t, 1, sizeof *t));
  t->task.kind = &classify_task;
  Err err = open_data(t, spec);
  if (!err) err = open_weights(t, options->class_weights);
  if (!err && spec->validates) err = open_validation(t, options->metric);
  if (err)
    close_task(&t->task);
  else
    *out = &t->task;
  return err;
}

static void describe_data(const Task *task) {
  static const char *const nouns[] = {
      [LABEL_CLASS] = "classes", [LABEL_MULTI] = "labels", [LABEL_NUMBER] = "numbers"};
  const ClassifyTask *t = (const ClassifyTask *)task;
  const Meta *m = &t->data.meta;
  char texts[32];
  dataset_warn_windows(&t->data);
  log_info("data     %s: %s %s, %zu %s, vocabulary %d", t->data.dir,
           str_of_count(texts, t->data.order.pairs),
           m->classify->texts == 2 ? "pairs" : "texts", m->classify->labels,
           nouns[m->classify->kind], m->vocab);
}

/* ---- batches ---- */

/* Fails if a validation text does not fit into a batch. Otherwise the run would fail at its
 * first validation. */
static Err check_valid_length(const ClassifyTask *t, uint32_t capacity) {
  uint64_t need = t->data.meta.split[SPLIT_VALID].longest[0];
  if (!t->task.valid_examples || need <= capacity) return ERR_OK;
  return err_set(ERR_USAGE,
                 "a batch of %u tokens cannot hold the longest validation text, %" PRIu64
                 " tokens; give --batch-tokens %" PRIu64 " or more, or --valid-every 0",
                 capacity, need, need);
}

static Err plan_batches(Task *task, uint32_t capacity) {
  ClassifyTask *t = (ClassifyTask *)task;
  TRY(order_plan(&t->plan, &t->data.order, capacity));
  task->capacity = t->plan.capacity;
  task->batches = t->plan.batches;
  task->fill = t->plan.fill;
  return check_valid_length(t, capacity);
}

static Err open_loader(Task *task, const LoaderSpec *spec) {
  ClassifyTask *t = (ClassifyTask *)task;
  text_loader_close(t->loader);
  t->loader = NULL;
  return text_loader_open(&t->loader, &t->data, &t->plan, spec);
}

/* Counts the labels that are known, each of which is a term of the loss. */
static uint32_t count_labels(const TextBuffer *b) {
  uint32_t n = 0;
  for (size_t i = 0; i < b->batch.texts * b->targets; i++) n += isnan(b->target[i]) ? 0 : 1;
  return n;
}

static TaskBatch describe_batch(const TextBuffer *b) {
  return (TaskBatch){.data = &b->batch,
                     .examples = b->batch.texts,
                     .predictions = count_labels(b),
                     .tokens = {b->batch.tokens, 0}};
}

static Err next_batch(Task *task, TaskBatch *out) {
  ClassifyTask *t = (ClassifyTask *)task;
  const TextBuffer *batch;
  TRY(text_loader_next(t->loader, &batch));
  *out = describe_batch(batch);
  return ERR_OK;
}

/* ---- model and validation ---- */

static void begin_model(Task *task, Model *model) {
  ClassifyTask *t = (ClassifyTask *)task;
  bert_set_class_weights((Bert *)model, t->has_weights ? t->weight : NULL);
}

static Err prepare_validation(Task *task, Model *model, Weights w) {
  ClassifyTask *t = (ClassifyTask *)task;
  uint32_t capacity = (uint32_t)model->capacity, texts = capacity / 2 + 1;
  (void)w;
  TRY(text_buffer_new(&t->batch, &t->data, capacity, texts));
  return mem_alloc((char **)&t->raw, texts * t->valid.labels, type_size(model->backend->type));
}

static Err valid_batch(Task *task, uint64_t *next, TaskBatch *out) {
  ClassifyTask *t = (ClassifyTask *)task;
  if (*next == 0) classify_valid_begin(&t->valid);
  TRY(text_buffer_fill_from(&t->batch, &t->data, SPLIT_VALID, next));
  classify_valid_add(&t->valid, t->batch.batch.texts);
  *out = describe_batch(&t->batch);
  return ERR_OK;
}

static Err take_outputs(Task *task, Model *model) {
  ClassifyTask *t = (ClassifyTask *)task;
  const Backend *b = model->backend;
  size_t n = t->batch.batch.texts * t->valid.labels;
  TRY(b->get(b, t->raw, bert_output((const Bert *)model), n * type_size(b->type)));
  type_to_f32(b->type, classify_valid_place(&t->valid), t->raw, n);
  return ERR_OK;
}

static Err score_validation(Task *task, Comm *comm, const ModelLoss *loss, TaskSamples *samples,
                            double value[TASK_METRICS]) {
  ClassifyTask *t = (ClassifyTask *)task;
  (void)loss, (void)samples;
  comm_report(comm, COMM_NO_LIMIT, "validation, scores");
  return classify_valid_score(&t->valid, comm, value);
}

_Static_assert((int)METRIC_COUNT <= TASK_METRICS, "raise TASK_METRICS");

/* ---- options ---- */

static const OptSpec label_options[] = {
    NAMED(
        "class-weights", "WEIGHTS", "none", "none|balanced", "train", "Labels",
        "Weights of the classes in the loss: none; balanced, inverse to the number of texts of "
        "a class; or a list of numbers in the order of labels.txt, as 1,2.5"),
    CHOICE("metric", "NAME", "auto",
           "auto|loss=log-loss=mse|accuracy|macro-f1=f1|auc=roc-auc|micro-f1|average-precision|"
           "mcc|ece|mae|pearson",
           "train", "Validation and checkpoints",
           "Metric that selects the best checkpoint and that --patience compares; auto is "
           "macro-f1, or loss if the labels are numbers"),
    {0},
};
static const OptSpec *const options[] = {label_options, NULL};

static Err read_options(void *own, const OptSet *opts) {
  ClassifyOptions *o = own;
  o->class_weights = opt_text(opts, "class-weights");
  o->metric = opt_text(opts, "metric");
  return ERR_OK;
}

/* Linear warm-up and decay, AdamW without decay of biases and norms: as BERT was fine-tuned. */
static const char defaults[] =
    "optimizer = adamw\n"
    "beta2 = 0.999\n"
    "epsilon = 1e-8\n"
    "weight-decay = 0.01\n"
    "decay-biases = no\n"
    "clip-norm = 1\n"
    "lr-scheduler = polynomial\n"
    "warmup-steps = 1000\n"
    "label-smoothing = 0\n"
    "epochs = 3\n"
    "valid-every = 200\n"
    "save-every = 200\n"
    "average-checkpoints = 0\n";

/* Larger models need smaller steps; that of bert-base is the one of Devlin et al. (2019). */
static double choose_lr(const ModelConfig *config) {
  int d = bert_config(config)->d_model;
  if (d <= 128) return 5e-4;
  if (d <= 256) return 3e-4;
  if (d <= 512) return 1e-4;
  return d <= 768 ? 5e-5 : 3e-5;
}

const TaskKind classify_task = {
    .name = "classify",
    .family = &bert_family,
    .options = options,
    .defaults = defaults,
    .option_bytes = sizeof(ClassifyOptions),
    .read_options = read_options,
    .default_lr = choose_lr,
    .max_warmup = 0.1,
    .inspect = classify_inspect,
    .sums = {"loss", "nll", "accuracy"},
    .shown_sum = 1, /* the loss without class weights and label smoothing, as in validation */
    .predictions = "labels",
    .predictions_per_s = "labels_per_s",
    .examples = "texts",
    .examples_per_s = "texts_per_s",
    .tokens_per_s = "tokens_per_s",
    .predictions_total = "labels",
    .examples_total = "texts",
    .predictions_done = "labels",
    .capacity_unit = "tokens",
    .metrics = {[METRIC_LOSS] = {"loss", 4, "valid_nll", "average_nll",
                                 .lower_is_better = true},
                [METRIC_ACCURACY] = {"accuracy", 4, "valid_accuracy", "average_accuracy"},
                [METRIC_F1_MACRO] = {"macro-F1", 4, "valid_f1_macro", "average_f1_macro"},
                [METRIC_AUC] = {"AUC", 4, "valid_auc", "average_auc"},
                [METRIC_F1_MICRO] = {"micro-F1", 4, "valid_f1_micro", "average_f1_micro",
                                     .is_hidden = true},
                [METRIC_AVERAGE_PRECISION] = {"average precision", 4, "valid_average_precision",
                                              "average_average_precision", .is_hidden = true},
                [METRIC_MCC] = {"MCC", 4, "valid_mcc", "average_mcc", .is_hidden = true},
                [METRIC_ECE] = {"ECE", 4, "valid_ece", "average_ece", .lower_is_better = true,
                                .is_hidden = true},
                [METRIC_MAE] = {"MAE", 4, "valid_mae", "average_mae", .lower_is_better = true},
                [METRIC_PEARSON] = {"correlation", 4, "valid_pearson", "average_pearson"}},
    .open = open_task,
    .close = close_task,
    .describe = describe_data,
    .plan_batches = plan_batches,
    .open_loader = open_loader,
    .next_batch = next_batch,
    .begin_model = begin_model,
    .prepare = prepare_validation,
    .valid_batch = valid_batch,
    .take_outputs = take_outputs,
    .score = score_validation,
};
