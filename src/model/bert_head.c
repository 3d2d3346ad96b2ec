/* The heads of BERT models: forward, loss and backward. Depends on bert_internal.h. */
#include "model/bert_internal.h"

static const void *last_output(const Bert *m) {
  return m->layer[m->config.layers - 1].y[1];
}

static Activation pooler_activation(const Bert *m) {
  static const Activation kinds[] = {ACT_NONE, ACT_TANH, ACT_RELU};
  return kinds[m->config.pooler];
}

static Dropout classifier_dropout(const Bert *m) {
  return bert_dropout(m, m->config.drop_classifier, BERT_NO_LAYER, BERT_SITE_CLASSIFIER);
}

/* ---- classifiers: pooler, dropout, linear layer ---- */

static void classifier_forward(Bert *m, Weights w) {
  const Backend *b = m->model.backend;
  BertHeadState *s = &m->head;
  size_t d = (size_t)m->config.d_model, rows = m->current.picks;
  const void *x = last_output(m);
  if (m->config.pooler != BERT_POOLER_NONE) {
    bert_linear(m, w, s->up, x, m->at.pooler, rows, d, d);
    x = s->up;
  }
  b->activate(b, s->act, s->mask, x, NULL, rows, d, pooler_activation(m),
              classifier_dropout(m));
  bert_linear(m, w, s->logits, s->act, m->at.classifier, rows, d, (size_t)m->config.labels);
}

static void classifier_loss(Bert *m, const float *g, const ModelPass *pass) {
  static const HeadKind kinds[] = {[BERT_HEAD_SOFTMAX] = HEAD_SOFTMAX,
                                   [BERT_HEAD_SIGMOID] = HEAD_SIGMOID,
                                   [BERT_HEAD_SQUARE] = HEAD_SQUARE};
  const Backend *b = m->model.backend;
  HeadLoss h = {.kind = kinds[m->config.head],
                .rows = m->current.picks,
                .labels = (size_t)m->config.labels,
                .weight = m->has_class_weights ? m->class_weight : NULL,
                .smoothing = pass->smoothing,
                .scale = g ? pass->scale : 0};
  b->head_loss(b, m->head.logits, m->model.sums, m->current.target, &h);
}

/* Reads the gradient of the logits; writes that of the last layer's output to d_flow[0]. */
static void classifier_backward(Bert *m, Weights w, float *g) {
  const Backend *b = m->model.backend;
  const BertHeadState *s = &m->head;
  BertLinear pooler = m->at.pooler, classifier = m->at.classifier;
  size_t d = (size_t)m->config.d_model, rows = m->current.picks,
         labels = (size_t)m->config.labels;
  bool add = !m->model.first, has_pooler = m->config.pooler != BERT_POOLER_NONE;
  void *d_act = has_pooler ? m->d_branch : m->d_flow[0];
  b->linear_dw(b, g + classifier.weight, g + classifier.bias, s->logits, s->act, rows, d,
               labels, add);
  b->linear_dx(b, d_act, s->logits, bert_weight(m, w, classifier.weight), rows, d, labels,
               /*accumulate=*/false);
  b->activate_backward(b, d_act, has_pooler ? g + pooler.bias : NULL, d_act,
                       s->mask ? s->mask : s->up, rows, d, pooler_activation(m),
                       classifier_dropout(m), add);
  if (!has_pooler) return;
  b->linear_dw(b, g + pooler.weight, NULL, d_act, last_output(m), rows, d, d, add);
  b->linear_dx(b, m->d_flow[0], d_act, bert_weight(m, w, pooler.weight), rows, d, d,
               /*accumulate=*/false);
}

/* ---- masked language model: dense layer, activation, norm, decoder tied to the embeddings ---- */

static void transform_forward(Bert *m, Weights w) {
  const Backend *b = m->model.backend;
  BertHeadState *s = &m->head;
  size_t d = (size_t)m->config.d_model, rows = m->current.picks;
  const Dropout none = {m->current.key, 0, 0};
  AddNorm n = {.rows = rows, .d = d, .epsilon = m->config.norm_epsilon, .drop = none};
  bert_linear(m, w, s->up, last_output(m), m->at.mlm_transform, rows, d, d);
  b->activate(b, s->act, s->mask, s->up, NULL, rows, d, m->config.activation, none);
  b->add_norm(b, NULL, s->y, s->stats, s->act, NULL, w.full + m->at.mlm_norm.gain,
              w.full + m->at.mlm_norm.bias, &n);
}

/* Computes the logits chunk by chunk. Unless g is NULL, writes the gradients of the decoder to g
 * and the gradient of its input to d_flow[1]. */
static void decode_masked(Bert *m, Weights w, float *g, const ModelPass *pass) {
  const Backend *b = m->model.backend;
  const BertHeadState *s = &m->head;
  const BertBatch *batch = &m->current;
  size_t d = (size_t)m->config.d_model, vocab = (size_t)m->config.vocab;
  BertLinear decoder = {m->at.tokens, m->at.mlm_bias};
  for (size_t r = 0; r < batch->picks; r += m->logit_rows) {
    size_t n = batch->picks - r < m->logit_rows ? batch->picks - r : m->logit_rows;
    const void *x = bert_element(m, s->y, r * d);
    bert_linear(m, w, s->logits, x, decoder, n, d, vocab);
    if (!batch->has_target) continue;
    b->loss(b, s->logits, m->model.sums, batch->word + r, n, vocab, pass->smoothing,
            g ? pass->scale : 0);
    if (!g) continue;
    b->linear_dx(b, bert_element(m, m->d_flow[1], r * d), s->logits,
                 bert_weight(m, w, decoder.weight), n, d, vocab, /*accumulate=*/false);
    b->linear_dw(b, g + decoder.weight, g + decoder.bias, s->logits, x, n, d, vocab,
                 r > 0 || !m->model.first);
  }
}

static void transform_backward(Bert *m, Weights w, float *g) {
  const Backend *b = m->model.backend;
  const BertHeadState *s = &m->head;
  BertLinear p = m->at.mlm_transform;
  BertNorm norm = m->at.mlm_norm;
  size_t d = (size_t)m->config.d_model, rows = m->current.picks;
  const Dropout none = {m->current.key, 0, 0};
  AddNorm n = {.rows = rows, .d = d, .epsilon = m->config.norm_epsilon, .drop = none};
  bool add = !m->model.first;
  b->add_norm_backward(b, m->d_branch, NULL, g + norm.gain, g + norm.bias, NULL, m->d_flow[1],
                       NULL, s->act, s->stats, w.full + norm.gain, &n, add);
  b->activate_backward(b, m->d_branch, g + p.bias, m->d_branch, s->mask ? s->mask : s->up, rows,
                       d, m->config.activation, none, add);
  b->linear_dw(b, g + p.weight, NULL, m->d_branch, last_output(m), rows, d, d, add);
  b->linear_dx(b, m->d_flow[0], m->d_branch, bert_weight(m, w, p.weight), rows, d, d,
               /*accumulate=*/false);
}

void bert_run_head(Bert *m, Weights w, float *g, const ModelPass *pass) {
  if (m->config.head == BERT_HEAD_NONE) return;
  if (m->config.head == BERT_HEAD_MLM) {
    transform_forward(m, w);
    decode_masked(m, w, g, pass);
    if (g) transform_backward(m, w, g);
    return;
  }
  classifier_forward(m, w);
  if (m->current.has_target) classifier_loss(m, g, pass);
  if (g) classifier_backward(m, w, g);
}

void bert_set_class_weights(Bert *m, const float *weight) {
  const Backend *b = m->model.backend;
  m->has_class_weights = weight != NULL;
  if (weight)
    b->put(b, m->class_weight, weight, (size_t)m->config.labels * sizeof *m->class_weight);
}

const void *bert_output(const Bert *m) {
  return m->config.head == BERT_HEAD_NONE ? last_output(m) : m->head.logits;
}
