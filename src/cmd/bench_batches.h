/* The batches of `bench train`: sentence pairs for a translator, texts for a BERT classifier. They
 * have the lengths listed in a file and random token ids, and are packed as `train` packs them.
 * Depends on data/batch, data/order, data/text_batch, model. */
#ifndef CMD_BENCH_BATCHES_H
#define CMD_BENCH_BATCHES_H

#include "cmd/bench.h"
#include "data/batch.h"
#include "data/text_batch.h"
#include "model/model.h"

#define BENCH_BATCHES 32 /* largest number of batches; steps use them in turn */

typedef struct {
  const void *data;   /* what the model reads: Batch or TextBatch */
  uint32_t tokens[2]; /* source and target tokens; of texts only the first */
  uint32_t examples;  /* sentence pairs or texts */
  uint32_t predictions;
} BenchBatch;

typedef struct {
  const char *preset;
  const char *path;  /* file of lengths */
  int vocab;         /* size of the vocabulary */
  uint32_t capacity; /* tokens of a batch, on each side */
  size_t count;      /* number of batches, at most BENCH_BATCHES */
} BenchBatchSpec;

typedef struct {
  ModelConfig config; /* the preset's model, for the longest sentence or text */
  OrderPlan plan;
  BenchBatch batch[BENCH_BATCHES];
  size_t count;
  /* Members that bench_batches.c uses: */
  Lengths lengths;
  Order order;
  Batch pairs[BENCH_BATCHES];
  TextBatch texts[BENCH_BATCHES];
  int32_t *ints[BENCH_BATCHES]; /* the arrays of texts[i] */
  uint64_t *number;             /* (plan.most_sentences) numbers of the texts in a batch */
} BenchBatches;

/* Returns true if the preset is that of a classifier, whose file has one length per line. */
bool bench_has_texts(const ModelConfig *config);
/* Fills in the model of a preset as bench train measures it: a classifier has 3 classes. */
NODISCARD Err bench_configure(ModelConfig *config, const char *preset, int vocab);
/* Reads the lengths and creates the batches. After an error the caller closes them too. */
NODISCARD Err bench_batches_open(BenchBatches *b, const BenchBatchSpec *spec);
void bench_batches_close(BenchBatches *b);

#endif
