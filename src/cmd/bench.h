/* The parts of trireme bench that have files of their own. */
#ifndef CMD_BENCH_H
#define CMD_BENCH_H

#include "base/opt.h"

NODISCARD Err bench_train(const OptSet *opts);

#endif
