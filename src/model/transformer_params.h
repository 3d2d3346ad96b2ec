/* Offsets of the weights of the encoder-decoder Transformer in the flat array. Depends on
 * params, transformer_config. */
#ifndef MODEL_TRANSFORMER_PARAMS_H
#define MODEL_TRANSFORMER_PARAMS_H

#include "model/params.h"
#include "model/transformer_config.h"

/* Offsets of the weights of a block; PARAM_NONE if the model does not have the weight. */
typedef struct {
  size_t gain, bias;
} NormParams;
typedef struct {
  size_t in, in_bias;   /* self-attention: q, k, v (3d, d); cross-attention: q (d, d) */
  size_t out, out_bias; /* output projection (d, d) */
} AttentionParams;
typedef struct {
  size_t up, up_bias, down, down_bias; /* up: (ffn_dim, d); down: (d, ffn_dim) */
} FfnParams;
typedef struct {
  AttentionParams self, cross; /* `cross` is set in the decoder only */
  FfnParams ffn;
  /* One norm for each sublayer: before it (pre-norm) or after it (post-norm). */
  NormParams norm[3];
} LayerParams;

typedef struct {
  /* (vocab, d); tied embeddings have equal offsets. */
  size_t source_embedding, target_embedding, output;
  /* (max_positions, d); PARAM_NONE if positions are sinusoidal. */
  size_t source_positions, target_positions;
  size_t cross_kv, cross_kv_bias; /* (layers * 2d, d) keys and values of all decoder layers */
  size_t output_bias;             /* (vocab); PARAM_NONE if the logits have no bias */
  LayerParams *layer[2];
  /* Norm after the last layer of encoder and decoder; used with pre-norm only. */
  NormParams final_norm[2];
} TransformerParams;

/* Adds all weights to `p`, which must be empty, and stores their offsets in `at`. After an
 * error there is nothing to free. */
NODISCARD Err transformer_lay_out(TransformerParams *at, Params *p,
                                  const TransformerConfig *config);
void transformer_params_free(TransformerParams *at);
/* Lists names and shapes only, for code that reads or writes weight files. */
NODISCARD Err transformer_lay_out_params(Params *p, const TransformerConfig *config);

#endif
