/* A run of prepare as its steps see it: prepare.c calls them in order, each is one file. Depends on
 * text and the rest of data. */
#ifndef DATA_PREPARE_WORK_H
#define DATA_PREPARE_WORK_H

#include "base/progress.h"
#include "data/manifest.h"
#include "data/prepare_state.h"
#include "data/seen.h"
#include "data/shard.h"

typedef struct {
  PrepareSpec spec; /* with stand-ins for standard input and generated text */
  PrepareState state;
  Meta *meta;
  Tokenizer tokenizer;
  TextPair generated_train;
  char *path[7]; /* of the stand-ins */
  size_t paths;
  uint64_t most_pairs;              /* that training may have */
  uint64_t input_bytes, lines_done; /* of train; those in finished shards */
  ShardBuilder builder;
  ManifestEntry entry; /* of the shard that is being built */
  Seen seen;
  Progress progress;
} Prepare;

/* prepare_work.c: the training text through all threads, without a tokenizer. */
PipelineSpec prepare_pipeline(const Prepare *p);
/* prepare_work.c: the error for more training pairs than a window holds. */
NODISCARD Err prepare_too_many_pairs(const Prepare *p);
/* prepare_input.c: makes every input a file that exists, and takes the fingerprint. */
NODISCARD Err prepare_gather(Prepare *p);
/* prepare_learn.c: copies, learns or finds the tokenizer, and opens it. */
NODISCARD Err prepare_open_tokenizer(Prepare *p);
/* prepare_encode.c: encodes validation or test text, which may be missing. */
NODISCARD Err prepare_encode_held_out(Prepare *p, Split which, const TextPair *input);
/* prepare_encode.c: encodes the training text into shards. */
NODISCARD Err prepare_encode_train(Prepare *p);

#endif
