/* A packed batch: sentences are concatenated without padding, up to `capacity` tokens per side,
 * with the offset of each sentence. Depends on dataset. */
#ifndef DATA_BATCH_H
#define DATA_BATCH_H

#include "data/dataset.h"

/* `padded` is a multiple of this unit, or of a smaller power of two if the batch is small */
#define BATCH_UNIT 256

typedef struct {
  uint64_t epoch, index; /* epoch, and number of the batch within the epoch */
  uint32_t capacity, sentences, most_sentences;
  uint32_t rows[2]; /* source and target tokens; the rest of the capacity is padding */
  /* tokens that a GPU processes: `rows` rounded up, so that few shapes occur */
  uint32_t padded[2];
  uint64_t *key;    /* (1) dropout key, copied to the device with the batch */
  int32_t *src;     /* (capacity) source ids, each sentence with eos at its end */
  int32_t *src_pos; /* (capacity) position in the sentence, from 0 */
  int32_t *tgt_in;  /* (capacity) bos, then the target ids */
  int32_t *tgt_out; /* (capacity) the target ids, then eos; -1 in the padding */
  int32_t *tgt_pos; /* (capacity) position in the target sentence, from 0 */
  /* (most_sentences + 2) first token of each source sentence; see batch_pad */
  int32_t *src_off;
  int32_t *tgt_off; /* (most_sentences + 2) first token of each target sentence */
  uint64_t *pair;   /* (sentences) number of each pair in the training set */
  int32_t *memory_; /* the allocation that contains all arrays of the batch */
} Batch;

/* Allocates a batch of `capacity` tokens per side and at most `sentences` sentences. */
NODISCARD Err batch_new(Batch *b, uint32_t capacity, uint32_t sentences);
void batch_free(Batch *b);
/* The arrays that a model reads (all except `pair`) are one block, which is copied to a device at
 * once. batch_ints returns the size of the block in int32 elements. batch_at sets the array
 * pointers to a copy of the block at `block`. */
size_t batch_ints(size_t capacity, size_t sentences);
void batch_at(Batch *b, int32_t *block);
/* Pads the batch after all sentences were appended: fills the rest of the capacity with padding
 * and sets `padded`. In the offsets the padding up to `padded` is one more sentence, followed by
 * empty sentences up to most_sentences + 1. */
void batch_pad(Batch *b, int32_t pad);
/* Fills the batch with batch number `index` of the epoch. */
NODISCARD Err batch_fill(Batch *b, DataSet *d, const OrderPlan *plan, uint64_t seed,
                         uint64_t epoch, uint64_t index);

/* Fills the batch with consecutive pairs of a split, beginning with pair *next, until the next
 * pair does not fit; advances *next. A pair that does not fit into an empty batch is an error. */
NODISCARD Err batch_fill_from(Batch *b, DataSet *d, Split split, uint64_t *next);

/* Describes a thread that fills batches before they are used. Micro-batches are numbered through
 * all epochs, and a training step uses `group` consecutive ones. Of each group the loader returns
 * the micro-batches begin, begin + stride, … below end (stride 0 means 1). It starts with the
 * group of step `step`. */
typedef struct {
  uint64_t seed, step;
  uint32_t group, begin, end, stride;
  double mask_rate; /* masked language models: share of masked tokens; 0: no masking */
} LoaderSpec;
/* Returns the micro-batch number of the n-th batch that a loader returns. */
uint64_t loader_number(const LoaderSpec *spec, uint64_t n);
typedef struct Loader Loader;
NODISCARD Err loader_open(Loader **loader, DataSet *d, const OrderPlan *plan,
                          const LoaderSpec *spec);
/* Returns the next batch, which stays valid until the next call. Blocks until the batch is
 * filled. */
NODISCARD Err loader_next(Loader *loader, const Batch **batch);
void loader_close(Loader *loader);

#endif
