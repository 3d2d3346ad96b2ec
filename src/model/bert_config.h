/* Configuration of the BERT family: BERT, RoBERTa and DistilBERT encoders with a head; and the
 * presets. Depends on backend (for the activation), config. */
#ifndef MODEL_BERT_CONFIG_H
#define MODEL_BERT_CONFIG_H

#include <stdbool.h>

#include "backend/backend.h"
#include "model/config.h"

/* What the model predicts, and its loss.
 *   NONE     no head: the output is the last hidden state of every token
 *   SOFTMAX  one of `labels` classes for each text; cross entropy
 *   SIGMOID  each of `labels` labels is true or false; binary cross entropy
 *   SQUARE   `labels` numbers for each text; squared error
 *   MLM      the true id of each masked token; cross entropy over the vocabulary */
typedef enum {
  BERT_HEAD_NONE,
  BERT_HEAD_SOFTMAX,
  BERT_HEAD_SIGMOID,
  BERT_HEAD_SQUARE,
  BERT_HEAD_MLM
} BertHead;

/* The dense layer between the hidden state of [CLS] and the classifier. TANH: BERT and RoBERTa.
 * RELU: DistilBERT. NONE: the classifier reads the hidden state. An imported masked language model may
 * have one, which its head does not use: classifiers that start from the model do. */
typedef enum { BERT_POOLER_NONE, BERT_POOLER_TANH, BERT_POOLER_RELU } BertPooler;

typedef struct {
  int vocab, d_model, ffn_dim, heads, layers;
  int max_positions;   /* rows of the table of positions */
  int position_offset; /* row of the first position; 2 in RoBERTa, otherwise 0 */
  int segments;        /* rows of the table of segments; 0: no segment embeddings */
  Activation activation;
  BertHead head;
  BertPooler pooler;
  int labels; /* outputs of the classifier; 0 without one */
  /* How texts become ids, so that a model directory is complete; see data/text_encoder.h. */
  int max_tokens;                /* texts are cut to this length; 0: to the positions */
  bool has_pairs;                /* an example is two texts: [CLS] a [SEP] b [SEP] */
  bool is_lower, strips_accents; /* WordPiece: the BertRules */
  /* Embedding and residual dropout are "hidden dropout" in Hugging Face. The classifier dropout
   * is applied to the input of the classifier. */
  float drop_embed, drop_attention, drop_activation, drop_residual, drop_classifier;
  float norm_epsilon;
} BertConfig;

/* The fields of BertConfig in model.json. */
extern const ConfigField bert_fields[];
/* Names of the presets as ModelFamily.presets has them. */
#define BERT_PRESETS "bert-tiny|bert-mini|bert-small|bert-medium|bert-base|bert-large"

/* Sets the sizes and rates of a preset. It leaves the rest alone: vocab, head and labels, which the
 * task determines, and how texts become ids. */
NODISCARD Err bert_preset(BertConfig *config, const char *name);
NODISCARD Err bert_check_config(const BertConfig *config);
/* Returns true if the head reads one hidden state for each text, that of [CLS]. */
bool bert_is_classifier(const BertConfig *config);
/* Returns the length of the longest text in tokens, with [CLS] and [SEP]. */
size_t bert_max_tokens(const BertConfig *config);

#endif
