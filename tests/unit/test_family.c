/* A model family and a task that exist only in this file: a bag-of-words regressor that
 * predicts a number for each text. It is trained, validated, saved, averaged and resumed by the
 * same code as the Transformer. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/store.h"
#include "support.h"
#include "train/train.h"

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
  *weight = params_add(p, &err, INIT_NORMAL, 0.01, vocab, 1, "word.weight");
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
  int closed; /* number of calls of close_rating */
} RatingOptions;

typedef struct {
  Task task;
  LoaderSpec loader;
  uint64_t loaded;
  BagBatch batch;
  RatingOptions *options;
} Rating;

static const TaskKind rating_task;

static void fill_texts(BagBatch *b, uint64_t key, uint32_t texts) {
  Rng rng = {.key = key};
  b->texts = texts;
  for (uint32_t i = 0; i < texts; i++) {
    b->label[i] = 0.5f;
    for (int k = 0; k < TEXT_WORDS; k++) {
      b->word[i][k] = (int32_t)rng_below(&rng, VOCAB);
      b->label[i] += (float)(b->word[i][k] % 7) / 7 - 0.4f;
    }
  }
}

static Err open_rating(Task **out, const TaskSpec *spec) {
  Rating *r;
  TRY(mem_alloc(&r, 1, sizeof *r));
  r->options = (RatingOptions *)(uintptr_t)spec->options;
  BagConfig own = own_config(spec->config);
  own.vocab = VOCAB;
  r->task = (Task){.kind = &rating_task, .config = bag_config(own), .tokens = 65536};
  snprintf(r->task.data, sizeof r->task.data, "%s", spec->data);
  memset(r->task.data_hash, 'a', 64);
  r->task.files = 2;
  r->task.file[0] = (ModelFile){.what = "vocabulary", .name = "words.txt"};
  r->task.file[1] = (ModelFile){.what = "list of ratings", .name = "ratings.txt"};
  for (size_t i = 0; i < 2; i++) {
    ModelFile *file = &r->task.file[i];
    TRY(file_join(file->path, scratch, file->name));
    TRY(file_write(file->path, file->what, strlen(file->what)));
  }
  if (spec->validates) r->task.valid_examples = VALID_TEXTS;
  *out = &r->task;
  return ERR_OK;
}

static void close_rating(Task *task) {
  ((Rating *)task)->options->closed++;
  mem_free(task);
}

static void describe_rating(const Task *task) {
  log_info("data     %s: texts and ratings", task->data);
}

static Err plan_rating(Task *task, uint32_t capacity) {
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
  fill_texts(&r->batch, number % EPOCH, BATCH_TEXTS);
  *out = (TaskBatch){&r->batch, BATCH_TEXTS, BATCH_TEXTS};
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
  fill_texts(&r->batch, 1000 + *next, texts);
  *next += texts;
  *out = (TaskBatch){&r->batch, texts, texts};
  return ERR_OK;
}

static Err score_rating(Task *task, Comm *comm, const ModelLoss *loss, bool show_samples,
                        double value[TASK_METRICS]) {
  (void)task, (void)comm, (void)show_samples;
  assert_int_equal(loss->predictions, VALID_TEXTS);
  value[0] = loss->sum[0] / (double)loss->predictions;
  value[1] = loss->sum[1] / (double)loss->predictions;
  return ERR_OK;
}

static const TaskKind rating_task = {
    .name = "rating",
    .sums = {"squared_error", "absolute_error"},
    .predictions = "ratings",
    .predictions_per_s = "ratings_per_s",
    .examples = "texts",
    .examples_per_s = "texts_per_s",
    .predictions_total = "ratings",
    .examples_total = "texts",
    .predictions_done = "ratings",
    .capacity_unit = "words",
    .metrics = {{"MSE", 4, "valid_mse", "average_mse"}, {"MAE", 4, "valid_mae", "average_mae"}},
    .decisive = 0,
    .higher_is_better = false,
    .open = open_rating,
    .close = close_rating,
    .describe = describe_rating,
    .plan_batches = plan_rating,
    .open_loader = open_rating_loader,
    .next_batch = next_rating,
    .prepare = prepare_rating,
    .valid_batch = valid_rating,
    .score = score_rating};
const TaskKind *const train_tasks[] = {&rating_task, NULL};

static TrainSpec make_spec(const char *run, uint64_t steps, RatingOptions *options) {
  return (TrainSpec){.data = "ratings",
                     .run = run,
                     .task = task_find("rating"),
                     .task_options = options,
                     .config = bag_config((BagConfig){.l2 = 0.5f}),
                     .batch_tokens = 256,
                     .micro_batches = 2,
                     .steps = steps,
                     .seed = 3,
                     .schedule = {.policy = LR_CONSTANT, .lr = 0.03},
                     .optim = {OPTIM_ADAM, 0.9f, 0.98f, 1e-9f, 0},
                     .bucket = 1 << 20,
                     .backend = {.device = "cpu", .precision = "fp32", .threads = 1},
                     .valid_every = 20,
                     .save_every = 20,
                     .log_every = 20,
                     .keep = 5,
                     .average = 2};
}

static void train(const TrainSpec *spec, TrainResult *result) {
  Comm *comm;
  OK(comm_open(&comm, 20));
  OK(train_run(spec, comm, "", result));
  comm_close(comm, ERR_OK);
}

static Str read_text(const char *path) {
  Str text = {0};
  OK(file_read(path, 1 << 20, &text));
  return text;
}

/* Returns the first or the last value of a key in metrics.jsonl. */
static double find_metric(const Str *text, const char *key, bool last) {
  char quoted[64];
  double value = NAN;
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  for (const char *at = strstr(str_text(text), quoted); at; at = strstr(at + 1, quoted)) {
    value = strtod(at + strlen(quoted), NULL);
    if (!last) break;
  }
  return value;
}

static void test_family_and_task_of_a_test_train_until_loss_falls(void **state) {
  (void)state;
  RatingOptions options = {0};
  TrainResult r;
  TrainSpec spec = make_spec(at("run"), 200, &options);
  train(&spec, &r);
  assert_int_equal(r.step, 200);
  assert_int_equal(r.predictions, 200 * 2 * BATCH_TEXTS);
  assert_int_equal(options.closed, 1);
  Str text = read_text(at("run/metrics.jsonl"));
  assert_true(find_metric(&text, "squared_error", true) <
              0.1 * find_metric(&text, "squared_error", false));
  assert_true(find_metric(&text, "absolute_error", true) <
              find_metric(&text, "absolute_error", false));
  assert_true(find_metric(&text, "ratings_per_s", true) > 0);
  assert_true(isnan(find_metric(&text, "valid_bleu", true)));
  assert_true(find_metric(&text, "valid_mse", true) <
              0.1 * find_metric(&text, "valid_mse", false));
  assert_true(find_metric(&text, "average_mse", true) > 0);
  str_free(&text);
}

/* The best checkpoint is the one with the lowest error, because this task says so. */
static void test_best_checkpoint_has_lowest_error(void **state) {
  (void)state;
  RatingOptions options = {0};
  TrainResult r;
  TrainSpec spec = make_spec(at("best"), 60, &options);
  train(&spec, &r);
  Str text = read_text(at("best/metrics.jsonl"));
  assert_int_equal(r.best_step, 60);
  assert_true(r.best_score < find_metric(&text, "valid_mse", false));
  assert_true(fabs(r.best_score - find_metric(&text, "valid_mse", true)) < 1e-9);
  assert_true(r.has_average_score);
  str_free(&text);
}

static void test_resumed_run_has_bits_of_one_never_stopped(void **state) {
  (void)state;
  RatingOptions options = {0};
  TrainResult r;
  TrainSpec spec = make_spec(at("whole"), 60, &options);
  train(&spec, &r);
  spec = make_spec(at("parts"), 40, &options);
  train(&spec, &r);
  spec.steps = 60;
  spec.start = RUN_RESUME;
  train(&spec, &r);
  Str whole = read_text(at("whole/checkpoints/latest/weights.safetensors"));
  Str parts = read_text(at("parts/checkpoints/latest/weights.safetensors"));
  assert_int_equal(whole.len, parts.len);
  assert_memory_equal(whole.s, parts.s, whole.len);
  str_free(&whole);
  str_free(&parts);
}

static void test_model_json_has_fields_of_the_family(void **state) {
  (void)state;
  RatingOptions options = {0};
  TrainResult r;
  ModelConfig back;
  TrainSpec spec = make_spec(at("stored"), 20, &options);
  train(&spec, &r);
  OK(store_load_config(&back, NULL, at("stored/checkpoints/latest")));
  assert_ptr_equal(back.family, &bag_family);
  assert_int_equal(own_config(&back).vocab, VOCAB);
  assert_true(own_config(&back).l2 == 0.5f);
}

static void test_checkpoint_and_average_have_all_files_of_the_task(void **state) {
  (void)state;
  static const char *const dirs[] = {"files/checkpoints/latest", "files/average"};
  static const char *const contents[] = {"vocabulary", "list of ratings"};
  RatingOptions options = {0};
  TrainResult r;
  TrainSpec spec = make_spec(at("files"), 40, &options);
  train(&spec, &r);
  for (size_t i = 0; i < 2; i++) {
    ModelConfig config;
    StoreSums sums;
    OK(store_load_config(&config, &sums, at(dirs[i])));
    assert_int_equal(sums.files, 2);
    for (size_t k = 0; k < 2; k++) {
      char path[FILE_PATH_MAX];
      OK(store_check_file(&sums, at(dirs[i]), sums.file[k].name));
      OK(file_join(path, at(dirs[i]), k ? "ratings.txt" : "words.txt"));
      Str text = read_text(path);
      assert_string_equal(str_text(&text), contents[k]);
      str_free(&text);
    }
  }
}

static void test_model_json_without_a_file_that_is_needed_is_refused(void **state) {
  (void)state;
  StoreSums sums = {.known = true};
  store_add_file(&sums, "words.txt", (FileSum){0});
  assert_int_equal(store_check_file(&sums, scratch, "ratings.txt"), ERR_WORK);
  assert_says("model.json is damaged: 'ratings.txt'");
}

static void test_config_difference_ignores_fields_that_may_change(void **state) {
  (void)state;
  ModelConfig a = bag_config((BagConfig){.vocab = 4, .l2 = 0.1f});
  ModelConfig b = bag_config((BagConfig){.vocab = 4, .l2 = 0.2f});
  ModelConfig c = bag_config((BagConfig){.vocab = 6, .l2 = 0.1f});
  assert_null(config_difference(&a, &b));
  assert_string_equal(config_difference(&a, &c)->key, "vocab");
}

static void test_model_of_unknown_format_is_refused(void **state) {
  (void)state;
  static const char text[] = "{\"format\": \"trireme-transformer\", \"version\": 1}";
  ModelConfig config;
  OK(file_mkdirs(at("other")));
  OK(file_write(at("other/model.json"), text, sizeof text - 1));
  assert_int_equal(store_load_config(&config, NULL, at("other")), ERR_WORK);
  assert_says("trireme-transformer");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_family_and_task_of_a_test_train_until_loss_falls),
      cmocka_unit_test(test_best_checkpoint_has_lowest_error),
      cmocka_unit_test(test_resumed_run_has_bits_of_one_never_stopped),
      cmocka_unit_test(test_model_json_has_fields_of_the_family),
      cmocka_unit_test(test_checkpoint_and_average_have_all_files_of_the_task),
      cmocka_unit_test(test_model_json_without_a_file_that_is_needed_is_refused),
      cmocka_unit_test(test_config_difference_ignores_fields_that_may_change),
      cmocka_unit_test(test_model_of_unknown_format_is_refused),
  };
  log_quiet(true);
  return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
