/* The encoder-decoder Transformer, a model family, over packed batches (data/batch.h): forward,
 * loss and backward are written by hand. Depends on model.h, data/batch. */
#ifndef MODEL_TRANSFORMER_H
#define MODEL_TRANSFORMER_H

#include "data/batch.h"
#include "model/model.h"
#include "model/transformer_params.h"

/* Saved activations of one attention block. void * is of the backend's type. */
typedef struct {
  void *in;   /* self: q, k, v (rows, 3d); cross: q (rows, d) */
  void *out;  /* (rows, d) heads side by side */
  float *lse; /* (rows, heads) */
} AttentionState;

typedef struct {
  void *up, *act; /* (rows, ff) before and after the activation; one where up is not kept */
  uint8_t *mask;  /* (rows * ff) bits of ReLU for backward, or NULL: backward needs up */
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
  Model model; /* first: a Model * of this family points here */
  TransformerConfig config;
  TransformerParams at; /* offsets of the weights */
  size_t loss_rows;     /* tokens whose logits are in memory at once */
  StackState stack[2];
  float *place;   /* (longest, d) sinusoidal positions, or NULL */
  void *cross_kv; /* (rows, layers * 2d) */
  void *branch, *d_branch, *d_y, *d_sum, *d_wide, *d_up, *d_cross_kv,
      *logits;    /* working memory */
  int32_t *batch; /* a device's copy of the current batch, or NULL */
  uint64_t *key;  /* of its dropout: in the backend's memory */
  Batch current;  /* as the backend sees it */
  void **lists;
} Transformer;

extern const ModelFamily transformer_family;

/* Between the family's own configuration and that of any family. The second gives NULL for a
 * model of another family; the pointer is into `config`. */
ModelConfig transformer_model_config(const TransformerConfig *config);
const TransformerConfig *transformer_config(const ModelConfig *config);

/* model_new, model_plan_into, model_release, model_load and model_run, for code that knows the
 * family and has the memory of the struct. */
NODISCARD Err transformer_new(Transformer *t, const TransformerConfig *config,
                              const Backend *backend, size_t capacity, size_t logit_rows,
                              bool training);
NODISCARD Err transformer_plan(Transformer *t, const TransformerConfig *config,
                               const Backend *backend, size_t capacity, size_t logit_rows,
                               bool training);
void transformer_free(Transformer *t);
void transformer_step(Transformer *t, Weights w, float *g, const Batch *batch, StepKey key,
                      float smoothing, float scale, GradReady ready, void *context);

#endif
