/* A run of prepare as its steps see it: prepare.c calls them in order, each is one file. Depends on
 * text and the rest of data. */
#ifndef DATA_PREPARE_WORK_H
#define DATA_PREPARE_WORK_H

#include "base/progress.h"
#include "data/manifest.h"
#include "data/prepare_state.h"
#include "data/seen.h"
#include "data/shard.h"

typedef struct Prepare {
  PrepareSpec spec; /* with stand-ins for standard input and generated text */
  PrepareState state;
  Meta *meta;
  Tokenizer tokenizer;
  TextPair generated_train;
  char *path[7]; /* of the stand-ins */
  size_t paths;
  uint64_t most_pairs;              /* that training may have */
  LineIndex *lines;                 /* (2 * trains) of the training text, on several ranks */
  uint64_t input_bytes, lines_done; /* of train; those in finished shards */
  ShardBuilder builder;
  ManifestEntry entry; /* of the shard that is being built */
  size_t
      train_shards; /* finished, recorded or not; the number of the shard that is being built */
  /* Called when the training shard is full: writes and records it. */
  Err (*end_train_shard)(struct Prepare *p);
  void *share; /* RankShards of prepare_shards.h */
  Seen seen;
  Progress progress;
} Prepare;

/* prepare_work.c: this rank's part of the training text through all threads, without a tokenizer. */
PipelineSpec prepare_pipeline(const Prepare *p);
/* prepare_work.c: the error for more training pairs than a window holds. */
NODISCARD Err prepare_too_many_pairs(const Prepare *p);
/* prepare_input.c: makes every input a file that exists, and takes the fingerprint. */
NODISCARD Err prepare_gather(Prepare *p);
/* prepare_input.c: an error if a rank does not see the directory or the training text of rank 0; on
 * other ranks than 0 it takes the place of prepare_gather. */
NODISCARD Err prepare_check_ranks(Prepare *p);
/* prepare_input.c: on several ranks, finds where the lines of the training text begin. */
NODISCARD Err prepare_index_lines(Prepare *p);
void prepare_free_index(Prepare *p);
/* prepare_learn.c: copies, learns or finds the tokenizer, and opens it. */
NODISCARD Err prepare_open_tokenizer(Prepare *p);
/* prepare_encode.c: encodes validation or test text, which may be missing. */
NODISCARD Err prepare_encode_held_out(Prepare *p, Split which, const TextPair *input);

/* A line of training text after cleaning and encoding. */
typedef struct {
  uint32_t text_bytes[2];
  uint16_t tokens[2];
  uint8_t verdict; /* CleanVerdict */
  uint8_t unused[3];
} LineResult;
LineResult prepare_line_result(const PipelineBlock *b, uint32_t k);
/* Does --dedup compare the pair with earlier ones? */
bool prepare_is_compared(const Prepare *p, const LineResult *line);
/* The hash of line k for --dedup. */
NODISCARD Err prepare_hash_line(const PipelineBlock *b, uint32_t k, uint64_t key[2]);
/* Counts a line of the training text and adds a pair that is kept to the shard. Lines must come in
 * order. ids: of the source, then of the target; NULL on a rank that does not write this shard. */
NODISCARD Err prepare_take_line(Prepare *p, uint64_t number, const LineResult *line,
                                const int32_t *ids);
/* Bytes of ids in the training shard that is being built, also if another rank has them. */
uint64_t prepare_open_bytes(const Prepare *p);
/* Writes the shard `entry` and enters its size and hash there; the builder is empty afterwards. */
NODISCARD Err prepare_write_shard(const Prepare *p, ShardBuilder *builder,
                                  ManifestEntry *entry);
/* Appends the line of a shard that is on disk to the manifest. */
NODISCARD Err prepare_record_shard(Prepare *p, const ManifestEntry *entry);
/* Names the training shard that is being built; returns its entry and begins the next. */
ManifestEntry prepare_next_entry(Prepare *p);
/* Before and after all lines were taken. */
NODISCARD Err prepare_begin_train(Prepare *p);
NODISCARD Err prepare_end_train(Prepare *p);

/* prepare_encode.c: encodes the training text into shards, on one process. */
NODISCARD Err prepare_encode_train(Prepare *p);
/* prepare_share.c: the same on several ranks. */
NODISCARD Err prepare_share_train(Prepare *p);

#endif
