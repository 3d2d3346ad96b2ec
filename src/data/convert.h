/* Converts a data set of format 1 to format 2. Depends on the rest of data. */
#ifndef DATA_CONVERT_H
#define DATA_CONVERT_H

#include "data/meta.h"

/* Converts the data set `from` to `out`, which must not exist. Ids, text, tokenizer, counts and
 * shards stay the same; with one window the batches stay the same too. `meta` receives the
 * description of the new data set. All data that is read is checked. After an error or a stop
 * signal no files remain. */
NODISCARD Err convert_run(const char *from, const char *out, uint64_t window_pairs, Meta *meta);

#endif
