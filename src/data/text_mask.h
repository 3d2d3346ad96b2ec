/* Masks tokens for a masked language model, by BERT's rule: a share of the tokens is chosen; of these
 * 80 % become [MASK], 10 % a random token, and 10 % stay as they are. The model predicts the true ids
 * of the chosen tokens. Which tokens are chosen is a pure function of (key, number of the text, position
 * in the text), so it does not depend on ranks, batches or a restart. Depends on meta, base/rng. */
#ifndef DATA_TEXT_MASK_H
#define DATA_TEXT_MASK_H

#include "data/meta.h"

#define TEXT_SPECIAL 5 /* [PAD], [UNK], [CLS], [SEP], [MASK] */

typedef struct {
  double rate;   /* share of the tokens that are chosen; 0: no masking */
  int32_t vocab; /* number of pieces */
  int32_t mask;  /* id of [MASK] */
  int32_t special
      [TEXT_SPECIAL]; /* ids that are never chosen; -1: the tokenizer has no such piece */
} TextMask;

/* Sets up masking for the data set of `meta`, which has a mask id. */
void text_mask_begin(TextMask *m, const Meta *meta, double rate);
/* Returns true if a token with this id is never chosen. */
bool text_mask_is_special(const TextMask *m, int32_t id);
/* Returns the key of the masks of an epoch. */
uint64_t text_mask_key(uint64_t seed, Split split, uint64_t epoch);

/* The text to mask. */
typedef struct {
  uint64_t number; /* number of the text in its split */
  int32_t *id;     /* (tokens) changed */
  uint32_t tokens;
  int32_t row; /* row of the text's first token in the batch */
} MaskedText;

/* Masks a text: writes the rows of the chosen tokens, in increasing order, and their true ids to `at`
 * and `true_id` (text->tokens). Returns their number: at least 1, unless all tokens are special. */
uint32_t text_mask_apply(const TextMask *m, uint64_t key, const MaskedText *text, int32_t *at,
                         int32_t *true_id);

#endif
