/* Forward pass and loss of the Transformer, sublayer by sublayer. Depends on
 * transformer_internal.h. */
#include <math.h>

#include "model/transformer_internal.h"

Dropout transformer_dropout(const Transformer *t, StepKey key, float rate, int stack, int layer,
                            int site) {
  return (Dropout){t->dropout_key, (uint32_t)((stack * 256 + layer) * 16 + site),
                   key.dropout ? rate : 0};
}

const NormParams *transformer_norm(const Transformer *t, int stack, int junction) {
  int per_layer = stack ? 3 : 2, sublayers = t->stack[stack].sublayers;
  int s = t->config.pre_norm ? junction : junction - 1;
  if (s >= sublayers) return &t->at.final_norm[stack];
  return &t->at.layer[stack][s / per_layer].norm[s % per_layer];
}

/* Returns true if the first GEMM of the feed-forward sublayers and its activation are one
 * operation. */
static bool fuses_ffn(const Transformer *t, const FfnState *s, size_t tokens) {
  const Backend *b = t->model.backend;
  return s->mask && b->fuses_linear_relu_dropout &&
         b->fuses_linear_relu_dropout(b, tokens, (size_t)t->config.d_model,
                                      (size_t)t->config.ffn_dim);
}

static Dropout activation_dropout(const Transformer *t, StepKey key, int stack, int layer) {
  return transformer_dropout(t, key, t->config.drop_activation, stack, layer, SITE_ACTIVATION);
}

/* Lets the junction before a feed-forward sublayer draw the bits of that sublayer's dropout, if
 * the sublayer reads them. */
static void draw_ahead(const Transformer *t, int stack, int junction, size_t tokens,
                       StepKey key, AddNorm *n) {
  int per_layer = stack ? 3 : 2, layer = junction / per_layer;
  if (junction % per_layer != per_layer - 1) return;
  const FfnState *s = &t->stack[stack].ffn[layer];
  if (!fuses_ffn(t, s, tokens)) return;
  n->ahead = s->mask;
  n->ahead_width = (size_t)t->config.ffn_dim;
  n->ahead_drop = activation_dropout(t, key, stack, layer);
}

/* Runs a junction: adds the output of the sublayer before it to the residual and applies the layer
 * norm. The next residual is the sum with pre-norm, the normalised sum with post-norm. */
void transformer_add_norm(Transformer *t, Weights w, int stack, int junction, size_t tokens,
                          StepKey key) {
  StackState *s = &t->stack[stack];
  const TransformerConfig *c = &t->config;
  int per_layer = stack ? 3 : 2, before = junction - 1;
  AddNorm n = {.rows = tokens, .d = (size_t)c->d_model, .epsilon = c->norm_epsilon};
  if (junction > 0)
    n.drop = transformer_dropout(t, key, c->drop_residual, stack, before / per_layer,
                                 before % per_layer);
  if (junction == 0 && !c->pre_norm) return;
  draw_ahead(t, stack, junction, tokens, key, &n);
  const NormParams *p = transformer_norm(t, stack, junction);
  const void *x = junction == 0 ? s->sum[0] : c->pre_norm ? s->sum[before] : s->y[before];
  t->model.backend->add_norm(t->model.backend, s->sum[junction], s->y[junction],
                             s->norm_stats[junction], x, junction ? t->branch : NULL,
                             w.full + p->gain, w.full + p->bias, &n);
}

Attention transformer_self_attention(const Transformer *t, int stack, int layer,
                                     const int32_t *off, size_t sentences, StepKey key) {
  const TransformerConfig *c = &t->config;
  size_t d = (size_t)c->d_model;
  return (Attention){.sentences = sentences,
                     .heads = (size_t)c->heads,
                     .d = d / (size_t)c->heads,
                     .q_off = off,
                     .k_off = off,
                     .q_ld = 3 * d,
                     .kv_ld = 3 * d,
                     .o_ld = d,
                     .causal = stack == 1,
                     .drop = transformer_dropout(t, key, c->drop_attention, stack, layer,
                                                 SITE_SELF_ATTENTION)};
}

Attention transformer_cross_attention(const Transformer *t, int layer, const int32_t *q_off,
                                      const int32_t *k_off, size_t sentences, StepKey key) {
  const TransformerConfig *c = &t->config;
  size_t d = (size_t)c->d_model;
  return (Attention){
      .sentences = sentences,
      .heads = (size_t)c->heads,
      .d = d / (size_t)c->heads,
      .q_off = q_off,
      .k_off = k_off,
      .q_ld = d,
      .kv_ld = (size_t)c->layers[1] * 2 * d,
      .o_ld = d,
      .drop = transformer_dropout(t, key, c->drop_attention, 1, layer, SITE_CROSS_ATTENTION)};
}

void *transformer_element(const Transformer *t, const void *array, size_t n) {
  return (char *)array + n * type_size(t->model.backend->type);
}

const void *transformer_weight(const Transformer *t, Weights w, size_t offset) {
  return offset == PARAM_NONE ? NULL : transformer_element(t, w.low, offset);
}

static void self_attention_forward(Transformer *t, Weights w, int stack, int layer,
                                   const void *y, size_t tokens, const int32_t *off,
                                   size_t sentences, StepKey key) {
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[stack][layer].self;
  AttentionState *s = &t->stack[stack].self[layer];
  size_t d = (size_t)t->config.d_model;
  Attention a = transformer_self_attention(t, stack, layer, off, sentences, key);
  b->linear(b, s->in, y, transformer_weight(t, w, p->in), transformer_weight(t, w, p->in_bias),
            tokens, d, 3 * d);
  b->attend(b, s->out, s->lse, s->in, transformer_element(t, s->in, d),
            transformer_element(t, s->in, 2 * d), &a);
  b->linear(b, t->branch, s->out, transformer_weight(t, w, p->out),
            transformer_weight(t, w, p->out_bias), tokens, d, d);
}

static void cross_attention_forward(Transformer *t, Weights w, int layer, const void *y,
                                    size_t tokens, const int32_t *q_off, const int32_t *k_off,
                                    size_t sentences, StepKey key) {
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[1][layer].cross;
  AttentionState *s = &t->stack[1].cross[layer];
  size_t d = (size_t)t->config.d_model;
  const void *k = transformer_element(t, t->cross_kv, (size_t)layer * 2 * d);
  Attention a = transformer_cross_attention(t, layer, q_off, k_off, sentences, key);
  b->linear(b, s->in, y, transformer_weight(t, w, p->in), transformer_weight(t, w, p->in_bias),
            tokens, d, d);
  b->attend(b, s->out, s->lse, s->in, k, transformer_element(t, k, d), &a);
  b->linear(b, t->branch, s->out, transformer_weight(t, w, p->out),
            transformer_weight(t, w, p->out_bias), tokens, d, d);
}

/* Computes s->act, the activations between the two GEMMs of an FFN. */
static void activate_ffn(Transformer *t, Weights w, const FfnParams *p, const FfnState *s,
                         const void *y, size_t tokens, Dropout drop) {
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d_model, ffn = (size_t)t->config.ffn_dim;
  const void *up = transformer_weight(t, w, p->up),
             *bias = transformer_weight(t, w, p->up_bias);
  if (!t->model.training && t->config.activation == ACT_RELU && b->linear_relu) {
    b->linear_relu(b, s->act, y, up, bias, tokens, d, ffn);
    return;
  }
  if (fuses_ffn(t, s, tokens)) {
    b->linear_relu_dropout(b, s->act, s->mask, y, up, bias, tokens, d, ffn, drop);
    return;
  }
  /* With ReLU only a mask is saved for backward, so b->activate can add the bias; otherwise the
   * sum including the bias must be saved. */
  b->linear(b, s->up, y, up, s->mask ? NULL : bias, tokens, d, ffn);
  b->activate(b, s->act, s->mask, s->up, s->mask ? bias : NULL, tokens, ffn,
              t->config.activation, drop);
}

void transformer_ffn(Transformer *t, Weights w, int stack, int layer, const void *y,
                     size_t tokens, StepKey key) {
  const Backend *b = t->model.backend;
  const FfnParams *p = &t->at.layer[stack][layer].ffn;
  FfnState *s = &t->stack[stack].ffn[layer];
  size_t d = (size_t)t->config.d_model, ffn = (size_t)t->config.ffn_dim;
  activate_ffn(t, w, p, s, y, tokens, activation_dropout(t, key, stack, layer));
  b->linear(b, t->branch, s->act, transformer_weight(t, w, p->down),
            transformer_weight(t, w, p->down_bias), tokens, ffn, d);
}

void transformer_embed(Transformer *t, Weights w, int stack, const int32_t *id,
                       const int32_t *pos, size_t tokens, StepKey key) {
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d_model;
  size_t embedding = stack ? t->at.target_embedding : t->at.source_embedding;
  size_t positions = stack ? t->at.target_positions : t->at.source_positions;
  b->embed(b, t->stack[stack].sum[0], transformer_weight(t, w, embedding),
           t->positions ? t->positions : w.full + positions, id, pos, tokens, d,
           sqrtf((float)d),
           transformer_dropout(t, key, t->config.drop_embed, stack, EMBEDDING_LAYER,
                               SITE_EMBEDDING));
}

const void *transformer_encode(Transformer *t, Weights w, const int32_t *src,
                               const int32_t *pos, const int32_t *off, size_t sentences,
                               size_t tokens, StepKey key) {
  StackState *s = &t->stack[0];
  transformer_embed(t, w, 0, src, pos, tokens, key);
  transformer_add_norm(t, w, 0, 0, tokens, key);
  for (int i = 0; i < s->sublayers; i++) {
    if (i % 2 == 0)
      self_attention_forward(t, w, 0, i / 2, s->y[i], tokens, off, sentences, key);
    else
      transformer_ffn(t, w, 0, i / 2, s->y[i], tokens, key);
    transformer_add_norm(t, w, 0, i + 1, tokens, key);
  }
  return s->y[s->sublayers];
}

void transformer_cross_kv(Transformer *t, Weights w, const void *memory, size_t tokens) {
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d_model;
  b->linear(b, t->cross_kv, memory, transformer_weight(t, w, t->at.cross_kv),
            transformer_weight(t, w, t->at.cross_kv_bias), tokens, d,
            (size_t)t->config.layers[1] * 2 * d);
}

const void *transformer_decode(Transformer *t, Weights w, const Batch *batch, StepKey key) {
  StackState *s = &t->stack[1];
  size_t tokens = batch->rows[1], n = batch->sentences;
  transformer_embed(t, w, 1, batch->tgt_in, batch->tgt_pos, tokens, key);
  transformer_add_norm(t, w, 1, 0, tokens, key);
  for (int i = 0; i < s->sublayers; i++) {
    if (i % 3 == 0)
      self_attention_forward(t, w, 1, i / 3, s->y[i], tokens, batch->tgt_off, n, key);
    if (i % 3 == 1)
      cross_attention_forward(t, w, i / 3, s->y[i], tokens, batch->tgt_off, batch->src_off, n,
                              key);
    if (i % 3 == 2) transformer_ffn(t, w, 1, i / 3, s->y[i], tokens, key);
    transformer_add_norm(t, w, 1, i + 1, tokens, key);
  }
  return s->y[s->sublayers];
}

/* Returns true if the backend has fused operations for the output layer and the loss of so many
 * tokens. Their scratch memory is d_wide, which the backward pass uses later. */
static bool fuses_loss(const Transformer *t, size_t tokens) {
  const Backend *b = t->model.backend;
  return t->at.output_bias == PARAM_NONE && b->fuses_loss &&
         tokens + LOSS_EXTRA_ROWS <= 3 * t->model.capacity &&
         b->fuses_loss(b, tokens, (size_t)t->config.d_model, (size_t)t->config.vocab);
}

/* Computes the loss and the gradients of n tokens from token r on. */
static void run_fused_loss(Transformer *t, Weights w, float *g, const void *y,
                           const Batch *batch, const ModelPass *pass, size_t r, size_t n) {
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d_model;
  LinearLoss job = {.rows = n,
                    .in = d,
                    .vocab = (size_t)t->config.vocab,
                    .x = transformer_element(t, y, r * d),
                    .w = transformer_weight(t, w, t->at.output),
                    .target = batch->tgt_out + r,
                    .smoothing = pass->smoothing,
                    .scale = pass->scale,
                    .logits = t->logits,
                    .scaled = t->d_wide,
                    .loss = t->model.sums,
                    .dx = transformer_element(t, t->d_y, r * d),
                    .dw = g + t->at.output,
                    .accumulate = r > 0 || !t->model.first};
  b->linear_loss(b, &job);
  b->linear_loss_dx(b, &job);
  b->linear_loss_dw(b, &job);
}

void transformer_loss(Transformer *t, Weights w, float *g, const void *y, const Batch *batch,
                      const ModelPass *pass) {
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d_model, vocab = (size_t)t->config.vocab,
         tokens = batch->rows[1];
  const void *output = transformer_weight(t, w, t->at.output);
  const void *bias = transformer_weight(t, w, t->at.output_bias);
  float *d_bias = g && bias ? g + t->at.output_bias : NULL;
  for (size_t r = 0; r < tokens; r += t->logit_rows) {
    size_t n = tokens - r < t->logit_rows ? tokens - r : t->logit_rows;
    const void *from = transformer_element(t, y, r * d);
    if (g && fuses_loss(t, n)) {
      run_fused_loss(t, w, g, y, batch, pass, r, n);
      continue;
    }
    b->linear(b, t->logits, from, output, bias, n, d, vocab);
    b->loss(b, t->logits, t->model.sums, batch->tgt_out + r, n, vocab, pass->smoothing,
            g ? pass->scale : 0);
    if (!g) continue;
    b->linear_dx(b, transformer_element(t, t->d_y, r * d), t->logits, output, n, d, vocab,
                 false);
    b->linear_dw(b, g + t->at.output, d_bias, t->logits, from, n, d, vocab,
                 r > 0 || !t->model.first);
  }
}
