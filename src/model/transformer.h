/* The encoder-decoder Transformer over packed batches: forward, loss and backward
 * written out by hand. Relies on backend, params, data/batch. */
#ifndef MODEL_TRANSFORMER_H
#define MODEL_TRANSFORMER_H

#include "data/batch.h"
#include "model/params.h"

/* Saved activations of one attention block. void * is of the backend's type. */
typedef struct {
  void *in;   /* self: q, k, v (rows, 3d); cross: q (rows, d) */
  void *out;  /* (rows, d) heads side by side */
  float *lse; /* (rows, heads) */
} AttentionState;

typedef struct {
  void *up, *act; /* (rows, ff) before and after the activation; one where up is not kept */
  uint8_t *mask;  /* (rows * ff) bits of ReLU for the way back, or NULL: it needs up */
} FeedState;

/* One stack. Junction s lies before sublayer s; the last one behind the stack.
 * sum: the residual stream; y: what the sublayer reads; stat: the norm's. */
typedef struct {
  int sublayers;
  void **sum, **y; /* (sublayers + 1) of (rows, d) */
  float **stat;    /* of (rows, 2) */
  AttentionState *self, *cross;
  FeedState *feed;
} StackState;

typedef struct {
  ModelConfig config;
  Params params;
  const Backend *backend;
  size_t capacity;  /* rows a side */
  size_t loss_rows; /* rows whose logits are in memory at once */
  StackState stack[2];
  float *place;   /* (longest, d) sinusoidal positions, or NULL */
  void *cross_kv; /* (rows, layers * 2d) */
  void *branch, *d_branch, *d_y, *d_sum, *d_wide, *d_up, *d_cross_kv,
      *logits;         /* working memory */
  double *sums;        /* of losses since transformer_loss, as the backend's loss has them */
  uint64_t rows;       /* that went into them */
  int32_t *batch;      /* where a device keeps its copy of the batch at hand, or NULL */
  uint64_t *key;       /* of its dropout: in the backend's memory */
  Batch at_hand;       /* as the backend sees it */
  uint64_t loads;      /* that made a batch the one at hand */
  bool dropout, first; /* of the StepKey */
  void *arena;         /* holds them all */
  void **lists;
  size_t arena_bytes;
  double turned; /* clock when the last way forward ended, or on a device was asked for */
} Transformer;

/* `training` false leaves out what only the way back needs. logit_rows: rows of
 * logits in memory at once; 0: as many as fit the cache. */
NODISCARD Err transformer_new(Transformer *t, const ModelConfig *config, const Backend *backend,
                              size_t capacity, size_t logit_rows, bool training);
void transformer_free(Transformer *t);
/* Only the plan: parameters and arena_bytes, with no memory behind them. */
NODISCARD Err transformer_plan(Transformer *t, const ModelConfig *config,
                               const Backend *backend, size_t capacity, size_t logit_rows,
                               bool training);

/* One micro-batch's randomness, and its place. */
typedef struct {
  uint64_t key;
  bool dropout; /* or none */
  bool first;   /* its gradients overwrite those that are there */
} StepKey;

/* Called when the gradients of the parameters in [begin, end) are complete: on a
 * device, when the work that completes them is queued. Each element of the flat
 * array, padding too, is told exactly once a step; the tables come last. */
typedef void (*GradReady)(void *context, size_t begin, size_t end);

typedef struct {
  double loss, nll, right; /* sums over target rows: smoothed, plain, best guesses */
  uint64_t rows;
} BatchLoss;

/* Makes the batch the one at hand, in the backend's memory. A device gets its padded rows
 * and the most sentences, so that all it is asked to do follows from `padded`; a host the
 * rows there are, and reads them where they lie. */
void transformer_load(Transformer *t, const Batch *batch, StepKey key);
/* Forward and, where g is given, backward: gradients of (sum of smoothed losses) * scale,
 * added to g, but for the first's, which take the place of all that is there, padding
 * too. Only asks the backend for operations, the same ones for the same shape. A device
 * may still be at work when it returns; the batch may be filled anew all the same. */
void transformer_run(Transformer *t, Weights w, float *g, float smoothing, float scale,
                     GradReady ready, void *context);
/* Calls `ready` as the backward pass of transformer_run does: the same ranges in the same order,
 * which follows from the configuration alone. `model` is a Transformer. */
void transformer_announce(const void *model, GradReady ready, void *context);
/* Both, one after the other. */
void transformer_step(Transformer *t, Weights w, float *g, const Batch *batch, StepKey key,
                      float smoothing, float scale, GradReady ready, void *context);
/* The losses of all steps since the last call. Waits for the device. */
NODISCARD Err transformer_loss(Transformer *t, BatchLoss *loss);

/* The pieces, for decoding: memory = encoder's output, (rows, d); rows is off's
 * last, which the program cannot read where it lies on a device. */
const void *transformer_encode(Transformer *t, Weights w, const int32_t *src,
                               const int32_t *pos, const int32_t *off, size_t sentences,
                               size_t rows, StepKey key);

#endif
