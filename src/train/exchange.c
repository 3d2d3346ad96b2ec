/* The choice of a way, and the one that spares the host. Relies on wire, comm. */
#include "train/exchange.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/mem.h"

#define JOINING 600  /* seconds the ranks' GPUs may take to find each other */
#define TRIAL   4096 /* elements, and no fewer than ranks */

/* What a rank says of itself. */
typedef struct {
  uint64_t device; /* 0: it has no GPU */
  int32_t asked, ordered;
  int32_t version; /* of NCCL; 0: it is not there */
  int32_t pad;
} Offer;

static Err gather_offers(const Exchange *x, const Offer *mine, Offer **list) {
  size_t ranks = (size_t)comm_size(x->comm), *off;
  TRY(mem_alloc(&off, ranks + 1, sizeof *off));
  Err err = mem_alloc(list, ranks, sizeof **list);
  for (size_t r = 0; r <= ranks; r++) off[r] = r * sizeof **list;
  if (!err) {
    (*list)[comm_rank(x->comm)] = *mine;
    comm_allgather(x->comm, "ways", *list, off);
  }
  mem_free(off);
  return err;
}

/* Why NCCL is not available, and what would help; "" if it is. */
typedef struct {
  char why[96], remedy[160];
} Refusal;

static void refuse(Refusal *no, const char *why, const char *remedy) {
  snprintf(no->why, sizeof no->why, "%s", why);
  snprintf(no->remedy, sizeof no->remedy, "%s", remedy);
}

static bool is_shared(const Offer *o, int ranks) {
  for (int r = 0; r < ranks; r++)
    for (int q = 0; q < r; q++)
      if (o[r].device && o[r].device == o[q].device) return true;
  return false;
}

static void judge(const Exchange *x, const Offer *o, Refusal *no) {
  int ranks = comm_size(x->comm);
  char text[96];
  *no = (Refusal){0};
  if (is_shared(o, ranks)) refuse(no, "ranks share a GPU", "start one rank for each GPU");
  for (int r = 0; r < ranks && !no->why[0]; r++) {
    if (!o[r].device)
      refuse(no, "not every rank has a GPU", "ask for --device cuda, one GPU for each rank");
    else if (o[r].ordered)
      refuse(no, "--reproducible adds in the order of the micro-batches",
             "leave --reproducible out");
    else if (!o[r].version) {
      snprintf(text, sizeof text, "NCCL is not there for rank %d on %.48s", r,
               comm_host(x->comm, r));
      refuse(no, text, "install libnccl2 on every machine");
    } else if (o[r].version != o[0].version)
      refuse(no, "the ranks have NCCL in several versions",
             "install the same libnccl2 on every machine");
    else if (o[r].asked != o[0].asked)
      refuse(no, "the ranks were started with different --allreduce-transport",
             "start all alike");
  }
}

Err exchange_choose(Exchange *x, Comm *comm, const Backend *b, Collectives asked,
                    bool ordered) {
  Refusal no;
  Offer *list = NULL, mine = {b->device_id, (int32_t)asked, ordered, 0, 0};
  char about[64] = "", missing[512] = "";
  bool any = false;
  *x = (Exchange){.comm = comm};
  if (comm_size(comm) == 1 && asked != COLLECT_NCCL) return ERR_OK;
  if (asked != COLLECT_HOST && b->device_id && b->comm &&
      b->comm->probe(about, &mine.version) != ERR_OK)
    snprintf(missing, sizeof missing, ": %s", err_message());
  TRY(gather_offers(x, &mine, &list));
  for (int r = 0; r < comm_size(comm); r++) any = any || list[r].device;
  judge(x, list, &no);
  mem_free(list);
  if (asked == COLLECT_HOST) {
    if (any)
      snprintf(x->about, sizeof x->about, "gradients through the host's memory, as asked");
  } else if (!no.why[0]) {
    x->table = b->comm;
    snprintf(x->about, sizeof x->about, "gradients from GPU to GPU by %s", about);
  } else if (asked == COLLECT_NCCL) {
    return err_set(ERR_USAGE,
                   "--allreduce-transport nccl is not available: %s%s; %s, or leave it to "
                   "--allreduce-transport auto",
                   no.why, missing, no.remedy);
  } else if (any) {
    snprintf(x->about, sizeof x->about, "gradients through the host's memory, as %s", no.why);
  }
  return ERR_OK;
}

/* Soon first, then seldom: the cores belong to the loader. */
static void pause_a_little(unsigned turn) {
  if (turn < 50)
    sched_yield();
  else
    nanosleep(&(struct timespec){.tv_nsec = turn < 1000 ? 10000 : 50000}, NULL);
}

static Err wait_until(Exchange *x, bool all) {
  bool made = false, done = false;
  for (unsigned turn = 0;; turn++) {
    TRY(x->table->poll(x->wire, &made, &done));
    if (all ? done : made) return ERR_OK;
    pause_a_little(turn);
  }
}

Err exchange_wait_made(Exchange *x) {
  return wait_until(x, false);
}

Err exchange_wait(Exchange *x) {
  comm_begin_wait(x->comm);
  Err err = wait_until(x, true);
  comm_end_wait(x->comm);
  x->gathering = false;
  return err;
}

/* Each element is one rank's alone, in turn, and 0 on the others: a rank that is missing or
 * counted twice shows, and the sums are exact in bf16 for any number of ranks. */
static float expected(size_t i) {
  return (float)(i % 2 + 1);
}

void exchange_trial(float *x, size_t n, int rank, int ranks) {
  for (size_t i = 0; i < n; i++) x[i] = (int)(i % (size_t)ranks) == rank ? expected(i) : 0;
}

Err exchange_judge_trial(const float *x, size_t n, int ranks) {
  for (size_t i = 0; i < n; i++)
    if (x[i] != expected(i))
      return err_set(ERR_WORK,
                     "the GPUs add wrongly: %g came of %g from rank %d of %d and 0 from the "
                     "others; try --allreduce-transport host, or NCCL_P2P_DISABLE=1",
                     (double)x[i], (double)expected(i), (int)(i % (size_t)ranks), ranks);
  return ERR_OK;
}

/* A sum that everybody knows beforehand. */
static Err try_out(Exchange *x, const Backend *b, size_t n) {
  float *here;
  int ranks = comm_size(x->comm);
  Err err;
  TRY(mem_alloc(&here, n, sizeof *here));
  TRY_DONE(b->alloc(b, &x->trial, n * sizeof *here));
  exchange_trial(here, n, comm_rank(x->comm), ranks);
  b->put(b, x->trial, here, n * sizeof *here);
  x->table->all_reduce(x->wire, x->trial, n);
  TRY_DONE(exchange_wait(x));
  TRY_DONE(b->get(b, here, x->trial, n * sizeof *here));
  err = exchange_judge_trial(here, n, ranks);
done:
  mem_free(here);
  return err;
}

static void end_wire(void *context) {
  Exchange *x = context;
  x->table->abort(x->wire);
}

/* Ranks whose operations are queued come to the same end, whatever they time in between: the
 * one that has queued the fewest waits for nothing that others have not queued as well. */
static Err quiesce(void *context) {
  return exchange_wait(context);
}

Err exchange_open(Exchange *x, const Backend *b, size_t most, bool bf16) {
  char id[DEVICE_COMM_ID] = {0};
  size_t ranks = (size_t)comm_size(x->comm), trial = ranks > TRIAL ? ranks : TRIAL;
  DeviceCommSpec spec = {.rank = comm_rank(x->comm),
                         .size = (int)ranks,
                         .max_elements = most > trial ? most : trial,
                         .bf16 = bf16,
                         .quiesce = quiesce,
                         .context = x};
  if (!x->table) return ERR_OK;
  x->backend = b;
  TRY(mem_alloc(&x->off, ranks + 1, sizeof *x->off));
  comm_report(x->comm, JOINING, "joining the GPUs");
  if (spec.rank == 0) TRY(x->table->create_id(id));
  comm_broadcast(x->comm, "the GPUs' meeting place", id, sizeof id);
  TRY(x->table->open(&x->wire, b, id, &spec));
  comm_set_on_loss(x->comm, end_wire, x);
  comm_report(x->comm, JOINING, "trying the GPUs' exchange");
  return try_out(x, b, trial);
}

Err exchange_rest(Exchange *x) {
  if (!x->wire) return ERR_OK;
  TRY(exchange_wait(x));
  comm_sum(x->comm, "parting", &(double){0}, 1);
  return ERR_OK;
}

void exchange_close(Exchange *x) {
  if (x->wire) {
    comm_set_on_loss(x->comm, NULL, NULL);
    x->table->close(x->wire);
  }
  if (x->trial) x->backend->release(x->backend, x->trial); /* the device is at rest now */
  mem_free(x->off);
  *x = (Exchange){0};
}

void exchange_bind(Exchange *x, Reducer *reducer, float *g, bool shard) {
  x->reducer = reducer, x->g = g, x->shard = shard;
}

void exchange_send(void *context, size_t bucket) {
  Exchange *x = context;
  int ranks = comm_size(x->comm);
  reducer_bucket(x->reducer, bucket, x->off);
  if (x->shard)
    x->table->reduce_scatter(x->wire, x->g, x->off);
  else
    x->table->all_reduce(x->wire, x->g + x->off[0], x->off[ranks] - x->off[0]);
}

void exchange_gather(Exchange *x, float *array) {
  for (size_t i = 0; i < reducer_pieces(x->reducer); i++) {
    reducer_bucket(x->reducer, i, x->off);
    x->table->all_gather(x->wire, array, x->off);
  }
  x->table->join(x->wire);
  x->gathering = true;
}
