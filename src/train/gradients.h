/* Sums the gradients of all micro-batches of a step over all ranks. The path is selected once,
 * at set-up, and is one of four paths:
 *
 *   GRADS_STAY    One rank: backward accumulates in place, nothing is sent.
 *   GRADS_HOST    Backward runs on the CPU: each bucket is reduced in host memory as soon as it is
 *                 complete, while backward goes on.
 *   GRADS_COPIED  Backward runs on a GPU, without NCCL: all gradients are copied to host memory
 *                 when backward is done, reduced there, and their sum is copied back.
 *   GRADS_NCCL    From GPU to GPU: each bucket is reduced as soon as it is complete, while backward
 *                 goes on.
 *
 * GradSpec.each_round selects when: after every round or once per step. Depends on backend,
 * allreduce, comm/reduce. */
#ifndef TRAIN_GRADIENTS_H
#define TRAIN_GRADIENTS_H

#include "model/model.h"
#include "train/allreduce.h"

typedef enum { GRADS_STAY, GRADS_HOST, GRADS_COPIED, GRADS_NCCL } GradPath;

typedef struct {
  bool
      each_round; /* --reproducible: a sum after every round, in the order of the micro-batches;
                         else each rank accumulates its own, and they are summed once a step */
  bool is_sharded;         /* each rank gets only the sums of the pieces that it owns */
  bool bf16;               /* gradients are sent in bf16 */
  bool overlaps;           /* --overlap: buckets may be reduced while backward runs */
  uint32_t rounds;         /* of a step: micro-batches of rank 0 */
  size_t bucket;           /* elements that are reduced at once */
  ReduceAnnounce announce; /* of the model: the order in which backward completes gradients */
  const void *model;
} GradientsSpec;

typedef struct {
  GradPath path;
  bool each_round;
  bool overlaps;
  const Backend *backend;
  Allreduce *allreduce; /* of GRADS_NCCL */
  Reducer *reducer;     /* the buckets, and the pieces of them that each rank owns */
  size_t n;
  float *g; /* (n) in the backend's memory */
  float
      *host; /* (n) in host memory, for what travels between ranks: g itself on a CPU. Free for
                  other arrays between two steps. */
  bool is_pinned; /* `host`, so that a GPU copies it at full speed */
} Gradients;

/* Allocates g (n elements, zero or not) and what its path needs. The backend and `allreduce` must
 * outlive it. */
NODISCARD Err gradients_open(Gradients *q, Comm *comm, const Backend *backend,
                             Allreduce *allreduce, size_t n, const GradientsSpec *spec);
void gradients_close(Gradients *q); /* harmless when not open */

/* A round: some ranks compute a micro-batch each, then all reduce. */
typedef struct {
  int contributors;       /* ranks 0 … contributors-1 have gradients to add */
  bool is_first, is_last; /* the first, the last reduced round of the step */
} GradRound;

void gradients_begin_round(Gradients *q, GradRound round);
/* What backward calls when a range is complete, with `reducer` as its context; NULL where the path
 * does not overlap with backward, or is asked not to. */
GradReady gradients_ready(const Gradients *q);
/* Waits until this rank's gradients are made and on their way to the other ranks. Called by
 * contributors, after backward was queued. */
NODISCARD Err gradients_wait_made(Gradients *q);
/* Waits until the other ranks' gradients are added. After the last round g holds the sum: all of
 * it, or if is_sharded this rank's pieces. */
NODISCARD Err gradients_wait_sum(Gradients *q, GradRound round);

#endif
