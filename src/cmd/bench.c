/* trireme bench: measures the speed of one part of the program on this machine. This file has
 * the table of benchmarks and `bench reader`, which reads packed batches of a data set. Depends
 * on data/batch, comm. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/progress.h"
#include "cmd/bench.h"
#include "cmd/cmd.h"
#include "data/batch.h"

typedef struct {
  uint64_t batches, pairs, rows[2];
  double seconds;
  double first; /* seconds from opening to the first batch */
} Reading;

/* Reads one whole epoch first, which fills the page cache and verifies every checksum, and then
 * measures for `seconds`. */
static Err read_batches(DataSet *d, const OrderPlan *plan, uint64_t seed, double seconds,
                        Reading *r) {
  Loader *loader;
  const Batch *b;
  double opened = progress_clock();
  TRY(loader_open(&loader, d, plan, &(LoaderSpec){.seed = seed, .group = 1, .end = 1}));
  Err err = ERR_OK;
  for (uint64_t i = 0; i < plan->batches && !err; i++) {
    err = loader_next(loader, &b);
    if (i == 0) r->first = progress_clock() - opened;
  }
  double start = progress_clock();
  while (!err && r->seconds < seconds) {
    err = loader_next(loader, &b);
    if (err) break;
    r->batches++;
    r->pairs += b->sentences;
    for (int side = 0; side < 2; side++) r->rows[side] += b->rows[side];
    r->seconds = progress_clock() - start;
  }
  loader_close(loader);
  return err;
}

static Err bench_reader(const OptSet *opts) {
  const char *dir = opt_operand(opts, 1);
  if (!dir) return err_set(ERR_USAGE, "no data set given: pass it, trireme bench reader DIR");
  DataSet d;
  OrderPlan plan = {0};
  Reading r = {0};
  TRY(dataset_open(&d, dir));
  double start = progress_clock();
  Err err = order_plan(&plan, &d.order, (uint32_t)opt_count(opts, "batch-tokens"));
  double planned = progress_clock() - start;
  if (!err)
    err =
        read_batches(&d, &plan, (uint64_t)opt_count(opts, "seed"), opt_real(opts, "time"), &r);
  if (!err) {
    double tokens = (double)(r.rows[0] + r.rows[1]);
    if (opt_flag(opts, "json")) {
      json_t *j = json_pack(
          "{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "bench", "reader", "batch_tokens",
          (json_int_t)plan.capacity, "tokens_per_s", tokens / r.seconds, "target_tokens_per_s",
          (double)r.rows[1] / r.seconds, "pairs_per_s", (double)r.pairs / r.seconds, "fill",
          plan.fill, "plan_ms", 1e3 * planned, "first_batch_ms", 1e3 * r.first);
      json_dumpf(j, stdout, JSON_REAL_PRECISION(6));
      putchar('\n');
      json_decref(j);
    } else {
      printf(
          "reader: %.1f M tokens/s (source and target), %.2f M pairs/s, batches of %u tokens a "
          "side, %.2f %% full\n",
          tokens / r.seconds / 1e6, (double)r.pairs / r.seconds / 1e6, plan.capacity,
          100 * plan.fill);
      printf("        plan in %.1f ms, first batch after %.1f ms, one thread\n", 1e3 * planned,
             1e3 * r.first);
    }
  }
  order_plan_free(&plan);
  dataset_close(&d);
  return err;
}

typedef struct {
  const char *name;
  Err (*run)(const OptSet *);
  int operands;      /* number of positional arguments, including the benchmark's name */
  const char *takes; /* the options that the benchmark accepts: "--one, --two" */
  bool ranks;        /* whether it may run on several ranks */
} Bench;

static const Bench benches[] = {{"reader", bench_reader, 2, BENCH_READER, false},
                                {"train", bench_train, 1, BENCH_TRAIN, false},
                                {"translate", bench_translate, 1, BENCH_TRANSLATE, false},
                                {"allreduce", bench_allreduce, 1, BENCH_ALLREDUCE, true},
                                {"scale", bench_scale, BENCH_OPERANDS, BENCH_SCALE, false}};
#define BENCHES (sizeof benches / sizeof *benches)

/* Returns true if `list`, such as "--one, --two", contains --name. */
static bool is_listed(const char *list, const char *name) {
  char word[64];
  size_t n = (size_t)snprintf(word, sizeof word, "--%s", name);
  for (const char *at = list; (at = strstr(at, word)); at += n)
    if (at[n] == ',' || at[n] == '\0') return true;
  return false;
}

/* Sets the error for an option that this benchmark does not use; names the benchmarks that
 * do. */
static Err refuse_option(const Bench *b, const char *name) {
  char of[96] = "";
  size_t n = 0;
  for (size_t i = 0; i < BENCHES; i++)
    if (is_listed(benches[i].takes, name))
      n +=
          (size_t)snprintf(of + n, sizeof of - n, "%sbench %s", n ? ", " : "", benches[i].name);
  return err_set(ERR_USAGE, "bench %s has no option --%s, which belongs to %s; leave it out",
                 b->name, name, n ? of : "no bench");
}

static Err check_options(const Bench *b, const OptSet *opts) {
  for (const OptSpec *s = cmd_options(); s->name; s++) {
    if (!strstr(s->commands, "bench") || !opt_given(opts, s->name)) continue;
    if (!is_listed(b->takes, s->name) && !is_listed(BENCH_ALL, s->name))
      return refuse_option(b, s->name);
  }
  return ERR_OK;
}

/* Refuses to run on several ranks: processes that do not communicate would compete for the
 * cores or the first GPU, and each would print a speed that is too low. */
static Err check_ranks(const Bench *b) {
  char what[32];
  if (b->ranks) return ERR_OK;
  snprintf(what, sizeof what, "bench %s", b->name);
  return cmd_refuse_ranks(what,
                          "call it without mpirun or srun; bench allreduce measures ranks");
}

Err cmd_bench(OptSet *opts) {
  log_quiet(opt_flag(opts, "quiet"));
  const char *what = opt_operand(opts, 0);
  for (size_t i = 0; i < BENCHES; i++) {
    const Bench *b = &benches[i];
    if (strcmp(what, b->name) != 0) continue;
    if (opt_operands(opts) > b->operands)
      return err_set(ERR_USAGE, "bench %s: unexpected argument '%s'; leave it out", what,
                     opt_operand(opts, 1));
    TRY(check_options(b, opts));
    TRY(check_ranks(b));
    return b->run(opts);
  }
  return err_set(ERR_USAGE,
                 "there is no bench '%s'; pass reader, train, translate, allreduce or scale",
                 what);
}
