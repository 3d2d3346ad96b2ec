/* What transformer.c (forward) and transformer_back.c share. */
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
void transformer_cross_kv(Transformer *t, Weights w, const void *memory, size_t rows);
/* d_y holds the gradient of the decoder's output. */
void transformer_back(Transformer *t, Weights w, float *g, const Batch *batch, StepKey key,
                      GradReady ready, void *context);

#endif
