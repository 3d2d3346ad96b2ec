/* Graphs of the fake GPU. While one is captured, calls are stored with their arguments and not
 * executed; a launch executes them. As on a GPU, arrays are read at launch, while descriptions
 * (Attention and so on) are copied at capture. Depends on the program's CPU backend. */
#include "fake_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  void (*run)(const Backend *, const void *arguments);
  union {
    struct {
      void *to;
      const void *from;
      size_t n;
    } copy;
    struct {
      void *y;
      const void *x, *w, *bias;
      size_t rows, in, out;
    } linear;
    struct {
      void *dx;
      const void *dy, *w;
      size_t rows, in, out;
      bool add;
    } dx;
    struct {
      float *dw, *dbias;
      const void *dy, *x;
      size_t rows, in, out;
      bool add;
    } dw;
    struct {
      void *x;
      const void *table;
      const float *place;
      const int32_t *id, *pos;
      size_t rows, d;
      float scale;
      Dropout drop;
    } embed;
    struct {
      float *dtable, *dplace;
      const void *dx;
      const int32_t *id, *pos;
      size_t rows, d, words, places;
      float scale;
      Dropout drop;
    } embed_backward;
    struct {
      void *to;
      const void *from;
      const int32_t *index;
      size_t rows, tokens, d;
    } rows;
    struct {
      void *sum, *y;
      float *stat;
      const void *x, *branch;
      const float *gain, *bias;
      AddNorm n;
    } norm;
    struct {
      void *dx, *dbranch;
      float *dgain, *dbias, *dshift;
      const void *dy, *through, *sum;
      const float *stat, *gain;
      AddNorm n;
      bool add;
    } norm_back;
    struct {
      void *o;
      float *lse;
      const void *q, *k, *v;
      Attention a;
    } attend;
    struct {
      void *dq, *dk, *dv;
      const void *d_o, *o;
      const float *lse;
      const void *q, *k, *v;
      Attention a;
    } attend_backward;
    struct {
      void *o;
      const void *q;
      void *k, *v;
      CachedAttention a;
    } attend_cached;
    struct {
      int32_t *at;
      const int32_t *list, *parent, *len, *slot;
      size_t rows, ld;
    } extend;
    struct {
      void *y;
      uint8_t *mask;
      const void *x, *bias;
      size_t rows, width;
      Activation act;
      Dropout drop;
    } act;
    struct {
      void *dx;
      float *dbias;
      const void *dy, *kept;
      size_t rows, width;
      Activation act;
      Dropout drop;
      bool add;
    } act_back;
    struct {
      void *logits;
      double *sum;
      const int32_t *target;
      size_t rows, vocab;
      float smoothing, scale;
    } loss;
    struct {
      void *logits;
      double *sum;
      const float *target;
      HeadLoss h;
    } head_loss;
    struct {
      double *sums;
      const float *x;
      size_t n;
    } square_sums;
    struct {
      StepNumbers *now;
      const double *sums;
      size_t n;
      double *loss;
    } clip;
    struct {
      float *w, *m, *v;
      const float *g;
      size_t n;
      AdamStep s;
    } adam;
    struct {
      float *w, *m;
      const float *g;
      size_t n;
      MomentumStep s;
    } momentum;
    struct {
      float *e;
      const float *w;
      double keep;
      size_t n;
      const StepNumbers *now;
    } ema;
  } with;
} Call;

struct Graph {
  Call *call;
  size_t count, cap;
};

static Backend inner;    /* the CPU backend, which executes the calls */
static Graph *capturing; /* the graph that is being captured; NULL: none */
static unsigned long captured, launched, alive;

void fake_graph_refuses(const char *what) {
  if (!capturing) return;
  fprintf(stderr, "fake GPU: %s while a graph is captured\n", what);
  abort();
}

void fake_graph_count(unsigned long count[3]) {
  count[0] = captured;
  count[1] = launched;
  count[2] = alive;
}

/* Executes the call, or stores it in the graph that is being captured. */
static void submit(const Backend *b, const Call *call) {
  if (!capturing) {
    call->run(b, &call->with);
    return;
  }
  if (capturing->count == capturing->cap) {
    capturing->cap = capturing->cap ? 2 * capturing->cap : 64;
    capturing->call = realloc(capturing->call, capturing->cap * sizeof *capturing->call);
    if (!capturing->call) abort();
  }
  capturing->call[capturing->count++] = *call;
}

/* Defines an operation: run_NAME executes a stored call, NAME_ is the entry of the table. */
#define OPERATION(name, field, parameters, call, ...)               \
  static void run_##name(const Backend *b, const void *arguments) { \
    Call c;                                                         \
    memcpy(&c.with, arguments, sizeof c.with);                      \
    inner.name call;                                                \
  }                                                                 \
  static void name##_ parameters {                                  \
    Call c = {.run = run_##name, .with.field = {__VA_ARGS__}};      \
    submit(b, &c);                                                  \
  }
#define W c.with

OPERATION(copy, copy, (const Backend *b, void *to, const void *from, size_t n),
          (b, W.copy.to, W.copy.from, W.copy.n), to, from, n)
OPERATION(zero, copy, (const Backend *b, void *to, size_t n), (b, W.copy.to, W.copy.n), to,
          NULL, n)
OPERATION(lower, copy, (const Backend *b, void *to, const float *from, size_t n),
          (b, W.copy.to, W.copy.from, W.copy.n), to, from, n)
OPERATION(linear, linear,
          (const Backend *b, void *y, const void *x, const void *w, const void *bias,
           size_t rows, size_t in, size_t out),
          (b, W.linear.y, W.linear.x, W.linear.w, W.linear.bias, W.linear.rows, W.linear.in,
           W.linear.out),
          y, x, w, bias, rows, in, out)
OPERATION(linear_dx, dx,
          (const Backend *b, void *dx, const void *dy, const void *w, size_t rows, size_t in,
           size_t out, bool add),
          (b, W.dx.dx, W.dx.dy, W.dx.w, W.dx.rows, W.dx.in, W.dx.out, W.dx.add), dx, dy, w,
          rows, in, out, add)
OPERATION(linear_dw, dw,
          (const Backend *b, float *dw, float *dbias, const void *dy, const void *x,
           size_t rows, size_t in, size_t out, bool add),
          (b, W.dw.dw, W.dw.dbias, W.dw.dy, W.dw.x, W.dw.rows, W.dw.in, W.dw.out, W.dw.add), dw,
          dbias, dy, x, rows, in, out, add)
OPERATION(embed, embed,
          (const Backend *b, void *x, const void *table, const float *place, const int32_t *id,
           const int32_t *pos, size_t rows, size_t d, float scale, Dropout drop),
          (b, W.embed.x, W.embed.table, W.embed.place, W.embed.id, W.embed.pos, W.embed.rows,
           W.embed.d, W.embed.scale, W.embed.drop),
          x, table, place, id, pos, rows, d, scale, drop)
OPERATION(embed_backward, embed_backward,
          (const Backend *b, float *dtable, float *dplace, const void *dx, const int32_t *id,
           const int32_t *pos, size_t rows, size_t d, size_t words, size_t places, float scale,
           Dropout drop),
          (b, W.embed_backward.dtable, W.embed_backward.dplace, W.embed_backward.dx,
           W.embed_backward.id, W.embed_backward.pos, W.embed_backward.rows, W.embed_backward.d,
           W.embed_backward.words, W.embed_backward.places, W.embed_backward.scale,
           W.embed_backward.drop),
          dtable, dplace, dx, id, pos, rows, d, words, places, scale, drop)
OPERATION(gather_rows, rows,
          (const Backend *b, void *y, const void *x, const int32_t *index, size_t rows,
           size_t d),
          (b, W.rows.to, W.rows.from, W.rows.index, W.rows.rows, W.rows.d), y, x, index, rows,
          0, d)
OPERATION(scatter_rows, rows,
          (const Backend *b, void *dx, const void *dy, const int32_t *index, size_t rows,
           size_t tokens, size_t d),
          (b, W.rows.to, W.rows.from, W.rows.index, W.rows.rows, W.rows.tokens, W.rows.d), dx,
          dy, index, rows, tokens, d)
OPERATION(add_norm, norm,
          (const Backend *b, void *sum, void *y, float *stat, const void *x, const void *branch,
           const float *gain, const float *bias, const AddNorm *n),
          (b, W.norm.sum, W.norm.y, W.norm.stat, W.norm.x, W.norm.branch, W.norm.gain,
           W.norm.bias, &W.norm.n),
          sum, y, stat, x, branch, gain, bias, *n)
OPERATION(add_norm_backward, norm_back,
          (const Backend *b, void *dx, void *dbranch, float *dgain, float *dbias, float *dshift,
           const void *dy, const void *through, const void *sum, const float *stat,
           const float *gain, const AddNorm *n, bool add),
          (b, W.norm_back.dx, W.norm_back.dbranch, W.norm_back.dgain, W.norm_back.dbias,
           W.norm_back.dshift, W.norm_back.dy, W.norm_back.through, W.norm_back.sum,
           W.norm_back.stat, W.norm_back.gain, &W.norm_back.n, W.norm_back.add),
          dx, dbranch, dgain, dbias, dshift, dy, through, sum, stat, gain, *n, add)
OPERATION(attend, attend,
          (const Backend *b, void *o, float *lse, const void *q, const void *k, const void *v,
           const Attention *a),
          (b, W.attend.o, W.attend.lse, W.attend.q, W.attend.k, W.attend.v, &W.attend.a), o,
          lse, q, k, v, *a)
OPERATION(attend_backward, attend_backward,
          (const Backend *b, void *dq, void *dk, void *dv, const void *d_o, const void *o,
           const float *lse, const void *q, const void *k, const void *v, const Attention *a),
          (b, W.attend_backward.dq, W.attend_backward.dk, W.attend_backward.dv,
           W.attend_backward.d_o, W.attend_backward.o, W.attend_backward.lse,
           W.attend_backward.q, W.attend_backward.k, W.attend_backward.v, &W.attend_backward.a),
          dq, dk, dv, d_o, o, lse, q, k, v, *a)
OPERATION(attend_cached, attend_cached,
          (const Backend *b, void *o, const void *q, void *k, void *v,
           const CachedAttention *a),
          (b, W.attend_cached.o, W.attend_cached.q, W.attend_cached.k, W.attend_cached.v,
           &W.attend_cached.a),
          o, q, k, v, *a)
OPERATION(extend, extend,
          (const Backend *b, int32_t *at, const int32_t *list, const int32_t *parent,
           const int32_t *len, const int32_t *slot, size_t rows, size_t ld),
          (b, W.extend.at, W.extend.list, W.extend.parent, W.extend.len, W.extend.slot,
           W.extend.rows, W.extend.ld),
          at, list, parent, len, slot, rows, ld)
OPERATION(activate, act,
          (const Backend *b, void *y, uint8_t *mask, const void *x, const void *bias,
           size_t rows, size_t width, Activation act, Dropout drop),
          (b, W.act.y, W.act.mask, W.act.x, W.act.bias, W.act.rows, W.act.width, W.act.act,
           W.act.drop),
          y, mask, x, bias, rows, width, act, drop)
OPERATION(activate_backward, act_back,
          (const Backend *b, void *dx, float *dbias, const void *dy, const void *kept,
           size_t rows, size_t width, Activation act, Dropout drop, bool add),
          (b, W.act_back.dx, W.act_back.dbias, W.act_back.dy, W.act_back.kept, W.act_back.rows,
           W.act_back.width, W.act_back.act, W.act_back.drop, W.act_back.add),
          dx, dbias, dy, kept, rows, width, act, drop, add)
OPERATION(loss, loss,
          (const Backend *b, void *logits, double *sum, const int32_t *target, size_t rows,
           size_t vocab, float smoothing, float scale),
          (b, W.loss.logits, W.loss.sum, W.loss.target, W.loss.rows, W.loss.vocab,
           W.loss.smoothing, W.loss.scale),
          logits, sum, target, rows, vocab, smoothing, scale)
OPERATION(head_loss, head_loss,
          (const Backend *b, void *logits, double *sum, const float *target, const HeadLoss *h),
          (b, W.head_loss.logits, W.head_loss.sum, W.head_loss.target, &W.head_loss.h), logits,
          sum, target, *h)
OPERATION(square_sums_async, square_sums,
          (const Backend *b, double *sums, const float *x, size_t n),
          (b, W.square_sums.sums, W.square_sums.x, W.square_sums.n), sums, x, n)
OPERATION(clip, clip,
          (const Backend *b, StepNumbers *now, const double *sums, size_t n, double *loss),
          (b, W.clip.now, W.clip.sums, W.clip.n, W.clip.loss), now, sums, n, loss)
OPERATION(adam, adam,
          (const Backend *b, float *w, float *m, float *v, const float *g, size_t n,
           const AdamStep *s),
          (b, W.adam.w, W.adam.m, W.adam.v, W.adam.g, W.adam.n, &W.adam.s), w, m, v, g, n, *s)
OPERATION(momentum, momentum,
          (const Backend *b, float *w, float *m, const float *g, size_t n,
           const MomentumStep *s),
          (b, W.momentum.w, W.momentum.m, W.momentum.g, W.momentum.n, &W.momentum.s), w, m, g,
          n, *s)
OPERATION(ema, ema,
          (const Backend *b, float *e, const float *w, double keep, size_t n,
           const StepNumbers *now),
          (b, W.ema.e, W.ema.w, W.ema.keep, W.ema.n, W.ema.now), e, w, keep, n, now)

static Err graph_begin(const Backend *b) {
  (void)b;
  fake_graph_refuses("graph_begin");
  capturing = calloc(1, sizeof *capturing);
  return capturing ? ERR_OK : err_set(ERR_WORK, "fake GPU: no memory for a graph");
}

static Err graph_end(const Backend *b, Graph **out) {
  (void)b;
  *out = NULL;
  if (!capturing) return err_set(ERR_WORK, "fake GPU: nothing is captured");
  if (capturing->count) {
    *out = capturing;
    captured++;
    alive++;
  } else {
    free(capturing);
  }
  capturing = NULL;
  return ERR_OK;
}

static void graph_launch(const Backend *b, Graph *r) {
  fake_graph_refuses("graph_launch");
  for (size_t i = 0; i < r->count; i++) r->call[i].run(b, &r->call[i].with);
  launched++;
}

static void graph_free(const Backend *b, Graph *r) {
  (void)b;
  fake_graph_refuses("graph_free");
  alive--;
  free(r->call);
  free(r);
}

void fake_graph_fill(Backend *b) {
  inner = *b;
  b->copy = copy_;
  b->zero = zero_;
  b->lower = lower_;
  b->linear = linear_;
  b->linear_dx = linear_dx_;
  b->linear_dw = linear_dw_;
  b->embed = embed_;
  b->embed_backward = embed_backward_;
  b->gather_rows = gather_rows_;
  b->scatter_rows = scatter_rows_;
  b->add_norm = add_norm_;
  b->add_norm_backward = add_norm_backward_;
  b->attend = attend_;
  b->attend_backward = attend_backward_;
  b->attend_cached = attend_cached_;
  b->extend = extend_;
  b->activate = activate_;
  b->activate_backward = activate_backward_;
  b->loss = loss_;
  b->head_loss = head_loss_;
  b->square_sums_async = square_sums_async_;
  b->clip = clip_;
  b->adam = adam_;
  b->momentum = momentum_;
  b->ema = ema_;
  b->graph_begin = graph_begin;
  b->graph_end = graph_end;
  b->graph_launch = graph_launch;
  b->graph_free = graph_free;
}
