/* Gradient all-reduce, bucket by bucket, during the backward pass. A bucket is a range of
 * the flat gradient, cut into one piece for each rank. When a bucket is complete, each rank
 * receives the others' contributions to its piece, adds them in rank order, and sends the
 * sum to all.
 *
 * Order of buckets. All ranks send the buckets in the order set by reducer_set_order: a
 * complete bucket waits for the buckets before it. Ranks may therefore complete their
 * gradients in different orders, or all at once (copied from a GPU).
 *
 * Order of additions. Rank 0's contribution is added first, then rank 1's and so on, round
 * after round. With one micro-batch per round and rank this is the order of the
 * micro-batches, so the sums have the same bits on any number of ranks.
 *
 * Threads: one thread, which runs the backward pass. Depends on comm. */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include "comm/comm.h"

typedef struct {
  size_t unit; /* elements that are not split: a piece is a whole number of units */
  /* Elements of a bucket; rounded down to a multiple of `unit`, at least one unit. */
  size_t bucket;
  bool bf16;   /* contributions and sums are sent as bf16, added in fp32 */
  bool shard;  /* reduce-scatter: a rank receives the sums of its own pieces only */
  bool rounds; /* a step may have more than one round */
  /* Sends a complete bucket by another transport (NCCL). The reducer then does not access
   * `g`, reducer_finish does not wait, and a step must have one round. NULL: use
   * comm_reduce. */
  void (*send)(void *context, size_t bucket);
  void *context;
} ReduceSpec;

typedef struct Reducer Reducer;
/* `g` is the flat gradient of n elements; the reducer keeps the pointer. */
NODISCARD Err reducer_new(Reducer **reducer, Comm *comm, float *g, size_t n,
                          const ReduceSpec *spec);
void reducer_free(Reducer *reducer);
size_t reducer_bytes(const Reducer *reducer); /* bytes of working memory */

/* A function that calls ready(context, begin, end) for ranges that cover each element at most once,
 * in the order in which the backward pass of `model` completes their gradients. */
typedef void (*ReduceAnnounce)(const void *model,
                               void (*ready)(void *context, size_t begin, size_t end),
                               void *context);
/* Sets the order of the buckets to the order in which `announce` completes them. Every rank
 * calls it with the same model, before the first round. Buckets that are not announced, all of
 * them without this call, follow in ascending order. */
void reducer_set_order(Reducer *reducer, ReduceAnnounce announce, const void *model);

/* A round of gradient accumulation within a step. */
typedef struct {
  int active; /* ranks 0 … active-1 contribute a gradient in this round */
  bool is_first, is_last;
} ReduceRound;
void reducer_begin_round(Reducer *reducer, ReduceRound round);
/* Marks the gradients in [begin, end) as final for this round and sends the buckets that are
 * now complete. Does not block. The signature is that of GradReady. Calls are optional:
 * reducer_finish sends all buckets that were not sent. */
void reducer_mark_ready(void *reducer, size_t begin, size_t end);
/* Blocks until the sums of this round are complete. After the last round g holds all sums
 * or, with `shard`, the sums of this rank's pieces. */
void reducer_finish(Reducer *reducer);

/* This rank owns one piece of each bucket; piece i is [*begin, *end) of the flat array. */
size_t reducer_pieces(const Reducer *reducer);
void reducer_piece(const Reducer *reducer, size_t i, size_t *begin, size_t *end);
size_t reducer_owned(const Reducer *reducer); /* elements of all pieces of this rank */
/* Fills `off` (ranks + 1): rank r's piece of bucket i is [off[r], off[r + 1]) of the flat
 * array. */
void reducer_bucket(const Reducer *reducer, size_t i, size_t *off);

/* All-gather: each rank sends its pieces of the flat array and receives the others'. */
void reducer_allgather(Reducer *reducer, const char *name, float *array);
/* All-gather of an array that has one element per unit of the flat array, in one collective. */
void reducer_allgather_units(Reducer *reducer, const char *name, double *units);
/* reducer_gather copies the pieces of all ranks into the flat array `whole` on rank 0;
 * reducer_scatter copies in the other direction. `owned` holds a rank's pieces one after
 * another. `whole` is ignored on other ranks. */
void reducer_gather(Reducer *reducer, const char *name, const float *owned, float *whole);
void reducer_scatter(Reducer *reducer, const char *name, float *owned, const float *whole);

#endif
