/* Sums the gradients of all micro-batches of a step over all ranks. One of four paths is
 * selected at set-up:
 *
 *   GRADS_STAY    One rank: backward accumulates in place, nothing is sent.
 *   GRADS_HOST    Backward runs on the CPU: each bucket is reduced in host memory as soon as it
 *                 is complete, while backward continues.
 *   GRADS_COPIED  Backward runs on a GPU, without NCCL: after backward all gradients are copied
 *                 to host memory, reduced there, and the sum is copied back.
 *   GRADS_NCCL    From GPU to GPU: each bucket is reduced as soon as it is complete, while
 *                 backward continues.
 *
 * GradientsSpec.each_round selects whether to reduce after every round or once per step.
 * Depends on backend, allreduce, comm/reduce. */
#ifndef TRAIN_GRADIENTS_H
#define TRAIN_GRADIENTS_H

#include "model/model.h"
#include "train/allreduce.h"

typedef enum { GRADS_STAY, GRADS_HOST, GRADS_COPIED, GRADS_NCCL } GradPath;

typedef struct {
  /* --reproducible: reduce after every round, in the order of the micro-batches. Otherwise each
   * rank accumulates its own gradients, which are reduced once per step. */
  bool each_round;
  bool is_sharded; /* a rank receives only the sums of the pieces that it owns */
  bool bf16;       /* gradients are all-reduced in bf16 */
  bool overlaps;   /* --overlap: reduce buckets while backward runs */
  uint32_t rounds; /* rounds per step: micro-batches that rank 0 computes */
  size_t bucket;   /* elements of a bucket */
  /* Reports the order in which backward of `model` completes gradients. */
  ReduceAnnounce announce;
  const void *model;
} GradientsSpec;

/* What the memory of the all-reduce depends on. */
typedef struct {
  int ranks;
  bool is_host;               /* backward runs on the CPU */
  bool has_nccl;              /* GRADS_NCCL */
  bool has_rounds;            /* GradientsSpec.each_round, and a step has several */
  uint64_t bucket, gradients; /* bytes */
} GradientsMemory;
/* Bytes that reducing needs in addition to the gradients. */
typedef struct {
  uint64_t device, host;
} ReduceBytes;
ReduceBytes gradients_bytes(const GradientsMemory *m);

typedef struct {
  GradPath path;
  bool each_round;
  bool overlaps;
  /* gradients_queue_sum queues what gradients_wait_made would otherwise send. */
  bool is_sum_queued;
  const Backend *backend;
  Allreduce *allreduce; /* used by GRADS_NCCL */
  /* Divides the gradient into buckets, and each bucket into one piece per rank. */
  Reducer *reducer;
  size_t n;
  float *g; /* (n) gradients in the backend's memory */
  /* (n) buffer in host memory for collectives; on a CPU the same array as g. Between two steps
   * it may hold other arrays. */
  float *host;
  GradientsSpec spec;
  bool is_pinned; /* `host` is page-locked, so that a GPU copies it at full speed */
} Gradients;

/* Allocates g (n elements, not initialized) and what the path needs. The backend and
 * `allreduce` must outlive `q`. */
NODISCARD Err gradients_open(Gradients *q, Comm *comm, const Backend *backend,
                             Allreduce *allreduce, size_t n, const GradientsSpec *spec);
/* Divides the gradients into other buckets, of `elements`. Call it between two steps. */
NODISCARD Err gradients_set_bucket(Gradients *q, Comm *comm, size_t elements);
/* Frees all arrays; does nothing if they are not allocated. */
void gradients_close(Gradients *q);

/* A round: each contributing rank computes one micro-batch, then all ranks reduce. */
typedef struct {
  int contributors;       /* ranks 0 … contributors-1 have gradients to add */
  bool is_first, is_last; /* first and last reduced round of the step */
} GradRound;

void gradients_begin_round(Gradients *q, GradRound round);
/* Returns the function that backward calls for each complete range of gradients (its context is
 * `reducer`); NULL if the path does not overlap with backward or --overlap is off. */
GradReady gradients_ready(const Gradients *q);
/* GRADS_NCCL: queues the sum of the buckets that have not been sent, and makes device work that is
 * queued later wait for all collectives. Does not block. */
void gradients_queue_sum(Gradients *q);
/* Blocks until this rank's gradients of the round are computed and, if the path needs it,
 * copied to the host. Contributors call it after they have queued backward. */
NODISCARD Err gradients_wait_made(Gradients *q);
/* Blocks until the gradients of the other ranks are added. After the last round g holds the
 * sum: all of it or, if is_sharded, this rank's pieces. */
NODISCARD Err gradients_wait_sum(Gradients *q, GradRound round);

#endif
