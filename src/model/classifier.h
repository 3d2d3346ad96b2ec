/* A classifier that is ready for use, read from its directory (store.h): a BERT model with a head, its
 * weights, the tokenizer and the names of the labels.
 *   model.json           configuration, how texts become ids, checksums of the other files
 *   weights.safetensors
 *   vocab.txt            WordPiece; or tokenizer.model, SentencePiece; or tokenizer.json, byte-level BPE
 *   labels.txt           one name per line: classes, labels or the names of the numbers
 * Depends on data/text_encoder, bert, store, weights. */
#ifndef MODEL_CLASSIFIER_H
#define MODEL_CLASSIFIER_H

#include "data/text_encoder.h"
#include "model/bert.h"
#include "model/store.h"

/* Must not be moved or copied while it is open. */
typedef struct {
  const Backend *backend;
  ModelConfig model;
  const BertConfig *config; /* points into `model` */
  Params params;
  Weights weights;
  float *w; /* weights as read from the file; NULL if they are in device memory */
  TextEncoder encoder;
  Str names;          /* contents of labels.txt, each line ended by NUL */
  const char **label; /* (config->labels) names, in the order of the model's outputs */
} Classifier;

/* Reads a directory. The backend must outlive the classifier. The error names the file that is missing,
 * damaged or does not fit the others, and for a translation model the command to use. */
NODISCARD Err classifier_open(Classifier *c, const Backend *backend, const char *dir);
void classifier_close(Classifier *c); /* accepts a zeroed struct */
/* Splits the contents of a labels.txt at its line breaks: `names` is changed, *label (labels) points
 * into it and is owned by the caller. Fails unless there are `labels` different names of visible
 * UTF-8 text; `where` names the file. */
NODISCARD Err classifier_split_labels(Str *names, size_t labels, const char *where,
                                      const char ***label);

#endif
