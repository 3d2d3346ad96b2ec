/* Options of train that set the configuration of a Transformer. Depends on base/opt,
 * transformer_config.h. */
#ifndef MODEL_TRANSFORMER_OPTIONS_H
#define MODEL_TRANSFORMER_OPTIONS_H

#include "base/opt.h"
#include "model/transformer_config.h"

extern const OptSpec transformer_size_options[];    /* dimensions, heads */
extern const OptSpec transformer_form_options[];    /* of encoder and decoder */
extern const OptSpec transformer_dropout_options[]; /* all kinds of dropout */

/* Sets the configuration from --preset and the options above; leaves vocab, max_positions and the
 * special ids, which the data set decides. */
NODISCARD Err transformer_configure(TransformerConfig *config, const OptSet *opts);

#endif
