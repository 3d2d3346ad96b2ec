/* The encoder-decoder Transformer, a model family, over packed batches (data/batch.h). Forward,
 * loss and backward are explicit: there is no autograd. Depends on model.h, data/batch. */
#ifndef MODEL_TRANSFORMER_H
#define MODEL_TRANSFORMER_H

#include "data/batch.h"
#include "model/model.h"
#include "model/transformer_params.h"

/* Activations of an attention sublayer that backward needs. The void pointers are arrays of the
 * backend's type. */
typedef struct {
  void *in;   /* self-attention: q, k, v (tokens, 3d); cross-attention: q (tokens, d) */
  void *out;  /* (tokens, d) outputs of all heads, concatenated */
  float *lse; /* (tokens, heads) log-sum-exp of the attention scores */
} AttentionState;

typedef struct {
  void *up,
      /* (tokens, ffn_dim) before and after the activation; the same array if `up` need not be
       * kept. */
      *act;
  uint8_t *mask; /* (tokens * ffn_dim) bits: mask of ReLU; NULL: backward reads `up` instead */
} FfnState;

/* Activations of one stack (encoder or decoder) that backward needs. A "junction" is a residual
 * add followed by a layer norm. Junction i precedes sublayer i; the last junction follows the
 * last sublayer. sum, y and norm_stats have one entry for each junction. */
typedef struct {
  int sublayers;
  void **sum; /* (sublayers + 1) arrays (tokens, d): the residual stream */
  void **y; /* (sublayers + 1) arrays (tokens, d): normalised sum, the input of the sublayer */
  float **norm_stats; /* (sublayers + 1) arrays (tokens, 2): mean and 1 / standard deviation */
  AttentionState *self, *cross;
  FfnState *ffn;
} StackState;

typedef struct {
  Model model; /* must be the first member: Model * is cast to Transformer * */
  TransformerConfig config;
  TransformerParams at; /* offsets of the weights in the flat array */
  size_t logit_rows;    /* number of tokens whose logits are in memory at once */
  StackState stack[2];
  float *positions; /* (max_positions, d) sinusoidal encodings; NULL if positions are learned */
  /* (tokens, layers * 2d) cross-attention keys and values of all decoder layers. */
  void *cross_kv;
  /* Working memory. d_ marks gradients. */
  void *branch; /* (tokens, d) output of the current sublayer */
  /* (logit_rows, vocab) logits, overwritten by their gradient; LOSS_EXTRA_ROWS more in training if
   * the backend has linear_loss */
  void *logits;
  void *d_branch;    /* (tokens, d) gradient of `branch` */
  void *d_y, *d_sum; /* (tokens, d) gradients of a junction's y and sum */
  /* (tokens, 3d) gradient of queries, keys and values; before that, scratch of linear_loss */
  void *d_wide;
  void *d_up; /* (tokens, ffn_dim) gradient of FfnState.up */
  void *d_cross_kv;
  int32_t *batch;        /* a device's copy of the current batch; NULL on a host */
  uint64_t *dropout_key; /* key of the current dropout masks, in the backend's memory */
  Batch current;         /* the current batch; its pointers are valid for the backend */
  void **lists;          /* allocation of the arrays of pointers in `stack` */
} Transformer;

extern const ModelFamily transformer_family;

/* Convert between the Transformer's configuration and that of any model family. transformer_config
 * returns a pointer into `config`, or NULL for a model of another family. */
ModelConfig transformer_model_config(const TransformerConfig *config);
const TransformerConfig *transformer_config(const ModelConfig *config);

/* Writes the sinusoidal positions (max_positions, d) of a configuration. */
void transformer_fill_positions(const TransformerConfig *config, float *out);

/* The functions of model.h for callers that know the family and own the struct: model_new,
 * model_plan_into, model_release, and model_load followed by model_run. */
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
