/* Converts a data set of format 1 to format 2. Depends on the rest of data. */
#ifndef DATA_CONVERT_H
#define DATA_CONVERT_H

#include "data/meta.h"

/* Reads the data set `from` and writes `out`, which must not exist, with the same ids, text,
 * tokenizer, counts and shards; with one window also the same batches. `meta` receives what was
 * written. Everything that is read is checked. After an error or a signal to stop nothing is
 * left. */
NODISCARD Err convert_run(const char *from, const char *out, uint64_t window_pairs, Meta *meta);

#endif
