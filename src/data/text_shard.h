/* Shards of texts; the columns are described in docs/formats.md:
 *   ids      tokens with [CLS] and [SEP]
 *   segment  pairs: number of tokens of the first text, with [CLS] and its [SEP]
 *   label    LABEL_CLASS: number of the class
 *   labels   LABEL_MULTI: numbers of the labels that the text has; number + labels if not known
 *   value-I  LABEL_NUMBER: the I-th value; NaN: not known
 * LABEL_NONE has no column of labels, and no targets.
 * Depends on shard, meta. */
#ifndef DATA_TEXT_SHARD_H
#define DATA_TEXT_SHARD_H

#include "data/meta.h"
#include "data/shard.h"

/* An example for the builder. */
typedef struct {
  const int32_t *ids;
  size_t tokens;
  uint32_t first;     /* tokens of the first text; used for pairs */
  int32_t label;      /* LABEL_CLASS */
  const float *value; /* (labels) otherwise */
} TextExample;

/* Starts an empty shard for a data set with labels and tokenizer as in `meta`. */
NODISCARD Err text_shard_begin(ShardBuilder *b, const Meta *meta);
NODISCARD Err text_shard_add(ShardBuilder *b, const Meta *meta, const TextExample *example);

/* Fails unless the shard has the columns of `meta`, and no other required ones. */
NODISCARD Err text_shard_check(const Shard *s, const Meta *meta);
/* Returns the number of tokens of example i. */
NODISCARD Err text_shard_length(Shard *s, uint64_t i, uint32_t *tokens);
/* Copies the ids of example i. ids: room for `most` tokens. first: tokens of the first text, all if
 * the data set has no pairs. */
NODISCARD Err text_shard_ids(Shard *s, const Meta *meta, uint64_t i, int32_t *ids, size_t most,
                             uint32_t *tokens, uint32_t *first);
/* Returns the number of floats of text_shard_target: 1 for LABEL_CLASS, else the number of labels. */
size_t text_targets(const MetaClassify *c);
/* Writes the labels of example i as Backend.head_loss expects them: the number of the class, or the
 * values of all labels, NaN if not known. target: (text_targets) */
NODISCARD Err text_shard_target(Shard *s, const Meta *meta, uint64_t i, float *target);

#endif
