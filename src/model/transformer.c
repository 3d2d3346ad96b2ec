/* Memory and the way forward. Relies on backend, params. */
#include "model/transformer.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/progress.h"
#include "model/transformer_internal.h"

#define ALIGN ((size_t)256) /* bytes: a cache line here, a whole access of a warp there */

/* The arena: first counted with no memory behind it, then taken in one piece. */
typedef struct {
  char *at;
  size_t bytes;
  Type type; /* of what take_low takes */
} Arena;

static void *take(Arena *a, size_t n, size_t size) {
  void *here = a->at ? a->at + a->bytes : NULL;
  a->bytes += (n * size + ALIGN - 1) / ALIGN * ALIGN;
  return here;
}

static void *take_low(Arena *a, size_t n) {
  return take(a, n, type_size(a->type));
}

static float *take_floats(Arena *a, size_t n) {
  return take(a, n, sizeof(float));
}

static AttentionState take_attention(Arena *a, size_t rows, size_t in, size_t d, size_t heads) {
  return (AttentionState){take_low(a, rows * in), take_low(a, rows * d),
                          take_floats(a, rows * heads)};
}

/* Only the slopes of GELU and SiLU are made from what came in. */
static FeedState take_feed(Arena *a, size_t n, Activation kind, bool training) {
  FeedState f = {.up = take_low(a, n)};
  f.act = training && kind != ACT_RELU ? take_low(a, n) : f.up;
  if (training && kind == ACT_RELU) f.mask = take(a, (n + 7) / 8, 1);
  return f;
}

static void lay_out_stack(Transformer *t, Arena *a, int which, bool training) {
  StackState *s = &t->stack[which];
  const ModelConfig *c = &t->config;
  size_t rows = t->capacity, d = (size_t)c->d, heads = (size_t)c->heads, ff = (size_t)c->ff;
  int per_layer = which ? 3 : 2;
  /* Without a way back two sets of buffers, used in turn, are enough. */
  void *sum[2] = {0}, *y[2] = {0};
  float *stat = NULL;
  for (int i = 0; i <= s->sublayers; i++) {
    bool fresh = training || i < 2;
    if (fresh) sum[i % 2] = take_low(a, rows * d), y[i % 2] = take_low(a, rows * d);
    if (training || i == 0) stat = take_floats(a, 2 * rows);
    s->sum[i] = sum[i % 2], s->y[i] = y[i % 2], s->stat[i] = stat;
  }
  if (!c->pre_norm) s->y[0] = s->sum[0];
  for (int l = 0; l < s->sublayers / per_layer; l++) {
    bool fresh = training || l == 0;
    s->self[l] = fresh ? take_attention(a, rows, 3 * d, d, heads) : s->self[0];
    if (which) s->cross[l] = fresh ? take_attention(a, rows, d, d, heads) : s->cross[0];
    s->feed[l] = fresh ? take_feed(a, rows * ff, c->activation, training) : s->feed[0];
  }
}

static void lay_out(Transformer *t, Arena *a, bool training) {
  const ModelConfig *c = &t->config;
  size_t rows = t->capacity, d = (size_t)c->d, ff = (size_t)c->ff,
         kv = (size_t)c->layers[1] * 2 * d;
  for (int which = 0; which < 2; which++) lay_out_stack(t, a, which, training);
  t->place = c->positions == POSITION_LEARNED ? NULL : take_floats(a, (size_t)c->longest * d);
  t->cross_kv = take_low(a, rows * kv);
  t->branch = take_low(a, rows * d);
  t->logits = take_low(a, t->loss_rows * (size_t)c->vocab);
  t->sums = take(a, 3, sizeof(double));
  if (t->backend->host)
    t->key = take(a, 1, sizeof *t->key);
  else
    t->batch = take(a, batch_ints(rows, rows), sizeof(int32_t)), t->key = (void *)t->batch;
  if (!training) return;
  t->d_branch = take_low(a, rows * d);
  t->d_y = take_low(a, rows * d);
  t->d_sum = take_low(a, rows * d);
  t->d_wide = take_low(a, rows * 3 * d);
  t->d_up = take_low(a, rows * ff);
  t->d_cross_kv = take_low(a, rows * kv);
}

/* sin and cos of position / 10000^(i / (d/2)), halves one behind the other or
 * interleaved. */
static Err fill_positions(Transformer *t) {
  const ModelConfig *c = &t->config;
  size_t d = (size_t)c->d, half = d / 2, n = (size_t)c->longest * d;
  float *place;
  if (!t->place) return ERR_OK;
  TRY(mem_alloc(&place, n, sizeof *place));
  for (size_t p = 0; p < (size_t)c->longest; p++) {
    for (size_t i = 0; i < half; i++) {
      double spread =
          c->positions == POSITION_HALVES && half > 1 ? (double)(half - 1) : (double)half;
      double angle = (double)p * pow(10000.0, -(double)i / spread);
      size_t sine = c->positions == POSITION_HALVES ? i : 2 * i;
      size_t cosine = c->positions == POSITION_HALVES ? half + i : 2 * i + 1;
      place[p * d + sine] = (float)sin(angle);
      place[p * d + cosine] = (float)cos(angle);
    }
  }
  t->backend->put(t->backend, t->place, place, n * sizeof *place);
  mem_free(place);
  return ERR_OK;
}

/* The lists of pointers, all in one block. */
static Err new_lists(Transformer *t) {
  size_t n = 0;
  for (int which = 0; which < 2; which++) n += 3 * (size_t)(t->stack[which].sublayers + 1);
  TRY(mem_alloc(&t->lists, n, sizeof *t->lists));
  void **at = t->lists;
  for (int which = 0; which < 2; which++) {
    StackState *s = &t->stack[which];
    size_t junctions = (size_t)s->sublayers + 1, layers = (size_t)t->config.layers[which];
    s->sum = at, s->y = s->sum + junctions, s->stat = (float **)(s->y + junctions);
    at += 3 * junctions;
    TRY(mem_alloc(&s->self, layers, sizeof *s->self));
    TRY(mem_alloc(&s->cross, layers, sizeof *s->cross));
    TRY(mem_alloc(&s->feed, layers, sizeof *s->feed));
  }
  return ERR_OK;
}

static Err plan(Transformer *t, const ModelConfig *config, const Backend *backend,
                size_t capacity, size_t logit_rows, bool training) {
  *t = (Transformer){.config = *config, .backend = backend, .capacity = capacity};
  /* Logits of about 64 MB at once: each time, the output weights are packed anew. A
   * device wants large products and has the memory for all of them, 2 GB at most. */
  t->loss_rows = ((size_t)(backend->host ? 16 : 1024) << 20) / (size_t)config->vocab + 1;
  if (logit_rows) t->loss_rows = logit_rows;
  if (t->loss_rows > capacity) t->loss_rows = capacity;
  t->stack[0].sublayers = 2 * config->layers[0];
  t->stack[1].sublayers = 3 * config->layers[1];
  Arena a = {.type = backend->type};
  TRY(params_lay_out(&t->params, config));
  TRY(new_lists(t));
  lay_out(t, &a, training);
  t->arena_bytes = a.bytes;
  return ERR_OK;
}

Err transformer_plan(Transformer *t, const ModelConfig *config, const Backend *backend,
                     size_t capacity, size_t logit_rows, bool training) {
  Err err = plan(t, config, backend, capacity, logit_rows, training);
  if (err) transformer_free(t);
  return err;
}

Err transformer_new(Transformer *t, const ModelConfig *config, const Backend *backend,
                    size_t capacity, size_t logit_rows, bool training) {
  Err err;
  size_t longest = (size_t)config->longest;
  if (!backend->host && longest < BATCH_UNIT) longest = BATCH_UNIT; /* the fill is a sentence */
  TRY_DONE(plan(t, config, backend, capacity, logit_rows, training));
  TRY_DONE(backend->reserve(backend, longest, (size_t)(config->d / config->heads)));
  TRY_DONE(backend->alloc(backend, &t->arena, t->arena_bytes));
  lay_out(t, &(Arena){.at = t->arena, .type = backend->type}, training);
  err = fill_positions(t);
done:
  if (err) transformer_free(t);
  return err;
}

void transformer_free(Transformer *t) {
  for (int which = 0; which < 2; which++) {
    mem_free(t->stack[which].self);
    mem_free(t->stack[which].cross);
    mem_free(t->stack[which].feed);
  }
  mem_free(t->lists);
  if (t->arena) t->backend->release(t->backend, t->arena);
  params_free(&t->params);
  *t = (Transformer){0};
}

/* Sites of dropout: each place in the model has its own. */
Dropout dropout_at(const Transformer *t, StepKey key, float rate, int stack, int layer,
                   int what) {
  return (Dropout){t->key, (uint32_t)((stack * 256 + layer) * 16 + what),
                   key.dropout ? rate : 0};
}

const NormParams *norm_at(const Transformer *t, int which, int junction) {
  int per_layer = which ? 3 : 2, sublayers = t->stack[which].sublayers;
  int s = t->config.pre_norm ? junction : junction - 1;
  if (s >= sublayers) return &t->params.final_norm[which];
  return &t->params.layer[which][s / per_layer].norm[s % per_layer];
}

/* The way over a junction: adds the branch of the sublayer before it. */
void cross_junction(Transformer *t, Weights w, int which, int junction, size_t rows,
                    StepKey key) {
  StackState *s = &t->stack[which];
  const ModelConfig *c = &t->config;
  int per_layer = which ? 3 : 2, before = junction - 1;
  AddNorm n = {.rows = rows, .d = (size_t)c->d, .epsilon = c->norm_epsilon};
  if (junction > 0)
    n.drop =
        dropout_at(t, key, c->drop_residual, which, before / per_layer, before % per_layer);
  if (junction == 0 && !c->pre_norm) return;
  const NormParams *p = norm_at(t, which, junction);
  const void *x = junction == 0 ? s->sum[0] : c->pre_norm ? s->sum[before] : s->y[before];
  t->backend->add_norm(t->backend, s->sum[junction], s->y[junction], s->stat[junction], x,
                       junction ? t->branch : NULL, w.full + p->gain, w.full + p->bias, &n);
}

Attention self_attention(const Transformer *t, int which, int layer, const int32_t *off,
                         size_t sentences, StepKey key) {
  const ModelConfig *c = &t->config;
  size_t d = (size_t)c->d;
  return (Attention){.sentences = sentences,
                     .heads = (size_t)c->heads,
                     .d = d / (size_t)c->heads,
                     .q_off = off,
                     .k_off = off,
                     .q_ld = 3 * d,
                     .kv_ld = 3 * d,
                     .o_ld = d,
                     .causal = which == 1,
                     .drop = dropout_at(t, key, c->drop_attention, which, layer, 8)};
}

Attention cross_attention(const Transformer *t, int layer, const int32_t *q_off,
                          const int32_t *k_off, size_t sentences, StepKey key) {
  const ModelConfig *c = &t->config;
  size_t d = (size_t)c->d;
  return (Attention){.sentences = sentences,
                     .heads = (size_t)c->heads,
                     .d = d / (size_t)c->heads,
                     .q_off = q_off,
                     .k_off = k_off,
                     .q_ld = d,
                     .kv_ld = (size_t)c->layers[1] * 2 * d,
                     .o_ld = d,
                     .drop = dropout_at(t, key, c->drop_attention, 1, layer, 9)};
}

void *element(const Transformer *t, const void *array, size_t n) {
  return (char *)array + n * type_size(t->backend->type);
}

const void *weight(const Transformer *t, Weights w, size_t offset) {
  return offset == SIZE_MAX ? NULL : element(t, w.low, offset);
}

static void self_sublayer(Transformer *t, Weights w, int which, int layer, const void *y,
                          size_t rows, const int32_t *off, size_t sentences, StepKey key) {
  const Backend *b = t->backend;
  const AttentionParams *p = &t->params.layer[which][layer].self;
  AttentionState *s = &t->stack[which].self[layer];
  size_t d = (size_t)t->config.d;
  Attention a = self_attention(t, which, layer, off, sentences, key);
  b->linear(b, s->in, y, weight(t, w, p->in), weight(t, w, p->in_bias), rows, d, 3 * d);
  b->attend(b, s->out, s->lse, s->in, element(t, s->in, d), element(t, s->in, 2 * d), &a);
  b->linear(b, t->branch, s->out, weight(t, w, p->out), weight(t, w, p->out_bias), rows, d, d);
}

static void cross_sublayer(Transformer *t, Weights w, int layer, const void *y, size_t rows,
                           const int32_t *q_off, const int32_t *k_off, size_t sentences,
                           StepKey key) {
  const Backend *b = t->backend;
  const AttentionParams *p = &t->params.layer[1][layer].cross;
  AttentionState *s = &t->stack[1].cross[layer];
  size_t d = (size_t)t->config.d;
  const void *k = element(t, t->cross_kv, (size_t)layer * 2 * d);
  Attention a = cross_attention(t, layer, q_off, k_off, sentences, key);
  b->linear(b, s->in, y, weight(t, w, p->in), weight(t, w, p->in_bias), rows, d, d);
  b->attend(b, s->out, s->lse, s->in, k, element(t, k, d), &a);
  b->linear(b, t->branch, s->out, weight(t, w, p->out), weight(t, w, p->out_bias), rows, d, d);
}

void feed_sublayer(Transformer *t, Weights w, int which, int layer, const void *y, size_t rows,
                   StepKey key) {
  const Backend *b = t->backend;
  const FeedParams *p = &t->params.layer[which][layer].feed;
  FeedState *s = &t->stack[which].feed[layer];
  size_t d = (size_t)t->config.d, ff = (size_t)t->config.ff;
  /* Where a mask is all that is kept, the bias can be added on the way. */
  const void *bias = weight(t, w, p->up_bias);
  b->linear(b, s->up, y, weight(t, w, p->up), s->mask ? NULL : bias, rows, d, ff);
  b->activate(b, s->act, s->mask, s->up, s->mask ? bias : NULL, rows, ff, t->config.activation,
              dropout_at(t, key, t->config.drop_activation, which, layer, 10));
  b->linear(b, t->branch, s->act, weight(t, w, p->down), weight(t, w, p->down_bias), rows, ff,
            d);
}

void embed_into(Transformer *t, Weights w, int which, const int32_t *id, const int32_t *pos,
                size_t rows, StepKey key) {
  const Backend *b = t->backend;
  size_t d = (size_t)t->config.d;
  size_t table = which ? t->params.target_table : t->params.source_table;
  size_t place = which ? t->params.target_place : t->params.source_place;
  b->embed(b, t->stack[which].sum[0], weight(t, w, table), t->place ? t->place : w.full + place,
           id, pos, rows, d, sqrtf((float)d),
           dropout_at(t, key, t->config.drop_embed, which, 255, 11));
}

const void *transformer_encode(Transformer *t, Weights w, const int32_t *src,
                               const int32_t *pos, const int32_t *off, size_t sentences,
                               size_t rows, StepKey key) {
  StackState *s = &t->stack[0];
  embed_into(t, w, 0, src, pos, rows, key);
  cross_junction(t, w, 0, 0, rows, key);
  for (int i = 0; i < s->sublayers; i++) {
    if (i % 2 == 0)
      self_sublayer(t, w, 0, i / 2, s->y[i], rows, off, sentences, key);
    else
      feed_sublayer(t, w, 0, i / 2, s->y[i], rows, key);
    cross_junction(t, w, 0, i + 1, rows, key);
  }
  return s->y[s->sublayers];
}

void transformer_cross_kv(Transformer *t, Weights w, const void *memory, size_t rows) {
  const Backend *b = t->backend;
  size_t d = (size_t)t->config.d;
  b->linear(b, t->cross_kv, memory, weight(t, w, t->params.cross_kv),
            weight(t, w, t->params.cross_kv_bias), rows, d,
            (size_t)t->config.layers[1] * 2 * d);
}

static const void *decode_all(Transformer *t, Weights w, const Batch *batch, StepKey key) {
  StackState *s = &t->stack[1];
  size_t rows = batch->rows[1], n = batch->sentences;
  embed_into(t, w, 1, batch->tgt_in, batch->tgt_pos, rows, key);
  cross_junction(t, w, 1, 0, rows, key);
  for (int i = 0; i < s->sublayers; i++) {
    if (i % 3 == 0) self_sublayer(t, w, 1, i / 3, s->y[i], rows, batch->tgt_off, n, key);
    if (i % 3 == 1)
      cross_sublayer(t, w, i / 3, s->y[i], rows, batch->tgt_off, batch->src_off, n, key);
    if (i % 3 == 2) feed_sublayer(t, w, 1, i / 3, s->y[i], rows, key);
    cross_junction(t, w, 1, i + 1, rows, key);
  }
  return s->y[s->sublayers];
}

/* Loss, chunk by chunk; with g also the gradients of the output weights, and of
 * the decoder's output into d_y. */
static void loss_of(Transformer *t, Weights w, float *g, const void *y, const Batch *batch,
                    float smoothing, float scale) {
  const Backend *b = t->backend;
  size_t d = (size_t)t->config.d, vocab = (size_t)t->config.vocab, rows = batch->rows[1];
  const void *output = weight(t, w, t->params.output);
  for (size_t r = 0; r < rows; r += t->loss_rows) {
    size_t n = rows - r < t->loss_rows ? rows - r : t->loss_rows;
    const void *from = element(t, y, r * d);
    b->linear(b, t->logits, from, output, NULL, n, d, vocab);
    b->loss(b, t->logits, t->sums, batch->tgt_out + r, n, vocab, smoothing, g ? scale : 0);
    if (!g) continue;
    b->linear_dx(b, element(t, t->d_y, r * d), t->logits, output, n, d, vocab, false);
    b->linear_dw(b, g + t->params.output, NULL, t->logits, from, n, d, vocab,
                 r > 0 || !t->first);
  }
}

Err transformer_loss(Transformer *t, BatchLoss *loss) {
  const Backend *b = t->backend;
  double sum[3];
  TRY(b->get(b, sum, t->sums, sizeof sum));
  b->zero(b, t->sums, sizeof sum);
  *loss = (BatchLoss){sum[0], sum[1], sum[2], t->rows};
  t->rows = 0;
  return ERR_OK;
}

void transformer_load(Transformer *t, const Batch *given, StepKey key) {
  const Backend *b = t->backend;
  Batch *batch = &t->at_hand;
  *batch = *given;
  t->loads++;
  t->dropout = key.dropout, t->first = key.first;
  t->rows += given->rows[1];
  if (!t->batch) {
    b->put(b, t->key, &key.key, sizeof key.key);
    return;
  }
  /* One block holds all that the device reads. */
  assert(given->capacity <= t->capacity && given->most_sentences <= t->capacity);
  assert(given->padded[0] >= given->rows[0] && given->padded[1] >= given->rows[1] &&
         "batch_pad was not called");
  *given->key = key.key;
  batch_at(batch, t->batch);
  b->put(b, t->batch, given->memory_,
         batch_ints(given->capacity, given->most_sentences) * sizeof(int32_t));
  memcpy(batch->rows, given->padded, sizeof batch->rows);
  batch->sentences = given->most_sentences + 1;
}

void transformer_run(Transformer *t, Weights w, float *g, float smoothing, float scale,
                     GradReady ready, void *context) {
  const Batch *batch = &t->at_hand;
  StepKey key = {0, t->dropout, t->first};
  const void *memory = transformer_encode(t, w, batch->src, batch->src_pos, batch->src_off,
                                          batch->sentences, batch->rows[0], key);
  transformer_cross_kv(t, w, memory, batch->rows[0]);
  const void *y = decode_all(t, w, batch, key);
  loss_of(t, w, g, y, batch, smoothing, scale);
  t->turned = progress_clock();
  if (g) transformer_back(t, w, g, batch, key, ready, context);
}

void transformer_step(Transformer *t, Weights w, float *g, const Batch *batch, StepKey key,
                      float smoothing, float scale, GradReady ready, void *context) {
  transformer_load(t, batch, key);
  transformer_run(t, w, g, smoothing, scale, ready, context);
}
