/* Masked language models: BERT is pretrained on texts without labels. Tokens are masked when a batch is
 * filled (data/text_mask.h); the loss is the cross entropy of their true ids, and validation has the same
 * masks every time. The encoder of the result is what a classifier starts from. Depends on data,
 * model/bert, text_task. */
#include "train/task_mlm.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/opt_rows.h"
#include "data/text_encoder.h"
#include "train/inspect_classify.h"
#include "train/text_task.h"

static void close_task(Task *task) {
  TextTask *t = (TextTask *)task;
  if (!t) return;
  text_task_close(t);
  mem_free(t);
}

static Err complete_config(TextTask *t, const ModelConfig *given) {
  BertConfig c = text_task_config(t, given);
  c.head = BERT_HEAD_MLM;
  c.labels = 0;
  c.pooler = BERT_POOLER_NONE;
  t->task.config = bert_model_config(&c);
  return bert_check_config(&c);
}

/* Texts with labels may have a tokenizer without [MASK]: the <pad> of a SentencePiece model then takes its
 * place, as in prepare --task mlm. */
static Err find_mask(DataSet *d) {
  MetaClassify *c = d->meta.classify;
  static const char *const piece[TEXT_TOKENIZERS] = {"[MASK]", "<pad>", "<mask>"};
  TextTokenizer kind = text_tokenizer_kind(c->tokenizer_file);
  if (c->mask < 0 && kind == TEXT_SENTENCEPIECE) c->mask = d->meta.pad;
  if (c->mask >= 0) return ERR_OK;
  return err_set(ERR_USAGE,
                 "the vocabulary of %s has no piece %s, which takes the place of masked "
                 "tokens; prepare the data set with one that has it",
                 d->dir, piece[kind]);
}

/* Texts with labels may all be empty; prepare --task mlm refuses that. */
static Err check_words(const DataSet *d) {
  const MetaTextCounts *counts = &d->meta.classify->counts[SPLIT_TRAIN];
  bool is_empty =
      d->meta.classify->kind != LABEL_NONE && counts->empty >= d->meta.split[SPLIT_TRAIN].pairs;
  if (!is_empty) return ERR_OK;
  return err_set(ERR_USAGE, "no training text of %s has a word", d->dir);
}

/* Texts with labels serve as well as those without; the labels are not used. */
static Err open_data(DataSet *d, const char *dir) {
  TRY(dataset_open_any_texts(d, dir));
  Err err = find_mask(d);
  if (!err) err = check_words(d);
  if (err) dataset_close(d);
  return err;
}

static Err open_task(Task **out, const TaskSpec *spec) {
  const MlmOptions *options = spec->options;
  TextTask *t;
  *out = NULL;
  TRY(text_task_check_family(spec->config, "predict masked tokens"));
  TRY(mem_alloc(&t, 1, sizeof *t));
  t->task.kind = &mlm_task;
  t->mask_rate = options->mask_rate;
  Err err = text_task_open(t, spec, open_data);
  if (!err) err = complete_config(t, spec->config);
  if (!err && spec->validates) t->task.valid_examples = t->data.meta.split[SPLIT_VALID].pairs;
  if (err)
    close_task(&t->task);
  else
    *out = &t->task;
  return err;
}

static void describe_data(const Task *task) {
  const TextTask *t = (const TextTask *)task;
  char texts[32], tokens[32];
  dataset_warn_windows(&t->data);
  log_info("data     %s: %s text%s, %s tokens, vocabulary %d; %g %% of the tokens are masked",
           t->data.dir, str_of_count(texts, t->data.order.pairs),
           str_plural(t->data.order.pairs), str_of_count(tokens, task->tokens),
           t->data.meta.vocab, 100 * t->mask_rate);
}

static Err next_batch(Task *task, TaskBatch *out) {
  TextTask *t = (TextTask *)task;
  const TextBuffer *batch;
  TRY(text_loader_next(t->loader, &batch));
  *out = text_task_batch(batch, batch->batch.masked);
  return ERR_OK;
}

static Err prepare_validation(Task *task, Model *model, Weights w) {
  (void)w;
  return text_task_prepare((TextTask *)task, model);
}

static Err valid_batch(Task *task, uint64_t *next, TaskBatch *out) {
  TextTask *t = (TextTask *)task;
  TRY(text_buffer_fill_from(&t->batch, &t->data, SPLIT_VALID, next));
  *out = text_task_batch(&t->batch, t->batch.batch.masked);
  return ERR_OK;
}

enum { NLL, ACCURACY };

static Err score_validation(Task *task, Comm *comm, const ModelLoss *loss, TaskSamples *samples,
                            double value[TASK_METRICS]) {
  double n = loss->predictions ? (double)loss->predictions : 1;
  (void)task, (void)comm, (void)samples;
  value[NLL] = loss->sum[1] / n;
  value[ACCURACY] = loss->sum[2] / n;
  return ERR_OK;
}

static const OptSpec mask_options[] = {
    REAL(
        "mask-rate", "P", "0.15", 0.01, 0.9, "train", "Masking",
        "Share of the tokens that a masked language model predicts. Of these 80 % are replaced "
        "by [MASK], 10 % by a random token, and 10 % stay"),
    {0},
};
static const OptSpec *const options[] = {mask_options, NULL};

static Err read_options(void *own, const OptSet *opts) {
  MlmOptions *o = own;
  o->mask_rate = opt_real(opts, "mask-rate");
  return ERR_OK;
}

/* AdamW without decay of biases and norms, linear warm-up and decay: as BERT was pretrained. */
static const char defaults[] =
    "optimizer = adamw\n"
    "beta2 = 0.999\n"
    "epsilon = 1e-6\n"
    "weight-decay = 0.01\n"
    "decay-biases = no\n"
    "clip-norm = 1\n"
    "lr-scheduler = polynomial\n"
    "warmup-steps = 1000\n"
    "label-smoothing = 0\n"
    "epochs = 10\n"
    "average-checkpoints = 0\n";

/* Larger models need smaller steps; that of bert-base is the one of Devlin et al. (2019). */
static double choose_lr(const ModelConfig *config) {
  int d = bert_config(config)->d_model;
  if (d <= 256) return 1e-3;
  return d <= 512 ? 5e-4 : 1e-4;
}

const TaskKind mlm_task = {
    .name = "mlm",
    .family = &bert_family,
    .options = options,
    .defaults = defaults,
    .option_bytes = sizeof(MlmOptions),
    .read_options = read_options,
    .default_lr = choose_lr,
    .max_warmup = 0.1,
    .inspect = mlm_inspect,
    .sums = {"loss", "nll", "accuracy"},
    .shown_sum = 1, /* the loss without label smoothing, as in validation */
    .has_perplexity = true,
    .predictions = "masked tokens",
    .predictions_per_s = "masked_tokens_per_s",
    .examples = "texts",
    .examples_per_s = "texts_per_s",
    .tokens_per_s = "tokens_per_s",
    .predictions_total = "masked_tokens",
    .examples_total = "texts",
    .predictions_done = "masked tokens",
    .capacity_unit = "tokens",
    .metrics = {[NLL] = {"loss", 4, "valid_nll", "average_nll", .lower_is_better = true},
                [ACCURACY] = {"accuracy", 4, "valid_accuracy", "average_accuracy",
                              .is_hidden = false}},
    .open = open_task,
    .close = close_task,
    .describe = describe_data,
    .plan_batches = text_task_plan_batches,
    .open_loader = text_task_open_loader,
    .next_batch = next_batch,
    .prepare = prepare_validation,
    .valid_batch = valid_batch,
    .score = score_validation,
};
