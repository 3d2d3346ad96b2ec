/* The last step of prepare and of conversion. Depends on base, meta. */
#ifndef DATA_PREPARE_FINISH_H
#define DATA_PREPARE_FINISH_H

#include "data/meta.h"

/* Fails if the training shards written so far make more windows than train.order holds. Call it
 * as shards are added, so that --window-pairs is corrected before the rest is encoded. */
NODISCARD Err prepare_check_windows(const MetaSplit *train, uint64_t window_pairs);
/* Writes the training order and dataset.json into `dir`, which has the shards and the manifest.
 * Reads every shard once, which also checks it. window_pairs: training pairs of a window, about;
 * 0 is one window. */
NODISCARD Err prepare_finish(const char *dir, Meta *meta, uint64_t window_pairs);

#endif
