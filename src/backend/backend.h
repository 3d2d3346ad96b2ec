/* The table of operations: what a model asks of a machine, at the level the model
 * speaks. Forward and backward are written by hand; there is no graph. A backend
 * is a struct of functions: `cpu` (fast), `reference` (plain C, the oracle), and
 * `cuda` from a plug-in. Relies on base.
 *
 * Activations, and the weights that products and embeddings read, are of the
 * backend's type: void * here. Gradients of weights, moments, statistics, gains
 * and biases of norms are float. All arrays lie in the backend's memory. Work is
 * done in the order of the calls, but perhaps later: what goes wrong on a device
 * is told by the next `get` or `sync`.
 *
 * Shapes stand in comments as (rows, columns), rows contiguous. `rows` are packed
 * sentences, one behind the other; offsets tell them apart. Gradients overwrite
 * what is there, or are added to it when `add`; those of tables always are. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/type.h"
#include "base/err.h"

/* All weights of a model, twice: `full` is what is updated, `low` its copy in the
 * backend's type; where that is float, they are one. */
typedef struct {
  const float *full;
  const void *low;
} Weights;

typedef enum { ACT_RELU, ACT_GELU, ACT_SILU } Activation;

/* Which elements of a site fall out is arithmetic: 16 bits of Philox for each,
 * keyed by the run, the step and the micro-batch, counted by site and element.
 * rate 0 drops nothing. What stays is scaled by 1 / (1 - rate). */
typedef struct {
  const uint64_t *key; /* in the backend's memory, so that recorded work finds each step's */
  uint32_t site;
  float rate;
} Dropout;

/* Queries and keys of packed sentences. Row r of head h begins at r * ld + h * d. */
typedef struct {
  size_t sentences, heads, d;   /* d of one head */
  const int32_t *q_off, *k_off; /* (sentences + 1) rows */
  const int32_t *k_len;         /* (sentences) keys there are, or NULL: up to the next k_off */
  size_t q_ld, kv_ld, o_ld;     /* steps from row to row */
  size_t q_rows;                /* rows of q there are; only the way back asks */
  bool causal;                  /* row i sees keys 0 … i */
  Dropout drop;                 /* of the probabilities */
} Attention;

/* One query a row over the keys and values of earlier positions, wherever they lie:
 * key j of row r is row at[r * at_ld + j] of k and v, or first[r] + j where `at` is
 * NULL. */
typedef struct {
  size_t rows, heads, d; /* d of one head */
  const int32_t *at;     /* (rows, at_ld) lists of rows, or NULL */
  size_t at_ld;
  const int32_t *first; /* (rows), where `at` is NULL */
  const int32_t *len;   /* (rows) keys, 1 to 65536 */
  size_t q_ld, kv_ld, o_ld;
} CachedAttention;

typedef struct {
  size_t rows, d;
  float epsilon;
  Dropout drop; /* of the branch before it is added */
} AddNorm;

/* The numbers of one update, in the backend's memory, so that recorded work finds each
 * step's. `clip` makes the last three of the others. */
typedef struct {
  double times; /* the gradient is this many times the mean's: rows, and the loss's scale */
  double most;  /* of the norm of the mean's; 0: no bound */
  float lr, correction1, correction2; /* 1 - beta^t */
  float scale;    /* every gradient is multiplied by it first; not finite: nothing changes */
  double norm;    /* of the mean's gradient, before clipping */
  double loss[3]; /* as `loss` has summed them */
} StepNumbers;

/* Options of an update of the flat parameters; see train/optim. `low`: w in the backend's
 * type, which is written along with it, or NULL. */
typedef struct {
  float beta1, beta2, epsilon, decay;
  bool coupled; /* decay goes through the moments (L2), not beside (AdamW) */
  const StepNumbers *now;
  void *low;
} AdamStep;

typedef struct {
  float beta, decay;
  const StepNumbers *now; /* or NULL: */
  float lr, scale;        /* these */
  void *low;
} MomentumStep;

/* Elements whose squares are summed together. Ranks own whole units, so a gradient
 * has the same norm, to the bit, however many ranks hold it. */
#define NORM_UNIT 4096
static inline size_t norm_units(size_t n) {
  return (n + NORM_UNIT - 1) / NORM_UNIT;
}

typedef struct Recording Recording; /* a backend's own */

typedef struct Backend {
  const char *name;
  char about[160];  /* one line: kernels, threads */
  Type type;        /* of activations and low weights */
  bool bf16;        /* cpu: round operands of products to bf16 */
  bool fp8;         /* cuda: round operands of large products to fp8; type is bf16 */
  bool host;        /* its memory is the program's own: pointers may be followed */
  size_t most_best; /* words of a row that `top` can find; 0: any number */
  int threads;
  int device;                      /* which GPU, or 0 */
  uint64_t device_id;              /* the GPU's own, the same to all processes; 0: none */
  void *state;                     /* a device's own, or NULL */
  void (*close)(struct Backend *); /* or NULL; see backend_close */

  /* Takes the working memory for sentences of at most `longest` rows and heads of
   * width d, so that no operation has to; attention needs it. */
  Err (*reserve)(const struct Backend *, size_t longest, size_t d);

  /* Memory: `pointer` is the address of the pointer, as in mem_alloc; zeroed. */
  Err (*alloc)(const struct Backend *, void *pointer, size_t bytes);
  void (*release)(const struct Backend *, void *block);
  /* Bytes that could still be had, by this process and all others, and that there are. */
  Err (*memory)(const struct Backend *, uint64_t *left, uint64_t *all);
  /* From the program's memory, which may be written again at once. */
  void (*put)(const struct Backend *, void *to, const void *from, size_t bytes);
  /* To the program's memory; waits until it is there. */
  Err (*get)(const struct Backend *, void *to, const void *from, size_t bytes);
  void (*copy)(const struct Backend *, void *to, const void *from, size_t bytes);
  void (*zero)(const struct Backend *, void *block, size_t bytes);
  /* Rows of `width` elements of the backend's type, to_ld and from_ld elements apart. */
  void (*copy_rows)(const struct Backend *, void *to, size_t to_ld, const void *from,
                    size_t from_ld, size_t rows, size_t width);
  /* The program's memory from which `put` and `get` shall be fast: until `unpin`, which
   * comes before it is given back. */
  Err (*pin)(const struct Backend *, void *block, size_t bytes);
  void (*unpin)(const struct Backend *, void *block);
  Err (*sync)(const struct Backend *); /* waits until all work is done */
  /* low = full, rounded to the backend's type. */
  void (*lower)(const struct Backend *, void *low, const float *full, size_t n);

  /* y (rows, out) = x (rows, in) · wᵀ + bias; w (out, in); bias (out) or NULL. */
  void (*linear)(const struct Backend *, void *y, const void *x, const void *w,
                 const void *bias, size_t rows, size_t in, size_t out);
  /* dx (rows, in) = dy · w, added when `add`. */
  void (*linear_dx)(const struct Backend *, void *dx, const void *dy, const void *w,
                    size_t rows, size_t in, size_t out, bool add);
  /* dw (out, in) = dyᵀ · x; dbias (out) = column sums of dy, if not NULL; both added
   * when `add`. */
  void (*linear_dw)(const struct Backend *, float *dw, float *dbias, const void *dy,
                    const void *x, size_t rows, size_t in, size_t out, bool add);

  /* x (rows, d) = drop(table[id] * scale + place[position]). */
  void (*embed)(const struct Backend *, void *x, const void *table, const float *place,
                const int32_t *id, const int32_t *position, size_t rows, size_t d, float scale,
                Dropout drop);
  /* dtable[id] += …; dplace[position] += … if not NULL; in the order of the rows. Ids are
   * below `words`, positions below `places`. */
  void (*embed_back)(const struct Backend *, float *dtable, float *dplace, const void *dx,
                     const int32_t *id, const int32_t *position, size_t rows, size_t d,
                     size_t words, size_t places, float scale, Dropout drop);

  /* sum = x + drop(branch); y = norm(sum) * gain + bias; branch NULL: sum = x and
   * is not written. stat (rows, 2): mean and 1 / deviation, for the way back. */
  void (*add_norm)(const struct Backend *, void *sum, void *y, float *stat, const void *x,
                   const void *branch, const float *gain, const float *bias, const AddNorm *);
  /* dx = gradient of the sum: through the norm, plus `through` (rows, d) if not
   * NULL; dbranch = drop's share of it, if not NULL. dx may be `through`. dshift (d) =
   * column sums of dbranch, which are the gradient of a bias in it, if not NULL. dgain,
   * dbias and dshift are added when `add`. */
  void (*add_norm_back)(const struct Backend *, void *dx, void *dbranch, float *dgain,
                        float *dbias, float *dshift, const void *dy, const void *through,
                        const void *sum, const float *stat, const float *gain, const AddNorm *,
                        bool add);

  /* o = softmax(q · kᵀ / sqrt(d)) · v for each sentence and head; lse (q rows,
   * heads) is kept for the way back. A sentence may have no rows on one side, or on
   * both: queries without keys give o = 0 and have dq = 0, keys without queries have
   * dk = dv = 0. */
  void (*attend)(const struct Backend *, void *o, float *lse, const void *q, const void *k,
                 const void *v, const Attention *);
  void (*attend_back)(const struct Backend *, void *dq, void *dk, void *dv, const void *do_,
                      const void *o, const float *lse, const void *q, const void *k,
                      const void *v, const Attention *);

  void (*attend_cached)(const struct Backend *, void *o, const void *q, const void *k,
                        const void *v, const CachedAttention *);
  /* The lists (rows, ld) that attend_cached reads, one longer: list r begins with the
   * first n of list parent[r] of `from`, and goes on with first + r. n is below ld. */
  void (*extend)(const struct Backend *, int32_t *to, const int32_t *from,
                 const int32_t *parent, size_t rows, size_t ld, size_t n, int32_t first);

  /* y (rows, width) = drop(act(x + bias)); y may be x; bias (width) or NULL. The way back
   * needs x + bias, but of ReLU no more than a mask, where it is not NULL: bit i % 8 of byte
   * i / 8 tells whether y[i] is above 0. */
  void (*activate)(const struct Backend *, void *y, uint8_t *mask, const void *x,
                   const void *bias, size_t rows, size_t width, Activation, Dropout);
  /* kept: the mask of ReLU, or x + bias. dx (rows, width) may be dy. dbias (width) = column
   * sums of dx, if not NULL, added when `add`. */
  void (*activate_back)(const struct Backend *, void *dx, float *dbias, const void *dy,
                        const void *kept, size_t rows, size_t width, Activation, Dropout,
                        bool add);

  /* Label-smoothed cross entropy of rows of logits; overwrites them with the
   * gradient of (sum of the losses) * scale. Adds the smoothed and the plain sum
   * of losses to loss[0] and loss[1], and the right guesses to loss[2]. A row whose
   * target is negative counts for nothing, and its gradient is 0. With `scale` 0 the
   * logits are left alone. */
  void (*loss)(const struct Backend *, void *logits, double *loss, const int32_t *target,
               size_t rows, size_t vocab, float smoothing, float scale);

  /* The `best` largest of each row of logits, largest first and the smaller id among
   * equals, as value and id (rows, best); lse (rows): log of the sum of all exps.
   * best is at most vocab, and at most most_best. */
  void (*top)(const struct Backend *, float *value, int32_t *id, float *lse, const void *logits,
              size_t rows, size_t vocab, size_t best);

  /* The sum of squares of each NORM_UNIT elements, the last unit may be shorter:
   * sums (n / NORM_UNIT, rounded up), in the program's memory. Waits; what a device
   * could not do gives NaN. */
  void (*norm2)(const struct Backend *, double *sums, const float *x, size_t n);
  /* The same without waiting: the sums lie in the backend's memory. */
  void (*queue_norm2)(const struct Backend *, double *sums, const float *x, size_t n);
  /* Norm and scale of `now` from those sums, see clip.h; the losses move into it, and
   * are 0 where they were. */
  void (*clip)(const struct Backend *, StepNumbers *now, const double *sums, size_t units,
               double loss[3]);
  void (*add)(const struct Backend *, float *x, const float *y, float scale,
              size_t n); /* x += scale * y */
  void (*adam)(const struct Backend *, float *w, float *m, float *v, const float *g, size_t n,
               const AdamStep *);
  /* m = beta * m + (scale * g + decay * w); w -= lr * m. */
  void (*momentum)(const struct Backend *, float *w, float *m, const float *g, size_t n,
                   const MomentumStep *);
  /* e += (1 - keep) * (w - e); like the updates, not where now->scale is not finite. */
  void (*ema)(const struct Backend *, float *e, const float *w, double keep, size_t n,
              const StepNumbers *now);

  /* dx (rows, in) = dy · w, and then activate_back by ReLU's mask, dbias (in) and all; only
   * where fuses_relu, NULL or false where nothing is to be gained by doing both in one. */
  bool (*fuses_relu)(const struct Backend *, size_t rows, size_t in, size_t out);
  void (*linear_relu_back)(const struct Backend *, void *dx, float *dbias, const void *dy,
                           const void *w, const uint8_t *mask, size_t rows, size_t in,
                           size_t out, Dropout, bool add);

  /* Weights that stay as they are for a while. `pack` lays w (out, in) out once the
   * way products read it, and `linear` by that w then reads the copy, with the same
   * bits as result; after a change, pack it again. `unpack` gives all copies up.
   * Whoever packs has a Backend of his own; NULL where there is nothing to gain. */
  struct Packed *packed;
  Err (*pack)(struct Backend *, const void *w, size_t in, size_t out);
  void (*unpack)(struct Backend *);

  /* Work of a device that is recorded and given again in one piece; NULL where there is
   * nothing to gain. Between `record` and `recorded` operations are noted, not done; they
   * are those that were done before, and there is no reserve, alloc, release, put, get,
   * sync or norm2 among them. A replay works with the arrays that the recording named, and
   * with what lies in them then. What cannot be recorded is told by `recorded`. */
  Err (*record)(const struct Backend *);
  Err (*recorded)(const struct Backend *, Recording **);
  void (*replay)(const struct Backend *, Recording *);
  void (*forget)(const struct Backend *, Recording *);

  /* A device's own clock: `stamp` marks point i in the order of the work; `stamps` waits
   * and gives the seconds from point 0 to each of the first n. NULL: work is done when
   * its call returns, and the program's clock tells. */
  void (*stamp)(const struct Backend *, size_t i);
  Err (*stamps)(const struct Backend *, double *seconds, size_t n);

  /* The way to the devices of other processes that spares the host, see wire.h; or NULL. */
  const struct WireTable *wire;
} Backend;

/* Which products are made in fp8, where that is asked for: those that gain more than it costs
 * to round their operands. Rows wider than that, of logits and their gradients, have elements
 * that matter and are too small beside the largest. The gradients of weights stay as they are:
 * for them both operands would have to be turned. */
#define FP8_LEAST 1024
#define FP8_MOST  16384
#define FP8_ROWS  4096
#define FP8_UNIT  32 /* columns come in multiples of it */
static inline bool backend_takes_fp8(size_t rows, size_t in, size_t out) {
  return rows >= FP8_ROWS && in >= FP8_LEAST && in <= FP8_MOST && out >= FP8_LEAST &&
         out <= FP8_MOST && in % FP8_UNIT == 0 && out % FP8_UNIT == 0;
}

/* Fills the table; `threads` 0: one per core this process may use. */
NODISCARD Err backend_cpu(Backend *backend, int threads, bool bf16);
void backend_reference(Backend *backend);

/* What people ask for: device "auto", "cpu", "cuda" or "cuda:1"; precision "fp32",
 * "tf32", "bf16", "fp16" or "fp8". Under auto a GPU is taken where there is one, and a line
 * says why where there is none; what was asked by name is had or is an error. */
typedef struct {
  const char *device, *precision;
  int threads; /* of the cpu; 0: one per core */
} BackendSpec;
NODISCARD Err backend_open(Backend *backend, const BackendSpec *spec);
/* The same for one of several processes of a machine, numbered from 0: under auto and
 * cuda the first takes the first GPU, the second the next, and so on, round and round. */
NODISCARD Err backend_open_turn(Backend *backend, const BackendSpec *spec, int turn);
/* An error where fp8 was asked for and a model of these widths would have none of it, or
 * weights that lie askew. */
NODISCARD Err backend_check_fp8(const Backend *backend, size_t width, size_t feed, size_t rows);
void backend_close(Backend *backend); /* harmless when not open */

#endif
