/* Selects the transport of the gradient all-reduce, and runs the collectives of NCCL. Depends
 * on device_comm, comm. */
#include "train/allreduce.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/mem.h"
#include "base/progress.h"

/* Time limit in seconds for the initialization of NCCL on all ranks. */
#define OPEN_SECONDS 600
/* Elements of the self-test's array; raised to twice the number of ranks if these are more. */
#define SELFTEST_ELEMENTS 4096

/* Properties of a rank that decide whether NCCL can be used; gathered from all ranks. */
typedef struct {
  uint64_t device; /* identifies the GPU; 0: no GPU */
  int32_t transport, is_ordered;
  int32_t nccl_version; /* 0: NCCL is not installed */
  int32_t pad;
} RankOffer;

/* Why NCCL is not available, and a remedy; both "" if it is available. */
typedef struct {
  char why[96], remedy[160];
} Refusal;

static Err gather_offers(const Allreduce *x, const RankOffer *mine, RankOffer **list) {
  size_t ranks = (size_t)comm_size(x->comm), *off;
  TRY(mem_alloc(&off, ranks + 1, sizeof *off));
  Err err = mem_alloc(list, ranks, sizeof **list);
  for (size_t r = 0; r <= ranks; r++) off[r] = r * sizeof **list;
  if (!err) {
    (*list)[comm_rank(x->comm)] = *mine;
    comm_allgather(x->comm, "transports", *list, off);
  }
  mem_free(off);
  return err;
}

static void refuse_nccl(Refusal *no, const char *why, const char *remedy) {
  snprintf(no->why, sizeof no->why, "%s", why);
  snprintf(no->remedy, sizeof no->remedy, "%s", remedy);
}

/* Finds the first two ranks, *a and *b, that use the same GPU. */
static bool find_shared_gpu(const RankOffer *list, int ranks, int *a, int *b) {
  for (*b = 0; *b < ranks; ++*b)
    for (*a = 0; *a < *b; ++*a)
      if (list[*b].device && list[*b].device == list[*a].device) return true;
  return false;
}

static void check_rank(const Allreduce *x, const RankOffer *list, int r, Refusal *no) {
  char text[96];
  if (!list[r].device) {
    snprintf(text, sizeof text, "rank %d has no GPU", r);
    refuse_nccl(no, text, "pass --device cuda, with one GPU per rank");
  } else if (list[r].is_ordered) {
    refuse_nccl(no, "--reproducible adds in the order of the micro-batches",
                "leave --reproducible out");
  } else if (!list[r].nccl_version) {
    snprintf(text, sizeof text, "NCCL was not found on rank %d (%.48s)", r,
             comm_host(x->comm, r));
    refuse_nccl(no, text, "install libnccl2 on every machine");
  } else if (list[r].nccl_version != list[0].nccl_version) {
    snprintf(text, sizeof text, "ranks 0 and %d have different NCCL versions", r);
    refuse_nccl(no, text, "install the same libnccl2 on every machine");
  } else if (list[r].transport != list[0].transport) {
    snprintf(text, sizeof text,
             "ranks 0 and %d were started with different --allreduce-transport", r);
    refuse_nccl(no, text, "start all ranks with the same options");
  }
}

static void check_nccl(const Allreduce *x, const RankOffer *list, Refusal *no) {
  int ranks = comm_size(x->comm), a, b;
  char text[96];
  *no = (Refusal){0};
  if (find_shared_gpu(list, ranks, &a, &b)) {
    snprintf(text, sizeof text, "ranks %d and %d share a GPU", a, b);
    refuse_nccl(no, text, "start one rank per GPU");
  }
  for (int r = 0; r < ranks && !no->why[0]; r++) check_rank(x, list, r, no);
}

static void describe_host(Allreduce *x, const char *why) {
  snprintf(x->about, sizeof x->about, "gradient all-reduce through host memory (%s)", why);
}

static Err refuse_ctas(int ctas, const char *why, const char *missing, const char *remedy) {
  return err_set(
      ERR_USAGE,
      "--nccl-ctas %d is not available, because NCCL is not used: %s%s; %s, or leave "
      "--nccl-ctas out",
      ctas, why, missing, remedy);
}

Err allreduce_select(Allreduce *x, Comm *comm, const Backend *b, const AllreduceSpec *spec) {
  Refusal no;
  RankOffer *list = NULL,
            mine = {b->device_id, (int32_t)spec->transport, spec->is_ordered, 0, 0};
  char name[64] = "", missing[512] = "";
  bool has_gpu = false, may_use_nccl = spec->transport != TRANSPORT_HOST;
  *x = (Allreduce){.comm = comm, .backend = b};
  if (comm_size(comm) == 1 && spec->transport != TRANSPORT_NCCL) return ERR_OK;
  if (may_use_nccl && b->device_id && b->comm && b->comm->probe(name, &mine.nccl_version))
    snprintf(missing, sizeof missing, ": %s", err_message());
  x->version = mine.nccl_version;
  TRY(gather_offers(x, &mine, &list));
  for (int r = 0; r < comm_size(comm); r++) has_gpu = has_gpu || list[r].device;
  check_nccl(x, list, &no);
  mem_free(list);
  if (may_use_nccl && !no.why[0]) {
    x->ops = b->comm;
    snprintf(x->about, sizeof x->about, "gradient all-reduce from GPU to GPU by %s", name);
  } else if (spec->transport == TRANSPORT_NCCL) {
    return err_set(ERR_USAGE,
                   "--allreduce-transport nccl is not available: %s%s; %s, or use "
                   "--allreduce-transport auto",
                   no.why, missing, no.remedy);
  } else if (spec->needs_ctas && !may_use_nccl) {
    return refuse_ctas(spec->max_ctas, "--allreduce-transport host", "", "leave that out");
  } else if (spec->needs_ctas) {
    return refuse_ctas(spec->max_ctas, no.why, missing, no.remedy);
    /* Without a GPU there is only the host transport, which need not be reported. */
  } else if (has_gpu) {
    describe_host(x, may_use_nccl ? no.why : "as asked");
  }
  return ERR_OK;
}

/* Most waits are short, so poll without sleeping first; then sleep, to leave the cores to the
 * data loader. */
static void back_off(unsigned polls) {
  if (polls < 50)
    sched_yield();
  else
    nanosleep(&(struct timespec){.tv_nsec = polls < 1000 ? 10000 : 50000}, NULL);
}

Err allreduce_wait_inputs(Allreduce *x) {
  bool has_inputs = false, is_done = false;
  for (unsigned polls = 0; !has_inputs; polls++) {
    TRY(x->ops->poll(x->nccl, &has_inputs, &is_done));
    if (!has_inputs) back_off(polls);
  }
  return ERR_OK;
}

static Err poll_until_done(Allreduce *x) {
  bool has_inputs = false, is_done = false;
  for (unsigned polls = 0; !is_done; polls++) {
    TRY(x->ops->poll(x->nccl, &has_inputs, &is_done));
    if (!is_done) back_off(polls);
  }
  return ERR_OK;
}

Err allreduce_wait(Allreduce *x) {
  comm_begin_wait(x->comm);
  Err err = poll_until_done(x);
  comm_end_wait(x->comm);
  return err;
}

/* The self-test of sums: element i is 1 or 2 on rank i % ranks and 0 on all others. A rank that
 * is missing or added twice is thereby detected, and the sums are exact in bf16 for any number
 * of ranks. */
static float expected_sum(size_t i) {
  return (float)(i % 2 + 1);
}

void allreduce_fill_selftest(float *x, size_t n, int rank, int ranks) {
  for (size_t i = 0; i < n; i++) x[i] = (int)(i % (size_t)ranks) == rank ? expected_sum(i) : 0;
}

static Err report_wrong_element(const char *collective, double got, double expected, int from,
                                int ranks) {
  return err_set(ERR_WORK,
                 "NCCL %s self-test failed: got %.17g, expected %.17g (from rank %d of %d); "
                 "try --allreduce-transport host, or NCCL_P2P_DISABLE=1",
                 collective, got, expected, from, ranks);
}

Err allreduce_check_selftest(const char *collective, const float *x, size_t begin, size_t end,
                             int ranks) {
  for (size_t i = begin; i < end; i++)
    if (x[i] != expected_sum(i))
      return report_wrong_element(collective, x[i], expected_sum(i), (int)(i % (size_t)ranks),
                                  ranks);
  return ERR_OK;
}

/* The self-test of copies, of elements of 2 or 4 bytes: every element has a value that its
 * neighbours in other pieces do not have; elements that a rank has not received are 0. */
static uint32_t expected_copy(size_t i) {
  return (uint32_t)(i % 1021 + 1);
}

static void fill_own_piece(void *x, size_t n, size_t begin, size_t end, size_t width) {
  uint32_t *words = x;
  uint16_t *halves = x;
  for (size_t i = 0; i < n; i++) {
    uint32_t value = i >= begin && i < end ? expected_copy(i) : 0;
    if (width == sizeof *words)
      words[i] = value;
    else
      halves[i] = (uint16_t)value;
  }
}

static Err check_pieces(const char *collective, const void *x, const size_t *off, int ranks,
                        size_t width) {
  const uint32_t *words = x;
  const uint16_t *halves = x;
  for (int r = 0; r < ranks; r++)
    for (size_t i = off[r]; i < off[r + 1]; i++) {
      uint32_t got = width == sizeof *words ? words[i] : halves[i];
      if (got != expected_copy(i))
        return report_wrong_element(collective, got, expected_copy(i), r, ranks);
    }
  return ERR_OK;
}

/* The self-test of sums in fp64: as that of sums in fp32, with digits that fp32 does not have. */
static double expected_fp64_sum(size_t i) {
  return (double)expected_sum(i) + 0x1p-40;
}

static void fill_fp64_selftest(double *x, size_t n, int rank, int ranks) {
  for (size_t i = 0; i < n; i++)
    x[i] = (int)(i % (size_t)ranks) == rank ? expected_fp64_sum(i) : 0;
}

static Err check_fp64_sum(const double *x, size_t n, int ranks) {
  for (size_t i = 0; i < n; i++)
    if (x[i] != expected_fp64_sum(i))
      return report_wrong_element("fp64 all-reduce", x[i], expected_fp64_sum(i),
                                  (int)(i % (size_t)ranks), ranks);
  return ERR_OK;
}

/* Cuts the array into pieces of equal size, or of sizes of which the first is smaller and the last
 * larger than the others: NCCL has other functions for these. */
static void cut_selftest(size_t *off, size_t n, int ranks, bool is_uneven) {
  size_t each = n / (size_t)ranks;
  for (int r = 0; r <= ranks; r++) {
    off[r] = (size_t)r * each;
    if (is_uneven && r > 0 && r < ranks) off[r]--;
  }
}

/* The collectives of a run, each in the forms that its buckets may need. */
typedef enum { TRY_SUM, TRY_SCATTER, TRY_GATHER } TrialKind;
typedef struct {
  TrialKind kind;
  const char *collective;
  bool is_uneven;
  size_t width; /* bytes of an element of TRY_GATHER */
} Trial;
static const Trial trials[] = {
    {TRY_SUM, "all-reduce", false, 0},         {TRY_SCATTER, "reduce-scatter", false, 0},
    {TRY_SCATTER, "reduce-scatter", true, 0},  {TRY_GATHER, "all-gather", false, 4},
    {TRY_GATHER, "all-gather", true, 4},       {TRY_GATHER, "16-bit all-gather", false, 2},
    {TRY_GATHER, "16-bit all-gather", true, 2}};

static void queue_trial(Allreduce *x, const Trial *t, size_t n) {
  DeviceGather gather = {.width = t->width, .ranges = 1, .off = x->off};
  if (t->kind == TRY_SUM)
    x->ops->all_reduce(x->nccl, x->selftest, n);
  else if (t->kind == TRY_SCATTER)
    x->ops->reduce_scatter(x->nccl, x->selftest, x->off);
  else
    x->ops->all_gather(x->nccl, x->selftest, &gather);
}

/* Runs a collective on n elements of the self-test array; `host` (n) is working memory. */
static Err run_trial(Allreduce *x, const Trial *t, float *host, size_t n) {
  const Backend *b = x->backend;
  int rank = comm_rank(x->comm), ranks = comm_size(x->comm);
  cut_selftest(x->off, n, ranks, t->is_uneven);
  if (t->kind == TRY_GATHER)
    fill_own_piece(host, n, x->off[rank], x->off[rank + 1], t->width);
  else
    allreduce_fill_selftest(host, n, rank, ranks);
  b->put(b, x->selftest, host, n * sizeof *host);
  queue_trial(x, t, n);
  TRY(allreduce_wait(x));
  TRY(b->get(b, host, x->selftest, n * sizeof *host));
  if (t->kind == TRY_GATHER) return check_pieces(t->collective, host, x->off, ranks, t->width);
  if (t->kind == TRY_SUM) return allreduce_check_selftest(t->collective, host, 0, n, ranks);
  return allreduce_check_selftest(t->collective, host, x->off[rank], x->off[rank + 1], ranks);
}

/* Sums n numbers of fp64; `host` (2 n) is working memory. */
static Err run_fp64_trial(Allreduce *x, float *host, size_t n) {
  const Backend *b = x->backend;
  int rank = comm_rank(x->comm), ranks = comm_size(x->comm);
  double *numbers = (void *)host, *there = (void *)x->selftest;
  fill_fp64_selftest(numbers, n, rank, ranks);
  b->put(b, there, numbers, n * sizeof *numbers);
  x->ops->all_reduce_doubles(x->nccl, there, n);
  TRY(allreduce_wait(x));
  TRY(b->get(b, numbers, there, n * sizeof *numbers));
  return check_fp64_sum(numbers, n, ranks);
}

static Err run_selftest(Allreduce *x, size_t n, const AllreduceSpec *spec) {
  const Backend *b = x->backend;
  float *host;
  Err err = ERR_OK; /* stays so if the memory of an earlier self-test is used */
  TRY(mem_alloc(&host, n, sizeof *host));
  if (!x->selftest) TRY_DONE(b->alloc(b, &x->selftest, n * sizeof *host));
  for (size_t i = 0; i < sizeof trials / sizeof *trials && !err; i++)
    if (spec->is_sharded || trials[i].kind == TRY_SUM) err = run_trial(x, &trials[i], host, n);
  if (!err && spec->sums_numbers) err = run_fp64_trial(x, host, n / 2);
done:
  mem_free(host);
  return err;
}

/* Called on the communication thread when a rank is lost: aborts NCCL, so that a main thread
 * that is blocked in NCCL returns. */
static void abort_nccl(void *context) {
  Allreduce *x = context;
  x->ops->abort(x->nccl);
}

/* Called by the backend before it times GEMMs: running collectives would distort the times.
 * Cannot deadlock: all ranks queue the same collectives in the same order, so the other ranks
 * have queued at least the collectives that this rank waits for. */
static Err wait_for_queued(void *context) {
  return allreduce_wait(context);
}

Err allreduce_open(Allreduce *x, const AllreduceSpec *asked) {
  char id[DEVICE_COMM_ID] = {0};
  size_t ranks = (size_t)comm_size(x->comm);
  size_t selftest = 2 * ranks > SELFTEST_ELEMENTS ? 2 * ranks : SELFTEST_ELEMENTS;
  DeviceCommSpec spec = {
      .rank = comm_rank(x->comm),
      .size = (int)ranks,
      .max_elements = asked->max_elements > selftest ? asked->max_elements : selftest,
      .bf16 = asked->bf16,
      .max_ctas = asked->max_ctas,
      .reserves_sms = asked->reserves_sms,
      .quiesce = wait_for_queued,
      .context = x};
  if (!x->ops) return ERR_OK;
  if (!x->off) TRY(mem_alloc(&x->off, ranks + 1, sizeof *x->off));
  comm_report(x->comm, OPEN_SECONDS, "opening NCCL");
  if (spec.rank == 0) TRY(x->ops->create_id(id));
  comm_broadcast(x->comm, "NCCL id", id, sizeof id);
  TRY(x->ops->open(&x->nccl, x->backend, id, &spec));
  comm_set_on_loss(x->comm, abort_nccl, x);
  comm_report(x->comm, OPEN_SECONDS, "NCCL self-test");
  return run_selftest(x, selftest, asked);
}

Err allreduce_finish(Allreduce *x) {
  if (!x->nccl) return ERR_OK;
  TRY(allreduce_wait(x));
  comm_sum(x->comm, "end of NCCL", &(double){0}, 1);
  return ERR_OK;
}

static void close_nccl(Allreduce *x) {
  if (!x->nccl) return;
  comm_set_on_loss(x->comm, NULL, NULL);
  x->ops->close(x->nccl);
  x->nccl = NULL;
}

Err allreduce_reopen(Allreduce *x, const AllreduceSpec *spec) {
  TRY(allreduce_finish(x));
  close_nccl(x);
  return allreduce_open(x, spec);
}

bool allreduce_limits_ctas(const Allreduce *x) {
  return x->version >= DEVICE_COMM_CTAS_VERSION;
}

void allreduce_close(Allreduce *x) {
  close_nccl(x);
  /* release it after close(): a collective may use it until then */
  if (x->selftest) x->backend->release(x->backend, x->selftest);
  mem_free(x->off);
  *x = (Allreduce){0};
}

void allreduce_bind(Allreduce *x, Reducer *reducer, float *g, bool is_sharded) {
  x->reducer = reducer;
  x->g = g;
  x->is_sharded = is_sharded;
}

/* The device's time of a collective is not known: adds the time in which the host queued it. */
static void trace_bucket(Allreduce *x, size_t bucket, double start) {
  char name[TRACE_NAME];
  double bytes = (double)(x->off[comm_size(x->comm)] - x->off[0]) * sizeof(float);
  snprintf(name, sizeof name, "queue %s bucket %zu",
           x->is_sharded ? "reduce-scatter" : "all-reduce", bucket);
  trace_span(x->trace, TRACE_COMM, name, start, progress_clock(),
             (TraceArgs){{{TRACE_BUCKET, (double)bucket}, {TRACE_BYTES, bytes}}});
}

void allreduce_bind_pass(Allreduce *x, GraphCache *graphs, const AllreduceArrays *arrays) {
  x->graphs = graphs;
  x->arrays = *arrays;
}

/* Calls act(x, number) now or, in captured work, at each launch. */
static void queue_action(Allreduce *x, GraphAction act, size_t number) {
  if (x->graphs)
    graphs_act(x->graphs, x->backend, act, x, number);
  else
    act(x, number);
}

static void send_bucket(void *context, size_t bucket) {
  Allreduce *x = context;
  int ranks = comm_size(x->comm);
  bool is_traced = trace_is_on(x->trace);
  double start = is_traced ? progress_clock() : 0;
  reducer_bucket(x->reducer, bucket, x->off);
  if (x->is_sharded)
    x->ops->reduce_scatter(x->nccl, x->g, x->off);
  else
    x->ops->all_reduce(x->nccl, x->g + x->off[0], x->off[ranks] - x->off[0]);
  if (is_traced) trace_bucket(x, bucket, start);
}

void allreduce_send_bucket(void *context, size_t bucket) {
  queue_action(context, send_bucket, bucket);
}

static void sum_totals(void *context, size_t number) {
  Allreduce *x = context;
  (void)number;
  x->ops->all_reduce_doubles(x->nccl, x->arrays.totals, x->arrays.totals_n);
}

void allreduce_sum_totals(Allreduce *x) {
  queue_action(x, sum_totals, 0);
}

/* Every element is a number of one rank and zeros of the others: the sum is exact in any
 * order. */
static void sum_squares(void *context, size_t number) {
  Allreduce *x = context;
  (void)number;
  x->ops->all_reduce_doubles(x->nccl, x->arrays.squares, x->arrays.squares_n);
}

void allreduce_sum_squares(Allreduce *x) {
  queue_action(x, sum_squares, 0);
}

static void gather_weights(void *context, size_t number) {
  Allreduce *x = context;
  AllreduceArrays *a = &x->arrays;
  (void)number;
  x->ops->all_gather(x->nccl, a->weights, &a->weights_ranges);
  if (a->full_ranges.ranges) x->ops->all_gather(x->nccl, a->full, &a->full_ranges);
}

void allreduce_gather_weights(Allreduce *x) {
  queue_action(x, gather_weights, 0);
}

/* A transport without streams of its own blocks here until the other ranks have come. */
static void join_streams(void *context, size_t number) {
  Allreduce *x = context;
  (void)number;
  comm_begin_wait(x->comm);
  x->ops->join(x->nccl);
  comm_end_wait(x->comm);
}

void allreduce_join(Allreduce *x) {
  queue_action(x, join_streams, 0);
}

Err allreduce_gather(Allreduce *x, float *array, const DeviceGather *ranges) {
  x->ops->all_gather(x->nccl, array, ranges);
  x->ops->join(x->nccl);
  return allreduce_wait(x);
}
