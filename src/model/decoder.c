/* Incremental decoding. Relies on transformer_internal.h. */
#include "model/decoder.h"

#include <string.h>

#include "base/mem.h"
#include "model/transformer_internal.h"

Err decoder_new(Decoder *d, Transformer *t, Weights w, size_t most) {
  int32_t *ints = NULL;
  if (!t->backend->host)
    return err_set(ERR_USAGE, "translation runs on the CPU so far; use --device cpu");
  *d = (Decoder){.t = t, .w = w, .most = most};
  TRY(mem_alloc(&ints, 4 * most, sizeof *ints));
  d->m_off = ints, d->m_len = ints + most, d->len = ints + 2 * most;
  d->position = ints + 3 * most;
  return ERR_OK;
}

void decoder_free(Decoder *d) {
  mem_free(d->cache);
  mem_free(d->m_off); /* begins the block of all four */
  *d = (Decoder){0};
}

static Err pack_attention(const Decoder *d, Backend *b, const AttentionParams *p, size_t in) {
  const Transformer *t = d->t;
  size_t width = (size_t)t->config.d;
  TRY(b->pack(b, weight(t, d->w, p->in), width, in));
  return b->pack(b, weight(t, d->w, p->out), width, width);
}

Err decoder_pack(const Decoder *d, Backend *b) {
  const Transformer *t = d->t;
  const Params *p = &t->params;
  const ModelConfig *c = &t->config;
  size_t width = (size_t)c->d, ff = (size_t)c->ff;
  if (!b->pack) return ERR_OK;
  for (int stack = 0; stack < 2; stack++) {
    for (int i = 0; i < c->layers[stack]; i++) {
      const LayerParams *l = &p->layer[stack][i];
      TRY(pack_attention(d, b, &l->self, 3 * width));
      if (stack) TRY(pack_attention(d, b, &l->cross, width));
      TRY(b->pack(b, weight(t, d->w, l->feed.up), width, ff));
      TRY(b->pack(b, weight(t, d->w, l->feed.down), ff, width));
    }
  }
  TRY(b->pack(b, weight(t, d->w, p->cross_kv), width, (size_t)c->layers[1] * 2 * width));
  return b->pack(b, weight(t, d->w, p->output), width, (size_t)c->vocab);
}

static size_t cache_width(const Decoder *d) {
  return (size_t)d->t->config.layers[1] * 2 * (size_t)d->t->config.d;
}

/* Room for n more rows, growing by half; the block lies as the backend likes it. */
static Err grow_cache(Decoder *d, size_t n) {
  size_t width = cache_width(d), want = d->cap + d->cap / 2;
  float *wider;
  if (d->rows + n <= d->cap) return ERR_OK;
  if (want < d->rows + n) want = d->rows + n;
  TRY(mem_alloc_aligned(&wider, want * width * sizeof *wider));
  if (d->rows) memcpy(wider, d->cache, d->rows * width * sizeof *wider);
  mem_free(d->cache);
  d->cache = wider, d->cap = want;
  return ERR_OK;
}

Err decoder_begin(Decoder *d, const int32_t *src, const int32_t *pos, const int32_t *off,
                  size_t sentences, size_t expected) {
  d->rows = 0;
  TRY(grow_cache(d, expected));
  size_t rows = (size_t)off[sentences];
  const void *memory =
      transformer_encode(d->t, d->w, src, pos, off, sentences, rows, (StepKey){0});
  transformer_cross_kv(d->t, d->w, memory, rows);
  return ERR_OK;
}

/* The rows of this step are the last n of the cache. */
static void self_step(Decoder *d, int layer, const void *y, int32_t *const *path, size_t n) {
  Transformer *t = d->t;
  const Backend *b = t->backend;
  const AttentionParams *p = &t->params.layer[1][layer].self;
  AttentionState *s = &t->stack[1].self[layer];
  size_t width = (size_t)t->config.d, heads = (size_t)t->config.heads, ld = cache_width(d);
  float *k = d->cache + (size_t)layer * 2 * width, *own = k + (d->rows - n) * ld;
  b->linear(b, s->in, y, weight(t, d->w, p->in), weight(t, d->w, p->in_bias), n, width,
            3 * width);
  for (size_t i = 0; i < n; i++)
    memcpy(own + i * ld, element(t, s->in, i * 3 * width + width), 2 * width * sizeof *own);
  CachedAttention a = {.rows = n,
                       .heads = heads,
                       .d = width / heads,
                       .at = (const int32_t *const *)path,
                       .len = d->len,
                       .q_ld = 3 * width,
                       .kv_ld = ld,
                       .o_ld = width};
  b->attend_cached(b, s->out, s->in, k, k + width, &a);
  b->linear(b, t->branch, s->out, weight(t, d->w, p->out), weight(t, d->w, p->out_bias), n,
            width, width);
}

static void cross_step(Decoder *d, int layer, const void *y, size_t n) {
  Transformer *t = d->t;
  const Backend *b = t->backend;
  const AttentionParams *p = &t->params.layer[1][layer].cross;
  AttentionState *s = &t->stack[1].cross[layer];
  size_t width = (size_t)t->config.d, heads = (size_t)t->config.heads;
  const void *k = element(t, t->cross_kv, (size_t)layer * 2 * width);
  CachedAttention a = {.rows = n,
                       .heads = heads,
                       .d = width / heads,
                       .first = d->m_off,
                       .len = d->m_len,
                       .q_ld = width,
                       .kv_ld = (size_t)t->config.layers[1] * 2 * width,
                       .o_ld = width};
  b->linear(b, s->in, y, weight(t, d->w, p->in), weight(t, d->w, p->in_bias), n, width, width);
  b->attend_cached(b, s->out, s->in, k, element(t, k, width), &a);
  b->linear(b, t->branch, s->out, weight(t, d->w, p->out), weight(t, d->w, p->out_bias), n,
            width, width);
}

Err decoder_step(Decoder *d, int32_t *const *path, const int32_t *sentence, const int32_t *off,
                 const int32_t *word, size_t n, size_t place, float **logits) {
  Transformer *t = d->t;
  StackState *s = &t->stack[1];
  StepKey key = {0};
  TRY(grow_cache(d, n));
  for (size_t i = 0; i < n; i++) {
    path[i][place] = (int32_t)d->rows++;
    d->len[i] = (int32_t)place + 1;
    d->position[i] = (int32_t)place;
    d->m_off[i] = off[sentence[i]];
    d->m_len[i] = off[sentence[i] + 1] - off[sentence[i]];
  }
  embed_into(t, d->w, 1, word, d->position, n, key);
  cross_junction(t, d->w, 1, 0, n, key);
  for (int i = 0; i < s->sublayers; i++) {
    if (i % 3 == 0) self_step(d, i / 3, s->y[i], path, n);
    if (i % 3 == 1) cross_step(d, i / 3, s->y[i], n);
    if (i % 3 == 2) feed_sublayer(t, d->w, 1, i / 3, s->y[i], n, key);
    cross_junction(t, d->w, 1, i + 1, n, key);
  }
  const Backend *b = t->backend;
  b->linear(b, t->logits, s->y[s->sublayers], weight(t, d->w, t->params.output), NULL, n,
            (size_t)t->config.d, (size_t)t->config.vocab);
  *logits = t->logits;
  return ERR_OK;
}
