/* The last step of prepare and of the conversion of data sets. Depends on base, meta. */
#ifndef DATA_PREPARE_FINISH_H
#define DATA_PREPARE_FINISH_H

#include "data/meta.h"

/* Maximum number of windows that prepare and the conversion create. At every start, training
 * plans the batches of all windows: about 5 ms and 0.3 MB per window with 4,096 tokens per batch.
 * The format of train.order allows ORDER_WINDOWS_MAX. */
#define PREPARE_WINDOWS_MAX 1024u

/* Fails if the training shards written so far make more than PREPARE_WINDOWS_MAX windows. Call it
 * when shards are added, so that a wrong --window-pairs is reported before the rest is
 * encoded. */
NODISCARD Err prepare_check_windows(const MetaSplit *train, uint64_t window_pairs);
/* Writes the training order and dataset.json to `dir`, which contains the shards and the
 * manifest. Reads every shard once, which also checks it. window_pairs: approximate number of
 * training pairs per window; 0: one window. */
NODISCARD Err prepare_finish(const char *dir, Meta *meta, uint64_t window_pairs);

#endif
