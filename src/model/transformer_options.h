/* Options of train that set the configuration of a Transformer. Depends on base/opt,
 * transformer_config.h. */
#ifndef MODEL_TRANSFORMER_OPTIONS_H
#define MODEL_TRANSFORMER_OPTIONS_H

#include "base/opt.h"
#include "model/transformer_config.h"

extern const OptSpec transformer_size_options[];    /* options of dimensions and heads */
extern const OptSpec transformer_form_options[];    /* options of encoder and decoder */
extern const OptSpec transformer_dropout_options[]; /* options of all kinds of dropout */

/* Sets the configuration from --preset and the options above, or, with `has_start`, changes the
 * configuration of another model by the options that are given. Does not set vocab, max_positions
 * and the special ids, which the data set determines. */
NODISCARD Err transformer_configure(TransformerConfig *config, const OptSet *opts,
                                    bool has_start);

#endif
