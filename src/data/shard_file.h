/* The bytes of a shard file, for shard.c (reader) and shard_builder.c (writer); described in
 * docs/formats.md. Little-endian. Depends on nothing. */
#ifndef DATA_SHARD_FILE_H
#define DATA_SHARD_FILE_H

#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "shard files are little-endian and are used in place");

#define SHARD_MAGIC "TRITOK\r\n"

/* Format 1: two columns of ids, source and target, with one vocabulary. */
typedef struct {
  char magic[8];
  uint32_t version; /* 1 */
  uint32_t id_bytes;
  uint64_t pairs;
  uint64_t tokens;
  uint64_t side_tokens[2];
  uint64_t index;   /* offset */
  uint64_t payload; /* offset of the checksums */
  uint32_t vocab;
  uint32_t block;
  uint8_t tokenizer[32];
  uint8_t reserved[24];
} ShardHeader1;
_Static_assert(sizeof(ShardHeader1) == 128, "a format 1 header has 128 bytes");

/* Format 2: a directory of columns. */
typedef struct {
  char magic[8];
  uint32_t version; /* 2 */
  uint32_t columns;
  uint64_t examples;
  uint32_t
      required_flags; /* a reader that does not know one of these bits must refuse the file */
  uint32_t optional_flags; /* a reader ignores the bits that it does not know */
  uint64_t directory;      /* offset */
  uint32_t entry_bytes; /* size of a directory entry; a reader ignores what it does not know */
  uint32_t block;       /* CHECKED_BLOCK */
  uint64_t reserved;
  uint64_t payload; /* offset of the checksums */
} ShardHeader2;
_Static_assert(sizeof(ShardHeader2) == 64, "a format 2 header has 64 bytes");

/* An entry of the directory. */
typedef struct {
  char name[32]; /* zero-terminated */
  uint32_t kind; /* ShardKind */
  uint32_t element_bytes;
  uint32_t flags;        /* SHARD_COLUMN_… */
  uint32_t vocabulary;   /* ids, labels: each value is below it; else 0 */
  uint64_t offset;       /* of the values */
  uint64_t length;       /* of the values, in bytes */
  uint64_t index;        /* offset of the index of a ragged column; else 0 */
  uint32_t place;        /* which length of an index entry is this column's */
  uint32_t members;      /* columns that share the values and the index */
  uint8_t tokenizer[32]; /* ids: SHA-256 of the tokenizer that made them; else 0 */
  uint8_t reserved[16];
} ShardEntry;
_Static_assert(sizeof(ShardEntry) == 128, "a directory entry has 128 bytes");

/* Column flags: bits 0 to 15 are required, bits 16 to 31 optional knowledge. */
#define SHARD_COLUMN_REQUIRED 1u /* who does not use this column must refuse the file */
#define SHARD_FLAGS_REQUIRED  0xffffu

#define SHARD_MEMBERS_MAX 8u /* columns of one group */

/* An index entry: the first element of the example (4 bytes), then the length of each member
 * (2 bytes), rounded up to a multiple of 4. The members' values follow each other. */
static inline uint32_t shard_index_bytes(uint32_t members) {
  return (4 + 2 * members + 3) & ~3u;
}

#endif
