/* The benchmarks of `trireme bench` that are in other files than bench.c, and the functions
 * that they share. */
#ifndef CMD_BENCH_H
#define CMD_BENCH_H

#include "base/opt.h"

/* Lengths of sentence pairs, read from a file with source and target length on each line. */
typedef struct {
  uint32_t (*len)[2]; /* tokens, without the end-of-sentence token */
  size_t pairs, cap;
  uint32_t longest; /* tokens, with the end-of-sentence token */
} Lengths;
NODISCARD Err bench_read_lengths(Lengths *l, const char *path);

/* The options that each bench accepts in addition to BENCH_ALL. Help prints these lists and
 * cmd_bench refuses every option that is not in them. */
#define BENCH_OPERANDS 4096 /* largest number of words of a command for `bench scale` */
#define BENCH_ALL      "--json, --quiet, --config"
#define BENCH_READER   "--batch-tokens, --seed, --time"
#define BENCH_TRAIN    "--lengths, --preset, --vocab-size, --batch-tokens, --steps, " BENCH_BACKEND
#define BENCH_TRANSLATE                                                    \
  "--lengths, --preset, --vocab-size, --batch-tokens, --batch-sentences, " \
  "--beam-size, " BENCH_BACKEND
#define BENCH_ALLREDUCE \
  "--bytes, --max-bytes, --time, --allreduce-transport, --device, --threads"
#define BENCH_SCALE   "--ranks"
#define BENCH_BACKEND "--device, --precision, --threads"

NODISCARD Err bench_train(const OptSet *opts);
NODISCARD Err bench_translate(const OptSet *opts);
NODISCARD Err bench_allreduce(const OptSet *opts);
NODISCARD Err bench_scale(const OptSet *opts);

#endif
