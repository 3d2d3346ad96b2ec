/* The Transformer as a model family: memory, loading of batches, forward and backward. Depends
 * on model.h, transformer_internal.h. */
#include "model/transformer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/progress.h"
#include "model/transformer_internal.h"
#include "model/transformer_options.h"

static AttentionState take_attention(Arena *a, size_t tokens, size_t in, size_t d,
                                     size_t heads) {
  return (AttentionState){arena_activations(a, tokens * in), arena_activations(a, tokens * d),
                          arena_floats(a, tokens * heads)};
}

/* Backward of GELU and SiLU needs the input of the activation; backward of ReLU needs only a
 * mask. */
static FfnState take_ffn(Arena *a, size_t n, Activation kind, bool training) {
  FfnState f = {.up = arena_activations(a, n)};
  f.act = training && kind != ACT_RELU ? arena_activations(a, n) : f.up;
  if (training && kind == ACT_RELU) f.mask = arena_take(a, (n + 7) / 8, 1);
  return f;
}

static void lay_out_stack(Transformer *t, Arena *a, int stack) {
  StackState *s = &t->stack[stack];
  bool training = t->model.training;
  const TransformerConfig *c = &t->config;
  size_t tokens = t->model.capacity, d = (size_t)c->d_model, heads = (size_t)c->heads,
         ffn = (size_t)c->ffn_dim;
  int per_layer = stack ? 3 : 2;
  /* Without backward no activations are kept, so two alternating buffers are enough. */
  void *sum[2] = {0}, *y[2] = {0};
  float *stats = NULL;
  for (int i = 0; i <= s->sublayers; i++) {
    bool is_new = training || i < 2;
    if (is_new) sum[i % 2] = arena_activations(a, tokens * d);
    if (is_new) y[i % 2] = arena_activations(a, tokens * d);
    if (training || i == 0) stats = arena_floats(a, 2 * tokens);
    s->sum[i] = sum[i % 2];
    s->y[i] = y[i % 2];
    s->norm_stats[i] = stats;
  }
  if (!c->pre_norm) s->y[0] = s->sum[0];
  for (int l = 0; l < s->sublayers / per_layer; l++) {
    bool is_new = training || l == 0;
    s->self[l] = is_new ? take_attention(a, tokens, 3 * d, d, heads) : s->self[0];
    if (stack) s->cross[l] = is_new ? take_attention(a, tokens, d, d, heads) : s->cross[0];
    s->ffn[l] = is_new ? take_ffn(a, tokens * ffn, c->activation, training) : s->ffn[0];
  }
}

static void lay_out_memory(Model *model, Arena *a) {
  Transformer *t = (Transformer *)model;
  const TransformerConfig *c = &t->config;
  size_t tokens = t->model.capacity, d = (size_t)c->d_model, ffn = (size_t)c->ffn_dim,
         kv = (size_t)c->layers[1] * 2 * d;
  for (int stack = 0; stack < 2; stack++) lay_out_stack(t, a, stack);
  t->positions =
      c->positions == POSITION_LEARNED ? NULL : arena_floats(a, (size_t)c->max_positions * d);
  t->cross_kv = arena_activations(a, tokens * kv);
  t->branch = arena_activations(a, tokens * d);
  size_t extra = model->training && model->backend->fuses_loss ? LOSS_EXTRA_ROWS : 0;
  t->logits = arena_activations(a, (t->logit_rows + extra) * (size_t)c->vocab);
  model->sums = arena_take(a, MODEL_SUMS, sizeof *model->sums);
  if (model->backend->host) {
    t->dropout_key = arena_take(a, 1, sizeof *t->dropout_key);
  } else { /* the first element of the batch's block is the dropout key */
    t->batch = arena_take(a, batch_ints(tokens, tokens), sizeof(int32_t));
    t->dropout_key = (void *)t->batch;
  }
  if (!model->training) return;
  t->d_branch = arena_activations(a, tokens * d);
  t->d_y = arena_activations(a, tokens * d);
  t->d_sum = arena_activations(a, tokens * d);
  t->d_wide = arena_activations(a, tokens * 3 * d);
  t->d_up = arena_activations(a, tokens * ffn);
  t->d_cross_kv = arena_activations(a, tokens * kv);
}

/* sin and cos of angle = position * 10000^(-i / n) for i < d/2. HALVES: all sines before all cosines,
 * n = d/2 - 1. INTERLEAVED: sine and cosine alternate, n = d/2. MARIAN: all sines before all
 * cosines, n = d/2. */
void transformer_fill_positions(const TransformerConfig *c, float *out) {
  size_t d = (size_t)c->d_model, half = d / 2;
  bool alternates = c->positions == POSITION_INTERLEAVED;
  for (size_t p = 0; p < (size_t)c->max_positions; p++) {
    for (size_t i = 0; i < half; i++) {
      double spread =
          c->positions == POSITION_HALVES && half > 1 ? (double)(half - 1) : (double)half;
      double angle = (double)p * pow(10000.0, -(double)i / spread);
      out[p * d + (alternates ? 2 * i : i)] = (float)sin(angle);
      out[p * d + (alternates ? 2 * i + 1 : half + i)] = (float)cos(angle);
    }
  }
}

static Err fill_positions(Model *model) {
  Transformer *t = (Transformer *)model;
  size_t n = (size_t)t->config.max_positions * (size_t)t->config.d_model;
  float *positions;
  if (!t->positions) return ERR_OK;
  TRY(mem_alloc(&positions, n, sizeof *positions));
  transformer_fill_positions(&t->config, positions);
  model->backend->put(model->backend, t->positions, positions, n * sizeof *positions);
  mem_free(positions);
  return ERR_OK;
}

/* Allocates the arrays of pointers of both stacks in one block. */
static Err new_lists(Transformer *t) {
  size_t n = 0;
  for (int stack = 0; stack < 2; stack++) n += 3 * (size_t)(t->stack[stack].sublayers + 1);
  TRY(mem_alloc(&t->lists, n, sizeof *t->lists));
  void **at = t->lists;
  for (int stack = 0; stack < 2; stack++) {
    StackState *s = &t->stack[stack];
    size_t junctions = (size_t)s->sublayers + 1, layers = (size_t)t->config.layers[stack];
    s->sum = at;
    s->y = s->sum + junctions;
    s->norm_stats = (float **)(s->y + junctions);
    at += 3 * junctions;
    TRY(mem_alloc(&s->self, layers, sizeof *s->self));
    TRY(mem_alloc(&s->cross, layers, sizeof *s->cross));
    TRY(mem_alloc(&s->ffn, layers, sizeof *s->ffn));
  }
  return ERR_OK;
}

static Err plan_transformer(Model *model, const ModelSpec *spec) {
  Transformer *t = (Transformer *)model;
  const TransformerConfig *c = &t->config;
  size_t capacity = spec->capacity;
  t->config = *transformer_config(spec->config);
  /* Limits the memory for logits. On a CPU about 64 MB; fewer chunks are better, because
   * each chunk packs the output weights again. A device needs large GEMMs to be fast: 2 GB
   * in bf16. */
  t->logit_rows = ((size_t)(spec->backend->host ? 16 : 1024) << 20) / (size_t)c->vocab + 1;
  if (spec->logit_rows) t->logit_rows = spec->logit_rows;
  if (t->logit_rows > capacity) t->logit_rows = capacity;
  t->stack[0].sublayers = 2 * c->layers[0];
  t->stack[1].sublayers = 3 * c->layers[1];
  TRY(transformer_lay_out(&t->at, &model->params, c));
  return new_lists(t);
}

static void release_transformer(Model *model) {
  Transformer *t = (Transformer *)model;
  for (int stack = 0; stack < 2; stack++) {
    mem_free(t->stack[stack].self);
    mem_free(t->stack[stack].cross);
    mem_free(t->stack[stack].ffn);
  }
  mem_free(t->lists);
  transformer_params_free(&t->at);
}

/* On a device the arrays have the padded size and the largest number of sentences, so that the
 * queued operations depend on `padded` only. On a host the model reads the caller's arrays in
 * place, without padding. */
static void load_batch(Model *model, const void *given_batch, StepKey key) {
  Transformer *t = (Transformer *)model;
  const Backend *b = model->backend;
  const Batch *given = given_batch;
  Batch *batch = &t->current;
  *batch = *given;
  model->predictions += given->rows[1];
  if (t->batch) {
    assert(given->capacity <= model->capacity && given->most_sentences <= model->capacity);
    assert(given->padded[0] >= given->rows[0] && given->padded[1] >= given->rows[1] &&
           "batch_pad was not called");
    /* All arrays that the device reads are in one block, copied at once. */
    *given->key = key.key;
    batch_at(batch, t->batch);
    b->put(b, t->batch, given->memory_,
           batch_ints(given->capacity, given->most_sentences) * sizeof(int32_t));
    memcpy(batch->rows, given->padded, sizeof batch->rows);
    batch->sentences = given->most_sentences + 1;
  } else {
    b->put(b, t->dropout_key, &key.key, sizeof key.key);
  }
  model->shape[0] = batch->rows[0];
  model->shape[1] = batch->rows[1];
  model->shape[2] = batch->sentences;
  model->shape[3] = batch->capacity;
}

static void run_batch(Model *model, Weights w, float *g, const ModelPass *pass) {
  Transformer *t = (Transformer *)model;
  const Batch *batch = &t->current;
  StepKey key = {0, model->dropout, model->first};
  const void *memory = transformer_encode(t, w, batch->src, batch->src_pos, batch->src_off,
                                          batch->sentences, batch->rows[0], key);
  transformer_cross_kv(t, w, memory, batch->rows[0]);
  const void *y = transformer_decode(t, w, batch, key);
  transformer_loss(t, w, g, y, batch, pass);
  model->forward_end = progress_clock();
  if (g) transformer_backward(t, w, g, batch, key, pass);
}

static Err check_config(const ModelConfig *config) {
  return transformer_check_config(transformer_config(config));
}

static void describe_config(const ModelConfig *config, char *out, size_t size) {
  const TransformerConfig *c = transformer_config(config);
  snprintf(out, size, "%s-norm Transformer, d %d, ffn %d, %d+%d layers, %d heads",
           c->pre_norm ? "pre" : "post", c->d_model, c->ffn_dim, c->layers[0], c->layers[1],
           c->heads);
}

static ModelShape shape_of(const ModelConfig *config) {
  const TransformerConfig *c = transformer_config(config);
  double d = c->d_model, ffn = c->ffn_dim;
  double attention = 4 * d * d, feed = 2 * d * ffn, output = d * c->vocab;
  size_t width = (size_t)c->d_model;
  return (ModelShape){
      .max_tokens = (size_t)c->max_positions,
      .d_model = width,
      .ffn_dim = (size_t)c->ffn_dim,
      .head_dim = (size_t)(c->d_model / c->heads),
      .vocab = (size_t)c->vocab,
      .gemm_widths = {3 * width, (size_t)c->ffn_dim, (size_t)c->layers[1] * 2 * width,
                      (size_t)c->vocab},
      .gemm_weights = {c->layers[0] * (attention + feed),
                       c->layers[1] * (2 * attention + feed) + output},
  };
}

static Err lay_out_params(Params *params, const ModelConfig *config) {
  return transformer_lay_out_params(params, transformer_config(config));
}

static void announce_gradients(const Model *model, GradReady ready, void *context) {
  transformer_announce((const Transformer *)model, ready, context);
}

static Err configure_model(ModelConfig *config, const OptSet *opts) {
  const TransformerConfig *start = config->family ? transformer_config(config) : NULL;
  TransformerConfig c = start ? *start : (TransformerConfig){0};
  TRY(transformer_configure(&c, opts, start != NULL));
  *config = transformer_model_config(&c);
  return ERR_OK;
}

static Err configure_preset(ModelConfig *config, const char *preset, int vocab) {
  TransformerConfig c = {.vocab = vocab, .max_positions = 256, .eos = 1, .bos = 2};
  TRY(transformer_preset(&c, preset));
  *config = transformer_model_config(&c);
  return ERR_OK;
}

static const OptSpec *const options[] = {transformer_size_options, transformer_form_options,
                                         transformer_dropout_options, NULL};

const ModelFamily transformer_family = {
    .name = "transformer",
    .format = "trireme-transformer",
    .bytes = sizeof(Transformer),
    .fields = transformer_fields,
    .presets = "tiny|small|base|big",
    .default_preset = "base",
    .options = options,
    .configure = configure_model,
    .configure_preset = configure_preset,
    .check = check_config,
    .describe = describe_config,
    .shape = shape_of,
    .lay_out_params = lay_out_params,
    .plan = plan_transformer,
    .lay_out_memory = lay_out_memory,
    .initialize = fill_positions,
    .release = release_transformer,
    .load = load_batch,
    .run = run_batch,
    .announce = announce_gradients,
};

_Static_assert(sizeof(TransformerConfig) <= CONFIG_BYTES, "raise CONFIG_BYTES");

ModelConfig transformer_model_config(const TransformerConfig *config) {
  ModelConfig m = {.family = &transformer_family};
  memcpy(m.own, config, sizeof *config);
  return m;
}

const TransformerConfig *transformer_config(const ModelConfig *config) {
  return config->family == &transformer_family ? (const void *)config->own : NULL;
}

Err transformer_plan(Transformer *t, const TransformerConfig *config, const Backend *backend,
                     size_t capacity, size_t logit_rows, bool training) {
  ModelConfig model = transformer_model_config(config);
  return model_plan_into(&t->model, &(ModelSpec){.config = &model,
                                                 .backend = backend,
                                                 .capacity = capacity,
                                                 .logit_rows = logit_rows,
                                                 .training = training});
}

Err transformer_new(Transformer *t, const TransformerConfig *config, const Backend *backend,
                    size_t capacity, size_t logit_rows, bool training) {
  TRY(transformer_plan(t, config, backend, capacity, logit_rows, training));
  Err err = model_allocate(&t->model);
  if (err) transformer_free(t);
  return err;
}

void transformer_free(Transformer *t) {
  model_release(&t->model);
}

void transformer_step(Transformer *t, Weights w, float *g, const Batch *batch, StepKey key,
                      float smoothing, float scale, GradReady ready, void *context) {
  model_load(&t->model, batch, key);
  model_run(&t->model, w, g, &(ModelPass){smoothing, scale, ready, context});
}
