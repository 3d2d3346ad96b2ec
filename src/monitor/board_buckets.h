/* Columns of a run's measurements in bounded memory, for curves: records are grouped into at most
 * BUCKETS_MOST buckets of equally many records. A bucket has the smallest value, the largest value and the mean of
 * each column, so that a single outlier among 100,000 records stays visible. When all buckets are
 * full, neighbours are merged and every bucket takes twice as many records.
 * One thread at a time. Depends on base/mem. */
#ifndef MONITOR_BOARD_BUCKETS_H
#define MONITOR_BOARD_BUCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define BUCKETS_MOST    1024 /* even: neighbours are merged in pairs */
#define BUCKETS_COLUMNS 48   /* further columns are ignored */
#define BUCKETS_NAME    48   /* bytes of a column's name with the NUL */

/* Where a record is: on the three axes of a chart, and in its file. */
typedef struct {
  double step, seconds;
  double tokens;   /* trained so far; NAN if the run does not record it */
  uint64_t offset; /* of the record's line in the file */
} BucketPlace;

typedef struct {
  BucketPlace first, last; /* of the bucket's records */
  uint32_t records;
} Bucket;

typedef struct {
  float min, max, mean;
  uint32_t values; /* 0: no record of the bucket has the column */
} BucketCell;

typedef struct {
  Bucket *bucket;
  BucketCell *cell; /* cell[b * BUCKETS_COLUMNS + c]; both NULL before the first record */
  size_t count;
  size_t columns;
  char name[BUCKETS_COLUMNS][BUCKETS_NAME];
  uint32_t each; /* records that a full bucket has */
  /* Increases whenever a bucket other than the last changes: a reader that knows buckets of an
   * earlier epoch must take all of them again. */
  uint64_t epoch;
} Buckets;

/* Returns the number of the column; adds it if it is new. Returns -1 if there are too many columns,
 * or if the name is too long or has other characters than letters, digits and "_-./". */
int buckets_column(Buckets *b, const char *name, size_t len);
/* Returns the number of the column, or -1. */
int buckets_find_column(const Buckets *b, const char *name, size_t len);
/* Begins a record. */
NODISCARD Err buckets_begin(Buckets *b, BucketPlace place);
/* Adds a value to the record that buckets_begin began. */
void buckets_add(Buckets *b, int column, double value);
/* Removes the buckets from number `count` on. */
void buckets_cut(Buckets *b, size_t count);
/* Removes all buckets and columns; the epoch increases. */
void buckets_clear(Buckets *b);
void buckets_free(Buckets *b);

static inline const BucketCell *buckets_cell(const Buckets *b, size_t bucket, int column) {
  return &b->cell[bucket * BUCKETS_COLUMNS + (size_t)column];
}

#endif
