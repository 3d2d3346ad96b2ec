/* Cuts the flat gradient into buckets of equal size and finds when each is complete. Shared by
 * the reducer, which sends the buckets, and by `plan`, which predicts when they are sent.
 * Depends on base. */
#ifndef COMM_CUT_H
#define COMM_CUT_H

#include <stddef.h>

#include "base/err.h"

typedef struct {
  size_t n;        /* elements of the gradient */
  size_t size;     /* elements of a bucket; the last one may be shorter */
  size_t buckets;  /* at least one if n > 0 */
  size_t *missing; /* (buckets) elements whose gradients are not complete yet */
} BucketCut;

/* `bucket` is rounded down to a multiple of `unit`, at least one unit. All elements are missing
 * afterwards. */
NODISCARD Err cut_open(BucketCut *cut, size_t n, size_t unit, size_t bucket);
void cut_close(BucketCut *cut); /* accepts a zeroed struct */
size_t cut_begin(const BucketCut *cut, size_t bucket);
size_t cut_end(const BucketCut *cut, size_t bucket);
/* Makes all elements missing. */
void cut_reset(BucketCut *cut);
/* Marks [begin, end) as complete, and calls complete(context, bucket) for each bucket that thereby
 * is; `complete` may be NULL. */
void cut_mark(BucketCut *cut, size_t begin, size_t end,
              void (*complete)(void *context, size_t bucket), void *context);

#endif
