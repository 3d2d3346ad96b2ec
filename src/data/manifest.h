/* shards.manifest: one line of JSON for each shard, in the order in which prepare wrote them;
 * see docs/formats.md. Lines are only ever appended, so recording a shard costs the same
 * whether it is the first or the hundred-thousandth. dataset.json has the final length and
 * SHA-256. Depends on base, meta. */
#ifndef DATA_MANIFEST_H
#define DATA_MANIFEST_H

#include "data/meta.h"

#define MANIFEST_NAME "shards.manifest"

/* A shard and what the text that went into it was like. */
typedef struct {
  Split split;
  MetaFile file;
  uint64_t lines; /* read since the shard before, kept or not */
  uint64_t tokens[2];
  uint64_t longest[2];
  uint64_t text_bytes[2];
  uint64_t dropped[CLEAN_VERDICTS];
} ManifestEntry;

/* Adds the counts of a shard (all but its file) to those of its split. */
void manifest_add_counts(MetaSplit *split, const ManifestEntry *entry);
/* Appends the line of a shard and syncs it. Call it when the shard itself is on disk. */
NODISCARD Err manifest_append(const char *path, const ManifestEntry *entry);
/* Adds the shards of a finished manifest to meta->split. meta->manifest says what the file must
 * be; any difference is an error. `path` is for messages. */
NODISCARD Err manifest_load(const char *path, Meta *meta);
/* Adds the shards of an unfinished manifest, and the counts of training shards. A last line
 * that a crash left incomplete is removed from the file. A missing file has no shards. */
NODISCARD Err manifest_recover(const char *path, Meta *meta);
/* Parses hostile text line by line and gives each entry to take(). Returns the error of take(),
 * or of the first line that describes no shard; `where` is the file for messages. */
typedef Err (*ManifestTake)(void *context, const ManifestEntry *entry);
typedef struct {
  size_t bytes;    /* of the good lines before the end or the error */
  bool is_damaged; /* the error is a line that describes no shard */
} ManifestEnd;
NODISCARD Err manifest_parse(const char *text, size_t len, const char *where, ManifestEnd *end,
                             ManifestTake take, void *context);
/* Appends the text of a line. */
void manifest_print(const ManifestEntry *entry, Str *out);

#endif
