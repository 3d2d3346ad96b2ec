/* The classification task: packed batches of labeled texts for a BERT model; validation computes
 * the scores of a classifier on the validation texts. The labels of the data set determine the
 * head: one class (softmax), several labels (sigmoid), or numbers (squared error). Depends on
 * data, model/bert, class_weights, classify_valid, text_task. */
#include "train/task_classify.h"

#include <math.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/opt_rows.h"
#include "train/class_weights.h"
#include "train/classify_samples.h"
#include "train/classify_valid.h"
#include "train/inspect_classify.h"
#include "train/text_task.h"

typedef struct {
  TextTask texts; /* must be the first member */
  bool has_weights;
  float *weight; /* (labels) class weights, if has_weights */
  /* Members for the validation: */
  ClassifyValid valid;
  ClassifySamples samples; /* rank 0 */
  void *raw;               /* outputs of a batch in the backend's type */
} ClassifyTask;

/* ---- opening ---- */

/* Takes the head from the labels of the data set. */
static Err complete_config(ClassifyTask *t, const ModelConfig *given) {
  static const BertHead heads[] = {[LABEL_CLASS] = BERT_HEAD_SOFTMAX,
                                   [LABEL_MULTI] = BERT_HEAD_SIGMOID,
                                   [LABEL_NUMBER] = BERT_HEAD_SQUARE};
  const MetaClassify *labels = t->texts.data.meta.classify;
  BertConfig c = text_task_config(&t->texts, given);
  c.head = heads[labels->kind];
  c.labels = (int)labels->labels;
  t->texts.task.config = bert_model_config(&c);
  return bert_check_config(&c);
}

static Err open_data(ClassifyTask *t, const TaskSpec *spec) {
  TRY(text_task_open(&t->texts, spec, dataset_open_texts));
  TRY(text_task_add_file(&t->texts, "list of labels", "labels.txt"));
  /* The backend counts the texts whose prediction is right, but predictions are counted per
   * label. */
  t->texts.task.hides_sum[2] = t->texts.data.meta.classify->kind != LABEL_CLASS;
  return complete_config(t, spec->config);
}

static Err open_weights(ClassifyTask *t, const char *text) {
  TRY(mem_alloc(&t->weight, t->texts.data.meta.classify->labels, sizeof *t->weight));
  return class_weights_read(text, &t->texts.data.meta, &t->has_weights, t->weight);
}

/* The squared error of numbers has no probabilities to smooth. */
static Err check_smoothing(const ClassifyTask *t, double smoothing) {
  const Meta *m = &t->texts.data.meta;
  if (m->classify->kind != LABEL_NUMBER || smoothing == 0) return ERR_OK;
  return err_set(ERR_USAGE,
                 "--label-smoothing %g needs classes, but the labels of this data set are "
                 "numbers; leave it out, or pass --label-smoothing 0",
                 smoothing);
}

static Err open_validation(ClassifyTask *t, const TaskSpec *spec) {
  const ClassifyOptions *options = spec->options;
  bool is_shown = comm_rank(spec->comm) == 0;
  TRY(classify_valid_open(&t->valid, &t->texts.data));
  t->texts.task.valid_examples = t->valid.texts;
  if (is_shown && !t->valid.texts && strcmp(options->metric, "auto") != 0)
    log_warn("--metric %s has no effect: the data set has no validation texts",
             options->metric);
  TRY(classify_samples_open(&t->samples, &t->texts.data, is_shown ? options->samples : 0));
  return classify_valid_choose(&t->valid, options->metric, &t->texts.task.decisive);
}

static void close_task(Task *task) {
  ClassifyTask *t = (ClassifyTask *)task;
  if (!t) return;
  text_task_close(&t->texts);
  classify_valid_free(&t->valid);
  classify_samples_free(&t->samples);
  mem_free(t->raw);
  mem_free(t->weight);
  mem_free(t);
}

static Err open_task(Task **out, const TaskSpec *spec) {
  const ClassifyOptions *options = spec->options;
  ClassifyTask *t;
  *out = NULL;
  TRY(text_task_check_family(spec->config, "classify"));
  TRY(mem_alloc(&t, 1, sizeof *t));
  t->texts.task.kind = &classify_task;
  Err err = open_data(t, spec);
  if (!err) err = open_weights(t, options->class_weights);
  if (!err) err = check_smoothing(t, options->smoothing);
  if (!err && spec->validates) err = open_validation(t, spec);
  if (err)
    close_task(&t->texts.task);
  else
    *out = &t->texts.task;
  return err;
}

static void describe_data(const Task *task) {
  static const char *const nouns[] = {
      [LABEL_CLASS] = "classes", [LABEL_MULTI] = "labels", [LABEL_NUMBER] = "numbers"};
  const ClassifyTask *t = (const ClassifyTask *)task;
  const Meta *m = &t->texts.data.meta;
  char texts[32];
  uint64_t examples = t->texts.data.order.pairs;
  bool is_number = m->classify->kind == LABEL_NUMBER && m->classify->labels == 1;
  dataset_warn_windows(&t->texts.data);
  log_info("data     %s: %s %s%s, %zu %s, vocabulary %d", t->texts.data.dir,
           str_of_count(texts, examples), m->classify->texts == 2 ? "pair" : "text",
           str_plural(examples), m->classify->labels,
           is_number ? "number" : nouns[m->classify->kind], m->vocab);
}

/* ---- batches ---- */

/* Counts the labels that are known, each of which is a term of the loss. */
static uint32_t count_labels(const TextBuffer *b) {
  uint32_t n = 0;
  for (size_t i = 0; i < b->batch.texts * b->targets; i++) n += isnan(b->target[i]) ? 0 : 1;
  return n;
}

static TaskBatch describe_batch(const TextBuffer *b) {
  return text_task_batch(b, count_labels(b));
}

static Err next_batch(Task *task, TaskBatch *out) {
  ClassifyTask *t = (ClassifyTask *)task;
  const TextBuffer *batch;
  TRY(text_loader_next(t->texts.loader, &batch));
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
  (void)w;
  TRY(text_task_prepare(&t->texts, model));
  return mem_alloc((char **)&t->raw, t->texts.batch.most_texts * t->valid.labels,
                   type_size(model->backend->type));
}

static Err valid_batch(Task *task, uint64_t *next, TaskBatch *out) {
  ClassifyTask *t = (ClassifyTask *)task;
  if (*next == 0) classify_valid_begin(&t->valid);
  TRY(text_buffer_fill_from(&t->texts.batch, &t->texts.data, SPLIT_VALID, next));
  classify_valid_add(&t->valid, t->texts.batch.batch.texts);
  *out = describe_batch(&t->texts.batch);
  return ERR_OK;
}

static Err take_outputs(Task *task, Model *model) {
  ClassifyTask *t = (ClassifyTask *)task;
  const Backend *b = model->backend;
  size_t n = t->texts.batch.batch.texts * t->valid.labels;
  TRY(b->get(b, t->raw, bert_output((const Bert *)model), n * type_size(b->type)));
  type_to_f32(b->type, classify_valid_place(&t->valid), t->raw, n);
  return ERR_OK;
}

static Err score_validation(Task *task, Comm *comm, const ModelLoss *loss, TaskSamples *samples,
                            double value[TASK_METRICS]) {
  ClassifyTask *t = (ClassifyTask *)task;
  (void)loss;
  comm_report(comm, COMM_NO_LIMIT, "validation, scores");
  TRY(classify_valid_score(&t->valid, comm, value));
  if (!samples || comm_rank(comm) != 0) return ERR_OK;
  return classify_samples_show(&t->samples, &t->valid, t->texts.data.meta.classify, samples);
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
static const OptSpec *const options[] = {label_options, sample_options, NULL};
static const char *const free_options[] = {"samples", NULL};

static Err read_options(void *own, const OptSet *opts) {
  ClassifyOptions *o = own;
  o->class_weights = opt_text(opts, "class-weights");
  o->metric = opt_text(opts, "metric");
  o->samples = (size_t)opt_count(opts, "samples");
  o->smoothing = opt_real(opts, "label-smoothing");
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
    .free_options = free_options,
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
                [METRIC_ACCURACY] = {"accuracy", 4, "valid_accuracy", "average_accuracy",
                                     .is_hidden = false},
                [METRIC_F1_MACRO] = {"macro-F1", 4, "valid_f1_macro", "average_f1_macro",
                                     .is_hidden = false},
                [METRIC_AUC] = {"AUC", 4, "valid_auc", "average_auc", .is_hidden = false},
                [METRIC_F1_MICRO] = {"micro-F1", 4, "valid_f1_micro", "average_f1_micro",
                                     .is_hidden = true},
                [METRIC_AVERAGE_PRECISION] = {"average precision", 4, "valid_average_precision",
                                              "average_average_precision", .is_hidden = true},
                [METRIC_MCC] = {"MCC", 4, "valid_mcc", "average_mcc", .is_hidden = true},
                [METRIC_ECE] = {"ECE", 4, "valid_ece", "average_ece", .lower_is_better = true,
                                .is_hidden = true},
                [METRIC_MAE] = {"MAE", 4, "valid_mae", "average_mae", .lower_is_better = true},
                [METRIC_PEARSON] = {"correlation", 4, "valid_pearson", "average_pearson",
                                    .is_hidden = false}},
    .open = open_task,
    .close = close_task,
    .describe = describe_data,
    .plan_batches = text_task_plan_batches,
    .open_loader = text_task_open_loader,
    .next_batch = next_batch,
    .begin_model = begin_model,
    .prepare = prepare_validation,
    .valid_batch = valid_batch,
    .take_outputs = take_outputs,
    .score = score_validation,
};
