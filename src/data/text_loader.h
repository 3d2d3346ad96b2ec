/* Fills packed batches from a data set of texts. Which texts form a batch is a pure function of
 * (seed, epoch, number of the batch): see order.h. Depends on dataset, batch (LoaderSpec), text_batch,
 * text_mask. */
#ifndef DATA_TEXT_LOADER_H
#define DATA_TEXT_LOADER_H

#include "data/batch.h"
#include "data/text_batch.h"
#include "data/text_mask.h"

/* A batch with its memory. */
typedef struct {
  TextBatch batch;       /* what a model reads; its arrays are those below */
  uint64_t epoch, index; /* epoch, and number of the batch within the epoch */
  uint32_t capacity;     /* maximum number of tokens */
  uint32_t most_texts;
  size_t targets;                   /* floats of a text in `target` */
  uint64_t *example;                /* (most_texts) number of each text in its split */
  int32_t *id, *position, *segment; /* (capacity) */
  int32_t *off;                     /* (most_texts + 1) */
  float *target;                    /* (most_texts, targets) */
  TextMask mask;                    /* mask.rate 0: tokens are not masked */
  int32_t *masked_at, *masked_id;   /* (capacity) NULL: tokens are not masked */
} TextBuffer;

/* Allocates a batch for texts with the labels of the data set. */
NODISCARD Err text_buffer_new(TextBuffer *b, const DataSet *d, uint32_t capacity,
                              uint32_t most_texts);
/* Masks this share of the tokens of every batch that is filled from now on. The data set has a mask id. */
NODISCARD Err text_buffer_mask(TextBuffer *b, const DataSet *d, double rate);
void text_buffer_free(TextBuffer *b);
/* Fills the batch with batch number `index` (< plan->batches) of the epoch. */
NODISCARD Err text_buffer_fill(TextBuffer *b, DataSet *d, const OrderPlan *plan, uint64_t seed,
                               uint64_t epoch, uint64_t index);
/* Fills the batch with consecutive texts of a split, beginning with number *next, until the next one
 * does not fit; advances *next. A text that does not fit into an empty batch is an error. Masks depend
 * only on the data set, so they are the same in every validation. */
NODISCARD Err text_buffer_fill_from(TextBuffer *b, DataSet *d, Split split, uint64_t *next);

/* Fills batches in a thread of its own before they are used; spec as in batch.h. */
typedef struct TextLoader TextLoader;
NODISCARD Err text_loader_open(TextLoader **loader, DataSet *d, const OrderPlan *plan,
                               const LoaderSpec *spec);
/* Returns the next batch, which stays valid until the next call. Blocks until it is filled. */
NODISCARD Err text_loader_next(TextLoader *loader, const TextBuffer **batch);
void text_loader_close(TextLoader *loader);

#endif
