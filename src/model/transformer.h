/* The encoder-decoder Transformer over packed batches: forward, loss and backward
 * written out by hand. Relies on backend, params, data/batch. */
#ifndef MODEL_TRANSFORMER_H
#define MODEL_TRANSFORMER_H

#include "data/batch.h"
#include "model/params.h"

/* Saved activations of one attention block. */
typedef struct {
  float *in;  /* self: q, k, v (rows, 3d); cross: q (rows, d) */
  float *out; /* (rows, d) heads side by side */
  float *lse; /* (rows, heads) */
} AttentionState;

typedef struct {
  float *up, *act; /* (rows, ff) before and after the activation */
} FeedState;

/* One stack. Junction s lies before sublayer s; the last one behind the stack.
 * sum: the residual stream; y: what the sublayer reads; stat: the norm's. */
typedef struct {
  int sublayers;
  float **sum, **y, **stat; /* (sublayers + 1) of (rows, d), (rows, d), (rows, 2) */
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
  float *place;    /* (longest, d) sinusoidal positions, or NULL */
  float *cross_kv; /* (rows, layers * 2d) */
  float *branch, *d_branch, *d_y, *d_sum, *d_wide, *d_up, *d_memory, *d_cross_kv,
      *logits; /* working memory */
  float *arena;
  void **lists;
  size_t arena_floats;
  double turned; /* clock when the last way forward ended */
} Transformer;

/* `training` false leaves out what only the way back needs. logit_rows: rows of
 * logits in memory at once; 0: as many as fit the cache. */
NODISCARD Err transformer_new(Transformer *t, const ModelConfig *config, const Backend *backend,
                              size_t capacity, size_t logit_rows, bool training);
void transformer_free(Transformer *t);
/* Only the plan: parameters and arena_floats, with no memory behind them. */
NODISCARD Err transformer_plan(Transformer *t, const ModelConfig *config,
                               const Backend *backend, size_t capacity, bool training);

/* One micro-batch's randomness: 0 turns dropout off. */
typedef struct {
  uint64_t key;
  bool dropout;
} StepKey;

/* Called when the gradients of the parameters in [begin, end) are complete. */
typedef void (*GradReady)(void *context, size_t begin, size_t end);

typedef struct {
  double loss, nll, right; /* sums over target rows: smoothed, plain, best guesses */
  uint64_t rows;
} BatchLoss;

/* Forward and, where g is given, backward: adds gradients of (sum of smoothed
 * losses) * scale to g. */
void transformer_step(Transformer *t, const float *w, float *g, const Batch *batch, StepKey key,
                      float smoothing, float scale, GradReady ready, void *context,
                      BatchLoss *loss);

/* The pieces, for decoding: memory = encoder's output, (rows, d). */
const float *transformer_encode(Transformer *t, const float *w, const int32_t *src,
                                const int32_t *pos, const int32_t *off, size_t sentences,
                                StepKey key);

#endif
