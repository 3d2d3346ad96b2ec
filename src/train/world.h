/* The ranks of a training run as seen by one rank: its device, the transport to the others, and
 * its part of the work. Only this file, allreduce, gradients and agree depend on the number of
 * ranks; other files of train call collectives that work for any number. Depends on backend,
 * comm, data, gradients. */
#ifndef TRAIN_WORLD_H
#define TRAIN_WORLD_H

#include "data/batch.h"
#include "train/gradients.h"
#include "train/spec.h"

/* What --tune has chosen. */
typedef struct {
  bool is_set;
  size_t bucket;     /* bytes of a bucket */
  int ctas;          /* maximum CTAs of NCCL; 0: NCCL chooses */
  bool reserves_sms; /* see DeviceCommSpec */
} Tuned;

typedef struct {
  Comm *comm;
  Backend backend;
  Allreduce allreduce; /* selected transport of the gradient all-reduce */
  Gradients grads;
  Tuned tuned;
  /* Private to world.c: */
  int rank, ranks;
  int device_sharers;   /* number of ranks that use this rank's device, including this rank */
  double first_timeout; /* timeout in seconds until a step has been timed */
  double longest_gap;   /* longest time in seconds between two reports of progress so far */
  bool is_warm;         /* a step has been completed */
} World;

/* The caller keeps ownership of `comm`. */
void world_init(World *w, Comm *comm);
/* Opens this rank's device. The ranks of a machine use its GPUs in turn, by local rank. */
NODISCARD Err world_open_device(World *w, const BackendSpec *spec);
/* Selects NCCL or host memory for the all-reduce, and initializes NCCL. In a new run of several ranks
 * without NCCL, --nccl-ctas is an error; a resumed one may have it in its config. `is_resumed` counts
 * on rank 0. */
NODISCARD Err world_open_transport(World *w, const TrainSpec *spec, bool is_resumed);
/* Returns what the options of the run ask of the transport. */
AllreduceSpec world_allreduce_spec(const TrainSpec *spec);
/* Returns true if NCCL, where it is used, sums losses too, and the update follows on the device
 * without the host: with any optimizer but NovoGrad. */
bool world_sums_on_device(const TrainSpec *spec);
/* Call world_close_transport before the arrays on the device are released, and world_close
 * after that. Both do nothing if not open. */
void world_close_transport(World *w);
void world_close(World *w);

/* Returns true on rank 0, which writes files and prints. */
bool world_is_writer(const World *w);
/* Returns true if there are other ranks, which must finish a step together with this rank. */
bool world_has_others(const World *w);
/* Returns true if the injected fault `what` is due on this rank (base/fault.h). */
bool world_has_fault(const World *w, const char *what, uint64_t step);

/* Micro-batches. Of W ranks, rank r computes the micro-batches r, r + W, r + 2W … of a step. A
 * round is W consecutive micro-batches. */

/* Sets the number of micro-batches per step: `asked` if not 0, otherwise `saved` from the
 * checkpoint if not 0, otherwise (new run) the larger of the number of ranks and `max_ranks`.
 * Fails if `asked` differs from `saved`, or if there are more ranks than micro-batches. The
 * result is the same on all ranks; `saved` and `max_ranks` are read on rank 0 only. */
NODISCARD Err world_settle_micro_batches(World *w, uint32_t asked, uint64_t saved,
                                         uint32_t max_ranks, uint32_t *count);
uint32_t world_rounds(const World *w, uint32_t micro_batches);
/* Number of this rank's first micro-batch of a step. */
uint32_t world_first_micro_batch(const World *w);
/* Returns the specification of this rank's micro-batches from `step` on, for the task's
 * loader. */
LoaderSpec world_loader_spec(const World *w, uint64_t seed, uint64_t step,
                             uint32_t micro_batches);

typedef struct {
  uint32_t micro_batch; /* number of the micro-batch that this rank computes in this round */
  /* false: the last round has fewer micro-batches than ranks, and none for this rank. */
  bool has_micro_batch;
  /* Gradients overwrite the array, because those of the previous round have been reduced. */
  bool is_fresh;
  /* The gradients are all-reduced after this round; always false with GRADS_STAY. */
  bool is_reduced;
  GradRound grads; /* how this round's gradients are all-reduced; valid if is_reduced */
} Round;
/* Iterates over this rank's rounds of a step: initialize the iterator with {0};
 * world_next_round returns false after the last. */
typedef struct {
  uint32_t next;
  bool is_over;
} RoundIterator;
bool world_next_round(const World *w, uint32_t micro_batches, RoundIterator *it, Round *round);

/* Sets *bytes to this rank's share of the free memory of its device or, on a CPU, of the
 * machine. */
NODISCARD Err world_free_memory(const World *w, uint64_t *bytes);
/* Returns the memory that reducing gradients of `bytes` bytes needs in addition to the
 * gradients. */
ReduceBytes world_reduce_bytes(const World *w, const TrainSpec *spec, uint32_t micro_batches,
                               uint64_t bytes);
/* Returns the number of ranks over which the optimizer state is divided. */
uint64_t world_optimizer_shards(const World *w, const TrainSpec *spec);
/* Returns the bytes that each rank sends, and receives, in a step; 0 with one rank. */
double world_traffic(const World *w, const TrainSpec *spec, uint32_t micro_batches,
                     const Params *params);
/* Returns the peak FLOP/s of the devices of all ranks (backend/peak.h); 0: one is unknown. A
 * collective. */
double world_peak(World *w, const char *precision);
/* Sets *value to the smallest value of all ranks. */
NODISCARD Err world_least(World *w, const char *name, uint32_t *value);

/* Returns the seconds without a report of progress after which this rank counts as hung: five
 * times the longest gap so far or, in the first step, first_timeout. */
double world_timeout(const World *w);
/* Updates longest_gap with the time since *since, and sets *since to the current time. */
void world_note_progress(World *w, double *since);

#endif
