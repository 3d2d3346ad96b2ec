/* Forward pass of the BERT encoder. Depends on bert_internal.h. */
#include "model/bert_internal.h"

Dropout bert_dropout(const Bert *m, float rate, int layer, int site) {
  return (Dropout){m->current.key, (uint32_t)(layer * 16 + site), m->model.dropout ? rate : 0};
}

void *bert_element(const Bert *m, const void *array, size_t n) {
  return (char *)array + n * type_size(m->model.backend->type);
}

const void *bert_weight(const Bert *m, Weights w, size_t offset) {
  return bert_element(m, w.low, offset);
}

void bert_linear(const Bert *m, Weights w, void *y, const void *x, BertLinear p, size_t rows,
                 size_t in, size_t out) {
  const Backend *b = m->model.backend;
  b->linear(b, y, x, bert_weight(m, w, p.weight), bert_weight(m, w, p.bias), rows, in, out);
}

bool bert_is_pick_layer(const Bert *m, int layer) {
  return layer == m->config.layers - 1 && m->config.head != BERT_HEAD_NONE;
}

size_t bert_layer_rows(const Bert *m, int layer) {
  return bert_is_pick_layer(m, layer) ? m->current.picks : m->current.tokens;
}

const void *bert_layer_input(const Bert *m, int layer) {
  return layer ? m->layer[layer - 1].y[1] : m->embed_y;
}

Attention bert_attention(const Bert *m, int layer) {
  const BertConfig *c = &m->config;
  const BertBatch *batch = &m->current;
  size_t d = (size_t)c->d_model;
  bool picks = bert_is_pick_layer(m, layer);
  return (Attention){
      .sentences = batch->sentences,
      .heads = (size_t)c->heads,
      .d = d / (size_t)c->heads,
      .q_off = picks ? batch->pick_off : batch->off,
      .k_off = batch->off,
      .q_ld = picks ? d : 3 * d,
      .kv_ld = picks ? 2 * d : 3 * d,
      .o_ld = d,
      .q_rows = bert_layer_rows(m, layer),
      .drop = bert_dropout(m, c->drop_attention, layer, BERT_SITE_ATTENTION),
  };
}

AddNorm bert_add_norm(const Bert *m, int layer, int sublayer) {
  const BertConfig *c = &m->config;
  return (AddNorm){
      .rows = bert_layer_rows(m, layer),
      .d = (size_t)c->d_model,
      .epsilon = c->norm_epsilon,
      .drop = bert_dropout(m, c->drop_residual, layer, BERT_SITE_SUBLAYER + sublayer),
  };
}

/* Sums the embeddings of tokens, positions and segments. Backend.embed adds two tables; the
 * segments are added by the layer norm that follows. */
static void embed_forward(Bert *m, Weights w) {
  const Backend *b = m->model.backend;
  const BertConfig *c = &m->config;
  const BertBatch *batch = &m->current;
  size_t d = (size_t)c->d_model;
  const float *positions = w.full + m->at.positions + (size_t)c->position_offset * d;
  const Dropout none = {batch->key, 0, 0};
  b->embed(b, m->embed_sum, bert_weight(m, w, m->at.tokens), positions, batch->id,
           batch->position, batch->tokens, d, 1, none);
  if (c->segments) /* factor 0: embed adds two tables, and only one is wanted */
    b->embed(b, m->branch, bert_weight(m, w, m->at.segments), w.full + m->at.segments,
             batch->segment, batch->segment, batch->tokens, d, 0, none);
  AddNorm n = {.rows = batch->tokens, .d = d, .epsilon = c->norm_epsilon, .drop = none};
  b->add_norm(b, m->embed_sum, m->embed_y, m->embed_stats, m->embed_sum,
              c->segments ? m->branch : NULL, w.full + m->at.embed_norm.gain,
              w.full + m->at.embed_norm.bias, &n);
  Dropout drop = bert_dropout(m, c->drop_embed, BERT_NO_LAYER, BERT_SITE_EMBEDDING);
  if (drop.rate != 0)
    b->activate(b, m->embed_y, NULL, m->embed_y, NULL, batch->tokens, d, ACT_NONE, drop);
}

/* Computes queries, keys and values. A layer of picks needs keys and values of all tokens, but
 * queries of the picks only. Returns the input of the residual connection. */
static const void *project_inputs(Bert *m, Weights w, int layer) {
  const Backend *b = m->model.backend;
  BertLayer *s = &m->layer[layer];
  const BertBatch *batch = &m->current;
  const void *x = bert_layer_input(m, layer);
  BertLinear q = m->at.layer[layer].in;
  size_t d = (size_t)m->config.d_model;
  if (!bert_is_pick_layer(m, layer)) {
    bert_linear(m, w, s->in, x, q, batch->tokens, d, 3 * d);
    return x;
  }
  BertLinear kv = {q.weight + d * d, q.bias + d};
  b->gather_rows(b, m->picked, x, batch->pick, batch->picks, d);
  bert_linear(m, w, s->in, x, kv, batch->tokens, d, 2 * d);
  bert_linear(m, w, s->q, m->picked, q, batch->picks, d, d);
  return m->picked;
}

/* Adds `branch` to the residual x and applies the layer norm. */
static void add_norm_forward(Bert *m, Weights w, int layer, int sublayer, const void *x) {
  const Backend *b = m->model.backend;
  BertLayer *s = &m->layer[layer];
  BertNorm p = m->at.layer[layer].norm[sublayer];
  AddNorm n = bert_add_norm(m, layer, sublayer);
  b->add_norm(b, s->sum[sublayer], s->y[sublayer], s->stats[sublayer], x, m->branch,
              w.full + p.gain, w.full + p.bias, &n);
}

static void attention_forward(Bert *m, Weights w, int layer) {
  const Backend *b = m->model.backend;
  BertLayer *s = &m->layer[layer];
  size_t d = (size_t)m->config.d_model, rows = bert_layer_rows(m, layer);
  bool picks = bert_is_pick_layer(m, layer);
  const void *x = project_inputs(m, w, layer);
  Attention a = bert_attention(m, layer);
  const void *k = picks ? s->in : bert_element(m, s->in, d);
  b->attend(b, s->out, s->lse, picks ? s->q : s->in, k, bert_element(m, k, d), &a);
  bert_linear(m, w, m->branch, s->out, m->at.layer[layer].out, rows, d, d);
  add_norm_forward(m, w, layer, 0, x);
}

static void ffn_forward(Bert *m, Weights w, int layer) {
  const Backend *b = m->model.backend;
  BertLayer *s = &m->layer[layer];
  const BertLayerParams *p = &m->at.layer[layer];
  size_t d = (size_t)m->config.d_model, ffn = (size_t)m->config.ffn_dim,
         rows = bert_layer_rows(m, layer);
  bert_linear(m, w, s->up, s->y[0], p->up, rows, d, ffn);
  b->activate(b, s->act, s->mask, s->up, NULL, rows, ffn, m->config.activation,
              bert_dropout(m, m->config.drop_activation, layer, BERT_SITE_ACTIVATION));
  bert_linear(m, w, m->branch, s->act, p->down, rows, ffn, d);
  add_norm_forward(m, w, layer, 1, s->y[0]);
}

void bert_encode(Bert *m, Weights w) {
  embed_forward(m, w);
  for (int layer = 0; layer < m->config.layers; layer++) {
    attention_forward(m, w, layer);
    ffn_forward(m, w, layer);
  }
}
