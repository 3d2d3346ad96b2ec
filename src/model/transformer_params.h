/* Where each weight of the encoder-decoder Transformer lies in the flat array. Depends on params,
 * transformer_config. */
#ifndef MODEL_TRANSFORMER_PARAMS_H
#define MODEL_TRANSFORMER_PARAMS_H

#include "model/params.h"
#include "model/transformer_config.h"

/* Offsets of one block of weights; PARAM_NONE where the model has none. */
typedef struct {
  size_t gain, bias;
} NormParams;
typedef struct {
  size_t in, in_bias;   /* self: q, k, v (3d, d); cross: q (d, d) */
  size_t out, out_bias; /* (d, d) */
} AttentionParams;
typedef struct {
  size_t up, up_bias, down, down_bias; /* (ffn_dim, d), (d, ffn_dim) */
} FfnParams;
typedef struct {
  AttentionParams self, cross; /* cross in the decoder only */
  FfnParams ffn;
  NormParams norm[3]; /* one for each sublayer: before it (pre) or after it (post) */
} LayerParams;

typedef struct {
  size_t source_embedding, target_embedding, output; /* (vocab, d); equal where tied */
  size_t source_positions, target_positions; /* (max_positions, d) learned, or PARAM_NONE */
  size_t cross_kv, cross_kv_bias; /* (layers * 2d, d): every decoder layer's keys and values */
  LayerParams *layer[2];
  NormParams final_norm[2]; /* pre-norm only */
} TransformerParams;

/* Adds all weights to `p`, which is empty, and notes their offsets. After an error there is
 * nothing to free. */
NODISCARD Err transformer_lay_out(TransformerParams *at, Params *p,
                                  const TransformerConfig *config);
void transformer_params_free(TransformerParams *at);
/* Names and shapes alone, for readers and writers of weights. */
NODISCARD Err transformer_lay_out_params(Params *p, const TransformerConfig *config);

#endif
