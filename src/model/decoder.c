/* Incremental decoding. Relies on transformer_internal.h. */
#include "model/decoder.h"

#include "base/mem.h"
#include "model/transformer_internal.h"

/* Bytes of a row of the cache. */
static size_t cache_bytes(const TransformerConfig *c, const Backend *b) {
  return (size_t)c->layers[1] * 2 * (size_t)c->d_model * type_size(b->type);
}

/* Bytes of both lists, and of what is said of a step. */
static size_t list_bytes(const TransformerConfig *c, size_t most) {
  return 2 * most * (size_t)c->max_positions * sizeof(int32_t);
}

static size_t say_bytes(size_t most) {
  return 6 * most * sizeof(int32_t);
}

uint64_t decoder_bytes(const TransformerConfig *c, const Backend *b, size_t most, size_t rows) {
  return list_bytes(c, most) + say_bytes(most) + (uint64_t)rows * cache_bytes(c, b);
}

Err decoder_new(Decoder *d, Transformer *t, Weights w, size_t most) {
  const Backend *b = t->model.backend;
  size_t say = say_bytes(most);
  *d = (Decoder){.t = t, .w = w, .most = most};
  TRY(b->alloc(b, &d->list[0], list_bytes(&t->config, most)));
  d->list[1] = d->list[0] + most * (size_t)t->config.max_positions;
  TRY(b->alloc(b, &d->said, say));
  d->say = d->said;
  return b->host ? ERR_OK : mem_alloc_aligned(&d->say, say);
}

void decoder_free(Decoder *d) {
  if (!d->t) return;
  const Backend *b = d->t->model.backend;
  void *list[] = {d->cache, d->list[0], d->said};
  for (int i = 0; i < 3; i++) {
    if (list[i]) b->release(b, list[i]);
  }
  if (d->say != d->said) mem_free(d->say);
  *d = (Decoder){0};
}

static Err pack_attention(const Decoder *d, Backend *b, const AttentionParams *p, size_t in) {
  const Transformer *t = d->t;
  size_t width = (size_t)t->config.d_model;
  TRY(b->pack(b, transformer_weight(t, d->w, p->in), width, in));
  return b->pack(b, transformer_weight(t, d->w, p->out), width, width);
}

Err decoder_pack(const Decoder *d, Backend *b) {
  const Transformer *t = d->t;
  const TransformerParams *p = &t->at;
  const TransformerConfig *c = &t->config;
  size_t width = (size_t)c->d_model, ff = (size_t)c->ffn_dim;
  if (!b->pack) return ERR_OK;
  for (int stack = 0; stack < 2; stack++) {
    for (int i = 0; i < c->layers[stack]; i++) {
      const LayerParams *l = &p->layer[stack][i];
      TRY(pack_attention(d, b, &l->self, 3 * width));
      if (stack) TRY(pack_attention(d, b, &l->cross, width));
      TRY(b->pack(b, transformer_weight(t, d->w, l->ffn.up), width, ff));
      TRY(b->pack(b, transformer_weight(t, d->w, l->ffn.down), ff, width));
    }
  }
  TRY(b->pack(b, transformer_weight(t, d->w, p->cross_kv), width,
              (size_t)c->layers[1] * 2 * width));
  return b->pack(b, transformer_weight(t, d->w, p->output), width, (size_t)c->vocab);
}

static size_t cache_width(const Decoder *d) {
  return (size_t)d->t->config.layers[1] * 2 * (size_t)d->t->config.d_model;
}

/* Where nothing is kept, the old memory goes before the new comes. */
static void drop_cache(Decoder *d) {
  if (d->cache) d->t->model.backend->release(d->t->model.backend, d->cache);
  d->cache = NULL, d->cap = 0;
}

/* Room for n more rows, growing by half. Batches come with the longest sentences
 * first: after the first one there is as good as always room enough. */
static Err grow_cache(Decoder *d, size_t n) {
  const Backend *b = d->t->model.backend;
  size_t width = cache_bytes(&d->t->config, b), want = d->cap + d->cap / 2;
  void *wider;
  if (d->rows + n <= d->cap) return ERR_OK;
  if (want < d->rows + n) want = d->rows + n;
  if (!d->rows) drop_cache(d);
  TRY(b->alloc(b, &wider, want * width));
  if (d->rows) b->copy(b, wider, d->cache, d->rows * width);
  drop_cache(d);
  d->cache = wider, d->cap = want;
  return ERR_OK;
}

Err decoder_reserve(Decoder *d, size_t rows) {
  d->rows = 0;
  if (rows <= d->cap) return ERR_OK;
  drop_cache(d);
  return grow_cache(d, rows);
}

Err decoder_begin(Decoder *d, const int32_t *src, const int32_t *pos, const int32_t *off,
                  size_t sentences, size_t expected) {
  Transformer *t = d->t;
  const Backend *b = t->model.backend;
  size_t rows = (size_t)off[sentences];
  d->rows = 0;
  TRY(grow_cache(d, expected));
  if (t->batch) { /* where a device reads them */
    int32_t *at = t->batch;
    b->put(b, at, src, rows * sizeof *at);
    b->put(b, at + rows, pos, rows * sizeof *at);
    b->put(b, at + 2 * rows, off, (sentences + 1) * sizeof *at);
    src = at, pos = at + rows, off = at + 2 * rows;
  }
  const void *memory =
      transformer_encode(t, d->w, src, pos, off, sentences, rows, (StepKey){0});
  transformer_cross_kv(t, d->w, memory, rows);
  return ERR_OK;
}

/* One position: what the backend reads of it, each (n). */
typedef struct {
  size_t n, place;
  size_t wide;                                                   /* rows of products */
  const int32_t *word, *position, *parent, *len, *m_off, *m_len; /* m: the encoder's output */
  const int32_t *list;
} Step;

/* A device measures products of a new size before it does them, and hypotheses become
 * fewer from step to step: there only few sizes occur. Rows from n on hold what they
 * held before; nobody reads them. */
static size_t product_rows(const Decoder *d, size_t n) {
  size_t unit = 64;
  if (d->t->model.backend->host) return n;
  while (8 * unit <= n) unit *= 2;
  size_t wide = (n + unit - 1) / unit * unit;
  return wide < d->most ? wide : d->most;
}

/* The rows of this step are the last n of the cache. */
static void self_step(Decoder *d, int layer, const void *y, const Step *at) {
  Transformer *t = d->t;
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[1][layer].self;
  AttentionState *s = &t->stack[1].self[layer];
  size_t width = (size_t)t->config.d_model, heads = (size_t)t->config.heads,
         ld = cache_width(d);
  void *k = transformer_element(t, d->cache, (size_t)layer * 2 * width);
  b->linear(b, s->in, y, transformer_weight(t, d->w, p->in),
            transformer_weight(t, d->w, p->in_bias), at->wide, width, 3 * width);
  b->copy_rows(b, transformer_element(t, k, (d->rows - at->n) * ld), ld,
               transformer_element(t, s->in, width), 3 * width, at->n, 2 * width);
  CachedAttention a = {.rows = at->n,
                       .heads = heads,
                       .d = width / heads,
                       .at = at->list,
                       .at_ld = (size_t)t->config.max_positions,
                       .len = at->len,
                       .q_ld = 3 * width,
                       .kv_ld = ld,
                       .o_ld = width};
  b->attend_cached(b, s->out, s->in, k, transformer_element(t, k, width), &a);
  b->linear(b, t->branch, s->out, transformer_weight(t, d->w, p->out),
            transformer_weight(t, d->w, p->out_bias), at->wide, width, width);
}

static void cross_step(Decoder *d, int layer, const void *y, const Step *at) {
  Transformer *t = d->t;
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[1][layer].cross;
  AttentionState *s = &t->stack[1].cross[layer];
  size_t width = (size_t)t->config.d_model, heads = (size_t)t->config.heads;
  const void *k = transformer_element(t, t->cross_kv, (size_t)layer * 2 * width);
  CachedAttention a = {.rows = at->n,
                       .heads = heads,
                       .d = width / heads,
                       .first = at->m_off,
                       .len = at->m_len,
                       .q_ld = width,
                       .kv_ld = (size_t)t->config.layers[1] * 2 * width,
                       .o_ld = width};
  b->linear(b, s->in, y, transformer_weight(t, d->w, p->in),
            transformer_weight(t, d->w, p->in_bias), at->wide, width, width);
  b->attend_cached(b, s->out, s->in, k, transformer_element(t, k, width), &a);
  b->linear(b, t->branch, s->out, transformer_weight(t, d->w, p->out),
            transformer_weight(t, d->w, p->out_bias), at->wide, width, width);
}

/* Puts all that the backend has to know of a step in one piece. */
static Step say_step(Decoder *d, const int32_t *parent, const int32_t *word,
                     const int32_t *sentence, const int32_t *off, size_t n, size_t place) {
  const Backend *b = d->t->model.backend;
  int32_t *say = d->say;
  for (size_t i = 0; i < n; i++) {
    const int32_t *source = off + sentence[i];
    say[i] = word[i];
    say[n + i] = (int32_t)place;
    say[2 * n + i] = parent[i];
    say[3 * n + i] = (int32_t)place + 1;
    say[4 * n + i] = source[0];
    say[5 * n + i] = source[1] - source[0];
  }
  b->put(b, d->said, say, 6 * n * sizeof *say);
  const int32_t *at = d->said;
  return (Step){.n = n,
                .place = place,
                .wide = product_rows(d, n),
                .word = at,
                .position = at + n,
                .parent = at + 2 * n,
                .len = at + 3 * n,
                .m_off = at + 4 * n,
                .m_len = at + 5 * n,
                .list = d->list[place % 2]};
}

Err decoder_step(Decoder *d, const int32_t *parent, const int32_t *word,
                 const int32_t *sentence, const int32_t *off, size_t n, size_t place,
                 void **logits) {
  Transformer *t = d->t;
  const Backend *b = t->model.backend;
  StackState *s = &t->stack[1];
  StepKey key = {0};
  TRY(grow_cache(d, n));
  Step at = say_step(d, parent, word, sentence, off, n, place);
  b->extend(b, d->list[place % 2], d->list[(place + 1) % 2], at.parent, n,
            (size_t)t->config.max_positions, place, (int32_t)d->rows);
  d->rows += n;
  transformer_embed(t, d->w, 1, at.word, at.position, n, key);
  transformer_add_norm(t, d->w, 1, 0, at.wide, key);
  for (int i = 0; i < s->sublayers; i++) {
    if (i % 3 == 0) self_step(d, i / 3, s->y[i], &at);
    if (i % 3 == 1) cross_step(d, i / 3, s->y[i], &at);
    if (i % 3 == 2) transformer_ffn(t, d->w, 1, i / 3, s->y[i], at.wide, key);
    transformer_add_norm(t, d->w, 1, i + 1, at.wide, key);
  }
  b->linear(b, t->logits, s->y[s->sublayers], transformer_weight(t, d->w, t->at.output), NULL,
            at.wide, (size_t)t->config.d_model, (size_t)t->config.vocab);
  *logits = t->logits;
  return ERR_OK;
}
