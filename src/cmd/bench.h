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

/* The options of each bench beside those of all, as the help names them and as cmd_bench
 * goes by: what is in no list is refused by every bench. */
#define BENCH_ALL    "--json, --quiet, --config"
#define BENCH_READER "--batch-tokens, --seed, --time"
#define BENCH_TRAIN  "--lengths, --preset, --vocab-size, --batch-tokens, --steps, " BENCH_BACKEND
#define BENCH_TRANSLATE \
  "--lengths, --preset, --vocab-size, --batch-tokens, --beam-size, " BENCH_BACKEND
#define BENCH_ALLREDUCE "--max-bytes, --time, --allreduce-transport, --device, --threads"
#define BENCH_BACKEND   "--device, --precision, --threads"

NODISCARD Err bench_train(const OptSet *opts);
NODISCARD Err bench_translate(const OptSet *opts);
NODISCARD Err bench_allreduce(const OptSet *opts);

#endif
