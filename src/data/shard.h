/* A shard: the ids of many sentence pairs in one mapped file (.tok); see
 * docs/formats.md. Built in memory, written whole, read in place.
 * Relies on base, checked. */
#ifndef DATA_SHARD_H
#define DATA_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/checked.h"

#define SHARD_LONGEST 4095u /* tokens a side, without the end mark */

typedef struct {
  uint32_t first;  /* token of the shard: the source begins here, the target behind it */
  uint16_t len[2]; /* source, target */
} ShardPair;

typedef struct {
  uint32_t vocab;
  uint32_t id_bytes; /* 2 when every id fits, else 4 */
  uint8_t *ids;
  size_t tokens, token_cap;
  ShardPair *pair;
  size_t pairs, pair_cap;
  uint64_t side_tokens[2];
} ShardBuilder;

void shard_begin(ShardBuilder *b, uint32_t vocab);
NODISCARD Err shard_add(ShardBuilder *b, const int32_t *source, size_t source_len,
                        const int32_t *target, size_t target_len);
size_t shard_bytes(const ShardBuilder *b); /* of ids so far */
/* Writes the file beside and renames it; empties the builder. */
NODISCARD Err shard_write(ShardBuilder *b, const char *path, const char *tokenizer_sha256,
                          uint64_t *bytes, char sha256[65]);
void shard_builder_free(ShardBuilder *b);

typedef struct {
  CheckedFile file;
  uint32_t vocab, id_bytes;
  uint64_t pairs, tokens;
  uint64_t side_tokens[2];
  size_t index; /* offset of the ShardPair array */
  char tokenizer_sha256[65];
} Shard;

NODISCARD Err shard_open(Shard *s, const char *path);
void shard_close(Shard *s);

/* One pair in place: ids of id_bytes each. */
typedef struct {
  const uint8_t *ids[2];
  uint32_t len[2];
} ShardView;
NODISCARD Err shard_pair(Shard *s, uint64_t i, ShardView *view);
/* Copies n ids of the view's side, widened; refuses one outside the vocabulary. */
NODISCARD Err shard_copy(const Shard *s, const ShardView *view, int side, int32_t *out);
/* Asks the processor to fetch what shard_pair and shard_copy will read. */
void shard_prefetch_index(const Shard *s, uint64_t i);
void shard_prefetch_ids(const Shard *s, uint64_t i);

#endif
