/* How good the model is now: loss on the validation pairs, BLEU on the validation
 * text by beam search. Relies on model, decode, metric, data. */
#ifndef TRAIN_VALIDATE_H
#define TRAIN_VALIDATE_H

#include "data/dataset.h"
#include "decode/translate.h"

typedef struct {
  double nll; /* a target row, without smoothing or dropout */
  double bleu;
  double seconds;
} Validation;

typedef struct Validator Validator;
/* `t` is the model in training, whose memory serves for the loss. */
NODISCARD Err validator_new(Validator **v, DataSet *data, Transformer *t, Weights w,
                            const Tokenizer *tokenizer, const BeamSpec *spec);
void validator_free(Validator *v);
/* Prints the first `samples` translations beside their references. */
NODISCARD Err validator_run(Validator *v, int samples, Validation *result);

#endif
