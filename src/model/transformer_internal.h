/* What transformer.c (forward) and transformer_back.c share. */
#ifndef MODEL_TRANSFORMER_INTERNAL_H
#define MODEL_TRANSFORMER_INTERNAL_H

#include "model/transformer.h"

Dropout dropout_at(StepKey key, float rate, int stack, int layer, int what);
const NormParams *norm_at(const Transformer *t, int which, int junction);
Attention self_attention(const Transformer *t, int which, int layer, const int32_t *off,
                         size_t sentences, StepKey key);
Attention cross_attention(const Transformer *t, int layer, const int32_t *q_off,
                          const int32_t *k_off, size_t sentences, StepKey key);
/* w + offset, or NULL for a weight the model does not have. */
const float *weight(const float *w, size_t offset);
/* Sublayers and what lies between them, for whole batches and single positions. */
void embed_into(Transformer *t, const float *w, int which, const int32_t *id,
                const int32_t *pos, size_t rows, StepKey key);
void cross_junction(Transformer *t, const float *w, int which, int junction, size_t rows,
                    StepKey key);
void feed_sublayer(Transformer *t, const float *w, int which, int layer, const float *y,
                   size_t rows, StepKey key);
void transformer_cross_kv(Transformer *t, const float *w, const float *memory, size_t rows);
/* d_y holds the gradient of the decoder's output. */
void transformer_back(Transformer *t, const float *w, float *g, const Batch *batch, StepKey key,
                      GradReady ready, void *context);

#endif
