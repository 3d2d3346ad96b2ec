/* trireme bench allreduce: time and bandwidth of an all-reduce of each size, over the transport
 * that training would select on this machine. Depends on train/allreduce, comm/reduce. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "cmd/bench.h"
#include "cmd/cmd.h"
#include "train/allreduce.h"

#define SMALLEST  ((size_t)4096) /* bytes; sizes grow by a factor of 4 */
#define UNIT      16 /* elements that are not split between ranks (ReduceSpec.unit) */
#define MAX_SIZES 16

typedef struct {
  size_t bytes;
  double seconds; /* mean time of one all-reduce, averaged over the ranks */
  int times;      /* number of all-reduces that were timed */
} Timing;

typedef struct {
  Comm *comm;
  Backend b;
  Allreduce x;
  int ranks;
  float *there, *here; /* the array in the backend's memory and in host memory */
  Timing size[MAX_SIZES];
  size_t sizes;
} Bench;

/* All-reduces n elements: through host memory with `reducer`, or by NCCL if `reducer` is
 * NULL. */
static Err run_allreduce(Bench *q, Reducer *reducer, size_t n) {
  const Backend *b = &q->b;
  if (!reducer) {
    q->x.ops->all_reduce(q->x.nccl, q->there, n);
    return allreduce_wait(&q->x);
  }
  if (!b->host) TRY(b->get(b, q->here, q->there, n * sizeof(float)));
  reducer_begin_round(reducer,
                      (ReduceRound){.active = q->ranks, .is_first = true, .is_last = true});
  reducer_mark_ready(reducer, 0, n);
  reducer_finish(reducer);
  if (b->host) return ERR_OK;
  b->put(b, q->there, q->here, n * sizeof(float));
  return b->sync(b);
}

/* Returns element i of a rank's test array: small integers, whose sums are exact in any
 * order. */
static float make_element(int rank, size_t i) {
  return (float)((i * 7 + (size_t)rank * 3) % 61);
}

static Err check_sum(Bench *q, Reducer *reducer, size_t n) {
  const Backend *b = &q->b;
  for (size_t i = 0; i < n; i++) q->here[i] = make_element(comm_rank(q->comm), i);
  if (!b->host) b->put(b, q->there, q->here, n * sizeof(float));
  TRY(run_allreduce(q, reducer, n));
  if (!b->host) TRY(b->get(b, q->here, q->there, n * sizeof(float)));
  for (size_t i = 0; i < n; i++) {
    float want = 0;
    for (int r = 0; r < q->ranks; r++) want += make_element(r, i);
    if (q->here[i] != want)
      return err_set(ERR_WORK,
                     "the all-reduce computes wrong sums: element %zu of %zu is %g, expected "
                     "%g; try another --allreduce-transport",
                     i, n, (double)q->here[i], (double)want);
  }
  return ERR_OK;
}

/* Runs all-reduces for about `seconds`. All ranks run the same number of them. */
static Err time_sum(Bench *q, Reducer *reducer, size_t n, double seconds, Timing *t) {
  double start = progress_clock(), mean;
  TRY(run_allreduce(q, reducer, n));
  mean = progress_clock() - start;
  comm_sum(q->comm, "time", &mean, 1);
  mean /= q->ranks;
  t->times = (int)fmin(fmax(seconds / fmax(mean, 1e-7), 1), 1e5);
  start = progress_clock();
  for (int i = 0; i < t->times; i++) TRY(run_allreduce(q, reducer, n));
  t->seconds = (progress_clock() - start) / t->times;
  comm_sum(q->comm, "time", &t->seconds, 1);
  t->seconds /= q->ranks;
  return ERR_OK;
}

static Err measure_size(Bench *q, size_t bytes, double seconds) {
  size_t n = bytes / sizeof(float);
  Reducer *reducer = NULL;
  Timing *t = &q->size[q->sizes++];
  t->bytes = bytes;
  comm_report(q->comm, 600, "a sum of %zu bytes", bytes);
  if (!q->x.nccl)
    TRY(reducer_new(&reducer, q->comm, q->here, n, &(ReduceSpec){.unit = UNIT, .bucket = n}));
  Err err = check_sum(q, reducer, n);
  /* Sum zeros: repeated sums of other values would overflow. */
  if (!err) q->b.zero(&q->b, q->there, bytes);
  if (!err) err = time_sum(q, reducer, n, seconds, t);
  reducer_free(reducer);
  return err;
}

/* Returns the bytes that each link carries in a ring all-reduce, per byte of the array ("bus
 * bandwidth"). */
static double bus_factor(const Bench *q) {
  return 2.0 * (q->ranks - 1) / q->ranks;
}

static const char *name_transport(const Bench *q) {
  return q->x.nccl ? "nccl" : q->b.host ? "host" : "host, from a GPU";
}

static void print_table(const Bench *q) {
  char bytes[32];
  printf("%s; %s%s%s\n", q->b.about, comm_about(q->comm), q->x.about[0] ? ", " : "",
         q->x.about);
  if (q->ranks == 1) printf("One rank: nothing is sent; these are the costs of the calls.\n");
  printf("%10s %12s %12s %12s\n", "size", "time (us)", "sum (GB/s)", "bus (GB/s)");
  for (size_t i = 0; i < q->sizes; i++) {
    const Timing *t = &q->size[i];
    double rate = (double)t->bytes / t->seconds / 1e9;
    printf("%10s %12.1f %12.3f %12.3f\n", str_of_bytes(bytes, t->bytes), 1e6 * t->seconds, rate,
           rate * bus_factor(q));
  }
}

static Err print_json(const Bench *q) {
  json_t *list = json_array();
  for (size_t i = 0; i < q->sizes; i++) {
    const Timing *t = &q->size[i];
    double rate = (double)t->bytes / t->seconds / 1e9;
    json_array_append_new(
        list, json_pack("{s:I, s:f, s:i, s:f, s:f}", "bytes", (json_int_t)t->bytes, "us",
                        1e6 * t->seconds, "times", t->times, "sum_gb_s", rate, "bus_gb_s",
                        rate * bus_factor(q)));
  }
  json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:i, s:o}", "bench", "allreduce", "way",
                        name_transport(q), "backend", q->b.about, "about", comm_about(q->comm),
                        "ranks", q->ranks, "sizes", list);
  if (!j) return err_set(ERR_WORK, "out of memory while writing JSON");
  json_dumpf(j, stdout, JSON_REAL_PRECISION(6));
  putchar('\n');
  json_decref(j);
  return ERR_OK;
}

static Err run_bench(Bench *q, const OptSet *opts) {
  const Backend *b = &q->b;
  bool is_one = opt_given(opts, "bytes");
  size_t most = (size_t)opt_count(opts, is_one ? "bytes" : "max-bytes"), sizes = 0;
  most -= most % sizeof(float);
  int transport = opt_choice(opts, "allreduce-transport", "auto|nccl|host");
  AllreduceSpec reduce = {.transport = (AllreduceTransport)transport,
                          .max_elements = most / sizeof(float)};
  BackendSpec spec = {opt_text(opts, "device"), "fp32", (int)opt_count(opts, "threads")};
  if (!spec.threads) spec.threads = comm_threads(q->comm);
  TRY(backend_open_for_rank(&q->b, &spec, comm_local_rank(q->comm)));
  TRY(allreduce_select(&q->x, q->comm, b, &reduce));
  TRY(allreduce_open(&q->x, &reduce));
  TRY(b->alloc(b, &q->there, most));
  q->here = q->there;
  if (!b->host) TRY(mem_alloc_aligned(&q->here, most));
  for (size_t bytes = SMALLEST; bytes <= most && sizes < MAX_SIZES; bytes *= 4) sizes++;
  if (is_one) TRY(measure_size(q, most, opt_real(opts, "time")));
  for (size_t i = 0; i < sizes && !is_one; i++)
    TRY(measure_size(q, SMALLEST << 2 * i, opt_real(opts, "time") / (double)sizes));
  if (comm_rank(q->comm) == 0 && opt_flag(opts, "json"))
    TRY(print_json(q));
  else if (comm_rank(q->comm) == 0)
    print_table(q);
  return allreduce_finish(&q->x);
}

Err bench_allreduce(const OptSet *opts) {
  Bench *q;
  TRY(mem_alloc(&q, 1, sizeof *q));
  Err err = comm_open(&q->comm, 6);
  if (!err) {
    cmd_introduce(q->comm);
    q->ranks = comm_size(q->comm);
    err = run_bench(q, opts);
    allreduce_close(&q->x);
    if (q->here != q->there) mem_free(q->here);
    if (q->there) q->b.release(&q->b, q->there);
    backend_close(&q->b);
  }
  comm_close(q->comm, err);
  mem_free(q);
  return err;
}
