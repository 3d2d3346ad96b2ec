/* Incremental decoding with a key/value cache. Depends on backend/graphs.h,
 * transformer_internal.h. */
#include "model/decoder.h"

#include <string.h>

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

/* Arguments of a step: arrays with an element for each row, one after the other in Decoder.args.
 * Surplus rows have the length 0, so that they have no keys, and token 0. */
enum {
  ARG_WORD,     /* token */
  ARG_POSITION, /* its position */
  ARG_PARENT,   /* list that the row's list of cache rows continues */
  ARG_LIST,     /* the row's own list */
  ARG_LEN,      /* its number of entries, position + 1 */
  ARG_SLOT,     /* cache row that receives the row's key and value */
  ARG_SOURCE_OFF,
  ARG_SOURCE_LEN, /* first token and number of tokens of the source */
  STEP_ARGS
};

static size_t args_bytes(size_t max_rows) {
  return STEP_ARGS * max_rows * sizeof(int32_t);
}

uint64_t decoder_bytes(const TransformerConfig *c, const Backend *b, size_t max_rows,
                       size_t rows) {
  return list_bytes(c, max_rows) + args_bytes(max_rows) + (uint64_t)rows * cache_bytes(c, b);
}

Err decoder_new(Decoder *d, Transformer *t, Weights w, size_t max_rows) {
  const Backend *b = t->model.backend;
  size_t args = args_bytes(max_rows);
  *d = (Decoder){.t = t, .w = w, .max_rows = max_rows, .graphs = {.limit = GRAPHS_MAX}};
  TRY(b->alloc(b, &d->row_lists, list_bytes(&t->config, max_rows)));
  TRY(b->alloc(b, &d->args, args));
  d->host_args = d->args;
  return b->host ? ERR_OK : mem_alloc_aligned(&d->host_args, args);
}

void decoder_free(Decoder *d) {
  if (!d->t) return;
  const Backend *b = d->t->model.backend;
  void *list[] = {d->cache, d->row_lists, d->args};
  graphs_free(&d->graphs, b);
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

/* Frees the cache, and the graphs, which refer to it. */
static void free_cache(Decoder *d) {
  graphs_free(&d->graphs, d->t->model.backend);
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

typedef struct {
  Decoder *d;
  size_t rows; /* number of rows of all operations; at least the number of hypotheses */
} Step;

static const int32_t *step_arg(const Step *s, int which) {
  return s->d->args + (size_t)which * s->rows;
}

/* Returns the number of rows of a step with n hypotheses. A device has a graph and GEMM algorithms
 * for each number of rows, and n shrinks from step to step, so n is rounded up to one of few
 * sizes. */
static size_t round_up_rows(const Decoder *d, size_t n) {
  size_t unit = 64;
  if (d->t->model.backend->host) return n;
  while (8 * unit <= n) unit *= 2;
  size_t rows = (n + unit - 1) / unit * unit;
  return rows < d->max_rows ? rows : d->max_rows;
}

/* Self attention of one position; stores its keys and values in the cache. */
static void self_attention_step(const Step *step, int layer, const void *y) {
  Decoder *d = step->d;
  Transformer *t = d->t;
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[1][layer].self;
  AttentionState *s = &t->stack[1].self[layer];
  size_t d_model = (size_t)t->config.d_model, heads = (size_t)t->config.heads;
  void *k = transformer_element(t, d->cache, (size_t)layer * 2 * d_model);
  b->linear(b, s->in, y, transformer_weight(t, d->w, p->in),
            transformer_weight(t, d->w, p->in_bias), step->rows, d_model, 3 * d_model);
  CachedAttention a = {.rows = step->rows,
                       .heads = heads,
                       .d = d_model / heads,
                       .at = d->row_lists,
                       .at_ld = (size_t)t->config.max_positions,
                       .list = step_arg(step, ARG_LIST),
                       .len = step_arg(step, ARG_LEN),
                       .q_ld = 3 * d_model,
                       .kv_ld = cache_width(d),
                       .o_ld = d_model,
                       .appends = true};
  b->attend_cached(b, s->out, s->in, k, transformer_element(t, k, d_model), &a);
  b->linear(b, t->branch, s->out, transformer_weight(t, d->w, p->out),
            transformer_weight(t, d->w, p->out_bias), step->rows, d_model, d_model);
}

static void cross_attention_step(const Step *step, int layer, const void *y) {
  Decoder *d = step->d;
  Transformer *t = d->t;
  const Backend *b = t->model.backend;
  const AttentionParams *p = &t->at.layer[1][layer].cross;
  AttentionState *s = &t->stack[1].cross[layer];
  size_t d_model = (size_t)t->config.d_model, heads = (size_t)t->config.heads;
  void *k = transformer_element(t, t->cross_kv, (size_t)layer * 2 * d_model);
  CachedAttention a = {.rows = step->rows,
                       .heads = heads,
                       .d = d_model / heads,
                       .first = step_arg(step, ARG_SOURCE_OFF),
                       .len = step_arg(step, ARG_SOURCE_LEN),
                       .q_ld = d_model,
                       .kv_ld = (size_t)t->config.layers[1] * 2 * d_model,
                       .o_ld = d_model};
  b->linear(b, s->in, y, transformer_weight(t, d->w, p->in),
            transformer_weight(t, d->w, p->in_bias), step->rows, d_model, d_model);
  b->attend_cached(b, s->out, s->in, k, transformer_element(t, k, d_model), &a);
  b->linear(b, t->branch, s->out, transformer_weight(t, d->w, p->out),
            transformer_weight(t, d->w, p->out_bias), step->rows, d_model, d_model);
}

/* Queues all operations of a step. They depend on the number of rows alone, and on device memory
 * that is allocated once, except the cache; see free_cache(). */
static void queue_step(void *step_) {
  const Step *step = step_;
  Decoder *d = step->d;
  Transformer *t = d->t;
  const Backend *b = t->model.backend;
  StackState *s = &t->stack[1];
  StepKey key = {0};
  b->extend(b, d->row_lists, step_arg(step, ARG_LIST), step_arg(step, ARG_PARENT),
            step_arg(step, ARG_LEN), step_arg(step, ARG_SLOT), step->rows,
            (size_t)t->config.max_positions);
  transformer_embed(t, d->w, 1, step_arg(step, ARG_WORD), step_arg(step, ARG_POSITION),
                    step->rows, key);
  transformer_add_norm(t, d->w, 1, 0, step->rows, key);
  for (int i = 0; i < s->sublayers; i++) {
    if (i % 3 == 0) self_attention_step(step, i / 3, s->y[i]);
    if (i % 3 == 1) cross_attention_step(step, i / 3, s->y[i]);
    if (i % 3 == 2) transformer_ffn(t, d->w, 1, i / 3, s->y[i], step->rows, key);
    transformer_add_norm(t, d->w, 1, i + 1, step->rows, key);
  }
  b->linear(b, t->logits, s->y[s->sublayers], transformer_weight(t, d->w, t->at.output),
            transformer_weight(t, d->w, t->at.output_bias), step->rows,
            (size_t)t->config.d_model, (size_t)t->config.vocab);
}

/* Copies the arguments of a step of n hypotheses to the backend's memory in one transfer. */
static void put_args(const Step *s, const int32_t *parent, const int32_t *word,
                     const int32_t *sentence, const int32_t *off, size_t n, size_t position) {
  const Backend *b = s->d->t->model.backend;
  int32_t *arg[STEP_ARGS], *args = s->d->host_args, first = (int32_t)s->d->written;
  int32_t half = (int32_t)(position % 2 * s->d->max_rows),
          other = (int32_t)((position + 1) % 2 * s->d->max_rows);
  for (size_t i = 0; i < STEP_ARGS; i++) {
    arg[i] = args + i * s->rows;
    memset(arg[i] + n, 0, (s->rows - n) * sizeof *args);
  }
  for (size_t i = 0; i < n; i++) {
    const int32_t *source = off + sentence[i];
    arg[ARG_WORD][i] = word[i];
    arg[ARG_POSITION][i] = (int32_t)position;
    arg[ARG_PARENT][i] = other + parent[i];
    arg[ARG_LIST][i] = half + (int32_t)i;
    arg[ARG_LEN][i] = (int32_t)position + 1;
    arg[ARG_SLOT][i] = first + (int32_t)i;
    arg[ARG_SOURCE_OFF][i] = source[0];
    arg[ARG_SOURCE_LEN][i] = source[1] - source[0];
  }
  b->put(b, s->d->args, args, args_bytes(s->rows));
}

Err decoder_step(Decoder *d, const int32_t *parent, const int32_t *word,
                 const int32_t *sentence, const int32_t *off, size_t n, size_t position,
                 void **logits) {
  Step step = {d, round_up_rows(d, n)};
  GraphKey key = {.shape = {(uint32_t)step.rows}};
  TRY(grow_cache(d, n));
  put_args(&step, parent, word, sentence, off, n, position);
  d->written += n;
  *logits = d->t->logits;
  return graphs_run(&d->graphs, d->t->model.backend, key, queue_step, &step);
}
