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
/* Reads the text and shares it out over the ranks; takes no memory of a device. longest:
 * the model's. */
NODISCARD Err validator_new(Validator **v, DataSet *data, const Tokenizer *tokenizer,
                            size_t longest, const BeamSpec *spec, const Comm *comm);
void validator_free(Validator *v);
/* Bytes of the backend's memory that validator_begin will take on this rank, beside a
 * training of `capacity` rows. */
NODISCARD Err validator_bytes(const Validator *v, const TransformerConfig *config,
                              const Backend *backend, size_t capacity, uint64_t *bytes);
/* Takes all the memory that validations will need. `model` is the one in training, whose
 * memory serves for the loss. */
NODISCARD Err validator_begin(Validator *v, Model *model, Weights w);
/* Of a validator that has begun. Prints the first `samples` translations beside their
 * references. Batches and sentences are shared out over the ranks, each exactly once;
 * every rank gets the result. ERR_STOPPED on every rank: one of them was asked to stop. */
NODISCARD Err validator_run(Validator *v, Comm *comm, int samples, Validation *result);

#endif
