/* The ranks of a training run, as one of them sees it: its device, how it reaches the others, and
 * which part of the work is its own. Beside the parts of the world (allreduce, gradients) and agree,
 * which compares the ranks, nothing in train knows how many there are. Collectives on `comm` mean
 * the same for any number. Depends on backend, comm, data, gradients. */
#ifndef TRAIN_WORLD_H
#define TRAIN_WORLD_H

#include "data/batch.h"
#include "train/gradients.h"
#include "train/spec.h"

typedef struct {
  Comm *comm;
  Backend backend;
  Allreduce allreduce; /* between GPUs */
  Gradients grads;
  /* world.c's own: */
  int rank, ranks;
  int device_sharers;   /* ranks on this rank's device, it among them */
  double first_timeout; /* seconds, while no step has been timed */
  double longest_gap;   /* seconds between two reports of progress, the longest so far */
  bool is_warm;         /* a step has been made */
} World;

/* `comm` stays the caller's. */
void world_init(World *w, Comm *comm);
/* Opens this rank's device: of several GPUs the ranks of a machine take one each. */
NODISCARD Err world_open_device(World *w, const BackendSpec *spec);
/* Selects NCCL or host memory for the all-reduce, and initializes NCCL. */
NODISCARD Err world_open_transport(World *w, const TrainSpec *spec);
/* The transport is closed before arrays on the device are released, the device after them. Both
 * are harmless when not open. */
void world_close_transport(World *w);
void world_close(World *w);

/* Does this rank write files and print (rank 0)? */
bool world_is_writer(const World *w);
/* Are there other ranks, which must finish a step together with this one? */
bool world_has_others(const World *w);
/* Is a fault on purpose due on this rank (base/fault.h)? */
bool world_has_fault(const World *w, const char *what, uint64_t step);

/* Micro-batches. Rank r of W computes numbers r, r + W, r + 2W … of a step: a round is W of them. */

/* How many make a step: as asked (0: not asked), as the run was saved with (0: it is new), or one
 * for each rank. The same result on all ranks; `saved` counts on rank 0. */
NODISCARD Err world_settle_micro_batches(World *w, uint32_t asked, uint64_t saved,
                                         uint32_t *count);
uint32_t world_rounds(const World *w, uint32_t micro_batches);
uint32_t world_first_micro_batch(const World *w); /* of this rank in a step */
/* This rank's micro-batches from `step` on, for the task's loader. */
LoaderSpec world_loader_spec(const World *w, uint64_t seed, uint64_t step,
                             uint32_t micro_batches);

typedef struct {
  uint32_t micro_batch; /* the micro-batch of the step that this rank computes */
  bool has_micro_batch; /* false: the last round has fewer micro-batches than ranks */
  bool is_fresh;   /* gradients overwrite the array, as the last round's have been reduced */
  bool is_reduced; /* the gradients are all-reduced after it; never with GRADS_STAY */
  GradRound grads; /* valid if is_reduced */
} Round;
/* Iterates over this rank's rounds of a step: initialize the iterator with {0};
 * world_next_round returns false after the last. */
typedef struct {
  uint32_t next;
  bool is_over;
} RoundIterator;
bool world_next_round(const World *w, uint32_t micro_batches, RoundIterator *it, Round *round);

/* Memory. */

/* Bytes of the device's memory, or the machine's, that this rank may take: its share of what is
 * free. */
NODISCARD Err world_free_memory(const World *w, uint64_t *bytes);
/* Bytes that reducing gradients takes beside g, which has `bytes`: of the device and of the host. */
typedef struct {
  uint64_t device, host;
} ReduceBytes;
ReduceBytes world_reduce_bytes(const World *w, const TrainSpec *spec, uint32_t micro_batches,
                               uint64_t bytes);
/* Of an optimizer state of `bytes`, what this rank holds. */
uint64_t world_shard_bytes(const World *w, const TrainSpec *spec, uint64_t bytes);
/* Bytes that each rank sends, and receives, in a step with n parameters; 0 with one rank. */
double world_traffic(const World *w, const TrainSpec *spec, uint32_t micro_batches, size_t n);
/* The least of all ranks' values, on all of them. */
NODISCARD Err world_least(World *w, const char *name, uint32_t *value);

/* Rank timeout. */

/* Seconds without a report of progress after which this rank counts as hung: five times the longest
 * gap so far, or in the first step, which has none, first_timeout. */
double world_timeout(const World *w);
/* Takes the time since *since into account, and sets it to now. */
void world_note_progress(World *w, double *since);

#endif
