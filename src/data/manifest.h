/* shards.manifest: one line of JSON for each shard, in the order in which prepare wrote them; see
 * docs/formats.md. Lines are only appended, so recording a shard has the same cost for the first
 * and for the hundred-thousandth. dataset.json contains the final size and SHA-256. Depends on
 * base, meta. */
#ifndef DATA_MANIFEST_H
#define DATA_MANIFEST_H

#include "data/meta.h"

#define MANIFEST_NAME "shards.manifest"

/* A shard and the counts of the text that was encoded into it. */
typedef struct {
  Split split;
  MetaFile file;
  uint64_t lines; /* lines read since the previous shard, kept or dropped */
  uint64_t tokens[2];
  uint64_t longest[2];
  uint64_t text_bytes[2];
  uint64_t dropped[CLEAN_VERDICTS];
  bool has_texts; /* a shard of texts, which has the next two counts */
  uint64_t cut;   /* texts that were cut or divided at --max-tokens */
  uint64_t empty; /* texts without a word */
} ManifestEntry;

/* Adds the counts of a shard to those of its split. Does not add the shard to the split's list of
 * files. */
void manifest_add_counts(MetaSplit *split, const ManifestEntry *entry);
/* The same for a shard of texts, whose counts are also in meta->classify. */
void manifest_add_texts(Meta *meta, const ManifestEntry *entry);
/* Appends the line of a shard and syncs the manifest. Call it after the shard itself is on
 * disk. */
NODISCARD Err manifest_append(const char *path, const ManifestEntry *entry);
/* Adds the shards of a finished manifest to meta->split. Fails unless the size and SHA-256 of the
 * file equal those in meta->manifest. `path` is for messages. */
NODISCARD Err manifest_load(const char *path, Meta *meta);
/* Adds the shards of an unfinished manifest, and the counts of training shards. An incomplete
 * last line, left by a crash, is removed from the file. A missing file has no shards. */
NODISCARD Err manifest_recover(const char *path, Meta *meta);
/* The same for a data set of texts, whose validation and test shards are written after all training
 * shards and again when a run is resumed: their lines are removed from the file. */
NODISCARD Err manifest_recover_texts(const char *path, Meta *meta);
/* Parses untrusted text line by line and passes each entry to take(). Returns the error of
 * take(), or of the first line that is not a valid entry; `where` is the file name for
 * messages. */
typedef Err (*ManifestTake)(void *context, const ManifestEntry *entry);
typedef struct {
  size_t bytes;    /* bytes of the valid lines before the end or the error */
  bool is_damaged; /* The error is a line that is not a valid entry. */
} ManifestEnd;
NODISCARD Err manifest_parse(const char *text, size_t len, const char *where, ManifestEnd *end,
                             ManifestTake take, void *context);
/* Appends the manifest line of a shard to `out`. */
void manifest_print(const ManifestEntry *entry, Str *out);

#endif
