/* Parts of the BERT family that its files share: forward and backward passes and the head.
 * Depends on bert.h. */
#ifndef MODEL_BERT_INTERNAL_H
#define MODEL_BERT_INTERNAL_H

#include "model/bert.h"

/* Places at which dropout is applied. Each has its own masks in each layer. */
enum {
  BERT_SITE_ATTENTION, /* attention probabilities */
  BERT_SITE_SUBLAYER,  /* output of the attention sublayer; + 1: of the feed-forward sublayer */
  BERT_SITE_ACTIVATION = 3,
  BERT_SITE_EMBEDDING,  /* of layer BERT_NO_LAYER */
  BERT_SITE_CLASSIFIER, /* of layer BERT_NO_LAYER */
};
#define BERT_NO_LAYER 255
Dropout bert_dropout(const Bert *m, float rate, int layer, int site);
/* Returns the address of element n of an array of the backend's type. Casts away const, like
 * memchr: the caller must not write to a const array. */
void *bert_element(const Bert *m, const void *array, size_t n);
/* Returns a weight in the type that GEMMs read. */
const void *bert_weight(const Bert *m, Weights w, size_t offset);
/* y (rows, out) = x (rows, in) · weightᵀ + bias. */
void bert_linear(const Bert *m, Weights w, void *y, const void *x, BertLinear p, size_t rows,
                 size_t in, size_t out);

/* Returns true if the layer computes only the picks after its keys and values: the last layer
 * of a model with a head. */
bool bert_is_pick_layer(const Bert *m, int layer);
/* Returns the number of rows that the layer computes: tokens or picks. */
size_t bert_layer_rows(const Bert *m, int layer);
/* Returns the input of a layer (tokens, d). */
const void *bert_layer_input(const Bert *m, int layer);
/* Arguments of the attention of a layer. */
Attention bert_attention(const Bert *m, int layer);
/* Arguments of the layer norm after sublayer 0 (attention) or 1 (feed-forward). */
AddNorm bert_add_norm(const Bert *m, int layer, int sublayer);

/* Writes the batch to the block of arrays and sets m->current. */
void bert_load_batch(Bert *m, const TextBatch *batch, uint64_t key);
/* Returns the size of the block in int32 elements. */
size_t bert_batch_ints(const Bert *m);
/* Returns the number of terms of the loss in a batch. */
uint64_t bert_count_predictions(const BertConfig *config, const TextBatch *batch);

/* Runs the encoder. The output is y[1] of the last layer. */
void bert_encode(Bert *m, Weights w);
/* Runs the head and adds the loss to model.sums if the batch has targets. Unless g is NULL, also
 * runs backward of the head: writes the gradients of its weights to g, and the gradient of the
 * last layer's output to d_flow[0]. MLM needs this at once, because only a part of the logits is
 * in memory. */
void bert_run_head(Bert *m, Weights w, float *g, const ModelPass *pass);
/* Runs backward of the encoder. On entry d_flow[0] holds the gradient of its output. */
void bert_encode_backward(Bert *m, Weights w, float *g, const ModelPass *pass);
/* Clears the gradients that backward does not overwrite: embeddings and padding. */
void bert_clear_grads(const Bert *m, float *g);
/* Reports the gradients of the head. */
void bert_report_head(const Bert *m, GradReady ready, void *context);
/* Reports the same ranges, in the same order, as backward of head and encoder. */
void bert_announce(const Bert *m, GradReady ready, void *context);

#endif
