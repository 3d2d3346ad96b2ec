/* The translation task: packed batches of sentence pairs; validation translates the validation
 * text with beam search and scores it with BLEU. Depends on data, decode, metric, task.h. */
#include "train/task_translate.h"

#include <inttypes.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/opt_rows.h"
#include "base/place.h"
#include "base/progress.h"
#include "base/stop.h"
#include "decode/translate.h"
#include "metric/metric.h"
#include "model/transformer.h"
#include "train/agree.h"
#include "train/pass.h"
#include "train/samples.h"

/* Largest number of source tokens in a batch of the validation on a device. */
#define MAX_TOKENS_DEVICE 16384
/* Largest number of source tokens in a batch of the validation on a CPU. */
#define MAX_TOKENS_HOST 2048

#define PROGRESS_PERIOD 15 /* seconds between two progress lines of a validation */

enum { NLL, BLEU }; /* the metrics */

typedef struct {
  Task task;
  TranslateOptions options;
  DataSet data;
  OrderPlan plan;
  Tokenizer tokenizer;
  Loader *loader;
  /* Members for the validation: */
  Model *model;
  Translator *translator;
  Batch batch;
  PlacePin text[2]; /* the files valid.src and valid.ref */
  Line *line[2];
  size_t lines;
  Line *own; /* the lines that this rank translates */
  /* Lengths of `own` in tokens, in descending order; number of lines in `own`. */
  size_t *length, own_lines;
} TranslateTask;

static size_t max_positions(const TranslateTask *t) {
  return (size_t)transformer_config(&t->task.config)->max_positions;
}

/* Splits a mapped file into lines. Fails if it has fewer lines than the data set. */
static Err split_lines(const PlacePin *map, Line *line, size_t lines) {
  const char *at = (const char *)map->bytes, *end = at + map->size;
  for (size_t i = 0; i < lines; i++) {
    const char *newline = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    if (!newline)
      return err_set(ERR_WORK, "%s has fewer than %zu lines; prepare the data set again",
                     map->path, lines);
    line[i] = (Line){at, (size_t)(newline - at)};
    at = newline + 1;
  }
  return ERR_OK;
}

static Err select_own_lines(TranslateTask *t, const Comm *comm) {
  TRY(mem_alloc(&t->own, t->lines, sizeof *t->own));
  TRY(mem_alloc(&t->length, t->lines, sizeof *t->length));
  for (size_t i = 0; i < t->lines; i++)
    if (comm_owns(comm, i)) t->own[t->own_lines++] = t->line[0][i];
  return translator_lengths(&t->tokenizer, max_positions(t), t->own, t->own_lines, t->length);
}

static Err open_validation(TranslateTask *t, const Comm *comm) {
  const MetaSplit *split = &t->data.meta.split[SPLIT_VALID];
  t->lines = (size_t)split->lines;
  t->task.valid_examples = split->pairs;
  for (int side = 0; side < 2; side++) {
    char path[FILE_PATH_MAX];
    TRY(dataset_path(&t->data, split->raw[side].name, path));
    /* Verify the checksum: other references would give another BLEU and another best
     * checkpoint. */
    TRY(dataset_verify_file(&t->data, &split->raw[side]));
    TRY(place_pin_file(&t->text[side], path));
    TRY(mem_alloc(&t->line[side], t->lines, sizeof *t->line[side]));
    TRY(split_lines(&t->text[side], t->line[side], t->lines));
  }
  return select_own_lines(t, comm);
}

/* Takes vocabulary size, special ids and maximum length from the data set. */
static ModelConfig complete_config(const ModelConfig *given, const Meta *meta) {
  TransformerConfig c = *transformer_config(given);
  c.vocab = meta->vocab;
  c.bos = meta->bos;
  c.eos = meta->eos;
  c.pad = meta->pad;
  c.max_positions = (int)meta->max_tokens + 1;
  return transformer_model_config(&c);
}

static Err open_data(TranslateTask *t, const TaskSpec *spec) {
  Task *task = &t->task;
  TRY(dataset_open(&t->data, spec->data));
  memcpy(task->data, t->data.dir, sizeof task->data);
  TRY(agree_data_hash(&t->data, task->data_hash));
  ModelFile *file = &task->file[task->files++];
  file->what = "tokenizer";
  file->name = "tokenizer.model";
  TRY(dataset_path(&t->data, file->name, file->path));
  const MetaSplit *s = &t->data.meta.split[SPLIT_TRAIN];
  task->tokens = (s->tokens[0] > s->tokens[1] ? s->tokens[0] : s->tokens[1]) + s->pairs;
  task->config = complete_config(spec->config, &t->data.meta);
  return ERR_OK;
}

static void close_task(Task *task) {
  TranslateTask *t = (TranslateTask *)task;
  if (!t) return;
  loader_close(t->loader);
  translator_free(t->translator);
  batch_free(&t->batch);
  mem_free(t->own);
  mem_free(t->length);
  for (int side = 0; side < 2; side++) {
    mem_free(t->line[side]);
    place_unpin(&t->text[side]);
  }
  tokenizer_close(&t->tokenizer);
  order_plan_free(&t->plan);
  dataset_close(&t->data);
  mem_free(t);
}

static Err open_task(Task **out, const TaskSpec *spec) {
  TranslateTask *t;
  *out = NULL;
  if (!transformer_config(spec->config))
    return err_set(
        ERR_USAGE,
        "a model of family %s cannot be trained to translate; use a Transformer model",
        spec->config->family->name);
  TRY(mem_alloc(&t, 1, sizeof *t));
  t->task.kind = &translate_task;
  t->task.decisive = BLEU;
  t->options = *(const TranslateOptions *)spec->options;
  Err err = open_data(t, spec);
  if (!err) err = tokenizer_open(&t->tokenizer, t->task.file[0].path);
  if (!err && spec->validates) err = open_validation(t, spec->comm);
  if (err)
    close_task(&t->task);
  else
    *out = &t->task;
  return err;
}

static void describe_data(const Task *task) {
  const TranslateTask *t = (const TranslateTask *)task;
  const Meta *m = &t->data.meta;
  char pairs[32];
  dataset_warn_windows(&t->data);
  log_info("data     %s: %s pairs, %s to %s, vocabulary %d", t->data.dir,
           str_of_count(pairs, t->data.order.pairs), m->lang[0], m->lang[1], m->vocab);
}

/* Fails if a validation sentence does not fit into a batch. Otherwise the run would fail at its
 * first validation. */
static Err check_valid_length(const TranslateTask *t, uint32_t capacity) {
  const uint64_t *longest = t->data.meta.split[SPLIT_VALID].longest;
  uint64_t need = (longest[0] > longest[1] ? longest[0] : longest[1]) + 1;
  if (!t->task.valid_examples || need <= capacity) return ERR_OK;
  return err_set(
      ERR_USAGE,
      "a batch of %u tokens a side cannot hold the longest sentence of the validation "
      "text, %" PRIu64 " tokens with its end mark; give --batch-tokens %" PRIu64
      " or more, or --valid-every 0",
      capacity, need, need);
}

static Err plan_batches(Task *task, uint32_t capacity) {
  TranslateTask *t = (TranslateTask *)task;
  TRY(order_plan(&t->plan, &t->data.order, capacity));
  task->capacity = t->plan.capacity;
  task->batches = t->plan.batches;
  task->fill = t->plan.fill;
  return check_valid_length(t, capacity);
}

static Err open_loader(Task *task, const LoaderSpec *spec) {
  TranslateTask *t = (TranslateTask *)task;
  loader_close(t->loader);
  t->loader = NULL;
  return loader_open(&t->loader, &t->data, &t->plan, spec);
}

static TaskBatch describe_batch(const Batch *b) {
  return (TaskBatch){.data = b,
                     .examples = b->sentences,
                     .predictions = b->rows[1],
                     .tokens = {b->rows[0], b->rows[1]}};
}

static Err next_batch(Task *task, TaskBatch *out) {
  TranslateTask *t = (TranslateTask *)task;
  const Batch *batch;
  TRY(loader_next(t->loader, &batch));
  *out = describe_batch(batch);
  return ERR_OK;
}

static Err valid_batch(Task *task, uint64_t *next, TaskBatch *out) {
  TranslateTask *t = (TranslateTask *)task;
  TRY(batch_fill_from(&t->batch, &t->data, SPLIT_VALID, next));
  *out = describe_batch(&t->batch);
  return ERR_OK;
}

/* Chooses the batch size of validations: not larger than in training, because the device has
 * little memory left. */
static TranslateRoom size_batches(const TranslateTask *t, const Backend *b, size_t capacity) {
  size_t tokens, sentences, longest = max_positions(t);
  size_t most = b->host ? MAX_TOKENS_HOST : MAX_TOKENS_DEVICE;
  translator_batch(b, b->host || capacity > most ? most : capacity, longest,
                   t->options.beam.beam_size, &tokens, &sentences);
  return translator_room(&t->options.beam, longest, t->length, t->own_lines, tokens, sentences);
}

static Err count_bytes(const Task *task, const Model *model, size_t capacity, uint64_t *bytes) {
  const TranslateTask *t = (const TranslateTask *)task;
  const Backend *b = model->backend;
  TranslateRoom room = size_batches(t, b, capacity);
  TRY(beam_bytes(transformer_config(&model->config), b, &t->options.beam, room.tokens,
                 room.sentences, room.words, bytes));
  /* On a backend that packs weights, beam search needs a packed copy of the weights. */
  if (*bytes && b->pack) *bytes += model->params.padded * sizeof(float);
  return ERR_OK;
}

static Err prepare_validation(Task *task, Model *model, Weights w) {
  TranslateTask *t = (TranslateTask *)task;
  TranslateRoom room = size_batches(t, model->backend, model->capacity);
  t->model = model;
  TRY(batch_new(&t->batch, (uint32_t)model->capacity, (uint32_t)model->capacity / 2 + 1));
  return translator_new_for(&t->translator, transformer_config(&model->config), model->backend,
                            w, &t->tokenizer, &t->options.beam, &room);
}

/* Appends a translation, as one line, to the translations of this rank. */
static Err add_translation(void *context, size_t i, int k, const char *translation,
                           float score) {
  Str *text = context;
  (void)i, (void)k, (void)score;
  size_t begin = text->len;
  str_addf(text, "%s\n", translation);
  for (size_t c = begin; c + 1 < text->len; c++)
    if (text->s[c] == '\n') text->s[c] = ' ';
  return str_check(text);
}

typedef struct {
  const TranslateTask *task;
  Comm *comm;
  /* Times at which the search began and at which progress was last printed. */
  double start, shown;
  double period; /* seconds between two progress lines */
} SearchProgress;

/* Prints the progress of rank 0, every `period` seconds. The other ranks translate about as
 * many sentences. */
static void show_progress(SearchProgress *p) {
  double now = progress_clock();
  if (comm_rank(p->comm) != 0 || now - p->shown < p->period) return;
  char done[32], all[32], time[32];
  log_live("valid    %s of %s sentences translated%s, %s so far",
           str_of_count(done, translator_done(p->task->translator)),
           str_of_count(all, p->task->own_lines),
           p->task->own_lines < p->task->lines ? " on rank 0" : "",
           str_of_seconds(time, now - p->start));
  p->shown = now;
}

/* Called before each step of the beam search: reports progress to the other ranks, and returns
 * ERR_STOPPED after a signal. */
static Err report_step(void *context) {
  SearchProgress *p = context;
  show_progress(p);
  comm_report(p->comm, pass_limit(p->task->model), "validation, translating");
  fault_point("validation");
  return stop_asked() ? err_set(ERR_STOPPED, "stopped within a validation") : ERR_OK;
}

static Err translate_lines(TranslateTask *t, Comm *comm, Str *text) {
  double now = progress_clock();
  double period = (double)fault_number("valid-progress", PROGRESS_PERIOD);
  SearchProgress progress = {t, comm, now, now, period};
  size_t cut;
  translator_on_step(t->translator, report_step, &progress);
  Err err = translator_run(t->translator, t->own, t->own_lines, add_translation, text, &cut);
  translator_on_step(t->translator, NULL, NULL);
  if (err && err != ERR_STOPPED) return err;
  double stopped = err == ERR_STOPPED; /* if one rank was stopped, all stop */
  comm_sum(comm, "validation stopped", &stopped, 1);
  return stopped > 0 ? err_set(ERR_STOPPED, "stopped within a validation") : ERR_OK;
}

static void show_sample(const TranslateTask *t, size_t i, const char *text, size_t len,
                        TaskSamples *samples) {
  static const char *const names[] = {"source", "translation", "reference"};
  samples_begin(samples, names, sizeof names / sizeof *names);
  samples_add_cell(samples, t->line[0][i].text, t->line[0][i].len);
  samples_add_cell(samples, text, len);
  samples_add_cell(samples, t->line[1][i].text, t->line[1][i].len);
  samples->rows++;
  log_info("  %.*s", (int)t->line[0][i].len, t->line[0][i].text);
  log_info("    -> %.*s", (int)len, text);
  log_info("    == %.*s", (int)t->line[1][i].len, t->line[1][i].text);
}

/* Scores the translations of all ranks. list[r] contains the translations of rank r's lines, in
 * order. */
static Err score_lines(const TranslateTask *t, const Comm *comm, char **list,
                       TaskSamples *samples, double *bleu) {
  Metric *metric;
  MetricScore score = {0};
  TRY(metric_open(&metric, &(MetricConfig){.kind = METRIC_BLEU}));
  Err err = ERR_OK;
  for (size_t i = 0; i < t->lines && !err; i++) {
    char **at = &list[comm_owner(comm, i)];
    size_t len = strcspn(*at, "\n");
    MetricText reference = {t->line[1][i].text, t->line[1][i].len};
    if (samples && (int)i < t->options.samples) show_sample(t, i, *at, len, samples);
    err = metric_add(metric, (MetricText){*at, len}, &reference, 1);
    if (samples) str_addf(&samples->outputs, "%.*s\n", (int)len, *at);
    *at += len + 1;
  }
  if (!err && samples) err = str_check(&samples->cells);
  if (!err && samples) err = str_check(&samples->outputs);
  if (!err) metric_score(metric, &score);
  metric_close(metric);
  *bleu = score.score;
  return err;
}

static const OptSpec search_options[] = {
    COUNT("beam-size", "N", "4", 1, 64, "train", "Search", "Beam size"),
    REAL("length-penalty", "P", "0.6", 0, 10, "train", "Search",
         "Exponent of the length penalty: scores are divided by ((5 + length) / 6)^P"),
    {0},
};
static const OptSpec *const options[] = {search_options, sample_options, NULL};
static const char *const free_options[] = {"beam-size", "length-penalty", "samples", NULL};

static Err read_options(void *own, const OptSet *opts) {
  TranslateOptions *o = own;
  o->samples = (int)opt_count(opts, "samples");
  o->beam = (BeamSpec){.beam_size = (int)opt_count(opts, "beam-size"),
                       .length_penalty = (float)opt_real(opts, "length-penalty"),
                       .extra_length = 50,
                       .nbest = 1};
  return ERR_OK;
}

static Err score_validation(Task *task, Comm *comm, const ModelLoss *loss, TaskSamples *samples,
                            double value[TASK_METRICS]) {
  TranslateTask *t = (TranslateTask *)task;
  Str text = {0};
  char **list = NULL;
  Err err;
  value[NLL] = loss->predictions ? loss->sum[1] / (double)loss->predictions : 0;
  TRY_DONE(translate_lines(t, comm, &text));
  TRY_DONE(comm_gather_text(comm, "translations", str_text(&text), text.len, &list));
  if (comm_rank(comm) == 0) TRY_DONE(score_lines(t, comm, list, samples, &value[BLEU]));
done:
  mem_free(list);
  str_free(&text);
  return err;
}

const TaskKind translate_task = {
    .name = "translate",
    .family = &transformer_family,
    .options = options,
    .free_options = free_options,
    .option_bytes = sizeof(TranslateOptions),
    .read_options = read_options,
    .inspect = translate_inspect,
    .sums = {"loss", "nll", "accuracy"},
    /* The loss without label smoothing, which can be compared with the validation loss. */
    .shown_sum = 1,
    .has_perplexity = true,
    .predictions = "tokens",
    .predictions_per_s = "target_tokens_per_s",
    .examples = "pairs",
    .examples_per_s = "pairs_per_s",
    .predictions_total = "target_tokens",
    .examples_total = "pairs",
    .predictions_done = "target tokens",
    .capacity_unit = "tokens a side",
    .metrics = {[NLL] = {"loss", 4, "valid_nll", "average_nll", .lower_is_better = true},
                [BLEU] = {"BLEU", 2, "valid_bleu", "average_bleu", .is_hidden = false}},
    .open = open_task,
    .close = close_task,
    .describe = describe_data,
    .plan_batches = plan_batches,
    .open_loader = open_loader,
    .next_batch = next_batch,
    .score_bytes = count_bytes,
    .prepare = prepare_validation,
    .valid_batch = valid_batch,
    .score = score_validation,
};
