/* The tasks of `score` that have a file of their own. Depends on base. */
#ifndef CMD_SCORE_H
#define CMD_SCORE_H

#include "base/opt.h"
#include "base/str.h"

/* Appends what `score --task classify` prints. */
NODISCARD Err score_classify(const OptSet *opts, Str *out);

#endif
