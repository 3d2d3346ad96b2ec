/* Incremental decoding: the decoder runs one position at a time and keeps keys and values of
 * earlier positions in a cache. Depends on transformer. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "backend/graphs.h"
#include "model/transformer.h"

/* A step computes one position of all unfinished hypotheses, one row each. A row of keys and
 * values stays at its place in the cache until the batch is complete. A hypothesis is a list of
 * cache rows, one for each position, so that hypotheses can share a prefix, and ending one does
 * not move keys and values. Arrays are in the backend's memory unless noted.
 *
 * All that differs between two steps of the same number of rows is in `args`, so a device runs
 * a step as a CUDA graph, one for each number of rows. The number of hypotheses is rounded up to
 * one of few sizes; a surplus row has no keys, writes nothing to the cache, and nobody reads its
 * results. */
typedef struct {
  Transformer *t;
  Weights w;
  size_t max_rows; /* largest number of hypotheses of a step */
  void *cache;     /* (capacity, decoder layers, 2d) keys and values of each cache row */
  size_t written;  /* rows of the cache that this batch has filled */
  size_t capacity; /* number of rows that the cache can hold */
  /* (2, max_rows, max_positions) cache rows of each hypothesis; even and odd positions alternate
   * between the two halves. */
  int32_t *row_lists;
  int32_t *args;      /* (STEP_ARGS, rows of the step) arguments of a step, see decoder.c */
  int32_t *host_args; /* copy of `args` in host memory; on a CPU the same array */
  GraphCache graphs;
} Decoder;

/* Creates a decoder for steps of at most max_rows hypotheses. */
NODISCARD Err decoder_new(Decoder *d, Transformer *t, Weights w, size_t max_rows);
void decoder_free(Decoder *d);
/* Allocates a cache of `rows` rows, so that batches that write no more rows need no allocation.
 * Without this call the cache grows on demand, and needs memory for the old and the new cache
 * while it is copied. */
NODISCARD Err decoder_reserve(Decoder *d, size_t rows);
/* Returns the bytes of the backend's memory that a decoder with a cache of `rows` rows needs in
 * addition to those of the Transformer. */
uint64_t decoder_bytes(const TransformerConfig *config, const Backend *backend, size_t max_rows,
                       size_t rows);
/* Packs the GEMM weights into `b`, a copy of the backend that the caller owns (Backend.pack in
 * backend.h). Must be called again after the weights have changed. */
NODISCARD Err decoder_pack(const Decoder *d, Backend *b);
/* Starts a batch: empties the cache and encodes the source sentences. `expected`: estimate of
 * the rows that all steps together will write; the cache gets this capacity. */
NODISCARD Err decoder_begin(Decoder *d, const int32_t *src, const int32_t *pos,
                            const int32_t *off, size_t sentences, size_t expected);
/* Computes one position of n hypotheses: row i extends row parent[i] of the previous step
 * (ignored at position 0) by token word[i], and attends to source sentence sentence[i] of the
 * offsets `off`. Returns the logits (n, vocab) in the backend's memory and type, valid until
 * the next step; a device may still be computing them. */
NODISCARD Err decoder_step(Decoder *d, const int32_t *parent, const int32_t *word,
                           const int32_t *sentence, const int32_t *off, size_t n,
                           size_t position, void **logits);

#endif
