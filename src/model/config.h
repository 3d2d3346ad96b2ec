/* What a translation Transformer is: sizes, form, dropout; and the presets.
 * Relies on backend (for the activation). */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "backend/backend.h"

typedef enum { POSITION_HALVES, POSITION_INTERLEAVED, POSITION_LEARNED } Positions;
typedef enum { TIE_ALL, TIE_DECODER, TIE_NONE } Tying; /* source, target, output */

typedef struct {
  int vocab, d, ff, heads;
  int layers[2]; /* encoder, decoder */
  int longest;   /* positions there are, end mark included */
  bool pre_norm, attention_bias;
  Activation activation;
  Positions positions;
  Tying tying;
  float drop_embed, drop_attention, drop_activation, drop_residual;
  float norm_epsilon;
  int eos, bos, pad;
} ModelConfig;

/* Fills sizes, form and dropout; leaves vocab, longest and the special ids. */
NODISCARD Err config_preset(ModelConfig *config, const char *name);
NODISCARD Err config_check(const ModelConfig *config);

#endif
