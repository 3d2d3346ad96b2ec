/* Cuts the flat gradient into buckets, each bucket into one piece per rank, and submits the
 * all-reduce of each bucket. Depends on comm, cut. */
#include "comm/reduce.h"

#include <string.h>

#include "base/mem.h"
#include "comm/cut.h"

typedef struct {
  Reducer *reducer;
  size_t begin, end;
  /* Index of this rank's piece in an array that holds its pieces of all buckets, one after
   * another. */
  size_t owned;
  CommJob job;
} Bucket;

struct Reducer {
  Comm *comm;
  ReduceSpec spec;
  int rank, size;
  float *g;
  size_t n, owned; /* number of elements: of g; of this rank's pieces of all buckets */
  BucketCut cut;
  Bucket *bucket;
  size_t buckets;
  size_t *order; /* (buckets) the order in which all ranks send the buckets */
  size_t sent;   /* number of buckets sent in this round: order[0 … sent-1] */
  ReduceRound round;
  /* Working memory of the jobs: */
  float *sum;        /* (`owned` elements) sums of this rank's pieces over earlier rounds */
  char *work;        /* working memory of comm_reduce (CommReduce.work) */
  double *packed;    /* (units of g) elements of reducer_allgather_units, rank after rank */
  const void **send; /* arguments of comm_exchange, one for each rank */
  void **recv;
  size_t *send_n, *recv_n, *off;
  size_t bytes;
};

/* Returns the first element of rank r's piece of a bucket. A piece is a whole number of
 * units; the units are distributed evenly. */
static size_t find_piece(const Reducer *q, const Bucket *b, int r) {
  size_t unit = q->spec.unit, units = (b->end - b->begin + unit - 1) / unit;
  size_t at = b->begin + units * (size_t)r / (size_t)q->size * unit;
  return at < b->end ? at : b->end;
}

/* With one rank and one round there is nothing to add. */
static bool is_idle(const Reducer *q) {
  return q->size == 1 && !q->spec.rounds && !q->spec.send;
}

static void reduce_bucket(Comm *comm, void *context) {
  Bucket *b = context;
  Reducer *q = b->reducer;
  for (int r = 0; r <= q->size; r++) q->off[r] = find_piece(q, b, r) - b->begin;
  CommReduce all = {.g = q->g + b->begin,
                    .off = q->off,
                    .sum = q->sum + b->owned,
                    .active = q->round.active,
                    .first = q->round.is_first,
                    .last = q->round.is_last,
                    .bf16 = q->spec.bf16,
                    .shard = q->spec.shard,
                    .work = q->work,
                    .bucket = b - q->bucket};
  comm_reduce(comm, "gradients", &all);
}

static Err create_buckets(Reducer *q) {
  size_t most = 0, largest = 0;
  TRY(cut_open(&q->cut, q->n, q->spec.unit, q->spec.bucket));
  q->buckets = q->cut.buckets;
  TRY(mem_alloc(&q->bucket, q->buckets, sizeof *q->bucket));
  TRY(mem_alloc(&q->order, q->buckets, sizeof *q->order));
  for (size_t i = 0; i < q->buckets; i++) {
    Bucket *b = &q->bucket[i];
    b->reducer = q;
    b->begin = cut_begin(&q->cut, i);
    b->end = cut_end(&q->cut, i);
    b->job = (CommJob){.run = reduce_bucket, .context = b};
    q->order[i] = i;
    b->owned = q->owned;
    q->owned += find_piece(q, b, q->rank + 1) - find_piece(q, b, q->rank);
    if (b->end - b->begin > largest) largest = b->end - b->begin;
    for (int r = 0; r < q->size; r++) {
      size_t n = find_piece(q, b, r + 1) - find_piece(q, b, r);
      if (n > most) most = n;
    }
  }
  bool host = q->size > 1 && !q->spec.send;
  size_t work = host ? comm_reduce_work(q->comm, largest, most, q->spec.bf16) : 0;
  size_t sum = q->spec.rounds ? q->owned * sizeof(float) : 0;
  size_t packed = q->size > 1 ? (q->n + q->spec.unit - 1) / q->spec.unit : 0;
  q->bytes = work + sum + packed * sizeof *q->packed;
  TRY(mem_alloc(&q->packed, packed + 1, sizeof *q->packed));
  TRY(mem_alloc_aligned(&q->work, work + 1));
  return mem_alloc_aligned(&q->sum, sum + 1);
}

Err reducer_new(Reducer **out, Comm *comm, float *g, size_t n, const ReduceSpec *spec) {
  Reducer *q;
  *out = NULL;
  TRY(mem_alloc(&q, 1, sizeof *q));
  q->comm = comm;
  q->spec = *spec;
  q->g = g;
  q->n = n;
  q->rank = comm_rank(comm);
  q->size = comm_size(comm);
  size_t ranks = (size_t)q->size;
  Err err;
  TRY_DONE(create_buckets(q));
  TRY_DONE(mem_alloc(&q->send, ranks, sizeof *q->send));
  TRY_DONE(mem_alloc(&q->recv, ranks, sizeof *q->recv));
  TRY_DONE(mem_alloc(&q->send_n, ranks, sizeof *q->send_n));
  TRY_DONE(mem_alloc(&q->recv_n, ranks, sizeof *q->recv_n));
  TRY_DONE(mem_alloc(&q->off, ranks + 1, sizeof *q->off));
done:
  if (err)
    reducer_free(q);
  else
    *out = q;
  return err;
}

void reducer_free(Reducer *q) {
  if (!q) return;
  void *list[] = {q->bucket,       q->order, q->work,   q->sum,    q->packed,
                  (void *)q->send, q->recv,  q->send_n, q->recv_n, q->off};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) mem_free(list[i]);
  cut_close(&q->cut);
  mem_free(q);
}

size_t reducer_bytes(const Reducer *q) {
  return q->bytes;
}

static void reset_buckets(Reducer *q) {
  q->sent = 0;
  cut_reset(&q->cut);
}

void reducer_begin_round(Reducer *q, ReduceRound round) {
  q->round = round;
  reset_buckets(q);
}

typedef struct {
  Reducer *reducer;
  size_t completed;
} Ordering;

static void append_bucket(void *context, size_t bucket) {
  Ordering *o = context;
  o->reducer->order[o->completed++] = bucket;
}

static void mark_announced(void *context, size_t begin, size_t end) {
  Ordering *o = context;
  cut_mark(&o->reducer->cut, begin, end, append_bucket, o);
}

void reducer_set_order(Reducer *q, ReduceAnnounce announce, const void *model) {
  Ordering o = {.reducer = q};
  reset_buckets(q);
  announce(model, mark_announced, &o);
  for (size_t i = 0; i < q->buckets; i++)
    if (q->cut.missing[i]) q->order[o.completed++] = i;
}

/* Marks the last bucket's job as awaited: the backward pass is then over, and the next call is
 * reducer_finish, which waits for the job. */
static void submit_bucket(Reducer *q, size_t i) {
  q->bucket[i].job.awaited = q->sent == q->buckets;
  comm_submit(q->comm, &q->bucket[i].job);
}

static void send_next_bucket(Reducer *q) {
  size_t i = q->order[q->sent++];
  if (q->spec.send)
    q->spec.send(q->spec.context, i);
  else
    submit_bucket(q, i);
}

void reducer_mark_ready(void *context, size_t begin, size_t end) {
  Reducer *q = context;
  if (is_idle(q)) return;
  cut_mark(&q->cut, begin, end, NULL, NULL);
  while (q->sent < q->buckets && q->cut.missing[q->order[q->sent]] == 0) send_next_bucket(q);
}

void reducer_finish(Reducer *q) {
  if (is_idle(q)) return;
  while (q->sent < q->buckets) send_next_bucket(q);
  for (size_t i = 0; i < q->buckets && !q->spec.send; i++)
    comm_wait(q->comm, &q->bucket[i].job);
}

size_t reducer_pieces(const Reducer *q) {
  return q->buckets;
}

void reducer_piece(const Reducer *q, size_t i, size_t *begin, size_t *end) {
  *begin = find_piece(q, &q->bucket[i], q->rank);
  *end = find_piece(q, &q->bucket[i], q->rank + 1);
}

size_t reducer_owned(const Reducer *q) {
  return q->owned;
}

void reducer_bucket(const Reducer *q, size_t i, size_t *off) {
  for (int r = 0; r <= q->size; r++) off[r] = find_piece(q, &q->bucket[i], r);
}

void reducer_allgather(Reducer *q, const char *name, float *array) {
  for (size_t i = 0; i < q->buckets && q->size > 1; i++) {
    const Bucket *b = &q->bucket[i];
    for (int r = 0; r <= q->size; r++)
      q->off[r] = (find_piece(q, b, r) - b->begin) * sizeof(float);
    comm_allgather(q->comm, name, array + b->begin, q->off);
  }
}

/* Returns the first unit of rank r's piece of a bucket. A piece without elements begins and ends
 * with the bucket's last element, which may be in the middle of a unit: rounding up makes it have
 * no units. */
static size_t find_units(const Reducer *q, const Bucket *b, int r) {
  return (find_piece(q, b, r) + q->spec.unit - 1) / q->spec.unit;
}

/* Copies the units of rank r's pieces from `units` to `packed`, where they lie one after another,
 * or back. Returns their number. */
static size_t copy_units(const Reducer *q, int r, double *packed, double *units, bool is_back) {
  size_t count = 0;
  for (size_t i = 0; i < q->buckets; i++) {
    size_t begin = find_units(q, &q->bucket[i], r),
           n = find_units(q, &q->bucket[i], r + 1) - begin;
    double *to = is_back ? units + begin : packed + count;
    memcpy(to, is_back ? packed + count : units + begin, n * sizeof *to);
    count += n;
  }
  return count;
}

static size_t count_units(const Reducer *q, int r) {
  size_t count = 0;
  for (size_t i = 0; i < q->buckets; i++)
    count += find_units(q, &q->bucket[i], r + 1) - find_units(q, &q->bucket[i], r);
  return count;
}

/* One collective for all buckets: each costs the latency of the network. */
void reducer_allgather_units(Reducer *q, const char *name, double *units) {
  size_t at = 0;
  if (q->size == 1) return;
  q->off[0] = 0;
  for (int r = 0; r < q->size; r++)
    q->off[r + 1] = q->off[r] + count_units(q, r) * sizeof *units;
  copy_units(q, q->rank, q->packed + q->off[q->rank] / sizeof *units, units, false);
  comm_allgather(q->comm, name, q->packed, q->off);
  for (int r = 0; r < q->size; r++) at += copy_units(q, r, q->packed + at, units, true);
}

/* Direction in which move_pieces copies between rank 0 and the owners of the pieces. */
typedef enum { TO_RANK0, FROM_RANK0 } Direction;

/* Transfers the pieces of one bucket between rank 0, which has the whole bucket, and the
 * other ranks, each of which has its piece. */
static void move_bucket(Reducer *q, const char *name, const Bucket *b, float *owned,
                        float *whole, Direction direction) {
  bool is_sender = (q->rank == 0) == (direction == FROM_RANK0);
  for (int r = 0; r < q->size; r++) {
    int owner = q->rank == 0 ? r : q->rank;
    size_t begin = find_piece(q, b, owner), n = find_piece(q, b, owner + 1) - begin;
    bool is_partner = q->rank == 0 || r == 0;
    float *here = q->rank == 0 ? whole + begin : owned + b->owned;
    q->send[r] = here;
    q->recv[r] = here;
    q->send_n[r] = is_partner && is_sender ? n * sizeof(float) : 0;
    q->recv_n[r] = is_partner && !is_sender ? n * sizeof(float) : 0;
  }
  comm_exchange(q->comm, name, q->send, q->send_n, q->recv, q->recv_n);
}

/* Copies rank 0's pieces locally and exchanges the other ranks' pieces by messages. */
static void move_pieces(Reducer *q, const char *name, float *owned, float *whole,
                        Direction direction) {
  for (size_t i = 0; i < q->buckets && q->rank == 0; i++) {
    size_t begin, end;
    reducer_piece(q, i, &begin, &end);
    float *in_whole = whole + begin, *in_owned = owned + q->bucket[i].owned;
    if (direction == TO_RANK0)
      memcpy(in_whole, in_owned, (end - begin) * sizeof(float));
    else
      memcpy(in_owned, in_whole, (end - begin) * sizeof(float));
  }
  for (size_t i = 0; i < q->buckets; i++)
    move_bucket(q, name, &q->bucket[i], owned, whole, direction);
}

void reducer_gather(Reducer *q, const char *name, const float *owned, float *whole) {
  /* Cast away const: TO_RANK0 does not write to it. */
  float *source = (float *)(uintptr_t)owned;
  move_pieces(q, name, source, whole, TO_RANK0);
}

void reducer_scatter(Reducer *q, const char *name, float *owned, const float *whole) {
  /* Cast away const: FROM_RANK0 does not write to it. */
  float *source = (float *)(uintptr_t)whole;
  move_pieces(q, name, owned, source, FROM_RANK0);
}
