/* Names, shapes and offsets of the weights of a BERT model. Depends on params. */
#include "model/bert_params.h"

#include <stdio.h>

#include "base/mem.h"

#define DEVIATION 0.02 /* standard deviation of all initial matrices, as in BERT */

typedef struct {
  Params *p;
  Err err;
  size_t d;
} Layout;

static size_t add_matrix(Layout *l, size_t rows, size_t cols, const char *name) {
  return params_add(l->p, &l->err, INIT_NORMAL, DEVIATION, rows, cols, "%s", name);
}

/* Adds an embedding that is read in fp32. */
static size_t add_table(Layout *l, size_t rows, const char *name) {
  return params_add_full(l->p, &l->err, INIT_NORMAL, DEVIATION, rows, l->d, "%s", name);
}

static size_t add_bias(Layout *l, size_t rows, const char *name) {
  return params_add(l->p, &l->err, INIT_ZERO, 0, rows, 1, "%s", name);
}

static BertNorm add_norm(Layout *l, const char *where) {
  BertNorm n;
  n.gain = params_add_full(l->p, &l->err, INIT_ONE, 0, l->d, 1, "%s.gain", where);
  n.bias = params_add_full(l->p, &l->err, INIT_ZERO, 0, l->d, 1, "%s.bias", where);
  return n;
}

static BertLinear add_linear(Layout *l, size_t out, size_t in, const char *where) {
  BertLinear n;
  char name[64];
  snprintf(name, sizeof name, "%s.weight", where);
  n.weight = add_matrix(l, out, in, name);
  snprintf(name, sizeof name, "%s.bias", where);
  n.bias = add_bias(l, out, name);
  return n;
}

static void add_embeddings(Layout *l, BertParams *at, const BertConfig *c) {
  at->tokens = add_matrix(l, (size_t)c->vocab, l->d, "embed.tokens");
  at->positions = add_table(l, (size_t)c->max_positions, "embed.positions");
  at->segments = PARAM_NONE;
  if (c->segments) at->segments = add_table(l, (size_t)c->segments, "embed.segments");
  at->embed_norm = add_norm(l, "embed.norm");
}

static void add_layer(Layout *l, BertLayerParams *layer, int i, size_t ffn) {
  char where[48];
#define WHERE(part) (snprintf(where, sizeof where, "layer.%d.%s", i, part), where)
  layer->in = add_linear(l, 3 * l->d, l->d, WHERE("attention.in"));
  layer->out = add_linear(l, l->d, l->d, WHERE("attention.out"));
  layer->norm[0] = add_norm(l, WHERE("attention.norm"));
  layer->up = add_linear(l, ffn, l->d, WHERE("feed.up"));
  layer->down = add_linear(l, l->d, ffn, WHERE("feed.down"));
  layer->norm[1] = add_norm(l, WHERE("feed.norm"));
#undef WHERE
}

static void add_head(Layout *l, BertParams *at, const BertConfig *c) {
  const BertLinear none = {PARAM_NONE, PARAM_NONE};
  at->head = l->p->padded;
  at->pooler = none;
  at->classifier = none;
  at->mlm_transform = none;
  at->mlm_norm = (BertNorm){PARAM_NONE, PARAM_NONE};
  at->mlm_bias = PARAM_NONE;
  if (c->pooler != BERT_POOLER_NONE) at->pooler = add_linear(l, l->d, l->d, "pooler");
  if (bert_is_classifier(c))
    at->classifier = add_linear(l, (size_t)c->labels, l->d, "classifier");
  if (c->head != BERT_HEAD_MLM) return;
  at->mlm_transform = add_linear(l, l->d, l->d, "mlm.transform");
  at->mlm_norm = add_norm(l, "mlm.norm");
  at->mlm_bias = add_bias(l, (size_t)c->vocab, "mlm.bias");
}

Err bert_lay_out(BertParams *at, Params *p, const BertConfig *c) {
  *at = (BertParams){0};
  Layout l = {p, bert_check_config(c), (size_t)c->d_model};
  if (!l.err) l.err = mem_alloc(&at->layer, (size_t)c->layers, sizeof *at->layer);
  if (!l.err) {
    p->layers = (uint32_t)c->layers;
    add_embeddings(&l, at, c);
    for (int i = 0; i < c->layers; i++) {
      p->depth++;
      add_layer(&l, &at->layer[i], i, (size_t)c->ffn_dim);
    }
    p->depth++;
    add_head(&l, at, c);
    params_finish(p);
  }
  if (!l.err) return ERR_OK;
  bert_params_free(at);
  params_free(p);
  return l.err;
}

void bert_params_free(BertParams *at) {
  mem_free(at->layer);
  *at = (BertParams){0};
}
