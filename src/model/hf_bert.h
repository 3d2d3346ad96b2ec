/* BERT, RoBERTa and DistilBERT of Hugging Face as models of the BERT family: their configuration, and
 * which tensor of theirs is which part of the flat array. Depends on bert_params,
 * format/hf_config. */
#ifndef MODEL_HF_BERT_H
#define MODEL_HF_BERT_H

#include "format/hf_config.h"
#include "model/bert_params.h"

typedef enum { HF_BERT, HF_ROBERTA, HF_DISTILBERT, HF_BERT_FORMS } HfBertForm;
/* Values of "model_type", which are also the names of the encoder in the names of tensors. */
extern const char *const hf_bert_type[HF_BERT_FORMS];

/* Sets the configuration. The error names the first property that this family does not have. A base
 * model (BertModel) has no head; whether it has a pooler is not in config.json: it is set here, and
 * the caller removes it. */
NODISCARD Err hf_bert_read_config(BertConfig *config, HfBertForm form, const HfConfig *hf);

/* Called with the name of a tensor, and where it is in the flat array: rows * cols consecutive floats
 * at `offset`. cols is 1 for vectors. */
typedef Err (*HfBertVisit)(void *context, const char *name, size_t offset, size_t rows,
                           size_t cols);
/* Visits the tensors of a model, without those that are stored a second time because they are tied.
 * `prefix` comes before the names of the encoder: "bert." in a model with a head, "" in BertModel. */
NODISCARD Err hf_bert_visit(HfBertForm form, const char *prefix, const BertConfig *config,
                            const BertParams *at, HfBertVisit visit, void *context);

#endif
