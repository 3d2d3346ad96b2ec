/* Options of train that set the configuration of a BERT model. Depends on base/opt,
 * bert_config.h. */
#ifndef MODEL_BERT_OPTIONS_H
#define MODEL_BERT_OPTIONS_H

#include "base/opt.h"
#include "model/bert_config.h"

/* Tables of options for ModelFamily.options; those of sizes and dropout are the Transformer's. */
extern const OptSpec *const bert_options[];

/* Sets sizes and dropout from --preset and the options that change it, or, with `has_start`, changes
 * the configuration of another model by the options that are given. The task determines
 * vocab, head and labels, and then calls bert_check_config. */
NODISCARD Err bert_configure(BertConfig *config, const OptSet *opts, bool has_start);

#endif
