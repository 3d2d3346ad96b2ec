/* Each operation: a point in time, the other backend's, a point in time; and what its
 * shapes say. Relies on base/progress for the clock of a CPU, on the device's stamps. */
#include "backend/timed.h"

#include "base/mem.h"
#include "base/progress.h"

#define ROOM 1024 /* calls, at first: about what a step of 6 + 6 layers makes */

/* An attention of which only the offsets' place is known yet. */
typedef struct TimedAttention {
  WorkKind kind;
  Attention a;
} TimedAttention;

static void mark(TimedBackend *c, size_t point) {
  if (c->inner->stamp)
    c->inner->stamp(c->inner, point);
  else
    c->at[point] = progress_clock();
}

static Err make_room(TimedBackend *c, size_t calls) {
  TRY(mem_grow(&c->call, &c->call_cap, calls, sizeof *c->call));
  return mem_grow(&c->at, &c->at_cap, 2 * calls + 2, sizeof *c->at);
}

static TimedBackend *begin(const Backend *b, WorkKind kind, double operations, double bytes) {
  TimedBackend *c = ((const TimedBackend *)b)->self;
  Err err = c->failed.code ? c->failed.code : make_room(c, c->calls + 1);
  if (err) {
    if (!c->failed.code) c->failed = err_take(err);
    return c;
  }
  Work *w = &c->work[kind];
  w->calls++, w->operations += operations, w->bytes += bytes;
  c->call[c->calls] = kind;
  mark(c, 2 * c->calls + 1);
  return c;
}

static void end(TimedBackend *c) {
  if (c->failed.code) return;
  mark(c, 2 * c->calls + 2);
  c->calls++;
}

/* Bytes of n elements of the backend's type. */
static double low(const Backend *b, double n) {
  return n * (double)type_size(b->type);
}

static void put(const Backend *b, void *to, const void *from, size_t bytes) {
  TimedBackend *c = begin(b, WORK_MOVE, 0, 2 * (double)bytes);
  c->inner->put(c->inner, to, from, bytes);
  end(c);
}

static Err get(const Backend *b, void *to, const void *from, size_t bytes) {
  TimedBackend *c = begin(b, WORK_MOVE, 0, 2 * (double)bytes);
  Err err = c->inner->get(c->inner, to, from, bytes);
  end(c);
  return err;
}

static void copy(const Backend *b, void *to, const void *from, size_t bytes) {
  TimedBackend *c = begin(b, WORK_MOVE, 0, 2 * (double)bytes);
  c->inner->copy(c->inner, to, from, bytes);
  end(c);
}

static void zero(const Backend *b, void *block, size_t bytes) {
  TimedBackend *c = begin(b, WORK_MOVE, 0, (double)bytes);
  c->inner->zero(c->inner, block, bytes);
  end(c);
}

static void copy_rows(const Backend *b, void *to, size_t to_ld, const void *from,
                      size_t from_ld, size_t rows, size_t width) {
  TimedBackend *c = begin(b, WORK_MOVE, 0, low(b, 2.0 * (double)rows * (double)width));
  c->inner->copy_rows(c->inner, to, to_ld, from, from_ld, rows, width);
  end(c);
}

static void lower(const Backend *b, void *to, const float *full, size_t n) {
  double bytes = to == full ? 0 : 4.0 * (double)n + low(b, (double)n);
  TimedBackend *c = begin(b, WORK_UPDATE, 0, bytes);
  c->inner->lower(c->inner, to, full, n);
  end(c);
}

static TimedBackend *begin_product(const Backend *b, WorkKind kind, size_t rows, size_t in,
                                   size_t out, double bytes) {
  return begin(b, kind, 2.0 * (double)rows * (double)in * (double)out, bytes);
}

static void linear(const Backend *b, void *y, const void *x, const void *w, const void *bias,
                   size_t rows, size_t in, size_t out) {
  size_t n = rows * in + in * out + rows * out + (bias ? out : 0);
  TimedBackend *c = begin_product(b, WORK_LINEAR, rows, in, out, low(b, (double)n));
  c->inner->linear(c->inner, y, x, w, bias, rows, in, out);
  end(c);
}

static void linear_dx(const Backend *b, void *dx, const void *dy, const void *w, size_t rows,
                      size_t in, size_t out, bool add) {
  size_t n = rows * out + in * out + rows * in * (add ? 2 : 1);
  TimedBackend *c = begin_product(b, WORK_DGRAD, rows, in, out, low(b, (double)n));
  c->inner->linear_dx(c->inner, dx, dy, w, rows, in, out, add);
  end(c);
}

static void linear_dw(const Backend *b, float *dw, float *dbias, const void *dy, const void *x,
                      size_t rows, size_t in, size_t out, bool add) {
  double bytes = low(b, (double)(rows * in + rows * out)) +
                 (add ? 8.0 : 4.0) * (double)(in * out + (dbias ? out : 0));
  TimedBackend *c = begin_product(b, WORK_WGRAD, rows, in, out, bytes);
  c->inner->linear_dw(c->inner, dw, dbias, dy, x, rows, in, out, add);
  end(c);
}

static void embed(const Backend *b, void *x, const void *table, const float *place,
                  const int32_t *id, const int32_t *position, size_t rows, size_t d,
                  float scale, Dropout drop) {
  double n = (double)rows * (double)d;
  TimedBackend *c = begin(b, WORK_EMBED, 0, low(b, 2 * n) + 8.0 * (double)rows);
  c->inner->embed(c->inner, x, table, place, id, position, rows, d, scale, drop);
  end(c);
}

static void embed_backward(const Backend *b, float *dtable, float *dplace, const void *dx,
                           const int32_t *id, const int32_t *position, size_t rows, size_t d,
                           size_t words, size_t places, float scale, Dropout drop) {
  double n = (double)rows * (double)d;
  TimedBackend *c = begin(b, WORK_EMBED, 0, low(b, n) + 8 * n + 8.0 * (double)rows);
  c->inner->embed_backward(c->inner, dtable, dplace, dx, id, position, rows, d, words, places,
                           scale, drop);
  end(c);
}

static void add_norm(const Backend *b, void *sum, void *y, float *stat, const void *x,
                     const void *branch, const float *gain, const float *bias,
                     const AddNorm *n) {
  double arrays = branch ? 4 : 2, rows = (double)n->rows, d = (double)n->d;
  TimedBackend *c = begin(b, WORK_NORM, 0, low(b, arrays * rows * d) + 8 * rows + 8 * d);
  c->inner->add_norm(c->inner, sum, y, stat, x, branch, gain, bias, n);
  end(c);
}

static void add_norm_backward(const Backend *b, void *dx, void *dbranch, float *dgain,
                              float *dbias, float *dshift, const void *dy, const void *through,
                              const void *sum, const float *stat, const float *gain,
                              const AddNorm *n, bool add) {
  double arrays = 3 + (through ? 1 : 0) + (dbranch ? 1 : 0), sums = dshift ? 3 : 2;
  double rows = (double)n->rows, d = (double)n->d;
  TimedBackend *c =
      begin(b, WORK_NORM_BACKWARD, 0,
            low(b, arrays * rows * d) + 8 * rows + (4 + (add ? 8 : 4) * sums) * d);
  c->inner->add_norm_backward(c->inner, dx, dbranch, dgain, dbias, dshift, dy, through, sum,
                              stat, gain, n, add);
  end(c);
}

static TimedBackend *begin_attention(const Backend *b, WorkKind kind, const Attention *a) {
  TimedBackend *c = begin(b, kind, 0, 0);
  if (c->failed.code) return c;
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
  end(c);
}

static void attend_backward(const Backend *b, void *dq, void *dk, void *dv, const void *do_,
                            const void *o, const float *lse, const void *q, const void *k,
                            const void *v, const Attention *a) {
  TimedBackend *c = begin_attention(b, WORK_ATTEND_BACKWARD, a);
  c->inner->attend_backward(c->inner, dq, dk, dv, do_, o, lse, q, k, v, a);
  end(c);
}

static void activate(const Backend *b, void *y, uint8_t *mask, const void *x, const void *bias,
                     size_t rows, size_t width, Activation kind, Dropout drop) {
  double n = (double)rows * (double)width, bits = mask ? n / 8 : 0;
  TimedBackend *c =
      begin(b, WORK_ACTIVATE, 0, low(b, 2 * n + (bias ? (double)width : 0)) + bits);
  c->inner->activate(c->inner, y, mask, x, bias, rows, width, kind, drop);
  end(c);
}

/* Its mask is bits, what else the way back may need elements. */
static void activate_backward(const Backend *b, void *dx, float *dbias, const void *dy,
                              const void *kept, size_t rows, size_t width, Activation kind,
                              Dropout drop, bool add) {
  double n = (double)rows * (double)width, bias = dbias ? (add ? 8.0 : 4.0) * (double)width : 0;
  double bytes = low(b, 2 * n) + (kind == ACT_RELU ? n / 8 : low(b, n)) + bias;
  TimedBackend *c = begin(b, WORK_ACTIVATE_BACKWARD, 0, bytes);
  c->inner->activate_backward(c->inner, dx, dbias, dy, kept, rows, width, kind, drop, add);
  end(c);
}

static void linear_relu_backward(const Backend *b, void *dx, float *dbias, const void *dy,
                                 const void *w, const uint8_t *mask, size_t rows, size_t in,
                                 size_t out, Dropout drop, bool add) {
  size_t n = rows * out + in * out + rows * in;
  double bytes = low(b, (double)n) + (double)(rows * in) / 8 + (add ? 8.0 : 4.0) * (double)in;
  TimedBackend *c = begin_product(b, WORK_DGRAD, rows, in, out, bytes);
  c->inner->linear_relu_backward(c->inner, dx, dbias, dy, w, mask, rows, in, out, drop, add);
  end(c);
}

static void loss(const Backend *b, void *logits, double *sum, const int32_t *target,
                 size_t rows, size_t vocab, float smoothing, float scale) {
  double n = (double)rows * (double)vocab * (scale != 0 ? 2 : 1);
  TimedBackend *c = begin(b, WORK_LOSS, 0, low(b, n) + 4.0 * (double)rows);
  c->inner->loss(c->inner, logits, sum, target, rows, vocab, smoothing, scale);
  end(c);
}

static void square_sums(const Backend *b, double *sums, const float *x, size_t n) {
  TimedBackend *c = begin(b, WORK_UPDATE, 0, 4.0 * (double)n);
  c->inner->square_sums(c->inner, sums, x, n);
  end(c);
}

static void square_sums_async(const Backend *b, double *sums, const float *x, size_t n) {
  TimedBackend *c = begin(b, WORK_UPDATE, 0, 4.0 * (double)n);
  c->inner->square_sums_async(c->inner, sums, x, n);
  end(c);
}

static void clip(const Backend *b, StepNumbers *now, const double *sums, size_t units,
                 double losses[3]) {
  TimedBackend *c = begin(b, WORK_UPDATE, 0, 8.0 * (double)units);
  c->inner->clip(c->inner, now, sums, units, losses);
  end(c);
}

static void add(const Backend *b, float *x, const float *y, float scale, size_t n) {
  TimedBackend *c = begin(b, WORK_UPDATE, 0, 12.0 * (double)n);
  c->inner->add(c->inner, x, y, scale, n);
  end(c);
}

static void adam(const Backend *b, float *w, float *m, float *v, const float *g, size_t n,
                 const AdamStep *s) {
  double copy = s->low ? low(b, (double)n) : 0;
  TimedBackend *c = begin(b, WORK_UPDATE, 0, 28.0 * (double)n + copy);
  c->inner->adam(c->inner, w, m, v, g, n, s);
  end(c);
}

static void momentum(const Backend *b, float *w, float *m, const float *g, size_t n,
                     const MomentumStep *s) {
  double copy = s->low ? low(b, (double)n) : 0;
  TimedBackend *c = begin(b, WORK_UPDATE, 0, 20.0 * (double)n + copy);
  c->inner->momentum(c->inner, w, m, g, n, s);
  end(c);
}

static void ema(const Backend *b, float *e, const float *w, double keep, size_t n,
                const StepNumbers *now) {
  TimedBackend *c = begin(b, WORK_UPDATE, 0, 12.0 * (double)n);
  c->inner->ema(c->inner, e, w, keep, n, now);
  end(c);
}

Err timed_open(TimedBackend *c, const Backend *inner) {
  *c = (TimedBackend){.backend = *inner, .self = c, .inner = inner};
  Backend *b = &c->backend;
  /* The state is shared: what has no clock here works all the same. */
  b->close = NULL, b->packed = NULL, b->pack = NULL, b->unpack = NULL, b->comm = NULL;
  b->graph_begin = NULL, b->graph_end = NULL, b->graph_launch = NULL, b->graph_free = NULL;
  b->put = put, b->get = get, b->copy = copy, b->zero = zero, b->copy_rows = copy_rows;
  b->lower = lower;
  b->linear = linear, b->linear_dx = linear_dx, b->linear_dw = linear_dw;
  b->embed = embed, b->embed_backward = embed_backward;
  b->add_norm = add_norm, b->add_norm_backward = add_norm_backward;
  b->attend = attend, b->attend_backward = attend_backward;
  b->activate = activate, b->activate_backward = activate_backward;
  b->linear_relu_backward = linear_relu_backward;
  b->loss = loss, b->square_sums = square_sums, b->square_sums_async = square_sums_async;
  b->clip = clip, b->add = add, b->adam = adam, b->momentum = momentum, b->ema = ema;
  Err err = make_room(c, ROOM);
  if (err) timed_close(c);
  if (err) return err;
  /* A device makes a stamp when it is first used: not while the clock runs. */
  for (size_t i = 0; inner->stamp && i < 2 * ROOM + 2; i++) mark(c, i);
  return ERR_OK;
}

void timed_close(TimedBackend *c) {
  mem_free(c->at);
  mem_free(c->call);
  mem_free(c->attention);
  *c = (TimedBackend){0};
}

void timed_begin(TimedBackend *c) {
  c->calls = c->attentions = 0;
  mark(c, 0);
}

/* Sums over the sentences of one attention. */
typedef struct {
  double queries, keys, pairs; /* pairs: of a query and a key it sees */
} Seen;

static void see(Seen *seen, size_t queries, size_t keys, bool causal) {
  double q = (double)queries, k = (double)keys, both = q < k ? q : k;
  seen->queries += q, seen->keys += k;
  /* Causal: 1 + 2 + … as long as there are keys, then all of them. */
  seen->pairs += causal ? both * (both + 1) / 2 + (q - both) * k : q * k;
}

static Err see_all(const Backend *b, const Attention *a, Seen *seen) {
  size_t n = a->sentences;
  int32_t *offset; /* of the queries, of the keys, and how many keys there are */
  TRY(mem_alloc(&offset, 3 * (n + 1), sizeof *offset));
  int32_t *q = offset, *k = q + n + 1, *len = k + n + 1;
  Err err = b->get(b, q, a->q_off, (n + 1) * sizeof *q);
  if (!err) err = b->get(b, k, a->k_off, (n + 1) * sizeof *k);
  if (!err && a->k_len) err = b->get(b, len, a->k_len, n * sizeof *len);
  for (size_t s = 0; s < n && !err; s++)
    see(seen, (size_t)(q[s + 1] - q[s]), (size_t)(a->k_len ? len[s] : k[s + 1] - k[s]),
        a->causal);
  mem_free(offset);
  return err;
}

/* Forward two products, q · k and p · v, over q, k, v and o. Back five: q · k again,
 * and the gradients of p, q, k and v, over all of these and their gradients. */
static Err count_attention(TimedBackend *c, const TimedAttention *x) {
  Seen seen = {0};
  TRY(see_all(c->inner, &x->a, &seen));
  bool back = x->kind == WORK_ATTEND_BACKWARD;
  double heads = (double)x->a.heads, d = heads * (double)x->a.d;
  Work *w = &c->work[x->kind];
  w->operations += (back ? 10 : 4) * seen.pairs * d;
  w->bytes +=
      low(c->inner, (back ? 4 : 2) * (seen.queries + seen.keys) * d) + 4 * seen.queries * heads;
  return ERR_OK;
}

Err timed_end(TimedBackend *c) {
  if (c->failed.code) return err_give(&c->failed);
  size_t points = 2 * c->calls + 2;
  mark(c, points - 1);
  if (c->inner->stamp) TRY(c->inner->stamps(c->inner, c->at, points));
  for (size_t i = 0; i < c->calls; i++)
    c->work[c->call[i]].seconds += c->at[2 * i + 2] - c->at[2 * i + 1];
  c->seconds += c->at[points - 1] - c->at[0];
  c->times++;
  for (size_t i = 0; i < c->attentions; i++) TRY(count_attention(c, &c->attention[i]));
  return ERR_OK;
}
