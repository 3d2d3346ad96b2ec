/* The gradients of all ranks to their sum, bucket by bucket, while the backward
 * pass still runs. A bucket is a stretch of the flat array; when all of it has been
 * announced it is exchanged: each rank receives its piece of it from the others,
 * adds in the order of the ranks, and gives the sum back to all. Relies on comm.
 *
 * Every rank sends the buckets in the same order, that of reducer_set_order: a bucket that is
 * ready waits for those before it. So ranks that announce their gradients differently, or not
 * at all (a device whose gradients are copied when all are made), work together.
 *
 * The order of additions is part of the interface: contribution 0 first, then 1 and
 * so on, round after round. With one micro-batch a round and rank, dealt out in
 * turn, that is the order of the micro-batches, whatever the number of ranks. */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include "comm/comm.h"

typedef struct {
  size_t unit;   /* elements that stay together: pieces are whole units */
  size_t bucket; /* elements, about */
  bool bf16;     /* numbers are rounded to bf16 on their way, added in fp32 */
  bool shard;    /* sums stay with the rank that owns the piece */
  bool rounds;   /* there may be more than one round a step */
  /* Buckets that are ready go this way and not through the host: `g` is never touched
   * here, and reducer_finish does not wait. NULL: through the host. No rounds then. */
  void (*send)(void *context, size_t bucket);
  void *context;
} ReduceSpec;

typedef struct Reducer Reducer;
/* g: the flat gradients, n elements. */
NODISCARD Err reducer_new(Reducer **reducer, Comm *comm, float *g, size_t n,
                          const ReduceSpec *spec);
void reducer_free(Reducer *reducer);
size_t reducer_bytes(const Reducer *reducer);

/* Calls `ready` with `context` for every element once, in the order in which the backward pass
 * of a model completes gradients. */
typedef void (*ReduceAnnounce)(const void *model,
                               void (*ready)(void *context, size_t begin, size_t end),
                               void *context);
/* Sets the order of the buckets: that in which `announce` completes them. Every rank calls it
 * with the same model, before the first round. Without it the first bucket is sent first. */
void reducer_set_order(Reducer *reducer, ReduceAnnounce announce, const void *model);

/* A round begins: ranks 0 … active-1 contribute what their backward pass makes. */
void reducer_round(Reducer *reducer, int active, bool first, bool last);
/* [begin, end) will not change any more in this round; a GradReady. Never called, or not for
 * all elements: reducer_finish sends what is left. */
void reducer_ready(void *reducer, size_t begin, size_t end);
/* Waits for the round's end. After the last round g holds the sums: all of them, or
 * with `shard` this rank's pieces. */
void reducer_finish(Reducer *reducer);

/* What this rank owns: piece i of reducer_pieces, [*begin, *end) of the flat array. */
size_t reducer_pieces(const Reducer *reducer);
void reducer_piece(const Reducer *reducer, size_t i, size_t *begin, size_t *end);
size_t reducer_owned(const Reducer *reducer); /* elements of all its pieces */
/* Rank r's piece of bucket i, one of reducer_pieces: [off[r], off[r + 1]) of the array. */
void reducer_bucket(const Reducer *reducer, size_t i, size_t *off);
/* Every rank's pieces of the flat array to all ranks. */
void reducer_gather(Reducer *reducer, const char *name, float *array);
/* The same of an array with one element for each unit. */
void reducer_gather_units(Reducer *reducer, const char *name, double *units);
/* From the pieces laid end to end, on each rank, to the whole array on rank 0; the
 * others' `whole` is not used. And back, `whole` being read on rank 0. */
void reducer_collect(Reducer *reducer, const char *name, const float *owned, float *whole);
void reducer_deal(Reducer *reducer, const char *name, float *owned, const float *whole);

#endif
