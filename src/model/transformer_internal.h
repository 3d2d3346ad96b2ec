/* The passes of the Transformer, for transformer.c and decoder.c: transformer_backward.c calls
 * transformer_forward.c, which calls neither. */
#ifndef MODEL_TRANSFORMER_INTERNAL_H
#define MODEL_TRANSFORMER_INTERNAL_H

#include "model/transformer.h"

Dropout dropout_at(const Transformer *t, StepKey key, float rate, int stack, int layer,
                   int what);
const NormParams *norm_at(const Transformer *t, int which, int junction);
Attention self_attention(const Transformer *t, int which, int layer, const int32_t *off,
                         size_t sentences, StepKey key);
Attention cross_attention(const Transformer *t, int layer, const int32_t *q_off,
                          const int32_t *k_off, size_t sentences, StepKey key);
/* Element n of an array of the backend's type. Like memchr, it takes a const array
 * and leaves it to the caller to keep it so. */
void *element(const Transformer *t, const void *array, size_t n);
/* What products read of a weight, or NULL for one the model does not have. */
const void *weight(const Transformer *t, Weights w, size_t offset);
/* Sublayers and what lies between them, for whole batches and single positions. */
void embed_into(Transformer *t, Weights w, int which, const int32_t *id, const int32_t *pos,
                size_t rows, StepKey key);
void cross_junction(Transformer *t, Weights w, int which, int junction, size_t rows,
                    StepKey key);
void feed_sublayer(Transformer *t, Weights w, int which, int layer, const void *y, size_t rows,
                   StepKey key);
/* Runs the encoder and returns its output (rows, d). `rows` is off's last element, which the
 * program cannot read where it lies on a device. */
const void *transformer_encode(Transformer *t, Weights w, const int32_t *src,
                               const int32_t *pos, const int32_t *off, size_t sentences,
                               size_t rows, StepKey key);
/* Keys and values of every decoder layer, of the encoder's output. */
void transformer_cross_kv(Transformer *t, Weights w, const void *memory, size_t rows);
/* Runs the decoder over whole sentences and returns its output (rows, d). */
const void *transformer_decode(Transformer *t, Weights w, const Batch *batch, StepKey key);
/* Adds the loss of the decoder's output y to model.sums. With g also computes the gradients of
 * the output weights, and of y into d_y. */
void transformer_loss(Transformer *t, Weights w, float *g, const void *y, const Batch *batch,
                      const ModelPass *pass);

/* d_y holds the gradient of the decoder's output. */
void transformer_backward(Transformer *t, Weights w, float *g, const Batch *batch, StepKey key,
                          const ModelPass *pass);
/* Calls `ready` as transformer_backward does: the same ranges in the same order. */
void transformer_announce(const Transformer *t, GradReady ready, void *context);

#endif
