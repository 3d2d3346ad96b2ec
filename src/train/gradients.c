/* Implements the four ways to sum gradients that gradients.h lists. Depends on allreduce,
 * comm/reduce. */
#include "train/gradients.h"

#include "base/log.h"
#include "base/mem.h"

/* Bytes of device memory that NCCL may allocate after its self-test. */
#define NCCL_BYTES ((uint64_t)256 << 20)

/* Path GRADS_STAY: with one rank the accumulated gradients already are the sum. */

static Err wait_for_nothing(Gradients *q) {
  (void)q;
  return ERR_OK;
}

static Err have_sum(Gradients *q, GradRound round) {
  (void)q, (void)round;
  return ERR_OK;
}

/* Path GRADS_HOST: the reducer sums the gradients in place, in host memory. */

static Err finish_host_reduce(Gradients *q, GradRound round) {
  (void)round;
  reducer_finish(q->reducer);
  return ERR_OK;
}

/* Path GRADS_COPIED. Copying to host memory blocks until the GPU has computed the gradients. */

static Err copy_to_host(Gradients *q) {
  return q->backend->get(q->backend, q->host, q->g, q->n * sizeof(float));
}

static Err reduce_and_copy_back(Gradients *q, GradRound round) {
  reducer_finish(q->reducer);
  if (round.is_last) q->backend->put(q->backend, q->g, q->host, q->n * sizeof(float));
  return ERR_OK;
}

/* Path GRADS_NCCL. reducer_finish only queues the remaining buckets. All ranks contribute in
 * every round: --reproducible, where the last round may leave ranks out, uses the host
 * transport. */

void gradients_queue_sum(Gradients *q) {
  reducer_finish(q->reducer);
  allreduce_join(q->allreduce);
}

static Err wait_for_backward(Gradients *q) {
  if (!q->is_sum_queued) reducer_finish(q->reducer);
  return allreduce_wait_inputs(q->allreduce);
}

static Err wait_for_nccl(Gradients *q, GradRound round) {
  (void)round;
  return allreduce_wait(q->allreduce);
}

typedef struct {
  bool overlaps; /* buckets are reduced while backward runs */
  Err (*wait_made)(Gradients *q);
  Err (*wait_sum)(Gradients *q, GradRound round);
} PathOps;

static const PathOps paths[] = {
    [GRADS_STAY] = {false, wait_for_nothing, have_sum},
    [GRADS_HOST] = {true, wait_for_nothing, finish_host_reduce},
    [GRADS_COPIED] = {false, copy_to_host, reduce_and_copy_back},
    [GRADS_NCCL] = {true, wait_for_backward, wait_for_nccl},
};

/* With --reproducible and several rounds, even a single rank uses the reducer, so that the
 * order of additions is the same on any number of ranks. */
static GradPath choose_path(const Backend *b, const Allreduce *x, int ranks,
                            const GradientsSpec *spec) {
  bool has_rounds = spec->each_round && spec->rounds > 1;
  if (x->nccl) return GRADS_NCCL;
  if (ranks == 1 && !has_rounds) return GRADS_STAY;
  return b->host ? GRADS_HOST : GRADS_COPIED;
}

ReduceBytes gradients_bytes(const GradientsMemory *m) {
  ReduceBytes r = {0};
  if (m->has_nccl) r.device += NCCL_BYTES;
  if (!m->is_host) r.host += m->gradients; /* host copy of the gradients of a device */
  if (m->ranks > 1 && !m->has_nccl)
    r.host += m->bucket < m->gradients ? m->bucket : m->gradients;
  /* Sums of the earlier rounds of a step, for this rank's pieces. */
  if (m->has_rounds) r.host += m->gradients / (uint64_t)m->ranks;
  return r;
}

static Err new_host_array(Gradients *q) {
  const Backend *b = q->backend;
  size_t bytes = q->n * sizeof(float);
  q->host = q->g;
  if (b->host) return ERR_OK;
  TRY(mem_alloc_aligned(&q->host, bytes));
  if (q->path != GRADS_COPIED) return ERR_OK;
  q->is_pinned = b->pin(b, q->host, bytes) == ERR_OK;
  if (!q->is_pinned)
    log_warn("cannot pin host memory for gradients: %s; copies to and from the GPU are slower",
             err_message());
  return ERR_OK;
}

static Err new_reducer(Gradients *q, Comm *comm, const GradientsSpec *spec) {
  ReduceSpec reduce = {.unit = NORM_UNIT,
                       .bucket = spec->bucket,
                       .bf16 = spec->bf16,
                       .shard = spec->is_sharded,
                       .rounds = spec->each_round && spec->rounds > 1};
  if (q->path == GRADS_NCCL) {
    reduce.send = allreduce_send_bucket;
    reduce.context = q->allreduce;
  }
  TRY(reducer_new(&q->reducer, comm, q->host, q->n, &reduce));
  reducer_set_order(q->reducer, spec->announce, spec->model);
  allreduce_bind(q->allreduce, q->reducer, q->g, spec->is_sharded);
  return ERR_OK;
}

Err gradients_open(Gradients *q, Comm *comm, const Backend *b, Allreduce *x, size_t n,
                   const GradientsSpec *spec) {
  *q = (Gradients){.path = choose_path(b, x, comm_size(comm), spec),
                   .each_round = spec->each_round,
                   .overlaps = spec->overlaps,
                   .backend = b,
                   .allreduce = x,
                   .n = n,
                   .spec = *spec};
  TRY(b->alloc(b, &q->g, n * sizeof(float)));
  TRY(new_host_array(q));
  return new_reducer(q, comm, spec);
}

Err gradients_set_bucket(Gradients *q, Comm *comm, size_t elements) {
  reducer_free(q->reducer);
  q->reducer = NULL;
  q->spec.bucket = elements;
  return new_reducer(q, comm, &q->spec);
}

void gradients_close(Gradients *q) {
  const Backend *b = q->backend;
  if (!b) return;
  reducer_free(q->reducer);
  if (q->is_pinned) b->unpin(b, q->host);
  if (q->host != q->g) mem_free(q->host);
  if (q->g) b->release(b, q->g);
  *q = (Gradients){0};
}

void gradients_begin_round(Gradients *q, GradRound round) {
  reducer_begin_round(q->reducer, (ReduceRound){.active = round.contributors,
                                                .is_first = round.is_first,
                                                .is_last = round.is_last});
}

GradReady gradients_ready(const Gradients *q) {
  return q->overlaps && paths[q->path].overlaps ? reducer_mark_ready : NULL;
}

Err gradients_wait_made(Gradients *q) {
  return paths[q->path].wait_made(q);
}

Err gradients_wait_sum(Gradients *q, GradRound round) {
  return paths[q->path].wait_sum(q, round);
}
