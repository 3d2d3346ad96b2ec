/* The encoder-decoder Transformer, a model family, over packed batches (data/batch.h): forward,
 * loss and backward are written by hand. Depends on model.h, data/batch. */
#ifndef MODEL_TRANSFORMER_H
#define MODEL_TRANSFORMER_H

#include "data/batch.h"
#include "model/model.h"
#include "model/transformer_params.h"

/* Saved activations of one attention block. void * is of the backend's type. */
typedef struct {
  void *in;   /* self: q, k, v (tokens, 3d); cross: q (tokens, d) */
  void *out;  /* (tokens, d) heads side by side */
  float *lse; /* (tokens, heads) */
} AttentionState;

typedef struct {
  void *up,
      *act; /* (tokens, ffn_dim) before and after the activation; one where up is not kept */
  uint8_t *mask; /* (tokens * ffn_dim) bits: ReLU's mask; NULL: backward reads `up` instead */
} FfnState;

/* Saved activations of one stack (encoder or decoder). sum, y and norm_stats have one entry for
 * each junction, that is residual add and layer norm. Junction i precedes sublayer i; the last
 * junction follows the last sublayer. */
typedef struct {
  int sublayers;
  void **sum;         /* (sublayers + 1) of (tokens, d): the residual */
  void **y;           /* the same, normalised: what the sublayer reads */
  float **norm_stats; /* of (tokens, 2): mean and reciprocal deviation */
  AttentionState *self, *cross;
  FfnState *ffn;
} StackState;

typedef struct {
  Model model; /* first: a Model * of this family points here */
  TransformerConfig config;
  TransformerParams at; /* offsets of the weights */
  size_t logit_rows;    /* tokens whose logits are in memory at once */
  StackState stack[2];
  float *positions; /* (max_positions, d) sinusoidal encodings; NULL: learned */
  void *cross_kv;   /* (tokens, layers * 2d) */
  /* Working memory: */
  void *branch;      /* (tokens, d) output of the current sublayer */
  void *logits;      /* (logit_rows, vocab), and their gradient */
  void *d_branch;    /* gradients: of branch, */
  void *d_y, *d_sum; /* of a junction's y and sum, */
  void *d_wide;      /* (tokens, 3d) of queries, keys and values, */
  void *d_up;        /* (tokens, ffn_dim), */
  void *d_cross_kv;
  int32_t *batch;        /* a device's copy of the current batch, or NULL */
  uint64_t *dropout_key; /* in the backend's memory */
  Batch current;         /* as the backend sees it */
  void **lists;          /* memory of the arrays of pointers in `stack` */
} Transformer;

extern const ModelFamily transformer_family;

/* Convert between the Transformer's configuration and that of any model family. transformer_config
 * returns a pointer into `config`, or NULL for a model of another family. */
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
