/* A shard: many examples in one file (.tok), stored as columns; see docs/formats.md. A shard is
 * built in memory, written at once, and read in place from a mapping.
 *
 * Columns have a name and a kind. Translation data has the columns "source" and "target" (ids);
 * labels, weights and alignments are further columns of the same shard. Format 1, which has
 * source and target only, is read through the same functions.
 * Threads: several threads may read a Shard; a ShardBuilder belongs to one thread.
 * Depends on base, checked. */
#ifndef DATA_SHARD_H
#define DATA_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/checked.h"

/* maximum number of ids of one example in one column, without eos */
#define SHARD_LONGEST     4095u
#define SHARD_COLUMNS_MAX 64u
#define SHARD_SOURCE      "source"
#define SHARD_TARGET      "target"

typedef enum {
  SHARD_IDS = 1, /* token ids, any number per example; element: 2 or 4 bytes */
  SHARD_LABEL,   /* one class per example; element: 2 or 4 bytes */
  SHARD_FLOAT,   /* one float per example; element: 4 bytes */
  SHARD_PAIRS,   /* pairs of positions (alignment), any number; element: two uint16, 4 bytes */
} ShardKind;

/* Description of a column, given to the builder. */
typedef struct {
  const char *name; /* name of 1 to 31 characters */
  ShardKind kind;
  uint32_t vocab;               /* ids and labels: number of different values; otherwise 0 */
  const char *tokenizer_sha256; /* ids: 64 hexadecimal digits; otherwise NULL */
  bool is_optional;             /* A reader may ignore the column. */
} ShardColumnSpec;

/* Values of one column of one example. For the builder: ids and labels are int32_t, floats are
 * float, pairs are uint16_t[2]. From the reader: the elements as stored in the file. */
typedef struct {
  const void *at;
  size_t count;
} ShardValues;

/* A growable byte array. */
typedef struct {
  uint8_t *bytes;
  size_t len;
  size_t cap;
} ShardBuffer;

/* Columns whose values are interleaved. Ids columns of one element size share a group, so that
 * the source and target of an example are adjacent in memory. Every other column has a group of
 * its own. */
typedef struct {
  uint32_t element_bytes;
  uint32_t members;
  bool is_ragged;
  ShardBuffer values;
  ShardBuffer index; /* index of the examples; ragged columns only */
} ShardGroup;

typedef struct {
  char name[32];
  ShardKind kind;
  uint32_t vocab;
  char tokenizer_sha256[65];
  bool is_optional;
  uint32_t group;
  uint32_t place;
} ShardBuilderColumn;

typedef struct {
  ShardBuilderColumn *column;
  ShardGroup *group; /* (columns) of which the first `groups` are in use */
  size_t columns;
  size_t groups;
  uint64_t examples;
} ShardBuilder;

/* Starts an empty shard with these columns. */
NODISCARD Err shard_begin(ShardBuilder *b, const ShardColumnSpec *column, size_t columns);
/* Starts a shard of sentence pairs: columns source and target with one vocabulary. */
NODISCARD Err shard_begin_pairs(ShardBuilder *b, uint32_t vocab, const char *tokenizer_sha256);
/* Appends an example; values: (columns). */
NODISCARD Err shard_add(ShardBuilder *b, const ShardValues *values);
NODISCARD Err shard_add_pair(ShardBuilder *b, const int32_t *source, size_t source_len,
                             const int32_t *target, size_t target_len);
/* Returns the bytes of the values so far, without index and header. */
size_t shard_bytes(const ShardBuilder *b);
/* Writes PATH.tmp, syncs it and renames it to PATH. Empties the builder, also after an error. */
NODISCARD Err shard_write(ShardBuilder *b, const char *path, uint64_t *bytes, char sha256[65]);
void shard_builder_free(ShardBuilder *b);

/* A column of an open shard. */
typedef struct {
  char name[32];
  ShardKind kind;
  bool is_required;
  uint32_t element_bytes;
  uint32_t vocab;
  size_t offset;        /* offset of the values */
  size_t elements;      /* number of elements of all columns of the group */
  size_t index;         /* offset of the index; ragged columns only */
  uint32_t index_bytes; /* bytes of an index entry */
  uint32_t place;
  uint32_t members;
  char tokenizer_sha256[65];
} ShardColumn;

typedef struct {
  CheckedFile file;
  uint32_t version;
  uint64_t examples;
  ShardColumn *column;
  size_t columns;
  /* the source and target columns; NULL if the shard has no such column */
  const ShardColumn *side[2];
  bool is_interleaved; /* Source and target share one group, source first. */
} Shard;

/* Maps the file and checks its header and directory. The contents of the columns are checked when
 * they are read. */
NODISCARD Err shard_open(Shard *s, const char *path);
void shard_close(Shard *s);
/* Returns the column of that name, or NULL. */
const ShardColumn *shard_column(const Shard *s, const char *name);
/* Returns the values of example i without copying; valid while the shard is open. */
NODISCARD Err shard_get(Shard *s, const ShardColumn *c, uint64_t i, ShardValues *values);
/* Copies ids and extends them to 32 bits; fails if an id is outside the vocabulary. out:
 * (values->count) */
NODISCARD Err shard_copy_ids(const Shard *s, const ShardColumn *c, const ShardValues *values,
                             int32_t *out);
/* Returns the value of example i; fails if the column is of another kind. */
NODISCARD Err shard_get_label(Shard *s, const ShardColumn *c, uint64_t i, int32_t *label);
NODISCARD Err shard_get_float(Shard *s, const ShardColumn *c, uint64_t i, float *value);

/* A sentence pair, not copied. The shard must have source and target. */
typedef struct {
  const uint8_t *ids[2];
  uint32_t len[2];
} ShardView;
NODISCARD Err shard_pair(Shard *s, uint64_t i, ShardView *view);
/* Copies the ids of one side, like shard_copy_ids. out: (view->len[side]) */
NODISCARD Err shard_copy(const Shard *s, const ShardView *view, int side, int32_t *out);
/* Prefetches the cache lines that shard_pair and shard_copy will read. */
void shard_prefetch_index(const Shard *s, uint64_t i);
void shard_prefetch_ids(const Shard *s, uint64_t i);

#endif
