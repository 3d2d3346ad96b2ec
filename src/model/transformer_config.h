/* Configuration of the encoder-decoder Transformer: sizes, form, dropout; and the presets.
 * Depends on backend (for the activation), config. */
#ifndef MODEL_TRANSFORMER_CONFIG_H
#define MODEL_TRANSFORMER_CONFIG_H

#include "backend/backend.h"
#include "model/config.h"

/* HALVES: sinusoidal, all sines before all cosines; INTERLEAVED: sinusoidal, sine and cosine in
 * turn. */
typedef enum { POSITION_HALVES, POSITION_INTERLEAVED, POSITION_LEARNED } Positions;
/* Which embeddings are tied: source, target and output; target and output; none. */
typedef enum { TIE_ALL, TIE_DECODER, TIE_NONE } Tying;

typedef struct {
  int vocab, d_model, ffn_dim, heads;
  int layers[2];     /* encoder, decoder */
  int max_positions; /* tokens of a sentence, end mark included */
  bool pre_norm, attention_bias;
  Activation activation;
  Positions positions;
  Tying tying;
  float drop_embed, drop_attention, drop_activation, drop_residual;
  float norm_epsilon;
  int eos, bos, pad;
} TransformerConfig;

/* Its fields in model.json. */
extern const ConfigField transformer_fields[];

/* Fills sizes, form and dropout; leaves vocab, max_positions and the special ids. */
NODISCARD Err transformer_preset(TransformerConfig *config, const char *name);
NODISCARD Err transformer_check_config(const TransformerConfig *config);

#endif
