/* Buckets of records. Depends on base/mem. */
#include "monitor/board_buckets.h"

#include <ctype.h>
#include <string.h>

#include "base/mem.h"

int buckets_find_column(const Buckets *b, const char *name, size_t len) {
  for (size_t i = 0; i < b->columns; i++)
    if (strncmp(b->name[i], name, len) == 0 && b->name[i][len] == '\0') return (int)i;
  return -1;
}

static bool is_name(const char *name, size_t len) {
  if (len == 0 || len >= BUCKETS_NAME) return false;
  for (size_t i = 0; i < len; i++)
    if (!isalnum((unsigned char)name[i]) && !memchr("_-./", name[i], 4)) return false;
  return true;
}

int buckets_column(Buckets *b, const char *name, size_t len) {
  if (!is_name(name, len)) return -1;
  int found = buckets_find_column(b, name, len);
  if (found >= 0 || b->columns == BUCKETS_COLUMNS) return found;
  memcpy(b->name[b->columns], name, len);
  b->name[b->columns][len] = '\0';
  return (int)b->columns++;
}

static void merge_cell(BucketCell *into, const BucketCell *from) {
  if (from->values == 0) return;
  if (into->values == 0) {
    *into = *from;
    return;
  }
  if (from->min < into->min) into->min = from->min;
  if (from->max > into->max) into->max = from->max;
  into->values += from->values;
  into->mean += (from->mean - into->mean) * ((float)from->values / (float)into->values);
}

/* Merges buckets 2i and 2i + 1 into bucket i. */
static void merge_neighbours(Buckets *b) {
  for (size_t i = 0; i < b->count / 2; i++) {
    Bucket merged = b->bucket[2 * i];
    merged.last = b->bucket[2 * i + 1].last;
    merged.records += b->bucket[2 * i + 1].records;
    b->bucket[i] = merged;
    BucketCell *left = &b->cell[2 * i * BUCKETS_COLUMNS];
    BucketCell *right = left + BUCKETS_COLUMNS;
    for (size_t c = 0; c < b->columns; c++) merge_cell(&left[c], &right[c]);
    memmove(&b->cell[i * BUCKETS_COLUMNS], left, BUCKETS_COLUMNS * sizeof *left);
  }
  b->count /= 2;
  b->each *= 2;
  b->epoch++;
}

static Err add_bucket(Buckets *b, BucketPlace place) {
  if (b->count == BUCKETS_MOST) merge_neighbours(b);
  /* Pages that are never written, as in a run of few records, take no memory. */
  if (!b->bucket) TRY(mem_alloc(&b->bucket, BUCKETS_MOST, sizeof *b->bucket));
  if (!b->cell) TRY(mem_alloc(&b->cell, BUCKETS_MOST * BUCKETS_COLUMNS, sizeof *b->cell));
  b->bucket[b->count] = (Bucket){.first = place};
  memset(&b->cell[b->count * BUCKETS_COLUMNS], 0, BUCKETS_COLUMNS * sizeof *b->cell);
  b->count++;
  return ERR_OK;
}

Err buckets_begin(Buckets *b, BucketPlace place) {
  if (b->each == 0) b->each = 1;
  if (b->count == 0 || b->bucket[b->count - 1].records >= b->each) TRY(add_bucket(b, place));
  Bucket *last = &b->bucket[b->count - 1];
  last->last = place;
  last->records++;
  return ERR_OK;
}

void buckets_add(Buckets *b, int column, double value) {
  if (column < 0 || b->count == 0) return;
  float v = (float)value;
  BucketCell one = {.min = v, .max = v, .mean = v, .values = 1};
  merge_cell(&b->cell[(b->count - 1) * BUCKETS_COLUMNS + (size_t)column], &one);
}

void buckets_cut(Buckets *b, size_t count) {
  if (count >= b->count) return;
  b->count = count;
  b->epoch++;
}

void buckets_clear(Buckets *b) {
  b->count = 0;
  b->columns = 0;
  b->each = 1;
  b->epoch++;
}

void buckets_free(Buckets *b) {
  mem_free(b->bucket);
  mem_free(b->cell);
  *b = (Buckets){0};
}
