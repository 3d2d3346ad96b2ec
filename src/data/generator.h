/* A built-in corpus: training, validation and test text that a function writes, so that
 * `prepare` needs no input files. The caller of prepare_run() supplies it. Depends on data/meta. */
#ifndef DATA_GENERATOR_H
#define DATA_GENERATOR_H

#include <stdint.h>

#include "base/err.h"
#include "data/meta.h"

typedef struct {
  /* File names of each split, source and target: dataset.json records them as the origin. */
  const char *file[SPLITS][2];
  uint64_t held_out_pairs; /* of validation, and of test */
  /* Writes `pairs` distinct pairs of one split, one sentence per line. Equal arguments write
   * equal bytes; splits share no pair. */
  Err (*write)(const char *source_path, const char *target_path, Split split, uint64_t pairs,
               uint64_t seed);
} CorpusGenerator;

#endif
