/* The table of operations: what a model asks of a machine, at the level the model
 * speaks. Forward and backward are written by hand; there is no graph. A backend
 * is a struct of functions: `cpu` (fast), `reference` (plain C, the oracle), and
 * later `cuda` from a plug-in. Relies on base.
 *
 * Shapes stand in comments as (rows, columns), rows contiguous. `rows` are packed
 * sentences, one behind the other; offsets tell them apart. Gradients of
 * parameters are added to what is there; gradients of activations overwrite,
 * unless a comment says otherwise. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum { ACT_RELU, ACT_GELU, ACT_SILU } Activation;

/* Which elements of a site fall out is arithmetic: 16 bits of Philox for each,
 * keyed by the run, the step and the micro-batch, counted by site and element.
 * rate 0 drops nothing. What stays is scaled by 1 / (1 - rate). */
typedef struct {
  uint64_t key;
  uint32_t site;
  float rate;
} Dropout;

/* Queries and keys of packed sentences. Row r of head h begins at r * ld + h * d. */
typedef struct {
  size_t sentences, heads, d;   /* d of one head */
  const int32_t *q_off, *k_off; /* (sentences + 1) rows */
  const int32_t *k_len;         /* (sentences) keys there are, or NULL: up to the next k_off */
  size_t q_ld, kv_ld, o_ld;     /* steps from row to row */
  bool causal;                  /* row i sees keys 0 … i */
  Dropout drop;                 /* of the probabilities */
} Attention;

/* One query a row over the keys and values of earlier positions, wherever they lie:
 * key j of row r is row at[r][j] of k and v, or first[r] + j where `at` is NULL. */
typedef struct {
  size_t rows, heads, d;    /* d of one head */
  const int32_t *const *at; /* (rows) lists of rows, or NULL */
  const int32_t *first;     /* (rows), where `at` is NULL */
  const int32_t *len;       /* (rows) keys, 1 to 65536 */
  size_t q_ld, kv_ld, o_ld;
} CachedAttention;

typedef struct {
  size_t rows, d;
  float epsilon;
  Dropout drop; /* of the branch before it is added */
} AddNorm;

/* Options of an update of the flat parameters; see train/optim. */
typedef struct {
  float lr, beta1, beta2, epsilon, decay; /* decay: decoupled (AdamW) */
  float correction1, correction2;         /* 1 - beta^t */
  float scale;                            /* every gradient is multiplied by it first */
} AdamStep;

typedef struct Backend {
  const char *name;
  char about[160]; /* one line: kernels, threads */
  bool bf16;       /* round operands of products to bf16 */
  int threads;

  /* Takes the working memory for sentences of at most `longest` rows and heads of
   * width d, so that no operation has to; attention needs it. */
  Err (*reserve)(const struct Backend *, size_t longest, size_t d);

  /* y (rows, out) = x (rows, in) · wᵀ + bias; w (out, in); bias (out) or NULL. */
  void (*linear)(const struct Backend *, float *y, const float *x, const float *w,
                 const float *bias, size_t rows, size_t in, size_t out);
  /* dx (rows, in) = dy · w, added when `add`. */
  void (*linear_dx)(const struct Backend *, float *dx, const float *dy, const float *w,
                    size_t rows, size_t in, size_t out, bool add);
  /* dw (out, in) += dyᵀ · x; dbias (out) += column sums of dy, if not NULL. */
  void (*linear_dw)(const struct Backend *, float *dw, float *dbias, const float *dy,
                    const float *x, size_t rows, size_t in, size_t out);

  /* x (rows, d) = drop(table[id] * scale + place[position]). */
  void (*embed)(const struct Backend *, float *x, const float *table, const float *place,
                const int32_t *id, const int32_t *position, size_t rows, size_t d, float scale,
                Dropout drop);
  /* dtable[id] += …; dplace[position] += … if not NULL; in the order of the rows. */
  void (*embed_back)(const struct Backend *, float *dtable, float *dplace, const float *dx,
                     const int32_t *id, const int32_t *position, size_t rows, size_t d,
                     float scale, Dropout drop);

  /* sum = x + drop(branch); y = norm(sum) * gain + bias; branch NULL: sum = x and
   * is not written. stat (rows, 2): mean and 1 / deviation, for the way back. */
  void (*add_norm)(const struct Backend *, float *sum, float *y, float *stat, const float *x,
                   const float *branch, const float *gain, const float *bias, const AddNorm *);
  /* dx = gradient of the sum: through the norm, plus `through` (rows, d) if not
   * NULL; dbranch = drop's share of it, if not NULL. dx may be `through`. */
  void (*add_norm_back)(const struct Backend *, float *dx, float *dbranch, float *dgain,
                        float *dbias, const float *dy, const float *through, const float *sum,
                        const float *stat, const float *gain, const AddNorm *);

  /* o = softmax(q · kᵀ / sqrt(d)) · v for each sentence and head; lse (q rows,
   * heads) is kept for the way back. */
  void (*attend)(const struct Backend *, float *o, float *lse, const float *q, const float *k,
                 const float *v, const Attention *);
  void (*attend_back)(const struct Backend *, float *dq, float *dk, float *dv, const float *do_,
                      const float *o, const float *lse, const float *q, const float *k,
                      const float *v, const Attention *);

  void (*attend_cached)(const struct Backend *, float *o, const float *q, const float *k,
                        const float *v, const CachedAttention *);

  /* y = drop(act(x)); the way back needs x, and dx may be dy. */
  void (*activate)(const struct Backend *, float *y, const float *x, size_t n, Activation,
                   Dropout);
  void (*activate_back)(const struct Backend *, float *dx, const float *dy, const float *x,
                        size_t n, Activation, Dropout);

  /* Label-smoothed cross entropy of rows of logits; overwrites them with the
   * gradient of (sum of the losses) * scale. Adds the smoothed and the plain sum
   * of losses to loss[0] and loss[1], and the right guesses to loss[2]. With
   * `scale` 0 the logits are left alone. */
  void (*loss)(const struct Backend *, float *logits, double loss[3], const int32_t *target,
               size_t rows, size_t vocab, float smoothing, float scale);

  /* The `best` largest of each row of logits, largest first and the smaller id among
   * equals, as value and id (rows, best); lse (rows): log of the sum of all exps.
   * best is at most vocab. */
  void (*top)(const struct Backend *, float *value, int32_t *id, float *lse,
              const float *logits, size_t rows, size_t vocab, size_t best);

  double (*norm2)(const struct Backend *, const float *x, size_t n); /* sum of squares */
  void (*add)(const struct Backend *, float *x, const float *y, float scale,
              size_t n); /* x += scale * y */
  void (*adam)(const struct Backend *, float *w, float *m, float *v, const float *g, size_t n,
               const AdamStep *);

  /* Weights that stay as they are for a while. `pack` lays w (out, in) out once the
   * way products read it, and `linear` by that w then reads the copy, with the same
   * bits as result; after a change, pack it again. `unpack` gives all copies up.
   * Whoever packs has a Backend of his own; NULL where there is nothing to gain. */
  struct Packed *packed;
  Err (*pack)(struct Backend *, const float *w, size_t in, size_t out);
  void (*unpack)(struct Backend *);
} Backend;

/* Fills the table; `threads` 0: one per core this process may use. */
NODISCARD Err backend_cpu(Backend *backend, int threads, bool bf16);
void backend_reference(Backend *backend);

#endif
