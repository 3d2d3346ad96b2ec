/* A packed batch: sentences end to end in `capacity` rows a side, no padding
 * between them, offsets to tell them apart. Depends on dataset. */
#ifndef DATA_BATCH_H
#define DATA_BATCH_H

#include "data/dataset.h"

#define BATCH_UNIT 256 /* `padded` is a multiple of it, or of less where the batch is small */

typedef struct {
  uint64_t epoch, index; /* which batch this is */
  uint32_t capacity, sentences, most_sentences;
  uint32_t rows[2];   /* real rows: source, target; the rest of the rows is fill */
  uint32_t padded[2]; /* rows for a device: with some of the fill, so that few numbers occur */
  uint64_t *key;      /* (1) room for the key of dropout, which travels with the batch */
  int32_t *src;       /* (capacity) source ids, each sentence closed by eos */
  int32_t *src_pos;   /* (capacity) place in the sentence, from 0 */
  int32_t *tgt_in;    /* (capacity) bos, then the target ids */
  int32_t *tgt_out;   /* (capacity) the target ids, then eos; -1 in the fill */
  int32_t *tgt_pos;   /* (capacity) */
  int32_t *src_off;   /* (most_sentences + 2) first row of each sentence; see batch_pad */
  int32_t *tgt_off;   /* (most_sentences + 2) */
  uint64_t *pair;     /* (sentences) number in the training set */
  int32_t *memory_;   /* one block holds all the arrays */
} Batch;

/* Room for `capacity` rows a side and `sentences` sentences. */
NODISCARD Err batch_new(Batch *b, uint32_t capacity, uint32_t sentences);
void batch_free(Batch *b);
/* The block's part that a model reads, all but `pair`: its int32s, and the same
 * arrays in a copy of it elsewhere. */
size_t batch_ints(size_t capacity, size_t sentences);
void batch_at(Batch *b, int32_t *block);
/* When its sentences are in: fills the rest of the rows, and settles `padded`. Behind
 * the sentences the offsets then name one more, the rows of the fill that belong to
 * `padded`, and empty ones up to most_sentences + 1. */
void batch_pad(Batch *b, int32_t pad);
/* Fills it with batch `index` of the epoch. */
NODISCARD Err batch_fill(Batch *b, DataSet *d, const OrderPlan *plan, uint64_t seed,
                         uint64_t epoch, uint64_t index);

/* Fills it with the pairs of a split from *next on, in order, as many as fit, and
 * moves *next behind them. A pair that does not fit an empty batch is an error. */
NODISCARD Err batch_fill_from(Batch *b, DataSet *d, Split split, uint64_t *next);

/* A thread that fills batches ahead of their use. Micro-batches are numbered
 * through all epochs; of each `group` of them this loader gives every `stride`-th
 * (0 is 1) from `begin` to `end`, starting with group `step`. */
typedef struct {
  uint64_t seed, step;
  uint32_t group, begin, end, stride;
} LoaderSpec;
typedef struct Loader Loader;
NODISCARD Err loader_open(Loader **loader, DataSet *d, const OrderPlan *plan,
                          const LoaderSpec *spec);
/* The next batch; it stays valid until the next call. */
NODISCARD Err loader_next(Loader *loader, const Batch **batch);
void loader_close(Loader *loader);

#endif
