/* The table that `bench train` prints: the time of each kind of operation and two lower bounds
 * of it, its FLOPs at the rate of a large GEMM and its bytes at the rate of a large copy. Both
 * rates are measured in the same call. Depends on backend/timed, base/progress. */
#include "cmd/bench_parts.h"

#include <stdio.h>

#include "backend/timed.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"

#define LONG_ENOUGH 0.04           /* shortest time in seconds that counts as a measurement */
#define MOST_SIDE   ((size_t)8192) /* largest side of the square matrices of the GEMM */
#define MOST_COPY   ((size_t)1 << 28) /* bytes of the largest copy */
/* Number of random values, which are repeated to fill a matrix. */
#define PATTERN ((size_t)1 << 16)

static const char *const names[WORK_KINDS] = {"GEMMs forward",
                                              "GEMMs, input grads",
                                              "GEMMs, weight grads",
                                              "attention forward",
                                              "attention backward",
                                              "norms forward",
                                              "norms backward",
                                              "activation forward",
                                              "activation backward",
                                              "embeddings",
                                              "loss",
                                              "optimizer",
                                              "copies, zeroing"};

typedef struct {
  double gemm; /* FLOP/s of a large GEMM */
  double copy; /* bytes/s of a large copy, reads and writes counted */
} Rates;

/* An operation to be timed. The arrays a, b and c are (n, n) for a GEMM, (n) for a copy or
 * add. */
typedef struct Task {
  void (*run)(const Backend *, const struct Task *);
  void *a, *b, *c;
  size_t n;
} Task;

static void run_gemm(const Backend *b, const Task *t) {
  b->linear(b, t->c, t->a, t->b, NULL, t->n, t->n, t->n);
}

static void run_copy(const Backend *b, const Task *t) {
  b->copy(b, t->a, t->b, t->n * sizeof(float));
}

static void run_add(const Backend *b, const Task *t) {
  b->add(b, t->a, t->b, 0.5f, t->n);
}

static Err time_runs(const Backend *b, const Task *t, size_t runs, double *seconds) {
  TRY(b->sync(b));
  double start = progress_clock();
  for (size_t i = 0; i < runs; i++) t->run(b, t);
  TRY(b->sync(b));
  *seconds = progress_clock() - start;
  return ERR_OK;
}

/* Measures the seconds of one run: the best of three timings, each of at least LONG_ENOUGH. */
static Err measure_task(const Backend *b, const Task *t, double *seconds) {
  size_t runs = 1;
  double took = 0;
  /* warm-up: touches the pages, and a GPU selects its GEMM algorithm. */
  TRY(time_runs(b, t, 1, &took));
  for (;; runs *= 2) {
    TRY(time_runs(b, t, runs, &took));
    if (took >= LONG_ENOUGH) break;
  }
  *seconds = took / (double)runs;
  for (int i = 0; i < 2; i++) {
    TRY(time_runs(b, t, runs, &took));
    if (took / (double)runs < *seconds) *seconds = took / (double)runs;
  }
  return ERR_OK;
}

/* Fills an array with random values. A GPU runs a GEMM of zeros at a higher clock, because it
 * draws less power. */
static Err fill_random(const Backend *b, void *low, size_t n) {
  float *here, *there = NULL;
  size_t size = type_size(b->type);
  Rng rng = {.key = 1};
  TRY(mem_alloc(&here, PATTERN, sizeof *here));
  for (size_t i = 0; i < PATTERN; i++) here[i] = (float)rng_below(&rng, 1 << 20) * 0x1p-19f - 1;
  Err err = b->alloc(b, &there, PATTERN * sizeof *there);
  if (!err) {
    b->put(b, there, here, PATTERN * sizeof *there);
    b->lower(b, low, there, PATTERN < n ? PATTERN : n);
    for (size_t done = PATTERN; done < n; done *= 2) {
      size_t more = done < n - done ? done : n - done;
      b->copy(b, (char *)low + done * size, low, more * size);
    }
    err = b->sync(b);
  }
  if (there) b->release(b, there);
  mem_free(here);
  return err;
}

static void free_task(const Backend *b, Task *t) {
  void *list[] = {t->a, t->b, t->c};
  for (int i = 0; i < 3; i++)
    if (list[i]) b->release(b, list[i]);
  *t = (Task){0};
}

static Err new_gemm_task(const Backend *b, Task *t, size_t n) {
  size_t bytes = n * n * type_size(b->type);
  *t = (Task){.run = run_gemm, .n = n};
  TRY(b->alloc(b, &t->a, bytes));
  TRY(b->alloc(b, &t->b, bytes));
  TRY(b->alloc(b, &t->c, bytes));
  TRY(fill_random(b, t->a, n * n));
  return fill_random(b, t->b, n * n);
}

/* Measures the FLOP/s of a GEMM whose size is doubled until it takes long enough to be
 * timed. */
static Err measure_gemm_rate(const Backend *b, size_t memory, double *rate) {
  double enough = b->host ? 0.01 : 0.002, seconds = 0;
  size_t n = 256;
  Task t = {0};
  Err err;
  for (;; n *= 2) {
    TRY_DONE(new_gemm_task(b, &t, n));
    TRY_DONE(time_runs(b, &t, 1, &seconds));
    TRY_DONE(time_runs(b, &t, 1, &seconds));
    if (seconds > enough || n == MOST_SIDE || 48 * n * n > memory) break;
    free_task(b, &t);
  }
  TRY_DONE(measure_task(b, &t, &seconds));
  *rate = 2 * (double)n * (double)n * (double)n / seconds;
done:
  free_task(b, &t);
  return err;
}

/* Measures the faster of `copy` and `add`: on a CPU `copy` uses one thread and `add` all
 * threads. */
static Err measure_copy_rate(const Backend *b, size_t memory, double *rate) {
  size_t bytes = memory < MOST_COPY ? memory : MOST_COPY;
  double copy = 1, add = 1;
  Task t = {.n = bytes / sizeof(float)};
  Err err;
  TRY_DONE(b->alloc(b, &t.a, bytes));
  TRY_DONE(b->alloc(b, &t.b, bytes));
  t.run = run_copy;
  TRY_DONE(measure_task(b, &t, &copy));
  t.run = run_add;
  TRY_DONE(measure_task(b, &t, &add));
  *rate = (double)bytes * (2 / copy > 3 / add ? 2 / copy : 3 / add);
done:
  free_task(b, &t);
  return err;
}

static Err measure_rates(const Backend *b, Rates *r) {
  uint64_t left = 0, all = 0;
  TRY(b->memory(b, &left, &all));
  TRY(measure_gemm_rate(b, (size_t)(left / 4), &r->gemm));
  return measure_copy_rate(b, (size_t)(left / 8), &r->copy);
}

/* A line of the table: one kind of operation, or the whole step. */
typedef struct {
  const char *name;
  double calls, seconds, share; /* per step; `share` is a fraction of the step's time */
  double operations, bytes;     /* FLOPs and bytes per second */
  double bound[2];              /* lower bounds of `seconds`, from FLOPs and from bytes */
  /* The larger of the two lower bounds. For the whole step: the sum of these over all kinds. */
  double least;
} Line;

static Line make_line(const TimedBackend *c, const Rates *r, int kind) {
  const Work *w = &c->work[kind];
  double n = (double)c->periods;
  Line l = {.name = names[kind], .calls = (double)w->calls / n, .seconds = w->seconds / n};
  l.share = w->seconds / c->seconds;
  l.operations = w->seconds > 0 ? w->operations / w->seconds : 0;
  l.bytes = w->seconds > 0 ? w->bytes / w->seconds : 0;
  l.bound[0] = w->operations / n / r->gemm;
  l.bound[1] = w->bytes / n / r->copy;
  l.least = l.bound[0] > l.bound[1] ? l.bound[0] : l.bound[1];
  return l;
}

/* Adds up all kinds of operations of a step that took `seconds`. *between receives the time in
 * which no operation was running. */
static Line sum_lines(const Line *line, double seconds, Line *between) {
  Line all = {.name = "step", .seconds = seconds, .share = 1};
  double sum = 0;
  for (int i = 0; i < WORK_KINDS; i++) {
    const Line *l = &line[i];
    sum += l->seconds;
    all.calls += l->calls;
    all.least += l->least;
    all.operations += l->operations * l->seconds / seconds;
    all.bytes += l->bytes * l->seconds / seconds;
    for (int f = 0; f < 2; f++) all.bound[f] += l->bound[f];
  }
  *between =
      (Line){.name = "between", .seconds = seconds - sum, .share = (seconds - sum) / seconds};
  return all;
}

/* Formats a lower bound in ms, such as "12.30*"; the larger of the two bounds is marked with *.
 * A bound of 0 is "- ". */
static const char *format_bound(char out[32], const Line *l, int which) {
  const char *mark = l->least > 0 && l->bound[which] >= l->least ? "*" : " ";
  snprintf(out, 32, l->bound[which] > 0 ? "%.2f%s" : "- ", 1e3 * l->bound[which], mark);
  return out;
}

static void print_line(const Line *l) {
  char number[4][32] = {"", "-", "-", "-"}, bound[2][32];
  if (l->calls > 0) snprintf(number[0], 32, "%.0f", l->calls);
  if (l->operations > 0) snprintf(number[1], 32, "%.3f", l->operations * 1e-12);
  if (l->bytes > 0) snprintf(number[2], 32, "%.1f", l->bytes * 1e-9);
  if (l->least > 0) snprintf(number[3], 32, "%.2f", l->seconds / l->least);
  printf("%-19s %6s %10.2f %6.1f %% %9s %8s %11s %11s %7s\n", l->name, number[0],
         1e3 * l->seconds, 100 * l->share, number[1], number[2], format_bound(bound[0], l, 0),
         format_bound(bound[1], l, 1), number[3]);
}

static void print_table(const TimedBackend *c, const Rates *r, const Line *line,
                        const Line *between, const Line *all) {
  printf("\n%-19s %6s %10s %8s %9s %8s %11s %11s %7s\n", "a step", "calls", "ms", "share",
         "TFLOP/s", "GB/s", "bound: ops ", "bytes ", "ratio");
  for (int i = 0; i < WORK_KINDS; i++)
    if (line[i].calls > 0) print_line(&line[i]);
  print_line(between);
  print_line(all);
  printf(
      "lower bounds of the step: operations %.1f ms at %.3f TFLOP/s (a large GEMM), %.0f %% "
      "reached\n"
      "                          bytes %.1f ms at %.1f GB/s (a large copy), %.0f %% reached\n",
      1e3 * all->bound[0], r->gemm * 1e-12, 100 * all->bound[0] / all->seconds,
      1e3 * all->bound[1], r->copy * 1e-9, 100 * all->bound[1] / all->seconds);
  printf(
      "from %llu timed %s; lower bounds in ms, the larger with *; ratio is to the larger, for "
      "the step to their sum\n",
      (unsigned long long)c->periods, c->periods == 1 ? "step" : "steps");
}

static json_t *make_json(const Line *l) {
  return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "name", l->name, "calls",
                   l->calls, "ms", 1e3 * l->seconds, "share", l->share, "tflops",
                   l->operations * 1e-12, "gb_s", l->bytes * 1e-9, "floor_operations_ms",
                   1e3 * l->bound[0], "floor_bytes_ms", 1e3 * l->bound[1], "ratio",
                   l->least > 0 ? l->seconds / l->least : 0.0);
}

static Err add_json(json_t *into, const TimedBackend *c, const Rates *r, const Line *line,
                    const Line *between, const Line *all) {
  json_t *work = json_array();
  int bad = 0;
  for (int i = 0; i < WORK_KINDS; i++)
    if (line[i].calls > 0) bad |= json_array_append_new(work, make_json(&line[i]));
  bad |= json_array_append_new(work, make_json(between));
  bad |= json_object_set_new(
      into, "parts",
      json_pack("{s:I, s:f, s:f, s:o, s:o}", "steps", (json_int_t)c->periods, "product_tflops",
                r->gemm * 1e-12, "copy_gb_s", r->copy * 1e-9, "work", work, "step",
                make_json(all)));
  return bad ? err_set(ERR_WORK, "out of memory while writing JSON") : ERR_OK;
}

/* Synchronize after each step: the batch must stay valid until the times of its operations are
 * read. */
static Err time_steps(const BenchSteps *s, TimedBackend *c) {
  const Backend *kept = *s->backend;
  Err err = ERR_OK;
  *s->backend = &c->backend;
  for (uint64_t i = 0; i < s->steps && !err; i++) {
    timed_begin(c);
    err = s->step(s->context, s->first + i);
    if (!err) err = timed_end(c);
  }
  *s->backend = kept;
  return err;
}

Err bench_parts(const BenchSteps *s, json_t *into) {
  const Backend *b = *s->backend;
  Rates r = {0};
  TimedBackend c = {0};
  Line line[WORK_KINDS], between, all;
  Err err;
  TRY_DONE(measure_rates(b, &r));
  TRY_DONE(timed_open(&c, b));
  TRY_DONE(time_steps(s, &c));
  for (int i = 0; i < WORK_KINDS; i++) line[i] = make_line(&c, &r, i);
  all = sum_lines(line, c.seconds / (double)c.periods, &between);
  if (into)
    err = add_json(into, &c, &r, line, &between, &all);
  else
    print_table(&c, &r, line, &between, &all);
done:
  timed_close(&c);
  return err;
}
