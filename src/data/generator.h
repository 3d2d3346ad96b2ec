/* A built-in corpus: a function that writes training, validation and test text, so that `prepare`
 * needs no input files. The caller of prepare_run() passes it. Depends on data/meta. */
#ifndef DATA_GENERATOR_H
#define DATA_GENERATOR_H

#include <stdint.h>

#include "base/err.h"
#include "data/meta.h"

typedef struct {
  /* Names of the source and target file of each split, which dataset.json records as the
   * origin. */
  const char *file[SPLITS][2];
  uint64_t held_out_pairs; /* number of validation pairs, and of test pairs */
  /* Writes `pairs` distinct pairs of one split, one sentence per line. Equal arguments produce
   * equal bytes; splits have no pair in common. */
  Err (*write)(const char *source_path, const char *target_path, Split split, uint64_t pairs,
               uint64_t seed);
} CorpusGenerator;

#endif
