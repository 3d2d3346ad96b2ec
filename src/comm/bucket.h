/* A bucket of gradients that is summed over the ranks (all-reduce or reduce-scatter): the parts
 * common to the algorithms for messages and for shared memory. Depends on add. */
#ifndef COMM_BUCKET_H
#define COMM_BUCKET_H

#include "comm/add.h"

/* The bucket is cut into one piece for each rank. A rank adds the contributions to its piece in the
 * order of the ranks, after the sums of earlier rounds (gradient accumulation). */
typedef struct {
  float *g;          /* (off[size]) this rank's contribution; after the last round the sums */
  const size_t *off; /* (size + 1) rank r's piece is [off[r], off[r + 1]); off[0] is 0 */
  float *sum;        /* (own piece) sum of the rounds so far; not used by a single round */
  int active;        /* ranks 0 … active-1 contribute, at least one */
  bool first, last;  /* round of a step */
  bool bf16;         /* contributions and sums are rounded to bf16, added in fp32 */
  bool shard;        /* a rank receives the sums of its own piece only (reduce-scatter) */
  char *work;        /* comm_reduce_work bytes */
} CommReduce;

/* Bytes of one gradient element as it is sent. */
size_t bucket_width(bool bf16);
/* Is the sum sent to all ranks in this round? */
bool bucket_is_shared(const CommReduce *r);
/* Elements of the longest piece. */
size_t bucket_longest_piece(const CommReduce *r, int ranks);
/* Fills `term` with the contributions to be added, in the order of the ranks, and returns their
 * number (r->active). This rank's contribution is at `own`, that of rank i at in + i * stride
 * bytes. */
int bucket_terms(const CommReduce *r, int rank, const float *own, const char *in, size_t stride,
                 Term *term);

#endif
