/* Backward pass of the Transformer. d_y is the gradient of what the sublayer at hand gave to the
 * junction behind it, or of the stack's output; d_sum runs along the residual
 * stream. Depends on transformer_internal.h. */
#include <math.h>

#include "model/transformer_internal.h"

static float *grad(float *g, size_t offset) {
  return offset == SIZE_MAX ? NULL : g + offset;
}

/* The bias that a sublayer adds last, or SIZE_MAX. */
static size_t last_bias(const Transformer *t, int which, int sublayer) {
  int per_layer = which ? 3 : 2, kind = sublayer % per_layer;
  const LayerParams *p = &t->at.layer[which][sublayer / per_layer];
  if (kind == per_layer - 1) return p->feed.down_bias;
  return kind ? p->cross.out_bias : p->self.out_bias;
}

/* Back over a junction: from d_y to d_branch (of the sublayer before it) and d_sum.
 * Pre-norm: d_sum also carries what came along the stream from behind. */
static void junction_backward(Transformer *t, Weights w, float *g, int which, int junction,
                              size_t rows, StepKey key) {
  StackState *s = &t->stack[which];
  const TransformerConfig *c = &t->config;
  int per_layer = which ? 3 : 2, before = junction - 1;
  if (junction == 0 && !c->pre_norm) return; /* d_y is the gradient of the embedding */
  AddNorm n = {.rows = rows, .d = (size_t)c->d, .epsilon = c->norm_epsilon};
  if (junction > 0)
    n.drop =
        dropout_at(t, key, c->drop_residual, which, before / per_layer, before % per_layer);
  const NormParams *p = norm_at(t, which, junction);
  bool last = junction == s->sublayers;
  const void *through = c->pre_norm && !last ? t->d_sum : NULL;
  float *dshift = junction ? grad(g, last_bias(t, which, before)) : NULL;
  t->model.backend->add_norm_backward(t->model.backend, t->d_sum, junction ? t->d_branch : NULL,
                                      g + p->gain, g + p->bias, dshift, t->d_y, through,
                                      s->sum[junction], s->stat[junction], w.full + p->gain, &n,
                                      !key.first);
}

/* The gradient of a sublayer's input: alone in pre-norm, added to the residual's
 * in post-norm, where both read the same y. */
static void input_backward(Transformer *t, Weights w, const void *dy, size_t weights,
                           size_t rows, size_t out) {
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d;
  if (!t->config.pre_norm) b->copy(b, t->d_y, t->d_sum, rows * d * type_size(b->type));
  b->linear_dx(b, t->d_y, dy, weight(t, w, weights), rows, d, out, !t->config.pre_norm);
}

static void self_backward(Transformer *t, Weights w, float *g, int which, int layer,
                          const void *y, size_t rows, const int32_t *off, size_t sentences,
                          StepKey key) {
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[which][layer].self;
  const AttentionState *s = &t->stack[which].self[layer];
  size_t d = (size_t)t->config.d;
  void *d_out = t->branch; /* free on the way back */
  Attention a = self_attention(t, which, layer, off, sentences, key);
  a.q_rows = rows;
  b->linear_dw(b, g + p->out, NULL, t->d_branch, s->out, rows, d, d, !key.first);
  b->linear_dx(b, d_out, t->d_branch, weight(t, w, p->out), rows, d, d, false);
  b->attend_backward(b, t->d_wide, element(t, t->d_wide, d), element(t, t->d_wide, 2 * d),
                     d_out, s->out, s->lse, s->in, element(t, s->in, d),
                     element(t, s->in, 2 * d), &a);
  b->linear_dw(b, g + p->in, grad(g, p->in_bias), t->d_wide, y, rows, d, 3 * d, !key.first);
  input_backward(t, w, t->d_wide, p->in, rows, 3 * d);
}

static void cross_backward(Transformer *t, Weights w, float *g, int layer, const void *y,
                           const Batch *batch, StepKey key) {
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[1][layer].cross;
  const AttentionState *s = &t->stack[1].cross[layer];
  size_t d = (size_t)t->config.d, rows = batch->rows[1], at = (size_t)layer * 2 * d;
  void *d_out = t->branch;
  const void *k = element(t, t->cross_kv, at);
  Attention a =
      cross_attention(t, layer, batch->tgt_off, batch->src_off, batch->sentences, key);
  a.q_rows = rows;
  b->linear_dw(b, g + p->out, NULL, t->d_branch, s->out, rows, d, d, !key.first);
  b->linear_dx(b, d_out, t->d_branch, weight(t, w, p->out), rows, d, d, false);
  b->attend_backward(b, t->d_wide, element(t, t->d_cross_kv, at),
                     element(t, t->d_cross_kv, at + d), d_out, s->out, s->lse, s->in, k,
                     element(t, k, d), &a);
  b->linear_dw(b, g + p->in, grad(g, p->in_bias), t->d_wide, y, rows, d, d, !key.first);
  input_backward(t, w, t->d_wide, p->in, rows, d);
}

static void feed_backward(Transformer *t, Weights w, float *g, int which, int layer,
                          const void *y, size_t rows, StepKey key) {
  const Backend *b = t->model.backend;
  const FeedParams *p = &t->at.layer[which][layer].feed;
  const FeedState *s = &t->stack[which].feed[layer];
  size_t d = (size_t)t->config.d, ff = (size_t)t->config.ff;
  const void *down = weight(t, w, p->down);
  Dropout drop = dropout_at(t, key, t->config.drop_activation, which, layer, 10);
  b->linear_dw(b, g + p->down, NULL, t->d_branch, s->act, rows, ff, d, !key.first);
  if (s->mask && b->fuses_relu && b->fuses_relu(b, rows, ff, d)) {
    b->linear_relu_backward(b, t->d_up, g + p->up_bias, t->d_branch, down, s->mask, rows, ff, d,
                            drop, !key.first);
  } else {
    b->linear_dx(b, t->d_up, t->d_branch, down, rows, ff, d, false);
    b->activate_backward(b, t->d_up, g + p->up_bias, t->d_up, s->mask ? s->mask : s->up, rows,
                         ff, t->config.activation, drop, !key.first);
  }
  b->linear_dw(b, g + p->up, NULL, t->d_up, y, rows, d, ff, !key.first);
  input_backward(t, w, t->d_up, p->up, rows, ff);
}

static void embed_backward(Transformer *t, float *g, int which, const int32_t *id,
                           const int32_t *pos, size_t rows, StepKey key) {
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d;
  size_t table = which ? t->at.target_table : t->at.source_table;
  size_t place = which ? t->at.target_place : t->at.source_place;
  const void *dx = t->config.pre_norm ? t->d_sum : t->d_y;
  b->embed_backward(b, g + table, grad(g, place), dx, id, pos, rows, d, (size_t)t->config.vocab,
                    (size_t)t->config.longest, sqrtf((float)d),
                    dropout_at(t, key, t->config.drop_embed, which, 255, 11));
}

/* The flat array holds the tables, then both stacks layer by layer, each with its
 * final norm, then cross_kv. Where a layer begins; one behind the last is the final
 * norm, and behind that what follows the stack. */
static size_t part_begin(const Transformer *t, int which, int part) {
  const TransformerParams *p = &t->at;
  int layers = t->config.layers[which];
  if (part < layers) return p->layer[which][part].norm[0].gain;
  if (part == layers && t->config.pre_norm) return p->final_norm[which].gain;
  return which ? p->cross_kv : part_begin(t, 1, 0);
}

/* Once the way back has passed the junction before a layer, the layer's gradients
 * are complete; behind the last junction, those of the final norm. */
static void junction_ready(const Transformer *t, int which, int junction, GradReady ready,
                           void *context) {
  int per_layer = which ? 3 : 2, part = junction / per_layer;
  if (!ready || junction % per_layer) return;
  size_t begin = part_begin(t, which, part), end = part_begin(t, which, part + 1);
  if (begin < end) ready(context, begin, end);
}

static void decoder_backward(Transformer *t, Weights w, float *g, const Batch *batch,
                             StepKey key, const ModelPass *pass) {
  StackState *s = &t->stack[1];
  size_t rows = batch->rows[1];
  for (int i = s->sublayers; i >= 0; i--) {
    junction_backward(t, w, g, 1, i, rows, key);
    junction_ready(t, 1, i, pass->ready, pass->context);
    if (i == 0) break;
    int layer = (i - 1) / 3, kind = (i - 1) % 3;
    const void *y = s->y[i - 1];
    if (kind == 0)
      self_backward(t, w, g, 1, layer, y, rows, batch->tgt_off, batch->sentences, key);
    if (kind == 1) cross_backward(t, w, g, layer, y, batch, key);
    if (kind == 2) feed_backward(t, w, g, 1, layer, y, rows, key);
  }
  embed_backward(t, g, 1, batch->tgt_in, batch->tgt_pos, rows, key);
}

/* The encoder's output went into every decoder layer's keys and values. */
static void memory_backward(Transformer *t, Weights w, float *g, const Batch *batch,
                            StepKey key) {
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d, kv = (size_t)t->config.layers[1] * 2 * d,
         rows = batch->rows[0];
  const void *memory = t->stack[0].y[t->stack[0].sublayers];
  b->linear_dw(b, g + t->at.cross_kv, grad(g, t->at.cross_kv_bias), t->d_cross_kv, memory, rows,
               d, kv, !key.first);
  b->linear_dx(b, t->d_y, t->d_cross_kv, weight(t, w, t->at.cross_kv), rows, d, kv, false);
}

static void encoder_backward(Transformer *t, Weights w, float *g, const Batch *batch,
                             StepKey key, const ModelPass *pass) {
  StackState *s = &t->stack[0];
  size_t rows = batch->rows[0];
  for (int i = s->sublayers; i >= 0; i--) {
    junction_backward(t, w, g, 0, i, rows, key);
    junction_ready(t, 0, i, pass->ready, pass->context);
    if (i == 0) break;
    int layer = (i - 1) / 2;
    const void *y = s->y[i - 1];
    if ((i - 1) % 2 == 0)
      self_backward(t, w, g, 0, layer, y, rows, batch->src_off, batch->sentences, key);
    else
      feed_backward(t, w, g, 0, layer, y, rows, key);
  }
  embed_backward(t, g, 0, batch->src, batch->src_pos, rows, key);
}

/* What nobody writes before it is added to: the tables, which lie in front of the stacks,
 * but for the output's; and the padding, which nobody writes at all. */
static void clear_rest(const Transformer *t, float *g) {
  const Backend *b = t->model.backend;
  const Params *p = &t->model.params;
  size_t stacks = part_begin(t, 0, 0), from = 0;
  for (size_t i = 0; i <= p->count; i++) {
    const Param *q = &p->param[i];
    size_t to = i < p->count ? q->offset : p->padded;
    if (to < stacks && to != t->at.output) continue;
    if (to > from) b->zero(b, g + from, (to - from) * sizeof *g);
    if (i < p->count) from = to + q->rows * q->cols;
  }
}

static void memory_ready(const Transformer *t, GradReady ready, void *context) {
  if (ready) ready(context, t->at.cross_kv, t->model.params.padded);
}

static void tables_ready(const Transformer *t, GradReady ready, void *context) {
  if (ready) ready(context, 0, part_begin(t, 0, 0));
}

/* The order of decoder_backward, memory_backward and encoder_backward, without their work. */
void transformer_announce(const Transformer *t, GradReady ready, void *context) {
  for (int i = t->stack[1].sublayers; i >= 0; i--) junction_ready(t, 1, i, ready, context);
  memory_ready(t, ready, context);
  for (int i = t->stack[0].sublayers; i >= 0; i--) junction_ready(t, 0, i, ready, context);
  tables_ready(t, ready, context);
}

void transformer_backward(Transformer *t, Weights w, float *g, const Batch *batch, StepKey key,
                          const ModelPass *pass) {
  if (key.first) clear_rest(t, g);
  decoder_backward(t, w, g, batch, key, pass);
  memory_backward(t, w, g, batch, key);
  memory_ready(t, pass->ready, pass->context);
  encoder_backward(t, w, g, batch, key, pass);
  tables_ready(t, pass->ready, pass->context);
}
