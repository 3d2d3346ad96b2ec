/* A bucket of gradients that is summed over the ranks (all-reduce or reduce-scatter). This
 * file has what the MPI algorithm and the shared-memory algorithm have in common. Depends on
 * add. */
#ifndef COMM_BUCKET_H
#define COMM_BUCKET_H

#include "comm/add.h"

/* The bucket is cut into one piece for each rank. A rank adds the contributions to its piece in the
 * order of the ranks, after the sums of earlier rounds (gradient accumulation). */
typedef struct {
  float *g; /* (off[size]) this rank's gradients; overwritten with the sums in the last round */
  const size_t *off; /* (size + 1) rank r's piece is [off[r], off[r + 1]); off[0] is 0 */
  /* (elements of this rank's piece) sums of the rounds so far; unused if a step has one
   * round */
  float *sum;
  int active;       /* ranks 0 … active-1 contribute, at least one */
  bool first, last; /* whether this is the first or the last round of the step */
  bool bf16;        /* contributions and sums are rounded to bf16, added in fp32 */
  bool shard;       /* a rank receives the sums of its own piece only (reduce-scatter) */
  char *work;       /* working memory of comm_reduce_work() bytes */
  int64_t bucket;   /* index of the bucket, for CommEvent */
} CommReduce;

/* Bytes of one gradient element in a message. */
size_t bucket_width(bool bf16);
/* Returns true if all ranks receive the sum in this round (last round of an all-reduce). */
bool bucket_is_shared(const CommReduce *r);
/* Returns the number of elements of the longest piece. */
size_t bucket_longest_piece(const CommReduce *r, int ranks);
/* Fills `term` with the contributions to be added, in rank order, and returns their number
 * (r->active). `own` is this rank's contribution; that of rank i begins i * stride bytes
 * after `in`. */
int bucket_terms(const CommReduce *r, int rank, const float *own, const char *in, size_t stride,
                 Term *term);

#endif
