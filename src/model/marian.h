/* MarianMT, the translation models of Hugging Face (Opus-MT), as Transformers of this program: their
 * configuration, and which tensor of theirs is which part of the flat array. Depends on
 * transformer, format/hf_config. */
#ifndef MODEL_MARIAN_H
#define MODEL_MARIAN_H

#include "format/hf_config.h"
#include "model/transformer_params.h"

#define MARIAN_EPSILON 1e-5f /* epsilon of all layer norms; not part of its config.json */

/* Sets the configuration. The error names the first property that this family does not have. */
NODISCARD Err marian_read_config(TransformerConfig *config, const HfConfig *hf);

/* Called with the name of a tensor of MarianMT, and where it is in the flat array: rows * cols
 * consecutive floats at `offset`. PARAM_NONE: the model does not have it. cols is 1 for vectors. */
typedef Err (*MarianVisit)(void *context, const char *name, size_t offset, size_t rows,
                           size_t cols);
/* Visits the tensors of MarianMT except positions. */
NODISCARD Err marian_visit(const TransformerConfig *config, const TransformerParams *at,
                           MarianVisit visit, void *context);

#define MARIAN_EMBEDDING   "model.shared.weight"
#define MARIAN_OUTPUT_BIAS "final_logits_bias" /* (1, vocab) */
/* Positions of encoder and decoder (max_positions, d). They are in the file only if they are not
 * those of POSITION_MARIAN. */
extern const char *const marian_positions[2];
/* Other names of the embedding, which is tied; ends with NULL. */
extern const char *const marian_tied[];

#endif
