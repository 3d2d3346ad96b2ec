/* Makes a model directory of a model of Hugging Face transformers. Depends on marian, store,
 * format/tensors. */
#ifndef MODEL_HF_IMPORT_H
#define MODEL_HF_IMPORT_H

#include "model/model.h"

/* What was imported, for messages. */
typedef struct {
  ModelConfig config;
  size_t parameters; /* number of weights */
} HfImported;

/* Reads the model in the directory `from` and writes the model directory `out`, which must not
 * exist. Everything is checked before `out` appears. */
NODISCARD Err hf_import(const char *from, const char *out, HfImported *imported);
/* The same for a classifier of pairs of texts: config.json does not say whether a model is one. Fails
 * if the model is not a classifier. */
NODISCARD Err hf_import_pairs(const char *from, const char *out, HfImported *imported);

#endif
