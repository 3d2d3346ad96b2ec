/* Backward pass of the BERT encoder: the forward pass in reverse order. The gradient flows
 * through two buffers: one holds the gradient of a layer norm's output (d_y), the other receives
 * that of its input (d_sum), to which the sublayer adds the gradient of its own input. The sum is the
 * next d_y. Depends on bert_internal.h. */
#include "model/bert_internal.h"

typedef struct {
  void *d_y, *d_sum;
} Flow;

/* Makes d_sum, which is complete, the next d_y. */
static void swap_flow(Flow *f) {
  void *d_y = f->d_sum;
  f->d_sum = f->d_y;
  f->d_y = d_y;
}

/* Reads d_y; writes d_sum, d_branch and the gradient of the bias at the end of the sublayer, which
 * is the column sum of d_branch. */
static void add_norm_backward(Bert *m, Weights w, float *g, int layer, int sublayer,
                              const Flow *f) {
  const Backend *b = m->model.backend;
  const BertLayer *s = &m->layer[layer];
  const BertLayerParams *p = &m->at.layer[layer];
  BertNorm norm = p->norm[sublayer];
  AddNorm n = bert_add_norm(m, layer, sublayer);
  b->add_norm_backward(b, f->d_sum, m->d_branch, g + norm.gain, g + norm.bias,
                       g + (sublayer ? p->down.bias : p->out.bias), f->d_y, NULL,
                       s->sum[sublayer], s->stats[sublayer], w.full + norm.gain, &n,
                       !m->model.first);
}

static void ffn_backward(Bert *m, Weights w, float *g, int layer, Flow *f) {
  const Backend *b = m->model.backend;
  const BertLayer *s = &m->layer[layer];
  const BertLayerParams *p = &m->at.layer[layer];
  size_t d = (size_t)m->config.d_model, ffn = (size_t)m->config.ffn_dim,
         rows = bert_layer_rows(m, layer);
  bool add = !m->model.first;
  Dropout drop = bert_dropout(m, m->config.drop_activation, layer, BERT_SITE_ACTIVATION);
  b->linear_dw(b, g + p->down.weight, NULL, m->d_branch, s->act, rows, ffn, d, add);
  b->linear_dx(b, m->d_up, m->d_branch, bert_weight(m, w, p->down.weight), rows, ffn, d,
               /*accumulate=*/false);
  b->activate_backward(b, m->d_up, g + p->up.bias, m->d_up, s->mask ? s->mask : s->up, rows,
                       ffn, m->config.activation, drop, add);
  b->linear_dw(b, g + p->up.weight, NULL, m->d_up, s->y[0], rows, d, ffn, add);
  b->linear_dx(b, f->d_sum, m->d_up, bert_weight(m, w, p->up.weight), rows, d, ffn,
               /*accumulate=*/true);
  swap_flow(f);
}

/* Returns true if nothing below the layer is trained, so that the gradient of its input is not
 * needed. */
static bool is_lowest(const Bert *m, int layer) {
  return layer > 0 && layer == (int)m->model.frozen_layers;
}

/* Backward of the projection of all tokens to queries, keys and values. */
static void project_backward(Bert *m, Weights w, float *g, int layer, Flow *f) {
  const Backend *b = m->model.backend;
  BertLinear p = m->at.layer[layer].in;
  size_t d = (size_t)m->config.d_model, tokens = m->current.tokens;
  b->linear_dw(b, g + p.weight, g + p.bias, m->d_in, bert_layer_input(m, layer), tokens, d,
               3 * d, !m->model.first);
  if (is_lowest(m, layer)) return;
  b->linear_dx(b, f->d_sum, m->d_in, bert_weight(m, w, p.weight), tokens, d, 3 * d,
               /*accumulate=*/true);
  swap_flow(f);
}

/* Backward of the projections in a layer of picks: d_sum (picks, d) and the gradient of the
 * queries, in d_branch, go to the picks only; the gradient of keys and values, in d_in, goes to
 * all tokens. */
static void project_picks_backward(Bert *m, Weights w, float *g, int layer, Flow *f) {
  const Backend *b = m->model.backend;
  BertLinear q = m->at.layer[layer].in;
  size_t d = (size_t)m->config.d_model, tokens = m->current.tokens, picks = m->current.picks;
  BertLinear kv = {q.weight + d * d, q.bias + d};
  bool add = !m->model.first;
  b->linear_dw(b, g + q.weight, g + q.bias, m->d_branch, m->picked, picks, d, d, add);
  b->linear_dw(b, g + kv.weight, g + kv.bias, m->d_in, bert_layer_input(m, layer), tokens, d,
               2 * d, add);
  if (is_lowest(m, layer)) return;
  b->linear_dx(b, f->d_sum, m->d_branch, bert_weight(m, w, q.weight), picks, d, d,
               /*accumulate=*/true);
  b->scatter_rows(b, f->d_y, f->d_sum, m->current.pick, picks, tokens, d);
  b->linear_dx(b, f->d_y, m->d_in, bert_weight(m, w, kv.weight), tokens, d, 2 * d,
               /*accumulate=*/true);
}

static void attention_backward(Bert *m, Weights w, float *g, int layer, Flow *f) {
  const Backend *b = m->model.backend;
  const BertLayer *s = &m->layer[layer];
  BertLinear out = m->at.layer[layer].out;
  size_t d = (size_t)m->config.d_model, rows = bert_layer_rows(m, layer);
  bool picks = bert_is_pick_layer(m, layer);
  void *d_out = m->branch; /* backward does not need `branch` otherwise */
  Attention a = bert_attention(m, layer);
  b->linear_dw(b, g + out.weight, NULL, m->d_branch, s->out, rows, d, d, !m->model.first);
  b->linear_dx(b, d_out, m->d_branch, bert_weight(m, w, out.weight), rows, d, d,
               /*accumulate=*/false);
  const void *k = picks ? s->in : bert_element(m, s->in, d);
  void *dk = picks ? m->d_in : bert_element(m, m->d_in, d);
  b->attend_backward(b, picks ? m->d_branch : m->d_in, dk, bert_element(m, dk, d), d_out,
                     s->out, s->lse, picks ? s->q : s->in, k, bert_element(m, k, d), &a);
  if (picks)
    project_picks_backward(m, w, g, layer, f);
  else
    project_backward(m, w, g, layer, f);
}

static void embed_backward(Bert *m, Weights w, float *g, const Flow *f) {
  const Backend *b = m->model.backend;
  const BertConfig *c = &m->config;
  const BertBatch *batch = &m->current;
  size_t d = (size_t)c->d_model, tokens = batch->tokens;
  const Dropout none = {batch->key, 0, 0};
  AddNorm n = {.rows = tokens, .d = d, .epsilon = c->norm_epsilon, .drop = none};
  Dropout drop = bert_dropout(m, c->drop_embed, BERT_NO_LAYER, BERT_SITE_EMBEDDING);
  BertNorm norm = m->at.embed_norm;
  float *d_positions = g + m->at.positions + (size_t)c->position_offset * d;
  if (drop.rate != 0)
    b->activate_backward(b, f->d_y, NULL, f->d_y, NULL, tokens, d, ACT_NONE, drop, false);
  b->add_norm_backward(b, f->d_sum, NULL, g + norm.gain, g + norm.bias, NULL, f->d_y, NULL,
                       m->embed_sum, m->embed_stats, w.full + norm.gain, &n, !m->model.first);
  b->embed_backward(b, g + m->at.tokens, d_positions, f->d_sum, batch->id, batch->position,
                    tokens, d, (size_t)c->vocab, bert_max_tokens(c), 1, none);
  if (c->segments)
    b->embed_backward(b, g + m->at.segments, NULL, f->d_sum, batch->segment, batch->segment,
                      tokens, d, (size_t)c->segments, (size_t)c->segments, 1, none);
}

/* Returns true if backward adds to the gradient of a weight or leaves it 0; it overwrites the others.
 * It adds to the embeddings; in MLM the decoder overwrites those of the tokens. */
static bool needs_zeros(const Bert *m, const Param *q) {
  if (q->offset == m->at.tokens && m->config.head == BERT_HEAD_MLM) return false;
  if (m->model.frozen_layers && q->depth <= m->model.frozen_layers) return true;
  return q->offset < m->at.embed_norm.gain;
}

void bert_clear_grads(const Bert *m, float *g) {
  const Backend *b = m->model.backend;
  const Params *p = &m->model.params;
  size_t from = 0; /* end of the last gradient that backward overwrites */
  for (size_t i = 0; i <= p->count; i++) {
    const Param *q = &p->param[i];
    size_t to = i < p->count ? q->offset : p->padded;
    if (i < p->count && needs_zeros(m, q)) continue;
    if (to > from) b->zero(b, g + from, (to - from) * sizeof *g);
    if (i < p->count) from = to + q->rows * q->cols;
  }
}

/* Returns the offset at which a layer begins; for the number of layers, at which the head does. */
static size_t layer_begin(const Bert *m, int layer) {
  return layer < m->config.layers ? m->at.layer[layer].in.weight : m->at.head;
}

static void report_layer(const Bert *m, int layer, GradReady ready, void *context) {
  if (ready) ready(context, layer_begin(m, layer), layer_begin(m, layer + 1));
}

static void report_embeddings(const Bert *m, GradReady ready, void *context) {
  if (ready) ready(context, 0, layer_begin(m, 0));
}

void bert_report_head(const Bert *m, GradReady ready, void *context) {
  if (ready) ready(context, m->at.head, m->model.params.padded);
}

void bert_announce(const Bert *m, GradReady ready, void *context) {
  bert_report_head(m, ready, context);
  for (int layer = m->config.layers - 1; layer >= 0; layer--)
    report_layer(m, layer, ready, context);
  report_embeddings(m, ready, context);
}

void bert_encode_backward(Bert *m, Weights w, float *g, const ModelPass *pass) {
  Flow f = {m->d_flow[0], m->d_flow[1]};
  int frozen = (int)m->model.frozen_layers, layer = m->config.layers - 1;
  for (; layer >= frozen; layer--) {
    add_norm_backward(m, w, g, layer, 1, &f);
    ffn_backward(m, w, g, layer, &f);
    add_norm_backward(m, w, g, layer, 0, &f);
    attention_backward(m, w, g, layer, &f);
    report_layer(m, layer, pass->ready, pass->context);
  }
  for (; layer >= 0; layer--) report_layer(m, layer, pass->ready, pass->context);
  if (!frozen) embed_backward(m, w, g, &f);
  report_embeddings(m, pass->ready, pass->context);
}
