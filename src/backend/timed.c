/* Measures the operations of another backend. Each operation records a timestamp, calls the
 * wrapped backend, and records another timestamp; the numbers of operations and bytes are
 * computed from the shapes. Timestamps are device events (Backend.stamp) or the host clock.
 * Depends on base/progress. */
#include "backend/timed.h"

#include "base/mem.h"
#include "base/progress.h"

/* Initial capacity: about the number of calls of a step with 6 + 6 layers. */
#define INITIAL_CALLS 1024

static const char *const names[WORK_KINDS] = {"GEMM forward",
                                              "GEMM dgrad",
                                              "GEMM wgrad",
                                              "attention",
                                              "attention backward",
                                              "layer norm",
                                              "layer norm backward",
                                              "activation",
                                              "activation backward",
                                              "embedding",
                                              "loss",
                                              "optimizer",
                                              "copy or zero"};

const char *timed_name(WorkKind kind) {
  return names[kind];
}

/* A call of attention; timed_end computes its amount of work. */
typedef struct TimedAttention {
  WorkKind kind;
  Attention a;
} TimedAttention;

static void record_time(TimedBackend *c, size_t point) {
  if (c->inner->stamp)
    c->inner->stamp(c->inner, point);
  else
    c->at[point] = progress_clock();
}

static Err reserve_calls(TimedBackend *c, size_t calls) {
  TRY(mem_grow(&c->call, &c->call_cap, calls, sizeof *c->call));
  return mem_grow(&c->at, &c->at_cap, 2 * calls + 2, sizeof *c->at);
}

static bool is_full(const TimedBackend *c) {
  return c->max_calls && c->calls == c->max_calls;
}

/* Adds a call of `kind` and records its start. After a failed allocation, and if the list is
 * full, calls are no longer recorded, only executed; timed_end returns the error. */
static TimedBackend *begin_call(const Backend *b, WorkKind kind, double operations,
                                double bytes) {
  TimedBackend *c = b->timer;
  if (is_full(c)) return c;
  Err err = c->failed.code ? c->failed.code : reserve_calls(c, c->calls + 1);
  if (err) {
    if (!c->failed.code) c->failed = err_take(err);
    return c;
  }
  Work *w = &c->work[kind];
  w->calls++;
  w->operations += operations;
  w->bytes += bytes;
  c->call[c->calls] = (TimedCall){.kind = kind, .operations = operations, .bytes = bytes};
  record_time(c, 2 * c->calls + 1);
  return c;
}

static void end_call(TimedBackend *c) {
  if (is_full(c)) c->dropped++;
  if (c->failed.code || is_full(c)) return;
  record_time(c, 2 * c->calls + 2);
  c->calls++;
}

/* Returns the bytes of n elements of the backend's type. */
static double count_bytes(const Backend *b, double n) {
  return n * (double)type_size(b->type);
}

static void put(const Backend *b, void *to, const void *from, size_t bytes) {
  TimedBackend *c = begin_call(b, WORK_MOVE, 0, 2 * (double)bytes);
  c->inner->put(c->inner, to, from, bytes);
  end_call(c);
}

static Err get(const Backend *b, void *to, const void *from, size_t bytes) {
  TimedBackend *c = begin_call(b, WORK_MOVE, 0, 2 * (double)bytes);
  Err err = c->inner->get(c->inner, to, from, bytes);
  end_call(c);
  return err;
}

static void copy(const Backend *b, void *to, const void *from, size_t bytes) {
  TimedBackend *c = begin_call(b, WORK_MOVE, 0, 2 * (double)bytes);
  c->inner->copy(c->inner, to, from, bytes);
  end_call(c);
}

static void zero(const Backend *b, void *block, size_t bytes) {
  TimedBackend *c = begin_call(b, WORK_MOVE, 0, (double)bytes);
  c->inner->zero(c->inner, block, bytes);
  end_call(c);
}

static void lower(const Backend *b, void *to, const float *full, size_t n) {
  double bytes = to == full ? 0 : 4.0 * (double)n + count_bytes(b, (double)n);
  TimedBackend *c = begin_call(b, WORK_UPDATE, 0, bytes);
  c->inner->lower(c->inner, to, full, n);
  end_call(c);
}

static TimedBackend *begin_gemm(const Backend *b, WorkKind kind, size_t rows, size_t in,
                                size_t out, double bytes) {
  TimedBackend *c = begin_call(b, kind, 2.0 * (double)rows * (double)in * (double)out, bytes);
  if (c->failed.code || is_full(c)) return c;
  uint32_t *shape = c->call[c->calls].shape;
  shape[0] = (uint32_t)rows;
  shape[1] = (uint32_t)in;
  shape[2] = (uint32_t)out;
  return c;
}

static void linear(const Backend *b, void *y, const void *x, const void *w, const void *bias,
                   size_t rows, size_t in, size_t out) {
  size_t n = rows * in + in * out + rows * out + (bias ? out : 0);
  TimedBackend *c = begin_gemm(b, WORK_LINEAR, rows, in, out, count_bytes(b, (double)n));
  c->inner->linear(c->inner, y, x, w, bias, rows, in, out);
  end_call(c);
}

static void linear_relu(const Backend *b, void *y, const void *x, const void *w,
                        const void *bias, size_t rows, size_t in, size_t out) {
  size_t n = rows * in + in * out + rows * out + (bias ? out : 0);
  TimedBackend *c = begin_gemm(b, WORK_LINEAR, rows, in, out, count_bytes(b, (double)n));
  c->inner->linear_relu(c->inner, y, x, w, bias, rows, in, out);
  end_call(c);
}

static void linear_dx(const Backend *b, void *dx, const void *dy, const void *w, size_t rows,
                      size_t in, size_t out, bool accumulate) {
  size_t n = rows * out + in * out + rows * in * (accumulate ? 2 : 1);
  TimedBackend *c = begin_gemm(b, WORK_DGRAD, rows, in, out, count_bytes(b, (double)n));
  c->inner->linear_dx(c->inner, dx, dy, w, rows, in, out, accumulate);
  end_call(c);
}

static void linear_dw(const Backend *b, float *dw, float *dbias, const void *dy, const void *x,
                      size_t rows, size_t in, size_t out, bool accumulate) {
  double bytes = count_bytes(b, (double)(rows * in + rows * out)) +
                 (accumulate ? 8.0 : 4.0) * (double)(in * out + (dbias ? out : 0));
  TimedBackend *c = begin_gemm(b, WORK_WGRAD, rows, in, out, bytes);
  c->inner->linear_dw(c->inner, dw, dbias, dy, x, rows, in, out, accumulate);
  end_call(c);
}

static void embed(const Backend *b, void *x, const void *table, const float *place,
                  const int32_t *id, const int32_t *position, size_t rows, size_t d,
                  float scale, Dropout drop) {
  double n = (double)rows * (double)d;
  TimedBackend *c = begin_call(b, WORK_EMBED, 0, count_bytes(b, 2 * n) + 8.0 * (double)rows);
  c->inner->embed(c->inner, x, table, place, id, position, rows, d, scale, drop);
  end_call(c);
}

static void embed_backward(const Backend *b, float *dtable, float *dplace, const void *dx,
                           const int32_t *id, const int32_t *position, size_t rows, size_t d,
                           size_t words, size_t places, float scale, Dropout drop) {
  double n = (double)rows * (double)d;
  TimedBackend *c =
      begin_call(b, WORK_EMBED, 0, count_bytes(b, n) + 8 * n + 8.0 * (double)rows);
  c->inner->embed_backward(c->inner, dtable, dplace, dx, id, position, rows, d, words, places,
                           scale, drop);
  end_call(c);
}

static void gather_rows(const Backend *b, void *y, const void *x, const int32_t *index,
                        size_t rows, size_t d) {
  double n = 2.0 * (double)rows * (double)d;
  TimedBackend *c = begin_call(b, WORK_MOVE, 0, count_bytes(b, n) + 4.0 * (double)rows);
  c->inner->gather_rows(c->inner, y, x, index, rows, d);
  end_call(c);
}

static void scatter_rows(const Backend *b, void *dx, const void *dy, const int32_t *index,
                         size_t rows, size_t tokens, size_t d) {
  double n = (double)(rows + tokens) * (double)d;
  TimedBackend *c = begin_call(b, WORK_MOVE, 0, count_bytes(b, n) + 4.0 * (double)rows);
  c->inner->scatter_rows(c->inner, dx, dy, index, rows, tokens, d);
  end_call(c);
}

static void add_norm(const Backend *b, void *sum, void *y, float *stat, const void *x,
                     const void *branch, const float *gain, const float *bias,
                     const AddNorm *n) {
  double arrays = branch ? 4 : 2, rows = (double)n->rows, d = (double)n->d;
  double ahead = n->ahead ? rows * (double)n->ahead_width / 8 : 0;
  TimedBackend *c =
      begin_call(b, WORK_NORM, 0, count_bytes(b, arrays * rows * d) + 8 * rows + 8 * d + ahead);
  c->inner->add_norm(c->inner, sum, y, stat, x, branch, gain, bias, n);
  end_call(c);
}

static void add_norm_backward(const Backend *b, void *dx, void *dbranch, float *dgain,
                              float *dbias, float *dshift, const void *dy, const void *through,
                              const void *sum, const float *stat, const float *gain,
                              const AddNorm *n, bool accumulate) {
  double arrays = 3 + (through ? 1 : 0) + (dbranch ? 1 : 0), sums = dshift ? 3 : 2;
  double rows = (double)n->rows, d = (double)n->d;
  TimedBackend *c = begin_call(
      b, WORK_NORM_BACKWARD, 0,
      count_bytes(b, arrays * rows * d) + 8 * rows + (4 + (accumulate ? 8 : 4) * sums) * d);
  c->inner->add_norm_backward(c->inner, dx, dbranch, dgain, dbias, dshift, dy, through, sum,
                              stat, gain, n, accumulate);
  end_call(c);
}

static TimedBackend *begin_attention(const Backend *b, WorkKind kind, const Attention *a) {
  TimedBackend *c = begin_call(b, kind, 0, 0);
  if (c->failed.code || c->max_calls) return c;
  Err err = mem_grow(&c->attention, &c->attention_cap, c->attentions + 1, sizeof *c->attention);
  if (err)
    c->failed = err_take(err);
  else
    c->attention[c->attentions++] = (TimedAttention){kind, *a};
  return c;
}

static void attend(const Backend *b, void *o, float *lse, const void *q, const void *k,
                   const void *v, const Attention *a) {
  TimedBackend *c = begin_attention(b, WORK_ATTEND, a);
  c->inner->attend(c->inner, o, lse, q, k, v, a);
  end_call(c);
}

static void attend_backward(const Backend *b, void *dq, void *dk, void *dv, const void *do_,
                            const void *o, const float *lse, const void *q, const void *k,
                            const void *v, const Attention *a) {
  TimedBackend *c = begin_attention(b, WORK_ATTEND_BACKWARD, a);
  c->inner->attend_backward(c->inner, dq, dk, dv, do_, o, lse, q, k, v, a);
  end_call(c);
}

static void activate(const Backend *b, void *y, uint8_t *mask, const void *x, const void *bias,
                     size_t rows, size_t width, Activation kind, Dropout drop) {
  double n = (double)rows * (double)width, bits = mask ? n / 8 : 0;
  TimedBackend *c = begin_call(b, WORK_ACTIVATE, 0,
                               count_bytes(b, 2 * n + (bias ? (double)width : 0)) + bits);
  c->inner->activate(c->inner, y, mask, x, bias, rows, width, kind, drop);
  end_call(c);
}

/* Returns the bytes of what the backward of an activation reads besides dy: n bits for ReLU,
 * nothing for ACT_NONE, otherwise n elements. */
static double count_kept(const Backend *b, Activation kind, double n) {
  if (kind == ACT_NONE) return 0;
  return kind == ACT_RELU ? n / 8 : count_bytes(b, n);
}

static void activate_backward(const Backend *b, void *dx, float *dbias, const void *dy,
                              const void *kept, size_t rows, size_t width, Activation kind,
                              Dropout drop, bool accumulate) {
  double n = (double)rows * (double)width,
         bias = dbias ? (accumulate ? 8.0 : 4.0) * (double)width : 0;
  double bytes = count_bytes(b, 2 * n) + count_kept(b, kind, n) + bias;
  TimedBackend *c = begin_call(b, WORK_ACTIVATE_BACKWARD, 0, bytes);
  c->inner->activate_backward(c->inner, dx, dbias, dy, kept, rows, width, kind, drop,
                              accumulate);
  end_call(c);
}

static void linear_relu_dropout(const Backend *b, void *y, uint8_t *mask, const void *x,
                                const void *w, const void *bias, size_t rows, size_t in,
                                size_t out, Dropout drop) {
  size_t n = rows * in + in * out + out + rows * out;
  double bytes = count_bytes(b, (double)n) + 2 * (double)(rows * out) / 8;
  TimedBackend *c = begin_gemm(b, WORK_LINEAR, rows, in, out, bytes);
  c->inner->linear_relu_dropout(c->inner, y, mask, x, w, bias, rows, in, out, drop);
  end_call(c);
}

static void linear_relu_backward(const Backend *b, void *dx, float *dbias, const void *dy,
                                 const void *w, const uint8_t *mask, size_t rows, size_t in,
                                 size_t out, Dropout drop, bool accumulate) {
  size_t n = rows * out + in * out + rows * in;
  double bytes = count_bytes(b, (double)n) + (double)(rows * in) / 8 +
                 (accumulate ? 8.0 : 4.0) * (double)in;
  TimedBackend *c = begin_gemm(b, WORK_DGRAD, rows, in, out, bytes);
  c->inner->linear_relu_backward(c->inner, dx, dbias, dy, w, mask, rows, in, out, drop,
                                 accumulate);
  end_call(c);
}

static void loss(const Backend *b, void *logits, double *sum, const int32_t *target,
                 size_t rows, size_t vocab, float smoothing, float scale) {
  double n = (double)rows * (double)vocab * (scale != 0 ? 2 : 1);
  TimedBackend *c = begin_call(b, WORK_LOSS, 0, count_bytes(b, n) + 4.0 * (double)rows);
  c->inner->loss(c->inner, logits, sum, target, rows, vocab, smoothing, scale);
  end_call(c);
}

static void linear_loss(const Backend *b, const LinearLoss *j) {
  size_t n = j->rows * j->in + j->in * j->vocab + j->rows * j->vocab;
  double bytes = count_bytes(b, (double)n) + 4.0 * (double)j->rows;
  TimedBackend *c = begin_gemm(b, WORK_LINEAR, j->rows, j->in, j->vocab, bytes);
  c->inner->linear_loss(c->inner, j);
  end_call(c);
}

static void linear_loss_dx(const Backend *b, const LinearLoss *j) {
  size_t n = j->rows * j->vocab + j->in * j->vocab + j->rows * j->in;
  TimedBackend *c =
      begin_gemm(b, WORK_DGRAD, j->rows, j->in, j->vocab, count_bytes(b, (double)n));
  c->inner->linear_loss_dx(c->inner, j);
  end_call(c);
}

static void linear_loss_dw(const Backend *b, const LinearLoss *j) {
  double bytes = count_bytes(b, (double)(j->rows * j->in + j->rows * j->vocab)) +
                 (j->accumulate ? 8.0 : 4.0) * (double)(j->in * j->vocab);
  TimedBackend *c = begin_gemm(b, WORK_WGRAD, j->rows, j->in, j->vocab, bytes);
  c->inner->linear_loss_dw(c->inner, j);
  end_call(c);
}

static void head_loss(const Backend *b, void *logits, double *sum, const float *target,
                      const HeadLoss *h) {
  double rows = (double)h->rows, labels = (double)h->labels;
  double targets = h->kind == HEAD_SOFTMAX ? rows : rows * labels;
  double bytes = count_bytes(b, rows * labels * (h->scale != 0 ? 2 : 1)) + 4 * targets +
                 (h->weight ? 4 * labels : 0);
  TimedBackend *c = begin_call(b, WORK_LOSS, 0, bytes);
  c->inner->head_loss(c->inner, logits, sum, target, h);
  end_call(c);
}

static void square_sums(const Backend *b, double *sums, const float *x, size_t n) {
  TimedBackend *c = begin_call(b, WORK_UPDATE, 0, 4.0 * (double)n);
  c->inner->square_sums(c->inner, sums, x, n);
  end_call(c);
}

static void square_sums_async(const Backend *b, double *sums, const float *x, size_t n) {
  TimedBackend *c = begin_call(b, WORK_UPDATE, 0, 4.0 * (double)n);
  c->inner->square_sums_async(c->inner, sums, x, n);
  end_call(c);
}

static void clip(const Backend *b, StepNumbers *now, const double *sums, size_t units,
                 double losses[3]) {
  TimedBackend *c = begin_call(b, WORK_UPDATE, 0, 8.0 * (double)units);
  c->inner->clip(c->inner, now, sums, units, losses);
  end_call(c);
}

static void add(const Backend *b, float *x, const float *y, float scale, size_t n) {
  TimedBackend *c = begin_call(b, WORK_UPDATE, 0, 12.0 * (double)n);
  c->inner->add(c->inner, x, y, scale, n);
  end_call(c);
}

static void adam(const Backend *b, float *w, float *m, float *v, const float *g, size_t n,
                 const AdamStep *s) {
  double copy = s->low ? count_bytes(b, (double)n) : 0;
  TimedBackend *c = begin_call(b, WORK_UPDATE, 0, 28.0 * (double)n + copy);
  c->inner->adam(c->inner, w, m, v, g, n, s);
  end_call(c);
}

static void momentum(const Backend *b, float *w, float *m, const float *g, size_t n,
                     const MomentumStep *s) {
  double copy = s->low ? count_bytes(b, (double)n) : 0;
  TimedBackend *c = begin_call(b, WORK_UPDATE, 0, 20.0 * (double)n + copy);
  c->inner->momentum(c->inner, w, m, g, n, s);
  end_call(c);
}

static void ema(const Backend *b, float *e, const float *w, double keep, size_t n,
                const StepNumbers *now) {
  TimedBackend *c = begin_call(b, WORK_UPDATE, 0, 12.0 * (double)n);
  c->inner->ema(c->inner, e, w, keep, n, now);
  end_call(c);
}

/* Fills c->backend. */
static void replace_operations(TimedBackend *c) {
  Backend *b = &c->backend;
  b->timer = c;
  /* Operations that are not replaced run untimed on the same state. Graphs, packed weights,
   * collectives and streams are removed: graphs would hide single operations, and the others
   * would bypass the timed ones. */
  b->close = NULL;
  b->packed = NULL;
  b->pack = NULL;
  b->unpack = NULL;
  b->comm = NULL;
  b->open_stream = NULL;
  b->graph_begin = NULL;
  b->graph_end = NULL;
  b->graph_launch = NULL;
  b->graph_free = NULL;
  b->put = put;
  b->get = get;
  b->copy = copy;
  b->zero = zero;
  b->lower = lower;
  b->linear = linear;
  if (b->linear_relu) b->linear_relu = linear_relu;
  b->linear_dx = linear_dx;
  b->linear_dw = linear_dw;
  b->embed = embed;
  b->embed_backward = embed_backward;
  b->gather_rows = gather_rows;
  b->scatter_rows = scatter_rows;
  b->add_norm = add_norm;
  b->add_norm_backward = add_norm_backward;
  b->attend = attend;
  b->attend_backward = attend_backward;
  b->activate = activate;
  b->activate_backward = activate_backward;
  b->linear_relu_dropout = linear_relu_dropout;
  b->linear_relu_backward = linear_relu_backward;
  b->loss = loss;
  b->head_loss = head_loss;
  b->linear_loss = linear_loss;
  b->linear_loss_dx = linear_loss_dx;
  b->linear_loss_dw = linear_loss_dw;
  b->square_sums = square_sums;
  b->square_sums_async = square_sums_async;
  b->clip = clip;
  b->add = add;
  b->adam = adam;
  b->momentum = momentum;
  b->ema = ema;
}

static Err open_with(TimedBackend *c, const Backend *inner, size_t max_calls) {
  *c = (TimedBackend){.backend = *inner, .inner = inner, .max_calls = max_calls};
  replace_operations(c);
  Err err = reserve_calls(c, max_calls ? max_calls : INITIAL_CALLS);
  if (err) timed_close(c);
  if (err) return err;
  /* A device creates its events at first use. They are created here, so that this is not part of
   * a measured time. */
  for (size_t i = 0; inner->stamp && i < 2 * INITIAL_CALLS + 2; i++) record_time(c, i);
  return ERR_OK;
}

Err timed_open(TimedBackend *c, const Backend *inner) {
  return open_with(c, inner, 0);
}

Err timed_open_list(TimedBackend *c, const Backend *inner, size_t max_calls) {
  return open_with(c, inner, max_calls);
}

void timed_close(TimedBackend *c) {
  mem_free(c->at);
  mem_free(c->call);
  mem_free(c->attention);
  *c = (TimedBackend){0};
}

void timed_begin(TimedBackend *c) {
  c->calls = 0;
  c->dropped = 0;
  c->attentions = 0;
  record_time(c, 0);
}

/* Sums over the sentences of one call of attention. */
typedef struct {
  double queries, keys, pairs; /* `pairs`: pairs of a query and a key that it attends to */
} AttentionSize;

static void add_sentence(AttentionSize *size, size_t queries, size_t keys, bool causal) {
  double q = (double)queries, k = (double)keys, both = q < k ? q : k;
  size->queries += q;
  size->keys += k;
  /* Causal: query i attends to min(i + 1, k) keys. */
  size->pairs += causal ? both * (both + 1) / 2 + (q - both) * k : q * k;
}

static Err add_sentences(const Backend *b, const Attention *a, AttentionSize *size) {
  size_t n = a->sentences;
  int32_t *offset; /* offsets of queries, offsets of keys, numbers of keys */
  TRY(mem_alloc(&offset, 3 * (n + 1), sizeof *offset));
  int32_t *q = offset, *k = q + n + 1, *len = k + n + 1;
  Err err = b->get(b, q, a->q_off, (n + 1) * sizeof *q);
  if (!err) err = b->get(b, k, a->k_off, (n + 1) * sizeof *k);
  if (!err && a->k_len) err = b->get(b, len, a->k_len, n * sizeof *len);
  for (size_t s = 0; s < n && !err; s++)
    add_sentence(size, (size_t)(q[s + 1] - q[s]), (size_t)(a->k_len ? len[s] : k[s + 1] - k[s]),
                 a->causal);
  mem_free(offset);
  return err;
}

/* Counts the work of attention. The forward has two matmuls, q · kᵀ and p · v, and accesses q, k,
 * v and o. The backward has five, q · kᵀ again and the gradients of p, q, k and v, and accesses
 * those arrays and their gradients. */
static Err count_attention(TimedBackend *c, const TimedAttention *x) {
  AttentionSize size = {0};
  TRY(add_sentences(c->inner, &x->a, &size));
  bool is_backward = x->kind == WORK_ATTEND_BACKWARD;
  double heads = (double)x->a.heads, d = heads * (double)x->a.d;
  Work *w = &c->work[x->kind];
  w->operations += (is_backward ? 10 : 4) * size.pairs * d;
  w->bytes += count_bytes(c->inner, (is_backward ? 4 : 2) * (size.queries + size.keys) * d) +
              4 * size.queries * heads;
  return ERR_OK;
}

Err timed_end(TimedBackend *c) {
  if (c->failed.code) return err_give(&c->failed);
  size_t points = 2 * c->calls + 2;
  record_time(c, points - 1);
  if (c->inner->stamp) TRY(c->inner->stamps(c->inner, c->at, points));
  for (size_t i = 0; i < c->calls; i++)
    c->work[c->call[i].kind].seconds += c->at[2 * i + 2] - c->at[2 * i + 1];
  c->seconds += c->at[points - 1] - c->at[0];
  c->periods++;
  for (size_t i = 0; i < c->attentions; i++) TRY(count_attention(c, &c->attention[i]));
  return ERR_OK;
}
