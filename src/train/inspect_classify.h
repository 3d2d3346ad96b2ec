/* trireme inspect of a data set of labeled texts. Depends on base/opt. */
#ifndef TRAIN_INSPECT_CLASSIFY_H
#define TRAIN_INSPECT_CLASSIFY_H

#include "base/opt.h"

/* Prints labels, lengths, batches and samples, as text or JSON; `opts` are those of the command
 * inspect. */
NODISCARD Err classify_inspect(const OptSet *opts);

#endif
