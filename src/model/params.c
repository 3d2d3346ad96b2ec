/* Names, shapes, offsets and starting values of the weights. Relies on base,
 * config. */
#include "model/params.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

#define NONE  SIZE_MAX
#define ALIGN ((size_t)16)        /* floats: each weight begins on a cache line */
#define UNIT  ((size_t)5040 * 16) /* the whole divides among 1 to 10 ranks, and more */

static size_t add(Params *p, Err *err, ParamInit init, size_t rows, size_t cols,
                  const char *fmt, ...) {
  if (*err) return NONE;
  *err = mem_grow(&p->param, &p->cap, p->count + 1, sizeof *p->param);
  if (*err) return NONE;
  Param *q = &p->param[p->count++];
  *q = (Param){.offset = p->padded, .rows = rows, .cols = cols, .init = init};
  va_list args;
  va_start(args, fmt);
  vsnprintf(q->name, sizeof q->name, fmt, args);
  va_end(args);
  p->total += rows * cols;
  p->padded += (rows * cols + ALIGN - 1) / ALIGN * ALIGN;
  return q->offset;
}

static const char *const stack_name[2] = {"encoder", "decoder"};

static NormParams add_norm(Params *p, Err *err, size_t d, const char *where) {
  NormParams n;
  n.gain = add(p, err, INIT_ONE, d, 1, "%s.gain", where);
  n.bias = add(p, err, INIT_ZERO, d, 1, "%s.bias", where);
  return n;
}

static AttentionParams add_attention(Params *p, Err *err, const ModelConfig *c, size_t in_rows,
                                     const char *where) {
  AttentionParams a = {NONE, NONE, NONE, NONE};
  size_t d = (size_t)c->d;
  a.in = add(p, err, INIT_GLOROT, in_rows, d, "%s.in.weight", where);
  if (c->attention_bias) a.in_bias = add(p, err, INIT_ZERO, in_rows, 1, "%s.in.bias", where);
  a.out = add(p, err, INIT_GLOROT, d, d, "%s.out.weight", where);
  if (c->attention_bias) a.out_bias = add(p, err, INIT_ZERO, d, 1, "%s.out.bias", where);
  return a;
}

static void add_layer(Params *p, Err *err, const ModelConfig *c, int stack, int i) {
  size_t d = (size_t)c->d, ff = (size_t)c->ff;
  LayerParams *l = &p->layer[stack][i];
  char where[48];
  int norms = 0;
#define WHERE(part) \
  (snprintf(where, sizeof where, "%s.%d.%s", stack_name[stack], i, part), where)
  l->norm[norms++] = add_norm(p, err, d, WHERE("self.norm"));
  l->self = add_attention(p, err, c, 3 * d, WHERE("self"));
  if (stack == 1) {
    l->norm[norms++] = add_norm(p, err, d, WHERE("cross.norm"));
    l->cross = add_attention(p, err, c, d, WHERE("cross"));
  }
  l->norm[norms++] = add_norm(p, err, d, WHERE("feed.norm"));
  WHERE("feed");
  l->feed.up = add(p, err, INIT_GLOROT, ff, d, "%s.up.weight", where);
  l->feed.up_bias = add(p, err, INIT_ZERO, ff, 1, "%s.up.bias", where);
  l->feed.down = add(p, err, INIT_GLOROT, d, ff, "%s.down.weight", where);
  l->feed.down_bias = add(p, err, INIT_ZERO, d, 1, "%s.down.bias", where);
#undef WHERE
}

static void add_tables(Params *p, Err *err, const ModelConfig *c) {
  size_t vocab = (size_t)c->vocab, d = (size_t)c->d, longest = (size_t)c->longest;
  if (c->tying == TIE_ALL) {
    p->source_table = p->target_table = p->output =
        add(p, err, INIT_EMBEDDING, vocab, d, "embedding.weight");
  } else {
    p->source_table = add(p, err, INIT_EMBEDDING, vocab, d, "embedding.source.weight");
    p->target_table = add(p, err, INIT_EMBEDDING, vocab, d, "embedding.target.weight");
    p->output = c->tying == TIE_DECODER
                    ? p->target_table
                    : add(p, err, INIT_EMBEDDING, vocab, d, "output.weight");
  }
  p->source_place = p->target_place = NONE;
  if (c->positions == POSITION_LEARNED) {
    p->source_place = add(p, err, INIT_EMBEDDING, longest, d, "position.source.weight");
    p->target_place = add(p, err, INIT_EMBEDDING, longest, d, "position.target.weight");
  }
}

Err params_lay_out(Params *p, const ModelConfig *c) {
  *p = (Params){0};
  Err err = config_check(c);
  for (int stack = 0; stack < 2 && !err; stack++)
    err = mem_alloc(&p->layer[stack], (size_t)c->layers[stack], sizeof *p->layer[stack]);
  if (err) return err;
  size_t d = (size_t)c->d;
  add_tables(p, &err, c);
  for (int stack = 0; stack < 2; stack++) {
    for (int i = 0; i < c->layers[stack]; i++) add_layer(p, &err, c, stack, i);
    char where[32];
    snprintf(where, sizeof where, "%s.norm", stack_name[stack]);
    if (c->pre_norm) p->final_norm[stack] = add_norm(p, &err, d, where);
    if (stack == 1) {
      size_t rows = (size_t)c->layers[1] * 2 * d;
      p->cross_kv_bias = NONE;
      p->cross_kv = add(p, &err, INIT_GLOROT, rows, d, "decoder.cross_kv.weight");
      if (c->attention_bias)
        p->cross_kv_bias = add(p, &err, INIT_ZERO, rows, 1, "decoder.cross_kv.bias");
    }
  }
  p->padded = (p->padded + UNIT - 1) / UNIT * UNIT;
  if (err) params_free(p);
  return err;
}

void params_free(Params *p) {
  mem_free(p->param);
  mem_free(p->layer[0]);
  mem_free(p->layer[1]);
  *p = (Params){0};
}

/* Glorot's limit of a block of several square matrices is that of one of them. */
static double limit_of(const Param *q, const ModelConfig *c) {
  size_t d = (size_t)c->d, rows = q->rows;
  if (q->cols == d && q->rows % d == 0 && q->rows != (size_t)c->ff) rows = d;
  return sqrt(6.0 / (double)(rows + q->cols));
}

void params_init(const Params *p, const ModelConfig *c, uint64_t seed, float *w) {
  memset(w, 0, p->padded * sizeof *w);
  for (size_t i = 0; i < p->count; i++) {
    const Param *q = &p->param[i];
    float *at = w + q->offset;
    size_t n = q->rows * q->cols;
    uint64_t key = rng_mix(seed, rng_hash(q->name, strlen(q->name), 0));
    double limit = limit_of(q, c), deviation = 1 / sqrt((double)c->d);
    for (size_t e = 0; e < n; e++) {
      uint32_t word[4];
      if (q->init == INIT_ONE) at[e] = 1;
      if (q->init == INIT_ONE || q->init == INIT_ZERO) continue;
      rng_philox(key, 0, e, word);
      double u = (word[0] + 0.5) / 4294967296.0, v = (word[1] + 0.5) / 4294967296.0;
      if (q->init == INIT_GLOROT)
        at[e] = (float)(limit * (2 * u - 1));
      else
        at[e] = (float)(deviation * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
    }
  }
}
