/* The parts of trireme bench that have files of their own. */
#ifndef CMD_BENCH_H
#define CMD_BENCH_H

#include "base/opt.h"

/* Lengths of sentence pairs, from a file of two a line. */
typedef struct {
  uint32_t (*len)[2]; /* tokens without end mark */
  size_t pairs, cap;
  uint32_t longest; /* with end mark */
} Lengths;
NODISCARD Err bench_read_lengths(Lengths *l, const char *path);

NODISCARD Err bench_train(const OptSet *opts);
NODISCARD Err bench_translate(const OptSet *opts);
NODISCARD Err bench_allreduce(const OptSet *opts);

#endif
