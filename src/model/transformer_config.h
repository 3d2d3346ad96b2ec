/* Configuration of the encoder-decoder Transformer: sizes, architecture, dropout; and the
 * presets. Depends on backend (for the activation), config. */
#ifndef MODEL_TRANSFORMER_CONFIG_H
#define MODEL_TRANSFORMER_CONFIG_H

#include "backend/backend.h"
#include "model/config.h"

/* HALVES: sinusoidal, all sines before all cosines. INTERLEAVED: sinusoidal, sines and cosines
 * alternate. MARIAN: all sines before all cosines, with the frequencies of INTERLEAVED, as in the
 * MarianMT models of Hugging Face. */
typedef enum {
  POSITION_HALVES,
  POSITION_INTERLEAVED,
  POSITION_LEARNED,
  POSITION_MARIAN
} Positions;
/* Which embeddings are tied. ALL: source, target and output. DECODER: target and output. */
typedef enum { TIE_ALL, TIE_DECODER, TIE_NONE } Tying;

typedef struct {
  int vocab, d_model, ffn_dim, heads;
  int layers[2];     /* number of layers of encoder and decoder */
  int max_positions; /* longest sentence in tokens, including eos */
  bool pre_norm, attention_bias;
  bool output_bias; /* a bias (vocab) is added to the logits */
  Activation activation;
  Positions positions;
  Tying tying;
  float drop_embed, drop_attention, drop_activation, drop_residual;
  float norm_epsilon;
  int eos, bos, pad;
} TransformerConfig;

/* The fields of TransformerConfig in model.json. */
extern const ConfigField transformer_fields[];

/* Sets sizes, architecture and dropout to those of a preset; does not set vocab, max_positions
 * and the special token ids. */
NODISCARD Err transformer_preset(TransformerConfig *config, const char *name);
NODISCARD Err transformer_check_config(const TransformerConfig *config);

#endif
