/* Gradient all-reduce between ranks: selects the transport at start-up, then drives NCCL.
 *   NCCL  GPU to GPU. Requires one GPU per rank, the same NCCL version on every rank, and no
 *         --reproducible, which needs a fixed order of additions.
 *   host  through host memory (comm/reduce.h). Always available.
 * Threads: the main thread, except that the communication thread aborts NCCL when a rank is lost.
 * Depends on backend/device_comm.h, comm/reduce.h, monitor/trace.h, graphs. */
#ifndef TRAIN_ALLREDUCE_H
#define TRAIN_ALLREDUCE_H

#include "backend/backend.h"
#include "backend/device_comm.h"
#include "backend/graphs.h"
#include "comm/reduce.h"
#include "monitor/trace.h"

/* AUTO: NCCL if it is available, otherwise host memory. */
typedef enum { TRANSPORT_AUTO, TRANSPORT_NCCL, TRANSPORT_HOST } AllreduceTransport;

typedef struct {
  AllreduceTransport transport; /* value of --allreduce-transport */
  /* Gradients are added in the order of the micro-batches, which only the host transport
   * does. */
  bool is_ordered;
  bool bf16;           /* NCCL adds in bf16 */
  bool is_sharded;     /* --shard-optimizer: reduce-scatter and all-gather are used */
  bool sums_numbers;   /* allreduce_sum_totals and allreduce_sum_squares are used */
  int max_ctas;        /* maximum CTAs of a collective of NCCL; 0: NCCL chooses */
  bool reserves_sms;   /* see DeviceCommSpec */
  bool needs_ctas;     /* max_ctas was asked for: an error if NCCL is not selected */
  size_t max_elements; /* elements of the largest array that is passed to NCCL in one call */
} AllreduceSpec;

/* Arrays that the collectives of a step use beside the gradients, in the backend's memory. */
typedef struct {
  double *totals; /* (totals_n) losses and counts */
  size_t totals_n;
  /* With a sharded optimizer, otherwise NULL: */
  /* (squares_n) sums of squares of the gradient; 0 where another rank owns it */
  double *squares;
  size_t squares_n;
  void *weights; /* what forward and backward read: in the backend's type */
  float *full;   /* weights in fp32 */
  DeviceGather weights_ranges, full_ranges; /* what of them is gathered after an update */
} AllreduceArrays;

typedef struct {
  Comm *comm;
  const Backend *backend;
  /* Description of the transport and why it was selected, for the log; "" with one rank or
   * without GPUs, when there is nothing to select. */
  char about[160];
  int version;              /* of NCCL, such as 22803; 0: not loaded */
  const DeviceCommOps *ops; /* functions of NCCL; NULL: all-reduce through host memory */
  /* Open NCCL communicator; NULL: not open, or all-reduce through host memory. */
  DeviceComm *nccl;
  float *selftest; /* array of the self-test in device memory */
  Trace *trace;    /* receives the time in which each bucket is queued; or NULL */
  /* Set by allreduce_bind: */
  Reducer *reducer;
  float *g;
  bool is_sharded;
  size_t *off; /* (ranks + 1) working memory: offsets of the pieces of a bucket */
  /* Set by allreduce_bind_pass: */
  GraphCache *graphs; /* queues collectives between the parts of graphs; NULL: calls them */
  AllreduceArrays arrays;
} Allreduce;

/* Selects the transport. Every rank calls it, and all select the same one. Fails with ERR_USAGE
 * if NCCL or max_ctas was requested and is not available. */
NODISCARD Err allreduce_select(Allreduce *x, Comm *comm, const Backend *b,
                               const AllreduceSpec *spec);
/* If NCCL was selected: initializes it and runs each collective that the run will use once, with a
 * known result. Every rank calls it. */
NODISCARD Err allreduce_open(Allreduce *x, const AllreduceSpec *spec);
/* Replaces the open communicator by one of another spec; `transport` is ignored. Every rank calls it. */
NODISCARD Err allreduce_reopen(Allreduce *x, const AllreduceSpec *spec);
/* Returns true if this version of NCCL has AllreduceSpec.max_ctas. */
bool allreduce_limits_ctas(const Allreduce *x);
/* Waits until all NCCL collectives are complete on every rank. Call it at the end of a run
 * before allreduce_close, which aborts collectives that are running. */
NODISCARD Err allreduce_finish(Allreduce *x);
void allreduce_close(Allreduce *x); /* closes NCCL; does nothing if it is not open */

/* Fills x with this rank's contribution to the self-test of sums; n >= ranks. */
void allreduce_fill_selftest(float *x, size_t n, int rank, int ranks);
/* Checks elements [begin, end) of its result. The error names the collective, and the rank whose
 * contribution is wrong. */
NODISCARD Err allreduce_check_selftest(const char *collective, const float *x, size_t begin,
                                       size_t end, int ranks);

/* The functions below may be called only if NCCL is open. */

/* Sets the gradients g and the reducer that divides them into buckets. */
void allreduce_bind(Allreduce *x, Reducer *reducer, float *g, bool is_sharded);
/* ReduceSpec.send for NCCL: queues the all-reduce of a bucket of g or, with sharding, its
 * reduce-scatter. Does not block. `context` is the Allreduce. */
void allreduce_send_bucket(void *context, size_t bucket);
/* Makes allreduce_send_bucket and the four functions below queue collectives by graphs_act, so
 * that they may be called in captured work; sets the arrays that they use. */
void allreduce_bind_pass(Allreduce *x, GraphCache *graphs, const AllreduceArrays *arrays);
/* Queue an all-reduce in fp64, of the totals and of the squares. Do not block; after
 * allreduce_join device work queued later sees the sums. */
void allreduce_sum_totals(Allreduce *x);
void allreduce_sum_squares(Allreduce *x);
/* Queues the all-gathers of the weights: each rank sends the pieces it owns and receives the
 * others. Does not block; see allreduce_join. */
void allreduce_gather_weights(Allreduce *x);
/* Makes device work that is queued later wait for all queued collectives. */
void allreduce_join(Allreduce *x);
/* Gathers another array. Blocks until it is complete. */
NODISCARD Err allreduce_gather(Allreduce *x, float *array, const DeviceGather *ranges);
/* allreduce_wait_inputs waits until the device has finished the work queued before the last
 * bucket. allreduce_wait waits until all collectives are complete, which needs the other
 * ranks. */
NODISCARD Err allreduce_wait_inputs(Allreduce *x);
NODISCARD Err allreduce_wait(Allreduce *x);

#endif
