/* The decoder one position at a time: keys and values of what was written so far
 * are kept, so each new word costs one row. Relies on transformer. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "model/transformer.h"

/* `slots` hypotheses, each of at most `longest` positions, over the sentences of
 * one encoded batch. */
typedef struct {
  Transformer *t;
  Weights w;
  size_t slots, longest;
  float **cache;                  /* for each layer (slots, longest, 2d): keys, values */
  float *block;                   /* holds them all */
  int32_t *q_off, *k_off, *k_len; /* of self-attention */
  int32_t *m_off, *m_len;         /* of the encoder's output */
  int32_t *position;
} Decoder;

NODISCARD Err decoder_new(Decoder *d, Transformer *t, Weights w, size_t slots, size_t longest);
void decoder_free(Decoder *d);
/* Encodes the source sentences; decoding starts anew. */
void decoder_begin(Decoder *d, const int32_t *src, const int32_t *pos, const int32_t *off,
                   size_t sentences);
/* One position for the rows 0 … n-1: row i continues the hypothesis in slot[i],
 * which belongs to sentence[i] of source offsets `off`, with word[i]. Gives the
 * logits (n, vocab). */
const float *decoder_step(Decoder *d, const int32_t *slot, const int32_t *sentence,
                          const int32_t *off, const int32_t *word, size_t n, size_t place);
/* Hypothesis `to` becomes a copy of `from`, `length` positions long. */
void decoder_copy(Decoder *d, size_t to, size_t from, size_t length);

#endif
