/* The binary layout of a shard file, used by shard.c (reader) and shard_builder.c (writer);
 * described in docs/formats.md. Little-endian. No dependencies. */
#ifndef DATA_SHARD_FILE_H
#define DATA_SHARD_FILE_H

#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "shard files are little-endian and are used in place");

#define SHARD_MAGIC "TRITOK\r\n"

/* Header of format 1: two columns of ids, source and target, with one vocabulary. */
typedef struct {
  char magic[8];
  uint32_t version; /* format version: 1 */
  uint32_t id_bytes;
  uint64_t pairs;
  uint64_t tokens;
  uint64_t side_tokens[2];
  uint64_t index;   /* offset of the index */
  uint64_t payload; /* offset of the checksums */
  uint32_t vocab;
  uint32_t block;
  uint8_t tokenizer[32];
  uint8_t reserved[24];
} ShardHeader1;
_Static_assert(sizeof(ShardHeader1) == 128, "a format 1 header has 128 bytes");

/* Header of format 2, which has a directory of columns. */
typedef struct {
  char magic[8];
  uint32_t version; /* format version: 2 */
  uint32_t columns;
  uint64_t examples;
  /* required flags: a reader must refuse the file if it does not know one of them */
  uint32_t required_flags;
  uint32_t optional_flags; /* optional flags: a reader ignores unknown ones */
  uint64_t directory;      /* offset of the directory */
  /* Size of a directory entry. A reader ignores bytes after the fields that it knows. */
  uint32_t entry_bytes;
  uint32_t block; /* bytes of a checksum block, CHECKED_BLOCK */
  uint64_t reserved;
  uint64_t payload; /* offset of the checksums */
} ShardHeader2;
_Static_assert(sizeof(ShardHeader2) == 64, "a format 2 header has 64 bytes");

/* An entry of the column directory. */
typedef struct {
  char name[32]; /* NUL-terminated column name */
  uint32_t kind; /* a ShardKind */
  uint32_t element_bytes;
  uint32_t flags;        /* flags SHARD_COLUMN_… */
  uint32_t vocabulary;   /* exclusive upper bound of ids and labels; 0 for other kinds */
  uint64_t offset;       /* offset of the values */
  uint64_t length;       /* bytes of the values */
  uint64_t index;        /* offset of the index of a ragged column; otherwise 0 */
  uint32_t place;        /* position of this column's length in an index entry */
  uint32_t members;      /* number of columns that share the values and the index */
  uint8_t tokenizer[32]; /* ids: SHA-256 of the tokenizer that produced them; otherwise 0 */
  uint8_t reserved[16];
} ShardEntry;
_Static_assert(sizeof(ShardEntry) == 128, "a directory entry has 128 bytes");

/* Column flags. A reader must refuse unknown bits 0 to 15 and may ignore unknown bits 16 to
 * 31. */
/* A reader that does not use this column must refuse the file. */
#define SHARD_COLUMN_REQUIRED 1u
#define SHARD_FLAGS_REQUIRED  0xffffu

#define SHARD_MEMBERS_MAX 8u /* maximum number of columns in a group */

/* Returns the bytes of an index entry: the first element of the example (4 bytes), then the
 * length of each member (2 bytes), rounded up to a multiple of 4. The values of the members are
 * adjacent. */
static inline uint32_t shard_index_bytes(uint32_t members) {
  return (4 + 2 * members + 3) & ~3u;
}

#endif
