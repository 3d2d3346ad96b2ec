/* Forward and backward passes of the Transformer, used by transformer.c and decoder.c.
 *
 * `stack` is 0 for the encoder, 1 for the decoder. A layer has two or three sublayers:
 * self-attention, cross-attention (decoder only), feed-forward. Junction i is the residual add
 * and layer norm before sublayer i; the last junction follows the last sublayer. Arrays are
 * (tokens, …); d is d_model. */
#ifndef MODEL_TRANSFORMER_INTERNAL_H
#define MODEL_TRANSFORMER_INTERNAL_H

#include "model/transformer.h"

/* Places at which dropout is applied. Each has its own masks in each layer. Sites 0 to 2 are
 * the outputs of the sublayers. */
enum { SITE_SELF_ATTENTION = 8, SITE_CROSS_ATTENTION, SITE_ACTIVATION, SITE_EMBEDDING };
#define EMBEDDING_LAYER 255 /* layer number that SITE_EMBEDDING uses */
Dropout transformer_dropout(const Transformer *t, StepKey key, float rate, int stack, int layer,
                            int site);
/* Returns the layer norm of a junction (residual add and layer norm; see StackState). */
const NormParams *transformer_norm(const Transformer *t, int stack, int junction);
/* Fill in the arguments of the backend's attention. `off` (sentences + 1): first token of each
 * sentence. */
Attention transformer_self_attention(const Transformer *t, int stack, int layer,
                                     const int32_t *off, size_t sentences, StepKey key);
Attention transformer_cross_attention(const Transformer *t, int layer, const int32_t *q_off,
                                      const int32_t *k_off, size_t sentences, StepKey key);
/* Returns the address of element n of an array of the backend's type. Casts away const, like
 * memchr: the caller must not write to a const array. */
void *transformer_element(const Transformer *t, const void *array, size_t n);
/* Returns a weight in the type that GEMMs read, or NULL if offset is PARAM_NONE. */
const void *transformer_weight(const Transformer *t, Weights w, size_t offset);
/* Functions shared by the forward pass over whole sentences and by decoder.c, which decodes one
 * position at a time. A sublayer (attention or FFN) reads y and writes t->branch;
 * transformer_add_norm then adds t->branch to the residual and applies the layer norm. */
void transformer_embed(Transformer *t, Weights w, int stack, const int32_t *id,
                       const int32_t *pos, size_t tokens, StepKey key);
void transformer_add_norm(Transformer *t, Weights w, int stack, int junction, size_t tokens,
                          StepKey key);
void transformer_ffn(Transformer *t, Weights w, int stack, int layer, const void *y,
                     size_t tokens, StepKey key);
/* Runs the encoder and returns its output (tokens, d). `tokens` must equal off[sentences],
 * which the host cannot read if `off` is in device memory. */
const void *transformer_encode(Transformer *t, Weights w, const int32_t *src,
                               const int32_t *pos, const int32_t *off, size_t sentences,
                               size_t tokens, StepKey key);
/* Computes the cross-attention keys and values of all decoder layers from the encoder's output
 * `memory`. */
void transformer_cross_kv(Transformer *t, Weights w, const void *memory, size_t tokens);
/* Runs the decoder over whole sentences and returns its output (tokens, d). */
const void *transformer_decode(Transformer *t, Weights w, const Batch *batch, StepKey key);
/* Adds the loss of the decoder's output y to model.sums. Unless g is NULL, also computes the
 * gradient of the output weights in g and the gradient of y in d_y. */
void transformer_loss(Transformer *t, Weights w, float *g, const void *y, const Batch *batch,
                      const ModelPass *pass);

/* Runs backward of decoder and encoder. On entry d_y holds the gradient of the decoder's
 * output. */
void transformer_backward(Transformer *t, Weights w, float *g, const Batch *batch, StepKey key,
                          const ModelPass *pass);
/* Calls `ready` with the same ranges and in the same order as transformer_backward. */
void transformer_announce(const Transformer *t, GradReady ready, void *context);

#endif
