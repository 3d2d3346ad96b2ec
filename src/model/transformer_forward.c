/* Forward pass and loss of the Transformer, sublayer by sublayer. Depends on
 * transformer_internal.h. */
#include <math.h>

#include "model/transformer_internal.h"

/* Sites of dropout: each place in the model has its own. */
Dropout dropout_at(const Transformer *t, StepKey key, float rate, int stack, int layer,
                   int what) {
  return (Dropout){t->key, (uint32_t)((stack * 256 + layer) * 16 + what),
                   key.dropout ? rate : 0};
}

const NormParams *norm_at(const Transformer *t, int which, int junction) {
  int per_layer = which ? 3 : 2, sublayers = t->stack[which].sublayers;
  int s = t->config.pre_norm ? junction : junction - 1;
  if (s >= sublayers) return &t->at.final_norm[which];
  return &t->at.layer[which][s / per_layer].norm[s % per_layer];
}

/* The way over a junction: adds the branch of the sublayer before it. */
void cross_junction(Transformer *t, Weights w, int which, int junction, size_t rows,
                    StepKey key) {
  StackState *s = &t->stack[which];
  const TransformerConfig *c = &t->config;
  int per_layer = which ? 3 : 2, before = junction - 1;
  AddNorm n = {.rows = rows, .d = (size_t)c->d, .epsilon = c->norm_epsilon};
  if (junction > 0)
    n.drop =
        dropout_at(t, key, c->drop_residual, which, before / per_layer, before % per_layer);
  if (junction == 0 && !c->pre_norm) return;
  const NormParams *p = norm_at(t, which, junction);
  const void *x = junction == 0 ? s->sum[0] : c->pre_norm ? s->sum[before] : s->y[before];
  t->model.backend->add_norm(t->model.backend, s->sum[junction], s->y[junction],
                             s->stat[junction], x, junction ? t->branch : NULL,
                             w.full + p->gain, w.full + p->bias, &n);
}

Attention self_attention(const Transformer *t, int which, int layer, const int32_t *off,
                         size_t sentences, StepKey key) {
  const TransformerConfig *c = &t->config;
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
  const TransformerConfig *c = &t->config;
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
  return (char *)array + n * type_size(t->model.backend->type);
}

const void *weight(const Transformer *t, Weights w, size_t offset) {
  return offset == SIZE_MAX ? NULL : element(t, w.low, offset);
}

static void self_sublayer(Transformer *t, Weights w, int which, int layer, const void *y,
                          size_t rows, const int32_t *off, size_t sentences, StepKey key) {
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[which][layer].self;
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
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[1][layer].cross;
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
  const Backend *b = t->model.backend;
  const FeedParams *p = &t->at.layer[which][layer].feed;
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
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d;
  size_t table = which ? t->at.target_table : t->at.source_table;
  size_t place = which ? t->at.target_place : t->at.source_place;
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
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d;
  b->linear(b, t->cross_kv, memory, weight(t, w, t->at.cross_kv),
            weight(t, w, t->at.cross_kv_bias), rows, d, (size_t)t->config.layers[1] * 2 * d);
}

const void *transformer_decode(Transformer *t, Weights w, const Batch *batch, StepKey key) {
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

void transformer_loss(Transformer *t, Weights w, float *g, const void *y, const Batch *batch,
                      const ModelPass *pass) {
  const Backend *b = t->model.backend;
  size_t d = (size_t)t->config.d, vocab = (size_t)t->config.vocab, rows = batch->rows[1];
  const void *output = weight(t, w, t->at.output);
  for (size_t r = 0; r < rows; r += t->loss_rows) {
    size_t n = rows - r < t->loss_rows ? rows - r : t->loss_rows;
    const void *from = element(t, y, r * d);
    b->linear(b, t->logits, from, output, NULL, n, d, vocab);
    b->loss(b, t->logits, t->model.sums, batch->tgt_out + r, n, vocab, pass->smoothing,
            g ? pass->scale : 0);
    if (!g) continue;
    b->linear_dx(b, element(t, t->d_y, r * d), t->logits, output, n, d, vocab, false);
    b->linear_dw(b, g + t->at.output, NULL, t->logits, from, n, d, vocab,
                 r > 0 || !t->model.first);
  }
}
