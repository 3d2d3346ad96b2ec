/* Gradient all-reduce, bucket by bucket, while the backward pass still runs. A bucket is a range of
 * the flat gradient. It is cut into one piece for each rank. When all of a bucket is ready, each
 * rank receives the others' contributions to its piece, adds them in the order of the ranks, and
 * sends the sum to all.
 *
 * Order of buckets. Every rank sends the buckets in the order of reducer_set_order: a bucket that is
 * ready waits for those before it. So ranks whose gradients become ready in different orders, or all
 * at once (copied from a GPU), work together.
 *
 * Order of additions. Contribution 0 first, then 1 and so on, round after round. With one micro-batch
 * for each round and rank this is the order of the micro-batches, so that the sums have the same bits
 * on any number of ranks.
 *
 * Threads: one thread, which runs the backward pass. Depends on comm. */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include "comm/comm.h"

typedef struct {
  size_t unit;   /* elements that stay together: pieces are whole units */
  size_t bucket; /* elements of a bucket; rounded down to whole units, at least one */
  bool bf16;     /* contributions and sums are sent as bf16, added in fp32 */
  bool shard;    /* reduce-scatter: a rank receives the sums of its own pieces only */
  bool rounds;   /* a step may have more than one round */
  /* Sends a bucket that is ready, instead of comm_reduce (NCCL). `g` is then never touched here,
   * reducer_finish does not wait, and a step has one round. NULL: comm_reduce. */
  void (*send)(void *context, size_t bucket);
  void *context;
} ReduceSpec;

typedef struct Reducer Reducer;
/* g: the flat gradient, n elements; it must outlive the reducer. */
NODISCARD Err reducer_new(Reducer **reducer, Comm *comm, float *g, size_t n,
                          const ReduceSpec *spec);
void reducer_free(Reducer *reducer);
size_t reducer_bytes(const Reducer *reducer); /* of working memory */

/* Calls `ready` with `context` for every element once, in the order in which the backward pass of a
 * model completes gradients. */
typedef void (*ReduceAnnounce)(const void *model,
                               void (*ready)(void *context, size_t begin, size_t end),
                               void *context);
/* Sets the order of the buckets to that in which `announce` completes them. Every rank calls it
 * with the same model, before the first round. Without it buckets are sent from first to last. */
void reducer_set_order(Reducer *reducer, ReduceAnnounce announce, const void *model);

/* A round of gradient accumulation within a step. */
typedef struct {
  int active; /* ranks 0 … active-1 contribute what their backward pass has computed */
  bool is_first, is_last;
} ReduceRound;
void reducer_begin_round(Reducer *reducer, ReduceRound round);
/* [begin, end) does not change any more in this round; sends the buckets that are complete. Does
 * not block. A GradReady. It may be left out for any elements: reducer_finish sends what is left. */
void reducer_mark_ready(void *reducer, size_t begin, size_t end);
/* Blocks until the round's sums are complete. After the last round g holds all sums, or with
 * `shard` those of this rank's pieces. */
void reducer_finish(Reducer *reducer);

/* The pieces that this rank owns, one of each bucket: [*begin, *end) of the flat array. */
size_t reducer_pieces(const Reducer *reducer);
void reducer_piece(const Reducer *reducer, size_t i, size_t *begin, size_t *end);
size_t reducer_owned(const Reducer *reducer); /* elements of all its pieces */
/* Rank r's piece of bucket i is [off[r], off[r + 1]) of the flat array. */
void reducer_bucket(const Reducer *reducer, size_t i, size_t *off);

/* All-gather: each rank sends its pieces of the flat array and receives the others'. */
void reducer_allgather(Reducer *reducer, const char *name, float *array);
/* All-gather of an array with one element for each unit of the flat array. */
void reducer_allgather_units(Reducer *reducer, const char *name, double *units);
/* Gathers the pieces of all ranks, each rank's end to end in `owned`, into the flat array `whole`
 * of rank 0, and back. `whole` is not used on other ranks. */
void reducer_gather(Reducer *reducer, const char *name, const float *owned, float *whole);
void reducer_scatter(Reducer *reducer, const char *name, float *owned, const float *whole);

#endif
