/* Writes models of the BERT family as BERT, RoBERTa or DistilBERT of Hugging Face transformers. Depends
 * on export, hf_bert. */
#ifndef MODEL_EXPORT_BERT_H
#define MODEL_EXPORT_BERT_H

#include "model/export.h"

/* The functions of ExportForm for this family. */
NODISCARD Err export_check_bert(const Export *e);
NODISCARD Err export_write_bert(const Export *e, const char *dir);

#endif
