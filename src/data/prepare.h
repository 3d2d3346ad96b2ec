/* Converts raw parallel text to a data set directory. The files are written to OUT.partial, which
 * is renamed to OUT when all of them are complete. A stopped run therefore leaves no directory
 * that looks complete, and can be resumed. Depends on text and the rest of data. */
#ifndef DATA_PREPARE_H
#define DATA_PREPARE_H

#include "data/generator.h"
#include "data/meta.h"
#include "data/pipeline.h"
#include "data/ranks.h"

typedef struct {
  const char *out;
  TextPair *train; /* training inputs; one path may be "-", standard input */
  size_t trains;
  TextPair valid, test; /* path[0] NULL: there is no such text */
  /* writes the text of all splits; NULL: train, valid and test name files */
  const CorpusGenerator *generator;
  /* number of generated training pairs; 0 without a generator */
  uint64_t generated_pairs;
  const char *lang[2];
  CleanRules rules;
  uint32_t max_tokens;
  bool dedup, drop_bad_utf8;
  const char *tokenizer; /* .model file to use; NULL: a tokenizer is trained */
  TokenizerTraining training;
  uint64_t sample; /* number of pairs on which the tokenizer is trained */
  uint64_t seed;
  size_t shard_bytes;
  uint64_t window_pairs; /* approximate number of training pairs per window; 0: one window */
  int threads;
  bool resume;
  Ranks *ranks; /* the ranks that share the work; NULL: this process works alone */
} PrepareSpec;

/* Fails if the data set cannot be written to `out`, for example because it exists. Call it before
 * any download. */
NODISCARD Err prepare_check_out(const char *out, bool resume);
/* Lists the options and inputs in which the complete data set spec->out differs from the spec, as
 * in "--max-words is 20 and was 80; …". Not compared: shard size, windows, sample and character
 * coverage, which dataset.json does not contain; and inputs if spec->trains is 0. */
NODISCARD Err prepare_compare(const PrepareSpec *spec, Str *differences);
/* Removes temporary files from a complete data set. They remain if prepare was killed during its
 * last step. */
NODISCARD Err prepare_tidy(const char *out);
/* Prepares the data set; `meta` describes the result. Every rank of spec->ranks calls it with the
 * same spec. The files are byte for byte the same as those of a single process. `meta` is
 * complete on rank 0 only. */
NODISCARD Err prepare_run(const PrepareSpec *spec, Meta *meta);

#endif
