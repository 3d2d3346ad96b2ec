/* The last step of prepare and of conversion. Depends on base, meta. */
#ifndef DATA_PREPARE_FINISH_H
#define DATA_PREPARE_FINISH_H

#include "data/meta.h"

/* Maximum number of windows that prepare and conversion make. At every start, training plans the
 * batches of all windows: about 5 ms and 0.3 MB per window with 4,096 tokens a batch. The format of
 * train.order allows ORDER_WINDOWS_MAX. */
#define PREPARE_WINDOWS_MAX 1024u

/* Fails if the training shards written so far make more than PREPARE_WINDOWS_MAX windows. Call it
 * as shards are added, so that a wrong --window-pairs fails before the rest is encoded. */
NODISCARD Err prepare_check_windows(const MetaSplit *train, uint64_t window_pairs);
/* Writes the training order and dataset.json into `dir`, which has the shards and the manifest.
 * Reads every shard once, which also checks it. window_pairs: training pairs of a window, about;
 * 0 is one window. */
NODISCARD Err prepare_finish(const char *dir, Meta *meta, uint64_t window_pairs);

#endif
