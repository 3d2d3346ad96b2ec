/* A model family and a task that are defined only here, for test_family.c: a bag-of-words
 * regressor that predicts a number for each text. model_families ends the first part,
 * train_tasks the second. */
#ifndef TESTS_RATING_TASK_H
#define TESTS_RATING_TASK_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/opt_rows.h"
#include "base/rng.h"
#include "model/store.h"
#include "support.h"
#include "train/task.h"

#define VOCAB       40
#define TEXT_WORDS  5
#define BATCH_TEXTS 8
#define VALID_TEXTS 20
#define EPOCH       16 /* number of batches per epoch */

/* The family: prediction = bias + sum of the weights of the words. */

typedef struct {
  int vocab;
  float l2; /* a float field that may change when a run is resumed */
} BagConfig;

typedef struct {
  uint32_t texts;
  int32_t word[BATCH_TEXTS][TEXT_WORDS];
  float label[BATCH_TEXTS];
} BagBatch;

typedef struct {
  Model model;
  size_t weight, bias; /* offsets in the flat array */
  BagBatch current;
} Bag;

static const ModelFamily bag_family;

static const ConfigField bag_fields[] = {
    {.key = "vocab", .kind = FIELD_INT, .min = 1, .max = 1000, CONFIG_FIELD(BagConfig, vocab)},
    {.key = "l2",
     .kind = FIELD_FLOAT,
     .max = 1,
     .may_change = true,
     CONFIG_FIELD(BagConfig, l2)},
    {0},
};

static ModelConfig bag_config(BagConfig own) {
  ModelConfig c = {.family = &bag_family};
  memcpy(c.own, &own, sizeof own);
  return c;
}

static BagConfig own_config(const ModelConfig *config) {
  BagConfig own;
  memcpy(&own, config->own, sizeof own);
  return own;
}

static Err check_bag(const ModelConfig *config) {
  return own_config(config).vocab % 2 ? err_set(ERR_USAGE, "an odd vocabulary") : ERR_OK;
}

static const OptSpec penalty_options[] = {
    REAL("l2", "P", NULL, 0, 1, "train", "Model", "Penalty; by default the preset's"),
    {0},
};
static const OptSpec *const bag_options[] = {penalty_options, NULL};

static Err configure_bag(ModelConfig *config, const OptSet *opts) {
  BagConfig own = {.l2 = strcmp(opt_text(opts, "preset"), "strict") == 0 ? 0.5f : 0.125f};
  if (opt_text(opts, "l2")) own.l2 = (float)opt_real(opts, "l2");
  *config = bag_config(own);
  return ERR_OK;
}

static void describe_bag(const ModelConfig *config, char *out, size_t size) {
  snprintf(out, size, "bag of %d words", own_config(config).vocab);
}

static ModelShape shape_bag(const ModelConfig *config) {
  size_t vocab = (size_t)own_config(config).vocab;
  return (ModelShape){.max_tokens = TEXT_WORDS,
                      .d_model = 1,
                      .ffn_dim = 1,
                      .head_dim = 8,
                      .vocab = vocab,
                      .gemm_widths = {1},
                      .gemm_weights = {1}};
}

static Err lay_out_bag(Params *p, size_t vocab, size_t *weight, size_t *bias) {
  Err err = ERR_OK;
  /* One layer, the weights of the words, and a bias after it. */
  p->layers = 1;
  p->depth = 1;
  *weight = params_add(p, &err, INIT_NORMAL, 0.01, vocab, 1, "word.weight");
  p->depth = 2;
  *bias = params_add(p, &err, INIT_ZERO, 0, 1, 1, "bias");
  params_finish(p);
  return err;
}

static Err bag_params(Params *p, const ModelConfig *config) {
  size_t weight, bias;
  return lay_out_bag(p, (size_t)own_config(config).vocab, &weight, &bias);
}

static Err plan_bag(Model *m, const ModelSpec *spec) {
  Bag *bag = (Bag *)m;
  size_t vocab = (size_t)own_config(spec->config).vocab;
  return lay_out_bag(&m->params, vocab, &bag->weight, &bag->bias);
}

static void bag_memory(Model *m, Arena *arena) {
  m->sums = arena_take(arena, MODEL_SUMS, sizeof *m->sums);
}

static void load_bag(Model *m, const void *batch, StepKey key) {
  Bag *bag = (Bag *)m;
  (void)key;
  bag->current = *(const BagBatch *)batch;
  m->predictions += bag->current.texts;
  m->shape[0] = bag->current.texts;
}

/* Computes squared and absolute error, and the gradient of the squared error. */
static void run_bag(Model *m, Weights w, float *g, const ModelPass *pass) {
  Bag *bag = (Bag *)m;
  const BagBatch *b = &bag->current;
  if (g && m->first) memset(g, 0, m->params.padded * sizeof *g);
  for (uint32_t i = 0; i < b->texts; i++) {
    float y = w.full[bag->bias];
    for (int k = 0; k < TEXT_WORDS; k++) y += w.full[bag->weight + (size_t)b->word[i][k]];
    float error = y - b->label[i];
    m->sums[0] += (double)(error * error);
    m->sums[1] += fabs((double)error);
    if (!g) continue;
    float slope = 2 * error * pass->scale;
    g[bag->bias] += slope;
    for (int k = 0; k < TEXT_WORDS; k++) g[bag->weight + (size_t)b->word[i][k]] += slope;
  }
  if (g && pass->ready) pass->ready(pass->context, 0, m->params.padded);
}

static void announce_bag(const Model *m, GradReady ready, void *context) {
  ready(context, 0, m->params.padded);
}

static const ModelFamily bag_family = {.name = "bag of words",
                                       .format = "test-bag-of-words",
                                       .bytes = sizeof(Bag),
                                       .fields = bag_fields,
                                       .check = check_bag,
                                       .presets = "loose|strict",
                                       .default_preset = "loose",
                                       .options = bag_options,
                                       .configure = configure_bag,
                                       .describe = describe_bag,
                                       .shape = shape_bag,
                                       .lay_out_params = bag_params,
                                       .plan = plan_bag,
                                       .lay_out_memory = bag_memory,
                                       .load = load_bag,
                                       .run = run_bag,
                                       .announce = announce_bag};
const ModelFamily *const model_families[] = {&bag_family, NULL};

/* The task: synthetic texts whose labels are computed with hidden weights. Minimises the mean
 * squared error. */

typedef struct {
  float shift; /* added to every label */
} RatingOptions;

typedef struct {
  Task task;
  LoaderSpec loader;
  uint64_t loaded;
  BagBatch batch;
  RatingOptions options;
} Rating;

static const TaskKind rating_task, guess_task;
static int closed;         /* number of calls of close_rating */
static bool words_changed; /* simulates that the files of the data set have changed */
static int decisive;       /* index of the metric that selects the best checkpoint */
/* Metrics of the validations to come, which replace those that are computed; NULL: none. */
static const double (*scripted)[3];
/* Called after the counters of the checkpoint are read and before its arrays are; NULL: nothing. */
static void (*between_reads)(void);

static void fill_texts(BagBatch *b, uint64_t key, uint32_t texts, float shift) {
  Rng rng = {.key = key};
  b->texts = texts;
  for (uint32_t i = 0; i < texts; i++) {
    b->label[i] = 0.5f + shift;
    for (int k = 0; k < TEXT_WORDS; k++) {
      b->word[i][k] = (int32_t)rng_below(&rng, VOCAB);
      b->label[i] += (float)(b->word[i][k] % 7) / 7 - 0.4f;
    }
  }
}

static Err open_rating(Task **out, const TaskSpec *spec) {
  Rating *r;
  TRY(mem_alloc(&r, 1, sizeof *r));
  r->options = *(const RatingOptions *)spec->options;
  BagConfig own = own_config(spec->config);
  own.vocab = VOCAB;
  r->task = (Task){
      .kind = &rating_task, .config = bag_config(own), .tokens = 65536, .decisive = decisive};
  snprintf(r->task.data, sizeof r->task.data, "%s", spec->data);
  memset(r->task.data_hash, 'a', 64);
  r->task.files = 2;
  r->task.file[0] = (ModelFile){.what = "vocabulary", .name = "words.txt"};
  r->task.file[1] = (ModelFile){.what = "list of ratings", .name = "ratings.txt"};
  for (size_t i = 0; i < 2; i++) {
    ModelFile *file = &r->task.file[i];
    TRY(file_join(file->path, scratch, file->name));
    TRY(file_write(file->path, file->what, strlen(file->what) - words_changed));
  }
  if (spec->validates) r->task.valid_examples = VALID_TEXTS;
  *out = &r->task;
  return ERR_OK;
}

static void close_rating(Task *task) {
  closed++;
  mem_free(task);
}

static void describe_rating(const Task *task) {
  log_info("data     %s: texts and ratings", task->data);
}

static Err plan_rating(Task *task, uint32_t capacity) {
  if (between_reads) between_reads();
  task->capacity = capacity;
  task->batches = EPOCH;
  task->fill = 1;
  return ERR_OK;
}

static Err open_rating_loader(Task *task, const LoaderSpec *spec) {
  Rating *r = (Rating *)task;
  r->loader = *spec;
  r->loaded = 0;
  return ERR_OK;
}

static Err next_rating(Task *task, TaskBatch *out) {
  Rating *r = (Rating *)task;
  const LoaderSpec *s = &r->loader;
  uint64_t mine = (s->end - s->begin + s->stride - 1) / s->stride;
  uint64_t n = r->loaded++;
  uint64_t number = (s->step + n / mine) * s->group + s->begin + n % mine * s->stride;
  fill_texts(&r->batch, number % EPOCH, BATCH_TEXTS, r->options.shift);
  *out = (TaskBatch){.data = &r->batch, .examples = BATCH_TEXTS, .predictions = BATCH_TEXTS};
  return ERR_OK;
}

static Err prepare_rating(Task *task, Model *model, Weights w) {
  (void)task, (void)model, (void)w;
  return ERR_OK;
}

static Err valid_rating(Task *task, uint64_t *next, TaskBatch *out) {
  Rating *r = (Rating *)task;
  uint64_t left = VALID_TEXTS - *next;
  uint32_t texts = left < BATCH_TEXTS ? (uint32_t)left : BATCH_TEXTS;
  fill_texts(&r->batch, 1000 + *next, texts, r->options.shift);
  *next += texts;
  *out = (TaskBatch){.data = &r->batch, .examples = texts, .predictions = texts};
  return ERR_OK;
}

static Err score_rating(Task *task, Comm *comm, const ModelLoss *loss, TaskSamples *samples,
                        double value[TASK_METRICS]) {
  (void)task, (void)comm, (void)samples;
  assert_int_equal(loss->predictions, VALID_TEXTS);
  value[0] = loss->sum[0] / (double)loss->predictions;
  value[1] = loss->sum[1] / (double)loss->predictions;
  value[2] = 1 - value[0];
  if (scripted) memcpy(value, *scripted++, sizeof *scripted);
  return ERR_OK;
}

static int inspected; /* number of calls of inspect_rating */

static Err inspect_rating(const OptSet *opts) {
  (void)opts;
  inspected++;
  return ERR_OK;
}

static const OptSpec shift_options[] = {
    REAL("shift", "S", "0", -9, 9, "train", "Labels", "Added to every label"),
    COUNT("shown", "N", "0", 0, 9, "train", "Labels", "Texts to print at each validation"),
    {0},
};
static const OptSpec *const rating_options[] = {shift_options, NULL};
static const char *const free_options[] = {"shown", NULL};
static const char defaults[] =
    "lr-scheduler = constant\n"
    "lr = 0.03\n"
    "warmup-steps = 0\n"
    "beta2 = 0.98\n"
    "label-smoothing = 0\n"
    "batch-tokens = 256\n"
    "micro-batches = 2\n"
    "valid-every = 20\n"
    "save-every = 20\n"
    "log-every = 20\n"
    "average-checkpoints = 2\n";

static Err read_rating_options(void *own, const OptSet *opts) {
  RatingOptions *o = own;
  o->shift = (float)opt_real(opts, "shift");
  return ERR_OK;
}

static const TaskKind rating_task = {
    .name = "rating",
    .family = &bag_family,
    .options = rating_options,
    .free_options = free_options,
    .defaults = defaults,
    .option_bytes = sizeof(RatingOptions),
    .read_options = read_rating_options,
    .inspect = inspect_rating,
    .sums = {"squared_error", "absolute_error"},
    .predictions = "ratings",
    .predictions_per_s = "ratings_per_s",
    .examples = "texts",
    .examples_per_s = "texts_per_s",
    .predictions_total = "ratings",
    .examples_total = "texts",
    .predictions_done = "ratings",
    .capacity_unit = "words",
    .metrics = {{"MSE", 4, "valid_mse", "average_mse", .lower_is_better = true},
                {"MAE", 4, "valid_mae", "average_mae", .lower_is_better = true},
                {"R2", 4, "valid_r2", "average_r2", .lower_is_better = false}},
    .open = open_rating,
    .close = close_rating,
    .describe = describe_rating,
    .plan_batches = plan_rating,
    .open_loader = open_rating_loader,
    .next_batch = next_rating,
    .prepare = prepare_rating,
    .valid_batch = valid_rating,
    .score = score_rating};

/* The task "guess", of the same model family as "rating". It is the first entry of train_tasks
 * and therefore the default task. */

static const OptSpec luck_options[] = {
    REAL("luck", "P", "0.5", 0, 1, "train", "Labels", "Probability of a good guess"),
    {0},
};
static const OptSpec *const guess_options[] = {luck_options, NULL};

static Err open_guess(Task **out, const TaskSpec *spec) {
  RatingOptions none = {0};
  TaskSpec own = *spec;
  own.options = &none;
  TRY(open_rating(out, &own));
  (*out)->kind = &guess_task;
  return ERR_OK;
}

static const TaskKind guess_task = {
    .name = "guess",
    .family = &bag_family,
    .options = guess_options,
    .metrics = {{"MSE", 4, "valid_mse", "average_mse", .is_hidden = false}},
    .open = open_guess,
    .close = close_rating};

const TaskKind *const train_tasks[] = {&guess_task, &rating_task, NULL};

#endif
