/* A stratified random split: takes rows out of the training text for validation or test, so that
 * each stratum (rows with equal labels) loses the same share. Depends on base. */
#ifndef DATA_TEXT_SPLIT_H
#define DATA_TEXT_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/meta.h"

#define TEXT_SPLIT_MAX \
  0.5 /* maximum share of rows that may be taken out of the training text */

/* Moves `share` of the rows whose part is SPLIT_TRAIN to `to`. stratum, part: (rows). A stratum of n
 * rows loses floor(n * share) or one more; one with a single row loses none. The choice depends only
 * on the strata, share and seed. `rows` is below 2^32. */
NODISCARD Err text_split(const uint32_t *stratum, uint8_t *part, size_t rows, double share,
                         uint64_t seed, Split to);

#endif
