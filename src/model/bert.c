/* BERT as a model family: memory, loading of batches, forward and backward. Depends on model.h,
 * bert_internal.h. */
#include "model/bert.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/progress.h"
#include "model/bert_internal.h"
#include "model/bert_options.h"

/* Takes the arrays of an activation. Backward of ReLU needs a mask, backward of the others the
 * input of the activation; inference overwrites the input. */
static void take_activation(Arena *a, void **up, void **act, uint8_t **mask, size_t n,
                            Activation kind, bool training) {
  *up = arena_activations(a, n);
  *act = training && kind != ACT_RELU ? arena_activations(a, n) : *up;
  *mask = training && kind == ACT_RELU ? arena_take(a, (n + 7) / 8, 1) : NULL;
}

static void take_layer(Bert *m, Arena *a, BertLayer *s, bool picks) {
  const BertConfig *c = &m->config;
  size_t tokens = m->model.capacity, rows = picks ? m->picks_max : tokens,
         d = (size_t)c->d_model;
  s->in = arena_activations(a, tokens * (picks ? 2 : 3) * d);
  s->q = picks ? arena_activations(a, rows * d) : NULL;
  s->out = arena_activations(a, rows * d);
  s->lse = arena_floats(a, rows * (size_t)c->heads);
  for (int i = 0; i < 2; i++) {
    s->sum[i] = arena_activations(a, rows * d);
    s->y[i] = arena_activations(a, rows * d);
    s->stats[i] = arena_floats(a, 2 * rows);
  }
  take_activation(a, &s->up, &s->act, &s->mask, rows * (size_t)c->ffn_dim, c->activation,
                  m->model.training);
}

/* In inference all layers use the arrays of one. The output y[1] of a layer is the input of the
 * next, whose attention sublayer reads it for the residual after writing y[0]; the feed-forward
 * sublayer then overwrites it. The arrays have rows for a layer of picks and of tokens. */
static void share_layers(Bert *m, Arena *a) {
  BertLayer all;
  size_t d = (size_t)m->config.d_model, capacity = m->model.capacity;
  m->model.capacity = m->picks_max;
  take_layer(m, a, &all, /*picks=*/false);
  m->model.capacity = capacity;
  all.q = m->config.head == BERT_HEAD_NONE ? NULL : arena_activations(a, m->picks_max * d);
  for (int i = 0; i < m->config.layers; i++) m->layer[i] = all;
}

static void lay_out_head(Bert *m, Arena *a) {
  const BertConfig *c = &m->config;
  BertHeadState *s = &m->head;
  size_t rows = m->picks_max, n = rows * (size_t)c->d_model;
  bool training = m->model.training;
  *s = (BertHeadState){0};
  if (c->head == BERT_HEAD_MLM) {
    take_activation(a, &s->up, &s->act, &s->mask, n, c->activation, training);
    s->y = arena_activations(a, n);
    s->stats = arena_floats(a, 2 * rows);
    s->logits = arena_activations(a, m->logit_rows * (size_t)c->vocab);
  }
  if (!bert_is_classifier(c)) return;
  Activation kind = c->pooler == BERT_POOLER_RELU ? ACT_RELU : ACT_TANH;
  if (c->pooler == BERT_POOLER_NONE)
    s->act = arena_activations(a, n);
  else
    take_activation(a, &s->up, &s->act, &s->mask, n, kind, training);
  s->logits = arena_activations(a, rows * (size_t)c->labels);
  m->class_weight = arena_floats(a, (size_t)c->labels);
}

static void lay_out_gradients(Bert *m, Arena *a) {
  size_t rows = m->picks_max, d = (size_t)m->config.d_model;
  m->d_branch = arena_activations(a, rows * d);
  m->d_flow[0] = arena_activations(a, rows * d);
  m->d_flow[1] = arena_activations(a, rows * d);
  m->d_in = arena_activations(a, m->model.capacity * 3 * d);
  m->d_up = arena_activations(a, rows * (size_t)m->config.ffn_dim);
}

static void lay_out_memory(Model *model, Arena *a) {
  Bert *m = (Bert *)model;
  size_t tokens = model->capacity, rows = m->picks_max, d = (size_t)m->config.d_model;
  m->embed_sum = arena_activations(a, tokens * d);
  m->embed_y = arena_activations(a, tokens * d);
  m->embed_stats = arena_floats(a, 2 * tokens);
  if (!model->training) share_layers(m, a);
  for (int i = 0; model->training && i < m->config.layers; i++)
    take_layer(m, a, &m->layer[i], bert_is_pick_layer(m, i));
  m->branch = arena_activations(a, rows * d);
  m->picked = arena_activations(a, rows * d);
  lay_out_head(m, a);
  model->sums = arena_take(a, MODEL_SUMS, sizeof *model->sums);
  m->block = arena_take(a, bert_batch_ints(m), sizeof *m->block);
  if (model->training) lay_out_gradients(m, a);
}

/* Returns the number of picks whose logits are in memory at once: about 64 MB on a CPU, because
 * each chunk packs the output weights again; 2 GB in bf16 on a device, which needs large GEMMs. */
static size_t choose_logit_rows(const ModelSpec *spec, size_t vocab, size_t most) {
  size_t rows = ((size_t)(spec->backend->host ? 16 : 1024) << 20) / vocab + 1;
  if (spec->logit_rows) rows = spec->logit_rows;
  return rows < most ? rows : most;
}

static Err plan_bert(Model *model, const ModelSpec *spec) {
  Bert *m = (Bert *)model;
  m->config = *bert_config(spec->config);
  if (spec->training && m->config.head == BERT_HEAD_NONE)
    return err_set(ERR_USAGE,
                   "a BERT model without a head has no loss and cannot be trained; "
                   "train it for a task, with --init-from");
  /* Every token may be a text; one more sentence has the padding. */
  m->picks_max = spec->capacity + 1;
  m->logit_rows = choose_logit_rows(spec, (size_t)m->config.vocab, m->picks_max);
  TRY(bert_lay_out(&m->at, &model->params, &m->config));
  return mem_alloc(&m->layer, (size_t)m->config.layers, sizeof *m->layer);
}

/* Allocates the host copy of the batch for a device. Page-locking it only makes copies faster, so
 * a failure is ignored. */
static Err new_staging(Model *model) {
  Bert *m = (Bert *)model;
  const Backend *b = model->backend;
  if (b->host) return ERR_OK;
  size_t ints = bert_batch_ints(m);
  TRY(mem_alloc(&m->staging, ints, sizeof *m->staging));
  m->is_pinned = b->pin(b, m->staging, ints * sizeof *m->staging) == ERR_OK;
  return ERR_OK;
}

static void release_bert(Model *model) {
  Bert *m = (Bert *)model;
  if (m->is_pinned) model->backend->unpin(model->backend, m->staging);
  mem_free(m->staging);
  mem_free(m->layer);
  bert_params_free(&m->at);
}

static void load_batch(Model *model, const void *given, StepKey key) {
  Bert *m = (Bert *)model;
  const BertBatch *batch = &m->current;
  bert_load_batch(m, given, key.key);
  model->predictions += bert_count_predictions(&m->config, given);
  model->shape[0] = (uint32_t)batch->tokens;
  model->shape[1] = (uint32_t)batch->sentences;
  model->shape[2] = (uint32_t)batch->picks;
  model->shape[3] = batch->has_target;
}

static void run_batch(Model *model, Weights w, float *g, const ModelPass *pass) {
  Bert *m = (Bert *)model;
  assert(!g || (model->training && m->current.has_target));
  if (g && model->first) bert_clear_grads(m, g);
  bert_encode(m, w);
  bert_run_head(m, w, g, pass);
  model->forward_end = progress_clock();
  if (!g) return;
  bert_report_head(m, pass->ready, pass->context);
  bert_encode_backward(m, w, g, pass);
}

static Err check_config(const ModelConfig *config) {
  return bert_check_config(bert_config(config));
}

static void describe_config(const ModelConfig *config, char *out, size_t size) {
  static const char *const heads[] = {"no head", "softmax head", "sigmoid head",
                                      "regression head", "masked-language-model head"};
  const BertConfig *c = bert_config(config);
  int n = snprintf(out, size, "BERT, d %d, ffn %d, %d layer%s, %d head%s, %s", c->d_model,
                   c->ffn_dim, c->layers, str_plural((uint64_t)c->layers), c->heads,
                   str_plural((uint64_t)c->heads), heads[c->head]);
  if (bert_is_classifier(c) && n > 0 && (size_t)n < size)
    snprintf(out + n, size - (size_t)n, " of %d label%s", c->labels,
             str_plural((uint64_t)c->labels));
}

/* The last layer computes only keys and values of every token if the model has a head; the few
 * rows of the head are not counted. */
static ModelShape shape_of(const ModelConfig *config) {
  const BertConfig *c = bert_config(config);
  double d = c->d_model, layer = 4 * d * d + 2 * d * c->ffn_dim;
  double last = c->head == BERT_HEAD_NONE ? layer : 2 * d * d;
  size_t width = (size_t)c->d_model;
  size_t output = c->head == BERT_HEAD_MLM ? (size_t)c->vocab : (size_t)c->labels;
  return (ModelShape){
      .max_tokens = bert_max_tokens(c),
      .d_model = width,
      .ffn_dim = (size_t)c->ffn_dim,
      .head_dim = width / (size_t)c->heads,
      .vocab = (size_t)c->vocab,
      .gemm_widths = {3 * width, (size_t)c->ffn_dim, width, output},
      .gemm_weights = {(c->layers - 1) * layer + last, 0},
  };
}

static Err lay_out_params(Params *params, const ModelConfig *config) {
  BertParams at;
  *params = (Params){0};
  TRY(bert_lay_out(&at, params, bert_config(config)));
  bert_params_free(&at);
  return ERR_OK;
}

static void announce_gradients(const Model *model, GradReady ready, void *context) {
  bert_announce((const Bert *)model, ready, context);
}

static Err configure_model(ModelConfig *config, const OptSet *opts) {
  const BertConfig *start = config->family ? bert_config(config) : NULL;
  BertConfig c = start ? *start : (BertConfig){0};
  TRY(bert_configure(&c, opts, start != NULL));
  *config = bert_model_config(&c);
  return ERR_OK;
}

/* The head is that of a classifier with two classes. */
static Err configure_preset(ModelConfig *config, const char *preset, int vocab) {
  BertConfig c = {.vocab = vocab, .head = BERT_HEAD_SOFTMAX, .labels = 2};
  TRY(bert_preset(&c, preset));
  *config = bert_model_config(&c);
  return ERR_OK;
}

const ModelFamily bert_family = {
    .name = "bert",
    .format = "trireme-bert",
    .bytes = sizeof(Bert),
    .fields = bert_fields,
    .presets = BERT_PRESETS,
    .default_preset = "bert-base",
    .cpu_preset = "bert-mini",
    .options = bert_options,
    .configure = configure_model,
    .configure_preset = configure_preset,
    .check = check_config,
    .describe = describe_config,
    .shape = shape_of,
    .lay_out_params = lay_out_params,
    .plan = plan_bert,
    .lay_out_memory = lay_out_memory,
    .initialize = new_staging,
    .release = release_bert,
    .load = load_batch,
    .run = run_batch,
    .announce = announce_gradients,
};

_Static_assert(sizeof(BertConfig) <= CONFIG_BYTES, "raise CONFIG_BYTES");

ModelConfig bert_model_config(const BertConfig *config) {
  ModelConfig m = {.family = &bert_family};
  memcpy(m.own, config, sizeof *config);
  return m;
}

const BertConfig *bert_config(const ModelConfig *config) {
  return config->family == &bert_family ? (const void *)config->own : NULL;
}
