/* What the tasks of prepare share: the ranks that prepare one data set together, and --resume over a
 * data set that is complete. Depends on comm, data/ranks. */
#ifndef CMD_PREPARE_RANKS_H
#define CMD_PREPARE_RANKS_H

#include "base/opt.h"
#include "base/str.h"
#include "comm/comm.h"
#include "data/ranks.h"

/* Prepares a data set. ranks: NULL for a single process. */
typedef Err (*PrepareSet)(OptSet *opts, Comm *comm, Ranks *ranks);
/* Lists the differences between the options and the complete data set at --out. */
typedef Err (*PrepareCompare)(OptSet *opts, Str *differences);

/* Connects the ranks, checks that their options are equal, and calls `prepare` on each. */
NODISCARD Err prepare_on_ranks(OptSet *opts, PrepareSet prepare);
/* Fails unless --out is given. */
NODISCARD Err prepare_check_out_given(const OptSet *opts);
/* With --resume: sets *is_done if the data set at --out is complete, as seen by rank 0; fails if it was
 * made with other options. Fails unless --out is given. */
NODISCARD Err prepare_find_complete(OptSet *opts, Ranks *ranks, PrepareCompare compare,
                                    bool *is_done);

#endif
