/* Gradient all-reduce between ranks: selects the transport at start-up, then drives NCCL.
 *   NCCL  GPU to GPU. Requires one GPU per rank, the same NCCL version on every rank, and no
 *         --reproducible, which needs a fixed order of additions.
 *   host  through host memory (comm/reduce.h). Always available.
 * Threads: the main thread, except that the communication thread aborts NCCL when a rank is lost.
 * Depends on backend/device_comm.h, comm/reduce.h. */
#ifndef TRAIN_ALLREDUCE_H
#define TRAIN_ALLREDUCE_H

#include "backend/backend.h"
#include "backend/device_comm.h"
#include "comm/reduce.h"

/* AUTO: NCCL where it is available, else host. */
typedef enum { TRANSPORT_AUTO, TRANSPORT_NCCL, TRANSPORT_HOST } AllreduceTransport;

typedef struct {
  AllreduceTransport transport; /* as asked for */
  bool is_ordered;     /* sums are added in the order of the micro-batches: host memory only */
  bool bf16;           /* NCCL sums in bf16 */
  size_t max_elements; /* of the largest array that NCCL is given at once */
} AllreduceSpec;

typedef struct {
  Comm *comm;
  const Backend *backend;
  char about[160];          /* the transport and why; "" where there is no choice */
  const DeviceCommOps *ops; /* NCCL's; NULL: through host memory */
  DeviceComm *nccl;         /* NULL: not open, or through host memory */
  float *selftest;          /* a small array on the device */
  bool is_gathering;        /* an all-gather is queued, and nobody has waited for it */
  /* Of allreduce_bind: */
  Reducer *reducer;
  float *g;
  bool is_sharded;
  size_t *off; /* (ranks + 1) scratch: the pieces of a bucket */
} Allreduce;

/* Selects the transport; collective, with the same result on every rank. ERR_USAGE where NCCL was
 * asked for and is not available. */
NODISCARD Err allreduce_select(Allreduce *x, Comm *comm, const Backend *b,
                               const AllreduceSpec *spec);
/* Where NCCL was selected: opens it, collectively, and tests it with a sum that is known. */
NODISCARD Err allreduce_open(Allreduce *x, const AllreduceSpec *spec);
/* Waits until nothing is in flight and every rank has come here: before allreduce_close at the end
 * of a run, as that aborts what is in flight. */
NODISCARD Err allreduce_finish(Allreduce *x);
void allreduce_close(Allreduce *x); /* harmless when not open */

/* The self-test. n >= ranks; fills x with this rank's contribution. */
void allreduce_fill_selftest(float *x, size_t n, int rank, int ranks);
/* Is x the sum over all ranks? The error names the first wrong element's rank. */
NODISCARD Err allreduce_check_selftest(const float *x, size_t n, int ranks);

/* NCCL only, from here on. */

/* The gradients, g, and the buckets in which they are reduced. */
void allreduce_bind(Allreduce *x, Reducer *reducer, float *g, bool is_sharded);
/* A ReduceSpec's send: queues the all-reduce of a bucket of g, or if it is sharded the
 * reduce-scatter. Does not block. `context` is the Allreduce. */
void allreduce_send_bucket(void *context, size_t bucket);
/* Queues an all-gather of `array` (flat, all parameters): each rank sends the pieces it owns and
 * receives the others. Does not block; device work queued later sees the result. Call
 * allreduce_wait before the next collective and before the host waits for the device: errors and
 * missing ranks are detected only while waiting. */
void allreduce_gather(Allreduce *x, float *array);
/* Waits until the device has finished the work before the last collective; then until that is done,
 * which needs the other ranks. */
NODISCARD Err allreduce_wait_inputs(Allreduce *x);
NODISCARD Err allreduce_wait(Allreduce *x);

#endif
