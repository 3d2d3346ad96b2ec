/* dataset.json: what a data set is, with counts, what was dropped and why, files and their
 * hashes. Format 1 lists the shards here; format 2 names the manifest that lists them
 * (manifest.h). Written by prepare, read by everyone. Depends on base, clean, Jansson. */
#ifndef DATA_META_H
#define DATA_META_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "data/clean.h"

typedef enum { SPLIT_TRAIN, SPLIT_VALID, SPLIT_TEST, SPLITS } Split;
extern const char *const split_name[SPLITS];

#define META_FORMAT 2 /* what meta_print writes for new data sets */

typedef struct {
  char name[64];
  uint64_t bytes;
  uint64_t pairs; /* of a shard, else 0 */
  char sha256[65];
} MetaFile;

/* An input as it was read; name[1] is empty when one file held both sides. */
typedef struct {
  char name[2][1024]; /* without directories, as utf8_escape writes it */
  char sha256[2][65];
  uint64_t lines, bytes[2]; /* as stored */
} MetaSource;

typedef struct {
  uint64_t lines, pairs; /* read, kept */
  uint64_t tokens[2], longest[2];
  uint64_t text_bytes[2]; /* of the kept lines, squeezed */
  uint64_t dropped[CLEAN_VERDICTS];
  MetaSource *source;
  size_t sources, source_cap;
  MetaFile *shard; /* format 2: empty until the manifest is loaded */
  size_t shards, shard_cap;
  size_t shards_listed; /* what dataset.json of format 2 counts */
  MetaFile raw[2];      /* the text itself, of validation and test */
} MetaSplit;

typedef struct {
  int format; /* 1 or 2 */
  char lang[2][32];
  char tokenizer_type[16]; /* "bpe", "unigram" */
  char tokenizer_sha256[65];
  int vocab, pad, bos, eos, unk;
  CleanRules rules;
  uint32_t max_tokens;
  bool dedup;
  uint64_t seed;
  MetaSplit split[SPLITS];
  MetaFile order;
  MetaFile manifest; /* format 2; no name while prepare works */
} Meta;

void meta_free(Meta *meta);
NODISCARD Err meta_add_shard(MetaSplit *split, const MetaFile *file);
NODISCARD Err meta_add_source(MetaSplit *split, const MetaSource *source);
/* JSON text, the same for the same contents. */
NODISCARD Err meta_print(const Meta *meta, Str *out);
/* Hostile text; `where` is its file for errors. */
NODISCARD Err meta_parse(Meta *meta, const char *text, size_t len, const char *where);

#endif
