/* Runs collectives in shared memory or by messages. All ranks add in rank order, so all
 * compute the same bits. Depends on shared, reduce_message. */
#include "comm/collective.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "comm/reduce_message.h"
#include "comm/shared.h"

Err collective_init(Collectives *c, const Group *group, Sequence *sequence,
                    Watchdog *watchdog) {
  size_t n = (size_t)group->size;
  *c = (Collectives){.group = group};
  TRY(message_init(&c->messages, group, sequence, watchdog));
  TRY(mem_alloc(&c->term, n, sizeof *c->term));
  TRY(mem_alloc(&c->sums, n * COLLECTIVE_SUM_MAX, sizeof *c->sums));
  return mem_alloc(&c->offset, n + 1, sizeof *c->offset);
}

void collective_free(Collectives *c) {
  segment_free(&c->segment);
  message_free(&c->messages);
  mem_free(c->term);
  mem_free(c->sums);
  mem_free(c->offset);
}

void collective_share_memory(Collectives *c) {
  const Group *g = c->group;
  Segment *s = &c->segment;
  if (!segment_is_possible(g)) return;
  segment_init(s, &c->messages);
  SegmentOffer offer = {.fd = -1};
  if (g->rank == 0) offer = segment_create(s);
  collective_run(c, &(Call){.kind = OP_BROADCAST,
                            .name = "shared memory",
                            .bytes = (char *)&offer,
                            .n = sizeof offer});
  int wrong = g->rank ? segment_join(s, &offer) : offer.problem;
  double failures = wrong != 0;
  collective_run(
      c,
      &(Call){.kind = OP_SUM, .name = "shared memory", .x = &failures, .n = sizeof failures});
  if (g->rank == 0) segment_close_offer(&offer);
  c->has_segment = failures == 0;
  if (!c->has_segment) segment_free(s);
  if (wrong)
    log_warn(
        "rank %d on %s cannot share memory with rank 0: %s; gradients are summed through MPI, "
        "which is slower; run the ranks of a host as one user, in one container",
        g->rank, group_host(g, g->rank), strerror(wrong));
}

static void run_allgather(Collectives *c, char *all, const size_t *off) {
  if (c->has_segment)
    shared_allgather(&c->segment, all, off);
  else
    message_allgather(&c->messages, all, off);
}

static void run_broadcast(Collectives *c, const Call *call) {
  if (c->has_segment)
    shared_broadcast(&c->segment, call->bytes, call->n);
  else
    message_broadcast(&c->messages, call->bytes, call->n);
}

static void run_exchange(Collectives *c, const Call *call) {
  sequence_set_sizes(c->messages.sequence, call->send_n, call->recv_n);
  if (c->has_segment)
    shared_exchange(&c->segment, call->send, call->send_n, call->recv, call->recv_n);
  else
    message_exchange(&c->messages, call->send, call->send_n, call->recv, call->recv_n);
}

static void run_sum(Collectives *c, const Call *call) {
  int size = c->group->size;
  size_t n = call->n / sizeof *call->x;
  for (int r = 0; r <= size; r++) c->offset[r] = (size_t)r * call->n;
  memcpy(c->sums + (size_t)c->group->rank * n, call->x, call->n);
  run_allgather(c, (char *)c->sums, c->offset);
  for (size_t i = 0; i < n; i++) {
    call->x[i] = 0;
    for (int r = 0; r < size; r++) call->x[i] += c->sums[(size_t)r * n + i];
  }
}

static void run_reduce(Collectives *c, const CommReduce *r) {
  if (c->has_segment)
    shared_reduce(&c->segment, r, c->term);
  else
    message_reduce(&c->messages, r, c->term);
}

size_t collective_reduce_work(const Collectives *c, size_t bucket, size_t piece, bool bf16) {
  return c->has_segment ? 0 : message_reduce_work(c->group->size, bucket, piece, bf16);
}

/* Hashes the list of the sizes of all ranks' parts; every rank must pass the same list. */
static uint64_t hash_offsets(const size_t *off, int size) {
  uint64_t hash = 0;
  for (int r = 0; r < size; r++) hash = rng_mix(hash, off[r + 1] - off[0]);
  return hash;
}

/* Gives the collective the next number and records name, size and layout, which must be the
 * same on all ranks. */
static void begin_op(Collectives *c, const Call *call) {
  const CommReduce *r = call->reduce;
  int size = c->group->size;
  uint64_t bytes = call->n, layout = 0;
  if (call->off) {
    layout = hash_offsets(call->off, size);
    bytes = call->off[size] - call->off[0];
  }
  if (r) {
    int flags = r->first | r->last << 1 | r->bf16 << 2 | r->shard << 3;
    layout = rng_mix(rng_mix(hash_offsets(r->off, size), (uint64_t)flags), (uint64_t)r->active);
    bytes = r->off[size] * bucket_width(r->bf16);
  }
  sequence_begin(c->messages.sequence, call->kind, call->name, bytes, layout);
}

void collective_run(Collectives *c, const Call *call) {
  begin_op(c, call);
  switch (call->kind) {
    case OP_BROADCAST:
      run_broadcast(c, call);
      break;
    case OP_ALLGATHER:
      run_allgather(c, call->bytes, call->off);
      break;
    case OP_EXCHANGE:
      run_exchange(c, call);
      break;
    case OP_SUM:
      run_sum(c, call);
      break;
    case OP_REDUCE:
      run_reduce(c, call->reduce);
      break;
  }
  sequence_end(c->messages.sequence);
}
