/* A packed batch of texts for classifiers and masked language models: the texts are
 * concatenated without padding. A model that needs padded shapes, as on a GPU, makes them
 * itself. Depends on nothing. */
#ifndef DATA_TEXT_BATCH_H
#define DATA_TEXT_BATCH_H

#include <stdint.h>

/* A text is stored as the model reads it: [CLS] a [SEP], or [CLS] a [SEP] b [SEP] for a pair.
 * All arrays are in host memory and belong to the producer of the batch. */
typedef struct {
  uint32_t texts, tokens;
  const int32_t *id;       /* (tokens) */
  const int32_t *position; /* (tokens) position in the text, from 0 */
  const int32_t *segment;  /* (tokens) 0, or 1 in the second text of a pair; may be NULL if the
                            * model has no segment embeddings */
  const int32_t *off;      /* (texts + 1) first token of each text; off[texts] is `tokens` */
  /* What Backend.head_loss expects: (texts) class numbers, negative: no loss; or (texts, labels)
   * values, NaN: no loss. NULL: there are no labels, so the model computes logits but no loss. */
  const float *target;
  /* Masked language models: rows of the masked tokens in increasing order, and their true ids;
   * `id` has the ids after masking. */
  uint32_t masked;
  const int32_t *masked_at, *masked_id; /* (masked) */
} TextBatch;

#endif
