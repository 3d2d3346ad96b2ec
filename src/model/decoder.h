/* The decoder one position at a time: keys and values of what was written so far
 * are kept, so each new word costs one row. Relies on transformer. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "model/transformer.h"

/* What a row of a step writes stays where it is for the whole batch; a hypothesis
 * is a list of such rows, one for each position, so that hypotheses may part and
 * end without moving keys and values. */
typedef struct {
  Transformer *t;
  Weights w;
  size_t most;            /* rows of a step */
  float *cache;           /* (rows, layers, 2d): keys, values */
  size_t rows, cap;       /* written in this batch, and room for */
  int32_t *m_off, *m_len; /* (most) of the encoder's output */
  int32_t *len, *position;
} Decoder;

/* Steps of at most `most` rows. */
NODISCARD Err decoder_new(Decoder *d, Transformer *t, Weights w, size_t most);
void decoder_free(Decoder *d);
/* Lays the weights of the products out once, in a backend of the caller's own; see
 * backend.h. To be called again when they have changed. */
NODISCARD Err decoder_pack(const Decoder *d, Backend *b);
/* Encodes the source sentences; decoding starts anew. `expected` rows will be written
 * in all steps together; a guess, that saves growing. */
NODISCARD Err decoder_begin(Decoder *d, const int32_t *src, const int32_t *pos,
                            const int32_t *off, size_t sentences, size_t expected);
/* Position `place` for the rows 0 … n-1: row i continues, with word[i], the
 * hypothesis of cache rows path[i][0 … place - 1], which belongs to sentence[i] of
 * source offsets `off`; path[i][place] becomes its new row. Gives the logits
 * (n, vocab), valid until the next step. */
NODISCARD Err decoder_step(Decoder *d, int32_t *const *path, const int32_t *sentence,
                           const int32_t *off, const int32_t *word, size_t n, size_t place,
                           float **logits);

#endif
