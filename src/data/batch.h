/* A packed batch: sentences end to end in `capacity` rows a side, no padding
 * between them, with the offsets at which they begin. Depends on dataset. */
#ifndef DATA_BATCH_H
#define DATA_BATCH_H

#include "data/dataset.h"

#define BATCH_UNIT 256 /* `padded` is a multiple of it; of less if the batch is small */

typedef struct {
  uint64_t epoch, index; /* which batch this is */
  uint32_t capacity, sentences, most_sentences;
  uint32_t rows[2]; /* source and target tokens; the rest of the capacity is padding */
  uint32_t
      padded[2];    /* tokens that a GPU processes: rows rounded up, so that few shapes occur */
  uint64_t *key;    /* (1) key of dropout, copied to the device with the batch */
  int32_t *src;     /* (capacity) source ids, each sentence with eos at its end */
  int32_t *src_pos; /* (capacity) position in the sentence, from 0 */
  int32_t *tgt_in;  /* (capacity) bos, then the target ids */
  int32_t *tgt_out; /* (capacity) the target ids, then eos; -1 in the padding */
  int32_t *tgt_pos; /* (capacity) */
  int32_t *src_off; /* (most_sentences + 2) first token of each sentence; see batch_pad */
  int32_t *tgt_off; /* (most_sentences + 2) */
  uint64_t *pair;   /* (sentences) number in the training set */
  int32_t *memory_; /* the allocation that contains all these arrays */
} Batch;

/* Allocates a batch of `capacity` tokens per side and at most `sentences` sentences. */
NODISCARD Err batch_new(Batch *b, uint32_t capacity, uint32_t sentences);
void batch_free(Batch *b);
/* The arrays that a model reads (all but `pair`) are one block, copied to a device in one piece.
 * batch_ints: its size in int32. batch_at: sets the array pointers to those of a copy at `block`. */
size_t batch_ints(size_t capacity, size_t sentences);
void batch_at(Batch *b, int32_t *block);
/* Call it when the sentences are copied: fills the rest of the capacity with padding and sets
 * `padded`. The padding up to `padded` becomes one more sentence in the offsets, followed by empty
 * ones up to most_sentences + 1. */
void batch_pad(Batch *b, int32_t pad);
/* Fills the batch with batch number `index` of the epoch. */
NODISCARD Err batch_fill(Batch *b, DataSet *d, const OrderPlan *plan, uint64_t seed,
                         uint64_t epoch, uint64_t index);

/* Fills the batch with as many pairs of a split as fit, in order from pair *next on, and advances
 * *next. A pair that does not fit into an empty batch is an error. */
NODISCARD Err batch_fill_from(Batch *b, DataSet *d, Split split, uint64_t *next);

/* A thread that fills batches ahead of their use. Micro-batches are numbered through all epochs; a
 * step uses a group of `group` of them. Of each group the loader returns numbers begin,
 * begin + stride, … below end (stride 0 means 1), starting with the group of step `step`. */
typedef struct {
  uint64_t seed, step;
  uint32_t group, begin, end, stride;
} LoaderSpec;
typedef struct Loader Loader;
NODISCARD Err loader_open(Loader **loader, DataSet *d, const OrderPlan *plan,
                          const LoaderSpec *spec);
/* Returns the next batch, valid until the next call; blocks until it is filled. */
NODISCARD Err loader_next(Loader *loader, const Batch **batch);
void loader_close(Loader *loader);

#endif
