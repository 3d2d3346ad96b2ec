/* The decoder one position at a time: keys and values of what was written so far
 * are kept, so each new word costs one row. Relies on transformer. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "model/transformer.h"

/* What a row of a step writes stays where it is for the whole batch; a hypothesis
 * is a list of such rows, one for each position, so that hypotheses may part and
 * end without moving keys and values. All of it lies in the backend's memory. */
typedef struct {
  Transformer *t;
  Weights w;
  size_t most;         /* rows of a step */
  void *cache;         /* (rows, layers, 2d) of the backend's type: keys, values */
  size_t rows, cap;    /* written in this batch, and room for */
  int32_t *list[2];    /* (most, longest) rows of the cache: of this step and the last */
  int32_t *say, *said; /* (6, rows of the step) what the program says of a step; said: as
                          the backend reads it, the same array where it reads ours */
} Decoder;

/* Steps of at most `most` rows. */
NODISCARD Err decoder_new(Decoder *d, Transformer *t, Weights w, size_t most);
void decoder_free(Decoder *d);
/* Takes the memory of `rows` rows, written in all steps of a batch together, at once: no
 * batch that writes no more takes any. Without it memory grows as rows are written, and
 * while it grows the old and the new are there at once. */
NODISCARD Err decoder_reserve(Decoder *d, size_t rows);
/* Bytes of the backend's memory that a decoder has with so many rows reserved, beside the
 * transformer's. */
uint64_t decoder_bytes(const TransformerConfig *config, const Backend *backend, size_t most,
                       size_t rows);
/* Lays the weights of the products out once, in a backend of the caller's own; see
 * backend.h. To be called again when they have changed. */
NODISCARD Err decoder_pack(const Decoder *d, Backend *b);
/* Encodes the source sentences; decoding starts anew. `expected` rows will be written
 * in all steps together; a guess, that saves growing. */
NODISCARD Err decoder_begin(Decoder *d, const int32_t *src, const int32_t *pos,
                            const int32_t *off, size_t sentences, size_t expected);
/* Position `place` for the rows 0 … n-1: row i writes word[i] behind what row
 * parent[i] of the step before has written, for sentence[i] of source offsets `off`;
 * parents count from place 1 on. Gives the logits (n, vocab), in the backend's memory
 * and type, valid until the next step; a device may still be at work on them. */
NODISCARD Err decoder_step(Decoder *d, const int32_t *parent, const int32_t *word,
                           const int32_t *sentence, const int32_t *off, size_t n, size_t place,
                           void **logits);

#endif
