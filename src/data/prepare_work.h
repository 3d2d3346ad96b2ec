/* The state of a prepare run that its steps share: prepare.c calls them in order, and each step
 * is one file. Depends on text and the rest of data. */
#ifndef DATA_PREPARE_WORK_H
#define DATA_PREPARE_WORK_H

#include "base/progress.h"
#include "data/manifest.h"
#include "data/prepare_state.h"
#include "data/seen.h"
#include "data/shard.h"

typedef struct Prepare {
  /* options; paths of standard input and generated text are replaced by files in OUT.partial */
  PrepareSpec spec;
  PrepareState state;
  Meta *meta;
  Tokenizer tokenizer;
  TextPair generated_train;
  char *path[7]; /* paths of the files that replace standard input and generated text */
  size_t paths;
  uint64_t most_pairs; /* maximum number of training pairs */
  /* (2 * trains) line index of each training file, with several ranks */
  LineIndex *lines;
  /* bytes of the training text; lines that are in finished shards */
  uint64_t input_bytes, lines_done;
  ShardBuilder builder;
  ManifestEntry entry; /* manifest entry of the shard that is being built */
  /* number of finished shards, whether or not in the manifest; also the number of the shard
   * that is being built */
  size_t train_shards;
  /* Called when the training shard is full: writes it and adds it to the manifest. */
  Err (*end_train_shard)(struct Prepare *p);
  void *share; /* the RankShards of prepare_shards.h, with several ranks */
  Seen seen;
  Progress progress;
} Prepare;

/* prepare_work.c: describes the pipeline for this rank's part of the training text, on all
 * threads, without a tokenizer. */
PipelineSpec prepare_pipeline(const Prepare *p);
/* prepare_work.c: returns the error for more training pairs than a window can hold. */
NODISCARD Err prepare_too_many_pairs(const Prepare *p);
/* prepare_input.c: ensures that every input is a file that exists, and computes the
 * fingerprint. */
NODISCARD Err prepare_gather(Prepare *p);
/* prepare_input.c: fails if a rank does not see the directory or the training text of rank 0. On
 * other ranks than 0 it replaces prepare_gather. */
NODISCARD Err prepare_check_ranks(Prepare *p);
/* prepare_input.c: with several ranks, builds the line index of the training text. */
NODISCARD Err prepare_index_lines(Prepare *p);
void prepare_free_index(Prepare *p);
/* prepare_learn.c: copies the given tokenizer, reuses that of a stopped run, or trains one; then
 * opens it. */
NODISCARD Err prepare_open_tokenizer(Prepare *p);
/* prepare_encode.c: encodes validation or test text. Does nothing if there is no such text. */
NODISCARD Err prepare_encode_held_out(Prepare *p, Split which, const TextPair *input);

/* The result of cleaning and encoding a line of training text. */
typedef struct {
  uint32_t text_bytes[2];
  uint16_t tokens[2];
  uint8_t verdict; /* the CleanVerdict of the line */
  uint8_t unused[3];
} LineResult;
LineResult prepare_line_result(const PipelineBlock *b, uint32_t k);
/* Returns true if --dedup compares this pair with earlier ones. */
bool prepare_is_compared(const Prepare *p, const LineResult *line);
/* Computes the hash of line k for --dedup. */
NODISCARD Err prepare_hash_line(const PipelineBlock *b, uint32_t k, uint64_t key[2]);
/* Counts a line of the training text and, if the pair is kept, adds it to the shard. Call it in
 * the order of the lines. ids: source ids, then target ids; NULL on a rank that does not write
 * this shard. */
NODISCARD Err prepare_take_line(Prepare *p, uint64_t number, const LineResult *line,
                                const int32_t *ids);
/* Returns the bytes of ids in the training shard that is being built, even if another rank writes
 * it. */
uint64_t prepare_open_bytes(const Prepare *p);
/* Writes the shard and stores its size and hash in `entry`. Empties the builder. */
NODISCARD Err prepare_write_shard(const Prepare *p, ShardBuilder *builder,
                                  ManifestEntry *entry);
/* Appends the manifest line of a shard that is on disk. */
NODISCARD Err prepare_record_shard(Prepare *p, const ManifestEntry *entry);
/* Returns the manifest entry of the training shard that is being built, with its file name, and
 * begins the next entry. */
ManifestEntry prepare_next_entry(Prepare *p);
/* Call prepare_begin_train before the first line and prepare_end_train after the last. */
NODISCARD Err prepare_begin_train(Prepare *p);
NODISCARD Err prepare_end_train(Prepare *p);

/* prepare_encode.c: encodes the training text into shards, on one process. */
NODISCARD Err prepare_encode_train(Prepare *p);
/* prepare_share.c: encodes the training text into shards, with several ranks. */
NODISCARD Err prepare_share_train(Prepare *p);

#endif
