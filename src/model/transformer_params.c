/* Names, shapes and offsets of the Transformer's weights. Depends on params. */
#include "model/transformer_params.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"

static const char *const stack_name[2] = {"encoder", "decoder"};

typedef struct {
  Params *p;
  Err err;
  const TransformerConfig *config;
} Layout;

static NormParams add_norm(Layout *l, const char *where) {
  NormParams n;
  size_t d = (size_t)l->config->d_model;
  n.gain = params_add_full(l->p, &l->err, INIT_ONE, 0, d, 1, "%s.gain", where);
  n.bias = params_add_full(l->p, &l->err, INIT_ZERO, 0, d, 1, "%s.bias", where);
  return n;
}

static size_t add_matrix(Layout *l, size_t rows, size_t cols, const char *where) {
  return params_add(l->p, &l->err, INIT_UNIFORM, params_glorot(rows, cols), rows, cols,
                    "%s.weight", where);
}

/* Adds a block (rows, d) of several (d, d) matrices, initialised with the Glorot limit of a (d,
 * d) matrix. Exception: a block with ffn_dim rows gets the limit of one (rows, d) matrix; this
 * is kept because it determines the initial weights of existing seeds. */
static size_t add_square_matrices(Layout *l, size_t rows, const char *where) {
  size_t d = (size_t)l->config->d_model, fan = rows == (size_t)l->config->ffn_dim ? rows : d;
  return params_add(l->p, &l->err, INIT_UNIFORM, params_glorot(fan, d), rows, d, "%s.weight",
                    where);
}

static size_t add_bias(Layout *l, size_t rows, const char *where) {
  return params_add(l->p, &l->err, INIT_ZERO, 0, rows, 1, "%s.bias", where);
}

/* Adds an embedding, initialised from a normal distribution with standard deviation 1 /
 * sqrt(d). */
static size_t add_embedding(Layout *l, size_t rows, const char *where) {
  size_t d = (size_t)l->config->d_model;
  return params_add(l->p, &l->err, INIT_NORMAL, 1 / sqrt((double)d), rows, d, "%s.weight",
                    where);
}

/* Adds an embedding of positions, which is read in fp32. */
static size_t add_positions(Layout *l, size_t rows, const char *where) {
  size_t d = (size_t)l->config->d_model;
  return params_add_full(l->p, &l->err, INIT_NORMAL, 1 / sqrt((double)d), rows, d, "%s.weight",
                         where);
}

static AttentionParams add_attention(Layout *l, size_t in_rows, const char *where) {
  AttentionParams a = {PARAM_NONE, PARAM_NONE, PARAM_NONE, PARAM_NONE};
  size_t d = (size_t)l->config->d_model;
  char part[64];
  snprintf(part, sizeof part, "%s.in", where);
  a.in = add_square_matrices(l, in_rows, part);
  if (l->config->attention_bias) a.in_bias = add_bias(l, in_rows, part);
  snprintf(part, sizeof part, "%s.out", where);
  a.out = add_matrix(l, d, d, part);
  if (l->config->attention_bias) a.out_bias = add_bias(l, d, part);
  return a;
}

static FfnParams add_ffn(Layout *l, const char *where) {
  FfnParams f;
  size_t d = (size_t)l->config->d_model, ffn = (size_t)l->config->ffn_dim;
  char part[64];
  snprintf(part, sizeof part, "%s.up", where);
  f.up = add_matrix(l, ffn, d, part);
  f.up_bias = add_bias(l, ffn, part);
  snprintf(part, sizeof part, "%s.down", where);
  f.down = add_matrix(l, d, ffn, part);
  f.down_bias = add_bias(l, d, part);
  return f;
}

static void add_layer(Layout *l, LayerParams *layer, int stack, int i) {
  size_t d = (size_t)l->config->d_model;
  char where[48];
  int norms = 0;
#define WHERE(part) \
  (snprintf(where, sizeof where, "%s.%d.%s", stack_name[stack], i, part), where)
  layer->norm[norms++] = add_norm(l, WHERE("self.norm"));
  layer->self = add_attention(l, 3 * d, WHERE("self"));
  if (stack == 1) {
    layer->norm[norms++] = add_norm(l, WHERE("cross.norm"));
    layer->cross = add_attention(l, d, WHERE("cross"));
  }
  layer->norm[norms++] = add_norm(l, WHERE("feed.norm"));
  layer->ffn = add_ffn(l, WHERE("feed"));
#undef WHERE
}

static void add_embeddings(Layout *l, TransformerParams *at) {
  const TransformerConfig *c = l->config;
  size_t vocab = (size_t)c->vocab, positions = (size_t)c->max_positions;
  if (c->tying == TIE_ALL) {
    at->source_embedding = add_embedding(l, vocab, "embedding");
    at->target_embedding = at->source_embedding;
    at->output = at->source_embedding;
  } else {
    at->source_embedding = add_embedding(l, vocab, "embedding.source");
    at->target_embedding = add_embedding(l, vocab, "embedding.target");
    at->output = at->target_embedding;
    if (c->tying == TIE_NONE) at->output = add_embedding(l, vocab, "output");
  }
  at->source_positions = PARAM_NONE;
  at->target_positions = PARAM_NONE;
  if (c->positions == POSITION_LEARNED) {
    at->source_positions = add_positions(l, positions, "position.source");
    at->target_positions = add_positions(l, positions, "position.target");
  }
}

static void add_stack(Layout *l, TransformerParams *at, int stack) {
  char where[32];
  for (int i = 0; i < l->config->layers[stack]; i++)
    add_layer(l, &at->layer[stack][i], stack, i);
  snprintf(where, sizeof where, "%s.norm", stack_name[stack]);
  if (l->config->pre_norm) at->final_norm[stack] = add_norm(l, where);
}

Err transformer_lay_out(TransformerParams *at, Params *p, const TransformerConfig *c) {
  *at = (TransformerParams){.cross_kv_bias = PARAM_NONE, .output_bias = PARAM_NONE};
  Layout l = {p, transformer_check_config(c), c};
  for (int stack = 0; stack < 2 && !l.err; stack++)
    l.err = mem_alloc(&at->layer[stack], (size_t)c->layers[stack], sizeof *at->layer[stack]);
  if (!l.err) {
    size_t d = (size_t)c->d_model, kv = (size_t)c->layers[1] * 2 * d;
    add_embeddings(&l, at);
    add_stack(&l, at, 0);
    add_stack(&l, at, 1);
    at->cross_kv = add_square_matrices(&l, kv, "decoder.cross_kv");
    if (c->attention_bias) at->cross_kv_bias = add_bias(&l, kv, "decoder.cross_kv");
    if (c->output_bias) at->output_bias = add_bias(&l, (size_t)c->vocab, "output");
    params_finish(p);
  }
  if (!l.err) return ERR_OK;
  transformer_params_free(at);
  params_free(p);
  return l.err;
}

void transformer_params_free(TransformerParams *at) {
  mem_free(at->layer[0]);
  mem_free(at->layer[1]);
  *at = (TransformerParams){0};
}

Err transformer_lay_out_params(Params *p, const TransformerConfig *c) {
  TransformerParams at;
  *p = (Params){0};
  TRY(transformer_lay_out(&at, p, c));
  transformer_params_free(&at);
  return ERR_OK;
}
