/* The backend interface: a table of the operations that models, optimizers and beam search need,
 * each with a hand-written backward (there is no autograd graph).
 *   cpu        fast kernels for the instruction set of this machine, OpenMP threads
 *   reference  plain C, one thread; the oracle in tests
 *   cuda       one NVIDIA GPU, loaded from a plug-in
 *
 * Types. Activations, and the weights that GEMMs and embeddings read, have the backend's element
 * type (`type`) and are `void *` here. Weight gradients, optimizer state, statistics, and the
 * gains and biases of layer norms are float.
 *
 * Memory and order. All arrays are in the backend's memory (`alloc`) unless stated otherwise.
 * Operations execute in the order of the calls. On a device a call only enqueues; a device error
 * is returned by the next `get` or `sync`. The CPU backends are done when the call returns.
 *
 * Shapes are (rows, columns), row-major and contiguous. A batch holds packed sentences without
 * padding: `tokens` rows, one per token, and an array of offsets that separates the sentences.
 * Gradients overwrite their destination, or are added to it if `accumulate`; gradients of
 * embedding tables are always added.
 *
 * Threads: one thread at a time may use a Backend; see open_stream. Depends on base. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/type.h"
#include "base/err.h"

/* All weights of a model. `full` (float) is what the optimizer updates. `low` is the copy in the
 * backend's type that GEMMs read; it is `full` itself where that type is float. */
typedef struct {
  const float *full;
  const void *low;
} Weights;

/* ACT_GELU is the exact form, x * Phi(x) with erf. ACT_NONE is the identity: dropout alone. */
typedef enum { ACT_RELU, ACT_GELU, ACT_SILU, ACT_TANH, ACT_NONE } Activation;

/* Counter-based dropout. Whether an element is dropped depends on 16 bits of Philox 2x32-7,
 * computed from *key (of run, step and micro-batch), site and element (backend/dropout.h). Masks
 * therefore do not depend on threads, ranks or devices, and the backward recomputes them. Elements
 * that stay are scaled by 1 / (1 - rate); rate 0 drops nothing. */
typedef struct {
  /* pointer to device memory, so that a captured graph reads the key of each step */
  const uint64_t *key;
  uint32_t site; /* number of the dropout within the model */
  float rate;
} Dropout;

/* Attention over packed sentences. Row r of q (k, v, o) has ld elements; its head h begins at r *
 * ld + h * d. */
typedef struct {
  size_t sentences, heads, d;   /* d: elements of one head */
  const int32_t *q_off, *k_off; /* (sentences + 1) first token of each sentence */
  const int32_t *k_len;         /* (sentences) number of keys; NULL: up to the next k_off */
  size_t q_ld, kv_ld, o_ld;     /* elements between the starts of two tokens */
  size_t q_rows;                /* tokens in q; read by the backward only */
  bool causal;                  /* query i attends to keys 0 … i only */
  Dropout drop;                 /* dropout of the attention probabilities */
} Attention;

/* Attention of one query per row over a key/value cache. Key j of row r is cache row at[list[r] *
 * at_ld + j], or first[r] + j if `at` is NULL. A row without keys has the output 0. */
typedef struct {
  size_t rows, heads, d; /* d: elements of one head */
  const int32_t *at;     /* (lists, at_ld) cache rows, or NULL */
  size_t at_ld;
  const int32_t *list;  /* (rows) list of each row, if `at` is not NULL */
  const int32_t *first; /* (rows) first cache row of each row, if `at` is NULL */
  const int32_t *len;   /* (rows) number of keys, 0 to 65536 */
  size_t q_ld, kv_ld, o_ld;
  /* The rows of q have the row's own key and value after the query, heads * d elements each. They
   * are stored in the cache, where they are the row's last key and value. Needs `at`. */
  bool appends;
} CachedAttention;

typedef struct {
  size_t rows, d;
  float epsilon;
  Dropout drop; /* dropout of the branch before it is added to the residual */
  /* The mask of the linear_relu_dropout that reads y, if fuses_linear_relu_dropout returned
   * true; otherwise NULL. add_norm writes to it which elements that dropout keeps, 1 bit for
   * each of rows * ahead_width: a layer norm waits for memory, so that drawing costs little
   * there. */
  uint8_t *ahead;
  size_t ahead_width;
  Dropout ahead_drop;
} AddNorm;

typedef enum {
  HEAD_SOFTMAX, /* one class per row: cross entropy */
  HEAD_SIGMOID, /* independent labels: binary cross entropy of each */
  HEAD_SQUARE,  /* regression: squared error */
} HeadKind;

/* The loss of a classification or regression head; see Backend.head_loss. */
typedef struct {
  HeadKind kind;
  size_t rows, labels;
  const float *weight;    /* (labels) in backend memory; NULL: every weight is 1 */
  float smoothing, scale; /* label smoothing (not HEAD_SQUARE); factor of the gradient */
} HeadLoss;

#define LOSS_EXTRA_ROWS 8 /* rows that linear_loss adds to its scratch arrays */

/* An output layer, its loss and its gradients; see Backend.linear_loss. */
typedef struct {
  size_t rows, in, vocab;
  const void *x, *w;      /* (rows, in), (vocab, in) */
  const int32_t *target;  /* (rows); negative: no loss */
  float smoothing, scale; /* label smoothing; factor of the gradient, not 0 */
  void *logits, *scaled;  /* scratch: LOSS_EXTRA_ROWS + rows of vocab and of `in` elements */
  double *loss;           /* (3) the sums are added */
  void *dx;               /* (rows, in) */
  float *dw;              /* (vocab, in) */
  bool accumulate;        /* adds to dw */
} LinearLoss;

/* Elements of StepNumbers.count, which are summed over the ranks. */
enum {
  COUNT_PREDICTIONS,
  COUNT_EXAMPLES,
  COUNT_TOKENS,                     /* of each side */
  COUNT_REASONS = COUNT_TOKENS + 2, /* reasons to stop (STOP_SIGNAL, …) */
  STEP_COUNTS = COUNT_REASONS + 3,
  STEP_TOTALS = 3 + STEP_COUNTS /* elements of StepNumbers.loss and StepNumbers.count */
};

/* Scalars of one optimizer step, in backend memory, so that a captured graph reads the values of
 * each step. The caller sets the first five; where ranks sum on the device, `count` and loss_scale
 * instead of grad_divisor. `clip` computes the others. */
typedef struct {
  /* Divisor of the gradients, which are sums over tokens: tokens * loss scale. */
  double grad_divisor;
  double max_grad_norm;               /* limit for gradient clipping; 0: no clipping */
  float lr, correction1, correction2; /* learning rate; Adam's bias corrections, 1 - beta^t */
  /* factor applied to every gradient; if it is not finite, the step is skipped */
  float grad_scale;
  double grad_norm; /* norm of the mean gradient, before clipping */
  /* sums computed by `loss` or `head_loss`: smoothed, plain, correct predictions */
  double loss[3];
  /* Counts of this rank, until `loss` and `count`, which are one array, are summed over the ranks. */
  double count[STEP_COUNTS];
  /* Not 0: `clip` computes grad_divisor, as only the device knows the predictions of all ranks. */
  double loss_scale;
} StepNumbers;

/* A range of the flat parameters with its own settings of the optimizer. */
typedef struct {
  size_t begin, end; /* elements of the flat array; multiples of ADAM_ALIGN */
  bool decays;       /* has weight decay */
  bool is_frozen;    /* is not updated */
  float lr_factor;   /* factor of the learning rate */
} AdamRange;
#define ADAM_ALIGN ((size_t)4)

/* Adam or AdamW on a part of the flat parameters; see train/optim.h. */
typedef struct {
  float beta1, beta2, epsilon, decay;
  bool coupled; /* Weight decay is added to the gradient (L2), not to the update (AdamW). */
  const StepNumbers *now;
  float lr_factor; /* factor of now->lr */
  void *low;       /* copy of w in the backend's type, written in the same pass; or NULL */
  /* Unless `range` is NULL, the elements are those that begin at `begin` of the flat array, a
   * multiple of ADAM_ALIGN, and the ranges, in host memory, cover them: a range without decay has
   * decay 0, and lr_factor is the range's. One call for all is faster on a GPU than one for each. */
  const AdamRange *range;
  size_t ranges, begin;
} AdamStep;

/* SGD with momentum. */
typedef struct {
  float beta, decay;
  const StepNumbers *now; /* source of lr and grad_scale; NULL: the next two fields */
  float lr, scale;
  float lr_factor; /* factor of now->lr; not of the field lr */
  void *low;       /* copy of w in the backend's type, as in AdamStep */
} MomentumStep;

/* Number of elements (a unit) whose squares are summed together. Each rank owns whole units, so
 * the norm of a gradient has the same bits for every number of ranks. */
#define NORM_UNIT 4096
static inline size_t norm_units(size_t n) {
  return (n + NORM_UNIT - 1) / NORM_UNIT;
}

typedef struct Graph Graph; /* A captured CUDA graph; each backend defines the struct. */

typedef struct Backend {
  const char *name;
  char about[160]; /* description for the log: kernels, threads */
  Type type;       /* element type of activations and low-precision weights */
  bool bf16;       /* cpu: rounds GEMM operands to bf16 */
  bool few_rows;   /* cpu: GEMMs have few rows, as in decoding; selects kernels for this, with
                    * which the last bits of fp32 may differ */
  bool fp8;        /* cuda: rounds operands of large GEMMs to fp8; `type` is bf16 */
  /* Backend memory is host memory, so the program may dereference pointers. */
  bool host;
  size_t max_top_k; /* largest k of `top_k`; 0: no limit */
  int threads;
  int device;                 /* index of the GPU; 0 on a CPU */
  uint64_t device_id;         /* identifies the GPU across processes; 0: no GPU */
  void *state;                /* private state of a device backend, or NULL */
  struct TimedBackend *timer; /* measures the operations of this table (timed.h), or NULL */
  /* closes the backend; NULL: nothing to close. Call backend_close() instead. */
  void (*close)(struct Backend *);

  /* Allocates the working memory for attention over sentences of at most `longest` tokens and
   * heads of d elements. Call it before `attend`; operations do not allocate memory
   * themselves. */
  Err (*reserve)(const struct Backend *, size_t longest, size_t d);

  /* Allocates zeroed memory. `pointer` is the address of the pointer variable, as in
   * mem_alloc. */
  Err (*alloc)(const struct Backend *, void *pointer, size_t bytes);
  void (*release)(const struct Backend *, void *block);
  /* Returns the bytes of memory that are free (for all processes) and the total. */
  Err (*memory)(const struct Backend *, uint64_t *left, uint64_t *all);
  /* Copies from host memory, which may be reused after the call returns. */
  void (*put)(const struct Backend *, void *to, const void *from, size_t bytes);
  /* Copies to host memory; blocks until the data has arrived. */
  Err (*get)(const struct Backend *, void *to, const void *from, size_t bytes);
  void (*copy)(const struct Backend *, void *to, const void *from, size_t bytes);
  void (*zero)(const struct Backend *, void *block, size_t bytes);
  /* Page-locks host memory so that `put` and `get` on it are fast. Call unpin before freeing. */
  Err (*pin)(const struct Backend *, void *block, size_t bytes);
  void (*unpin)(const struct Backend *, void *block);
  /* Blocks until all enqueued work is done; returns the first device error. */
  Err (*sync)(const struct Backend *);
  /* Converts n weights from float to the backend's type. */
  void (*lower)(const struct Backend *, void *low, const float *full, size_t n);

  /* y (rows, out) = x (rows, in) · wᵀ + bias; w (out, in); bias (out) or NULL. */
  void (*linear)(const struct Backend *, void *y, const void *x, const void *w,
                 const void *bias, size_t rows, size_t in, size_t out);
  /* Input gradient (dgrad): dx (rows, in) = dy · w. */
  void (*linear_dx)(const struct Backend *, void *dx, const void *dy, const void *w,
                    size_t rows, size_t in, size_t out, bool accumulate);
  /* Weight gradient (wgrad): dw (out, in) = dyᵀ · x; dbias (out) = column sums of dy; dbias may
   * be NULL. */
  void (*linear_dw)(const struct Backend *, float *dw, float *dbias, const void *dy,
                    const void *x, size_t rows, size_t in, size_t out, bool accumulate);

  /* x (tokens, d) = dropout(table[id] * scale + place[position]). */
  void (*embed)(const struct Backend *, void *x, const void *table, const float *place,
                const int32_t *id, const int32_t *position, size_t tokens, size_t d,
                float scale, Dropout drop);
  /* dtable[id] += dropout(dx) * scale and, if dplace is not NULL, dplace[position] +=
   * dropout(dx), added in the order of the tokens. Ids are below `words`, positions below
   * `places`. */
  void (*embed_backward)(const struct Backend *, float *dtable, float *dplace, const void *dx,
                         const int32_t *id, const int32_t *position, size_t tokens, size_t d,
                         size_t words, size_t places, float scale, Dropout drop);

  /* Copies rows: y (rows, d), row r = x[index[r]]. A negative index gives a row of zeros. */
  void (*gather_rows)(const struct Backend *, void *y, const void *x, const int32_t *index,
                      size_t rows, size_t d);
  /* Backward of gather_rows: dx (tokens, d) = 0, then dx[index[r]] = dy[r]. Indices that are not
   * negative must be distinct; rows with a negative index are skipped. */
  void (*scatter_rows)(const struct Backend *, void *dx, const void *dy, const int32_t *index,
                       size_t rows, size_t tokens, size_t d);

  /* Residual and layer norm: sum = x + dropout(branch); y = norm(sum) * gain + bias. With branch
   * NULL, sum is x and is not written. stat (rows, 2) receives mean and 1 / standard deviation
   * for the backward. */
  void (*add_norm)(const struct Backend *, void *sum, void *y, float *stat, const void *x,
                   const void *branch, const float *gain, const float *bias, const AddNorm *);
  /* dx = gradient of `sum`: the gradient through the norm, plus `through` (rows, d; the gradient
   * of the residual) if not NULL; dx may be `through`. If dbranch is not NULL: dbranch =
   * dropout(dx). If dshift is not NULL: dshift (d) = column sums of dbranch, the gradient of a
   * bias at the end of the branch. `accumulate` applies to dgain, dbias and dshift. */
  void (*add_norm_backward)(const struct Backend *, void *dx, void *dbranch, float *dgain,
                            float *dbias, float *dshift, const void *dy, const void *through,
                            const void *sum, const float *stat, const float *gain,
                            const AddNorm *, bool accumulate);

  /* o = softmax(q · kᵀ / sqrt(d)) · v for each sentence and head. lse (q tokens, heads) receives
   * the log-sum-exp of the scores for the backward. A sentence may have no queries or no keys:
   * without keys o = 0 and dq = 0, without queries dk = dv = 0. */
  void (*attend)(const struct Backend *, void *o, float *lse, const void *q, const void *k,
                 const void *v, const Attention *);
  void (*attend_backward)(const struct Backend *, void *dq, void *dk, void *dv, const void *do_,
                          const void *o, const float *lse, const void *q, const void *k,
                          const void *v, const Attention *);

  /* Writes to k and v only if `appends`. */
  void (*attend_cached)(const struct Backend *, void *o, const void *q, void *k, void *v,
                        const CachedAttention *);
  /* Makes the lists of cache rows at (lists, ld) that attend_cached reads: for each row, list
   * list[r] becomes the first len[r] - 1 entries of list parent[r], followed by slot[r]. A row
   * with len 0 is skipped. No list is both written and read. len is at most ld; parents of lists of
   * one entry are not read. */
  void (*extend)(const struct Backend *, int32_t *at, const int32_t *list,
                 const int32_t *parent, const int32_t *len, const int32_t *slot, size_t rows,
                 size_t ld);

  /* y (rows, width) = dropout(act(x + bias)); y may be x; bias (width) or NULL. The backward
   * needs x + bias; for ReLU it needs only `mask` (if not NULL): bit i % 8 of byte i / 8 is y[i]
   * > 0; for ACT_NONE nothing. */
  void (*activate)(const struct Backend *, void *y, uint8_t *mask, const void *x,
                   const void *bias, size_t rows, size_t width, Activation, Dropout);
  /* Computes dx (rows, width) from dy; dx may be dy. kept: the mask of ReLU, NULL for ACT_NONE,
   * otherwise x + bias.
   * dbias (width) = column sums of dx; dbias may be NULL. */
  void (*activate_backward)(const struct Backend *, void *dx, float *dbias, const void *dy,
                            const void *kept, size_t rows, size_t width, Activation, Dropout,
                            bool accumulate);

  /* Label-smoothed cross entropy and its gradient. Overwrites logits (rows, vocab) with the
   * gradient of (sum of the losses) * scale; with scale 0 the logits are unchanged. Adds the
   * smoothed sum of losses to loss[0], the plain sum to loss[1] and the number of correct
   * predictions to loss[2]. A row whose target is negative has no loss and gradient 0. */
  void (*loss)(const struct Backend *, void *logits, double *loss, const int32_t *target,
               size_t rows, size_t vocab, float smoothing, float scale);

  /* Loss of a head and its gradient. Overwrites logits (rows, labels) with the gradient of (sum of
   * the losses) * scale; with scale 0 the logits are unchanged. With e = smoothing, K = labels:
   *   HEAD_SOFTMAX  target (rows): class number, below K; negative or NaN: no loss. -sum over c of
   *                 q[c] * log(softmax(x)[c]), q[c] = weight[c] * (e / K + (c == target) * (1 - e)),
   *                 as CrossEntropyLoss(weight, label_smoothing, reduction='sum') of PyTorch
   *   HEAD_SIGMOID  target (rows, labels): 0 to 1; NaN: no loss. -weight[c] * t * log(sigmoid(x))
   *                 - (1 - t) * log(1 - sigmoid(x)) with t = target * (1 - e) + e / 2, as
   *                 BCEWithLogitsLoss(pos_weight, reduction='sum')
   *   HEAD_SQUARE   target (rows, labels): NaN: no loss. weight[c] * (x - target)²
   * Adds that sum to loss[0]; the sum with weights 1 and e = 0 to loss[1]; to loss[2] the number of
   * correct rows. Softmax: the target has the largest logit, the smaller index among equal ones.
   * Sigmoid: every label that is not NaN is on its side of 0.5 (0.5 itself is positive), and there
   * is one. Square: 0. */
  void (*head_loss)(const struct Backend *, void *logits, double *loss, const float *target,
                    const HeadLoss *);

  /* Finds the k largest logits of each row, in decreasing order, equal ones by increasing id:
   * value and id (rows, k). lse (rows): log-sum-exp of the row. k <= vocab and k <= max_top_k. */
  void (*top_k)(const struct Backend *, float *value, int32_t *id, float *lse,
                const void *logits, size_t rows, size_t vocab, size_t k);

  /* Computes the sum of squares of each NORM_UNIT elements (the last unit may be shorter): sums
   * (norm_units(n)) in host memory. Blocks. After a device error the sums are NaN. */
  void (*square_sums)(const struct Backend *, double *sums, const float *x, size_t n);
  /* square_sums without blocking; `sums` is in backend memory. */
  void (*square_sums_async)(const struct Backend *, double *sums, const float *x, size_t n);
  /* Computes grad_norm and grad_scale of `now` from the sums of square_sums (see clip.h), moves
   * `loss` to now->loss and sets `loss` to 0. NULL: now->loss has the sums already. */
  void (*clip)(const struct Backend *, StepNumbers *now, const double *sums, size_t units,
               double loss[3]);
  /* x += scale * y. */
  void (*add)(const struct Backend *, float *x, const float *y, float scale, size_t n);
  void (*adam)(const struct Backend *, float *w, float *m, float *v, const float *g, size_t n,
               const AdamStep *);
  /* m = beta * m + (scale * g + decay * w); w -= lr * m. */
  void (*momentum)(const struct Backend *, float *w, float *m, const float *g, size_t n,
                   const MomentumStep *);
  /* Exponential moving average: e += (1 - keep) * (w - e). Skipped like the optimizer step if
   * grad_scale is not finite. */
  void (*ema)(const struct Backend *, float *e, const float *w, double keep, size_t n,
              const StepNumbers *now);

  /* y (rows, out) = max(0, x · wᵀ + bias), for inference. NULL: call `linear` and `activate`,
   * whose results differ in the last bits only. */
  void (*linear_relu)(const struct Backend *, void *y, const void *x, const void *w,
                      const void *bias, size_t rows, size_t in, size_t out);
  /* Computes y (rows, out) = linear followed by `activate` with ReLU, bias and mask, in one
   * kernel. On entry the mask holds the bits of dropout (AddNorm.ahead). Call it only if
   * fuses_linear_relu_dropout is not NULL and returns true; otherwise fusing is not faster. */
  bool (*fuses_linear_relu_dropout)(const struct Backend *, size_t rows, size_t in, size_t out);
  void (*linear_relu_dropout)(const struct Backend *, void *y, uint8_t *mask, const void *x,
                              const void *w, const void *bias, size_t rows, size_t in,
                              size_t out, Dropout);
  /* Computes dx (rows, in) = dy · w followed by activate_backward of ReLU, with dbias (in), in
   * one kernel. Call it only if fuses_relu is not NULL and returns true; otherwise fusing is not
   * faster. */
  bool (*fuses_relu)(const struct Backend *, size_t rows, size_t in, size_t out);
  void (*linear_relu_backward)(const struct Backend *, void *dx, float *dbias, const void *dy,
                               const void *w, const uint8_t *mask, size_t rows, size_t in,
                               size_t out, Dropout, bool accumulate);

  /* An output layer and its loss in training, without a pass over the logits: `linear` without
   * a bias and `loss`; linear_dx; linear_dw. Call all three in this order, with the same
   * arguments and unchanged scratch arrays, and only if fuses_loss is not NULL and returns true;
   * otherwise fusing is not faster. Counts a prediction as correct if no logit exceeds that of
   * the target by 0.0054 or more. A row whose target has a probability below 2^-127 has a loss
   * that is too small. */
  bool (*fuses_loss)(const struct Backend *, size_t rows, size_t in, size_t vocab);
  void (*linear_loss)(const struct Backend *, const LinearLoss *);
  void (*linear_loss_dx)(const struct Backend *, const LinearLoss *);
  void (*linear_loss_dw)(const struct Backend *, const LinearLoss *);

  /* Prepacked weights for inference. `pack` copies w (out, in) into the layout that the GEMM
   * reads; `linear` with that w then uses the copy and gives the same bits. After w changes, pack
   * it again. `unpack` frees all copies. The caller must own its Backend (a copy of the struct).
   * NULL if packing is not faster. */
  struct Packed *packed;
  Err (*pack)(struct Backend *, const void *w, size_t in, size_t out);
  void (*unpack)(struct Backend *);

  /* CUDA graphs; NULL if not supported. Between graph_begin and graph_end operations are
   * captured, not executed. Capture only operations whose shapes were executed before, and none
   * of reserve, alloc, release, put, get, sync and square_sums; graph_end returns an error if one
   * was called, and no graph (NULL) if no operation was. graph_launch executes the graph on the captured arrays, with their current
   * contents. */
  Err (*graph_begin)(const struct Backend *);
  Err (*graph_end)(const struct Backend *, Graph **);
  void (*graph_launch)(const struct Backend *, Graph *);
  void (*graph_free)(const struct Backend *, Graph *);

  /* Device timestamps: `stamp` records event i after the work enqueued so far; `stamps` blocks
   * and returns the seconds from event 0 to each of the first n events. NULL if operations are
   * complete when their calls return, so that the host clock measures them. */
  void (*stamp)(const struct Backend *, size_t i);
  Err (*stamps)(const struct Backend *, double *seconds, size_t n);

  /* Opens another backend of the same device, with a stream of its own, so that another thread
   * can use it at the same time: operations of the two may overlap. Both read arrays that
   * either has allocated, after `sync`. GEMMs of equal shapes give the same bits in both. Close
   * `other` first. A thread other than the one that opened the first backend calls bind_thread
   * before its first operation. NULL if operations use the whole device anyway (CPU). */
  Err (*open_stream)(const struct Backend *, struct Backend *other);
  Err (*bind_thread)(const struct Backend *);

  /* Collectives between the GPUs of several processes without host memory (NCCL), or NULL. */
  const struct DeviceCommOps *comm;
} Backend;

/* Limits that decide which GEMMs run in fp8 with --precision fp8: forward and dgrad, if the
 * gain exceeds the cost of rounding the operands. Excluded are rows of more than FP8_MAX_DIM
 * elements (logits and their gradients), where one scale would round small but relevant
 * elements to 0, and wgrad, where both operands would have to be transposed. */
#define FP8_MIN_DIM    1024
#define FP8_MAX_DIM    16384
#define FP8_MIN_TOKENS 4096
#define FP8_MULTIPLE   32 /* `in` and `out` must be multiples of this number */
static inline bool backend_takes_fp8(size_t rows, size_t in, size_t out) {
  return rows >= FP8_MIN_TOKENS && in >= FP8_MIN_DIM && in <= FP8_MAX_DIM &&
         out >= FP8_MIN_DIM && out <= FP8_MAX_DIM && in % FP8_MULTIPLE == 0 &&
         out % FP8_MULTIPLE == 0;
}

/* Initializes the CPU backend. `threads`: 0 means one per core that this process may use. */
NODISCARD Err backend_cpu(Backend *backend, int threads, bool bf16);
/* Measures how many FLOP/s of fp32 multiply-adds, or with AMX of the products that replace them, this
 * many threads can execute, in about 5 ms. Returns 0 if TRIREME_ISA is wrong. */
double backend_cpu_peak(int threads);
void backend_reference(Backend *backend);

/* The user's options: --device auto, cpu, cuda or cuda:N; --precision fp32, tf32, bf16, fp16 or
 * fp8. "auto" uses a GPU if there is one and otherwise logs why not. Any other device that is not
 * available is an error. */
typedef struct {
  const char *device, *precision;
  int threads; /* threads of the CPU backend; 0: one per core */
} BackendSpec;
NODISCARD Err backend_open(Backend *backend, const BackendSpec *spec);
/* Returns true if --device `device` will probably be a GPU: it names one, or it is auto and the machine
 * has the plug-in and a GPU's device file. Opens nothing. */
bool backend_expects_gpu(const char *device);
/* Opens the backend for one of several processes on a machine, numbered from 0: with "auto" and
 * "cuda" process i uses GPU i modulo the number of GPUs. */
NODISCARD Err backend_open_for_rank(Backend *backend, const BackendSpec *spec, int local_rank);
/* Fails if fp8 was requested but a model of this d_model and ffn_dim, in batches of so many
 * tokens, would run no GEMM in fp8, or if its weights would not be aligned for fp8. */
NODISCARD Err backend_check_fp8(const Backend *backend, size_t d_model, size_t ffn_dim,
                                size_t tokens);
void backend_close(Backend *backend); /* Closes the backend, if it is open. */

#endif
