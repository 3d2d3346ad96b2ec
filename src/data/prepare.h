/* From raw parallel text to a data set directory. Work goes on in OUT.partial,
 * which becomes OUT when everything is written: a stopped run leaves nothing that
 * looks complete, and can be continued. Depends on text and the rest of data. */
#ifndef DATA_PREPARE_H
#define DATA_PREPARE_H

#include "data/generator.h"
#include "data/meta.h"
#include "data/pipeline.h"
#include "data/ranks.h"

typedef struct {
  const char *out;
  TextPair *train; /* "-" as a path is standard input, once */
  size_t trains;
  TextPair valid, test;             /* path[0] NULL: none */
  const CorpusGenerator *generator; /* writes all text; NULL: train, valid, test name files */
  uint64_t generated_pairs;         /* of training; 0 without a generator */
  const char *lang[2];
  CleanRules rules;
  uint32_t max_tokens;
  bool dedup, drop_bad_utf8;
  const char *tokenizer; /* a .model file to use, or NULL: train one */
  TokenizerTraining training;
  uint64_t sample; /* pairs on which the tokenizer is trained */
  uint64_t seed;
  size_t shard_bytes;
  uint64_t window_pairs; /* training pairs of a window, about; 0: one window */
  int threads;
  bool resume;
  Ranks *ranks; /* that share the work; NULL: this process alone */
} PrepareSpec;

/* Fails if the data set cannot be written to `out`, for example because it exists. Call it before
 * anything is downloaded. */
NODISCARD Err prepare_check_out(const char *out, bool resume);
/* Lists by which options and inputs the complete data set spec->out differs from what the spec would
 * make: "--max-words is 20 and was 80; …". Not compared: shard size, windows, sample and character
 * coverage, which a data set does not record; inputs, if spec->trains is 0. */
NODISCARD Err prepare_compare(const PrepareSpec *spec, Str *differences);
/* Removes temporary files from a complete data set, which remain if prepare is killed while it
 * finishes. */
NODISCARD Err prepare_tidy(const char *out);
/* Prepares the data set; `meta` describes the result. Every rank of spec->ranks calls it with the
 * same spec; the data set is byte for byte the same as from one process. `meta` is complete on
 * rank 0 only. */
NODISCARD Err prepare_run(const PrepareSpec *spec, Meta *meta);

#endif
