/* Incremental decoding with a key/value cache. Depends on transformer_internal.h. */
#include "model/decoder.h"

#include "base/mem.h"
#include "model/transformer_internal.h"

/* Returns the bytes of one row of the key/value cache. */
static size_t cache_bytes(const TransformerConfig *c, const Backend *b) {
  return (size_t)c->layers[1] * 2 * (size_t)c->d_model * type_size(b->type);
}

/* Returns the bytes of both row_lists. */
static size_t list_bytes(const TransformerConfig *c, size_t max_rows) {
  return 2 * max_rows * (size_t)c->max_positions * sizeof(int32_t);
}

static size_t args_bytes(size_t max_rows) {
  return 6 * max_rows * sizeof(int32_t);
}

uint64_t decoder_bytes(const TransformerConfig *c, const Backend *b, size_t max_rows,
                       size_t rows) {
  return list_bytes(c, max_rows) + args_bytes(max_rows) + (uint64_t)rows * cache_bytes(c, b);
}

Err decoder_new(Decoder *d, Transformer *t, Weights w, size_t max_rows) {
  const Backend *b = t->model.backend;
  size_t args = args_bytes(max_rows);
  *d = (Decoder){.t = t, .w = w, .max_rows = max_rows};
  TRY(b->alloc(b, &d->row_lists[0], list_bytes(&t->config, max_rows)));
  d->row_lists[1] = d->row_lists[0] + max_rows * (size_t)t->config.max_positions;
  TRY(b->alloc(b, &d->args, args));
  d->host_args = d->args;
  return b->host ? ERR_OK : mem_alloc_aligned(&d->host_args, args);
}

void decoder_free(Decoder *d) {
  if (!d->t) return;
  const Backend *b = d->t->model.backend;
  void *list[] = {d->cache, d->row_lists[0], d->args};
  for (int i = 0; i < 3; i++) {
    if (list[i]) b->release(b, list[i]);
  }
  if (d->host_args != d->args) mem_free(d->host_args);
  *d = (Decoder){0};
}

static Err pack_attention(const Decoder *d, Backend *b, const AttentionParams *p, size_t in) {
  const Transformer *t = d->t;
  size_t d_model = (size_t)t->config.d_model;
  TRY(b->pack(b, transformer_weight(t, d->w, p->in), d_model, in));
  return b->pack(b, transformer_weight(t, d->w, p->out), d_model, d_model);
}

Err decoder_pack(const Decoder *d, Backend *b) {
  const Transformer *t = d->t;
  const TransformerParams *p = &t->at;
  const TransformerConfig *c = &t->config;
  size_t d_model = (size_t)c->d_model, ff = (size_t)c->ffn_dim;
  if (!b->pack) return ERR_OK;
  for (int stack = 0; stack < 2; stack++) {
    for (int i = 0; i < c->layers[stack]; i++) {
      const LayerParams *l = &p->layer[stack][i];
      TRY(pack_attention(d, b, &l->self, 3 * d_model));
      if (stack) TRY(pack_attention(d, b, &l->cross, d_model));
      TRY(b->pack(b, transformer_weight(t, d->w, l->ffn.up), d_model, ff));
      TRY(b->pack(b, transformer_weight(t, d->w, l->ffn.down), ff, d_model));
    }
  }
  TRY(b->pack(b, transformer_weight(t, d->w, p->cross_kv), d_model,
              (size_t)c->layers[1] * 2 * d_model));
  return b->pack(b, transformer_weight(t, d->w, p->output), d_model, (size_t)c->vocab);
}

static size_t cache_width(const Decoder *d) {
  return (size_t)d->t->config.layers[1] * 2 * (size_t)d->t->config.d_model;
}

static void free_cache(Decoder *d) {
  if (d->cache) d->t->model.backend->release(d->t->model.backend, d->cache);
  d->cache = NULL;
  d->capacity = 0;
}

/* Makes room for n more rows; the capacity grows by half. Batches are sorted by length, longest
 * first, so the cache rarely grows after the first batch. If the old cache is empty it is freed
 * before the new one is allocated. */
static Err grow_cache(Decoder *d, size_t n) {
  const Backend *b = d->t->model.backend;
  size_t row_bytes = cache_bytes(&d->t->config, b), want = d->capacity + d->capacity / 2;
  void *wider;
  if (d->written + n <= d->capacity) return ERR_OK;
  if (want < d->written + n) want = d->written + n;
  if (!d->written) free_cache(d);
  TRY(b->alloc(b, &wider, want * row_bytes));
  if (d->written) b->copy(b, wider, d->cache, d->written * row_bytes);
  free_cache(d);
  d->cache = wider;
  d->capacity = want;
  return ERR_OK;
}

Err decoder_reserve(Decoder *d, size_t rows) {
  d->written = 0;
  if (rows <= d->capacity) return ERR_OK;
  free_cache(d);
  return grow_cache(d, rows);
}

Err decoder_begin(Decoder *d, const int32_t *src, const int32_t *pos, const int32_t *off,
                  size_t sentences, size_t expected) {
  Transformer *t = d->t;
  const Backend *b = t->model.backend;
  size_t rows = (size_t)off[sentences];
  d->written = 0;
  TRY(grow_cache(d, expected));
  if (t->batch) { /* copy the arrays to the device */
    int32_t *at = t->batch;
    b->put(b, at, src, rows * sizeof *at);
    b->put(b, at + rows, pos, rows * sizeof *at);
    b->put(b, at + 2 * rows, off, (sentences + 1) * sizeof *at);
    src = at;
    pos = at + rows;
    off = at + 2 * rows;
  }
  const void *memory =
      transformer_encode(t, d->w, src, pos, off, sentences, rows, (StepKey){0});
  transformer_cross_kv(t, d->w, memory, rows);
  return ERR_OK;
}

/* Arguments of a step, as the backend reads them. The arrays have n elements, except `list`. */
typedef struct {
  size_t n;
  size_t gemm_rows; /* number of rows of the GEMMs; at least n */
  const int32_t *word, *position, *parent, *len, *source_off, *source_len;
  const int32_t *list;
} StepArgs;

/* Returns the number of rows of the GEMMs of a step with n hypotheses. A GPU backend times the
 * GEMM algorithms of each new size, and n shrinks from step to step, so n is rounded up to one
 * of few sizes. The results of the surplus rows are not read. */
static size_t round_up_rows(const Decoder *d, size_t n) {
  size_t unit = 64;
  if (d->t->model.backend->host) return n;
  while (8 * unit <= n) unit *= 2;
  size_t gemm_rows = (n + unit - 1) / unit * unit;
  return gemm_rows < d->max_rows ? gemm_rows : d->max_rows;
}

/* Self attention of one position. The keys and values of this step are the last n rows of the
 * cache. */
static void self_attention_step(Decoder *d, int layer, const void *y, const StepArgs *at) {
  Transformer *t = d->t;
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[1][layer].self;
  AttentionState *s = &t->stack[1].self[layer];
  size_t d_model = (size_t)t->config.d_model, heads = (size_t)t->config.heads,
         ld = cache_width(d);
  void *k = transformer_element(t, d->cache, (size_t)layer * 2 * d_model);
  b->linear(b, s->in, y, transformer_weight(t, d->w, p->in),
            transformer_weight(t, d->w, p->in_bias), at->gemm_rows, d_model, 3 * d_model);
  b->copy_rows(b, transformer_element(t, k, (d->written - at->n) * ld), ld,
               transformer_element(t, s->in, d_model), 3 * d_model, at->n, 2 * d_model);
  CachedAttention a = {.rows = at->n,
                       .heads = heads,
                       .d = d_model / heads,
                       .at = at->list,
                       .at_ld = (size_t)t->config.max_positions,
                       .len = at->len,
                       .q_ld = 3 * d_model,
                       .kv_ld = ld,
                       .o_ld = d_model};
  b->attend_cached(b, s->out, s->in, k, transformer_element(t, k, d_model), &a);
  b->linear(b, t->branch, s->out, transformer_weight(t, d->w, p->out),
            transformer_weight(t, d->w, p->out_bias), at->gemm_rows, d_model, d_model);
}

static void cross_attention_step(Decoder *d, int layer, const void *y, const StepArgs *at) {
  Transformer *t = d->t;
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[1][layer].cross;
  AttentionState *s = &t->stack[1].cross[layer];
  size_t d_model = (size_t)t->config.d_model, heads = (size_t)t->config.heads;
  const void *k = transformer_element(t, t->cross_kv, (size_t)layer * 2 * d_model);
  CachedAttention a = {.rows = at->n,
                       .heads = heads,
                       .d = d_model / heads,
                       .first = at->source_off,
                       .len = at->source_len,
                       .q_ld = d_model,
                       .kv_ld = (size_t)t->config.layers[1] * 2 * d_model,
                       .o_ld = d_model};
  b->linear(b, s->in, y, transformer_weight(t, d->w, p->in),
            transformer_weight(t, d->w, p->in_bias), at->gemm_rows, d_model, d_model);
  b->attend_cached(b, s->out, s->in, k, transformer_element(t, k, d_model), &a);
  b->linear(b, t->branch, s->out, transformer_weight(t, d->w, p->out),
            transformer_weight(t, d->w, p->out_bias), at->gemm_rows, d_model, d_model);
}

/* Copies the arguments of a step to the backend's memory in one transfer. */
static StepArgs put_args(Decoder *d, const int32_t *parent, const int32_t *word,
                         const int32_t *sentence, const int32_t *off, size_t n,
                         size_t position) {
  const Backend *b = d->t->model.backend;
  int32_t *args = d->host_args;
  for (size_t i = 0; i < n; i++) {
    const int32_t *source = off + sentence[i];
    args[i] = word[i];
    args[n + i] = (int32_t)position;
    args[2 * n + i] = parent[i];
    args[3 * n + i] = (int32_t)position + 1;
    args[4 * n + i] = source[0];
    args[5 * n + i] = source[1] - source[0];
  }
  b->put(b, d->args, args, 6 * n * sizeof *args);
  const int32_t *at = d->args;
  return (StepArgs){.n = n,
                    .gemm_rows = round_up_rows(d, n),
                    .word = at,
                    .position = at + n,
                    .parent = at + 2 * n,
                    .len = at + 3 * n,
                    .source_off = at + 4 * n,
                    .source_len = at + 5 * n,
                    .list = d->row_lists[position % 2]};
}

Err decoder_step(Decoder *d, const int32_t *parent, const int32_t *word,
                 const int32_t *sentence, const int32_t *off, size_t n, size_t position,
                 void **logits) {
  Transformer *t = d->t;
  const Backend *b = t->model.backend;
  StackState *s = &t->stack[1];
  StepKey key = {0};
  TRY(grow_cache(d, n));
  StepArgs at = put_args(d, parent, word, sentence, off, n, position);
  b->extend(b, d->row_lists[position % 2], d->row_lists[(position + 1) % 2], at.parent, n,
            (size_t)t->config.max_positions, position, (int32_t)d->written);
  d->written += n;
  transformer_embed(t, d->w, 1, at.word, at.position, n, key);
  transformer_add_norm(t, d->w, 1, 0, at.gemm_rows, key);
  for (int i = 0; i < s->sublayers; i++) {
    if (i % 3 == 0) self_attention_step(d, i / 3, s->y[i], &at);
    if (i % 3 == 1) cross_attention_step(d, i / 3, s->y[i], &at);
    if (i % 3 == 2) transformer_ffn(t, d->w, 1, i / 3, s->y[i], at.gemm_rows, key);
    transformer_add_norm(t, d->w, 1, i + 1, at.gemm_rows, key);
  }
  b->linear(b, t->logits, s->y[s->sublayers], transformer_weight(t, d->w, t->at.output),
            transformer_weight(t, d->w, t->at.output_bias), at.gemm_rows,
            (size_t)t->config.d_model, (size_t)t->config.vocab);
  *logits = t->logits;
  return ERR_OK;
}
