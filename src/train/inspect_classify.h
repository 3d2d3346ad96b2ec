/* trireme inspect of data sets of texts, with or without labels. Depends on base/opt. */
#ifndef TRAIN_INSPECT_CLASSIFY_H
#define TRAIN_INSPECT_CLASSIFY_H

#include "base/opt.h"

/* Prints labels, lengths, batches and samples, as text or JSON; `opts` are those of the command
 * inspect. */
NODISCARD Err classify_inspect(const OptSet *opts);
/* The same for a data set of texts without labels. */
NODISCARD Err mlm_inspect(const OptSet *opts);

#endif
