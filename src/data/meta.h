/* dataset.json describes a data set: counts, numbers of dropped pairs by reason, files and their
 * hashes. Format 1 lists the shards; format 2 names the manifest that lists them (manifest.h).
 * Written by prepare, read by all commands that use data sets. Depends on base, clean,
 * Jansson. */
#ifndef DATA_META_H
#define DATA_META_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "data/clean.h"

typedef enum { SPLIT_TRAIN, SPLIT_VALID, SPLIT_TEST, SPLITS } Split;
extern const char *const split_name[SPLITS];

#define META_FORMAT 2 /* the format that meta_print writes for new data sets */

typedef struct {
  char name[64];
  uint64_t bytes;
  uint64_t pairs; /* number of pairs of a shard; 0 for other files */
  char sha256[65];
} MetaFile;

/* An input file pair as it was read; name[1] is empty if one file contained both sides. */
typedef struct {
  char name[2][1024]; /* file names without directories, escaped by utf8_escape */
  char sha256[2][65];
  uint64_t lines, bytes[2]; /* number of lines; bytes as stored, before decompression */
} MetaSource;

typedef struct {
  uint64_t lines, pairs; /* number of lines read, number of pairs kept */
  uint64_t tokens[2], longest[2];
  uint64_t text_bytes[2]; /* bytes of the kept lines after white space was reduced */
  uint64_t dropped[CLEAN_VERDICTS];
  MetaSource *source;
  size_t sources, source_cap;
  MetaFile *shard; /* list of shards; in format 2 empty until the manifest is loaded */
  size_t shards, shard_cap;
  size_t shards_listed; /* format 2: number of shards that dataset.json states */
  /* copies of the source and target text, for validation and test only */
  MetaFile raw[2];
} MetaSplit;

/* What labels are; see text_labels.h. LABEL_NONE: texts without labels, for masked language models. */
typedef enum { LABEL_CLASS, LABEL_MULTI, LABEL_NUMBER, LABEL_NONE, LABEL_KINDS } LabelKind;
extern const char *const label_kind_name[LABEL_KINDS]; /* as in dataset.json */

#define LABELS_MAX      10000 /* maximum number of classes, or of labels of a text */
#define LABEL_NUMBERS   16    /* maximum number of LABEL_NUMBER columns */
#define LABEL_NAME_SIZE 256   /* maximum bytes of the name of a label or column, with its NUL */

/* Counts of the texts of a split. */
typedef struct {
  uint64_t cut;      /* texts that were cut to max_tokens; LABEL_NONE: divided into several */
  uint64_t empty;    /* texts without a word; LABEL_NONE: they are not in the data set */
  uint64_t *labeled; /* (labels) texts with this class or label; LABEL_NUMBER: with a value */
} MetaTextCounts;

/* What the data set of a classifier or a masked language model has besides. */
typedef struct {
  LabelKind kind;
  size_t labels;
  char (*name)[LABEL_NAME_SIZE]; /* (labels) names of the classes or labels */
  bool has_threshold;
  double threshold;
  size_t texts;                         /* texts of an example: 1, or 2 for pairs */
  char text_column[2][LABEL_NAME_SIZE]; /* the first is empty if the text was plain lines */
  char tokenizer_file[64];
  bool is_lower, strips_accents; /* WordPiece: the BertRules */
  int mask;                      /* id of [MASK]; -1: none */
  MetaFile label_file;           /* labels.txt; LABEL_NONE: has no name */
  MetaTextCounts counts[SPLITS];
} MetaClassify;

typedef struct {
  int format; /* format of dataset.json: 1 or 2 */
  char lang[2][32];
  char tokenizer_type[16]; /* model type: "bpe", "unigram", "wordpiece" or "byte-bpe" */
  char tokenizer_sha256[65];
  int vocab, pad, bos, eos, unk;
  CleanRules rules;
  uint32_t max_tokens;
  bool dedup;
  uint64_t seed;
  MetaSplit split[SPLITS];
  MetaFile order;
  MetaFile manifest; /* format 2: the manifest; its name is empty until prepare finishes */
  /* Texts with or without labels; NULL: sentence pairs, for translation. With texts a
   * "pair" is an example, index 0 of all pairs of numbers is the text and index 1 is zero; bos is
   * [CLS] and eos is [SEP]. */
  MetaClassify *classify;
} Meta;

void meta_free(Meta *meta);
NODISCARD Err meta_add_shard(MetaSplit *split, const MetaFile *file);
/* Returns "translate", "classify" or "mlm". */
const char *meta_task(const Meta *meta);
NODISCARD Err meta_add_source(MetaSplit *split, const MetaSource *source);
/* Appends the description as JSON text; equal descriptions produce equal text. */
NODISCARD Err meta_print(const Meta *meta, Str *out);
/* Parses untrusted JSON text; `where` is the file name for errors. */
NODISCARD Err meta_parse(Meta *meta, const char *text, size_t len, const char *where);

#endif
