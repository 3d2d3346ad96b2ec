/* Converts tables of texts with or without labels, or lines of plain text, to a data set directory. The
 * files are written to OUT.partial, which is renamed to OUT when all of them are complete; a run that
 * is stopped can be resumed.
 * Depends on text and the rest of data. */
#ifndef DATA_PREPARE_CLASSIFY_H
#define DATA_PREPARE_CLASSIFY_H

#include "base/file.h"
#include "data/meta.h"
#include "data/ranks.h"
#include "data/text_encoder.h"
#include "data/text_labels.h"

typedef struct {
  const char *out;
  const char *const *input[SPLITS]; /* paths of the tables of each split */
  size_t inputs[SPLITS];
  double share[SPLITS]; /* share of the training rows that becomes validation or test text */
  const char *const *text_column; /* NULL: the inputs are plain text, one text per line */
  size_t texts;                   /* text columns: 1, or 2 for pairs */
  /* LABEL_NONE: texts that are too long are divided and not cut, and those without a word are left
   * out. */
  LabelSpec labels;
  /* vocab.txt, .model, or files of a byte-level BPE (byte_bpe_import); NULL: a WordPiece vocabulary is
   * trained. */
  const char *tokenizer;
  char tokenizer_path[FILE_PATH_MAX]; /* memory for `tokenizer` */
  TextTokenizer tokenizer_kind;
  BertRules rules;   /* of a WordPiece vocabulary */
  size_t vocab_size; /* of the vocabulary that is trained */
  uint64_t sample;   /* number of training texts on which it is trained */
  uint32_t max_tokens;
  uint64_t seed;
  size_t shard_bytes;
  int threads;
  bool resume;
  Ranks *ranks; /* the ranks that share the work; NULL: this process works alone */
} ClassifySpec;

/* Lists the options and inputs in which the complete data set spec->out differs from the spec, like
 * prepare_compare. Not compared: shard size, sample, --split, the column of classes, and a --vocab-size
 * above that of the data set. */
NODISCARD Err prepare_compare_texts(const ClassifySpec *spec, Str *differences);
/* Prepares the data set; `meta` describes the result. Every rank of spec->ranks calls it with the same
 * spec; `meta` is complete on rank 0 only. The files are byte for byte the same for any number of ranks
 * and threads, and after a stop and --resume. */
NODISCARD Err prepare_classify(const ClassifySpec *spec, Meta *meta);

#endif
