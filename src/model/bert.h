/* BERT, a model family: an encoder with post-norm layers over packed texts (data/text_batch.h) and a
 * head that classifies texts or predicts masked tokens. Depends on model.h, data/text_batch. */
#ifndef MODEL_BERT_H
#define MODEL_BERT_H

#include "data/text_batch.h"
#include "model/bert_params.h"
#include "model/model.h"

/* The current batch. The arrays are in the backend's memory, in one block, which is written on
 * the host and copied at once.
 *
 * A head reads only some rows of the last hidden state, the "picks": the first token of each text, or
 * the masked tokens. On a device tokens, sentences and picks are rounded up, so that few shapes
 * occur. The added tokens form one more sentence; the added picks have index -1 and no loss. */
typedef struct {
  size_t tokens, sentences, picks;
  bool has_target;
  uint64_t *key;                    /* (1) dropout key */
  int32_t *id, *position, *segment; /* (tokens) */
  int32_t *off;                     /* (sentences + 1) first token of each sentence */
  int32_t *pick;                    /* (picks) token that is picked, or -1 */
  int32_t *pick_off;                /* (sentences + 1) first pick of each sentence */
  int32_t *word;                    /* (picks) true id of the masked token, or -1; MLM only */
  float *target;                    /* (picks) or (picks, labels); classifiers only */
} BertBatch;

/* Activations of a layer that backward needs. `rows` is tokens, except in the last layer of a
 * model with a head, which computes only the picks after its keys and values. The void pointers
 * are arrays of the backend's type. */
typedef struct {
  void *
      in; /* (tokens, 3d) queries, keys, values; in a layer of picks (tokens, 2d) keys, values */
  void *q;         /* (rows, d) queries, in a layer of picks only */
  void *out;       /* (rows, d) outputs of all heads, concatenated */
  float *lse;      /* (rows, heads) log-sum-exp of the attention scores */
  void *sum[2];    /* (rows, d) residual sums after attention and after feed-forward */
  void *y[2];      /* (rows, d) normalised sums; y[1] is the output of the layer */
  float *stats[2]; /* (rows, 2) mean and 1 / standard deviation */
  void *up, *act;  /* (rows, ffn_dim) before and after the activation; may be the same array */
  uint8_t *mask;   /* (rows * ffn_dim) bits: mask of ReLU; NULL: backward reads `up` instead */
} BertLayer;

/* Activations of the head, one row for each pick. */
typedef struct {
  void *up, *act; /* (picks, d) before and after the activation of pooler or MLM transform */
  uint8_t *mask;  /* (picks * d) bits: mask of a ReLU pooler */
  void *y;        /* (picks, d) normalised `act`; MLM only */
  float *stats;   /* (picks, 2) mean and 1 / standard deviation; MLM only */
  /* Classifiers: (picks, labels). MLM: (logit_rows, vocab). Backward overwrites them with their
   * gradient. */
  void *logits;
} BertHeadState;

typedef struct {
  Model model; /* must be the first member: Model * is cast to Bert * */
  BertConfig config;
  BertParams at;     /* offsets of the weights in the flat array */
  size_t logit_rows; /* MLM: number of picks whose logits are in memory at once */
  size_t picks_max;  /* largest number of picks and of sentences */
  BertBatch current;
  int32_t *staging; /* host copy of the current batch; NULL if the backend is a host */
  int32_t *block;   /* the block that contains the arrays of `current` */
  bool is_pinned;   /* whether `staging` is page-locked */
  void *embed_sum;  /* (tokens, d) sum of the embeddings */
  void *embed_y;    /* (tokens, d) normalised, with dropout: the input of the first layer */
  float *embed_stats;
  BertLayer *layer;
  void *picked; /* (picks, d) rows of the last layer's input that are picked */
  BertHeadState head;
  float *class_weight;    /* (labels) class weights; classifiers only */
  bool has_class_weights; /* false: all classes have weight 1 */
  /* Working memory. d_ marks gradients. */
  void *branch;      /* (tokens, d) output of the current sublayer */
  void *d_branch;    /* (tokens, d) gradient of `branch` */
  void *d_flow[2];   /* (tokens, d) gradients of a layer norm's output and input, alternating */
  void *d_in, *d_up; /* (tokens, 3d) and (tokens, ffn_dim) gradients of `in` and `up` */
} Bert;

extern const ModelFamily bert_family;

/* Convert between the configuration of BERT and that of any model family. bert_config returns a
 * pointer into `config`, or NULL for a model of another family. */
ModelConfig bert_model_config(const BertConfig *config);
const BertConfig *bert_config(const ModelConfig *config);

/* Sets the class weights of a classifier: `weight` (labels) is in host memory; NULL: no weights.
 * Must not be called after a step was captured as a graph. */
void bert_set_class_weights(Bert *bert, const float *weight);
/* Returns the output of the last model_run without backward, in the backend's memory and type.
 * Classifiers: logits (texts, labels). MLM: logits (masked, vocab) if logit_rows was at least the
 * number of masked tokens, otherwise those of the last chunk. Without a head: the last hidden
 * state (tokens, d). */
const void *bert_output(const Bert *bert);

#endif
