/* How good the model is now: loss on the validation pairs, BLEU on the validation
 * text by beam search. Relies on model, decode, metric, data,
 * comm. */
#ifndef TRAIN_VALIDATE_H
#define TRAIN_VALIDATE_H

#include "comm/comm.h"
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
/* Source rows that it translates at once, beside a training of so many rows. */
size_t validator_rows(const Backend *backend, size_t capacity);
/* Prints the first `samples` translations beside their references. Batches and
 * sentences are shared out over the ranks, each exactly once; every rank gets the
 * result. */
NODISCARD Err validator_run(Validator *v, Comm *comm, int samples, Validation *result);

#endif
