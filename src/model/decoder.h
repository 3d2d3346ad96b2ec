/* Incremental decoding: the decoder runs one position at a time, with a key/value cache, so that
 * each new token costs one row. Depends on transformer. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "model/transformer.h"

/* A step computes one position of all live hypotheses, one row each. The keys and values of a row
 * stay where they are in the cache for the whole batch; a hypothesis is a list of cache rows, one
 * for each position, so that hypotheses can share a prefix and end without moving any keys and
 * values. Arrays are in the backend's memory unless noted. */
typedef struct {
  Transformer *t;
  Weights w;
  size_t max_rows; /* of a step */
  void *cache;     /* (capacity, decoder layers, 2d) keys and values */
  size_t written;  /* rows of the cache, in this batch */
  size_t capacity; /* rows that the cache has room for */
  int32_t
      *row_lists[2];  /* (max_rows, max_positions) cache rows: of this step and the last one */
  int32_t *args;      /* (6, rows of the step) arguments of a step, see StepArgs */
  int32_t *host_args; /* the same in host memory; args itself on a CPU */
} Decoder;

/* For steps of at most max_rows hypotheses. */
NODISCARD Err decoder_new(Decoder *d, Transformer *t, Weights w, size_t max_rows);
void decoder_free(Decoder *d);
/* Allocates a cache of `rows` rows at once: batches whose steps write no more allocate nothing.
 * Without it the cache grows as rows are written, and while it grows the old and the new one are
 * there at once. */
NODISCARD Err decoder_reserve(Decoder *d, size_t rows);
/* Bytes of the backend's memory that a decoder takes, with a cache of `rows` rows, beside those of
 * the Transformer. */
uint64_t decoder_bytes(const TransformerConfig *config, const Backend *backend, size_t max_rows,
                       size_t rows);
/* Packs the weights of the GEMMs in `b`, a backend of the caller's own; see backend.h. Call it
 * again when the weights have changed. */
NODISCARD Err decoder_pack(const Decoder *d, Backend *b);
/* Encodes the source sentences, and starts anew. `expected`: rows that all steps together will
 * write, as a guess that saves growing. */
NODISCARD Err decoder_begin(Decoder *d, const int32_t *src, const int32_t *pos,
                            const int32_t *off, size_t sentences, size_t expected);
/* Computes one position of n hypotheses: row i extends row parent[i] of the step before (ignored
 * at position 0) by token word[i], for source sentence sentence[i] of the offsets `off`. Returns
 * the logits (n, vocab) in the backend's memory and type, valid until the next step; a device may
 * still be computing them. */
NODISCARD Err decoder_step(Decoder *d, const int32_t *parent, const int32_t *word,
                           const int32_t *sentence, const int32_t *off, size_t n,
                           size_t position, void **logits);

#endif
