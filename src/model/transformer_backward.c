/* Backward pass of the Transformer: the forward pass in reverse order. A "junction" is the residual
 * add and layer norm between two sublayers (see StackState). d_y is the gradient of a junction's
 * output y, d_sum that of the residual, and d_branch that of the output of the sublayer before the
 * junction. Depends on transformer_internal.h. */
#include <math.h>

#include "model/transformer_internal.h"

static float *grad_at(float *g, size_t offset) {
  return offset == PARAM_NONE ? NULL : g + offset;
}

/* Returns the offset of the bias of a sublayer's output projection, or PARAM_NONE. */
static size_t find_output_bias(const Transformer *t, int stack, int sublayer) {
  int per_layer = stack ? 3 : 2, kind = sublayer % per_layer;
  const LayerParams *p = &t->at.layer[stack][sublayer / per_layer];
  if (kind == per_layer - 1) return p->ffn.down_bias;
  return kind ? p->cross.out_bias : p->self.out_bias;
}

/* Backward of a junction (residual add and layer norm): reads d_y, writes d_sum and, for the
 * sublayer before the junction, d_branch. With pre-norm, d_sum already holds the gradient of the
 * residual after the junction, to which the new one is added. Also computes the gradient of that
 * sublayer's output bias, the column sums of d_branch. */
static void add_norm_backward(Transformer *t, Weights w, float *g, int stack, int junction,
                              size_t tokens, StepKey key) {
  StackState *s = &t->stack[stack];
  const TransformerConfig *c = &t->config;
  int per_layer = stack ? 3 : 2, before = junction - 1;
  /* post-norm has no norm here: d_y is already the gradient of the embedding. */
  if (junction == 0 && !c->pre_norm) return;
  AddNorm n = {.rows = tokens, .d = (size_t)c->d_model, .epsilon = c->norm_epsilon};
  if (junction > 0)
    n.drop = transformer_dropout(t, key, c->drop_residual, stack, before / per_layer,
                                 before % per_layer);
  const NormParams *p = transformer_norm(t, stack, junction);
  bool is_last = junction == s->sublayers;
  const void *d_residual = c->pre_norm && !is_last ? t->d_sum : NULL;
  float *d_bias = junction ? grad_at(g, find_output_bias(t, stack, before)) : NULL;
  t->model.backend->add_norm_backward(t->model.backend, t->d_sum, junction ? t->d_branch : NULL,
                                      g + p->gain, g + p->bias, d_bias, t->d_y, d_residual,
                                      s->sum[junction], s->norm_stats[junction],
                                      w.full + p->gain, &n, !key.first);
}

/* Writes the gradient of a sublayer's input to d_y. With post-norm the residual connection reads
 * the same y, so its gradient is added. */
static void sublayer_input_backward(Transformer *t, Weights w, const void *dy, size_t weights,
                                    size_t tokens, size_t out) {
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d_model;
  if (!t->config.pre_norm) b->copy(b, t->d_y, t->d_sum, tokens * d * type_size(b->type));
  b->linear_dx(b, t->d_y, dy, transformer_weight(t, w, weights), tokens, d, out,
               !t->config.pre_norm);
}

static void self_attention_backward(Transformer *t, Weights w, float *g, int stack, int layer,
                                    const void *y, size_t tokens, const int32_t *off,
                                    size_t sentences, StepKey key) {
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[stack][layer].self;
  const AttentionState *s = &t->stack[stack].self[layer];
  size_t d = (size_t)t->config.d_model;
  void *d_out = t->branch; /* reuse `branch`, which backward does not need */
  Attention a = transformer_self_attention(t, stack, layer, off, sentences, key);
  a.q_rows = tokens;
  b->linear_dw(b, g + p->out, NULL, t->d_branch, s->out, tokens, d, d, !key.first);
  b->linear_dx(b, d_out, t->d_branch, transformer_weight(t, w, p->out), tokens, d, d, false);
  b->attend_backward(b, t->d_wide, transformer_element(t, t->d_wide, d),
                     transformer_element(t, t->d_wide, 2 * d), d_out, s->out, s->lse, s->in,
                     transformer_element(t, s->in, d), transformer_element(t, s->in, 2 * d),
                     &a);
  b->linear_dw(b, g + p->in, grad_at(g, p->in_bias), t->d_wide, y, tokens, d, 3 * d,
               !key.first);
  sublayer_input_backward(t, w, t->d_wide, p->in, tokens, 3 * d);
}

static void cross_attention_backward(Transformer *t, Weights w, float *g, int layer,
                                     const void *y, const Batch *batch, StepKey key) {
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[1][layer].cross;
  const AttentionState *s = &t->stack[1].cross[layer];
  size_t d = (size_t)t->config.d_model, tokens = batch->rows[1], at = (size_t)layer * 2 * d;
  void *d_out = t->branch;
  const void *k = transformer_element(t, t->cross_kv, at);
  Attention a = transformer_cross_attention(t, layer, batch->tgt_off, batch->src_off,
                                            batch->sentences, key);
  a.q_rows = tokens;
  b->linear_dw(b, g + p->out, NULL, t->d_branch, s->out, tokens, d, d, !key.first);
  b->linear_dx(b, d_out, t->d_branch, transformer_weight(t, w, p->out), tokens, d, d, false);
  b->attend_backward(b, t->d_wide, transformer_element(t, t->d_cross_kv, at),
                     transformer_element(t, t->d_cross_kv, at + d), d_out, s->out, s->lse,
                     s->in, k, transformer_element(t, k, d), &a);
  b->linear_dw(b, g + p->in, grad_at(g, p->in_bias), t->d_wide, y, tokens, d, d, !key.first);
  sublayer_input_backward(t, w, t->d_wide, p->in, tokens, d);
}

static void ffn_backward(Transformer *t, Weights w, float *g, int stack, int layer,
                         const void *y, size_t tokens, StepKey key) {
  const Backend *b = t->model.backend;
  const FfnParams *p = &t->at.layer[stack][layer].ffn;
  const FfnState *s = &t->stack[stack].ffn[layer];
  size_t d = (size_t)t->config.d_model, ffn = (size_t)t->config.ffn_dim;
  const void *down = transformer_weight(t, w, p->down);
  Dropout drop =
      transformer_dropout(t, key, t->config.drop_activation, stack, layer, SITE_ACTIVATION);
  b->linear_dw(b, g + p->down, NULL, t->d_branch, s->act, tokens, ffn, d, !key.first);
  if (s->mask && b->fuses_relu && b->fuses_relu(b, tokens, ffn, d)) {
    b->linear_relu_backward(b, t->d_up, g + p->up_bias, t->d_branch, down, s->mask, tokens, ffn,
                            d, drop, !key.first);
  } else {
    b->linear_dx(b, t->d_up, t->d_branch, down, tokens, ffn, d, /*accumulate=*/false);
    b->activate_backward(b, t->d_up, g + p->up_bias, t->d_up, s->mask ? s->mask : s->up, tokens,
                         ffn, t->config.activation, drop, !key.first);
  }
  b->linear_dw(b, g + p->up, NULL, t->d_up, y, tokens, d, ffn, !key.first);
  sublayer_input_backward(t, w, t->d_up, p->up, tokens, ffn);
}

static void embed_backward(Transformer *t, float *g, int stack, const int32_t *id,
                           const int32_t *pos, size_t tokens, StepKey key) {
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d_model;
  size_t embedding = stack ? t->at.target_embedding : t->at.source_embedding;
  size_t positions = stack ? t->at.target_positions : t->at.source_positions;
  const void *dx = t->config.pre_norm ? t->d_sum : t->d_y;
  b->embed_backward(b, g + embedding, grad_at(g, positions), dx, id, pos, tokens, d,
                    (size_t)t->config.vocab, (size_t)t->config.max_positions, sqrtf((float)d),
                    transformer_dropout(t, key, t->config.drop_embed, stack, EMBEDDING_LAYER,
                                        SITE_EMBEDDING));
}

/* Returns the offset at which a layer's parameters begin. The flat array holds the embeddings,
 * the encoder's layers and final norm, the decoder's layers and final norm, and cross_kv.
 * `layer` may also be the number of layers (the final norm) or that number plus one (the end of
 * the stack). */
static size_t layer_begin(const Transformer *t, int stack, int layer) {
  const TransformerParams *p = &t->at;
  int layers = t->config.layers[stack];
  if (layer < layers) return p->layer[stack][layer].norm[0].gain;
  if (layer == layers && t->config.pre_norm) return p->final_norm[stack].gain;
  return stack ? p->cross_kv : layer_begin(t, 1, 0);
}

/* Reports gradients that are complete. Call it after the backward of each junction (residual add
 * and layer norm): the one before a layer's first sublayer completes the layer, the last one of the
 * stack completes the final norm. */
static void report_layer(const Transformer *t, int stack, int junction, GradReady ready,
                         void *context) {
  int per_layer = stack ? 3 : 2, layer = junction / per_layer;
  if (!ready || junction % per_layer) return;
  size_t begin = layer_begin(t, stack, layer), end = layer_begin(t, stack, layer + 1);
  if (begin < end) ready(context, begin, end);
}

static void decoder_backward(Transformer *t, Weights w, float *g, const Batch *batch,
                             StepKey key, const ModelPass *pass) {
  StackState *s = &t->stack[1];
  size_t tokens = batch->rows[1];
  for (int i = s->sublayers; i >= 0; i--) {
    add_norm_backward(t, w, g, 1, i, tokens, key);
    report_layer(t, 1, i, pass->ready, pass->context);
    if (i == 0) break;
    int layer = (i - 1) / 3, kind = (i - 1) % 3;
    const void *y = s->y[i - 1];
    if (kind == 0)
      self_attention_backward(t, w, g, 1, layer, y, tokens, batch->tgt_off, batch->sentences,
                              key);
    if (kind == 1) cross_attention_backward(t, w, g, layer, y, batch, key);
    if (kind == 2) ffn_backward(t, w, g, 1, layer, y, tokens, key);
  }
  embed_backward(t, g, 1, batch->tgt_in, batch->tgt_pos, tokens, key);
}

/* Backward of cross_kv, the GEMM that computes the cross-attention keys and values of all
 * decoder layers: adds weight gradients to g and writes the gradient of the encoder's output
 * to d_y. */
static void cross_kv_backward(Transformer *t, Weights w, float *g, const Batch *batch,
                              StepKey key) {
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d_model, kv = (size_t)t->config.layers[1] * 2 * d,
         tokens = batch->rows[0];
  const void *memory = t->stack[0].y[t->stack[0].sublayers];
  b->linear_dw(b, g + t->at.cross_kv, grad_at(g, t->at.cross_kv_bias), t->d_cross_kv, memory,
               tokens, d, kv, !key.first);
  b->linear_dx(b, t->d_y, t->d_cross_kv, transformer_weight(t, w, t->at.cross_kv), tokens, d,
               kv, /*accumulate=*/false);
}

static void encoder_backward(Transformer *t, Weights w, float *g, const Batch *batch,
                             StepKey key, const ModelPass *pass) {
  StackState *s = &t->stack[0];
  size_t tokens = batch->rows[0];
  for (int i = s->sublayers; i >= 0; i--) {
    add_norm_backward(t, w, g, 0, i, tokens, key);
    report_layer(t, 0, i, pass->ready, pass->context);
    if (i == 0) break;
    int layer = (i - 1) / 2;
    const void *y = s->y[i - 1];
    if ((i - 1) % 2 == 0)
      self_attention_backward(t, w, g, 0, layer, y, tokens, batch->src_off, batch->sentences,
                              key);
    else
      ffn_backward(t, w, g, 0, layer, y, tokens, key);
  }
  embed_backward(t, g, 0, batch->src, batch->src_pos, tokens, key);
}

/* Clears the gradients that the first micro-batch does not overwrite: the embeddings, to which
 * backward adds (except the output's, written by the loss), and the padding. */
static void clear_unwritten_grads(const Transformer *t, float *g) {
  const Backend *b = t->model.backend;
  const Params *p = &t->model.params;
  size_t stacks = layer_begin(t, 0, 0), from = 0;
  for (size_t i = 0; i <= p->count; i++) {
    const Param *q = &p->param[i];
    size_t to = i < p->count ? q->offset : p->padded;
    if (to < stacks && to != t->at.output) continue;
    if (to > from) b->zero(b, g + from, (to - from) * sizeof *g);
    if (i < p->count) from = to + q->rows * q->cols;
  }
}

static void report_cross_kv(const Transformer *t, GradReady ready, void *context) {
  if (ready) ready(context, t->at.cross_kv, t->model.params.padded);
}

static void report_embeddings(const Transformer *t, GradReady ready, void *context) {
  if (ready) ready(context, 0, layer_begin(t, 0, 0));
}

/* Must report the same ranges, in the same order, as transformer_backward. */
void transformer_announce(const Transformer *t, GradReady ready, void *context) {
  for (int i = t->stack[1].sublayers; i >= 0; i--) report_layer(t, 1, i, ready, context);
  report_cross_kv(t, ready, context);
  for (int i = t->stack[0].sublayers; i >= 0; i--) report_layer(t, 0, i, ready, context);
  report_embeddings(t, ready, context);
}

void transformer_backward(Transformer *t, Weights w, float *g, const Batch *batch, StepKey key,
                          const ModelPass *pass) {
  if (key.first) clear_unwritten_grads(t, g);
  decoder_backward(t, w, g, batch, key, pass);
  cross_kv_backward(t, w, g, batch, key);
  report_cross_kv(t, pass->ready, pass->context);
  encoder_backward(t, w, g, batch, key, pass);
  report_embeddings(t, pass->ready, pass->context);
}
