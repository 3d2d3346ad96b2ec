/* Offsets of the weights of a BERT model in the flat array. Depends on params, bert_config.
 *
 * Names and shapes, in the order of the array, with the names of Hugging Face (after "bert.",
 * "embeddings." is E, "encoder.layer.N." is L). d is d_model.
 *
 *   embed.tokens                (vocab, d)          E word_embeddings.weight
 *   embed.positions             (max_positions, d)  E position_embeddings.weight
 *   embed.segments              (segments, d)       E token_type_embeddings.weight; if any
 *   embed.norm.gain, .bias      (d)                 E LayerNorm.weight, .bias
 *   layer.N.attention.in.weight (3d, d)             L attention.self.{query,key,value}.weight
 *   layer.N.attention.in.bias   (3d)                L attention.self.{query,key,value}.bias
 *   layer.N.attention.out.weight, .bias (d, d), (d) L attention.output.dense
 *   layer.N.attention.norm.gain, .bias  (d)         L attention.output.LayerNorm
 *   layer.N.feed.up.weight, .bias     (ffn, d), (ffn)  L intermediate.dense
 *   layer.N.feed.down.weight, .bias   (d, ffn), (d)    L output.dense
 *   layer.N.feed.norm.gain, .bias     (d)              L output.LayerNorm
 *   pooler.weight, .bias        (d, d), (d)         pooler.dense; RoBERTa: classifier.dense;
 *                                                   DistilBERT: pre_classifier
 *   classifier.weight, .bias    (labels, d), (labels)  classifier; RoBERTa: classifier.out_proj
 *   mlm.transform.weight, .bias (d, d), (d)         cls.predictions.transform.dense
 *   mlm.norm.gain, .bias        (d)                 cls.predictions.transform.LayerNorm
 *   mlm.bias                    (vocab)             cls.predictions.bias; the decoder's weights
 *                                                   are embed.tokens */
#ifndef MODEL_BERT_PARAMS_H
#define MODEL_BERT_PARAMS_H

#include "model/bert_config.h"
#include "model/params.h"

/* A matrix and its bias. */
typedef struct {
  size_t weight, bias;
} BertLinear;
typedef struct {
  size_t gain, bias;
} BertNorm;
typedef struct {
  BertLinear in; /* queries, keys, values (3d, d) */
  BertLinear out, up, down;
  BertNorm norm[2]; /* after the attention and after the feed-forward sublayer */
} BertLayerParams;

/* Offset PARAM_NONE: the model does not have the weight. */
typedef struct {
  size_t tokens, positions, segments;
  BertNorm embed_norm;
  BertLayerParams *layer;
  size_t head;              /* where the weights after the last layer begin */
  BertLinear pooler;        /* the pooler */
  BertLinear classifier;    /* (labels, d) */
  BertLinear mlm_transform; /* (d, d) */
  BertNorm mlm_norm;
  size_t mlm_bias;
} BertParams;

/* Adds all weights to `p`, which must be empty, and stores their offsets in `at`. After an
 * error there is nothing to free. */
NODISCARD Err bert_lay_out(BertParams *at, Params *p, const BertConfig *config);
void bert_params_free(BertParams *at);

#endif
